"""Run the benchmarks that compare times, and print one table: ratios, goals, and what this kind of CPU reached before.

python benchmarks/run_all.py [--rounds 3] [--only encode train] [--store]

A ratio says how many times as fast as its peer a path is, so more is better. The exit code is 1 after a regression: the
median is more than 10 % below the stored ratio, and even the best round is below it. `--store` replaces the stored
ratios of this kind of CPU in benchmarks/ratios.json, on a quiet machine only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measured import RECORDS, Watch, processor_kind

FOLDER = Path(__file__).parent
STORED = FOLDER / "ratios.json"
MOST = 0.10  # of the stored ratio, that a median may be lower
COMMANDS = {  # short ones: few texts and steps; {} is the number of rounds
    "encode": "--rounds {} --only openvino.*(f32|bf16).mean",
    "search": "--only heads --repeats {}",
    "train": "--rounds {} --steps 4 --objectives simcse",
    "static": "--number 20000 --rounds {}",
    "startup": "--rounds {}",
    "precision": "--space heads --rounds {}",
}
GOALS = {
    "encode, torch mean × sentence-transformers": 1.1,
    "encode, openvino f32 mean × sentence-transformers": 1.3,
    "encode, openvino bf16 mean × sentence-transformers": 2.5,
    "search, plain pass / pass with all heads": 0.94,
    "search, plain pass / pass with all heads, bfloat16": 0.94,
    "train, simcse float32 × sentence-transformers": 1.15,
    "train, simcse bfloat16 × float32": 1.8,
    "start, Encoder, first text × sentence-transformers": 1.0,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=[*COMMANDS], default=[*COMMANDS])
    parser.add_argument("--store", action="store_true", help="replace the stored ratios of this kind of CPU")
    options = parser.parse_args()
    kind = processor_kind()
    stored = json.loads(STORED.read_text("utf-8")) if STORED.is_file() else {}
    with Watch() as watch:
        ratios, failed = run_benchmarks(options.only, options.rounds)
    lines, regressions = table(ratios, stored.get(kind, {}))
    print("", f"{watch}; kind {kind}", *lines, sep="\n")
    if options.store and (watch.loud or failed):
        raise SystemExit("Nothing is stored: other processes used the machine, or a benchmark failed.")
    if options.store:
        stored[kind] = stored.get(kind, {}) | {name: round(statistics.median(ratios[name]), 3) for name in ratios}
        STORED.write_text(json.dumps(stored, indent=2, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")
    if failed:
        raise SystemExit(f"Failed: {', '.join(failed)}.")
    if regressions and not options.store:
        raise SystemExit(f"More than {MOST:.0%} slower than {STORED.name}: {'; '.join(regressions)}.")


def run_benchmarks(names: list[str], rounds: int) -> tuple[dict[str, list[float]], list[str]]:
    """Ratios of the rounds by name, and the benchmarks that failed; those for bfloat16 run where the CPU has it."""
    failed = []
    with tempfile.TemporaryDirectory() as temporary:
        records = Path(temporary) / "records.jsonl"
        records.touch()
        for name in names:
            if name == "precision" and processor_kind().endswith(("avx512", "avx2")):
                continue
            command = [sys.executable, str(FOLDER / f"{name}.py"), *COMMANDS[name].format(rounds).split()]
            print(f"\n== {name} ==", flush=True)
            done = subprocess.run(command, env={**os.environ, RECORDS: str(records)})  # noqa: S603  our own files
            failed += [name] if done.returncode else []
        rows = [json.loads(line) for line in records.read_text("utf-8").splitlines()]
    return {row["name"]: row["rounds"] for row in rows}, failed


def table(ratios: dict[str, list[float]], stored: dict[str, float]) -> tuple[list[str], list[str]]:
    """Lines of the table, and the names of the ratios that are lower than they were."""
    lines, regressions = ["| times as fast | median | rounds | goal | stored |", "|---|--:|--:|--:|--:|"], []
    for name, rounds in ratios.items():
        median, goal, before = statistics.median(rounds), GOALS.get(name), stored.get(name)
        reached = "–" if goal is None else f"{goal:.2f}, {'met' if median >= goal else 'missed'}"
        slower = before is not None and median < (1 - MOST) * before and max(rounds) < before
        regressions += [f"{name}: {median:.2f} after {before:.2f}"] if slower else []
        change = "–" if before is None else f"{before:.2f}{', REGRESSION' if slower else ''}"
        lines.append(f"| {name} | {median:.2f} | {min(rounds):.2f} to {max(rounds):.2f} | {reached} | {change} |")
    return lines, regressions


if __name__ == "__main__":
    main()
