"""The method, slow and obvious: float64, one text at a time, no padding.

Written from the equation e(s) = g( Σ_n ω_n · Σ_k α_k · h_n^(k) ) and its conventions, not from essent's code. What it
shares with essent is plain data: the recipe's values, and the published lists of frequent tokens.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.fft
import torch
from sklearn.preprocessing import Normalizer, QuantileTransformer, StandardScaler
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, T5EncoderModel

from essent.recipe.recipe import Recipe
from essent.recipe.weighting.methods import FREQUENT_BYTE_LEVEL, FREQUENT_WORDPIECES

FIRST_POSITION = {"roberta": 2, "xlm-roberta": 2, "mpnet": 2}  # position id of the first token, 0 elsewhere
NOT_NORMALISED = ("ditto", "sif")


@dataclass(frozen=True)
class Sentence:
    """Ids of one text in its template, and which of them are the user's words."""

    ids: tuple[int, ...]
    content: tuple[bool, ...]


@dataclass
class Counts:
    """Token counts of a corpus, by counting."""

    texts: int
    count: Counter
    document_frequency: Counter

    @classmethod
    def of(cls, corpus: Sequence[Sequence[int]]) -> Counts:
        count = Counter(token for ids in corpus for token in ids)
        return cls(len(corpus), count, Counter(token for ids in corpus for token in set(ids)))

    def idf(self, token: int) -> float:
        """ln(N / df); a token never seen gets the largest, ln N."""
        return math.log(self.texts / max(self.document_frequency[token], 1))

    def tf(self, token: int) -> float:
        """Mean count in the texts that have the token."""
        df = self.document_frequency[token]
        return self.count[token] / df if df else 1.0


