"""Published figures: every digit is held by a checksum; tables over some of their tasks."""

import hashlib
import json

import pytest

from essent.errors import UnknownNameError
from essent.lab.reproduce.published import Cell, Table, find_table, only_tasks, tables
from essent.lab.reproduce.run import MEASURES
from essent.tasks.catalogue import task_names

# Of the figures when every one of them was compared with the papers' text (`make check-data … PAPERS=DIR`).
CHECKSUMS = {
    "ditto": "4bbb4c0bc95794e7",
    "promptbert": "cdf618463ce75197",
    "stankevicius": "d14e9b993a091e5c",
    "heros": "ceca3438a9cbc568",
}


def test_no_digit_has_changed() -> None:
    for paper, checksum in CHECKSUMS.items():
        content = [
            [name, [[c.row, c.column, (p := c.published) and p.value, p and p.spread] for c in table.cells()]]
            for name, table in tables().items()
            if name.startswith(f"{paper}-")
        ]
        assert hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16] == checksum, paper


def test_settings_are_known() -> None:
    known = """model recipe template templates layers weights shaping uniform fit counts tasks measure seeds
        most_seeds statistic lowercase missing head prompt denoised""".split()
    for name, table in tables().items():
        for cell in table.cells():
            assert set(cell.settings) <= set(known), name
            if cell.missing is None:
                assert cell.recipe() is not None or "measure" in cell.settings, (name, cell)
                assert set(cell.settings.get("tasks", ())) <= {*task_names(), "heros"}
                assert cell.settings.get("measure") in (None, *MEASURES)


def test_recipes_of_cells() -> None:
    for line in """
stankevicius-A1 ~ idf^W + whiten ~ T4 ~ template=T4 weights=idf | whiten
stankevicius-A1 ~ idf^W + whiten ~ BERT ~ layers=1+L weights=idf | whiten
stankevicius-A1 ~ idf^W + whiten ~ RE ~ layers=random:768,3 weights=idf | whiten
stankevicius-A1 ~ avg. ~ RE ~ layers=random:768,3 weights=content
ditto-2 ~ First-last Ditto (Ours) ~ RoBERTa ~ ditto:1-5
ditto-2 ~ Last manual prompt ~ RoBERTa ~ prompt-roberta
promptbert-9 ~ avg. Top-200 tokens ~ no denoising ~ prompt-topk
promptbert-9 ~ avg. Top-200 tokens ~ denoising ~ prompt-topk-denoised
promptbert-9 ~ [MASK] token ~ no denoising ~ prompt
promptbert-9 ~ [MASK] token ~ denoising ~ prompt-denoised
""".strip().splitlines():
        table, row, column, recipe = line.split(" ~ ")
        (cell,) = (cell for cell in find_table(table).cells() if (cell.row, cell.column) == (row, column))
        assert str(cell.recipe(3)) == recipe, line


def test_names_of_tables() -> None:
    assert find_table("Stankevicius-a9").name == "stankevicius-A9"
    with pytest.raises(UnknownNameError, match=r"'ditto-7'.*Did you mean.*essent lab reproduce"):
        find_table("ditto-7")


# -- some of the tasks ------------------------------------------------------------------------------------------------


def row_of(table: Table, row: str, block: str = "") -> dict[str, Cell]:
    """Column -> cell, of a row below a heading with these words."""
    return {cell.column: cell for cell in table.cells() if cell.row == row and block in cell.block}


def test_part_of_a_table() -> None:
    whole = find_table("stankevicius-4")
    part = only_tasks(whole, {"sts12", "cr", "stsb-soft", "agnews"}.__contains__)
    heads, printed = (row_of(table, "avg.", "classification")["BERT"] for table in (part, whole))
    assert heads.settings["tasks"] == ["cr", "stsb-soft"]
    assert (heads.published.value, heads.published.over_all) == (printed.published.value, 12)
    whole = find_table("ditto-6")
    part = only_tasks(whole, {"sts12", "stsb", "sickr"}.__contains__)
    row = row_of(part, "BERT static avg.")
    assert list(row) == ["STS12", "STS-B", "SICK-R", "Avg."]
    assert row["STS12"] == row_of(whole, "BERT static avg.")["STS12"]
    assert row["Avg."].published.over_all == 7
    assert only_tasks(whole, lambda name: True) == whole
    measures = find_table("promptbert-1")
    remaining = only_tasks(measures, set().__contains__).cells()  # what is not measured on tasks
    assert len(remaining) == 6
    assert remaining == [cell for cell in measures.cells() if "measure" in cell.settings]
