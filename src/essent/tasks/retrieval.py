"""Retrieval: exact search of documents for queries, scored by trec_eval.

Source: BEIR (Thakur et al. 2021) as in MTEB: cosine, the best 100 documents per query, trec_eval's nDCG@10 from
`pytrec_eval`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.lazy import needs_torch, optional_import
from essent.errors import DataError
from essent.tasks.base import LabeledTask, as_matrix, encode_distinct, unit_rows
from essent.tasks.comparison import with_interval
from essent.tasks.data import located_rows, text_value
from essent.tasks.result import PER_QUERY, Result

DEPTH = 100  # scored documents per query
SPARE = 100  # more float32 candidates, reranked in float64: cosines of an anisotropic model are close to each other
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
    evidence_per_unit = len(PER_QUERY)
    queries: Mapping[str, str]
    corpus: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, int]]
    query_prompt: str | None = None
    document_prompt: str | None = None
    ignore_identical_ids: bool = False

    def __post_init__(self) -> None:
        optional_import("pytrec_eval", "retrieval")  # fail before the model has run for an hour
        queries, corpus = ({str(key): text for key, text in side.items()} for side in (self.queries, self.corpus))
        relevant = {str(q): {str(d): int(grade) for d, grade in grades.items()} for q, grades in self.relevant.items()}
        documents = [document for grades in relevant.values() for document in grades]
        for role, ids, texts in (("query", relevant, queries), ("document", documents, corpus)):
            if unknown := next((text_id for text_id in ids if text_id not in texts), None):
                raise DataError(f"The task {self.name!r}: a label refers to the {role} {unknown!r}, which is missing.")
        answered = {key: text for key, text in queries.items() if any(g > 0 for g in relevant.get(key, {}).values())}
        if not answered:
            raise DataError(f"The task {self.name!r} has no query with a relevant document.")
        unanswered = len(queries) - len(answered)
        notes = [f"{unanswered} queries without a relevant document are excluded."] * bool(unanswered)
        # the class is frozen, so the checked values are set here
        vars(self).update(queries=answered, corpus=corpus, relevant=relevant, notes=(*self.notes, *notes))

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
        # trec_eval sorts ties by descending id and reads similarities as float32, so it is given ranks
        ids = sorted(self.corpus, reverse=True)
        row_by_document = dict(zip(self.corpus, rows[len(self) :], strict=True))
        documents = np.array([row_by_document[document] for document in ids])
        depth = DEPTH + SPARE + self.ignore_identical_ids
        run: dict[str, dict[str, float]] = {}
        candidates = nearest(vectors, np.asarray(rows[: len(self)]), documents, depth)
        for query, indices in zip(self.queries, candidates.tolist(), strict=True):
            # a document that is the query is no answer, unless labelled as one
            itself = query if self.ignore_identical_ids and query not in self.relevant[query] else None
            ranked = [ids[index] for index in indices if ids[index] != itself]
            run[query] = {document: float(-rank) for rank, document in enumerate(ranked[:DEPTH])}
        pytrec_eval = optional_import("pytrec_eval", "retrieval")
        labels = {query: dict(self.relevant[query]) for query in self.queries}
        evaluator = pytrec_eval.RelevanceEvaluator(labels, {"ndcg_cut.10", "recip_rank", "recall.10,100"})
        scores = evaluator.evaluate(run)
        values = np.array([[scores[query][TREC[name]] for query in self.queries] for name in PER_QUERY])  # (scores,Q)
        reciprocal_ranks = values[PER_QUERY.index("mrr@10")]
        reciprocal_ranks[reciprocal_ranks < 1 / 10] = 0.0
        return np.asarray(values.ravel())

    def values(self, evidence: np.ndarray, score: str) -> np.ndarray:
        """Return a score of each query."""
        start = PER_QUERY.index(score) * len(self)
        return evidence[:, start : start + len(self)]

    def run(self, encode: Any, **options: Any) -> Result:
        """Encode queries and documents, with the model's prompts and routes for them if any, and score.

        Raises:
            InputError: vectors of another shape, or a vector that is not finite (the message contains its text).
        """
        prompts = getattr(encode, "prompts", None)
        if not isinstance(prompts, Mapping):
            return super().run(encode, **options)
        default = prompts.get(getattr(encode, "default_prompt_name", None) or "", "")
        texts = self.texts_for(prompts, default)
        if routes_queries(encode):
            sides = {"query": texts[: len(self)], "document": texts[len(self) :]}
            routed = partial(encode.encode, prompt="", **options)
            vectors = [as_matrix(routed(side, task=route), side) for route, side in sides.items()]
            return self._measure(np.concatenate(vectors), range(len(texts)))
        return self._measure(*encode_distinct(partial(encode.encode, prompt="", **options), texts))

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


def routes_queries(encoder: Any) -> bool:
    """Whether a model encodes queries and documents by different modules (sentence-transformers' Router)."""
    first = next(iter(encoder), None) if isinstance(encoder, Iterable) else None
    tasks = {task for task, _ in getattr(first, "route_mappings", {})} | {*getattr(first, "sub_modules", ())}
    return {"query", "document"} <= tasks


@needs_torch("Retrieval")
def nearest(vectors: np.ndarray, queries: np.ndarray, documents: np.ndarray, depth: int) -> np.ndarray:
    """Return indices (Q,k), best first, of the k = min(depth, C) nearest documents, by exact search in blocks.

    Candidates are found in float32 around the documents' mean, which retains digits if all cosines are close to 1. They
    are sorted in float64 by distances to six decimals: smaller differences are rounding of float32 vectors, and such
    documents stay in their order. Float32 rows and one block are in memory.

    Args:
        vectors: (N,D), of any precision; not copied.
        queries, documents: their rows (Q,), (C,).
    """
    import torch

    def units(rows: np.ndarray) -> np.ndarray:
        return unit_rows(np.asarray(vectors[rows], np.float64))  # (n,D)

    count, rows_per_block = min(depth, len(documents)), BLOCK // vectors.shape[1]
    parts = [slice(start, start + rows_per_block) for start in range(0, len(documents), rows_per_block)]
    centre = sum(units(documents[part]).sum(axis=0) for part in parts) / len(documents)  # (D,)
    centred = torch.empty(len(documents), vectors.shape[1])
    for part in parts:
        centred[part] = torch.from_numpy(units(documents[part]) - centre)
    indices = np.empty((len(queries), count), np.int64)
    queries_per_block = max(1, BLOCK // max(len(documents), 1))
    for start in range(0, len(queries), queries_per_block):
        block = units(queries[start : start + queries_per_block])  # (q,D)
        candidates = torch.topk(torch.from_numpy(block.astype(np.float32)) @ centred.T, count, dim=1).indices.numpy()
        for number, chosen in enumerate(candidates):
            distances = np.linalg.norm(units(documents[chosen]) - block[number], axis=1)
            indices[start + number] = chosen[np.lexsort((chosen, distances.round(6)))]
    return indices


# -- folders of BEIR: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv --------------------------------------------------


def is_beir(path: Path) -> bool:
    """Return whether a path is a retrieval data set in BEIR's layout, or one of its qrels files."""
    return all((_beir_folder(path) / name).is_file() for name in BEIR)


def _beir_folder(path: Path) -> Path:
    return path.parent.parent if path.is_file() and path.parent.name == "qrels" else path


def beir_task(path: Path) -> RetrievalTask:
    """Read DIR (its qrels/test.tsv, or the only qrels file), or DIR/qrels/dev.tsv.

    Raises:
        DataError: a missing file, a repeated id, or a label with an unknown id.
    """
    folder = _beir_folder(path)
    for name in BEIR:
        if not (folder / name).is_file():
            raise DataError(f"{folder} has no {name}. Retrieval needs a file of pairs, or a folder in BEIR's layout.")
    if not path.is_file():
        files = sorted((folder / "qrels").glob("*.tsv"))
        path = files[0] if len(files) == 1 else folder / "qrels" / "test.tsv"
        if path not in files:
            names = ", ".join(file.name for file in files) or "none"
            raise DataError(
                f"{folder}/qrels must contain test.tsv or a single .tsv file, not: {names}. Give the path of one file."
            )
    corpus, queries = (_texts_by_id(folder / name) for name in BEIR)
    relevant: dict[str, dict[str, int]] = {}
    for row in located_rows(path):
        try:
            query, document = str(row.values["query-id"]), str(row.values["corpus-id"])
            grade = int(str(row.values["score"]).removesuffix(".0"))
        except (KeyError, ValueError):
            expected = "query-id, corpus-id and score (a whole number)"
            raise DataError(f"{row.where}: expected {expected}, not {row.values!r}.") from None
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
        text = text_value(row, "text", row.values.get("text"))
        if file.name == BEIR[0] and (title := row.values.get("title")):
            text = f"{text_value(row, 'title', title)} {text}".strip()
        texts[str(text_id)] = text
    return texts
