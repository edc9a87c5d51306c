"""The criterion `teacher`: ranks recipes without labels, by the cosines of pairs made from the texts themselves.

Simple signals, the judges, rank the recipes of a fixed reference space. The best tenth are the teachers: the mean of
their ranks of the pairs, plus half as much lexical similarity, is the target that every recipe is correlated with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import Any

import numpy as np
from scipy.stats import rankdata

from essent._core.texts import distinct_texts
from essent.errors import InputError
from essent.tasks.comparison import RESAMPLES

TEACHER = "teacher"
TEACHER_SHARE = 0.1  # share of the reference recipes that are teachers; at least five, but at most half of them
LEXICAL_WEIGHT = 0.5  # of lexical similarity, relative to the teachers
MIN_SAMPLE = 8  # minimum number of texts or pairs to draw from: fewer pairs rank recipes by chance
MIN_WORDS = 4  # texts of fewer words are not split or shortened
POOL = 5000  # number of texts among which the nearest ones are searched
NEAREST = 128  # related texts are drawn from this many nearest ones
CONSTANT = 1e-6  # a smaller range of float32 cosines is rounding error, whose ranks would be noise

# A word with the space before it; scripts without spaces between words are split into letters.
NO_SPACES = r"\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"\s*(?:[{NO_SPACES}]|[^\s{NO_SPACES}]+)")

Pairs = list[tuple[str, str]]


@dataclass(frozen=True, eq=False)
class Teacher:
    """The criterion on the texts of one data set.

    Attributes:
        pairs: the pairs (P) whose cosines are read: those of each judge, then those that the teachers rank.
        gold: values of each judge's pairs and of the last pairs: 1 and 0 for positive and negative pairs, other values
            for the assumed similarity.
        target: of the last pairs, from the teachers; None before `with_reference`.
    """

    pairs: tuple[tuple[str, str], ...]
    gold: tuple[np.ndarray, ...]
    target: np.ndarray | None = None

    @classmethod
    def of(cls, texts: Sequence[str], pairs: Sequence[tuple[str, str]], seed: int) -> Teacher:
        """Create the criterion and its pairs.

        Args:
            texts: unlabelled texts; duplicates and empty texts are ignored.
            pairs: unlabelled pairs of these texts; may be empty.

        Raises:
            InputError: too few texts.
        """
        pairs_and_gold = [make_pairs(texts, np.random.default_rng(seed)) for make_pairs in JUDGES.values()]
        ranked_pairs = candidate_pairs(texts, pairs, seed)
        pairs_and_gold.append((ranked_pairs, _lexical_cosines(texts, ranked_pairs)))
        all_pairs, gold = zip(*pairs_and_gold, strict=True)
        return cls(tuple(chain.from_iterable(all_pairs)), gold)

    def _split(self, values: np.ndarray) -> list[np.ndarray]:
        """Split values of the pairs, along the last axis, into those of each judge and those of the last pairs."""
        return np.split(values, np.cumsum(list(map(len, self.gold)))[:-1], axis=-1)

    def with_reference(self, cosines: np.ndarray) -> Teacher:
        """Return the criterion with its target, from the cosines (R,P) of the reference recipes."""
        rows = np.asarray(cosines, np.float64)
        *judge_cosines, ranked_cosines = self._split(rows[usable(rows)])
        ranks = mean_rank(list(map(judge_scores, JUDGES, judge_cosines, self.gold)))
        count = max(1, min(len(ranks) // 2, max(5, int(TEACHER_SHARE * len(ranks)))))
        teachers = np.argsort(-ranks, kind="stable")[:count]  # NaN last
        taught = _unit(unit_ranks(ranked_cosines[teachers]).mean(axis=0))
        return replace(self, target=taught + LEXICAL_WEIGHT * unit_ranks(self.gold[-1]))

    def scores(self, cosines: np.ndarray) -> np.ndarray:
        """Return scores (R,) from the cosines (R,P) of recipes: higher is better, NaN for constant cosines."""
        return self._agreement(self._split(np.asarray(cosines, np.float64))[-1])

    def bootstrap(self, cosines: np.ndarray, seed: int, resamples: int = RESAMPLES) -> np.ndarray:
        """Return `scores` on bootstrap draws of the pairs: (R,resamples).

        Pairs with the same first text are drawn together: they were made from one text and are not independent.
        """
        first_texts = [first for first, _ in self.pairs[-len(self.gold[-1]) :]]
        groups = distinct_texts(first_texts)[1]  # the group of each of the last pairs
        members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
        ranked_cosines = self._split(np.asarray(cosines, np.float64))[-1]
        rng, draws = np.random.default_rng(seed), np.empty((len(ranked_cosines), resamples))
        for number in range(resamples):
            columns = np.concatenate([members[group] for group in rng.integers(len(members), size=len(members))])
            draws[:, number] = self._agreement(ranked_cosines, columns)
        return draws

    def _agreement(self, cosines: np.ndarray, columns: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the correlation (R,) between the ranks of some of the last pairs and the target."""
        if self.target is None:
            raise InputError("The criterion 'teacher' needs reference recipes. Call `with_reference` first.")
        rows, target = cosines[:, columns], _unit(self.target[columns])
        return _scored_rows(rows, lambda defined: unit_ranks(defined) @ target)


