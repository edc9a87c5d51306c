"""Weights by frequency (idf, tf-idf, SIF, removal), position (mean, first, last, masks, SGPT, Echo), attention (Ditto).

Positions are counted within the text, so padding on either side changes nothing.
"""

from __future__ import annotations

import re
import unicodedata
from abc import abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, ClassVar

from essent.errors import RecipeError
from essent.recipe.types import CorpusStats, States, Tokens
from essent.recipe.weighting.base import ByToken, Weighting, require_stats, weightings

if TYPE_CHECKING:
    import numpy as np
    import torch

    from essent.recipe.tokens import Vocabulary

# PromptBERT Table 11, the 36 most frequent tokens as in its code (the printed table joins cells; Stankevičius counts 33
# of them). BERT's list is for cased and uncased models; RoBERTa's marks the start of a word by "Ġ".
FREQUENT_WORDPIECES = frozenset(
    """. a the in , is to of and ' on man - s with for " at ##s woman are it two that you dog said playing i an as was
    from : by white""".split()
)
FREQUENT_BYTE_LEVEL = frozenset(
    """Ġ. Ġa Ġthe Ġin a Ġ, Ġis Ġto Ġof Ġand Ġon Ġ' s . the Ġman - Ġwith Ġfor Ġat Ġwoman Ġare Ġ" Ġthat Ġit Ġdog Ġsaid
    Ġplaying Ġwas Ġas Ġfrom Ġ: Ġyou Ġan i Ġby""".split()
)


class ByCounts(ByToken):
    """A weighting by token id that is learned from a corpus."""

    @property
    def reads_stats(self) -> bool:
        """Whether it needs token counts from `fit`."""
        return True

    @abstractmethod
    def of(self, stats: CorpusStats) -> np.ndarray:
        """Compute the weights (V,) from the counts of a corpus."""

    def table(self, vocabulary: Vocabulary, stats: CorpusStats | None) -> np.ndarray:
        """Compute the weights (V,) of the vocabulary."""
        return self.of(require_stats(stats, self.spec()))


@weightings.register("idf")
@dataclass(frozen=True)
class Idf(ByCounts):
    """ω ∝ ln(N / df_t), counted on a corpus (idf^W) or on the task's own texts (idf^T), sum 1 (Stankevičius 3.3).

    Unseen tokens have the maximum, ln N. Saved folders and caches hold counts and no formula, so another formula needs
    another name.
    """

    def of(self, stats: CorpusStats) -> np.ndarray:
        """Compute idf of every token, (V,)."""
        import numpy as np

        idf: np.ndarray = np.log(max(stats.texts, 1) / np.maximum(stats.document_frequency, 1))
        return idf


@weightings.register("tfidf")
@dataclass(frozen=True)
class TfIdf(Idf):
    """ω ∝ tf_t · idf_t, one weight per token for the whole corpus, sum 1 per text (Ditto Table 1, first-last TF-IDF).

    Ditto computes "TF-IDF weights on 10^6 sentences … as token importance weights": a table by token. tf_t is the mean
    count of the token in the texts that contain it, 1 for unseen tokens.
    """

    def of(self, stats: CorpusStats) -> np.ndarray:
        """Compute tf · idf of every token, (V,)."""
        import numpy as np

        term_frequency = np.maximum(stats.count, 1) / np.maximum(stats.document_frequency, 1)  # (V,)
        tf_idf: np.ndarray = term_frequency * super().of(stats)
        return tf_idf


