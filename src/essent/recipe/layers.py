"""Sources h^(k) and their mix α: layers, static rows, external tables; "0+L", "1.5*L+-0.5*random".

A source is one of

- `static`: rows of the input word-embedding table, without positions and LayerNorm,
- `0` (embedding output) … `L` (last), `L-1`: a layer; `L-bias` minus its template bias (PromptBERT 4.3),
- `value:3`, `attention:L-1`, `attention:L-out`: value vectors of a layer's attention, its output before and after W_O,
- `topk:200`: the masked-LM head's prediction from the last layer at a mask (eq. 3); denoised, `topk:200-bias`,
- a table indexed by token id: `random`, `random:300,7` (dimensions, seed), `avg:FOLDER@L` (averages over contexts).
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote, unquote

from essent._core.registry import Registry
from essent.errors import DataError, RecipeError, UnsupportedRecipeError
from essent.recipe.types import Part

if TYPE_CHECKING:
    import torch

    from essent.recipe.tokens import Vocabulary

LAYER = re.compile(r"(?:(?P<number>\d+)|L(?:-(?P<below>\d+))?)(?P<bias>-bias)?$", re.ASCII)
ATTENTION = re.compile(r"(?P<kind>value(?!.*-out)|attention):(?P<layer>\d+|L(?:-\d+)?)(?P<out>-out)?$", re.ASCII)
TOP = re.compile(r"topk:(?P<count>[1-9]\d*)(?P<bias>-bias)?$", re.ASCII)
NUMBER = r"-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"


class TokenTable(Part, ABC):
    """A matrix with one row per token id, used instead of a model's own states."""

    carried: ClassVar[bool] = False  # whether a saved encoder contains the rows, because they cannot be recomputed

    @abstractmethod
    def rows_of(self, vocabulary: Vocabulary) -> torch.Tensor:
        """Return the table (V,D) float32 for a vocabulary; a table of one tokenizer checks the vocabulary here."""


token_tables: Registry[TokenTable] = Registry("source", "essent.tables")


@token_tables.register("random")
@dataclass(frozen=True)
class RandomTable(TokenTable):
    """A random vector N(0, 0.1²) per token: the baseline RE (Stankevičius 3.2.5). Equal seeds give equal rows."""

    dimensions: int = 768
    seed: int = 0
    least: ClassVar[dict[str, int]] = {"dimensions": 1, "seed": 0}

    def rows_of(self, vocabulary: Vocabulary) -> torch.Tensor:
        """Draw the rows (V,D)."""
        import numpy as np
        import torch

        # numpy's generator, not torch's: its stream is the same on every platform and version
        draws = np.random.default_rng(self.seed).standard_normal((len(vocabulary), self.dimensions), dtype=np.float32)
        return torch.from_numpy(draws * np.float32(0.1))  # (V,D)


@token_tables.register("avg")
@dataclass(frozen=True)
class AverageTable(TokenTable):
    """States of every token averaged over a corpus (Avg, Stankevičius 3.2.3): `avg:FOLDER`, a layer `avg:FOLDER@L-1`.

    FOLDER was written by `essent distill --contexts`. As in a URL, write a space as `%20`, a comma as `%2C`, + as
    `%2B`, * as `%2A`, | as `%7C`, quotes as `%22` and `%27`, and the percent sign as `%25`.
    """

    place: str
    carried: ClassVar[bool] = True

    def check_settings(self) -> None:
        """Check the folder and the layer."""
        if not isinstance(self.place, str):
            raise RecipeError(f"avg:{self.place} — write avg:./{self.place} for a folder whose name is a number.")
        if not self.folder or self.layer.endswith("-bias"):
            raise RecipeError(f"avg:{self.place} — write avg:FOLDER or avg:FOLDER@L, with a layer of 0 … L.")

    @property
    def folder(self) -> str:
        """Folder of the averages."""
        return unquote(self.place.removesuffix(f"@{self.layer}"))

    @property
    def layer(self) -> str:
        """Layer of the averages, by default the last."""
        layer = self.place.rpartition("@")[2]
        return layer if "@" in self.place and LAYER.fullmatch(layer) else "L"

    @classmethod
    def of(cls, folder: str | Path, layer: str = "L") -> AverageTable:
        """Make the source of a folder; special characters of its name are escaped."""
        return cls(f"{quote(str(folder), safe='/.~_-:@')}@{layer}")

    def rows_of(self, vocabulary: Vocabulary) -> torch.Tensor:
        """Read the table (V,D).

        Raises:
            RecipeError: there is no such folder, or the layer was not averaged.
            UnsupportedRecipeError: the averages belong to another tokenizer.
        """
        import torch

        from essent.recipe.contexts import Contexts, read_about

        try:
            metadata = read_about(self.folder)
            if metadata["vocabulary"] != vocabulary.digest:
                raise UnsupportedRecipeError(
                    f"layers=avg:{self.place} — these averages belong to another tokenizer, with other tokens. "
                    "Average this model's own states: essent distill -m MODEL --texts FILE --contexts FOLDER."
                )
            layer = resolve(self.layer, int(metadata["last"])).layer
            return torch.from_numpy(Contexts.load(self.folder, {layer}).table(layer))
        except DataError as error:
            raise RecipeError(f"layers=avg:{self.place} — {error}") from None


