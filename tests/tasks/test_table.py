"""Results as a table: averages only over complete rows, the best of a column in bold."""

from __future__ import annotations

import math

import pytest

from essent.tasks import Result, results_table
from essent.types import InputError


def result(task: str, spearman: float, mean: float | None = None) -> Result:
    averages = {} if mean is None else {"mean": mean, "wmean": mean + 1}
    return Result(task, {"spearman": {"all": spearman, **averages}, "pearson": {"all": spearman - 10}}, {}, 9)


RESULTS = {
    "mean": [result("sts12", 50.0, 40.0), result("stsb", 60.0)],
    "ditto[1-10]": [result("sts12", 70.0, 45.0), result("stsb", 59.999)],
    "partial": [result("stsb", 10.0)],
    "broken": [result("stsb", math.nan), result("sts12", 1.0)],
}


def test_rows() -> None:
    table = results_table(RESULTS)
    assert table.columns == ("sts12", "stsb", "avg")
    assert table.rows["mean"] == {"sts12": 50.0, "stsb": 60.0, "avg": 55.0}
    assert table.rows["partial"] == {"sts12": None, "stsb": 10.0, "avg": None}
    average = table.rows["broken"]["avg"]
    assert average is not None
    assert math.isnan(average)
    assert table.best("sts12") == 70.0


def test_other_scores() -> None:
    assert results_table(RESULTS, metric="pearson").rows["mean"]["sts12"] == 40.0
    assert results_table(RESULTS, average="mean").rows["mean"] == {"sts12": 40.0, "stsb": 60.0, "avg": 50.0}
    assert results_table(RESULTS, average="wmean").rows["mean"]["sts12"] == 41.0
    with pytest.raises(InputError, match="No such score: 'kendall'"):
        results_table(RESULTS, metric="kendall")


def test_two_results_of_one_task() -> None:
    with pytest.raises(InputError, match="'mean' has two results for the task 'sts12'"):
        results_table({"mean": [result("sts12", 1.0), result("sts12", 2.0)]})


def test_render() -> None:
    table = results_table(RESULTS).render()
    cells = {str(column.header): [(str(cell), str(cell.style)) for cell in column.cells] for column in table.columns}
    assert [text for text, _ in cells[""]] == ["mean", "ditto[1-10]", "partial", "broken"]
    assert cells["sts12"] == [("50.00", ""), ("70.00", "bold"), ("–", ""), ("1.00", "")]
    assert cells["stsb"] == [("60.00", "bold"), ("60.00", "bold"), ("10.00", ""), ("nan", "")]
    assert [text for text, _ in cells["avg"]] == ["55.00", "65.00", "–", "nan"]


def test_render_of_nothing() -> None:
    assert results_table({}).columns == ("avg",)
    assert results_table({"none": []}).render().row_count == 1
