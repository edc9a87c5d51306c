"""What `essent.encode` costs beside an `encode` in memory, how fast a static encoder is, and what memory it takes.

python benchmarks/bulk.py throughput --model DIR [--texts 3000] [--rounds 5]
python benchmarks/bulk.py static --model STATIC_DIR [--rows 1500000] [--workers 1]
python benchmarks/bulk.py memory --model STATIC_DIR [--rows 100000 10000000]
python benchmarks/bulk.py resume --model STATIC_DIR [--rows 1000000]
python benchmarks/bulk.py ray --model DIR --data DIR [--graph DIR] [--texts 3000] [--rounds 5] [--workers 2]

`throughput` takes turns: in memory, in parts, in memory … and prints the ratio of every pair, in seconds and in seconds
of the processor, which say something on a busy machine too. `memory` runs one process
for each size and prints its peak. Texts are made of 18 words. `ray` takes turns on a Ray cluster of this machine:
essent's workers, and Ray Data's `map_batches` with plain sentence-transformers, as many actors with a CPU each, in
whole runs from files to files, and after the first batch or part, without what it takes to start; in seconds, and in
seconds of the processor of all processes. Its texts are those of the JSON lines in a folder.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

WORDS = (
    "the a man woman old young dogs kitten tree house river music plays climbs runs drinks falls rises market price "
    "stock morning evening cold warm red green blue large small quickly slowly never always because although while"
).split()


def write_texts(path: Path, rows: int, words: int = 18) -> Path:
    """One text a line."""
    chance = random.Random(0)  # noqa: S311
    some = [" ".join(chance.choices(WORDS, k=words)) for _ in range(20_000)]
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, rows, len(some)):
            file.writelines(f"{text} {start + number}\n" for number, text in enumerate(some[: rows - start]))
    return path


def throughput(model: str, texts: int, rounds: int) -> None:
    """Rows a second of both ways, and their ratios."""
    from essent.bulk.models import BulkSettings, ModelSpec
    from essent.bulk.run import prepare
    from essent.bulk.units import plan
    from essent.bulk.work import do_units

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = write_texts(folder / "texts.txt", texts, words=18)
        rows = path.read_text("utf-8").splitlines()
        random.Random(1).shuffle(rows)  # noqa: S311
        spread = [" ".join([row] * (1 + number % 4)) for number, row in enumerate(rows)]
        path.write_text("\n".join(spread) + "\n", "utf-8")
        ratios, busy = [], []
        for number in range(rounds + 1):
            settings = BulkSettings()
            job, loaded, _ = prepare(path, ModelSpec(model), folder / f"out{number}", settings=settings)
            start, used = time.perf_counter(), time.process_time()
            loaded.encode(spread)
            memory, memory_used = time.perf_counter() - start, time.process_time() - used
            start, used = time.perf_counter(), time.process_time()
            found = list(do_units(plan(job.sources, {}, settings.rows_per_part), job, loaded))
            parts, parts_used = time.perf_counter() - start, time.process_time() - used
            assert sum(part.rows for part in found) == texts
            if number:  # the first warms up
                ratios.append(memory / parts)
                busy.append(memory_used / parts_used)
                print(f"rows/s: in memory {texts / memory:8,.0f}, in parts {texts / parts:8,.0f}; {memory / parts:.3f}")
        for name, some in (("seconds", ratios), ("seconds of the processor", busy)):
            print(f"{name}: median {statistics.median(some):.3f} ({min(some):.3f} to {max(some):.3f}), {rounds} rounds")


def one(model: str, path: str, out: str, workers: int) -> None:
    """One run, in a process of its own: prints what it took."""
    from essent.bulk.run import encode

    found = encode(path, model, out, workers=workers)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        json.dumps(
            {"rows": found.rows, "seconds": found.seconds, "peak": peak, "worker": children, "parts": found.parts}
        )
    )


def in_process(*words: object) -> dict:
    command = [sys.executable, __file__, "one", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def static(model: str, rows: int, workers: int) -> None:
    """Rows a second of reading, encoding and writing."""
    with tempfile.TemporaryDirectory() as temporary:
        path = write_texts(Path(temporary) / "texts.txt", rows)
        found = in_process(model, path, Path(temporary) / "out", workers)
        size = sum(part.stat().st_size for part in (Path(temporary) / "out").iterdir()) / 1e9
        print(
            f"{rows:,} texts, {workers} process(es): {found['seconds']:.1f} s, {rows / found['seconds']:,.0f} rows/s, "
            f"{found['parts']} parts, {size:.2f} GB, peak {found['peak']:,.0f} MB"
        )
        from essent import StaticEncoder

        texts = path.read_text("utf-8").splitlines()[: min(rows, 300_000)]
        encoder = StaticEncoder.load(model)
        start = time.perf_counter()
        encoder.encode(texts)
        print(f"encode alone, in memory: {len(texts) / (time.perf_counter() - start):,.0f} rows/s")


def memory(model: str, rows: list[int]) -> None:
    """Peak memory by number of rows."""
    peaks = []
    for count in rows:
        with tempfile.TemporaryDirectory() as temporary:
            path = write_texts(Path(temporary) / "texts.txt", count)
            found = in_process(model, path, Path(temporary) / "out", 1)
        peaks.append(found["peak"])
        print(f"{count:>12,} rows: peak {found['peak']:,.0f} MB, {count / found['seconds']:,.0f} rows/s")
    print(f"ratio {peaks[-1] / peaks[0]:.3f}")


def resume(model: str, rows: int) -> None:
    """How long a run that lacks one part in a hundred takes to go on."""
    with tempfile.TemporaryDirectory() as temporary:
        path, out = write_texts(Path(temporary) / "texts.txt", rows), Path(temporary) / "out"
        in_process(model, path, out, 1)
        parts = sorted(out.glob("part-*"))
        for part in parts[-max(1, len(parts) // 100) :]:
            part.unlink()
        start = time.perf_counter()
        found = in_process(model, path, out, 1)
        print(f"{found['parts']} parts: all of it {time.perf_counter() - start:.2f} s, imports included")


def real_texts(folder: Path, count: int) -> list[str]:
    """Some texts of a folder's JSON lines, mixed."""
    found = []
    for path in sorted(folder.rglob("*.jsonl")):
        rows = map(json.loads, path.read_text("utf-8").splitlines())
        found += [row["text"] for row in rows if (row.get("text") or "").strip()]
    random.Random(0).shuffle(found)  # noqa: S311
    return found[:count]


