"""Sources h^(k) and their mix α: layers, static rows, external tables; "0+L", "1.5*L+-0.5*random".

A source is `static` (rows of the input word-embedding table, no position, no LayerNorm), a layer `0` (embedding
output) … `L` (last), `L-1`, a layer less its template bias `L-bias` (PromptBERT 4.3), what the masked-LM head makes
of the last layer at a mask `topk:200` (eq. 3, denoised `topk:200-bias`), or a table indexed by token id (`random`,
`random:300,7`: dimensions, seed; `avg:FOLDER@L`: averages over contexts).
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote, unquote

from essent._core.registry import Registry
from essent.errors import DataError, RecipeError, UnsupportedRecipeError
from essent.recipe.types import Part, require_integer

if TYPE_CHECKING:
    import torch

    from essent.recipe.tokens.ids import Vocabulary

LAYER = re.compile(r"(?:(?P<number>\d+)|L(?:-(?P<below>\d+))?)(?P<bias>-bias)?$")
TOP = re.compile(r"topk:(?P<count>[1-9]\d*)(?P<bias>-bias)?$")
NUMBER = r"-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"


class TokenTable(Part, ABC):
    """A matrix with one row a token id, used instead of a model's own states."""

    carried: ClassVar[bool] = False  # whether a saved encoder takes the rows along: they cannot be made again

    @abstractmethod
    def rows_of(self, vocabulary: Vocabulary) -> torch.Tensor:
        """The table for a vocabulary, (V,D) float32; tables that belong to one tokenizer look at it here."""


token_tables: Registry[TokenTable] = Registry("source", "essent.tables")


@token_tables.register("random")
@dataclass(frozen=True)
class RandomTable(TokenTable):
    """Every token a random vector, N(0, 0.1²): the baseline RE (Stankevičius 3.2.5). Same seed, same rows."""

    dimensions: int = 768
    seed: int = 0

    def __post_init__(self) -> None:
        require_integer(f"random:{self.dimensions},{self.seed}", "dimensions", self.dimensions, 1)
        require_integer(f"random:{self.dimensions},{self.seed}", "seed", self.seed, 0)

    def rows_of(self, vocabulary: Vocabulary) -> torch.Tensor:
        """Random rows (V,D) from the seed."""
        import numpy as np
        import torch

        # numpy's generator, not torch's: its stream is the same on every platform and version
        draws = np.random.default_rng(self.seed).standard_normal((len(vocabulary), self.dimensions), dtype=np.float32)
        return torch.from_numpy(draws * np.float32(0.1))  # (V,D)


@token_tables.register("avg")
@dataclass(frozen=True)
class AverageTable(TokenTable):
    """States of every token averaged over a corpus (Avg, Stankevičius 3.2.3): `avg:FOLDER`, a layer `avg:FOLDER@L-1`.

    FOLDER is what `essent distill --contexts` wrote. As in an address, `%20` stands for a space there, `%2C` for a
    comma, `%2B` for +, `%2A` for *, `%7C` for |, `%22` and `%27` for quotes, `%25` for the sign itself.
    """

    place: str
    carried: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.place, str):
            raise RecipeError(f"avg:{self.place} — a folder whose name is a number is written avg:./{self.place}.")
        if not self.folder or self.layer.endswith("-bias"):
            raise RecipeError(f"avg:{self.place} — write avg:FOLDER or avg:FOLDER@L, with a layer of 0 … L.")

    @property
    def folder(self) -> str:
        """The folder that holds the averages."""
        return unquote(self.place.removesuffix(f"@{self.layer}"))

    @property
    def layer(self) -> str:
        """The layer of the averages, by default the last."""
        layer = self.place.rpartition("@")[2]
        return layer if "@" in self.place and LAYER.fullmatch(layer) else "L"

    @classmethod
    def of(cls, folder: str | Path, layer: str = "L") -> AverageTable:
        """The source of a folder with any name."""
        return cls(f"{quote(str(folder), safe='/.~_-:@')}@{layer}")

    def rows_of(self, vocabulary: Vocabulary) -> torch.Tensor:
        """The table (V,D).

        Raises:
            RecipeError: no such folder, or a layer that was not averaged.
            UnsupportedRecipeError: averaged with another tokenizer.
        """
        import torch

        from essent.recipe.sources.contexts import Contexts, read_about

        try:
            metadata = read_about(self.folder)
            if metadata["vocabulary"] != vocabulary.digest:
                raise UnsupportedRecipeError(
                    f"layers=avg:{self.place} — these averages belong to another tokenizer: its tokens are not the "
                    "model's. Average this model's own states: essent distill -m MODEL --texts FILE --contexts FOLDER."
                )
            layer = resolve(self.layer, int(metadata["last"])).key
            return torch.from_numpy(Contexts.load(self.folder, {int(layer)}).table(int(layer)))
        except DataError as error:
            raise RecipeError(f"layers=avg:{self.place} — {error}") from None


