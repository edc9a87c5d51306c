"""The criterion without labels: its judges against plain loops, its score, planted cases, what is drawn from texts."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from essent.errors import InputError
from essent.selection.label_free import JUDGES, Teacher, candidate_pairs, judge_scores, words_of


def topic_texts(count: int = 240) -> list[str]:
    """Texts of eight to fourteen words of one topic and some that all topics share; twenty in a row a topic."""
    rng = np.random.default_rng(0)

    def text(topic: int) -> str:
        own = [f"t{topic}w{word}" for word in rng.integers(20, size=rng.integers(6, 10))]
        shared = [f"the{word}" for word in rng.integers(4, size=rng.integers(2, 5))]
        return " ".join(rng.permutation([*own, *shared])).capitalize() + "."

    return [text(number // 20) for number in range(count)]


def teacher_and_cosines(recipes: int) -> tuple[Teacher, np.ndarray]:
    texts = topic_texts()
    teacher = Teacher.of(texts, list(itertools.pairwise(texts[:60])), 3)
    return teacher, np.random.default_rng(recipes).uniform(-1, 1, (recipes, len(teacher.pairs))).round(2)  # with ties


# -- formulas against plain loops -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(JUDGES))
def test_a_judge_scores_as_described_and_leaves_undefined_recipes_out(name: str) -> None:
    pairs, gold = JUDGES[name](topic_texts(), np.random.default_rng(0))
    cosines = np.random.default_rng(1).uniform(-1, 1, (7, len(pairs))).round(2)
    alike, unlike = cosines[:, gold == 1], cosines[:, gold == 0]
    lengths = [abs(len(a.split()) - len(b.split())) for a, b in pairs]
    if name == "perturbed":
        spread = np.sqrt((np.var(alike, axis=1) + np.var(unlike, axis=1)) / 2)
        expected = (np.mean(alike, axis=1) - np.mean(unlike, axis=1)) / spread
    elif name == "halves":  # the same half, against its own and against a near text's
        expected = np.mean((alike > unlike) + 0.5 * (alike == unlike), axis=1)
    else:
        expected = [-abs(stats.spearmanr(row, lengths).statistic) for row in cosines]
    undefined = np.where(np.arange(len(pairs)) == 1, np.nan, cosines[0])
    constant = 0.9 + 1e-7 * cosines[0]  # but for rounding
    scores = judge_scores(name, np.vstack([undefined, cosines, constant]), gold)
    np.testing.assert_allclose(scores, [np.nan, *expected, np.nan], atol=1e-12)


@pytest.mark.parametrize(("recipes", "teachers"), [(4, 2), (14, 5), (90, 9)])
def test_the_score_against_its_description(recipes: int, teachers: int) -> None:
    teacher, cosines = teacher_and_cosines(recipes)
    *judged, ranked = np.split(cosines, np.cumsum([len(gold) for gold in teacher.gold])[:-1], axis=1)
    ranks = sum(stats.rankdata(judge_scores(*judge)) for judge in zip(JUDGES, judged, teacher.gold[:3], strict=True))
    best = np.argsort(-ranks, kind="stable")[:teachers]
    own = stats.rankdata(ranked, axis=1)
    taught = stats.zscore(stats.zscore(own[best], axis=1).mean(axis=0))
    target = taught + 0.5 * stats.zscore(stats.rankdata(teacher.gold[3]))
    expected = [stats.pearsonr(row, target).statistic for row in own]
    np.testing.assert_allclose(teacher.with_reference(cosines).scores(cosines), expected, atol=1e-12)


def test_scores_need_a_reference_and_spread_and_are_drawn_by_first_text() -> None:
    teacher, cosines = teacher_and_cosines(12)
    with pytest.raises(InputError, match="with_reference"):
        teacher.scores(cosines)
    teacher = teacher.with_reference(cosines)
    scores, draws = teacher.scores(cosines), teacher.bootstrap(cosines, 0)
    constant = np.vstack([cosines[:2], cosines[:1] * 0, cosines[:1] * np.nan])
    np.testing.assert_allclose(teacher.scores(constant), [*scores[:2], np.nan, np.nan])
    assert (np.abs(draws.mean(axis=1) - scores) < draws.std(axis=1)).all()
    np.testing.assert_array_equal(draws[:, :20], teacher.bootstrap(cosines, 0, 20))
    count = len(teacher.gold[-1])  # with one first text there is one group, and every draw contains all pairs
    shared = (*teacher.pairs[:-count], *(("one text", second) for _, second in teacher.pairs[-count:]))
    np.testing.assert_allclose(replace(teacher, pairs=shared).bootstrap(cosines, 0, 5), np.tile(scores[:, None], 5))


# -- what is drawn ----------------------------------------------------------------------------------------------------


def test_too_few_texts_are_refused() -> None:
    for texts in (["one two three four five six"] * 50, ["", "  "] * 20):
        with pytest.raises(InputError, match=r"at least 8 .* needed, there are \d"):
            Teacher.of(texts, [], 0)


def test_odd_texts_are_ignored_and_the_seed_decides() -> None:
    odd = ["", " ", "one", "one", "\n", "…", *topic_texts(12), *topic_texts(12), "", "two words"]
    teacher = Teacher.of(odd, [("", "a"), ("b", " ")], 0)
    assert all(text.strip() for pair in teacher.pairs for text in pair)
    assert teacher.pairs == Teacher.of(odd, [], 0).pairs != Teacher.of(odd, [], 1).pairs


def test_own_pairs_are_preferred_to_near_and_random_ones() -> None:
    texts = topic_texts()
    own = list(zip(texts[:50], texts[60:110], strict=True))
    assert candidate_pairs(texts, own, 5) == own
    assert len(candidate_pairs(texts, own, 0, 30)) == 30
    pairs = candidate_pairs(texts, own[:3], 0, 90)
    assert set(pairs).isdisjoint(own[:3])
    shared = [len(set(a.split()) & set(b.split())) for a, b in pairs]
    assert np.mean(shared[:30]) > np.mean(shared[-30:]) + 1
    assert all(a != b for a, b in pairs)


def test_words_of_scripts_without_spaces_are_letters() -> None:
    assert words_of("今天天气很好。") == ["今", "天", "天", "气", "很", "好", "。"]
    assert "".join(words_of("GPU で  計算 する")) == "GPU で  計算 する"
