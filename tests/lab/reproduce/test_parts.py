"""Tables over some of their tasks: what is printed for them, and what is measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from essent.lab.reproduce.run import run_table
from essent.lab.reproduce.show import render, settings_of, summary, to_dict
from essent.lab.reproduce.tables import find_table, only_tasks

STS, HEADS = {"sts12", "stsb", "sickr"}, {"cr", "stsb-soft"}


def cell(table: object, block: int, row: str, column: str) -> object:
    return next(table_cell for table_cell in table.blocks[block].rows[row] if table_cell.column == column)  # type: ignore[attr-defined]


def test_published_figure_of_a_part() -> None:
    part = only_tasks(find_table("stankevicius-4"), {*STS, *HEADS, "agnews"}.__contains__)
    for row in ("avg.", "idf^T + quantile-u"):
        for column in ("T4", "BERT", "RE"):
            printed = [
                next(c for c in find_table(f"stankevicius-{name}").blocks[0].rows[row] if c.column == column).published
                for name in ("A1", "A6", "A7")
            ]
            published = cell(part, 0, row, column).published
            assert published.value == pytest.approx(statistics.mean(figure.value for figure in printed), abs=0.006)
            assert published.over_all == 0
    assert cell(part, 1, "avg.", "RE").settings["tasks"] == ["agnews"]
    assert cell(part, 1, "avg.", "RE").published.value == 28.0
    heads, whole = cell(part, 2, "avg.", "BERT"), cell(find_table("stankevicius-4"), 2, "avg.", "BERT")
    assert heads.settings["tasks"] == ["cr", "stsb-soft"]
    assert (heads.published.value, heads.published.over_all) == (whole.published.value, 12)


def test_single_task_columns() -> None:
    part = only_tasks(find_table("ditto-6"), STS.__contains__)
    row = part.blocks[0].rows["BERT static avg."]
    assert [table_cell.column for table_cell in row] == ["STS12", "STS-B", "SICK-R", "Avg."]
    assert row[-1].published.value == pytest.approx(
        statistics.mean(table_cell.published.value for table_cell in row[:-1]), abs=0.006
    )
    alone = only_tasks(find_table("ditto-1"), STS.__contains__)  # the figures stand in another table
    assert alone.blocks[0].rows["BERT static avg."][0].published == row[-1].published


def test_nothing_else_changes() -> None:
    table = find_table("promptbert-1")
    assert only_tasks(table, lambda name: True) == table
    assert not only_tasks(find_table("stankevicius-A1"), {"cr"}.__contains__).blocks
    measures = find_table("ditto-2")  # of a corpus, not of tasks
    assert [c for c in only_tasks(measures, set().__contains__).cells() if "measure" in c.settings] == [
        c for c in measures.cells() if "measure" in c.settings and not c.settings.get("tasks")
    ]


def test_part_runs_on_partial_files(deep: Callable[[str], str], toy_data: Path, tmp_path: Path) -> None:
    for name in ("sts/sts12.jsonl", "classification/cr.jsonl"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text((toy_data / name).read_text())
    selection = {"columns": {"BERT"}.__contains__, "rows": {"avg."}.__contains__, "data": tmp_path}
    whole = run_table(find_table("stankevicius-4"), {"bert": deep("bert")}, **selection)
    assert all(table_cell.score is None for table_cell in whole.cells)
    assert any("--only-tasks" in line for line in settings_of(whole))
    done = run_table(
        only_tasks(find_table("stankevicius-4"), {"sts12", "cr"}.__contains__), {"bert": deep("bert")}, **selection
    )
    single = run_table(find_table("stankevicius-A1"), {"bert": deep("bert")}, **selection)
    sts, heads = done.cells
    assert sts.score.value == pytest.approx(single.cells[0].score.value)
    assert sts.difference == sts.score.value - 45.1
    assert heads.score is not None
    assert heads.difference is None
    assert [(c["tasks"], c["published_over"]) for c in to_dict(done)["cells"]] == [(["sts12"], 1), (["cr"], 12)]
    assert "of 1 cells agree" in summary(done)
    assert any("all 12 tasks" in line for line in settings_of(done))
    assert render(done).row_count == 4  # a heading and a row each
