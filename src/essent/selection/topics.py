"""The criterion `topics`: ranks recipes for clusters without labels, by measures of the vectors and of the words.

Three measures ask whether the words agree with the vectors, since texts about one topic share words: clusters tell
which words occur (`words_of_clusters`), neighbours share words (`words_of_neighbours`), and the neighbours of one half
of a text contain the words of its other half (`words_of_other_half`). Three ask whether the vectors agree with
themselves: neighbours are in the same cluster (`modularity`), both halves of a text have similar vectors (`halves`),
and a half has the neighbours of the whole text (`neighbours_of_half`). A recipe's score is the mean of its ranks by the
six measures. One measure alone prefers degenerate vectors: whitened ones, or those of the function words.

The measures, and the lead that a recipe needs over a baseline, were chosen on measured cases
(docs/evidence/without-labels.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from essent._core.registry import did_you_mean
from essent.errors import InputError, UnknownNameError
from essent.selection.label_free import NO_SPACES, TEACHER, draw_texts, mean_rank, split_words, words_of
from essent.tasks.base import LabeledTask, unit_rows
from essent.tasks.clusters import cluster

TOPICS = "topics"
MEASURES = (
    "words_of_clusters",
    "modularity",
    "words_of_neighbours",
    "neighbours_of_half",
    "halves",
    "words_of_other_half",
)
MIN_LEAD = 0.1  # of the mean rank over a baseline, alone or averaged with the correlation on a few judged pairs
MIN_TEXTS = 50
MAX_TEXTS = 1000  # texts whose vectors are measured
NEIGHBOURS = 10
CLUSTER_COUNTS = (10, 25)  # the number of the user's groups is not known
MAX_SHARE = 0.1  # of the texts that contain a word; more frequent words are not about a topic
_WORD = re.compile(rf"[{NO_SPACES}]|[^\W_{NO_SPACES}]{{2,}}")


@dataclass(frozen=True, eq=False)
class Topics:
    """The criterion on the texts of one data set.

    Attributes:
        rows: positions (N,) of the measured texts in the texts of the data set.
        halves: two halves of some of these texts (H), each with random words of the text in their order.
        whole: positions (H,) among the measured texts of the texts that the halves were made from.
        occurs: sparse (N,V), 1 where a word occurs in a text.
        new: sparse (H,V), 1 where a word occurs in the second half of a text and not in the first.
        idf: of the words (V,).
        lexical: tf-idf cosines of the texts (N,N).
    """

    rows: np.ndarray
    halves: tuple[tuple[str, str], ...]
    whole: np.ndarray
    occurs: Any
    new: Any
    idf: np.ndarray
    lexical: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str], seed: int) -> Topics:
        """Create the criterion, on at most MAX_TEXTS distinct texts.

        Raises:
            InputError: fewer than MIN_TEXTS distinct texts, or texts that share no words.
        """
        from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

        first_rows = {text: row for row, text in reversed(list(enumerate(texts))) if text.strip()}
        distinct = sorted(first_rows.values())
        if len(distinct) < MIN_TEXTS:
            raise InputError(
                f"Cannot rank recipes for clusters without labels: at least {MIN_TEXTS} distinct texts are needed "
                f"(after `improve` has held out a tenth), there are {len(distinct)}. Give more, or labelled data."
            )
        rng = np.random.default_rng(seed)
        rows = np.array(distinct)[np.sort(rng.permutation(len(distinct))[:MAX_TEXTS])]
        measured = [texts[row] for row in rows]
        whole = draw_texts(measured, rng)
        halves = tuple(split_words(words, len(words) // 2, rng) for words in map(words_of, whole))
        counter = CountVectorizer(analyzer=_words, binary=True, min_df=2, max_df=MAX_SHARE, dtype=np.float32)
        try:
            occurs = counter.fit_transform(measured)  # (N,V)
            tf_idf = TfidfVectorizer(analyzer=_words, sublinear_tf=True, max_df=2 * MAX_SHARE, dtype=np.float32)
            rare_words = tf_idf.fit_transform(measured)
        except ValueError:  # no word is left
            raise InputError(
                "Cannot rank recipes for clusters without labels: no word occurs in at least two of the texts and in "
                f"at most {MAX_SHARE:.0%} of them. Give more texts, or labelled data."
            ) from None
        first, second = map(counter.transform, zip(*halves, strict=True))
        positions = {text: position for position, text in enumerate(measured)}
        return cls(
            rows,
            halves,
            np.array([positions[text] for text in whole]),
            occurs,
            second - second.multiply(first),
            np.log(len(measured) / np.asarray(occurs.sum(axis=0)).ravel()),
            (rare_words @ rare_words.T).toarray(),
        )

    def measure(self, vectors: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Compute the measures (6,) of one recipe, NaN for vectors that are all equal; higher is better.

        Args:
            vectors: (N,D), of the measured texts.
            first, second: (H,D), of the halves.
        """
        if not np.ptp(vectors, axis=0).any():
            return np.full(len(MEASURES), np.nan)
        units, first, second = (np.asarray(unit_rows(matrix), np.float32) for matrix in (vectors, first, second))
        neighbours = _nearest(units @ units.T, np.arange(len(units)))
        of_half = _nearest(first @ units.T, self.whole)
        clusters = [cluster(vectors, count, seeds=(0,), starts=1)[0] for count in CLUSTER_COUNTS]
        is_shared = (of_half[:, :, None] == neighbours[self.whole][:, None, :]).any(axis=2)
        halves = first @ second.T
        same, other = np.diag(halves), halves[~np.eye(len(halves), dtype=bool)]
        return np.array(
            [
                np.mean([self._information(labels) for labels in clusters]),
                _modularity(clusters[-1], neighbours),
                np.take_along_axis(self.lexical, neighbours, axis=1).mean(),
                is_shared.mean(),
                (same.mean() - other.mean()) / np.sqrt((same.var() + other.var()) / 2 + 1e-12),  # d′
                self._predicted_words(of_half),
            ],
            np.float64,
        )

    def scores(self, measures: np.ndarray) -> np.ndarray:
        """Return the mean rank (R,) of recipes with these measures (R,6): 1 for the best by all; NaN if undefined."""
        return mean_rank(list(measures.T))

    def _information(self, labels: np.ndarray) -> float:
        """Return the mutual information of cluster and occurrence, summed over words, by the entropy of the cluster."""
        from scipy.special import rel_entr

        share = np.bincount(labels) / len(labels)  # (C,)
        one_hot = np.eye(len(share), dtype=np.float32)[labels]
        with_word = (self.occurs.T @ one_hot).T / len(labels)  # (C,V)
        information = 0.0
        for joint in (with_word, share[:, None] - with_word):
            information += rel_entr(np.maximum(joint, 0), share[:, None] * joint.sum(axis=0)).sum()
        entropy = -(share[share > 0] * np.log(share[share > 0])).sum()
        return float(information / max(entropy, 1e-9))

    def _predicted_words(self, of_half: np.ndarray) -> float:
        """Return the share, weighted by idf, of new words of the second halves that the first's neighbours contain."""
        from scipy.sparse import csr_matrix

        total = np.asarray(self.new @ self.idf)  # (H,)
        if not total.any():
            return 0.0
        rows = np.repeat(np.arange(len(of_half)), NEIGHBOURS)
        ones = np.ones(of_half.size, np.float32)
        is_near = csr_matrix((ones, (rows, of_half.ravel())), shape=(len(of_half), len(self.rows)))
        predicted = np.asarray(self.new.multiply(is_near @ self.occurs > 0) @ self.idf)
        return float((predicted[total > 0] / total[total > 0]).mean())


