"""The probability of a good synonym and antonym, and that the surest originals are kept, first."""

from __future__ import annotations

import hashlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from heros_sentences import SENTENCES

from essent.errors import DataError, InputError
from essent.lab.minimal_pairs.build import Resources, build
from essent.lab.minimal_pairs.judge import fit, read_sheets
from essent.lab.minimal_pairs.parsing import DATA
from essent.lab.minimal_pairs.words import Confidence, Evidence

WEIGHTS = {"constant": 1.0, "similarity": 2.0, "probability": 0.5, "prefix": 3.0}
CONFIDENCE = Confidence({"synonym": WEIGHTS, "antonym": {"constant": -1.0}}, {})


def test_the_log_odds_are_a_sum() -> None:
    evidence = Evidence(similarity=0.5, prior=-1.0, probability=-4.0, prefix=True)
    assert math.isclose(CONFIDENCE.chance("synonym", evidence), 1 / (1 + math.exp(-(1.0 + 1.0 - 2.0 + 3.0))))
    assert math.isclose(CONFIDENCE.chance("antonym", evidence), 1 / (1 + math.e))


def test_packaged_coefficients() -> None:
    """Refit after a change: essent lab minimal-pairs fit src/essent/lab/minimal_pairs/data/judgements.tsv …"""
    fitted_on = Confidence.load().fitted_on
    assert fitted_on["sha256"] == hashlib.sha256((DATA / "judgements.tsv").read_bytes()).hexdigest()
    assert min(fitted_on["held-out area"].values()) > 0.7


def test_load_refusals(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}", "utf-8")
    with pytest.raises(DataError, match="no coefficients of `essent lab minimal-pairs fit`"):
        Confidence.load(tmp_path / "x.json")


def test_marks_of_a_sheet_in_json(tmp_path: Path) -> None:
    """Spreadsheets write 1 and 0, programs true, false and null."""
    row = '{"subset": "Synonym", "original": "a", "converted": "b", "good": %s}\n'
    (tmp_path / "x.jsonl").write_text(
        "".join(row % mark for mark in ("true", "false", "null", "1", '"0"', '""')), "utf-8"
    )
    assert [good for _, good in read_sheets([tmp_path / "x.jsonl"])] == [True, False, True, False]


def test_fit_separates_good_from_bad(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        (relation, Evidence(good + rng.normal(0, 0.3), -1.0, -4.0), bool(good))
        for relation in ("synonym", "antonym")
        for good in (0, 1) * 30
    ]
    confidence = fit(rows, {"model": "m"})
    assert confidence.fitted_on["judgements"] == {"synonym": 60, "antonym": 60}
    assert confidence.fitted_on["model"] == "m"
    assert confidence.fitted_on["held-out area"]["synonym"] > 0.9
    assert confidence.chance("synonym", rows[1][1]) > 0.5 > confidence.chance("synonym", rows[0][1])
    confidence.save(tmp_path / "fitted.json")
    assert Confidence.load(tmp_path / "fitted.json") == confidence
    with pytest.raises(DataError, match="too few to fit"):
        fit(rows[:15], {})


def test_surest_originals_come_first(resources: Resources, lenient: None) -> None:
    originals, good = {}, {}
    for n in (2, 4, 6):
        for seed in (0, 1):
            rows, quality = build(SENTENCES, resources, n=n, seed=seed)
            originals[n, seed] = list(dict.fromkeys(row.original for row in rows))
            good[n] = quality.good
            assert quality.fallen["wanted"] == {"others are surer, or came first": quality.left["typo"] - n}
    assert originals[6, 0][:4] == originals[4, 0]
    assert originals[4, 0][:2] == originals[2, 0]
    assert all(originals[n, 0] == originals[n, 1] for n in (2, 4, 6))
    assert {*good[2]} == {"synonym", "antonym"}
    assert all(0 < share < 1 for shares in good.values() for share in shares.values())
    assert math.prod(good[2].values()) > math.prod(good[6].values())


def test_looking_stops(resources: Resources, lenient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[build.__module__], "CHUNK", 4)
    progress_calls: list[tuple[int, int]] = []
    rows, quality = build(
        SENTENCES, resources, n=1, look_at=5, progress=lambda done, all: progress_calls.append((done, all))
    )
    assert len({row.original for row in rows}) == 1
    assert quality.seen == progress_calls[-1][0] == progress_calls[-1][1] == 8 < len(SENTENCES)
    *_, everything = build(SENTENCES, resources, n=1000, look_at=1)
    assert everything.seen == len(SENTENCES)


def test_look_at_refusals(resources: Resources) -> None:
    with pytest.raises(InputError, match="look_at must be at least 1, not 0"):
        build(SENTENCES, resources, look_at=0)