class PlainEncoder:
    """What the documentation of Ray Data does: a model that is loaded once in an actor."""

    def __init__(self, model: str, log: str) -> None:
        from sentence_transformers import SentenceTransformer

        self.model, self.log = SentenceTransformer(model, device="cpu"), Path(log)

    def __call__(self, batch: dict) -> dict:
        batch["embedding"] = self.model.encode(batch["text"].tolist(), show_progress_bar=False)
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{time.time()} {len(batch['text'])} {os.getpid()}\n")
        return batch


def ray_data(model: str, source: Path, out: Path, workers: int, batch: int) -> list[tuple[float, int]]:
    """Ray Data's own way from files to files; gives when each batch was encoded, and its rows."""
    import pyarrow.parquet as pq
    import ray

    log = out.with_suffix(".log")

    rows = ray.data.read_parquet(str(source)).repartition(4 * workers)  # read as one block, it would use one actor
    compute = ray.data.ActorPoolStrategy(size=workers)
    made = rows.map_batches(
        PlainEncoder,
        fn_constructor_args=[model, str(log)],
        batch_size=batch,
        compute=compute,
        num_cpus=1,
        zero_copy_batch=False,
    )
    made.write_parquet(str(out))
    lines = log.read_text("utf-8").splitlines()
    marks = sorted((float(moment), int(rows)) for moment, rows, _ in map(str.split, lines))
    assert len({line.split()[2] for line in lines}) == workers, "not every actor got a batch"
    assert pq.read_table(out, columns=["text"]).num_rows == sum(rows for _, rows in marks)
    return marks


