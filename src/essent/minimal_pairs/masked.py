"""A masked language model on one word of a sentence: how likely candidates are there, and what else it would put.

Source: Chiang et al. 2023, section 2.2.4 (Random MLM).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from essent.folders import guarded, opening
from essent.hub import reach_model
from essent.minimal_pairs.edits import read_table
from essent.tasks import unit_rows
from essent.types import ModelError

FILLERS = 60
KEPT = 10_000  # vectors, some 20 MB


class Asked(NamedTuple):
    """A sentence, the characters of a word in it, and words that are asked about in its place."""

    sentence: str
    start: int
    end: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class Slot:
    """What the model thinks of one masked word.

    Attributes:
        first: log probability of the likeliest token.
        own: log probability of the word that stood there; -inf when it is more than one token.
        words: log probability of the words asked for, -inf where one is not a single token.
        fillers: the most likely whole words, the best first.
    """

    own: float
    first: float
    words: dict[str, float]
    fillers: tuple[str, ...]


class _Reached(Exception):  # noqa: N818  no error: a way out of the model's pass
    """The states below a layer."""

    def __init__(self, states: torch.Tensor) -> None:
        super().__init__()
        self.states = states


class MaskedModel:
    """Any masked language model of transformers, by hub name or folder, with a fast tokenizer.

    Raises:
        ModelError: no such model, one without a masked-LM head or a mask token, or a tokenizer without offsets.
    """

    def __init__(self, name: str, device: str | None = None, batch_size: int = 64, **options: Any) -> None:
        from transformers import AutoTokenizer

        from essent.model import load_masked

        options = reach_model(name, options)
        with opening(name, options):
            self.tokenizer: Any = AutoTokenizer.from_pretrained(name, **guarded(options))
            if not self.tokenizer.is_fast or self.tokenizer.mask_token is None:
                raise ModelError(f"{name}: a masked language model with a fast tokenizer and a mask token is needed.")
            model: Any = load_masked(name, dtype=torch.float32, **options)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.model = model.to(self.device)
        self.name, self.batch_size = name, batch_size
        self._whole = self._whole_words()
        self._kept: dict[tuple[str, int, int], np.ndarray] = {}  # a sentence's own word is compared more than once
        self._ids = {word: number for number, word in self._whole.items()}

    def _whole_words(self) -> dict[int, str]:
        """Token id -> its word, for tokens that are lower-case words of letters on their own, after a blank."""
        found = {}
        special = set(self.tokenizer.all_special_ids)
        plain = self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))
        marks = any(token is not None and token.startswith(("Ġ", "▁")) for token in plain)
        for number, token in enumerate(plain):
            if number in special or token is None:
                continue
            starts = token.startswith(("Ġ", "▁")) if marks else not token.startswith("##")
            word = token.lstrip("Ġ▁")
            if starts and word.isascii() and word.isalpha() and word.islower() and len(word) > 1:
                found[number] = word
        return found

    def tokens(self, text: str) -> list[int]:
        """Ids of a text without special tokens: the unit of lengths and distances in HEROS, Table 1."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def slots(self, asked: Sequence[Asked]) -> list[Slot]:
        """What stands in the place of a word, and how probable the words asked about are: one pass each."""
        order = sorted(range(len(asked)), key=lambda number: len(asked[number].sentence))  # little padding
        found: dict[int, Slot] = {}
        for start in range(0, len(order), self.batch_size):
            part = order[start : start + self.batch_size]
            logs = self._log_probabilities([asked[n] for n in part])
            found.update((n, self._slot(asked[n], row)) for n, row in zip(part, logs, strict=True))
        return [found[number] for number in range(len(asked))]

    def _slot(self, asked: Asked, row: np.ndarray | None) -> Slot:
        """What log probabilities (V,) say of a word and its candidates."""
        if row is None:
            return Slot(-np.inf, -np.inf, dict.fromkeys(asked.words, -np.inf), ())
        lower = asked.sentence[asked.start : asked.end].lower()
        known = {one: float(row[self._ids[one]]) if one in self._ids else -np.inf for one in (*asked.words, lower)}
        some = np.argpartition(-row, min(4 * FILLERS, len(row) - 1))[: 4 * FILLERS]
        best = some[np.lexsort((some, -row[some]))]
        fillers = [self._whole[int(number)] for number in best if int(number) in self._whole]
        return Slot(known[lower], float(row.max()), known, tuple(fillers[:FILLERS]))

    @torch.inference_mode()
    def _log_probabilities(self, asked: Sequence[Asked]) -> list[np.ndarray | None]:
        """Log probabilities (V,) at one mask for each word; None where the word was cut off."""
        mask = self.tokenizer.mask_token
        masked = [one.sentence[: one.start] + mask + one.sentence[one.end :] for one in asked]
        batch = self.tokenizer(masked, return_tensors="pt", padding=True, truncation=True).to(self.device)
        hit = batch["input_ids"] == self.tokenizer.mask_token_id  # (B,T)
        places = hit.int().argmax(dim=1)
        rows = torch.arange(len(masked), device=self.device)
        head = self.model.get_output_embeddings()
        # only the mask's state goes through the widest matrix of the model: half of the time of a small one
        hook = head.register_forward_pre_hook(lambda _, states: (states[0][rows, places][:, None],)) if head else None
        try:
            logits = self.model(**batch).logits  # (B,1,V), or (B,T,V) from a model without such a matrix
        finally:
            if hook is not None:
                hook.remove()
        logits = logits[:, 0] if hook is not None else logits[rows, places]  # (B,V)
        logs = logits.float().log_softmax(-1).cpu().numpy()
        return [row if there else None for row, there in zip(logs, hit.any(dim=1).tolist(), strict=True)]

    def similarities(self, asked: Sequence[Asked]) -> list[list[float]]:
        """How much each word, put in the place of another, means the same there: cosines of their states, normalised.

        The states (mean over a word's tokens) are those after two thirds of the layers: lower ones know the context
        less, higher ones turn to what the model predicts. From a cosine c and the mean cosine b of words that have
        nothing in common comes (c - b) / (1 - b), as in HEROS, Appendix D: models differ in how alike all states are.
        """
        texts: list[tuple[str, int, int]] = []
        for sentence, start, end, others in asked:
            for other in (sentence[start:end], *others):
                texts.append((sentence[:start] + other + sentence[end:], start, start + len(other)))
        vectors = self._states(texts)
        found, at = [], 0
        for one in asked:
            own, rest = vectors[at], vectors[at + 1 : at + 1 + len(one.words)]
            found.append([float(one) for one in (rest @ own - self.baseline) / (1.0 - self.baseline)])
            at += 1 + len(one.words)
        return found

    @cached_property
    def baseline(self) -> float:
        """Mean cosine of the states of different words in different sentences."""
        probes = [
            (row["sentence"], row["sentence"].index(row["word"]), len(row["word"])) for row in read_table("probes.tsv")
        ]
        vectors = self._states([(text, start, start + length) for text, start, length in probes])
        others = ~np.eye(len(probes), dtype=bool)
        return min(float((vectors @ vectors.T)[others].mean()), 0.999)  # so alike that nothing is left to normalise by

    @torch.inference_mode()
    def _states(self, texts: Sequence[tuple[str, int, int]]) -> np.ndarray:
        """Unit vectors (N,D) of the words between two characters of each text; zero where one was cut off."""
        if len(self._kept) > KEPT:
            self._kept.clear()
        new = [one for one in dict.fromkeys(texts) if one not in self._kept]
        self._kept.update(zip(new, self._new_states(new), strict=True))
        return np.stack([self._kept[one] for one in texts])

    def _new_states(self, texts: Sequence[tuple[str, int, int]]) -> list[np.ndarray]:
        order = sorted(range(len(texts)), key=lambda number: len(texts[number][0]))
        found: dict[int, np.ndarray] = {}
        for start in range(0, len(order), self.batch_size):
            part = order[start : start + self.batch_size]
            batch = self.tokenizer(
                [texts[n][0] for n in part],
                return_tensors="pt",
                padding=True,
                truncation=True,
                return_offsets_mapping=True,
            )
            offsets = batch.pop("offset_mapping").numpy()  # (B,T,2)
            states = self._middle(batch.to(self.device)).float().cpu().numpy()  # (B,T,D)
            begin, end = (np.array([texts[n][side] for n in part])[:, None] for side in (1, 2))
            inside = (offsets[..., 0] < end) & (offsets[..., 1] > begin)  # (B,T)
            sums = np.einsum("bt,btd->bd", inside.astype(np.float32), states)
            found.update(zip(part, unit_rows(sums), strict=True))
        return [found[number] for number in range(len(texts))]

    def _middle(self, batch: Any) -> torch.Tensor:
        """States (B,T,D) after two thirds of the layers; those above are not run where the layers can be told apart."""
        body, config = self.model.base_model, self.model.config
        above = round(2 / 3 * config.num_hidden_layers)
        stacks = [part for part in body.modules() if isinstance(part, torch.nn.ModuleList)]
        stack = next((part for part in stacks if len(part) == config.num_hidden_layers), None)
        if stack is None or above >= len(stack):  # ALBERT has one layer, run again and again
            hidden: torch.Tensor = body(**batch, output_hidden_states=True).hidden_states[above]
            return hidden

        def stop(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            raise _Reached(args[0] if args else kwargs["hidden_states"])

        hook = stack[above].register_forward_pre_hook(stop, with_kwargs=True)
        try:
            body(**batch)
        except _Reached as reached:
            return reached.states
        finally:
            hook.remove()
        raise ModelError(f"{self.name}: the model did not run its layer {above + 1}.")
