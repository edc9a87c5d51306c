"""The criterion for clusters and classes: its measures against their formulas, planted topics, searches by use."""

import math
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import entropy
from sentence_transformers import SentenceTransformer
from sklearn.cluster import KMeans
from sklearn.metrics import mutual_info_score
from sklearn.metrics.pairwise import cosine_similarity
from test_label_free import topic_texts

from essent.errors import InputError
from essent.selection import topics as module
from essent.selection.run import search
from essent.selection.space import Space
from essent.selection.topics import MEASURES, NEIGHBOURS, TOPICS, Topics

TEXTS = topic_texts(80)
TWO = Space(named=("mean", "cls"))


@pytest.fixture(scope="module")
def criterion() -> Topics:
    return Topics.of(TEXTS, seed=0)


def vectors_of(criterion: Topics, noise: float = 1.0) -> list[np.ndarray]:
    """Vectors of the texts, first and second halves: the mean of a random vector per word, and noise."""
    rng = np.random.default_rng(0)
    table = {word: rng.normal(size=8) for text in TEXTS for word in words(text)}
    return [
        np.array([np.mean([table[word] for word in words(text)], axis=0) + noise * rng.normal(size=8) for text in side])
        for side in ([TEXTS[row] for row in criterion.rows], *zip(*criterion.halves, strict=True))
    ]


def words(text: str) -> list[str]:
    return text.lower().replace(".", "").split()


def nearest(vectors: np.ndarray, matrix: np.ndarray, excluded: Iterable[int]) -> list[set[int]]:
    order = np.argsort(-cosine_similarity(vectors, matrix), axis=1)
    return [set(rows[rows != row][:NEIGHBOURS].tolist()) for rows, row in zip(order, excluded, strict=True)]


def test_measures_are_their_formulas(criterion: Topics) -> None:
    vectors, first, second = vectors_of(criterion)
    measured = dict(zip(MEASURES, criterion.measure(vectors, first, second), strict=True))
    texts, count = [set(words(TEXTS[row])) for row in criterion.rows], len(criterion.rows)
    frequency = Counter(chain.from_iterable(texts))
    vocabulary = {word for word, number in frequency.items() if 2 <= number <= 0.1 * count}
    near = nearest(vectors, vectors, range(count))
    near_half = nearest(first, vectors, criterion.whole)

    information = []
    for clusters in module.CLUSTER_COUNTS:
        centred = vectors - vectors.mean(axis=0)
        matrix = (centred / np.abs(centred).max()).astype(np.float32)
        labels = KMeans(clusters, n_init=1, random_state=0).fit(matrix).labels_
        share = np.bincount(labels) / count
        shared = [mutual_info_score([word in text for text in texts], labels) for word in vocabulary]
        information.append(sum(shared) / entropy(share))
    same = np.mean([labels[row] == labels[neighbour] for row in range(count) for neighbour in near[row]])

    predicted = []
    for (half, rest), neighbours in zip(criterion.halves, near_half, strict=True):
        new = (set(words(rest)) - set(words(half))) & vocabulary
        weights = {word: math.log(count / frequency[word]) for word in new}
        hits = [weight for word, weight in weights.items() if any(word in texts[row] for row in neighbours)]
        if weights:
            predicted.append(sum(hits) / sum(weights.values()))

    cosines = cosine_similarity(first, second)
    own, unrelated = np.diag(cosines), cosines[~np.eye(len(cosines), dtype=bool)]
    distance = (own.mean() - unrelated.mean()) / math.sqrt((own.var() + unrelated.var()) / 2)
    assert measured.pop("halves") == pytest.approx(distance, rel=1e-4)
    assert measured == pytest.approx(
        {
            "words_of_clusters": np.mean(information),
            "modularity": same - sum(share**2),
            "neighbours_of_half": np.mean(
                [len(half & near[row]) / NEIGHBOURS for half, row in zip(near_half, criterion.whole, strict=True)]
            ),
            "words_of_other_half": np.mean(predicted),
            "words_of_neighbours": np.mean([criterion.lexical[row, list(rows)] for row, rows in enumerate(near)]),
        },
        rel=1e-5,
    )
    assert criterion.lexical.diagonal() == pytest.approx(np.ones(count), abs=1e-5)


