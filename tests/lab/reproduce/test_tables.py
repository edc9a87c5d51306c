"""Published figures: every digit is held by a checksum, by averages that the papers print, and by each other."""

from __future__ import annotations

import hashlib
import json

import pytest

from essent.errors import UnknownNameError
from essent.lab.reproduce.run import MEASURES
from essent.lab.reproduce.tables import find_table, tables
from essent.tasks.catalogue import task_names

# Of the figures when every one of them was compared with the papers' text (`make check-data … PAPERS=DIR`).
CHECKSUMS = {
    "ditto": "4bbb4c0bc95794e7",
    "promptbert": "cdf618463ce75197",
    "stankevicius": "d14e9b993a091e5c",
    "heros": "ceca3438a9cbc568",
}


def test_no_digit_has_changed() -> None:
    content: dict[str, list[object]] = {paper: [] for paper in CHECKSUMS}
    for name, table in tables().items():
        cells = [(c.row, c.column, c.published) for c in table.cells()]
        figures = [[row, column, p and p.value, p and p.spread] for row, column, p in cells]
        content[name.partition("-")[0]].append([name, figures])
    written = {paper: json.dumps(of_tables).encode() for paper, of_tables in content.items()}
    assert {paper: hashlib.sha256(text).hexdigest()[:16] for paper, text in written.items()} == CHECKSUMS


def test_settings_are_known() -> None:
    known = set("model recipe template templates layers weights shaping uniform fit counts tasks measure seeds".split())
    known |= set("most_seeds statistic lowercase missing head prompt denoised".split())
    for name, table in tables().items():
        assert set(table.roles) <= set(table.models)
        for cell in table.cells():
            assert set(cell.settings) <= known, name
            if cell.missing is not None:
                continue
            assert set(cell.settings.get("tasks", ())) <= {*task_names(), "heros"}
            measure = cell.settings.get("measure")
            assert measure in (None, *MEASURES)
            needs_vectors = measure is None or ("cosine" in measure and measure != "token-cosine")
            assert (cell.recipe() is not None) >= needs_vectors, (name, cell)
            assert measure or cell.settings["tasks"], (name, cell)


def test_recipes_of_cells() -> None:
    def recipes(name: str) -> dict[tuple[str, str], str]:
        return {(c.row, c.column): str(c.recipe(3)) for c in find_table(name).cells() if c.missing is None}

    words = recipes("stankevicius-A1")
    assert words["idf^W + whiten", "T4"] == "template=T4 weights=idf | whiten"
    assert words["idf^W + whiten", "BERT"] == "layers=1+L weights=idf | whiten"
    assert words["idf^W + whiten", "RE"] == "layers=random:768,3 weights=idf | whiten"
    assert words["avg.", "RE"] == "layers=random:768,3 weights=content"
    ditto = recipes("ditto-2")
    assert ditto["First-last Ditto (Ours)", "RoBERTa"] == "ditto:1-5"
    assert ditto["Last manual prompt", "RoBERTa"] == "prompt-roberta"
    denoised = ["prompt-topk", "prompt-topk-denoised", "prompt", "prompt-denoised"]
    assert list(recipes("promptbert-9").values()) == denoised


def test_unknown_table() -> None:
    assert find_table("Stankevicius-a9").name == "stankevicius-A9"
    with pytest.raises(UnknownNameError, match=r"'ditto-7'.*Did you mean.*essent lab reproduce"):
        find_table("ditto-7")
