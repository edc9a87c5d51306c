"""A saved static encoder without torch: texts ─ ids by words ─ one sparse product of counts and rows ─ vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from scipy import sparse

from essent.by_word import SEPARATORS, Ragged, WordIds, cut, whole_ids, words_apart
from essent.static.stored import StoredTable, read_table
from essent.tokens import check_texts, read_ids
from essent.types import InputError

MOST_TEXTS, MOST_LETTERS = 4096, 1_000_000  # of one portion, which bounds what is held beside the vectors
TINY = np.float32(1e-12)  # the least length that is divided by, as torch has it


class StaticEncoder:
    """The vectors of `Encoder(folder)` for a static encoder, by NumPy and SciPy: starts at once, needs little memory.

    Reads what `essent distill` and `Encoder.save` write as a table, a `StaticEmbedding` of sentence-transformers with
    or without Normalize, and model2vec's folders. Several threads may encode at once.

    Args:
        table: what `essent.static.stored.read_table` read; `load` takes a folder.
    """

    def __init__(self, table: StoredTable) -> None:
        self.table = table
        self._tokenise = partial(read_ids, table.tokenizer)
        self._by_word = WordIds(self._tokenise, *_rare(table)) if words_apart(table.tokenizer) else None

    @classmethod
    def load(cls, folder: str | Path) -> StaticEncoder:
        """Read a folder.

        Raises:
            ModelError: no such folder, another kind of model, or files that are missing, damaged or do not fit.
        """
        return cls(read_table(folder))

    @property
    def dimensions(self) -> int:
        """D of the vectors."""
        return int(self.table.rows.shape[1])

    def __repr__(self) -> str:
        rows, unit = self.table.rows, ", normalized" if self.table.unit else ""
        return f"StaticEncoder({len(rows)} rows of {rows.dtype}, dimensions={self.dimensions}{unit})"

    def encode(
        self, texts: str | Sequence[str], *, prompt_name: str | None = None, prompt: str | None = None
    ) -> np.ndarray:
        """The texts' vectors in their order: (N,D) float32, (D,) for one str.

        A text's vector does not depend on the others. One without tokens is zeros, or what the recipe that was saved
        makes of them.

        Args:
            prompt_name, prompt: put before every text: one of the folder's prompts, or any; by default the folder's
                own default, as SentenceTransformer has it.

        Raises:
            InputError: something that is not a text, or a prompt that is none or unknown.
        """
        if isinstance(texts, str):
            vector: np.ndarray = self.encode([texts], prompt_name=prompt_name, prompt=prompt)[0]
            return vector
        found = check_texts(texts)
        before = self._prompt(prompt_name) if prompt is None else prompt
        if not isinstance(before, str):
            raise InputError(f"prompt={before!r}: a prompt is a str.")
        vectors = np.empty((len(found), self.dimensions), np.float32)
        for start, stop in _portions(found):
            portion = found[start:stop]
            vectors[start:stop] = self._means(self._ids([before + text for text in portion] if before else portion))
        return vectors

    def _prompt(self, name: str | None) -> str:
        prompts = self.table.prompts
        if name is not None and name not in prompts:
            raise InputError(f"prompt_name={name!r}; the folder has {', '.join(prompts) or 'no prompts'}.")
        chosen = self.table.prompt_name if name is None else name
        return "" if chosen is None else prompts.get(chosen, "")

    def _ids(self, texts: list[str]) -> Ragged:
        table = self.table
        ids, lengths = whole_ids(self._tokenise, texts) if self._by_word is None else self._by_word(texts)
        if table.dropped is not None:
            kept = ids != table.dropped
            if not kept.all():
                before = np.concatenate([[0], np.cumsum(kept)])  # kept ones before each place
                ends = np.cumsum(lengths)
                ids, lengths = ids[kept], before[ends] - before[ends - lengths]
        return (ids, lengths) if table.limit is None else cut(ids, lengths, table.limit, table.cuts_left)

    def _means(self, found: Ragged) -> np.ndarray:
        """Means of the texts' rows, scaled to length 1 where the encoder does: (n,D)."""
        ids, lengths = found
        table = self.table
        weights = np.ones(len(ids), np.float32) if table.weights is None else table.weights[ids]
        places = ids if table.mapping is None else table.mapping[ids]
        rows = table.rows
        if rows.dtype != np.float32:  # sums are taken in 32 bits, of the rows that occur
            occurs = np.zeros(len(rows), bool)
            occurs[places] = True
            rows, places = rows[occurs].astype(np.float32), (np.cumsum(occurs, dtype=np.int32) - 1)[places]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        vectors: np.ndarray = sparse.csr_matrix((weights, places, starts), shape=(len(lengths), len(rows))) @ rows
        vectors /= np.maximum(lengths, 1).astype(np.float32)[:, None]
        if table.empty is not None:
            vectors[lengths == 0] = table.empty
        if table.unit:
            vectors /= np.maximum(np.sqrt(np.einsum("nd,nd->n", vectors, vectors)), TINY)[:, None]
        return vectors


def _portions(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Starts and ends of parts of so many texts and letters at most, a longer text alone."""
    letters = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    start = 0
    while start < len(texts):
        before = letters[start - 1] if start else 0
        most = int(np.searchsorted(letters, before + MOST_LETTERS, "right"))
        stop = min(max(most, start + 1), start + MOST_TEXTS, len(texts))
        yield start, stop
        start = stop


def _rare(table: StoredTable) -> tuple[list[str], int | None]:
    """Words that may stand between others, and the id that may not, see `WordIds`."""
    backend = table.tokenizer
    tokens = [backend.id_to_token(index) for index in range(max(table.tokens - 16, 0), table.tokens)]
    words = [token.removeprefix("##").removeprefix("▁") for token in tokens if token]
    unknown = getattr(backend.model, "unk_token", None)
    return [*SEPARATORS, *filter(None, words)], None if unknown is None else backend.token_to_id(unknown)
