"""nDCG@10 of an encoder, its static encoder, and static queries with full documents, with paired 95 % intervals.

Two tasks: pairs of STS-B with a score of at least 4 (the first sentence finds the second among all second sentences),
and WikiText (the first sentence of a paragraph finds the rest). The static encoder is distilled on the training parts
of STS-B and SICK, and on other paragraphs of WikiText.

python benchmarks/router.py --model DIR --data DIR
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Router

from essent import Encoder, distill, load
from essent.tasks import RetrievalTask, Scored, compare
from late_chunking import read_paragraphs

QUERIES = 400


def pairs_of(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def task_of(name: str, queries: list[str], answers: list[str], others: list[str]) -> RetrievalTask:
    """Return the task in which the answer of a query is the document with the same text."""
    identifiers = {text: f"d{row}" for row, text in enumerate(dict.fromkeys([*answers, *others]))}
    relevant = {f"q{row}": {identifiers[answer]: 1} for row, answer in enumerate(answers)}
    corpus = {identifier: text for text, identifier in identifiers.items()}
    return RetrievalTask(name, {f"q{row}": query for row, query in enumerate(queries)}, corpus, relevant)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, type=Path)
    options = parser.parse_args()
    sts, paragraphs = options.data / "sts", read_paragraphs(options.data / "corpus" / "wikitext2.jsonl")
    rows = [row for part in ("dev", "test") for row in pairs_of(sts / f"stsb.{part}.jsonl")]
    close = [row for row in rows if float(row["score"]) >= 4]
    queries, answers = ([row[f"sentence{side}"] for row in close] for side in (1, 2))
    wiki, rest = paragraphs[:QUERIES], paragraphs[QUERIES:]
    tasks = [
        task_of("STS-B", queries, answers, [row["sentence2"] for row in rows]),
        task_of("WikiText", [parts[0] for parts in wiki], [" ".join(parts[1:]) for parts in wiki], []),
    ]
    training = [row[f"sentence{side}"] for name in ("stsb", "sickr") for row in pairs_of(sts / f"{name}.train.jsonl")
                for side in (1, 2)]  # fmt: skip
    corpus = list(dict.fromkeys([*training, *(sentence for parts in rest for sentence in parts)]))
    full = Encoder(options.model)
    with tempfile.TemporaryDirectory() as folder:
        distill(options.model, corpus).encoder.save(f"{folder}/static")
        full.save(f"{folder}/full")
        static, documents = (SentenceTransformer(f"{folder}/{name}") for name in ("static", "full"))
        router = Router.for_query_document(list(static), list(documents))
        SentenceTransformer(modules=[router]).save(f"{folder}/both")
        encoders = {"full": full, "static queries, full documents": load(f"{folder}/both"), "static": static}
        print(f"{len(corpus)} texts distilled")
        for task in tasks:
            results = {name: task.run(encoder) for name, encoder in encoders.items()}
            print(f"{task.name}: {len(task.queries)} queries, {len(task.corpus)} documents")
            for name, result in results.items():
                print(f"  {name}: {result.main_score:.1f}", result.metrics["ndcg@10"])
            evidence = np.stack([result.evidence for result in results.values()])
            scored = Scored(task, "ndcg@10", list(results), evidence)
            for name in list(encoders)[1:]:
                print(" ", compare([scored], name, "full"))


if __name__ == "__main__":
    main()