def on_ray(given: argparse.Namespace) -> None:
    """Rows a second of both ways on the same cluster, and their ratios; actors and models start in every round."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray

    from essent.bulk.run import encode

    texts = real_texts(Path(given.data), given.texts)
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    os.environ["PYTHONPATH"] = path  # the actors import this file
    assert given.workers > 1, "one worker of essent would take both CPUs, one of which Ray Data needs for reading"
    ray.init(
        address="local", num_cpus=given.workers + 1, object_store_memory=200_000_000, include_dashboard=False,
        log_to_driver=False, logging_level="ERROR",
    )  # fmt: skip
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ratios: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "in").mkdir()
        for number, start in enumerate(range(0, len(texts), given.batch)):
            table = pa.table({"text": texts[start : start + given.batch]})
            pq.write_table(table, folder / "in" / f"{number:03d}.parquet")
        for number in range(given.rounds):
            with Clock() as ours:
                out = folder / f"essent{number}"
                found = encode(folder / "in", given.graph or given.model, out, ray=True, workers=given.workers)
            with Clock() as theirs:
                batches = ray_data(given.model, folder / "in", folder / f"ray{number}", given.workers, given.batch)
            parts = sorted((path.stat().st_mtime, pq.read_metadata(path).num_rows) for path in found.paths)
            rates = zip(ours.rates(parts).items(), theirs.rates(batches).values(), strict=True)
            for (name, rate), other in rates:
                ratios.setdefault(name, []).append(rate / other)
                print(f"{name}: essent {rate:,.1f} rows/s, Ray Data {other:,.1f}: {rate / other:.3f}", flush=True)
    ray.shutdown()
    for name, found in ratios.items():
        print(f"{name}: median ratio {statistics.median(found):.3f} ({min(found):.3f} to {max(found):.3f})")


class Clock:
    """Seconds, and seconds of CPU of this process and all below it, while a block runs."""

    def __enter__(self) -> Clock:
        self._used: dict[int, float] = {}
        self._looking = 0.0  # what this takes itself
        self._over = threading.Event()
        self.samples: list[tuple[float, float]] = []
        self._look()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            self._look()

    def _look(self) -> None:
        import psutil

        began = time.thread_time()
        here = psutil.Process()
        for process in (here, *here.children(recursive=True)):
            try:
                used = process.cpu_times()
            except psutil.Error:  # it has ended; what it had used is kept
                continue
            self._used[process.pid] = used.user + used.system
        self.samples.append((time.time(), sum(self._used.values()) - self._looking))
        self._looking += time.thread_time() - began

    def rates(self, marks: list[tuple[float, int]]) -> dict[str, float]:
        """Rows a second of everything, and after the first mark.

        Args:
            marks: when rows were done, and how many.
        """
        import numpy as np

        assert len(marks) > 1, "more texts, or a smaller batch"
        rows, left = sum(count for _, count in marks), sum(count for _, count in marks[1:])
        times = [self.samples[0][0], marks[0][0], marks[-1][0], self.samples[-1][0]]
        used = np.interp(times, *zip(*self.samples, strict=True))
        return {
            "whole runs": rows / (times[3] - times[0]),
            "whole runs, processor": rows / (used[3] - used[0]),
            "after the first batch": left / (times[2] - times[1]),
            "after the first batch, processor": left / (used[2] - used[1]),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="way", required=True)
    for name in ("throughput", "static", "memory", "resume", "ray"):
        way = ways.add_parser(name)
        way.add_argument("--model", required=True)
        way.add_argument(
            "--rows", type=int, nargs="+", default=[100_000, 10_000_000] if name == "memory" else [1_500_000]
        )
        way.add_argument("--workers", type=int, default=2 if name == "ray" else 1)
        way.add_argument("--texts", type=int, default=3000)
        way.add_argument("--rounds", type=int, default=5)
        if name == "ray":
            way.add_argument("--data", required=True, help="folder of JSON lines with the field text")
            way.add_argument("--graph", help="folder of the model's graph, which essent runs instead")
            way.add_argument("--batch", type=int, default=1024, help="rows of a batch of Ray Data")
    alone = ways.add_parser("one")
    for name in ("model", "path", "out"):
        alone.add_argument(name)
    alone.add_argument("workers", type=int)
    given = parser.parse_args()
    if given.way == "one":
        one(given.model, given.path, given.out, given.workers)
    elif given.way == "throughput":
        throughput(given.model, given.texts, given.rounds)
    elif given.way == "ray":
        on_ray(given)
    elif given.way == "memory":
        memory(given.model, given.rows)
    elif given.way == "resume":
        resume(given.model, given.rows[0])
    else:
        static(given.model, given.rows[0], given.workers)


if __name__ == "__main__":
    main()
