"""Results: JSON round trip, and side by side as a table."""

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from essent.errors import DataError, InputError
from essent.tasks.result import Result, load_results, results_table, save_results


def result(task: str = "sts12", score: float = 71.25) -> Result:
    metrics = {"spearman": {"all": score, "mean": 40.0}, "pearson": {"all": score - 10}}
    provenance = {"source": "sts12.jsonl", "versions": {"numpy": "2"}}
    return Result(task, metrics, {"MSRpar": {"n": 750, "spearman": score}}, 9, provenance, ("Noted.",))


def test_round_trip(tmp_path: Path) -> None:
    """Also of undefined scores, and of provenance of any type from the caller."""
    heros = Result("heros", {"similarity": {"Synonym": 0.9}}, {}, 3, main=None)
    provenance = {"path": Path("a/b"), "weight": np.float32(0.5), "heads": (1, 10)}
    path = tmp_path / "new" / "results.json"
    save_results([result(), heros, result(score=math.nan).with_provenance(**provenance)], path)
    json.loads(path.read_text(), parse_constant=pytest.fail)
    *defined, undefined = load_results(path)
    assert defined == [result(), heros]
    assert type(defined[0].subsets["MSRpar"]["n"]) is int
    assert math.isnan(undefined.main_score)
    assert undefined.provenance == {**result().provenance, "path": "a/b", "weight": 0.5, "heads": [1, 10]}
    with pytest.raises(InputError, match=r"heros has no main score\. Its scores are in `metrics`: similarity"):
        _ = heros.main_score


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 100_000, "is not a JSON file"),
        ("[]", "is not a file of results"),
        ('{"format": "other/1", "results": []}', "its format is 'other/1'"),
        ('{"format": "essent-results/1", "results": [{"task": "sts12"}]}', "results.json: Not a result.*'metrics'"),
        ('{"format": "essent-results/1", "results": [7]}', "results.json: Not a result"),
        (None, "Cannot read the results"),
    ],
)
def test_foreign_files(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    with pytest.raises(DataError, match=message):
        load_results(tmp_path / "results.json")


# -- side by side -----------------------------------------------------------------------------------------------------

RESULTS = {
    "mean": [result("sts12", 50.0), result("stsb", 60.0)],
    "ditto[1-10]": [result("sts12", 70.0), result("stsb", 59.999)],
    "partial": [result("stsb", 10.0)],
    "broken": [result("stsb", math.nan), result("sts12", 1.0)],
}


def test_rows_averages_and_the_best_of_a_column() -> None:
    table = results_table(RESULTS)
    assert table.columns == ("sts12", "stsb", "avg")
    assert table.rows["mean"] == {"sts12": 50.0, "stsb": 60.0, "avg": 55.0}
    names, sts12, stsb, averages = ([*column.cells] for column in table.render().columns)
    assert list(map(str, names)) == ["mean", "ditto[1-10]", "partial", "broken"]
    assert list(map(str, sts12)) == ["50.00", "70.00", "–", "1.00"]
    assert list(map(str, stsb)) == ["60.00", "60.00", "10.00", "nan"]
    assert [str(cell.style) for cell in stsb] == ["bold", "bold", "", ""]
    assert list(map(str, averages)) == ["55.00", "65.00", "–", "nan"]


def test_intervals_stand_beside_few_scores_and_below_many() -> None:
    def scored(task: str) -> Result:
        return Result(task, {"ndcg@10": {"all": 60.0, "low": 57.0, "high": 61.0}}, {}, 9, main=("ndcg@10", "all"))

    few, many = (results_table({"mean": [scored(f"t{n}") for n in range(count)]}) for count in (2, 7))
    assert (few.cell("mean", "t0"), few.cell("mean", "avg")) == ("60.00 ±2.0", "60.00")
    assert many.cell("mean", "t0") == "60.00\n±2.0"
    assert few.title == "nDCG@10 ×100 ± 95 % interval"  # not Spearman, which no result has
    rendered = io.StringIO()
    Console(width=80, file=rendered).print(many.render())
    assert "…" not in rendered.getvalue()
    assert rendered.getvalue().count("60.00") == 8  # seven and their mean, none broken


def test_tables_of_other_results() -> None:
    assert results_table({"mean": [result("stsb", 60.0)]}).rows["mean"] == {"stsb": 60.0}
    assert results_table({"none": []}).render().row_count == 1
    with pytest.raises(InputError, match="'mean' has two results for the task 'sts12'"):
        results_table({"mean": [result(), result()]})
