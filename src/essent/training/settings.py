"""The training objectives, the settings of a run, and the papers' settings as presets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from essent._core.arguments import check_size
from essent._core.machine import precision_of
from essent._core.registry import did_you_mean
from essent.errors import InputError, RecipeError, UnknownNameError
from essent.recipe.named import MASK
from essent.recipe.recipe import Recipe, read_field
from essent.training.parameters import projection_heads

Row = TypeVar("Row")
PRECISIONS = ("float32", "bfloat16")
CONTINUOUS = "optiprompt"  # the preset that trains the words of a template as free vectors, with the model frozen
LORA_RATE = 5e-4  # learning rate with LoRA, PromptEOL's


@dataclass(frozen=True)
class Objective:
    """A training objective: how the two views of a text are made.

    Attributes:
        name: the name of the objective, a key of `OBJECTIVES`.
        templates: the number of templates: 0; 1, for both views, which differ by dropout; or 2, one per view.
        denoised: whether the bias of each view's template is subtracted.
        about: a description in one line.
        source: paper and section.

    Example:
        >>> from essent.training import OBJECTIVES
        >>> objective = OBJECTIVES["different-templates-denoised"]
        >>> objective.templates, objective.denoised, objective.source
        (2, True, 'PromptBERT 4.3, eq. 4')
    """

    name: str
    templates: int
    denoised: bool
    about: str
    source: str


OBJECTIVES: dict[str, Objective] = {
    row.name: row
    for row in (
        Objective("simcse", 0, False, "no template, two dropout views", "SimCSE 3"),
        Objective("same-template", 1, False, "one template, two dropout views", "PromptBERT Table 8"),
        Objective("different-templates", 2, False, "a template for each view", "PromptBERT Table 8"),
        Objective(
            "different-templates-denoised", 2, True, "a template for each view, less its bias", "PromptBERT 4.3, eq. 4"
        ),
        Objective("same-template-denoised", 1, True, "one template less its bias; for pairs", "PromptBERT App. B"),
    )
}


@dataclass(frozen=True)
class Settings:
    """The settings of a training run: everything that it depends on besides the model and the data.

    Attributes:
        objective: how the two views of a text are made: simcse, same-template, different-templates,
            different-templates-denoised or same-template-denoised.
        templates: templates of the views, as names such as "T0" or as texts; the trained encoder uses the first one.
            Empty without a template.
        recipe: recipe of the trained encoder: "prompt" or "prompt-denoised" on the first template, for a decoder
            "prompteol" or "about", or for "simcse" any recipe without a template, such as "cls" or "mean".
        projection_head: head between the pooled vector and the loss, dropped after training: none, dense-tanh,
            prediction-transform or whiten.
        temperature: τ of the loss.
        batch_size: texts (or pairs) per step; also the number of negatives.
        learning_rate: initial learning rate of AdamW without weight decay; it decreases linearly to 0.
        epochs: length of the run in passes through the texts or pairs.
        max_steps: length of the run in steps, instead of epochs.
        max_seq_length: maximum number of tokens per text, special tokens and template not counted.
        validate_every: steps between validations; each writes a checkpoint.
        precision: arithmetic in float32, or bfloat16 for mixed precision.
        seed: seed of the order of the data, dropout, the head and the adapters.
        lora: rank of the adapters that are trained instead of the weights; 0 trains the weights.

    Raises:
        InputError, RecipeError, UnknownNameError: a value that is not allowed; names the allowed ones.

    Example:
        >>> from essent.training import Settings
        >>> settings = Settings("simcse", recipe="mean", batch_size=64, max_steps=500)
        >>> settings.temperature, settings.projection_head
        (0.05, 'dense-tanh')
    """

    objective: str
    templates: tuple[str, ...] = ()
    recipe: str = "prompt"
    projection_head: str = "dense-tanh"
    temperature: float = 0.05
    batch_size: int = 256
    learning_rate: float = 1e-5
    epochs: float = 1.0
    max_steps: int | None = None
    max_seq_length: int = 32
    validate_every: int = 125
    precision: str = "float32"
    seed: int = 42
    lora: int = 0

    def __post_init__(self) -> None:
        names = (self.templates,) if isinstance(self.templates, str) else tuple(self.templates)
        templates = tuple(read_field("template", name) for name in names)
        for name, template in zip(names, templates, strict=True):
            if not isinstance(template, str):
                raise RecipeError(f"templates={name!r}: training needs one template per view, not a sum or none.")
        object.__setattr__(self, "templates", templates)
        for name in ("batch_size", "max_steps", "max_seq_length", "validate_every", "seed", "lora"):
            if (size := getattr(self, name)) is not None or name != "max_steps":
                object.__setattr__(self, name, check_size(size, name, least=int(name not in ("seed", "lora"))))
        for name in ("temperature", "learning_rate", "epochs"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise InputError(f"{name}={value!r}: must be a number above 0.")
        object.__setattr__(self, "precision", precision_of(self.precision, PRECISIONS))
        objective, _ = self.row, projection_heads[self.projection_head]  # both raise for unknown names
        if len(self.templates) != objective.templates:
            raise InputError(
                f"The objective {objective.name!r} needs {objective.templates} template(s), got {len(self.templates)}: "
                f"{self.templates}."
            )
        _check_recipe(self.predicts, objective, self.templates)

    @property
    def row(self) -> Objective:
        """The objective."""
        return find("training objective", self.objective, OBJECTIVES)

    @property
    def predicts(self) -> Recipe:
        """The recipe of the trained encoder."""
        recipe = Recipe.parse(self.recipe)
        return replace(recipe, template=self.templates[0]) if self.templates else recipe

    @property
    def views(self) -> tuple[Recipe, ...]:
        """The recipes of the views that the loss compares, before denoising: one per view."""
        return tuple(map(_view, self.templates)) or (self.predicts,)

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return {**asdict(self), "templates": list(self.templates)}


def _view(template: str) -> Recipe:
    """Return the recipe of a template's vector: of its [MASK], or of the last token, for decoders."""
    return Recipe(template=template, weights=("mask" if MASK in template else "last",))


