"""A smaller transformer, layers dropped, taught by the large one: its cosines, its vectors, or nothing.

    python benchmarks/fewer_layers.py MODEL DATA --texts a.jsonl --texts b.jsonl [--keep 1,3,5] [--steps 1000]

The student is the model with only the layers of --keep (1 is the first) and its token embeddings. It learns from
unlabelled texts either the teacher's vectors (squared distance, as sentence-transformers' MSELoss) or the teacher's
cosines of all pairs of a batch (their mean squared difference). Beside it what costs no training: the lowest layers,
and the layers of --keep, untrained. A line each: Spearman ×100 on the tasks of DATA (sts/), and words a second on
this machine's CPU.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from torch.nn import functional

from essent.tasks.data import read_texts
from essent.tasks.locate import load_pairs

TASKS = ("sts12", "sts13", "sts16", "stsb.test", "sickr.test")


def student_of(model: str, keep: list[int], device: str) -> SentenceTransformer:
    """The model with these layers only."""
    student = SentenceTransformer(model, device=device)
    transformer = student[0].auto_model
    layers = transformer.encoder.layer
    transformer.encoder.layer = nn.ModuleList([layers[number - 1] for number in keep])
    transformer.config.num_hidden_layers = len(keep)
    return student


def teach(
    student: SentenceTransformer, targets: torch.Tensor, texts: list[str], way: str, given: argparse.Namespace
) -> None:
    """Train the student in place; targets (N,D) are the teacher's unit vectors."""
    torch.manual_seed(given.seed)
    drawn = np.random.default_rng(given.seed)
    optimizer = torch.optim.AdamW(student.parameters(), lr=given.learning_rate, weight_decay=0.0)
    fall = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 50) * (1 - step / given.steps))
    student.train()
    for _ in range(given.steps):
        rows = drawn.choice(len(texts), given.batch, replace=False)
        features = {
            k: v.to(student.device)
            for k, v in student.preprocess([texts[row] for row in rows]).items()
            if torch.is_tensor(v)
        }
        vectors = functional.normalize(student(features)["sentence_embedding"].float(), dim=1)
        wanted = targets[rows]
        loss = (
            (vectors - wanted).square().sum(1).mean()
            if way == "vectors"
            else (vectors @ vectors.T - wanted @ wanted.T).square().mean() * 100
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        fall.step()
    student.eval()


def line(name: str, model: SentenceTransformer, given: argparse.Namespace) -> None:
    """Print the scores and the speed of a model."""
    found = [load_pairs(task, given.data).run(model).main_score for task in TASKS]
    sample = [text for pair in load_pairs("stsb.test", given.data).pairs[:500] for text in pair[:2]]
    words = sum(len(text.split()) for text in sample)
    device = model.device
    model.to("cpu").encode(sample[:64])
    start = time.perf_counter()
    model.encode(sample)
    rate = words / (time.perf_counter() - start)
    model.to(device)
    cells = [f"{score:.1f}" for score in (*found, float(np.mean(found)))]
    print("| " + " | ".join([name, *cells, f"{rate:.0f}"]) + " |", flush=True)


def main() -> None:
    """Teach both ways and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=Path, action="append", required=True)
    parser.add_argument("--keep", default="1,3,5")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    keep = [int(number) for number in given.keep.split(",")]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    teacher = SentenceTransformer(given.model, device=device)
    texts = list(dict.fromkeys(text for path in given.texts for text in read_texts(path) if text.strip()))
    targets = teacher.encode(texts, convert_to_tensor=True, normalize_embeddings=True)
    print("| | " + " | ".join((*TASKS, "mean", "words/s")) + " |")
    line("the teacher", teacher, given)
    line(f"its first {len(keep)} layers", student_of(given.model, list(range(1, len(keep) + 1)), device), given)
    line(f"its layers {given.keep}", student_of(given.model, keep, device), given)
    for way in ("vectors", "cosines"):
        for chosen in (keep, list(range(1, len(keep) + 1))):
            student = student_of(given.model, chosen, device)
            start = time.perf_counter()
            teach(student, targets, texts, way, given)
            seconds = time.perf_counter() - start
            line(f"layers {','.join(map(str, chosen))}, taught the {way} ({seconds:.0f} s)", student, given)


if __name__ == "__main__":
    main()