@weightings.register("sif")
@dataclass(frozen=True)
class Sif(ByCounts):
    """ω = (1/N) · a / (a + p_t), p_t the token's share of the corpus, not scaled to sum 1 (Arora et al. 2017)."""

    a: float = 1e-3
    normalized: ClassVar[bool] = False

    def check_settings(self) -> None:
        """Check the argument."""
        if not isinstance(self.a, Real) or not 0 < self.a < float("inf"):  # 0 would make all weights 0, infinity NaN
            raise RecipeError(f"sif:{self.a} — a must be a positive number, such as sif:1e-3.")

    def of(self, stats: CorpusStats) -> np.ndarray:
        """Compute a / (a + p_t) of every token, (V,)."""
        return self.a / (self.a + stats.count / max(int(stats.count.sum()), 1))

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Compute the weights (B,T) of a batch."""
        length = tokens.attention_mask.sum(dim=1, keepdim=True).clamp(min=1)  # (B,1)
        return super().weights(tokens, states, vocabulary, stats) / length  # (B,T)


@weightings.register("remove")
@dataclass(frozen=True)
class Remove(ByToken):
    """0 for special, most frequent, sub-word and punctuation tokens, 1 for the rest (PromptBERT 3, A.1, Tables 3, 11).

    A sub-word is a token that does not start a word ("##s", or no "Ġ"/"▁" in front). `remove` drops the published 36
    tokens; `remove:40` drops the 40 most frequent ones of the texts of `fit` instead; `remove:kinds=frequent+subword`
    drops only these kinds and special tokens (the rows of Table 3). For cased models, PromptBERT lower-cases SICK's
    sentences; lower-case your texts to reproduce its figures.
    """

    frequent: int | None = None
    kinds: str = "frequent+subword+punctuation"
    leading_space: ClassVar[bool] = True
    least: ClassVar[dict[str, int]] = {"frequent": 0}

    def check_settings(self) -> None:
        """Check the arguments."""
        super().check_settings()
        unknown = set(str(self.kinds).split("+")) - {"frequent", "subword", "punctuation"}
        if unknown:
            raise RecipeError(
                f"remove:kinds={self.kinds} — unknown {', '.join(map(repr, sorted(unknown)))}. Join any of frequent, "
                "subword and punctuation with +."
            )

    @property
    def reads_stats(self) -> bool:
        """Whether it needs token counts from `fit`."""
        return self.frequent is not None

    def table(self, vocabulary: Vocabulary, stats: CorpusStats | None) -> np.ndarray:
        """Compute the weights (V,) of the vocabulary."""
        import numpy as np

        kinds = set(self.kinds.split("+"))
        frequent: set[str] | frozenset[str] = set()
        if "frequent" in kinds and self.frequent is None:
            frequent = _published(vocabulary.marker)
        elif "frequent" in kinds:
            counts = require_stats(stats, self.spec()).count.copy()
            counts[list(vocabulary.special_ids)] = -1  # removed anyway; they must not count as frequent tokens
            frequent = {vocabulary.tokens[i] for i in np.argsort(-counts, kind="stable")[: self.frequent]}
        removed = [
            token in frequent
            or ("subword" in kinds and vocabulary.is_subword(token))
            or ("punctuation" in kinds and _is_punctuation(vocabulary.text(token)))
            for token in vocabulary.tokens
        ]
        weights = 1.0 - np.asarray(removed, dtype=np.float64)  # (V,)
        weights[list(vocabulary.special_ids)] = 0.0
        return weights


def _published(marker: str) -> frozenset[str]:
    if marker == "▁":  # SentencePiece: the same words with another marker
        return frozenset(token.replace("Ġ", "▁") for token in FREQUENT_BYTE_LEVEL)
    return FREQUENT_BYTE_LEVEL if marker == "Ġ" else FREQUENT_WORDPIECES


def _is_punctuation(bare: str) -> bool:
    return all(unicodedata.category(letter)[0] in "PS" for letter in bare)


# -- by position and attention ----------------------------------------------------------------------------------------


@weightings.register("uniform")
@dataclass(frozen=True)
class Uniform(Weighting):
    """Every token counts the same, special tokens and template included: ω = 1/N ("mean", "avg." in all papers)."""

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Compute the weights (B,T) of a batch."""
        return tokens.attention_mask.float()  # (B,T)


