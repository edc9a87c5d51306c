"""The criterion `teacher`: ranks recipes without labels, by the cosines of pairs made from the texts themselves.

Simple signals, the judges, rank the recipes of a fixed reference space. The best tenth are the teachers: the mean of
their ranks of the pairs, plus half as much lexical similarity, is the target that every recipe is correlated with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu, rankdata

from essent._core.texts import distinct_texts
from essent.errors import DataError, InputError
from essent.tasks.comparison import RESAMPLES
from essent.tasks.data import SUFFIXES, located_rows, read_text, split_lines

TEACHER = "teacher"
TEACHER_SHARE = 0.1  # share of the reference recipes that are teachers; at least five of ten or more
LEXICAL_WEIGHT = 0.5  # of lexical similarity, relative to the teachers
MIN_NEIGHBOURS = 200  # pairs of neighbouring sentences before texts count as running text
MIN_SAMPLE = 8  # minimum number of texts or pairs to draw from: fewer pairs rank recipes by chance
MIN_WORDS = 4  # texts of fewer words are not split or shortened
SENTENCE_WORDS = (5, 60)  # sentences outside are headings, lists and faulty splits
POOL = 5000  # number of texts among which the nearest ones are searched
NEAREST = 128  # related texts are drawn from this many nearest ones
CONSTANT = 1e-6  # a smaller range of float32 cosines is rounding error, whose ranks would be noise

# A word with the space before it; scripts without spaces between words are split into letters.
_NO_SPACES = r"\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"\s*(?:[{_NO_SPACES}]|[^\s{_NO_SPACES}]+)")
_SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)]))\s+(?=[\"'“‘(]*[^\W\d_a-z])|(?<=[。！？])\s*(?=\S)")

Pairs = list[tuple[str, str]]


def is_label_free(criterion: str) -> bool:
    """Return whether a criterion reads no labels, as "teacher" and "teacher:corpus.txt" do."""
    return criterion.partition(":")[0] == TEACHER


@dataclass(frozen=True, eq=False)
class Teacher:
    """The criterion on the texts of one data set.

    Attributes:
        pairs: the pairs (P) whose cosines are read: those of each judge, then those that the teachers rank.
        judges: names of the judges.
        gold: values of each judge's pairs and of the last pairs: 1 and 0 for positive and negative pairs, other values
            for the assumed similarity.
        target: of the last pairs, from the teachers; None before `with_reference`.
    """

    pairs: tuple[tuple[str, str], ...]
    judges: tuple[str, ...]
    gold: tuple[np.ndarray, ...]
    target: np.ndarray | None = None

    @classmethod
    def of(cls, texts: Sequence[str], pairs: Sequence[tuple[str, str]], seed: int, running_text: str = "") -> Teacher:
        """Create the criterion and its pairs.

        Args:
            texts: unlabelled texts in their order; duplicates and empty texts are ignored.
            pairs: unlabelled pairs of these texts; may be empty.
            running_text: a file, one text per line or in the column "text". Without it, sentences within the texts are
                used if there are enough of them.

        Raises:
            InputError: too few texts.
            DataError: the file cannot be read.
        """
        running = bool(running_text) or len(neighbouring_sentences(texts)) >= MIN_NEIGHBOURS
        judges = ("neighbours", "length") if running else ("halves", "perturbed", "length")
        neighbours = read_running_text(running_text) if running_text else texts
        parts = [
            JUDGES[name][0](neighbours if name == "neighbours" else texts, np.random.default_rng(seed))
            for name in judges
        ]
        ranked_pairs = candidate_pairs(texts, pairs, seed)
        parts.append((ranked_pairs, _lexical_cosines(texts, ranked_pairs)))
        return cls(tuple(pair for own, _ in parts for pair in own), judges, tuple(gold for _, gold in parts))

    @property
    def note(self) -> str:
        """Which judges selected the teachers, for the report."""
        end = "." if "neighbours" in self.judges else "; with running text, the selection would be better."
        return f"The teachers were selected by {', '.join(self.judges)}{end}"

    @property
    def _ends(self) -> np.ndarray:
        return np.cumsum([len(gold) for gold in self.gold])

    def with_reference(self, cosines: np.ndarray) -> Teacher:
        """Return the criterion with its target, from the cosines (R,P) of the reference recipes."""
        rows = np.asarray(cosines, np.float64)
        *judge_cosines, own = np.split(rows[usable(rows)], self._ends[:-1], axis=1)
        standing = mean_rank(list(map(judge_scores, self.judges, judge_cosines, self.gold)))
        count = max(1, min(len(standing) // 2, max(5, int(TEACHER_SHARE * len(standing)))))
        teachers = np.argsort(-standing, kind="stable")[:count]  # NaN last
        lexical = unit_ranks(self.gold[-1])
        return replace(self, target=_unit(unit_ranks(own[teachers]).mean(axis=0)) + LEXICAL_WEIGHT * lexical)

    def scores(self, cosines: np.ndarray) -> np.ndarray:
        """Return scores (R,) from the cosines (R,P) of recipes: higher is better, NaN for constant cosines."""
        return self._agreement(np.asarray(cosines, np.float64)[:, self._ends[-2] :])

    def bootstrap(self, cosines: np.ndarray, seed: int, resamples: int = RESAMPLES) -> np.ndarray:
        """Return `scores` on bootstrap draws of the pairs: (R,resamples).

        Pairs with the same first text are drawn together: they were made from one text and are not independent.
        """
        first_texts = [first for first, _ in self.pairs]
        units = [distinct_texts(first_texts[start:end])[1] for start, end in pairwise([0, *self._ends])]
        counts, sizes = [int(part.max()) + 1 for part in units], np.bincount(units[-1])
        starts, order = np.cumsum(sizes) - sizes, np.argsort(units[-1], kind="stable")
        own = np.asarray(cosines, np.float64)[:, self._ends[-2] :]
        rng, draws = np.random.default_rng(seed), np.empty((len(own), resamples))
        for number in range(resamples):
            for count in counts:  # each part is drawn, though only the last one is scored: the target is constant
                sampled_groups = rng.integers(count, size=count)
            drawn_sizes = sizes[sampled_groups]
            ends = np.cumsum(drawn_sizes)
            within = np.arange(ends[-1]) - np.repeat(ends - drawn_sizes, drawn_sizes)
            draws[:, number] = self._agreement(own, order[np.repeat(starts[sampled_groups], drawn_sizes) + within])
        return draws

    def _agreement(self, own: np.ndarray, columns: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the correlation (R,) between the ranks of some of the last pairs and the target."""
        if self.target is None:
            raise InputError("The criterion 'teacher' needs reference recipes. Call `with_reference` first.")
        rows = own[:, columns]
        known = usable(rows)
        scores = np.full(len(rows), np.nan)
        if known.any():
            scores[known] = unit_ranks(rows[known]) @ _unit(self.target[columns])
        return scores


