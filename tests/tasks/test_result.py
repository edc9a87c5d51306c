"""Results: JSON round trip."""

from __future__ import annotations

import json
import math
import platform
from pathlib import Path

import numpy as np
import pytest

from essent.errors import DataError, InputError
from essent.tasks.result import LIBRARIES, Result, _installed, library_versions, load_results, save_results


def result(score: float = 71.25, **changes: object) -> Result:
    values: dict = {
        "task": "sts12",
        "metrics": {"spearman": {"all": score, "mean": 70.0, "wmean": 69.5}, "pearson": {"all": 60.0}},
        "subsets": {"MSRpar": {"n": 750, "spearman": score, "pearson": 1.5}},
        "n": 3108,
        "provenance": {"source": "sts12.jsonl", "versions": {"numpy": "2"}},
        "notes": ("Noted.",),
    }
    return Result(**{**values, **changes})


def test_round_trip(tmp_path: Path) -> None:
    results = [result(), result(task="stsb.dev", subsets={})]
    path = tmp_path / "new" / "results.json"
    save_results(results, path)
    assert load_results(path) == results
    assert Result.from_dict(results[0].to_dict()) == results[0]
    assert type(load_results(path)[0].subsets["MSRpar"]["n"]) is int


def test_nan_is_null(tmp_path: Path) -> None:
    broken = result(math.nan)
    save_results([broken], tmp_path / "results.json")
    saved = json.loads((tmp_path / "results.json").read_text(), parse_constant=pytest.fail)
    assert saved["results"][0]["metrics"]["spearman"]["all"] is None
    (back,) = load_results(tmp_path / "results.json")
    assert math.isnan(back.main_score)
    assert math.isnan(back.subsets["MSRpar"]["spearman"])
    assert back.to_dict() == broken.to_dict()


def test_provenance_from_the_caller(tmp_path: Path) -> None:
    more = result().with_provenance(recipe="ditto:1-10", path=Path("a/b"), weight=np.float32(0.5), heads=(1, 10))
    assert more.provenance["source"] == "sts12.jsonl"
    assert "recipe" not in result().provenance
    plain = more.to_dict()["provenance"]
    assert (plain["recipe"], plain["path"], plain["weight"], plain["heads"]) == ("ditto:1-10", "a/b", 0.5, [1, 10])
    save_results([more], tmp_path / "results.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a JSON file"),
        ("[" * 100_000, "is not a JSON file"),
        ("[]", "is not a file of results"),
        ('{"format": "other/1", "results": []}', "its format is 'other/1'"),
        ('{"format": "essent-results/1", "results": [{"task": "sts12"}]}', "results.json: Not a result.*'metrics'"),
        ('{"format": "essent-results/1", "results": [7]}', "results.json: Not a result"),
    ],
)
def test_foreign_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        load_results(path)
    with pytest.raises(DataError, match="Cannot read the results"):
        load_results(tmp_path / "no.json")


def test_no_single_main_score(tmp_path: Path) -> None:
    saved = Result("heros", {"similarity": {"Synonym": 0.9}}, {"Synonym": {"n": 3, "similarity": 0.9}}, 3, main=None)
    save_results([saved], tmp_path / "heros.json")
    (again,) = load_results(tmp_path / "heros.json")
    assert again == saved
    with pytest.raises(InputError, match="heros has no single main score; its numbers: similarity"):
        _ = again.main_score


def test_versions_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading takes longer than a score of 60 pairs."""
    requested: list[str] = []
    monkeypatch.setattr("essent.tasks.result.version", lambda name: requested.append(name) or "1.0")
    _installed.cache_clear()
    try:
        first, second = library_versions(), library_versions()
    finally:
        _installed.cache_clear()  # the made-up ones
    assert requested == list(LIBRARIES)
    assert first == second == {"python": platform.python_version(), **dict.fromkeys(LIBRARIES, "1.0")}
    assert first is not second  # whoever adds to one leaves the other alone
