"""Where the demo data lies."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def pairs_path() -> Path:
    """Path of ``pairs.jsonl``, the scored sentence pairs."""
    return _HERE / "pairs.jsonl"


def minimal_pairs_path() -> Path:
    """Path of ``minimal_pairs.jsonl``, the minimal pairs."""
    return _HERE / "minimal_pairs.jsonl"
