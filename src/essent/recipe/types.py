"""Data types of recipes: batches of tokens, their hidden states, and token counts of a corpus.

Letters used in shapes throughout the project:

    N  number of texts            B  texts in one batch         T  tokens in one padded sequence
    L  sources (layers) read      D  hidden size                K  output dimension after shaping
    V  vocabulary size
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from essent._core.registry import format_spec, signature_of
from essent.errors import RecipeError

if TYPE_CHECKING:
    import numpy as np
    import torch

SEEDS = 2**32  # number of seeds that numpy, scikit-learn and torch all accept
Hidden: TypeAlias = "dict[int | str | tuple[int, str], torch.Tensor]"  # states (B,T,D) by source

__all__ = ["CorpusStats", "States", "Tokens"]


@dataclass(frozen=True)
class Tokens:
    """One padded batch of token ids; `attention_mask` and `content` are 0/1 masks of the same shape.

    `attention_mask` is true for tokens other than padding, `content` for tokens of the text itself: no special tokens
    and no template. `prefix` are the ids with which every row begins (special tokens and the template before the text);
    a decoder computes their keys and values once.

    Example:
        >>> import torch
        >>> from essent.recipe.types import Tokens
        >>> ids = torch.tensor([[101, 7592, 2088, 102], [101, 7592, 102, 0]])  # [CLS], words, [SEP], padding
        >>> tokens = Tokens(ids, attention_mask=ids != 0, content=ids > 102)
        >>> len(tokens), tokens.content.sum(dim=1).tolist()
        (2, [2, 1])
    """

    ids: torch.Tensor  # (B,T) int64
    attention_mask: torch.Tensor  # (B,T) bool
    content: torch.Tensor  # (B,T) bool
    prefix: tuple[int, ...] = ()

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    def to(self, device: torch.device) -> Tokens:
        """Return the batch on another device."""
        return Tokens(self.ids.to(device), self.attention_mask.to(device), self.content.to(device), self.prefix)


@dataclass(frozen=True)
class States:
    """Outputs of the model for one batch, restricted to those that the recipes read.

    `hidden` maps a source (a layer number, "static", the name of a table, or a layer and "value", "attention" or
    "attention-out") to (B,T,D); `diagonals` maps an attention head (layer, head), both counted from 1 as in the papers,
    to (B,T).

    Example:
        >>> import torch
        >>> from essent.recipe.types import States
        >>> states = States(hidden={12: torch.zeros(2, 4, 768)}, diagonals={(1, 10): torch.ones(2, 4)})
        >>> states.hidden[12].shape, states.diagonals[1, 10].shape
        (torch.Size([2, 4, 768]), torch.Size([2, 4]))
    """

    hidden: Hidden
    diagonals: dict[tuple[int, int], torch.Tensor]


@dataclass(frozen=True)
class RequiredOutputs:
    """Outputs that a pass must return: layers 0…L, static rows, attention heads (layer, head) counted from 1.

    `attention_states` are (layer, "value"), (layer, "attention") before and (layer, "attention-out") after W_O.
    """

    layers: frozenset[int] = frozenset()
    static: bool = False
    attention_heads: frozenset[tuple[int, int]] = frozenset()
    attention_states: frozenset[tuple[int, str]] = frozenset()

    @cached_property
    def depth(self) -> int | None:
        """Highest layer that must run; None if no layer is needed."""
        return max([*self.layers, *(layer for layer, _ in self.attention_heads | self.attention_states)], default=None)

    def __or__(self, other: RequiredOutputs) -> RequiredOutputs:
        return RequiredOutputs(
            self.layers | other.layers,
            self.static or other.static,
            self.attention_heads | other.attention_heads,
            self.attention_states | other.attention_states,
        )


@dataclass(frozen=True, eq=False)  # compared by identity, as a key of cached tables
class CorpusStats:
    """Token counts of a corpus: number of texts N, `document_frequency` (V,) and `count` (V,), both int64.

    Example:
        >>> import numpy as np
        >>> from essent.recipe.types import CorpusStats
        >>> from essent.recipe.weighting import weightings
        >>> stats = CorpusStats(texts=100, document_frequency=np.array([100, 10]), count=np.array([250, 12]))
        >>> weightings.create("idf").table(None, stats).round(2).tolist()  # ln(100 / 100), ln(100 / 10)
        [0.0, 2.3]
    """

    texts: int
    document_frequency: np.ndarray
    count: np.ndarray


class Part:
    """A registered part of a recipe; the arguments of its class are attributes, and those of its spec."""

    name: ClassVar[str]
    least: ClassVar[dict[str, int]] = {}  # arguments that are integers -> their smallest value; None is allowed too

    def __post_init__(self) -> None:  # of parts that are dataclasses
        self.check_settings()

    def check_settings(self) -> None:
        """Check the arguments; steps of a shaping do so again before a fit, as `set_params` may change them.

        Raises:
            RecipeError: an argument is invalid; the message shows it and what is allowed.
        """
        for name, least in self.least.items():
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, Integral) or value < least:
                raise RecipeError(f"{self.spec()} — {name} must be an integer ≥ {least}, not {value!r}.")
            if name == "seed" and int(value) >= SEEDS:
                raise RecipeError(f"{self.spec()} — seed must be below {SEEDS}, not {value}.")

    def spec(self) -> str:
        """Return the shortest text from which the registry creates an equal part."""
        defaults = {key: p.default for key, p in signature_of(type(self)).parameters.items()}
        return format_spec(self.name, {key: getattr(self, key) for key in defaults}, defaults)
