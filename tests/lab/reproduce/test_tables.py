"""Published figures: every digit is held by a checksum, by averages that the papers print, and by each other."""

from __future__ import annotations

import hashlib
import json

import pytest

from essent.errors import UnknownNameError
from essent.lab.reproduce.run import MEASURES
from essent.lab.reproduce.tables import Table, find_table, tables
from essent.tasks.catalogue import task_names

STS7 = [f"ditto-{n}" for n in (1, 2, 3, 4, 5, 6)]
NAMES = [
    *STS7,
    *(f"promptbert-{n}" for n in (1, 2, 3, 5, 6, 9, 10, 15)),
    *(f"stankevicius-{n}" for n in ("4", "5", *(f"A{k}" for k in range(1, 15)))),
    "heros-1",
]
# Of the figures when every one of them was compared with the papers' text (`make check-data … PAPERS=DIR`).
CHECKSUMS = {
    "ditto": "4bbb4c0bc95794e7",
    "promptbert": "cdf618463ce75197",
    "stankevicius": "d14e9b993a091e5c",
    "heros": "ceca3438a9cbc568",
}


def figures(table: Table) -> list[list[object]]:
    return [
        [c.row, c.column, c.published and c.published.value, c.published and c.published.spread] for c in table.cells()
    ]


def checksum(paper: str) -> str:
    content = [[name, figures(table)] for name, table in tables().items() if name.startswith(paper)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def test_table_names() -> None:
    assert list(tables()) == NAMES


@pytest.mark.parametrize("paper", ["ditto", "promptbert", "stankevicius", "heros"])
def test_no_digit_has_changed(paper: str) -> None:
    assert checksum(paper) == CHECKSUMS[paper]


def test_settings_are_known() -> None:
    known = {"model", "recipe", "template", "templates", "layers", "weights", "shaping", "uniform", "fit", "counts"}
    known |= {"tasks", "measure", "seeds", "most_seeds", "statistic", "lowercase", "missing", "head", "prompt"}
    known |= {"denoised"}
    for name, table in tables().items():
        assert set(table.roles) <= set(table.models)
        for cell in table.cells():
            assert set(cell.settings) <= known, name
            if cell.missing is not None:
                continue
            assert cell.settings["model"] in table.models
            assert set(cell.settings.get("tasks", ())) <= {*task_names(), "heros"}
            measure = cell.settings.get("measure")
            assert measure is None or measure in MEASURES
            assert measure is not None or (cell.recipe() is not None and cell.settings["tasks"]), (name, cell)
            if measure and "cosine" in measure and measure != "token-cosine":
                assert cell.recipe() is not None


def test_recipes_of_cells() -> None:
    rows = find_table("stankevicius-A1").blocks[0].rows
    by_column = {cell.column: cell for cell in rows["idf^W + whiten"]}
    assert str(by_column["T4"].recipe()) == "template=T4 weights=idf | whiten"
    assert str(by_column["BERT"].recipe()) == "layers=1+L weights=idf | whiten"
    assert str(by_column["RE"].recipe(3)) == "layers=random:768,3 weights=idf | whiten"
    assert (by_column["T4"].settings["counts"], by_column["T4"].settings["fit"]) == ("task", "task")
    assert by_column["B2S"].settings["model"] == "b2s"
    assert str({cell.column: cell for cell in rows["avg."]}["RE"].recipe()) == "layers=random:768,0 weights=content"
    assert rows["[MASK]"][2].missing == "not printed"
    cells = {(c.row, c.column): c for c in find_table("ditto-2").cells()}
    assert str(cells["First-last Ditto (Ours)", "RoBERTa"].recipe()) == "ditto:1-5"
    assert str(cells["Last manual prompt", "RoBERTa"].recipe()) == "prompt-roberta"
    rows = {c.row: c for c in find_table("promptbert-9").cells()}
    denoised = {(c.row, c.column): str(c.recipe()) for c in find_table("promptbert-9").cells()}
    top, mask = rows
    assert denoised == {
        (top, "no denoising"): "prompt-topk",
        (top, "denoising"): "prompt-topk-denoised",
        (mask, "no denoising"): "prompt",
        (mask, "denoising"): "prompt-denoised",
    }


def test_unknown_table() -> None:
    assert find_table("Stankevicius-a9").name == "stankevicius-A9"
    with pytest.raises(UnknownNameError, match=r"'ditto-7'.*Did you mean.*essent lab reproduce"):
        find_table("ditto-7")