def _check_recipe(recipe: Recipe, objective: Objective, templates: tuple[str, ...]) -> None:
    if objective.templates == 0:
        if recipe.template is not None:
            raise RecipeError(
                f"objective='simcse' uses no template. For the recipe {str(recipe)!r}, use objective='same-template'."
            )
    elif recipe.weights != _view(templates[0]).weights or recipe.layers not in ((("L", 1.0),), (("L-bias", 1.0),)):
        allowed = "'prompt' or 'prompt-denoised'" if MASK in templates[0] else "'prompteol' or 'about'"
        raise RecipeError(
            f"recipe={str(recipe)!r}: the objective {objective.name!r} with the template {templates[0]!r} needs "
            f"recipe={allowed}."
        )
    if recipe.shaping:
        raise RecipeError(
            f"Cannot train with shaping: the recipe is {str(recipe)!r}. Train without it and fit it afterwards."
        )


@dataclass(frozen=True)
class Preset:
    """The training settings of a paper.

    Attributes:
        name: the name of the preset, a key of `PRESETS`.
        source: paper and section.
        about: a description in one line.
        supervised: whether it trains on pairs.
        values: fields of `Settings` and their values.
        by_kind: values for one kind of tokenizer only: "bert" (word pieces) or "roberta" (byte pairs).

    Example:
        >>> from essent.training import PRESETS
        >>> preset = PRESETS["promptbert-unsup"]
        >>> preset.values["batch_size"], preset.supervised, preset.source
        (256, False, 'PromptBERT App. B, Tables 13, 14')
    """

    name: str
    source: str
    about: str
    supervised: bool
    values: Mapping[str, Any]
    by_kind: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


