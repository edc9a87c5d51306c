"""Recipe: an embedding method as data, with fields in the order in which they are applied.

    e(s) = g( Σ_n ω_n · Σ_k α_k · h_n^(k) )

    template   t   None, or text with one {text} and any number of [MASK]. With {tokens} in place of {text}, the text is
                   tokenized alone, not as part of the filled template; Echo has {tokens} twice. "0.5*T0+0.5*T4"
                   adds the pooled vectors of several templates                              (essent.recipe.named)
    layers     h, α  sources and their weights, "0+L", "0.3*0+0.7*L", "static", "L-bias"    (essent.recipe.layers)
    weights    ω   a product of token weightings, "idf", "ditto:1-10", "idf*ditto:1-10"  (essent.recipe.weighting)
    reduce     Σ   "sum", "max", "power:3", "dct:2"                                        (essent.recipe.pooling)
    shaping    g   a chain of steps, "zscore", "whiten", "normalize" …                     (essent.recipe.shaping)

Text form: a name or `field=value` words, then the chain: `ditto:1-10 | zscore`, `mean layers=3`,
`template="{text} means [MASK]" weights=mask | whiten:256 | normalize`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Any

from essent._core.lazy import needs_torch
from essent._core.registry import did_you_mean
from essent.errors import RecipeError, UnknownNameError
from essent.recipe.layers import Mix, checked_mix, checked_source, format_mix, parse_mix, reads_mlm_head
from essent.recipe.named import (
    MASK,
    NAMED,
    TEMPLATES,
    TOKENS_SLOT,
    Ensemble,
    checked_templates,
    format_template,
    parse_template,
    templates_of,
)

FIELDS = ("template", "layers", "weights", "reduce")
ALLOWED = {  # for the error about a value of another type
    "template": f"give a text with one {{text}}, the name of a template ({', '.join(TEMPLATES)}), a sum such as "
    "'0.5*T0+0.5*T4', or None.",
    "layers": "give a text such as 'L' (the last layer), 'L-1' or '0+L', or pairs of a source and its weight.",
    "weights": "give a text such as 'idf' or 'idf*ditto:1-10', or a list of such texts.",
    "reduce": "give a text such as 'sum' or 'max'.",
    "shaping": "give a text such as 'zscore | normalize', or a list of such texts.",
}
WORD = re.compile(r'\s*(?P<key>\w+)\s*=\s*(?P<value>"(?:[^"\\]|\\.)*"|\'[^\']*\'|[^\s|"\']+)')
PIECE = re.compile(r'(?:"(?:[^"\\]|\\.)*"|\'[^\']*\'|[^|"\'])+|\||(?P<unclosed>["\'].*)', re.DOTALL)


@dataclass(frozen=True)
class Recipe:
    """A method that turns a text into a vector; frozen, hashable, with plain values.

    `layers`, `weights` and `shaping` may also be texts, as in the text form ("0+L", "idf*ditto:1-10", "zscore |
    normalize"), and `template` may be the name of a template or a sum of several templates. Values are checked
    without a model; `Encoder` checks that its model can run the recipe.

    Raises:
        RecipeError: a value is malformed; the message shows it and what is allowed.
        UnknownNameError: a name is not registered.

    Example:
        >>> from essent import Recipe
        >>> recipe = Recipe(layers="0+L", weights="idf", shaping="zscore | normalize")
        >>> str(recipe)
        'first-last-idf | zscore | normalize'
        >>> Recipe.parse(str(recipe)) == recipe
        True
    """

    template: str | Ensemble | None = None
    layers: Mix = (("L", 1.0),)
    weights: tuple[str, ...] = ("uniform",)
    reduce: str = "sum"
    shaping: tuple[str, ...] = ()

    if TYPE_CHECKING:  # for type checkers: arguments may be texts, attributes are parsed values

        def __init__(
            self,
            template: str | Ensemble | None = None,
            layers: Mix | str = (("L", 1.0),),
            weights: Sequence[str] | str = ("uniform",),
            reduce: str = "sum",
            shaping: Sequence[str] | str = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        from essent.recipe.pooling import reductions
        from essent.recipe.weighting.base import weightings

        for key in ALLOWED:
            object.__setattr__(self, key, _field_of(key, getattr(self, key)))
        object.__setattr__(self, "template", checked_templates(self.template))
        if not self.layers or not self.weights:
            raise RecipeError("A recipe needs at least one source in `layers` and one weighting in `weights`.")
        mix = format_mix(self.layers)
        layers = [(checked_source(source, mix), factor) for source, factor in self.layers]
        object.__setattr__(self, "layers", checked_mix(layers, f"layers={mix}"))
        object.__setattr__(self, "weights", tuple(weightings.create(spec).spec() for spec in self.weights))
        object.__setattr__(self, "reduce", reductions.create(self.reduce).spec())
        if self.shaping:
            with needs_torch(f"The shaping {' | '.join(self.shaping)!r}"):
                from essent.recipe.shaping.base import shapers
            object.__setattr__(self, "shaping", tuple(shapers.create(spec).spec() for spec in self.shaping))
        if conflict := find_conflict(self.template, self.layers, self.weights):
            raise RecipeError(conflict)

    @property
    def terms(self) -> tuple[tuple[str | None, float], ...]:
        """The templates whose pooled vectors are added, with their factors; a single template has factor 1."""
        return self.template if isinstance(self.template, tuple) else ((self.template, 1.0),)

    # -- text form --------------------------------------------------------------------------------------------------

    @classmethod
    def parse(cls, text: str | Recipe) -> Recipe:
        """Read the one-line text form; `Recipe.parse(str(recipe)) == recipe`.

        Raises:
            RecipeError: the text cannot be read; the message shows the part at fault.
            UnknownNameError: a recipe, weighting, source or step does not exist; the message suggests the nearest.
        """
        if isinstance(text, Recipe):
            return text
        if not isinstance(text, str) or not text.strip():
            raise RecipeError(f"A recipe is a text such as 'mean' or 'ditto:1-10 | zscore', not {text!r}.")
        head, *steps = split_chain(text)
        if any(not step for step in steps):
            raise RecipeError(f"{text!r} has an empty step before or after '|'. Give a step such as zscore.")
        name = re.match(r"\s*(?P<name>[A-Za-z][\w+-]*)(?P<argument>:\S*)?(?=\s|$)", head)
        recipe = cls()
        if name:
            recipe = _from_name(name["name"], name["argument"])
            head = head[name.end() :]
        values = _read_words(head, text)
        return replace(recipe, **values, shaping=(*recipe.shaping, *steps))

    def __str__(self) -> str:
        head, steps = _name_of(self), self.shaping
        if head is None:
            words = []
            if self.template is not None:
                template = format_template(self.template)
                plain = template in TEMPLATES or (isinstance(self.template, tuple) and '"' not in template)
                words.append(f"template={template if plain else json.dumps(template, ensure_ascii=False)}")
            if self.layers != (("L", 1.0),):
                words.append(f"layers={format_mix(self.layers)}")
            if self.weights != ("uniform",):
                words.append(f"weights={'*'.join(self.weights)}")
            if self.reduce != "sum":
                words.append(f"reduce={self.reduce}")
            head = " ".join(words)
        return " | ".join((head, *steps))

    # -- data form --------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values for JSON or YAML."""
        return {
            "template": list(map(list, self.template)) if isinstance(self.template, tuple) else self.template,
            "layers": [[source, factor] for source, factor in self.layers],
            "weights": list(self.weights),
            "reduce": self.reduce,
            "shaping": list(self.shaping),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """Read the output of `to_dict`, or the same fields as texts.

        Raises:
            RecipeError: a key is unknown, or a value has the wrong type.
        """
        if not isinstance(values, Mapping):
            raise RecipeError(f"A recipe must be a mapping of {', '.join(ALLOWED)}, not {type(values).__name__}.")
        if unknown := [key for key in values if key not in ALLOWED]:
            raise RecipeError(f"Unknown recipe field {unknown[0]!r}. {did_you_mean(str(unknown[0]), list(ALLOWED))}")
        return cls(**values)

    def digest(self) -> str:
        """Return 16 hexadecimal digits that are the same for equal recipes on every machine."""
        canonical = json.dumps(self.to_dict(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def find_conflict(template: str | Ensemble | None, layers: Mix, weights: Sequence[str]) -> str:
    """Return why fields do not fit together, with the fix; "" if they do."""
    from essent.recipe.weighting.base import weightings

    templates, mix, product = templates_of(template), format_mix(layers), "*".join(weights)
    if "mask" in weights and not (templates and all(MASK in text for text in templates)):
        return (
            f"weights=mask needs a template with {MASK}, e.g. template=T0; this recipe has "
            f"{'no template' if template is None else repr(format_template(template))}."
        )
    if "second" in weights and not (templates and all(text.count(TOKENS_SLOT) == 2 for text in templates)):
        return "weights=second needs a template that repeats the text, e.g. template=echo."
    if reads_mlm_head(layers) and "mask" not in weights:
        return (
            f"layers={mix} is predicted by the masked-LM head at the template's masks; it needs weights=mask, not "
            f"weights={product}."
        )
    if any(source.endswith("-bias") for source, _ in layers):
        subtracts = f"layers={mix} subtracts a template's bias, and this recipe"
        if not templates:
            return f"{subtracts} has no template. Add one, e.g. template=bert."
        if len(templates) > 1 or templates[0].count(TOKENS_SLOT) == 2:
            return f"{subtracts} has several templates, or one that repeats the text. Use one with a single {{text}}."
    if len(templates) > 1 and any(weightings.create(spec).reads_stats for spec in weights):
        return f"weights={product} counts tokens for one template, and this recipe has {len(templates)}. Use another."
    return ""


def _field_of(key: str, value: Any) -> Any:
    """Read a field's value from its text form, or from the values of Python or JSON."""
    if isinstance(value, str):
        return read_field(key, value)
    if key == "template" and value is None:
        return None
    listed = isinstance(value, (list, tuple))
    if key in ("template", "layers") and listed and all(map(_is_term, value)) and (value or key == "layers"):
        names = TEMPLATES if key == "template" else {}
        return tuple((names.get(str(source), str(source)), float(factor)) for source, factor in value)
    if key in ("weights", "shaping") and listed and all(isinstance(part, str) for part in value):
        return tuple(part.strip() for part in value)
    raise RecipeError(f"Cannot read {key}={value!r}: {ALLOWED[key]}")


def _is_term(term: Any) -> bool:
    """Return whether a term of a mix is a source and its weight; YAML reads layer 0 as a number."""
    if not isinstance(term, (list, tuple)) or len(term) != 2:
        return False
    return isinstance(term[0], (str, int)) and isinstance(term[1], Real) and bool not in map(type, term)


def split_chain(text: str) -> list[str]:
    """Split a text at every '|' outside quotes."""
    parts = [""]
    for match in PIECE.finditer(text):
        if match["unclosed"]:
            raise RecipeError(f"{text!r} has a quote that is not closed: {match['unclosed']!r}. Close or remove it.")
        if match[0] == "|":
            parts.append("")
        else:
            parts[-1] += match[0]
    return [part.strip() for part in parts]


def _from_name(name: str, argument: str | None) -> Recipe:
    row = NAMED.get(name)
    if row is None:
        raise UnknownNameError(
            f"Unknown recipe {name!r}. {did_you_mean(name, list(NAMED))} Or write the fields: "
            "layers=0+L weights=idf | zscore."
        )
    if (argument is not None) != bool(row.argument) or argument == ":":
        expected = f"needs a {row.argument}" if row.argument else "has no argument"
        raise RecipeError(f"The recipe {name!r} {expected}, e.g. {row.instance}.")
    return Recipe.parse(row.text.format((argument or "")[1:]))


def _read_words(head: str, text: str) -> dict[str, Any]:
    """Read the `field=value` words of a recipe."""
    values: dict[str, Any] = {}
    remainder = head
    while remainder.strip():
        match = WORD.match(remainder)
        if not match:
            raise RecipeError(
                f"Cannot read {remainder.strip()!r} in the recipe {text!r}; expected field=value with a field of "
                f"{', '.join(FIELDS)}, or '| step'. Put values with spaces in quotes."
            )
        key, value = match["key"], match["value"]
        if key not in FIELDS:
            raise RecipeError(f"Unknown field {key!r} in the recipe {text!r}. {did_you_mean(key, list(FIELDS))}")
        if key in values:
            raise RecipeError(f"The field {key!r} occurs twice in the recipe {text!r}.")
        values[key] = read_field(key, _unquote(value))
        remainder = remainder[match.end() :]
    return values


def _unquote(value: str) -> str:
    if value.startswith('"'):
        try:
            return str(json.loads(value))
        except json.JSONDecodeError as error:
            raise RecipeError(f"Cannot read the quoted text {value}: {error}") from None
    return value[1:-1] if value.startswith("'") else value


def read_field(key: str, value: str) -> Any:
    """Read a field's text form: "0+L" as a mix, "idf*ditto:1-10" as two weightings, "T0" as its template."""
    if key == "layers":
        return parse_mix(value)
    if key == "weights":
        return tuple(part.strip() for part in value.split("*"))
    if key == "shaping":
        return tuple(split_chain(value)) if value.strip() else ()
    if key == "template":
        return parse_template(value)
    return value


def _name_of(recipe: Recipe) -> str | None:
    """Return the name of the recipe without its shaping; None if it has no name."""
    unshaped = {**vars(recipe), "shaping": ()}
    head = recipe.weights[0].partition("ditto:")[2]
    for row in NAMED.values():
        if "|" not in row.text and (head or not row.argument):
            name = f"{row.name}:{head}" if row.argument else row.name
            if vars(_parse_name(name)) == unshaped:
                return name
    return None


@lru_cache(maxsize=256)
def _parse_name(name: str) -> Recipe:
    return Recipe.parse(name)
