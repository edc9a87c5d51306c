"""The sentence pairs that ship with essent: where nothing else is given, models are looked at with them."""

from __future__ import annotations

import json
from pathlib import Path


def sample_pairs_path() -> Path:
    """Path of ``sample_pairs.jsonl``: 160 scored sentence pairs, written for this package (see `essent.demo`)."""
    return Path(__file__).resolve().parent / "sample_pairs.jsonl"


def sample_texts() -> list[str]:
    """The 320 sentences of these pairs."""
    rows = [json.loads(line) for line in sample_pairs_path().read_text("utf-8").splitlines()]
    return [row[side] for row in rows for side in ("sentence1", "sentence2")]
