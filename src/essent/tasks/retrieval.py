"""Retrieval: exact search of documents for queries, scored by trec_eval.

Source: BEIR (Thakur et al. 2021) as in MTEB: cosine, the best 100 documents per query, trec_eval's nDCG@10 from
`pytrec_eval`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.lazy import needs_torch, optional_import
from essent._core.texts import distinct_texts
from essent.errors import DataError
from essent.tasks.base import LabeledTask, as_matrix, lengths_of
from essent.tasks.comparison import with_interval
from essent.tasks.data import Row, located_rows, text_value
from essent.tasks.result import PER_QUERY, Result

DEPTH = 100  # scored documents per query
SPARE = 100  # more float32 candidates, reranked in float64: cosines of an anisotropic model are close to each other
UNIT_ROWS = 4096  # rows normalized at a time
BLOCK = 2**24  # float32 similarities, or numbers of vectors, at a time
BEIR = ("corpus.jsonl", "queries.jsonl")
TREC = {"ndcg@10": "ndcg_cut_10", "mrr@10": "recip_rank", "recall@10": "recall_10", "recall@100": "recall_100"}


@dataclass(frozen=True)
class RetrievalTask(LabeledTask):
    """A retrieval task of Q queries and C documents.

    Attributes:
        queries: text by id; queries without a relevant document are excluded, with a note.
        corpus: text by id.
        relevant: {query id: {document id: grade ≥ 1}}.
        query_prompt, document_prompt: put before each query and document; None: the model's prompts of these names.
        ignore_identical_ids: exclude the document with the id of the query, for queries that are documents too.

    Example:
        >>> from essent import Encoder
        >>> from essent.tasks import RetrievalTask
        >>> queries, corpus = {"q1": "Who wrote Hamlet?"}, {"d1": "Hamlet is by Shakespeare.", "d2": "Bread is baked."}
        >>> task = RetrievalTask("mine", queries, corpus, relevant={"q1": {"d1": 1}})
        >>> result = task.run(Encoder("sentence-transformers/all-MiniLM-L6-v2"))
        >>> result.main, result.main_score
        (('ndcg@10', 'all'), 100.0)
    """

    kind = "retrieval"
    unit = "queries"
    examples_in = "queries"
    score_names = PER_QUERY
    queries: Mapping[str, str]
    corpus: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, int]]
    query_prompt: str | None = None
    document_prompt: str | None = None
    ignore_identical_ids: bool = False

    def __post_init__(self) -> None:
        optional_import("pytrec_eval", "retrieval")  # fail before the model has run for an hour
        for side in ("queries", "corpus"):
            object.__setattr__(self, side, {str(key): text for key, text in getattr(self, side).items()})
        relevant = {str(q): {str(d): int(grade) for d, grade in grades.items()} for q, grades in self.relevant.items()}
        object.__setattr__(self, "relevant", relevant)
        documents = [document for grades in relevant.values() for document in grades]
        for role, ids, known in (("query", relevant, self.queries), ("document", documents, self.corpus)):
            if unknown := next((text_id for text_id in ids if text_id not in known), None):
                raise DataError(f"The task {self.name!r}: a label refers to the {role} {unknown!r}, which is missing.")
        answered = {query for query, grades in relevant.items() if any(g > 0 for g in grades.values())}
        if not answered:
            raise DataError(f"The task {self.name!r} has no query with a relevant document.")
        if unanswered := len(self.queries) - len(answered):
            note = f"{unanswered} queries without a relevant document are excluded."
            object.__setattr__(self, "queries", {key: text for key, text in self.queries.items() if key in answered})
            object.__setattr__(self, "notes", (*self.notes, note))

    def texts(self) -> list[str]:
        """Return the queries, then the documents, each with its prompt."""
        return self.texts_for({})

    def texts_for(self, prompts: Mapping[str, str], default: str = "") -> list[str]:
        """Return the texts with the model's prompts "query" and "document", which replace its default prompt."""
        query, document = self.prompts_for(prompts, default).values()
        return [query + text for text in self.queries.values()] + [document + text for text in self.corpus.values()]

    def prompts_for(self, prompts: Mapping[str, str], default: str = "") -> dict[str, str]:
        """Return the prompt before queries, and the prompt before documents."""
        document = next(filter(None, map(prompts.get, ("document", "passage", "corpus"))), default)
        return {
            "queries": prompts.get("query") or default if self.query_prompt is None else self.query_prompt,
            "documents": document if self.document_prompt is None else self.document_prompt,
        }

    def _content(self) -> Any:
        return [dict(self.queries), dict(self.corpus), {q: dict(d) for q, d in self.relevant.items()}]

    @property
    def evidence_size(self) -> int:
        """The number of scores times Q."""
        return len(PER_QUERY) * len(self)

    def working_bytes(self, dimensions: int) -> int:
        """Estimate the bytes of float32 rows and of blocks of similarities."""
        return 8 * (len(self) + len(self.corpus)) * dimensions + 8 * BLOCK

    def items(self) -> list[tuple[str, ...]]:
        """Return the queries."""
        return [(text,) for text in self.queries.values()]

    def without(self, excluded: np.ndarray) -> RetrievalTask:
        """Return the task without the `excluded` queries (U,) bool; the corpus is unchanged."""
        queries = dict(compress(self.queries.items(), ~excluded))
        return replace(self, queries=queries, relevant={key: self.relevant[key] for key in queries})

    def evidence(self, vectors: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        """Compute each score of each query: (scores·Q,)."""
        pytrec_eval = optional_import("pytrec_eval", "retrieval")
        units, at = UnitRows(vectors), np.asarray(rows)
        # trec_eval sorts ties by descending id and reads similarities as float32, so it is given ranks
        ids = sorted(self.corpus, reverse=True)
        row_by_document = {document: number for number, document in enumerate(self.corpus, start=len(self))}
        documents = at[[row_by_document[document] for document in ids]]
        nearest_documents = nearest(units, at[: len(self)], documents, DEPTH + SPARE + self.ignore_identical_ids)
        run: dict[str, dict[str, float]] = {}
        for query, positions in zip(self.queries, nearest_documents.tolist(), strict=True):
            # a document that is the query is no answer, unless labelled as one
            itself = query if self.ignore_identical_ids and query not in self.relevant[query] else None
            ranked = [ids[number] for number in positions if ids[number] != itself]
            run[query] = {document: float(-rank) for rank, document in enumerate(ranked[:DEPTH])}
        labels = {query: dict(self.relevant[query]) for query in self.queries}
        first = {query: dict(list(ranked.items())[:10]) for query, ranked in run.items()}
        measured = pytrec_eval.RelevanceEvaluator(labels, {"ndcg_cut.10", "recall.10,100"}).evaluate(run)
        for query, ranks in pytrec_eval.RelevanceEvaluator(labels, {"recip_rank"}).evaluate(first).items():
            measured[query] |= ranks
        return np.array([measured[query][TREC[score]] for score in PER_QUERY for query in self.queries])

    def values(self, evidence: np.ndarray, score: str) -> np.ndarray:
        """Return a score of each query."""
        start = PER_QUERY.index(score) * len(self)
        return evidence[:, start : start + len(self)]

    def run(self, encode: Any) -> Result:
        """Encode queries and documents, with the model's prompts for them if any, and score.

        Raises:
            InputError: vectors of another shape, or a vector that is not finite (the message contains its text).
        """
        prompts = getattr(encode, "prompts", None)
        if not isinstance(prompts, Mapping):
            return super().run(encode)
        default = prompts.get(getattr(encode, "default_prompt_name", None) or "", "")
        distinct, rows = distinct_texts(self.texts_for(prompts, default))
        return self._measure(as_matrix(encode.encode(distinct, prompt=""), distinct), rows.tolist())

    def _measure(self, vectors: np.ndarray, rows: Sequence[int]) -> Result:
        evidence = self.evidence(vectors, rows)
        return self._scored(
            {score: with_interval(self, evidence, score) for score in PER_QUERY},
            evidence,
            protocol=f"cosine, exact search, the best {DEPTH} of {len(self.corpus)} documents, trec_eval",
            query_prompt=self.query_prompt or None,
            document_prompt=self.document_prompt or None,
            documents=len(self.corpus),
        )


class UnitRows:
    """Rows of (N,D) scaled to unit length in float64, computed on access to save memory.

    Args:
        vectors: floats of any precision; not copied.
    """

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors, self.width = vectors, vectors.shape[1]
        parts = [vectors[start : start + UNIT_ROWS] for start in range(0, len(vectors), UNIT_ROWS)]
        lengths = [lengths_of(np.asarray(part, np.float64)) for part in parts]
        self._largest, self._length = (np.concatenate(pieces) for pieces in zip(*lengths, strict=True))  # (N,1)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return some rows, (n,D)."""
        return np.asarray(np.asarray(self.vectors[rows], np.float64) / self._largest[rows] / self._length[rows])


@needs_torch("Retrieval")
def nearest(units: UnitRows, queries: np.ndarray, documents: np.ndarray, depth: int) -> np.ndarray:
    """Return indices (Q,k), best first, of the k = min(depth, C) nearest documents, by exact search in blocks.

    Candidates are found in float32 around the documents' mean, which retains digits if all cosines are close to 1. They
    are sorted in float64 by distances to six decimals: smaller differences are rounding of float32 vectors, and such
    documents stay in their order. Float32 rows and one block are in memory.

    Args:
        units: the vectors, scaled to unit length.
        queries, documents: their rows (Q,), (C,).
    """
    import torch

    count, width = min(depth, len(documents)), units.width
    parts = [slice(start, start + BLOCK // width) for start in range(0, len(documents), BLOCK // width)]
    centre = sum(units[documents[part]].sum(axis=0) for part in parts) / len(documents)  # (D,)
    right = torch.empty(len(documents), width)
    for part in parts:
        right[part] = torch.from_numpy(units[documents[part]] - centre)
    positions = np.empty((len(queries), count), np.int64)
    block_size = max(1, BLOCK // max(len(documents), 1))
    for start in range(0, len(queries), block_size):
        block = units[queries[start : start + block_size]]  # (q,D)
        candidates = torch.topk(torch.from_numpy(block.astype(np.float32)) @ right.T, count, dim=1).indices.numpy()
        for row, chosen in enumerate(candidates):
            distance = np.linalg.norm(units[documents[chosen]] - block[row], axis=1)
            positions[start + row] = chosen[np.lexsort((chosen, distance.round(6)))]
    return positions


# -- folders of BEIR: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv --------------------------------------------------


def is_beir(path: Path) -> bool:
    """Return whether a path is a retrieval data set in BEIR's layout, or one of its qrels files."""
    folder = _beir_folder(path) if path.parent.name == "qrels" else path
    return all((folder / name).is_file() for name in BEIR)


def _beir_folder(path: Path) -> Path:
    return path.parent.parent if path.is_file() else path


def beir_task(path: Path) -> RetrievalTask:
    """Read DIR (its qrels/test.tsv, or the only qrels file), or DIR/qrels/dev.tsv.

    Raises:
        DataError: a missing file, a repeated id, or a label with an unknown id; the message contains file and line.
    """
    folder = _beir_folder(path)
    for name in BEIR:
        if not (folder / name).is_file():
            raise DataError(f"{folder} has no {name}. Retrieval needs a file of pairs, or a folder in BEIR's layout.")
    if not path.is_file():
        files = sorted((folder / "qrels").glob("*.tsv"))
        path = folder / "qrels" / "test.tsv" if len(files) != 1 else files[0]
        if path not in files:
            names = ", ".join(file.name for file in files) or "none"
            raise DataError(
                f"{folder}/qrels must contain test.tsv or a single .tsv file, not: {names}. Give the path of one file."
            )
    corpus, queries = (_texts_by_id(folder / name) for name in BEIR)
    relevant: dict[str, dict[str, int]] = {}
    for row in located_rows(path):
        query, document, grade = _label(row)
        for role, text_id, known in (("query", query, queries), ("document", document, corpus)):
            if text_id not in known:
                raise DataError(f"{row.where}: the {role} {text_id!r} is not in {folder}.")
        if relevant.setdefault(query, {}).setdefault(document, grade) != grade:
            raise DataError(f"{row.where}: {query!r} and {document!r} have a different score in a row above.")
    queries = {query: text for query, text in queries.items() if query in relevant}
    name = folder.name if path.stem == "test" else f"{folder.name}.{path.stem}"
    return RetrievalTask(name, queries, corpus, relevant, source={"source": str(folder), "judgements": path.name})


def _texts_by_id(file: Path) -> dict[str, str]:
    """Read the texts of a file by id; documents start with their titles."""
    texts: dict[str, str] = {}
    for row in located_rows(file):
        text_id = row.values.get("_id", row.values.get("id"))
        if text_id is None or isinstance(text_id, (dict, list, bool)):
            raise DataError(f"{row.where}: no '_id'. Columns: {', '.join(map(repr, row.values))}.")
        if str(text_id) in texts:
            raise DataError(f"{row.where}: the id {str(text_id)!r} occurs twice.")
        texts[str(text_id)] = text_value(row, "text", row.values.get("text"))
        if file.name == BEIR[0] and row.values.get("title"):
            texts[str(text_id)] = f"{text_value(row, 'title', row.values['title'])} {texts[str(text_id)]}".strip()
    return texts


def _label(row: Row) -> tuple[str, str, int]:
    try:
        query, document, grade = (row.values[name] for name in ("query-id", "corpus-id", "score"))
        return str(query), str(document), int(str(grade).removesuffix(".0"))
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"{row.where}: expected query-id, corpus-id and score (a whole number), not {row.values!r}."
        ) from None
