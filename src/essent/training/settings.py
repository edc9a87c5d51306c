"""The objectives of training as rows, the settings of a run, and the papers' settings as presets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from essent._core.arithmetic import precision_of
from essent._core.registry import did_you_mean
from essent.errors import InputError, RecipeError, UnknownNameError
from essent.model.capabilities import ModelCapabilities, check_recipe
from essent.recipe.recipe import MASK, Recipe, read_field
from essent.training.projection import projection_heads

Row = TypeVar("Row")
PRECISIONS = ("float32", "bfloat16", "float16")
CONTINUOUS = "optiprompt"  # the preset that trains the words of a template as free vectors, with the model frozen


@dataclass(frozen=True)
class Objective:
    """Where the positive of a text comes from.

    Attributes:
        name: of the row.
        templates: how many it needs: 0, none; 1, both views under it, which differ by dropout; 2, one for each view.
        denoised: whether each view's template bias is taken off.
        about: one line.
        source: paper and section.
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
    """Everything that a run depends on besides the model and the texts.

    Attributes:
        objective: which views are drawn together: simcse, same-template, different-templates,
            different-templates-denoised or same-template-denoised.
        templates: templates of the views, names such as "T0" or texts; the first is the one that predicts afterwards.
            Empty without a template.
        recipe: what the trained encoder computes: "prompt" or "prompt-denoised" on the first template, or for "simcse"
            any recipe without a template, such as "cls" or "mean".
        projection_head: head between the pooled vector and the loss: none, dense-tanh, prediction-transform or whiten.
        keep_projection_head: save the head behind the encoder instead of dropping it.
        temperature: τ of the loss.
        batch_size: texts (or pairs) in a step; also the number of negatives.
        learning_rate: learning rate of AdamW without weight decay; it falls linearly to 0.
        epochs: length of the run in passes through the texts or pairs.
        max_steps: length of the run in steps, instead of epochs.
        max_seq_length: the most tokens of a text itself, special tokens and template not counted.
        validate_every: steps between validations, which are also checkpoints.
        precision: arithmetic in float32, or bfloat16 or float16 for mixed precision.
        seed: seed of the data's order, dropout and the head.

    Raises:
        InputError, RecipeError, UnknownNameError: a value that is not allowed; says what is.
    """

    objective: str
    templates: tuple[str, ...] = ()
    recipe: str = "prompt"
    projection_head: str = "dense-tanh"
    keep_projection_head: bool = False
    temperature: float = 0.05
    batch_size: int = 256
    learning_rate: float = 1e-5
    epochs: float = 1.0
    max_steps: int | None = None
    max_seq_length: int = 32
    validate_every: int = 125
    precision: str = "float32"
    seed: int = 42

    def __post_init__(self) -> None:
        templates = (self.templates,) if isinstance(self.templates, str) else tuple(self.templates)
        object.__setattr__(self, "templates", tuple(str(read_field("template", text)) for text in templates))
        for name in ("batch_size", "max_steps", "max_seq_length", "validate_every", "seed"):
            value, least = getattr(self, name), int(name != "seed")
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
            if not whole and not (value is None and name == "max_steps"):
                raise InputError(f"{name}={value!r}: it must be a whole number of at least {least}.")
        for name in ("temperature", "learning_rate", "epochs"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise InputError(f"{name}={value!r}: it must be a number above 0.")
        object.__setattr__(self, "precision", precision_of(self.precision, PRECISIONS))
        objective, _ = self.row, projection_heads[self.projection_head]  # which refuse unknown names
        if len(self.templates) != objective.templates:
            raise InputError(
                f"The objective {objective.name!r} takes {objective.templates} template(s), not {len(self.templates)}: "
                f"{self.templates}."
            )
        if len(set(self.templates)) < len(self.templates):
            raise InputError(f"The templates are equal: {self.templates[0]!r}. Take objective='same-template'.")
        _check_recipe(self.predicts, objective, self.templates)
        if self.keep_projection_head and any(name.endswith("-bias") for name, _ in self.predicts.layers):
            raise InputError(
                "keep_projection_head: the head of a denoised recipe has no stock modules; take recipe='prompt'."
            )

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
        """What the loss encodes with, before denoising: one recipe a view."""
        if not self.templates:
            return (self.predicts,)
        return tuple(Recipe(template=template, weights=("mask",)) for template in self.templates)

    def check(self, capabilities: ModelCapabilities) -> None:
        """Refuse what the model cannot run.

        Raises:
            UnsupportedRecipeError: shows the recipe and what the model allows.
        """
        for recipe in (self.predicts, *self.views):
            check_recipe(replace(recipe, layers=(("L-bias", 1.0),)) if self.row.denoised else recipe, capabilities)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "templates": list(self.templates)}


def _check_recipe(recipe: Recipe, objective: Objective, templates: tuple[str, ...]) -> None:
    if objective.templates == 0:
        if recipe.template is not None:
            raise RecipeError(f"objective='simcse' has no template; for {str(recipe)!r} take 'same-template'.")
    elif recipe.weights != ("mask",) or recipe.layers not in ((("L", 1.0),), (("L-bias", 1.0),)):
        raise RecipeError(
            f"The objective {objective.name!r} trains the {MASK} of a template: recipe='prompt' or 'prompt-denoised', "
            f"not {str(recipe)!r}."
        )
    for template in templates:
        if MASK not in template:
            raise RecipeError(f"The template {template!r} has no {MASK}, and that is what is trained.")
    if recipe.shaping:
        raise RecipeError(f"{str(recipe)!r} shapes its vectors; train without the shaping and fit it afterwards.")
    if all(name == "static" or name.startswith("random") for name, _ in recipe.layers):
        raise RecipeError(f"{str(recipe)!r} reads no transformer layer: there is no dropout, and both views are equal.")


@dataclass(frozen=True)
class Preset:
    """A paper's settings; `by_kind` has what it sets for BERT's word pieces and for RoBERTa's byte pairs apart."""

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
            "the first token; dense + tanh, which the paper keeps (keep_projection_head)",
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
    )
}


def find(kind: str, name: str, table: Mapping[str, Row]) -> Row:
    """The row of a name.

    Raises:
        UnknownNameError: there is none; says the nearest.
    """
    if name not in table:
        raise UnknownNameError(f"Unknown {kind} {name!r}. {did_you_mean(name, list(table))}")
    return table[name]


def resolve_settings(preset: str, kind: str, changes: Mapping[str, Any]) -> Settings:
    """A preset's settings for a kind of tokenizer, with changes; templates that a changed objective lacks are dropped.

    Args:
        preset: a name of `PRESETS`.
        kind: "bert" (word pieces marked "##") or "roberta" (words marked, byte pairs and SentencePiece).
        changes: fields of Settings.

    Raises:
        UnknownNameError: no such preset or field; says the nearest.
    """
    row = find("preset", preset, PRESETS)
    for name in changes:
        find("setting", name, Settings.__dataclass_fields__)
    values = {**row.values, **row.by_kind.get(kind, {}), **changes}
    template_count = find("training objective", values["objective"], OBJECTIVES).templates
    if "templates" not in changes:
        own = tuple(values.get("templates", ()))
        values["templates"] = (own if len(own) >= template_count else BOTH[kind]["templates"])[:template_count]
    if "recipe" not in changes and ("objective" in changes or "recipe" not in values):
        values["recipe"] = "prompt" if template_count else "cls"
    return Settings(**values)