@dataclass(frozen=True)
class Source:
    """A resolved source: `key` is a layer k, "static", or the spec of a table; `debiased` subtracts the template bias.

    A source of attention has the key (layer k, kind), with the kind "value", "attention" or "attention-out".
    With `top` > 0, the source is the mean embedding of the `top` most probable tokens that the masked-LM head predicts
    from the layer (PromptBERT, eq. 3).
    """

    key: int | str | tuple[int, str]
    debiased: bool = False
    top: int = 0

    @property
    def layer(self) -> int:
        """Number of the layer; only for sources that are a layer or inside one."""
        return int(self.key[0] if isinstance(self.key, tuple) else self.key)


Mix = tuple[tuple[str, float], ...]


def parse_mix(text: str) -> Mix:
    """Read "0+L" (mean) or "0.3*0+0.7*L" (explicit weights) as ((source, α), …).

    Raises:
        RecipeError: the text is malformed, repeats a source, or has weights for only some sources.
    """
    terms = re.split(r"(?<!\d[eE])\+(?=\s*(?:-?\d*\.?\d*(?:[eE][+-]?\d+)?\s*\*)?\s*[A-Za-z0-9])", text.strip())
    read: list[tuple[str, float | None]] = []
    for term in (t.strip() for t in terms):
        match = re.fullmatch(rf"(?:(?P<factor>{NUMBER})\s*\*\s*)?(?P<source>[^\s*+]+)", term)
        if not match:
            hint = " In the name of a folder, write a space as %20, + as %2B, * as %2A." if ":" in term else ""
            raise RecipeError(
                f"layers={text} — cannot read {term!r}; write e.g. L, 0+L, 1+2+L, static, 0.3*0+0.7*L.{hint}"
            )
        read.append((match["source"], float(match["factor"]) if match["factor"] else None))
    return checked_mix(read, f"layers={text}")


def checked_mix(terms: Sequence[tuple[str, float | None]], field: str) -> Mix:
    """Check that no term of a sum is repeated and that all or none have weights; without weights, use the mean.

    Args:
        field: the field of the recipe with its value, for the message.
    """
    names = [name for name, _ in terms]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise RecipeError(f"{field} — {doubled[0]!r} occurs twice; add up its weights.")
    explicit = [factor for _, factor in terms if factor is not None]
    if not explicit:
        return tuple((name, 1.0 / len(terms)) for name in names)
    if len(explicit) < len(terms) or not all(map(math.isfinite, explicit)):
        raise RecipeError(f"{field} — give a finite weight to every term, or to none.")
    if not any(explicit):
        raise RecipeError(f"{field} — all weights are 0, so every vector would be zero.")
    return tuple(zip(names, (float(factor) + 0.0 for factor in explicit), strict=True))  # -0.0 is 0.0


def checked_source(source: str, text: str) -> str:
    """Return a source with the shortest name of its layer: "7" for "007", "L" for "L-0".

    Raises:
        RecipeError: it is no layer, `static`, `topk`, or registered table.
    """
    if source == "static" or TOP.fullmatch(source):
        return source
    if LAYER.fullmatch(source) or ATTENTION.fullmatch(source):
        return re.sub(r"-0+(?!\d)|\b0+(?=\d)", "", source)
    if source.partition(":")[0] in token_tables:
        token_tables.create(source)
        return source
    known = ", ".join(
        ["static", "0 … L", "L-1", "L-bias", "value:L", "attention:L", "attention:L-out", "topk:200", *token_tables]
    )
    raise RecipeError(f"layers={text} — unknown source {source!r}. Known: {known}.")


def format_mix(mix: Mix) -> str:
    """Write a mix as the text that `parse_mix` reads."""
    if all(factor == 1.0 / len(mix) for _, factor in mix):
        return "+".join(name for name, _ in mix)
    return "+".join(f"{factor!r}*{name}" for name, factor in mix)


def resolve(source: str, last: int) -> Source:
    """Resolve the name of a source in a model of `last` layers.

    `L-1` is `last - 1`. The layer may be negative or above `last`: the caller checks that the model has it.
    """
    if top := TOP.fullmatch(source):
        return Source(last, debiased=bool(top["bias"]), top=int(top["count"]))
    if match := ATTENTION.fullmatch(source):
        return Source((resolve(match["layer"], last).layer, match["kind"] + (match["out"] or "")))
    match = LAYER.fullmatch(source)
    if not match:
        return Source(source)
    layer = int(match["number"]) if match["number"] else last - int(match["below"] or 0)
    return Source(layer, debiased=bool(match["bias"]))


def reads_mlm_head(mix: Mix) -> bool:
    """Return whether a mix has a source that the masked-LM head predicts."""
    return any(TOP.fullmatch(name) for name, _ in mix)
