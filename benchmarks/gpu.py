"""Texts a second on a GPU: sentence-transformers beside essent, in float32, in bfloat16 and with torch.compile.

python benchmarks/gpu.py MODEL --texts FILE [--rounds 5] [--batch-size 256]

All ways take turns in every round; a round before them warms up. Prints the lowest cosine with sentence-transformers'
float32 vectors, the median of texts a second, and the ratio to sentence-transformers in the same round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from essent import Encoder
from essent.engine.files import computing_in
from essent.tasks.data import read_texts

PLAIN = "sentence-transformers, float32"


def ways(model: str) -> dict[str, SentenceTransformer]:
    """The encoders by name, all on the GPU."""
    half = {"dtype": "bfloat16"}
    compiled = Encoder(model, "mean", device="cuda")
    compiled.compile(dynamic=True)
    return {
        PLAIN: SentenceTransformer(model, device="cuda"),
        "sentence-transformers, weights in bfloat16": SentenceTransformer(model, device="cuda", model_kwargs=half),
        "essent, float32": Encoder(model, "mean", device="cuda"),
        "essent, products in bfloat16": computing_in(Encoder(model, "mean", device="cuda"), "bfloat16"),
        "essent, weights in bfloat16": Encoder(model, "mean", device="cuda", model_kwargs=half),
        "essent, float32, torch.compile": compiled,
    }


def timed(encode: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """Seconds, and unit vectors (N,D) in float64."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    vectors = encode()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    exact = np.asarray(vectors, dtype=np.float64)
    return seconds, exact / np.linalg.norm(exact, axis=1, keepdims=True)


def main() -> None:
    """Time every way and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=256)
    given = parser.parse_args()
    texts, encoders = read_texts(given.texts), ways(given.model)
    spent: dict[str, list[float]] = {name: [] for name in encoders}
    lowest: dict[str, float] = {}
    expected = np.empty(0)
    for number in range(given.rounds + 1):
        for name, encoder in encoders.items():
            seconds, units = timed(lambda encoder=encoder: encoder.encode(texts, batch_size=given.batch_size))
            expected = units if name == PLAIN else expected
            lowest[name] = float(np.einsum("nd,nd->n", units, expected).min())
            if number:
                spent[name].append(seconds)
    print(f"{torch.cuda.get_device_name()}, {len(texts)} texts, {given.rounds} rounds")
    for name, seconds_of in spent.items():
        ratios = [plain / own for plain, own in zip(spent[PLAIN], seconds_of, strict=True)]
        print(
            f"{name}: {len(texts) / statistics.median(seconds_of):,.0f} texts/s, {statistics.median(ratios):.2f} times "
            f"({min(ratios):.2f} to {max(ratios):.2f}), lowest cosine {lowest[name]:.6f}"
        )


if __name__ == "__main__":
    main()