class Reference:
    """One model, run in float64 with eager attention, everything returned."""

    def __init__(self, folder: Path, family: str) -> None:
        kind = T5EncoderModel if family == "t5" else AutoModel
        self.model = kind.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.folder, self.family = folder, family
        self.rows = self.model.get_input_embeddings().weight.detach().numpy()  # (V,D)
        self.last = self.model.config.num_hidden_layers
        first = self.tokenizer.tokenize(" hello there")[0][0]
        self.mark = first if first in "Ġ▁" else "##"
        self._states: dict = {}

    # -- text -> tokens ---------------------------------------------------------------------------------------------

    def sentence(self, text: str, template: str | None, leading_space: bool = False) -> Sentence:
        """Tokenise the filled template in one piece; the offsets tell which tokens are the user's words."""
        is_template = template is not None
        if template is None:
            template = " " * (leading_space and text != "") + "{text}"
        elif text and text[-1] not in ".?\"'" and template.count("{tokens}") < 2:
            text += "."
        if '"{text}"' in template and "[MASK]" not in template:  # PromptEOL's code
            text = text.replace('"', "'")
            text = text[:-1] + "." if text.endswith("?") else text
        template = template.replace("[MASK]", self.tokenizer.mask_token or "")
        filled, *parts = template.replace("{tokens}", "{text}").split("{text}")
        spans = []  # of the text, which Echo repeats
        for part in parts:
            spans.append((len(filled), len(filled) + len(text)))
            filled += text + part
        full = self.tokenizer(filled, return_offsets_mapping=True, return_special_tokens_mask=True)
        content = [
            first < last
            and any(start < last and first < stop for start, stop in spans)
            and (is_template or not special)
            for (first, last), special in zip(full["offset_mapping"], full["special_tokens_mask"], strict=True)
        ]
        return Sentence(tuple(full["input_ids"]), tuple(content))

    # -- tokens -> states -------------------------------------------------------------------------------------------

    def run(self, ids: Sequence[int], positions: Sequence[int] | None = None) -> tuple[list, list]:
        """Hidden states [0 … L], each (T,D), and attentions [0 … L-1], each (heads,T,T)."""
        key = (tuple(ids), tuple(positions) if positions is not None else None)
        if key not in self._states:
            inputs = {"input_ids": torch.tensor([list(ids)])}
            if positions is not None:
                inputs["position_ids"] = torch.tensor([positions]) + FIRST_POSITION.get(self.family, 0)
            with torch.no_grad():
                output = self.model(**inputs, output_hidden_states=True, output_attentions=True)
            self._states[key] = tuple(
                [layer[0].numpy() for layer in layers] for layers in (output.hidden_states, output.attentions)
            )
        return self._states[key]

    def diagonal(self, ids: Sequence[int], head: str) -> np.ndarray:
        """A_nn of head "layer-head", both from 1."""
        layer, number = map(int, head.split("-"))
        return self.run(ids)[1][layer - 1][number - 1].diagonal()

    @cached_property
    def masked(self) -> torch.nn.Module:
        """The masked language model, transformer and head."""
        return AutoModelForMaskedLM.from_pretrained(self.folder, dtype=torch.float64).eval()

    def token_probabilities(self, ids: Sequence[int], hidden: np.ndarray | None = None) -> np.ndarray:
        """What the head predicts at every token (T,V); `hidden` put in the place of the transformer's last states."""

        def replace(_: object, __: object, output: dict) -> dict:
            if hidden is not None:
                output["last_hidden_state"] = torch.tensor(hidden)[None]
            return output

        handle = self.masked.base_model.register_forward_hook(replace)
        with torch.no_grad():
            logits = self.masked(input_ids=torch.tensor([list(ids)])).logits[0]
        handle.remove()
        return torch.softmax(logits, dim=-1).numpy()

    def probabilities_of(self, sentence: Sentence, name: str) -> tuple[np.ndarray, int]:
        """What the head predicts at every token, and how many tokens "topk:K" or "topk:K-bias" reads."""
        hidden = self.source(sentence, "L-bias") if name.endswith("-bias") else None
        return self.token_probabilities(sentence.ids, hidden), int(name.removeprefix("topk:").removesuffix("-bias"))

    def mean_of_most_probable(self, sentence: Sentence, name: str) -> np.ndarray:
        """Σ p(v) W_v / Σ p(v) over the K most probable tokens v (PromptBERT, eq. 3), at masks; 0 elsewhere."""
        probabilities, count = self.probabilities_of(sentence, name)
        means = np.zeros((len(sentence.ids), self.rows.shape[1]))
        for n, token in enumerate(sentence.ids):
            if token == self.tokenizer.mask_token_id:
                best = np.argsort(-probabilities[n])[:count]
                means[n] = sum(probabilities[n, v] * self.rows[v] for v in best) / probabilities[n, best].sum()
        return means

    def ranks_surely(self, sentence: Sentence, name: str) -> bool:
        """Whether float32 takes the same most probable tokens: the last one is not as probable as the next."""
        probabilities, count = self.probabilities_of(sentence, name)
        masks = np.array(sentence.ids) == self.tokenizer.mask_token_id
        ranked = -np.sort(-probabilities[masks])  # (M,V)
        return count >= ranked.shape[1] or bool((ranked[:, count - 1] > (1 + 1e-4) * ranked[:, count]).all())

    def source(self, sentence: Sentence, name: str) -> np.ndarray:
        """h_n of one source for every token n, (T,D)."""
        ids = list(sentence.ids)
        if name.startswith("topk:"):
            return self.mean_of_most_probable(sentence, name)
        if name == "static":
            return self.rows[ids]
        if name.startswith("random"):
            dimensions, seed = (768, 0) if name == "random" else map(int, name.removeprefix("random:").split(","))
            table = 0.1 * np.random.default_rng(seed).standard_normal((len(self.rows), dimensions), dtype=np.float32)
            return table[ids].astype(np.float64)
        plain = name.removesuffix("-bias")
        layer = self.last - int(plain[2:] or 0) if plain.startswith("L") else int(plain)
        hidden = self.run(ids)[0][layer].copy()
        if name.endswith("-bias"):  # the template alone, its tokens at their positions
            positions = [n for n, mine in enumerate(sentence.content) if not mine]
            hidden[positions] -= self.run([ids[n] for n in positions], positions)[0][layer]
        return hidden

    # -- states -> vector -------------------------------------------------------------------------------------------

    def factor(self, sentence: Sentence, spec: str, counts: Counts | None) -> Sequence[float] | np.ndarray:
        """One token weighting ω, not yet scaled."""
        name, _, argument = spec.partition(":")
        ids, content, special = np.array(sentence.ids), np.array(sentence.content), self.tokenizer.all_special_ids
        position = np.arange(1, len(ids) + 1)
        without_counts = {
            "uniform": position > 0,
            "cls": position == 1,
            "last": position == len(ids),
            "position": position,
            "mask": ids == self.tokenizer.mask_token_id,
            "content": content & ~np.isin(ids, special),
            "second": content & (2 * content.cumsum() > content.sum()),
        }
        if name in without_counts:
            return without_counts[name]
        if name == "ditto":
            return self.diagonal(sentence.ids, argument)
        if name == "remove":
            return [token not in special and not self.is_biased(token, argument, counts) for token in sentence.ids]
        if name == "idf":
            return [counts.idf(token) for token in ids]
        if name == "tfidf":
            return [counts.tf(token) * counts.idf(token) for token in ids]
        if name == "sif":
            a, total = float(argument or 1e-3), sum(counts.count.values())
            return [a / (a + counts.count[token] / total) / len(ids) for token in ids]
        raise AssertionError(f"no reference for weights={spec}")

    def is_biased(self, token: int, argument: str, counts: Counts | None) -> bool:
        """Frequent, a sub-word, or made only of punctuation (PromptBERT A.1)."""
        text = self.tokenizer.convert_ids_to_tokens(token)
        if argument:
            countable = set(range(len(self.rows))) - set(self.tokenizer.all_special_ids)
            frequent = sorted(countable, key=lambda t: (-counts.count[t], t))[: int(argument)]
            is_frequent = token in frequent
        elif self.mark == "##":
            is_frequent = text in FREQUENT_WORDPIECES
        else:
            is_frequent = text.replace(self.mark, "Ġ") in FREQUENT_BYTE_LEVEL
        if self.mark == "##":
            is_subword, word = text.startswith("##"), text
        else:
            is_subword, word = not text.startswith(self.mark), text[1:]
        return is_frequent or is_subword or all(unicodedata.category(letter)[0] in "PS" for letter in word)

    def token_weights(self, sentence: Sentence, specs: Sequence[str], counts: Counts | None) -> np.ndarray:
        """ω: the product of the factors; scaled to sum 1 unless Ditto or SIF is among them; never all zero."""
        weights = np.ones(len(sentence.ids))
        for spec in specs:
            weights = weights * self.factor(sentence, spec, counts)
        if not weights.any():
            return np.full(len(weights), 1 / len(weights))
        return weights if any(spec.startswith(NOT_NORMALISED) for spec in specs) else weights / weights.sum()

    def vector(self, sentence: Sentence, recipe: Recipe, counts: Counts | None = None) -> np.ndarray:
        """Σ_n ω_n · Σ_k α_k · h_n^(k), before shaping."""
        if not sentence.ids:  # an empty text for a tokenizer without special tokens: one end-of-text token
            sentence = Sentence((self.tokenizer.eos_token_id,), (True,))
        mixed = sum(alpha * self.source(sentence, name) for name, alpha in recipe.layers)  # (T,D)
        return reduced(mixed, self.token_weights(sentence, recipe.weights, counts), recipe.reduce)


