"""Built pairs as a data set on the hub: its rows, its card, and how it gets there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from essent.minimal_pairs.edits import DATA
from essent.minimal_pairs.quality import overlaps
from essent.minimal_pairs.rows import PairRow
from essent.tasks import SUBSETS
from essent.types import DataError, InputError, optional_import

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def data_set(rows: Sequence[PairRow]) -> Any:
    """The rows as a `datasets.Dataset`, one column a field.

    Raises:
        InputError: no rows.
        MissingDependencyError: without `datasets`.
    """
    datasets = optional_import("datasets", "data")
    if not rows:
        raise InputError("There are no rows to make a data set of.")
    kinds = {"start": "int64", "end": "int64"}
    features = {field.name: datasets.Value(kinds.get(field.name, "string")) for field in fields(PairRow)}
    return datasets.Dataset.from_list([asdict(row) for row in rows], features=datasets.Features(features))


def card(rows: Sequence[PairRow], name: str) -> str:
    """README.md of the data set `name`, "me/my-pairs" say: metadata for the hub, what the rows are, where from."""
    found = Counter(row.subset for row in rows)
    measured = overlaps(rows)
    sources = {"WordNet" if row.source.startswith("WordNet ") else row.source for row in rows}
    told = {
        "WordNet": "Synonyms and antonyms are words of Princeton's WordNet.",
        "codespell": "Common misspellings are those of codespell.",
    }
    return (
        (DATA / "card.md")
        .read_text("utf-8")
        .format(
            name=name,
            title=f"Minimal pairs: {name.rpartition('/')[2]}",
            size=next((label for limit, label in SIZES if len(rows) < limit), "1M<n<10M"),
            pairs=f"{len(rows):,}",
            originals=f"{len({row.original for row in rows}):,}",
            table="\n".join(
                f"| {one} | {found[one]} | {measured[one]['rouge1']:.1f} |" for one in SUBSETS if found[one]
            ),
            sources=" ".join(text for source, text in told.items() if source in sources),
        )
    )


def push_rows(rows: Sequence[PairRow], name: str) -> str:
    """Upload rows as a private data set with a card, split "train"; returns its address. `load_heros` reads hub:NAME.

    Raises:
        DataError: the hub cannot be reached or refuses.
        InputError: no rows.
        MissingDependencyError: without `datasets`.
    """
    found, text = data_set(rows), card(rows, name)
    hub = optional_import("huggingface_hub", "data")
    try:
        hub.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
        hub.DatasetCard(text).push_to_hub(name)  # first: the upload of the rows adds its own metadata to the card
        return str(found.push_to_hub(name, split="train", private=True))
    except Exception as error:  # `datasets` documents no common base, and no network error may look like a bug
        raise DataError(
            f"Cannot put the data set {name!r} on the hub: {type(error).__name__}: {error}. The output file is "
            "written; log in with `hf auth login`, or upload the file by hand."
        ) from error
