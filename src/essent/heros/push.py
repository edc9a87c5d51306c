"""Built pairs as a data set on the hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from essent.heros.rows import PairRow
from essent.types import DataError, optional_import


def push_rows(rows: Sequence[PairRow], name: str) -> str:
    """Upload rows as a private data set, split "train", which is what `load_heros` reads; returns its address.

    Raises:
        DataError: the hub cannot be reached or refuses.
        MissingDependencyError: without `datasets`.
    """
    datasets = optional_import("datasets", "data")
    try:
        pushed = datasets.Dataset.from_list([asdict(row) for row in rows]).push_to_hub(
            name, split="train", private=True
        )
    except Exception as error:  # `datasets` documents no common base, and no network error may look like a bug
        raise DataError(
            f"Cannot put the data set {name!r} on the hub: {type(error).__name__}: {error}. The output file is "
            "written; log in with `hf auth login`, or upload the file by hand."
        ) from error
    return str(pushed)
