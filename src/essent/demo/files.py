"""Where the demo data lies."""

from __future__ import annotations

from pathlib import Path

from essent.tasks.sample import sample_pairs_path

_HERE = Path(__file__).resolve().parent


def pairs_path() -> Path:
    """Path of the scored sentence pairs."""
    return sample_pairs_path()


def minimal_pairs_path() -> Path:
    """Path of ``minimal_pairs.jsonl``, the minimal pairs."""
    return _HERE / "minimal_pairs.jsonl"