@dataclass(frozen=True)
class Source:
    """One resolved source: `layer` k, or `static`, or a table's spec; `debiased` subtracts the template bias.

    With `top` it is not the layer itself but the rows of so many most probable tokens, which the masked-LM head
    predicts from it (PromptBERT, eq. 3).
    """

    key: int | str
    debiased: bool = False
    top: int = 0


Mix = tuple[tuple[str, float], ...]


def parse_mix(text: str) -> Mix:
    """Read "0+L" (plain mean of the named) or "0.3*0+0.7*L" (explicit weights) as ((source, α), …).

    Raises:
        RecipeError: malformed, a source named twice, or explicit and plain terms mixed.
    """
    terms = re.split(r"(?<!\d[eE])\+(?=\s*(?:-?\d*\.?\d*(?:[eE][+-]?\d+)?\s*\*)?\s*[A-Za-z0-9])", text.strip())
    read: list[tuple[str, float | None]] = []
    for term in (t.strip() for t in terms):
        match = re.fullmatch(rf"(?:(?P<factor>{NUMBER})\s*\*\s*)?(?P<source>[^\s*+]+)", term)
        if not match:
            hint = " In a folder's name a space is written %20, + is %2B, * is %2A." if ":" in term else ""
            raise RecipeError(
                f"layers={text} — cannot read {term!r}; write e.g. L, 0+L, 1+2+L, static, 0.3*0+0.7*L.{hint}"
            )
        read.append((match["source"], float(match["factor"]) if match["factor"] else None))
    return checked_mix(read, text)


def checked_mix(read: list[tuple[str, float | None]], text: str) -> Mix:
    """Refuse doubles and half-explicit mixes; fill in the plain mean."""
    names = [name for name, _ in read]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise RecipeError(
            f"layers={text} — {sorted(doubled)[0]!r} is named twice; give it one weight, e.g. 2*{names[0]}."
        )
    explicit = [factor for _, factor in read if factor is not None]
    if explicit and len(explicit) < len(read):
        raise RecipeError(f"layers={text} — give a weight to every source or to none.")
    if not explicit:
        return tuple((name, 1.0 / len(read)) for name in names)
    if not all(map(math.isfinite, explicit)):
        raise RecipeError(f"layers={text} — the weights must be finite numbers.")
    return tuple((name, float(factor) + 0.0) for name, factor in read if factor is not None)  # -0.0 is 0.0


def check_source(source: str, text: str) -> None:
    """Refuse a source that is neither a layer, `static`, nor a registered table."""
    if source == "static" or LAYER.fullmatch(source) or TOP.fullmatch(source):
        return
    name = source.partition(":")[0]
    if name.startswith("topk"):
        raise RecipeError(
            f"layers={text} — {source!r} needs the number of tokens: topk:200, or topk:200-bias, denoised."
        )
    if name in token_tables:
        token_tables.create(source)
        return
    known = ", ".join(["static", "0 … L", "L-1", "L-bias", "topk:200", *token_tables])
    raise RecipeError(f"layers={text} — unknown source {source!r}. Known: {known}.")


def format_mix(mix: Mix) -> str:
    """The text that `parse_mix` reads back into the same mix."""
    if all(factor == 1.0 / len(mix) for _, factor in mix):
        return "+".join(name for name, _ in mix)
    return "+".join(f"{factor!r}*{name}" for name, factor in mix)


def resolve(source: str, last: int) -> Source:
    """Turn a source's name into what it is in a model of `last` layers; a layer above it stays as named.

    `L-1` is `last - 1` and may come out negative: the caller refuses what the model does not have.
    """
    if top := TOP.fullmatch(source):
        return Source(last, debiased=bool(top["bias"]), top=int(top["count"]))
    match = LAYER.fullmatch(source)
    if not match:
        return Source(source)
    layer = int(match["number"]) if match["number"] else last - int(match["below"] or 0)
    return Source(layer, debiased=bool(match["bias"]))


def reads_mlm_head(mix: Mix) -> bool:
    """Whether a mix has a source that the masked-LM head predicts."""
    return any(TOP.fullmatch(name) for name, _ in mix)
