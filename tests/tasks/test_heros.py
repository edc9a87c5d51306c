"""HEROS: similarities, intervals and comparisons against plain loops, degenerate input, and files of any layout."""

import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap

from command_line import write_rows
from essent.errors import DataError
from essent.tasks.comparison import wilson
from essent.tasks.examples import SUBSETS, MinimalPair
from essent.tasks.heros import GROUPS, REFERENCES, HerosTask, comparisons, load_heros, verdict
from essent.tasks.sample import sample_minimal_pairs_path


def vectors_of(texts: Sequence[str]) -> np.ndarray:
    """Vectors off centre, so that the baseline is not 0."""
    return np.random.default_rng(0).standard_normal((len(texts), 6)) + 1.0


def synthetic_task(originals: int, subsets: Sequence[str] = SUBSETS) -> HerosTask:
    return HerosTask(
        "synthetic", tuple(MinimalPair(f"o{i}", f"o{i} {s}", s) for i in range(originals) for s in subsets)
    )


def test_scores_match_plain_loops() -> None:
    rng = np.random.default_rng(0)
    task = HerosTask("incomplete", tuple(pair for pair in synthetic_task(9).pairs if rng.random() < 0.7))
    distinct = list(dict.fromkeys(task.texts()))
    matrix = vectors_of(distinct)
    result, originals = task.run(vectors_of), task.originals
    vector = dict(zip(distinct, matrix / np.linalg.norm(matrix, axis=1, keepdims=True), strict=True))
    cosines = {(p.original, p.subset): vector[p.original] @ vector[p.changed] for p in task.pairs}
    half = len(originals) // 2
    base = np.mean([vector[a] @ vector[b] for a in originals[:half] for b in originals[half:]])
    for subset, scores in result.subsets.items():
        scaled = [(cosine - base) / (1 - base) for (_, own), cosine in cosines.items() if own == subset]
        assert (scores["similarity"], scores["n"]) == (pytest.approx(np.mean(scaled), abs=1e-12), len(scaled))
    for comparison in comparisons(result):
        assert (comparison.low, comparison.high) == wilson(comparison.share, comparison.originals)
        members, below, shares = GROUPS[comparison.above], REFERENCES[comparison.below], []
        for original in originals:
            above = [cosines[original, member] for member in members if (original, member) in cosines]
            if above and (original, below) in cosines:
                shares.append(np.mean(np.array(above) > cosines[original, below]))
        assert comparison.share == pytest.approx(np.mean(shares), abs=1e-12)


def test_intervals_are_the_bootstraps() -> None:
    """With a baseline that no sample moves (all originals alike at 90° to it), scipy's percentile bootstrap applies."""
    rng = np.random.default_rng(5)
    angles = rng.uniform(0, 1.2, (60, 1))
    first, third = np.repeat(np.eye(3)[:2], 30, axis=0), np.eye(3)[2]
    changed = np.cos(angles) * first + np.sin(angles) * third
    scores = synthetic_task(60, ("Synonym",)).score_vectors(np.concatenate([first, changed])).subsets["Synonym"]
    expected = bootstrap((np.cos(angles[:, 0]),), np.mean, method="percentile", n_resamples=4000, rng=rng)
    assert scores["similarity"] == pytest.approx(np.cos(angles).mean())
    assert (scores["low"], scores["high"]) == pytest.approx(tuple(expected.confidence_interval), abs=0.015)
    assert scores["low"] < scores["similarity"] < scores["high"]


def test_shares_have_wilsons_interval() -> None:
    for cases in range(11):
        expected = binomtest(cases, 10).proportion_ci(method="wilson")
        assert wilson(cases / 10, 10) == pytest.approx((expected.low, expected.high))


def test_typos_stand_in_for_missing_synonyms_and_nothing_for_both() -> None:
    assert "above a typo" in verdict(synthetic_task(4, ("Typo", "Antonym")).run(vectors_of))[0]
    result = synthetic_task(4, ("Antonym", "Negation (Main)")).run(vectors_of)
    assert verdict(result)[0].startswith("Nothing to rank: no original has both")
    assert any("Synonym, Random MLM, Typo, Negation (Antonym)" in note for note in result.notes)


def test_repeated_originals_are_grouped() -> None:
    rows = ("a a1 Synonym", "b b1 Synonym", "a a2 Synonym", "a a3 Antonym")
    task = HerosTask("twice", tuple(MinimalPair(*row.split()) for row in rows))
    result = task.run(lambda texts: [[1, 0], [0, 1], [1, 0], [0, 3], [0, 1], [2, 1]])  # of a, b, a1, b1, a2, a3
    assert (result.metrics["baseline"]["all"], task.originals) == (0, ("a", "b"))
    assert result.metrics["similarity"]["Synonym"] == pytest.approx(2 / 3)
    antonym = next(c for c in comparisons(result) if c.above == "an antonym")
    assert (antonym.share, antonym.originals) == (1.0, 1)  # 0.89 above the synonyms' mean of 0.5


