"""Search spaces: products of templates, layer mixes, weights and shaping chains; by name or from a YAML file.

A `*` stands for everything that the model has: `ditto:*` for every head, `*` for every layer and the static rows,
`0+*` for layer 0 with each other layer.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from essent._core.registry import did_you_mean
from essent.errors import DataError, RecipeError, UnknownNameError, UnsupportedRecipeError
from essent.model.capabilities import ModelCapabilities, check_recipe
from essent.recipe.named import SLOT
from essent.recipe.recipe import Recipe, find_conflict, read_field

EVERY = "*"
KEYS = ("template", "layers", "weights", "shaping")  # of a grid in a file
FIELD = re.compile(r"\{(\w+)\}")
MIXES = ("static", "0", "L", "0+L", "L-1+L", "1+2+L", "0+1+2+L")
# Unit length does not change cosines, but it matters for clusters by distance: a search should serve both.
UNIT = " | normalize"
CHAINS = ("", *(step + UNIT for step in ("centre", "zscore", "abtt:1", "abtt", "whiten", "whiten:64", "quantile")))
SUMS = ("about+prompteol-example", "about+one-word+prompteol-example")  # of templates whose passes run anyway
AFFINE = ("", *(step + UNIT for step in ("centre", "zscore", "abtt", "whiten", "whiten:64")))


@dataclass(frozen=True)
class Grammar:
    """A template with named slots; {text} is in the template itself or in the choices of one slot.

    Args:
        text: the template.
        choices: the candidates of every slot.

    Raises:
        RecipeError: a filled template without exactly one {text}, a slot without choices, or choices without a slot.

    Example:
        >>> from essent.lab.templates import Grammar
        >>> Grammar("{text} {relation} [MASK] .", {"relation": ("is", "means")}).templates()
        ['{text} is [MASK] .', '{text} means [MASK] .']
    """

    text: str
    choices: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        grammar, slots = f"The template grammar {self.text!r}", self._slots()
        if unlike := set(slots) ^ {slot for slot, choices in self.choices.items() if choices}:
            raise RecipeError(f"{grammar}: {{{min(unlike)}}} must be a slot of it and have choices.")
        if wrong := [template for template in self.templates() if template.count(SLOT) != 1]:
            raise RecipeError(f"{grammar} produces {wrong[0]!r}, which must contain exactly one {SLOT}.")

    def _slots(self) -> list[str]:
        return [name for name in dict.fromkeys(FIELD.findall(self.text)) if "{" + name + "}" != SLOT]

    def templates(self) -> list[str]:
        """Return all filled templates, in the order of the choices; the space beside an empty slot is removed."""
        slots = self._slots()
        filled = []
        for chosen in itertools.product(*(self.choices[slot] for slot in slots)):
            text = self.text
            for slot, words in zip(slots, chosen, strict=True):
                text = text.replace("{" + slot + "}", words)
            filled.append(re.sub(r" {2,}", " ", text).strip())
        return list(dict.fromkeys(filled))


@dataclass(frozen=True)
class Grid:
    """The product of some choices, each in the text form of recipes; the empty chain means no shaping.

    Raises:
        RecipeError: a field without choices.

    Example:
        >>> from essent import search
        >>> from essent.selection import Grid, Space
        >>> grid = Grid(layers=("L", "0+L"), weights=("uniform", "idf"), shaping=("", "zscore"))
        >>> board = search("sentence-transformers/all-MiniLM-L6-v2", "pairs.jsonl", Space((grid,)), baselines=["mean"])
        >>> len(board.trials)
        8
    """

    templates: tuple[str | None, ...] = (None,)
    layers: tuple[str, ...] = ("L",)
    weights: tuple[str, ...] = ("uniform",)
    shaping: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        if empty := [name for name, choices in vars(self).items() if not choices]:
            raise RecipeError(f"A grid needs at least one choice in {empty[0]!r}.")

    def recipes(self, capabilities: ModelCapabilities) -> Iterator[Recipe]:
        """Yield every recipe of the product whose fields fit together, such as weights=mask and a template with one."""
        mixes = dict.fromkeys(mix for choice in self.layers for mix in _every_layer(choice, capabilities))
        products = dict.fromkeys(product for choice in self.weights for product in _every_head(choice, capabilities))
        choices = itertools.product(
            [read_field("template", choice) if choice else None for choice in self.templates],
            [read_field("layers", choice) for choice in mixes],
            [read_field("weights", choice) for choice in products],
            [read_field("shaping", choice) for choice in self.shaping],
        )
        return (
            Recipe(template, layers, weights, shaping=shaping)
            for template, layers, weights, shaping in choices
            if not find_conflict(template, layers, weights)
        )


@dataclass(frozen=True)
class Space:
    """Grids and single recipes that are searched together.

    Attributes:
        causal_grids: grids that causal language models search instead of `grids`; by default the same.

    Example:
        >>> from essent import search
        >>> from essent.selection import Grid, Space
        >>> space = Space((Grid(weights=("uniform", "idf")),), named=("first-last | zscore",))
        >>> board = search("sentence-transformers/all-MiniLM-L6-v2", "pairs.jsonl", space, baselines=["mean"])
        >>> sorted(str(trial.recipe) for trial in board.trials)
        ['first-last | zscore', 'mean', 'weights=idf']
    """

    grids: tuple[Grid, ...] = ()
    named: tuple[str, ...] = ()
    name: str = "own"
    causal_grids: tuple[Grid, ...] = ()

    def expand(self, capabilities: ModelCapabilities) -> tuple[list[Recipe], int]:
        """Return the distinct recipes that the model can run, in a fixed order, and the number of the others.

        Raises:
            RecipeError: a choice that cannot be parsed.
            UnsupportedRecipeError: the model cannot run any of them.
        """
        grids = self.causal_grids if capabilities.causal and self.causal_grids else self.grids
        named = map(Recipe.parse, self.named)
        candidates = dict.fromkeys(itertools.chain(named, *(grid.recipes(capabilities) for grid in grids)))
        runs: list[Recipe] = []
        refusal: UnsupportedRecipeError | None = None
        for recipe in candidates:
            try:
                check_recipe(recipe, capabilities)
                runs.append(recipe)
            except UnsupportedRecipeError as error:
                refusal = error
        if not runs:
            raise refusal or RecipeError(f"The search space {self.name!r} contains no recipe.")
        return runs, len(candidates) - len(runs)


def _of_last_layers(templates: tuple[str, ...], *weights: str) -> Grid:
    """Return the grid of prompts of decoders, whose last layers predict the next token."""
    return Grid(templates, ("L", "L-1", "L-2"), weights, shaping=CHAINS)


# Prompts of decoders and their sums, in the space `decoder` and among the reference recipes of `teacher`.
PROMPTS = (
    _of_last_layers(("prompteol-example", "one-word", "about"), "last", "position"),
    _of_last_layers(SUMS, "last"),
)
_GRIDS: dict[str, tuple[Grid, ...]] = {
    "heads": (Grid(layers=("0+L",), weights=("ditto:*",)),),
    "layers": (Grid(layers=(EVERY, "0+*", "L-1+L", "1+2+L", "0+1+2+L")),),
    "weights": (
        Grid(
            layers=("static", "L", "0+L"),
            weights=("uniform", "content", "cls", "last", "position", "remove", "idf", "tfidf", "sif"),
        ),
    ),
    "shaping": (Grid(layers=("L", "0+L", "1+2+L"), weights=("uniform", "idf"), shaping=CHAINS),),
    "full": (
        Grid(
            (None, "T0", "T4"),
            MIXES,
            ("uniform", "content", "idf", "sif", "remove", "position", "mask"),
            shaping=CHAINS,
        ),
        Grid(layers=MIXES, weights=("ditto:*",)),
        Grid(layers=("0+L",), weights=("ditto:*", "idf*ditto:*"), shaping=AFFINE),
    ),
    "decoder": (
        Grid(layers=MIXES, weights=("uniform", "content", "position", "last", "idf", "sif"), shaping=CHAINS),
        Grid(layers=("0+L",), weights=("ditto:*",), shaping=("", "centre" + UNIT)),
        _of_last_layers(("prompteol", "pretended-cot"), "last", "position"),
        _of_last_layers(("T4", "about-mask"), "mask"),
        *PROMPTS,
        _of_last_layers(("echo",), "second", "position"),
    ),
}
SPACES = {name: Space(grids, name=name) for name, grids in _GRIDS.items()}
SPACES["auto"] = Space(_GRIDS["full"], name="auto", causal_grids=_GRIDS["decoder"])

# The reference recipes of label-free criteria, the same for every searched space.
_PLAIN = tuple(grid for name in ("heads", "layers", "weights", "shaping") for grid in _GRIDS[name])
REFERENCE = Space(_PLAIN, name="reference", causal_grids=(*_PLAIN, *PROMPTS))


def find_space(space: str | Path | Space) -> Space:
    """Return a space by name, from a YAML file, or as it is.

    The file contains a list of grids and recipes:

        - layers: [L, 0+L]
          weights: ["ditto:*", idf]
          shaping: ["", zscore]
        - template: '{prefix} "{text}" {relation} [MASK] .'
          prefix: ["This sentence :", ""]
          relation: [means, is]
          weights: [mask]
        - recipe: first-last | whiten

    Raises:
        UnknownNameError: neither a named space nor a file.
        DataError: the file cannot be read, or an entry is neither a grid nor a recipe; names the entry.
        RecipeError: a choice that cannot be parsed.
    """
    if isinstance(space, Space):
        return space
    if str(space) in SPACES:
        return SPACES[str(space)]
    path = Path(space)
    if path.suffix.lower() not in (".yaml", ".yml") and not path.is_file():
        raise UnknownNameError(
            f"Unknown search space {str(space)!r}. {did_you_mean(str(space), list(SPACES))} A .yaml file also works."
        )
    entries = read_yaml(path)
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, Mapping) for entry in entries):
        raise DataError(f"{path}: expected a non-empty list of grids and recipes, such as `- recipe: mean`.")
    named = tuple(str(entry["recipe"]) for entry in entries if set(entry) == {"recipe"})
    grids = [
        _read_grid(entry, f"{path}, entry {number}")
        for number, entry in enumerate(entries, start=1)
        if set(entry) != {"recipe"}
    ]
    return Space(tuple(grids), named, path.stem)


def read_yaml(path: Path) -> Any:
    """Return the plain values of a YAML file.

    Raises:
        DataError: the file is missing, not UTF-8, or not YAML.
    """
    import yaml

    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {error}") from None


def _read_grid(entry: Mapping[str, Any], where: str) -> Grid:
    """Return the grid of an entry; keys beside those of KEYS are the slots of its template."""
    choices = {}
    for key, value in entry.items():
        items = value if isinstance(value, list) else [value]
        if not items or not all(isinstance(item, (str, int)) and not isinstance(item, bool) for item in items):
            raise DataError(f"{where}: {key} must be a text or a list of texts, not {value!r}.")
        choices[key] = tuple(map(str, items))
    slots = {key: choices.pop(key) for key in list(choices) if key not in KEYS}
    if "template" in choices:
        grammars = [Grammar(text, slots) for text in choices.pop("template")]
        choices["templates"] = tuple(template for grammar in grammars for template in grammar.templates())
    elif slots:
        key = next(iter(slots))
        raise DataError(f"{where}: unknown key {key!r}. {did_you_mean(str(key), [*KEYS, 'recipe'])}")
    return Grid(**choices)


def _every_layer(choice: str, capabilities: ModelCapabilities) -> list[str]:
    """Replace a `*` that is a term of its own by every layer; in `0.5*L` it is a product."""
    terms = [term.strip() for term in choice.split("+")]
    if EVERY not in terms:
        return [choice]
    numbers = [*map(str, range(capabilities.layers)), "L"]
    if terms == [EVERY]:
        return ["static", *numbers]
    return ["+".join(number if term == EVERY else term for term in terms) for number in numbers if number not in terms]


def _every_head(choice: str, capabilities: ModelCapabilities) -> list[str]:
    if f"ditto:{EVERY}" not in choice:
        return [choice]
    heads = itertools.product(range(1, capabilities.layers + 1), range(1, capabilities.attention_heads + 1))
    return [choice.replace(f"ditto:{EVERY}", f"ditto:{layer}-{head}") for layer, head in heads]