# -- the judges: pairs of the texts with gold values, and scores (R,) of the pairs' cosines (R,P) ----------------------


def _contrast(positive: Pairs, negative: Pairs) -> tuple[Pairs, np.ndarray]:
    return [*positive, *negative], np.repeat([1.0, 0.0], [len(positive), len(negative)])


def _length_pairs(texts: Sequence[str], rng: np.random.Generator) -> tuple[Pairs, np.ndarray]:
    """Return random pairs, each text in one pair, and the similarity of their lengths."""
    chosen = _draw(_distinct(texts), 2000, rng, "texts")
    pairs = list(zip(chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :], strict=False))
    return pairs, -np.array([abs(len(words_of(a)) - len(words_of(b))) for a, b in pairs], np.float64)


def _perturbed_pairs(texts: Sequence[str], rng: np.random.Generator) -> tuple[Pairs, np.ndarray]:
    """Return each text with its copy that lacks three tenths of the words, and with another's copy (CLEAR, Wu 2020)."""
    base = draw_texts(texts, rng)
    copies = [split_words(words, round(0.3 * len(words)), rng)[1] for words in map(words_of, base)]
    negative = [(base[i], copies[j]) for i, j in _index_pairs(len(base), 5)]
    return _contrast(list(zip(base, copies, strict=True)), negative)


