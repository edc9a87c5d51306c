"""Masked language models that score candidates for one word of a sentence, and predict others.

Source: Chiang et al. 2023, section 2.2.4 (Random MLM).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from essent._core.folders.contents import guarded, opening
from essent._core.hub import reach_model
from essent.errors import ModelError
from essent.lab.minimal_pairs.parsing import read_table
from essent.tasks.base import unit_rows

FILLERS = 60


class Asked(NamedTuple):
    """A sentence, the character span of a word in it, and candidates for that span."""

    sentence: str
    start: int
    end: int
    words: tuple[str, ...]


class Slot(NamedTuple):
    """Log-probabilities at one masked word: of the candidates, and of the most probable words, best first.

    A candidate that is not a single token of the model has -inf.
    """

    words: dict[str, float]
    fillers: dict[str, float]


class MaskedModel:
    """A masked language model of transformers with a fast tokenizer.

    Args:
        name: a hub name or a folder.
        device: by default the best one available.
        batch_size: sentences per batch.
        options: keyword arguments for transformers (revision, cache_dir …).

    Raises:
        ModelError: the model does not exist, or has no masked-LM head, no mask token or no fast tokenizer.

    Example:
        >>> from essent.lab.minimal_pairs import MaskedModel
        >>> model = MaskedModel("my-mlm")  # or "bert-large-uncased"
        >>> len(model.tokens("A man is playing a flute."))
        7
    """

    def __init__(self, name: str, device: str | None = None, batch_size: int = 64, **options: Any) -> None:
        from sentence_transformers.util import get_device_name
        from transformers import AutoTokenizer

        from essent.model.mlm_head import MaskedLMHead, load_masked

        options = reach_model(name, options)
        with opening(name, options):
            self.tokenizer: Any = AutoTokenizer.from_pretrained(name, **guarded(options))
            if not self.tokenizer.is_fast or self.tokenizer.mask_token is None:
                raise ModelError(f"{name}: must be a masked language model with a fast tokenizer and a mask token.")
            model: Any = load_masked(name, dtype=torch.float32, **options)
        self.device = torch.device(device or get_device_name())
        self.model = model.to(self.device)
        self.head = MaskedLMHead(self.model)
        self.name, self.batch_size = name, batch_size

    @cached_property
    def _whole(self) -> dict[int, str]:
        """Token ids mapped to their words, for tokens that are whole words of lower-case letters."""
        tokens = self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))
        marked = any(token and token[0] in "Ġ▁" for token in tokens)  # word starts are marked; otherwise subwords are
        word = re.compile(r"[Ġ▁]([a-z]{2,})" if marked else "([a-z]{2,})")
        matches = {number: word.fullmatch(token or "") for number, token in enumerate(tokens)}
        special = self.tokenizer.all_special_ids
        return {number: match[1] for number, match in matches.items() if match and number not in special}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: number for number, word in self._whole.items()}

    def tokens(self, text: str) -> list[int]:
        """Return the token ids of a text without special tokens: the unit of HEROS, Table 1."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Any]]:
        """Yield tokenized texts of similar length, which need little padding, with their indices."""
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        options = {"return_tensors": "pt", "padding": True, "truncation": True, "return_offsets_mapping": True}
        for start in range(0, len(order), self.batch_size):
            part = order[start : start + self.batch_size]
            yield part, self.tokenizer([texts[number] for number in part], **options).to(self.device)

    @torch.inference_mode()
    def slots(self, questions: Sequence[Asked]) -> list[Slot]:
        """Return the log-probabilities at each word; no fillers if the text is truncated before the word."""
        mask = self.tokenizer.mask_token
        masked = [sentence[:start] + mask + sentence[end:] for sentence, start, end, _ in questions]
        slot_by_number: dict[int, Slot] = {}
        for part, batch in self._batches(masked):
            del batch["offset_mapping"]
            hit = batch["input_ids"] == self.tokenizer.mask_token_id  # (B,T)
            states = self.model.base_model(**batch).last_hidden_state  # (B,T,D)
            mask_states = states[torch.arange(len(part), device=self.device), hit.int().argmax(dim=1)]  # (B,D)
            logs = self.head(mask_states).float().log_softmax(-1)  # (B,V)
            logs = logs.masked_fill(~hit.any(dim=1, keepdim=True), -torch.inf).cpu().numpy()
            slot_by_number.update((n, self._slot(questions[n].words, row)) for n, row in zip(part, logs, strict=True))
        return [slot_by_number[number] for number in range(len(questions))]

    def _slot(self, words: Sequence[str], row: np.ndarray) -> Slot:
        """Select the candidates and the most probable words from log-probabilities (V,)."""
        known = {word: float(row[self._ids[word]]) if word in self._ids else -np.inf for word in words}
        best = [n for n in np.argsort(-row, kind="stable")[: 4 * FILLERS].tolist() if n in self._whole]
        return Slot(known, {self._whole[n]: float(row[n]) for n in best[:FILLERS] if np.isfinite(row[n])})

    def similarities(self, questions: Sequence[Asked]) -> list[dict[str, float]]:
        """Return the similarity in context of each candidate and the word that it replaces: normalized cosines.

        The states (mean over a word's tokens) are those after two thirds of the layers: lower layers depend less on
        the context, higher ones approach the model's prediction. A cosine c becomes (c - b) / (1 - b), where b is the
        mean cosine of unrelated words, as in HEROS, Appendix D: models differ in how similar all their states are.
        """
        texts = [
            (sentence[:start] + word + sentence[end:], start, start + len(word))
            for sentence, start, end, words in questions
            for word in (sentence[start:end], *words)
        ]
        vectors, cosines, base = iter(self._states(texts)), [], self.baseline
        for question in questions:
            own = next(vectors)
            cosines.append({word: (float(next(vectors) @ own) - base) / (1.0 - base) for word in question.words})
        return cosines

    @cached_property
    def baseline(self) -> float:
        """Mean cosine of the states of different words in different sentences."""
        rows = [(row["sentence"], row["sentence"].index(row["word"]), row["word"]) for row in read_table("probes.tsv")]
        vectors = self._states([(text, start, start + len(word)) for text, start, word in rows])
        off_diagonal = ~np.eye(len(rows), dtype=bool)
        mean = float((vectors @ vectors.T)[off_diagonal].mean())
        return min(mean, 0.999)  # avoids a division by zero

    @torch.inference_mode()
    def _states(self, texts: Sequence[tuple[str, int, int]]) -> np.ndarray:
        """Return unit vectors (N,D) of the words between two characters of each text; zero for truncated words."""
        different = list(dict.fromkeys(texts))
        layer = round(2 / 3 * self.model.config.num_hidden_layers)
        states_by_span: dict[tuple[str, int, int], np.ndarray] = {}
        for part, batch in self._batches([text for text, _, _ in different]):
            offsets = batch.pop("offset_mapping").cpu().numpy()  # (B,T,2)
            states = self.model.base_model(**batch, output_hidden_states=True).hidden_states[layer]  # (B,T,D)
            spans = [different[number] for number in part]
            begin, end = (np.array([span[side] for span in spans])[:, None] for side in (1, 2))
            inside = (offsets[..., 0] < end) & (offsets[..., 1] > begin)  # (B,T)
            sums = np.einsum("bt,btd->bd", inside.astype(np.float32), states.float().cpu().numpy())
            states_by_span.update(zip(spans, unit_rows(sums), strict=True))
        return np.stack([states_by_span[span] for span in texts]) if texts else np.zeros((0, 1))