References = Callable[[str], Reference]  # families to their references


def reduced(states: Sequence[np.ndarray] | np.ndarray, weights: Sequence[float] | np.ndarray, spec: str) -> np.ndarray:
    """Tokens (T,D) to one vector."""
    states, weights = np.array(states), np.array(weights)
    name, _, argument = spec.partition(":")
    if name == "sum":
        return weights @ states
    if name == "max":
        return states[weights > 0].max(axis=0)
    if name == "power":
        p = int(argument or 3)
        total = weights @ states**p
        return np.copysign(np.abs(total) ** (1 / p), total)
    if name == "dct":
        waves = scipy.fft.dct(len(weights) * weights[:, None] * states, type=2, norm="ortho", axis=0)
        coefficients = int(argument or 2)
        return np.concatenate([*waves, np.zeros(coefficients * states.shape[1])])[: coefficients * states.shape[1]]
    raise AssertionError(f"no reference for reduce={spec}")


def shaped(vectors: np.ndarray, steps: Sequence[str]) -> np.ndarray:
    """The shaping chain by scikit-learn, fitted on the vectors themselves."""
    fitted = {
        "zscore": StandardScaler(),
        "quantile": QuantileTransformer(n_quantiles=min(1000, len(vectors)), output_distribution="uniform"),
        "normalize": Normalizer(),
    }
    for step in steps:
        vectors = fitted[step].fit_transform(vectors)
    return vectors
