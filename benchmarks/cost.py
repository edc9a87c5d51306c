"""What a million texts cost by each path, from measured rates and a stated model: the table of docs/performance.md.

python benchmarks/cost.py [--core-hour 0.04] [--gpu-hour 3.00]

Measured: texts a second on two cores. Extrapolated: more cores, by an efficiency that is assumed; the GPU, by its
arithmetic, of which a share is assumed to be reached, and never faster than the tokenizer of its 16 cores.
"""

from __future__ import annotations

import argparse

MILLION, TOKENS = 1_000_000, 16.2  # tokens a text, of the sentences that the rates were measured on
EFFICIENCY = {2: 1.0, 16: 0.85, 64: 0.7}  # assumed: memory is shared, clocks fall; a process for each eight cores
MEASURED = {  # texts a second on two cores of all-MiniLM-L6-v2; where
    "sentence-transformers, float32": (245, "no bfloat16"),
    "Encoder in torch, float32": (374, "no bfloat16"),
    "OpenVINO, float32": (417, "no bfloat16"),
    "sentence-transformers, float32, AMX": (5230 / TOKENS, "AMX"),
    "Encoder in torch, float32, AMX": (6350 / TOKENS, "AMX"),
    "OpenVINO, float32, AMX": (8260 / TOKENS, "AMX"),
    "OpenVINO, bfloat16, AMX": (28_700 / TOKENS, "AMX"),
    "StaticEncoder": (100_000 / 2.13 * 2, "no bfloat16"),  # 2.13 CPU seconds for 100,000 texts, on both cores
}
TOKENIZER = 3800  # texts a second of a core: the tokenizer alone, on a busy machine
WORK, PEAK, REACHED = 2 * 10.6e6, 990e12, 0.2  # operations a token, an H100's in bfloat16, the share assumed


def rate(two: float, cores: int) -> float:
    return two * cores / 2 * EFFICIENCY[cores]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core-hour", type=float, default=0.04, help="dollars")
    parser.add_argument("--gpu-hour", type=float, default=3.0, help="dollars, its 16 cores with it")
    given = parser.parse_args()
    print("| path | measured on | " + " | ".join(f"{cores} cores" for cores in EFFICIENCY) + " |")
    print("|---|---|" + "--:|" * len(EFFICIENCY))
    for name, (two, where) in MEASURED.items():
        cells = []
        for cores in EFFICIENCY:
            seconds = MILLION / rate(two, cores)
            cells.append(f"{said(seconds)}, ${seconds / 3600 * cores * given.core_hour:.3f}")
        print(f"| {name} | {where} | " + " | ".join(cells) + " |")
    limits = {"arithmetic": PEAK * REACHED / WORK / TOKENS, "tokenizer": rate(2 * TOKENIZER, 16)}
    slower = min(limits, key=lambda limit: limits[limit])
    seconds = MILLION / limits[slower]
    print(
        f"GPU, extrapolated: {said(seconds)}, ${seconds / 3600 * given.gpu_hour:.3f}, bound by the {slower}", end="; "
    )
    print(f"its arithmetic alone: {said(MILLION / limits['arithmetic'])}")


def said(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 600 else f"{seconds:.0f} s"


if __name__ == "__main__":
    main()
