"""Results as a table: averages only over complete rows, the best of a column in bold."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from essent.errors import InputError
from essent.tasks.result import Result, few_labels_tables, results_table

MAIN = ("ndcg@10", "all")


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


def test_intervals_stand_beside_few_scores_and_below_many() -> None:
    def scored(task: str, score: float = 60.0) -> Result:
        return Result(task, {"ndcg@10": {"all": score, "low": score - 3, "high": score + 1}}, {}, 9, main=MAIN)

    few, many = (results_table({"mean": [scored(f"t{n}") for n in range(count)]}) for count in (2, 7))
    assert (few.cell("mean", "t0"), few.cell("mean", "avg")) == ("60.00 ±2.0", "60.00")
    assert many.cell("mean", "t0") == "60.00\n±2.0"
    assert few.title == "nDCG@10 ×100 ± 95 % interval"  # not Spearman, which no result has
    rendered = io.StringIO()
    Console(width=80, file=rendered).print(many.render())
    assert "…" not in rendered.getvalue()
    assert rendered.getvalue().count("60.00") == 8  # seven and their mean, none broken


def test_interval_belongs_to_the_printed_score() -> None:
    clusters = Result("c", {"accuracy": {"mean": 5.0, "low": 4.0, "high": 7.0}}, {}, 9, main=("accuracy", "mean"))
    pairs = Result("p", {"spearman": {"all": 5.0, "mean": 6.0, "low": 4.0, "high": 7.0}}, {}, 9)
    assert results_table({"a": [clusters]}).widths == {"a": {"c": 1.5}}
    assert results_table({"a": [pairs]}).widths == {"a": {"p": 1.5}}
    assert results_table({"a": [pairs]}, average="mean").widths == {}


def test_few_labels_have_a_table_of_their_own() -> None:
    scores = {"accuracy": {"all": 90.0, "low": 89.0, "high": 92.0}, "accuracy@8": {"all": 60.0, "low": 50, "high": 70}}
    labelled = Result("trec", scores, {}, 9, main=("accuracy", "all"))
    (table,) = few_labels_tables({"mean": [labelled, result("stsb", 1.0)], "cls": [labelled]})
    assert (table.columns, list(table.rows)) == (("8", "all"), ["mean", "cls"])
    assert (table.cell("mean", "8"), table.cell("mean", "all")) == ("60.00 ±10.0", "90.00 ±1.5")
    assert few_labels_tables(RESULTS) == []
    assert results_table({"mean": [labelled]}, metric="accuracy@8").rows == {"mean": {"trec": 60.0}}


def test_metric_and_average_options() -> None:
    assert results_table(RESULTS, metric="pearson").rows["mean"]["sts12"] == 40.0
    assert results_table(RESULTS, average="mean").rows["mean"] == {"sts12": 40.0, "stsb": 60.0, "avg": 50.0}
    assert results_table(RESULTS, average="wmean").rows["mean"]["sts12"] == 41.0
    assert results_table({"mean": [result("stsb", 60.0)]}).rows["mean"] == {"stsb": 60.0}
    assert results_table({"none": []}).render().row_count == 1
    with pytest.raises(InputError, match="'mean' has two results for the task 'sts12'"):
        results_table({"mean": [result("sts12", 1.0), result("sts12", 2.0)]})
    with pytest.raises(InputError, match="No such score: 'kendall'"):
        results_table(RESULTS, metric="kendall")


def test_render() -> None:
    table = results_table(RESULTS).render()
    cells = {str(column.header): [(str(cell), str(cell.style)) for cell in column.cells] for column in table.columns}
    assert [text for text, _ in cells[""]] == ["mean", "ditto[1-10]", "partial", "broken"]
    assert cells["sts12"] == [("50.00", ""), ("70.00", "bold"), ("–", ""), ("1.00", "")]
    assert cells["stsb"] == [("60.00", "bold"), ("60.00", "bold"), ("10.00", ""), ("nan", "")]
    assert [text for text, _ in cells["avg"]] == ["55.00", "65.00", "–", "nan"]
