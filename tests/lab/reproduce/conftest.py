"""Small made-up data for every task of the papers, and models with as many layers and heads as they name."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import families
from command_line import write_rows
from essent.tasks.catalogue import CLASSIFICATION12, CLUSTERING6, task_names
from selection_samples import text


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all tasks, in our layout."""
    folder = tmp_path_factory.mktemp("toy-data")
    scored = [
        {"sentence1": text(n), "sentence2": text(n + n % 4), "score": 0.9 - n % 4 / 5 + n % 3 / 20} for n in range(16)
    ]
    parts = [f"{name}.{part}" for name in ("stsb", "sickr") for part in ("train", "dev", "test")]
    for name in {*task_names("pairs"), *parts}:
        write_rows(folder / "sts" / f"{name}.jsonl", scored)
    labelled = [{"text": text(n), "label": n % 2} for n in range(24)]
    pairs = [{"sentence1": row["text"], "sentence2": text(n + n % 2), "label": n % 2} for n, row in enumerate(labelled)]
    for name in CLASSIFICATION12:
        write_rows(folder / "classification" / f"{name}.jsonl", pairs if name in {"mrpc", "sicke"} else labelled)
    for name in CLUSTERING6:
        write_rows(folder / "clustering" / f"{name}.jsonl", [{"text": text(n), "label": n % 3} for n in range(24)])
    changed = [{"original": text(n), "converted": text(n + 1), "subset": "Synonym"} for n in range(6)]
    write_rows(folder / "heros.jsonl", changed)
    return folder


@pytest.fixture(scope="session")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """A tiny model of a family with 12 layers of 12 heads."""
    size = {"hidden_size": 24, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 24}

    @cache
    def build(family: str) -> str:
        kind, settings = families.FAMILIES[family]
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(families.FAMILIES, family, (kind, {**settings, **size}))
            return str(families.build_family(family, tmp_path_factory.mktemp(f"deep-{family}")))

    return build