@weightings.register("content")
@dataclass(frozen=True)
class Content(Weighting):
    """Equal weights for the tokens of the text itself, 0 for special tokens and the template."""

    @property
    def by_token(self) -> ByToken:
        """Equivalent weighting by token id, for recipes without a template."""
        return NotSpecial()

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Compute the weights (B,T) of a batch."""
        return tokens.content * self.by_token.weights(tokens, states, vocabulary, stats)  # (B,T)


@weightings.register("second")
@dataclass(frozen=True)
class Second(Weighting):
    """Equal weights for the tokens of a text's repetition, which attend to the whole text in a decoder (Echo §3)."""

    whole_text = True

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Compute the weights (B,T) of a batch."""
        number = tokens.content.long().cumsum(dim=1)  # (B,T), of the text's tokens in both occurrences
        return (tokens.content & (2 * number > number[:, -1:])).float()  # (B,T)


@dataclass(frozen=True)
class NotSpecial(ByToken):
    """1 for all tokens except special ones: the equivalent of `content` without a template."""

    def table(self, vocabulary: Vocabulary, stats: CorpusStats | None) -> np.ndarray:
        """Compute the weights (V,) of the vocabulary."""
        import numpy as np

        weights = np.ones(len(vocabulary))  # (V,)
        weights[list(vocabulary.special_ids)] = 0.0
        return weights


class ByPosition(Weighting):
    """A weighting that depends only on a token's position in its text."""

    @abstractmethod
    def at(self, number: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """Compute the weights (B,T) from the position of each token, from 1, (B,T), and the text's length (B,1)."""

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Compute the weights (B,T) of a batch."""
        number = tokens.attention_mask.long().cumsum(dim=1)  # (B,T), 0 on leading padding
        return self.at(number, number[:, -1:]).float()


@weightings.register("cls")
@dataclass(frozen=True)
class First(ByPosition):
    """Only the first token counts ([CLS], <s>), before any pooler."""

    whole_text = True

    def at(self, number: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """Return 1 at the first token, 0 elsewhere, (B,T)."""
        return number == 1


@weightings.register("last")
@dataclass(frozen=True)
class Last(ByPosition):
    """Only the last token counts (decoders; PromptEOL)."""

    whole_text = True

    def at(self, number: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """Return 1 at the last token, 0 elsewhere, (B,T)."""
        return number == length


@weightings.register("position")
@dataclass(frozen=True)
class Rising(ByPosition):
    """ω ∝ n for the n-th token (SGPT, Muennighoff 2022, eq. 2; sentence-transformers' "weightedmean")."""

    def at(self, number: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """Return n at the n-th token, (B,T)."""
        return number


@weightings.register("mask")
@dataclass(frozen=True)
class Mask(ByToken):
    """Only mask tokens count, averaged if there are several (PromptBERT 4.1, eq. 2; Stankevičius 3.2.2).

    With a template, a "[MASK]" in the text itself is plain text, so these are the template's masks.
    """

    reads_mask = True
    whole_text = True

    def table(self, vocabulary: Vocabulary, stats: CorpusStats | None) -> np.ndarray:
        """Compute the weights (V,) of the vocabulary."""
        import numpy as np

        weights = np.zeros(len(vocabulary))  # (V,)
        if vocabulary.mask_id is not None:
            weights[vocabulary.mask_id] = 1.0
        return weights


@weightings.register("ditto")
@dataclass(frozen=True)
class Ditto(Weighting):
    """ω_n = A_nn, the attention of token n to itself in one head; not normalized (Ditto §3).

    Args:
        head_name: the head as in the paper, "layer-head", both counted from 1: BERT's "1-10" is layer index 0, head
            index 9.
    """

    head_name: str = ""
    normalized: ClassVar[bool] = False

    def check_settings(self) -> None:
        """Check the name of the head."""
        if not re.fullmatch(r"[1-9][0-9]*-[1-9][0-9]*", str(self.head_name)):
            spec = f"ditto:{self.head_name}" if self.head_name else "ditto"
            raise RecipeError(
                f"{spec!r} — Ditto needs an attention head LAYER-HEAD, both counted from 1, e.g. ditto:1-10 "
                "(best in the paper: BERT-base 1-10, RoBERTa-base 1-5, ELECTRA-base 1-11, SBERT 3-7)."
            )

    @property
    def attention_head(self) -> tuple[int, int]:
        """Attention head (layer, head) whose diagonal is read, counted from 1."""
        layer, head = self.head_name.split("-")
        return int(layer), int(head)

    def weights(
        self, tokens: Tokens, states: States, vocabulary: Vocabulary, stats: CorpusStats | None
    ) -> torch.Tensor:
        """Compute the weights (B,T) of a batch."""
        return states.diagonals[self.attention_head]  # (B,T)