@pytest.mark.parametrize(
    ("value", "similarities", "note"), [(1e200, [], "same direction"), (0, [0.0] * 6, "28 texts have a zero vector")]
)
def test_constant_vectors(value: float, similarities: list[float], note: str) -> None:
    result = synthetic_task(4).run(lambda texts: np.full((len(texts), 3), value))
    assert [*result.metrics["similarity"].values()] == similarities
    assert any(note in line for line in result.notes)
    assert {c.share for c in comparisons(result)} == {0.0}  # ties


@pytest.mark.parametrize("originals", [1, 3, 4])
def test_intervals_need_two_originals_per_half(originals: int) -> None:
    result, has_intervals = synthetic_task(originals).run(vectors_of), originals == 4
    assert all(("low" in scores) == has_intervals for scores in result.subsets.values())
    assert any("No intervals" in note for note in result.notes) != has_intervals
    if originals == 1:
        assert result.metrics["similarity"] == result.metrics["baseline"] == {}


def test_refusals() -> None:
    with pytest.raises(DataError, match="no minimal pairs"):
        HerosTask("none", ())
    with pytest.raises(DataError, match=r"'Synonyms'.*Did you mean 'Synonym'"):
        HerosTask("bad", (MinimalPair("a", "b", "Synonyms"),))


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
def test_columns_in_any_order_with_two_called_negation(tmp_path: Path, seed: int) -> None:
    sample = load_heros(sample_minimal_pairs_path())
    order = random.Random(seed).sample(["Original", *SUBSETS], 7)  # noqa: S311
    changes = {(pair.original, pair.subset): pair.changed for pair in sample.pairs}
    rows = [[changes.get((original, name), original) for name in order] for original in sample.originals]
    table = [[name.split(" ")[0] for name in order], *rows]
    (tmp_path / "heros.tsv").write_text("\n".join(map("\t".join, table)), "utf-8")
    task = load_heros(tmp_path / "heros.tsv")
    assert set(task.pairs) == set(sample.pairs)
    antonyms = "Negation.1" if order.index("Negation (Main)") < order.index("Negation (Antonym)") else "Negation"
    assert task.source["columns"]["Negation (Antonym)"] == antonyms
    reason = f"{antonyms!r} changes them at the antonym's position in 20 of 20 conclusive rows"
    assert reason in task.source["columns_read"]


def test_ambiguous_negations_are_read_in_order(tmp_path: Path) -> None:
    rows = ["Original,Antonym,Negation,Negation", "It is not so.,It is else.,It is so.,It is so."]
    (tmp_path / "heros.csv").write_text("\n".join(rows))
    source = load_heros(tmp_path / "heros.csv").source
    assert source["columns"]["Negation (Main)"] == "Negation"
    assert "by position, the main verb's first: their sentences are inconclusive" in source["columns_read"]


def test_named_columns_and_empty_cells(tmp_path: Path) -> None:
    row = {"Original": "It is so.", "Negation (Main)": "It is not so.", "Random": "It is on."}
    empty = {"Typo": None, "Synonym": "  ", "Antonym": math.nan}  # as pandas has empty cells
    task = load_heros(write_rows(tmp_path / "h.jsonl", [{**row, **empty}]))
    assert [(pair.subset, pair.changed) for pair in task.pairs] == [
        ("Random MLM", "It is on."),
        ("Negation (Main)", "It is not so."),
    ]
    assert (task.source["columns"]["Random MLM"], task.source["columns_read"]) == ("Random", "by name")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Original,Negation\na,b\n", r"'Negation' may be either negation"),
        ("Synonym,Typo\na,b\n", "needs a column 'Original' and at least one of Synonym"),
        ("Original,Typo\na,\n", "no row has a changed sentence"),
        ("original,subset\na,Typo\n", "no column 'converted'"),
        (
            "original,converted,subset\na,b,Typo\na,b,Negation\n",
            r"line 3: unknown subset 'Negation' of HEROS. Did you mean 'Negation \(Main\)'",
        ),
    ],
)
def test_errors_name_the_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=rf"bad\.csv.*{message}"):
        load_heros(path)


def test_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `datasets` replaced, as there is no hub here."""
    rows = [{"Original": "It is so.", "Random": "It is on.", "Typo": "It is sso."}]
    requests: list[tuple] = []

    def load_dataset(repo: str, revision: str | None, split: str) -> SimpleNamespace:
        requests.append((repo, revision, split))
        return SimpleNamespace(to_list=lambda: rows)

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    for data in (None, "hub", "hub:me/mine"):
        task = load_heros(data)
        assert len(task) == 2
        assert "not pinned" in task.notes[0]
    assert requests == [("dcml0714/Heros", None, "train")] * 2 + [("me/mine", None, "train")]
    rows.clear()
    with pytest.raises(DataError, match="no rows"):
        load_heros()
