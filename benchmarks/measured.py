"""What every benchmark says beside its figures: the machine, what else ran on it, and the spread of a ratio.

    with Watch() as watch:
        … rounds, interleaved …
    print(watch)
    print(Ratio(slow, fast))
    record("encode, torch mean", Ratio(slow, fast))  # for benchmarks/run_all.py

Figures that were taken while other processes used more than 0.3 of a core (of each) say so; with ESSENT_BENCH_QUIET=1
such a benchmark ends with an error instead.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from essent._core.machine import has_bfloat16

MOST = 0.3  # of each core, used by other processes
ROUNDS = 5  # at least
RECORDS = "ESSENT_BENCH_RECORDS"  # the variable with the file to which `record` appends


def machine() -> str:
    """The processor, its cores, and whether it has bfloat16 arithmetic."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model n")]
        flags = next((line for line in info.read_text().splitlines() if line.startswith("flags")), "")
        name = names[0] if names else name
        name += ", AMX" if "amx_bf16" in flags else ""
    return f"{name}, {len(os.sched_getaffinity(0))} cores, bfloat16 {'yes' if has_bfloat16('cpu') else 'no'}"


def _busy() -> float:
    """Seconds of CPU time that the whole machine has spent, on all cores."""
    first = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, interrupts, soft, *stolen = (int(value) for value in first)
    return (user + nice + system + interrupts + soft + sum(stolen[:1])) / os.sysconf("SC_CLK_TCK")


class Watch:
    """What other processes used while a benchmark ran; of Linux, elsewhere it is not known."""

    def __enter__(self) -> Watch:
        self.others: float | None = None
        self.known = Path("/proc/stat").is_file()
        self.before = (time.perf_counter(), _busy() if self.known else 0.0, sum(os.times()[:4]))
        return self

    def __exit__(self, *error: object) -> None:
        if self.known:
            began, busy, own = self.before
            used = (_busy() - busy) - (sum(os.times()[:4]) - own)
            self.others = max(used, 0.0) / (time.perf_counter() - began) / (os.cpu_count() or 1)
        if os.environ.get("ESSENT_BENCH_QUIET") and self.loud and error[0] is None:
            raise SystemExit(f"{self}: the figures of this run are not reported.")

    @property
    def loud(self) -> bool:
        """Whether others used so much that the figures are not to be trusted."""
        return self.others is not None and self.others > MOST

    def __str__(self) -> str:
        if self.others is None:
            return f"{machine()}; what other processes used is not known"
        shown = f"{machine()}; other processes used {self.others:.2f} of each core"
        return f"{shown}: NOT A QUIET MACHINE, ratios are rough" if self.loud else shown


class Ratio:
    """How many times as fast the second is, round by round: each round's seconds of the one by those of the other."""

    def __init__(self, slow: Sequence[float], fast: Sequence[float]) -> None:
        self.by_round = [a / b for a, b in zip(slow, fast, strict=True)]

    @property
    def median(self) -> float:
        return statistics.median(self.by_round)

    def __str__(self) -> str:
        few = "" if len(self.by_round) >= ROUNDS else f", only {len(self.by_round)} rounds"
        return f"{self.median:.2f} ({min(self.by_round):.2f} to {max(self.by_round):.2f}{few})"


def record(name: str, ratio: Ratio) -> None:
    """Append a ratio to the file of `benchmarks/run_all.py`; more is better in every recorded ratio."""
    path = os.environ.get(RECORDS)
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, "rounds": ratio.by_round}) + "\n")


def processor_kind() -> str:
    """The vendor and the widest arithmetic of this processor, on which ratios depend: libraries differ by both.

    With AVX-512 also AMD's family: its units are twice as wide in Zen 5 (26) as in Zen 4 (25).
    """
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.is_file() else ""
    flags = " ".join(re.findall(r"^flags\s*:(.*)$", text, re.MULTILINE)[:1]).split()
    vendor = "amd-" if "AuthenticAMD" in text else ""
    family = re.search(r"^cpu family\s*: (\d+)", text, re.MULTILINE)
    if vendor and family and "avx512f" in flags:
        vendor += f"family-{family[1]}-"
    kinds = {"amx": "amx_bf16", "avx512-bf16": "avx512_bf16", "avx512": "avx512f", "avx2": "avx2"}
    return vendor + next((kind for kind, flag in kinds.items() if flag in flags), platform.machine())
