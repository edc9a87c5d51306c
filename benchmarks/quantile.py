"""Times essent's quantile map against scikit-learn's QuantileTransformer: fit and transform, interleaved, one run.

python benchmarks/quantile.py --rows 10000 --columns 768 --repeats 5
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from sklearn.preprocessing import QuantileTransformer

from essent.recipe.shaping.quantile import QuantileUniform
from measured import Ratio, record


def seconds(work: Callable[[], np.ndarray]) -> tuple[float, float, np.ndarray]:
    """Time the work takes on the clock, and on the processor, which other processes change little; and its result."""
    start, start_processor = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - start, time.process_time() - start_processor, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=768)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None, help="torch threads; torch's own choice by default")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)

    vectors = np.random.default_rng(0).standard_normal((options.rows, options.columns)).astype(np.float32)

    def ours() -> np.ndarray:
        return QuantileUniform().fit(vectors).transform(vectors)

    def theirs() -> np.ndarray:
        points = min(1000, options.rows)
        transformer = QuantileTransformer(n_quantiles=points, subsample=10_000, random_state=0)
        return np.asarray(transformer.fit(vectors).transform(vectors))

    clock: dict[str, list[float]] = {"essent": [], "scikit-learn": []}
    processor: dict[str, list[float]] = {"essent": [], "scikit-learn": []}
    difference = 0.0
    for _ in range(options.repeats):  # interleaved: another process's load falls on both
        results = {}
        for name, work in (("essent", ours), ("scikit-learn", theirs)):
            taken, taken_processor, results[name] = seconds(work)
            clock[name].append(taken)
            processor[name].append(taken_processor)
        difference = max(difference, float(np.abs(results["essent"] - results["scikit-learn"]).max()))

    print(f"{options.rows} x {options.columns} float32, fit + transform, {options.repeats} repeats, interleaved")
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"torch {torch.__version__} with {torch.get_num_threads()} threads; {load}")
    for kind, times in (("clock", clock), ("processor", processor)):
        for name, taken_all in times.items():
            spread = f"min {min(taken_all):.3f}, max {max(taken_all):.3f}"
            print(f"{kind:>9}  {name:>12}: median {statistics.median(taken_all):.3f} s  ({spread})")
        ratio = statistics.median(times["scikit-learn"]) / statistics.median(times["essent"])
        print(f"{kind:>9}         ratio: {ratio:.2f} x")
    record("quantile × scikit-learn", Ratio(clock["scikit-learn"], clock["essent"]))
    print(f"largest difference: {difference:.1e}")


if __name__ == "__main__":
    main()