BERT_TEMPLATES = ('This sentence of "{text}" means [MASK] .', 'This sentence : "{text}" means [MASK] .')
ROBERTA_TEMPLATES = ("This sentence : ' {text} ' means [MASK] .", "The sentence : ' {text} ' means [MASK] .")
BOTH = {"bert": {"templates": BERT_TEMPLATES}, "roberta": {"templates": ROBERTA_TEMPLATES}}
FIRST = {kind: {"templates": values["templates"][:1]} for kind, values in BOTH.items()}
TRANSFORM = {"projection_head": "prediction-transform"}
SUPERVISED = {"batch_size": 512, "learning_rate": 5e-5, "epochs": 3.0}
SIMCSE = {"objective": "simcse", "recipe": "cls", "max_seq_length": 30, "validate_every": 250}
PRESETS: dict[str, Preset] = {
    row.name: row
    for row in (
        Preset(
            "promptbert-unsup",
            "PromptBERT App. B, Tables 13, 14",
            "two templates, denoised; dense + tanh in training only",
            False,
            {"objective": "different-templates-denoised", "batch_size": 256, "learning_rate": 1e-5},
            BOTH,
        ),
        Preset(
            "promptbert-sup",
            "PromptBERT App. B, Tables 13, 14",
            "one template, denoised; the prediction head's transform (BERT), dense + tanh (RoBERTa)",
            True,
            {"objective": "same-template-denoised", "recipe": "prompt-denoised", **SUPERVISED},
            {"bert": {**FIRST["bert"], **TRANSFORM}, "roberta": FIRST["roberta"]},
        ),
        Preset(
            "simcse-unsup",
            "SimCSE App. A",
            "the first token, two dropout views; dense + tanh in training only",
            False,
            SIMCSE,
            {
                "bert": {"batch_size": 64, "learning_rate": 3e-5},
                "roberta": {"batch_size": 512, "learning_rate": 1e-5},
            },
        ),
        Preset(
            "simcse-sup",
            "SimCSE App. A",
            "the first token; dense + tanh in training only (the paper retains it)",
            True,
            {**SIMCSE, **SUPERVISED},
        ),
        Preset(
            CONTINUOUS,
            "PromptBERT 4.2, App. B",
            "a continuous template, the model frozen; the prediction head's transform in training only",
            False,
            {"objective": "same-template", "learning_rate": 3e-5, "epochs": 5.0, "validate_every": 1000, **TRANSFORM},
            {"bert": {"templates": BERT_TEMPLATES[1:]}, "roberta": FIRST["roberta"]},
        ),
        Preset(
            "prompteol",
            "PromptEOL 3.3, code",
            "for decoders: the last token of a prompt, LoRA of rank 64, no head",
            True,
            {"objective": "same-template", "recipe": "prompteol", "templates": ("prompteol",), "lora": 64}
            | {"projection_head": "none", "validate_every": 50},
        ),
    )
}


def find(kind: str, name: str, table: Mapping[str, Row]) -> Row:
    """Return the row with a name.

    Raises:
        UnknownNameError: there is none; suggests the nearest name.
    """
    if name not in table:
        raise UnknownNameError(f"Unknown {kind} {name!r}. {did_you_mean(name, list(table))}")
    return table[name]


def resolve_settings(preset: str, kind: str, changes: Mapping[str, Any]) -> Settings:
    """Return a preset's settings for a kind of tokenizer, with changes.

    If the changes include another objective, the number of templates is adapted to it. A recipe for decoders, such as
    "about", also sets its template, and LoRA its learning rate.

    Args:
        preset: a name in `PRESETS`.
        kind: "bert" (word pieces marked with "##") or "roberta" (byte pairs and SentencePiece, which mark
            the start of words).
        changes: fields of `Settings`.

    Raises:
        UnknownNameError: no such preset or field; suggests the nearest name.

    Example:
        >>> from essent.training import resolve_settings
        >>> settings = resolve_settings("simcse-unsup", "bert", {"max_steps": 500})
        >>> settings.batch_size, settings.learning_rate, settings.max_steps
        (64, 3e-05, 500)
    """
    row = find("preset", preset, PRESETS)
    for name in changes:
        find("setting", name, Settings.__dataclass_fields__)
    values = {**row.values, **row.by_kind.get(kind, {}), **changes}
    if values.get("lora") and "learning_rate" not in changes:
        values["learning_rate"] = LORA_RATE
    template_count = find("training objective", values["objective"], OBJECTIVES).templates
    if "templates" not in changes:
        prompt = Recipe.parse(str(values.get("recipe", "mean"))).template
        if isinstance(prompt, tuple):
            raise RecipeError(f"recipe={values['recipe']!r}: training needs one template per view, not a sum.")
        own = tuple(values.get("templates", ())) if prompt is None or MASK in prompt else (prompt,)
        values["templates"] = (own if len(own) >= template_count else BOTH[kind]["templates"])[:template_count]
    if "recipe" not in changes and ("objective" in changes or "recipe" not in values):
        values["recipe"] = "prompt" if template_count else "cls"
    return Settings(**values)