def test_less_noise_has_a_higher_score_and_equal_vectors_have_none(criterion: Topics) -> None:
    measures = [criterion.measure(*vectors_of(criterion, noise)) for noise in (0.0, 2.0, 30.0)]
    halves = np.ones((len(criterion.halves), 3))
    undefined = criterion.measure(np.ones((len(TEXTS), 3)), halves, halves)
    assert np.isnan(undefined).all()
    scores = criterion.scores(np.stack([*measures, undefined]))
    assert np.argsort(-scores[:-1]).tolist() == [0, 1, 2]
    assert np.isnan(scores[-1])


def test_texts_are_sampled_with_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TEXTS", 60)
    texts = ["", TEXTS[0], *TEXTS, TEXTS[3]]
    first, same, reseeded = (Topics.of(texts, seed) for seed in (0, 0, 1))
    assert len(first.rows) == len({texts[row] for row in first.rows}) == 60
    assert first.rows.tolist() == same.rows.tolist() != reseeded.rows.tolist()
    assert first.halves == same.halves
    for (half, rest), row in zip(first.halves, first.whole, strict=True):
        assert sorted([*half.split(), *rest.split()]) == sorted(texts[first.rows[row]].split())


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (TEXTS[:30], "at least 50 distinct texts are needed .*, there are 30"),
        ([f"{n}a {n}b {n}c {n}d" for n in range(60)], "no word occurs in at least two of the texts"),
    ],
)
def test_texts_that_cannot_be_measured(texts: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Topics.of(texts, seed=0)


def test_scripts_without_spaces_are_split() -> None:
    assert module._words("東京 Tower is 3 high") == ["東", "京", "tower", "is", "high"]


# -- searches ----------------------------------------------------------------------------------------------------------


def test_a_baseline_is_retained_unless_the_leader_leads(
    shell: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = Space(named=("cls", "first-last | centre | normalize"))
    run = partial(search, shell, TEXTS, space, use="clusters", baselines=("mean",), work=tmp_path / "work")
    monkeypatch.setattr("essent.selection.verdict.MIN_LEAD", 2.0)
    board = run()
    scores = {str(trial.recipe): trial.scores[TOPICS] for trial in board.trials}
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    assert 0 < min(scores.values()) < max(scores.values()) < 1  # ranked among reference recipes too
    leader = str(board.leader)
    assert "Measured for clusters without labels" in board.verdict
    assert "can harm groups that are not topics" in board.notes[0]
    assert leader != "mean"
    monkeypatch.setattr("essent.selection.verdict.MIN_LEAD", -2.0)
    assert (str(board.best), str(run().best)) == ("mean", leader)


@pytest.mark.slow
def test_labels_and_topics_side_by_side(shell: SentenceTransformer) -> None:
    rows = [{"text": text, "label": str(number // 20)} for number, text in enumerate(TEXTS)]
    board = search(shell, rows, TWO, use="similarity", criterion=["accuracy", TOPICS], baselines=("mean",))
    assert any("measure classes, not similarity. The labels decide" in note for note in board.notes)
    unlabelled = search(shell, TEXTS, TWO, criterion=TOPICS, baselines=("mean",))
    assert unlabelled.verdict.startswith("Measured for groups of texts without labels, by topics, ")
    for trial in unlabelled.trials:
        assert board.find(trial.recipe).scores[TOPICS] == pytest.approx(trial.scores[TOPICS])


def test_retrieval_is_ranked_by_teacher(shell: SentenceTransformer) -> None:
    board = search(shell, TEXTS, TWO, use="retrieval", baselines=("mean",))
    assert board.criterion == "teacher"
    assert board.verdict.startswith("Measured for retrieval by cosine, without labels, by teacher")
    assert "on queries made from pairs" in board.verdict
    assert "not on real ones" in board.notes[-1]