def _halves_pairs(texts: Sequence[str], rng: np.random.Generator) -> tuple[Pairs, np.ndarray]:
    """Return the halves of each text, and a half of the most similar text (after the inverse cloze task, Lee 2019)."""
    base = draw_texts(texts, rng)
    halves = [split_words(words, len(words) // 2, rng) for words in map(words_of, base)]
    nearest = _nearest(texts, base, base, 1)[:, 0]
    return _contrast(halves, [(halves[i][0], halves[j][1]) for i, j in enumerate(nearest)])


JUDGES: dict[str, Callable[[Sequence[str], np.random.Generator], tuple[Pairs, np.ndarray]]] = {
    "halves": _halves_pairs,
    "perturbed": _perturbed_pairs,
    "length": _length_pairs,
}


def judge_scores(name: str, cosines: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return scores (R,) by a judge; NaN for constant cosines.

    halves: how often a half is more similar to its other half than to
    a half of the most similar text, ties ½. perturbed: d′, the distance of the two kinds of cosines in standard
    deviations. length: −|ρ| with the difference of the lengths in words, since length is not meaning.
    """

    def score(rows: np.ndarray) -> np.ndarray:
        if name == "length":
            return np.asarray(-np.abs(unit_ranks(rows) @ unit_ranks(gold)))
        positive, negative = rows[:, gold == 1.0], rows[:, gold != 1.0]
        if name == "halves":
            return np.asarray(((positive > negative) + 0.5 * (positive == negative)).mean(axis=1))
        spread = np.sqrt((positive.var(axis=1) + negative.var(axis=1)) / 2)
        return np.asarray((positive.mean(axis=1) - negative.mean(axis=1)) / np.maximum(spread, 1e-12))

    return _scored_rows(cosines, score)


def _scored_rows(cosines: np.ndarray, score: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the scores (R,) of the usable rows, NaN for the others."""
    scores, defined = np.full(len(cosines), np.nan), usable(cosines)
    if defined.any():
        scores[defined] = score(cosines[defined])
    return scores


def candidate_pairs(texts: Sequence[str], pairs: Sequence[tuple[str, str]], seed: int, size: int = 1500) -> Pairs:
    """Return at most `size` of the user's own pairs; if there are too few, pair the texts instead.

    A third of these pairs a text with its nearest text, a third with one of its NEAREST, and a third are random.
    """
    rng = np.random.default_rng(seed)
    nonblank = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    if len(nonblank) >= MIN_SAMPLE:
        return [nonblank[i] for i in sorted(rng.permutation(len(nonblank))[:size])]
    pool = _draw(_distinct(texts), POOL, rng, "distinct texts")
    base = pool[: max(size // 3, 1)]
    order = _nearest(texts, base, pool, min(NEAREST, len(pool) - 1))  # (N,count)
    rank = (order.shape[1] ** rng.uniform(0, 1, len(base))).astype(np.int64) - 1  # log-uniform
    near = [*enumerate(order[:, 0]), *enumerate(order[range(len(base)), rank])]
    return list(dict.fromkeys((pool[i], pool[j]) for i, j in [*near, *_index_pairs(len(base), 1)]))


def unit_ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks along the last axis, centred and of length one: products are Spearman's ρ; constant rows are 0."""
    return _unit(rankdata(values, axis=-1))


def _unit(values: np.ndarray) -> np.ndarray:
    """Centre rows and scale them to length 1; a constant row becomes zeros."""
    centred = values - values.mean(axis=-1, keepdims=True)
    length = np.linalg.norm(centred, axis=-1, keepdims=True)
    return np.asarray(centred / np.where(length > 0, length, 1.0))


def usable(cosines: np.ndarray) -> np.ndarray:
    """Return which rows of cosines (R,P) are finite and not constant: (R,)."""
    if not cosines.shape[1]:
        return np.zeros(len(cosines), bool)
    with np.errstate(invalid="ignore"):  # an infinite range is not a number
        return np.asarray(np.isfinite(cosines).all(axis=1) & (np.ptp(cosines, axis=1) > CONSTANT))


def mean_rank(scores: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of the ranks by several scores (R,): 1 for the best by all; NaN if a score is undefined."""
    table = np.array(scores, np.float64)
    table[:, ~np.isfinite(table).all(axis=0)] = np.nan
    ranks = rankdata(table, axis=1, nan_policy="omit").mean(axis=0)
    return np.asarray(ranks / max(np.isfinite(ranks).sum(), 1))


def words_of(text: str) -> list[str]:
    """Return the words, each with the space before it, so that joining any of them with "" gives a text."""
    return _WORD.findall(text)


def _distinct(texts: Sequence[str]) -> list[str]:
    """Return the non-blank texts without duplicates, in order."""
    return [text for text in dict.fromkeys(texts) if text.strip()]


def _draw(population: Sequence[Any], size: int, rng: np.random.Generator, name: str) -> list[Any]:
    """Return at most `size` of the population in random order.

    Raises:
        InputError: the population is smaller than MIN_SAMPLE.
    """
    if len(population) < MIN_SAMPLE:
        raise InputError(
            f"Cannot rank recipes without labels: at least {MIN_SAMPLE} {name} are needed, there are "
            f"{len(population)}. Give more texts, or labelled pairs."
        )
    return [population[i] for i in rng.permutation(len(population))[:size]]


def draw_texts(texts: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Return at most 400 distinct texts of at least MIN_WORDS words."""
    long = [text for text in _distinct(texts) if len(words_of(text)) >= MIN_WORDS]
    return _draw(long, 400, rng, f"distinct texts of {MIN_WORDS} words or more")


def _index_pairs(count: int, per_index: int) -> list[tuple[int, int]]:
    """Return (index, other index): `per_index` others for every index, within small groups that fit in one portion."""
    index = np.arange(count)
    starts = index - index % (per_index + 1)  # of the groups
    if count % (per_index + 1) == 1 and count > 1:  # no group of one
        starts[-1] = starts[-2]
    sizes = np.bincount(starts)[starts]
    pairs = [
        (i, start + (i - start + 1 + k % max(size - 1, 1)) % size)
        for i, start, size in zip(index.tolist(), starts.tolist(), sizes.tolist(), strict=True)
        for k in range(per_index)
    ]
    return [(i, j) for i, j in pairs if i != j]


def split_words(words: Sequence[str], size: int, rng: np.random.Generator) -> tuple[str, str]:
    """Return `size` random words, and the other words, each in the order of the text."""
    is_drawn = np.isin(range(len(words)), rng.choice(len(words), size, replace=False))
    return "".join(compress(words, is_drawn)).strip(), "".join(compress(words, ~is_drawn)).strip()


def _lexical_tf_idf(texts: Sequence[str]) -> Any:
    """Fit tf-idf on character n-grams of 3 to 5 letters within words; it maps texts to sparse unit rows (N,V)."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True).fit(list(texts))


def _lexical_cosines(texts: Sequence[str], pairs: Pairs) -> np.ndarray:
    """Return tf-idf cosines (P,) of pairs, with idf from the texts; 0 for a text without known n-grams."""
    first, second = map(_lexical_tf_idf(texts).transform, zip(*pairs, strict=True))
    return np.asarray(first.multiply(second).sum(axis=1), dtype=np.float64).ravel()


def _nearest(texts: Sequence[str], queries: Sequence[str], pool: Sequence[str], count: int) -> np.ndarray:
    """Return indices (N,count) in the pool of the texts nearest to each query except itself, the nearest first.

    Args:
        texts: the texts from which idf is learned.
    """
    tf_idf = _lexical_tf_idf(texts)
    similarity = (tf_idf.transform(queries) @ tf_idf.transform(pool).T).toarray()  # (N,pool)
    index = {text: number for number, text in enumerate(pool)}
    for row, text in enumerate(queries):
        if text in index:
            similarity[row, index[text]] = -1.0
    return np.argsort(-similarity, axis=1, kind="stable")[:, :count]