# -- the judges: pairs of the texts with gold values, and scores (R,) of the pairs' cosines (R,P) ----------------------


def _contrast(alike: Pairs, unlike: Pairs) -> tuple[Pairs, np.ndarray]:
    return [*alike, *unlike], np.repeat([1.0, 0.0], [len(alike), len(unlike)])


def _split(cosines: np.ndarray, gold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return cosines[:, gold == 1.0], cosines[:, gold != 1.0]


def _length_pairs(texts: Sequence[str], rng: np.random.Generator) -> tuple[Pairs, np.ndarray]:
    """Return random pairs, each text in one pair, and the similarity of their lengths."""
    chosen = _draw(_distinct(texts), 2000, rng, "texts")
    half = len(chosen) // 2
    pairs = list(zip(chosen[:half], chosen[half : 2 * half], strict=True))
    return pairs, -np.array([abs(len(words_of(a)) - len(words_of(b))) for a, b in pairs], np.float64)


def _length_scores(cosines: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return −|ρ| between the cosines and the differences of the texts' lengths in words: length is not meaning."""
    return np.asarray(-np.abs(unit_ranks(cosines) @ unit_ranks(gold)))


def _perturbed_pairs(texts: Sequence[str], rng: np.random.Generator) -> tuple[Pairs, np.ndarray]:
    """Return texts with their copy without three tenths of the words, and with copies of others (CLEAR, Wu 2020)."""
    base = _draw_texts(texts, 400, rng)
    copies = [_shortened(text, 0.3, rng) for text in base]
    unlike = [(base[i], copies[j]) for i, j in _others(len(base), 5)]
    return _contrast(list(zip(base, copies, strict=True)), unlike)


def _perturbed_scores(cosines: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return d′: the distance between the two kinds of cosines, in standard deviations."""
    alike, unlike = _split(cosines, gold)
    spread = np.sqrt((alike.var(axis=1) + unlike.var(axis=1)) / 2)
    return np.asarray((alike.mean(axis=1) - unlike.mean(axis=1)) / np.maximum(spread, 1e-12))


def _halves_pairs(texts: Sequence[str], rng: np.random.Generator) -> tuple[Pairs, np.ndarray]:
    """Return the halves of each text, and a half of the most similar text (after the inverse cloze task, Lee 2019)."""
    base = _draw_texts(texts, 400, rng)
    halves = [_halves(text, rng) for text in base]
    near = _nearest(_letters(texts), base, base, 1)[:, 0]
    return _contrast(halves, [(halves[i][0], halves[j][1]) for i, j in enumerate(near)])


def _halves_scores(cosines: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return how often a half is nearer to the other half than to a half of the text with most letters in common."""
    alike, unlike = _split(cosines, gold)
    return np.asarray(((alike > unlike) + 0.5 * (alike == unlike)).mean(axis=1))


def _neighbours_pairs(texts: Sequence[str], rng: np.random.Generator) -> tuple[Pairs, np.ndarray]:
    """Return neighbouring sentences, and distant sentences (after Quick-Thoughts, Logeswaran & Lee 2018).

    Sentences are neighbours within a text; if the texts are single sentences, each text and the next.
    """
    beside = neighbouring_sentences(texts)
    if len(beside) < max(MIN_SAMPLE, len(texts) // 10):  # most texts are single sentences
        beside = [(a, b) for a, b in pairwise(texts) if a.strip() and b.strip() and a != b]
    alike: Pairs = []
    used_texts: set[str] = set()
    for pair in _draw(beside, len(beside), rng, "pairs of neighbouring sentences"):
        if used_texts.isdisjoint(pair):
            alike.append(pair)
            used_texts.update(pair)
    alike, neighbours = alike[:450], set(beside)
    mixed = [(alike[i][0], alike[j][1]) for i, j in _others(len(alike), 8)]
    unlike = [(a, b) for a, b in mixed if a != b and (a, b) not in neighbours]
    if not unlike:
        raise InputError("All neighbouring sentences are equal. The criterion 'teacher' needs different texts.")
    return _contrast(alike, unlike)


def _neighbours_scores(cosines: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return the area under the ROC curve: how often neighbours are nearer, ties ½."""
    alike, unlike = _split(cosines, gold)
    statistic = mannwhitneyu(alike, unlike, axis=1, method="asymptotic").statistic
    return np.asarray(statistic / (alike.shape[1] * unlike.shape[1]))


JUDGES: dict[str, tuple[Callable[..., tuple[Pairs, np.ndarray]], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "neighbours": (_neighbours_pairs, _neighbours_scores),
    "halves": (_halves_pairs, _halves_scores),
    "perturbed": (_perturbed_pairs, _perturbed_scores),
    "length": (_length_pairs, _length_scores),
}


def judge_scores(name: str, cosines: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return scores (R,) by a judge; NaN for constant cosines."""
    scores, known = np.full(len(cosines), np.nan), usable(cosines)
    if known.any():
        scores[known] = JUDGES[name][1](cosines[known], gold)
    return scores


def candidate_pairs(texts: Sequence[str], pairs: Sequence[tuple[str, str]], seed: int, size: int = 1500) -> Pairs:
    """Return the user's own pairs, at most `size`; if they are too few, near, related and random pairs of the texts."""
    rng = np.random.default_rng(seed)
    own = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    if len(own) >= MIN_SAMPLE:
        return [own[i] for i in sorted(rng.permutation(len(own))[:size])]
    pool = _draw(_distinct(texts), POOL, rng, "distinct texts")
    base = pool[: max(size // 3, 1)]
    order = _nearest(_letters(texts), base, pool, min(NEAREST, len(pool) - 1))  # (N,count)
    rank = (order.shape[1] ** rng.uniform(0, 1, len(base))).astype(np.int64) - 1  # log-uniform
    near = [(text, pool[order[i, 0]]) for i, text in enumerate(base)]
    related = [(text, pool[order[i, rank[i]]]) for i, text in enumerate(base)]
    return list(dict.fromkeys([*near, *related, *((pool[i], pool[j]) for i, j in _others(len(base), 1))]))


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
    known = np.isfinite(cosines).all(axis=1)
    known[known] = np.ptp(cosines[known], axis=1) > CONSTANT if cosines.shape[1] else False
    return np.asarray(known)


def mean_rank(scores: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of the ranks by several scores (R,): 1 for the best by all; NaN if a score is undefined."""
    table = np.stack(scores)
    defined = np.isfinite(table).all(axis=0)
    ranks = np.full(table.shape[1], np.nan)
    if defined.any():
        ranks[defined] = rankdata(table[:, defined], axis=1).mean(axis=0) / defined.sum()
    return ranks


def words_of(text: str) -> list[str]:
    """Return the words, each with the space before it, so that joining any of them with "" gives a text."""
    return _WORD.findall(text)


def neighbouring_sentences(texts: Sequence[str]) -> Pairs:
    """Return pairs of consecutive sentences within a text that are neither very short nor very long."""
    pairs: dict[tuple[str, str], None] = {}
    for text in _distinct(texts):
        sentences = [sentence.strip() for sentence in _SENTENCE_END.split(text)]
        fits = [SENTENCE_WORDS[0] <= len(words_of(sentence)) <= SENTENCE_WORDS[1] for sentence in sentences]
        beside = zip(pairwise(sentences), pairwise(fits), strict=True)
        pairs.update(dict.fromkeys((a, b) for (a, b), both in beside if all(both) and a != b))
    return list(pairs)


def read_running_text(path: str | Path) -> list[str]:
    """Read running text: one text per line, or the column "text" of a .jsonl, .csv, .tsv or .parquet file."""
    if Path(path).suffix.lower() not in SUFFIXES:
        return split_lines(read_text(Path(path)))
    rows = located_rows(Path(path))
    for row in rows:
        if not isinstance(row.values.get("text"), str):
            raise DataError(f"{row.where}: running text needs a text in column 'text'; columns: {list(row.values)}.")
    return [row.values["text"] for row in rows]


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


def _draw_texts(texts: Sequence[str], size: int, rng: np.random.Generator) -> list[str]:
    """Return at most `size` distinct texts of at least MIN_WORDS words."""
    long = [text for text in _distinct(texts) if len(words_of(text)) >= MIN_WORDS]
    return _draw(long, size, rng, f"distinct texts of {MIN_WORDS} words or more")


def _others(count: int, per_index: int) -> list[tuple[int, int]]:
    """Return (index, other index): `per_index` others for every index, within small groups that fit in one portion."""
    index = np.arange(count)
    start = index // (per_index + 1) * (per_index + 1)
    if count % (per_index + 1) == 1 and count > 1:  # no group of one
        start[-1] = start[-2]
    size = np.bincount(start, minlength=count)[start]  # size of each index's group
    step = 1 + np.arange(per_index)[None, :] % np.maximum(size - 1, 1)[:, None]
    partner = index[:, None] + step
    partner = np.where(partner >= (start + size)[:, None], partner - size[:, None], partner)
    return [(int(i), int(j)) for i, row in enumerate(partner) for j in row if i != j]


def _halves(text: str, rng: np.random.Generator) -> tuple[str, str]:
    """Return two random halves of the words, each in the order of the text."""
    words = words_of(text)
    chosen = _drawn(len(words), len(words) // 2, rng)
    return _joined(words, chosen), _joined(words, ~chosen)


def _shortened(text: str, share: float, rng: np.random.Generator) -> str:
    """Return the text without a random share of its words, at least one."""
    words = words_of(text)
    return _joined(words, ~_drawn(len(words), min(max(1, round(share * len(words))), len(words) - 1), rng))


def _drawn(count: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return a mask (count,) of `size` random positions."""
    mask = np.zeros(count, dtype=bool)
    mask[rng.choice(count, size, replace=False)] = True
    return mask


def _joined(words: Sequence[str], mask: np.ndarray) -> str:
    return "".join(word for word, retained in zip(words, mask, strict=True) if retained).strip()


def _letters(texts: Sequence[str]) -> Any:
    """Fit tf-idf on the texts' letters, 3 to 5 in a row within words; it maps texts to sparse unit rows (N,V)."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True).fit(list(texts))


def _lexical_cosines(texts: Sequence[str], pairs: Pairs) -> np.ndarray:
    """Return tf-idf cosines (P,) of pairs, with idf from the texts; 0 for a text without known letters."""
    letters = _letters(texts)
    first, second = (letters.transform([pair[side] for pair in pairs]) for side in (0, 1))
    return np.asarray(first.multiply(second).sum(axis=1), dtype=np.float64).ravel()


def _nearest(letters: Any, texts: Sequence[str], pool: Sequence[str], count: int) -> np.ndarray:
    """Return indices (N,count) in the pool of the texts nearest to each text except itself, the nearest first."""
    similarity = (letters.transform(texts) @ letters.transform(pool).T).toarray()  # (N,pool)
    index = {text: number for number, text in enumerate(pool)}
    for row, text in enumerate(texts):
        if text in index:
            similarity[row, index[text]] = -1.0
    return np.argsort(-similarity, axis=1, kind="stable")[:, :count]
