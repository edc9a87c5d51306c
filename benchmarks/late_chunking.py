"""nDCG@10 of chunks encoded alone and in their document, with the paired 95 % interval of the difference.

Two tasks on a .jsonl file of paragraphs (column `text`) whose sentences end in " ." (WikiText):
sentences: the first sentence of a paragraph finds its other sentences. paragraphs: the last sentence of a paragraph
finds the rest of this paragraph; a document is six paragraphs.

python benchmarks/late_chunking.py --model DIR --texts wikitext2.jsonl [--query-prompt "query: " --prompt "passage: "]
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import numpy as np
from sklearn.metrics import ndcg_score

from essent import Encoder

SENTENCE_END = re.compile(r"(?<= [.!?]) ")
PARAGRAPHS, DOCUMENTS, QUERIES, PER_DOCUMENT, EVERY = 1200, 400, 300, 6, 4
Task = tuple[list[list[str]], list[str], list[list[int]]]  # chunks of documents, queries, relevant chunks per query


def read_paragraphs(path: Path) -> list[list[str]]:
    """Return the sentences of the first paragraphs with at least four, without WikiText's marks."""
    rows = (json.loads(line)["text"] for line in path.read_text("utf-8").splitlines())
    texts = (re.sub(r" @(.)@ ", r"\1", row.replace("<unk>", "")).strip() for row in rows)
    return [parts for parts in map(SENTENCE_END.split, texts) if len(parts) >= 4][:PARAGRAPHS]


def sentences_task(paragraphs: list[list[str]]) -> Task:
    documents = [[sentence + " " for sentence in parts[1:]] for parts in paragraphs[:DOCUMENTS]]
    starts = np.cumsum([0, *map(len, documents)])
    relevant = [list(range(starts[row], starts[row + 1])) for row in range(QUERIES)]
    return documents, [parts[0] for parts in paragraphs[:QUERIES]], relevant


def paragraphs_task(paragraphs: list[list[str]]) -> Task:
    asked = range(0, len(paragraphs), EVERY)
    chunks = [" ".join(parts[:-1] if row in asked else parts) + "\n" for row, parts in enumerate(paragraphs)]
    documents = [chunks[start : start + PER_DOCUMENT] for start in range(0, len(chunks), PER_DOCUMENT)]
    return documents, [paragraphs[row][-1] for row in asked], [[row] for row in asked]


def similarity_within(vectors: np.ndarray, documents: list[list[str]]) -> float:
    """Return the mean cosine of two chunks of a document."""
    cosines, start = [], 0
    for chunks in documents:
        own = vectors[start : start + len(chunks)]
        start += len(chunks)
        cosines.extend((own @ own.T)[np.triu_indices(len(chunks), 1)])
    return float(np.mean(cosines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--texts", required=True, type=Path)
    parser.add_argument("--query-prompt", default="")
    parser.add_argument("--prompt", default="")
    options = parser.parse_args()
    encoder, paragraphs = Encoder(options.model), read_paragraphs(options.texts)
    for name, make in (("sentences", sentences_task), ("paragraphs", paragraphs_task)):
        documents, queries, relevant = make(paragraphs)
        chunks = [chunk.strip() for document in documents for chunk in document]
        query_vectors = encoder.encode(queries, prompt=options.query_prompt, normalize_embeddings=True)
        alone = encoder.encode(chunks, prompt=options.prompt, normalize_embeddings=True)
        late = np.concatenate(encoder.encode_chunks(documents, prompt=options.prompt, normalize_embeddings=True))
        relevance = np.zeros((len(queries), len(chunks)))
        for row, columns in enumerate(relevant):
            relevance[row, columns] = 1
        scores = []
        for vectors in (alone, late):
            rows = zip(relevance, query_vectors @ vectors.T, strict=True)
            scores.append(np.array([100 * ndcg_score([gains], [row], k=10, ignore_ties=True) for gains, row in rows]))
        difference, generator = scores[1] - scores[0], np.random.default_rng(0)
        draws = generator.choice(difference, (2000, len(difference))).mean(axis=1)
        low, high = np.percentile(draws, [2.5, 97.5])
        within = [similarity_within(vectors, documents) for vectors in (alone, late)]
        print(
            f"{name}: {len(documents)} documents, {len(chunks)} chunks, {len(queries)} queries; alone "
            f"{scores[0].mean():.1f}, late {scores[1].mean():.1f}, difference {difference.mean():+.1f} "
            f"[{low:+.1f}, {high:+.1f}]; cosine within a document {within[0]:.2f}, {within[1]:.2f}"
        )


if __name__ == "__main__":
    main()