def _words(text: str) -> list[str]:
    """Return the words in lower case; scripts without spaces between words are split into letters."""
    return _WORD.findall(text.casefold())


def _nearest(cosines: np.ndarray, excluded: np.ndarray) -> np.ndarray:
    """Return the NEIGHBOURS columns with the highest cosines in each row, except one excluded column per row (N,)."""
    cosines = cosines.copy()
    cosines[np.arange(len(cosines)), excluded] = -np.inf
    return np.argpartition(-cosines, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]


def _modularity(labels: np.ndarray, neighbours: np.ndarray) -> float:
    """Return the share of neighbours in the same cluster, minus the share of random texts in it."""
    share = np.bincount(labels) / len(labels)
    return float((labels[neighbours] == labels[:, None]).mean() - (share**2).sum())


# -- what vectors are for: a choice without labels is made for one use, since no criterion was shown to serve all ------

SIMILARITY, CLUSTERS, CLASSES, RETRIEVAL = USES = ("similarity", "clusters", "classes", "retrieval")
USE_OF = {  # by kind of labels
    "pairs": SIMILARITY,
    "duplicates": SIMILARITY,
    "triplets": SIMILARITY,
    "clustering": CLUSTERS,
    "classification": CLASSES,
    "retrieval": RETRIEVAL,
}
CRITERIA = {SIMILARITY: TEACHER, CLUSTERS: TOPICS, CLASSES: TOPICS, RETRIEVAL: TEACHER}  # without labels


def is_label_free(criterion: str) -> bool:
    """Return whether a criterion reads no labels."""
    return criterion in (TEACHER, TOPICS)


def check_use(use: str | None) -> str:
    """Return a use by name; similarity by default.

    Raises:
        UnknownNameError: none of `USES`.
    """
    if use not in (None, *USES):
        raise UnknownNameError(f"Unknown use {use!r}. {did_you_mean(str(use), list(USES))}")
    return use or SIMILARITY


def check_judged(use: str) -> None:
    """Raise an error for a use that judged pairs of texts do not measure.

    Raises:
        InputError: retrieval.
    """
    if use == RETRIEVAL:
        raise InputError("Judged pairs compare similar texts. Retrieval needs queries with their answers (--data).")


def uses_of(tasks: Sequence[LabeledTask]) -> str:
    """Return the uses that labels measure, joined by "and"."""
    return " and ".join(dict.fromkeys(USE_OF.get(task.kind, task.kind) for task in tasks))


def described(use: str) -> str:
    """Return a use as part of a sentence."""
    return "the similarity of sentences" if use == SIMILARITY else use


def misfit(tasks: Sequence[LabeledTask], use: str | None) -> list[str]:
    """Return the note that the labels do not measure the use, if that is so; the labels decide."""
    others = [task for task in tasks if use not in (None, USE_OF.get(task.kind))]
    if not others:
        return []
    names = " and ".join(f"{task.name} ({task.kind})" for task in others)
    return [f"The labels of {names} measure {uses_of(others)}, not {use}. The labels decide: give labels for {use}."]
