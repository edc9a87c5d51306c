"""Minimal pairs from any sentences: filters, one word a sentence, six changes of it (Chiang et al. 2023, section 2)."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from essent._core.types import TextsLike
from essent.errors import DataError, InputError
from essent.lab.minimal_pairs.choose import Choice, Chooser, negatable
from essent.lab.minimal_pairs.confidence import RELATIONS, Confidence, both
from essent.lab.minimal_pairs.language import Parser, UnsuitableError, attempt
from essent.lab.minimal_pairs.masked import MaskedModel
from essent.lab.minimal_pairs.rows import PairRow, Quality
from essent.lab.minimal_pairs.sentences import FILTERS, Filters, Suitable
from essent.lab.minimal_pairs.typos import make_typo
from essent.lab.minimal_pairs.wordnet import WordNet

CHUNK = 128  # sentences whose words are masked together
LATER = ("repeated", "replaceable word", "negation of the word", "synonym and antonym", "in context", "typo", "wanted")


@dataclass(frozen=True)
class Resources:
    """What the pairs are built from; Synonym, Antonym and Random MLM need both WordNet and the model.

    Attributes:
        parser: of the language's sentences.
        wordnet: offers synonyms and antonyms.
        model: judges them in context, and fills in random words.
        misspellings: word to misspellings; without them typos are slips of a finger only.
        confidence: coefficients by which synonyms and antonyms are sorted, by default those of the package.
    """

    parser: Parser
    wordnet: WordNet | None = None
    model: MaskedModel | None = None
    misspellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    confidence: Confidence | None = None

    def filters(self) -> Filters:
        """What sentences are asked for, with the words that these resources know."""
        wrong = frozenset(word for words in self.misspellings.values() for word in words)
        return Filters(self.parser, wrong, self.wordnet or frozenset())

    def chooser(self) -> Chooser | None:
        """What chooses a word of a sentence and what may stand for it; None where something for it is missing."""
        if self.wordnet is None or self.model is None:
            return None
        return Chooser(self.parser.language, self.wordnet, self.model, self.confidence or Confidence.load())


class Built(NamedTuple):
    """The rows of an original, and how probable it is that its synonym and its antonym are good."""

    chances: Sequence[float]
    rows: list[PairRow]


def build(
    texts: TextsLike,
    resources: Resources,
    n: int = 1000,
    seed: int = 0,
    look_at: int = 20,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[list[PairRow], Quality]:
    """Minimal pairs of `n` sentences, each with all subsets that the resources allow.

    Args:
        texts: of one or more sentences; duplicates count once.
        look_at: sentences for each original that is wanted, as many more as it takes to find `n`. Of those found the
            surest are kept, by what the model thinks of their synonym and antonym; without a model the first ones.
        progress: called with the number of sentences looked at, and of those there are to look at.

    Returns:
        Rows, the subsets of one original together, the surest originals first, without a model in a random order that
        `seed` determines; and what became of the other sentences. Fewer than `n` originals when there are no more.

    Raises:
        InputError: n or look_at below 1.
        DataError: no texts.
        MissingDependencyError: LemmInflect is not installed.
    """
    for name, value in (("n", n), ("look_at", look_at)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, not {value}.")
    sentences = list(dict.fromkeys(resources.parser.split(texts)))
    if not sentences:
        raise DataError("There are no sentences to build minimal pairs from.")
    order = [sentences[number] for number in np.random.default_rng(seed).permutation(len(sentences))]
    least = min(n * look_at, len(order)) if resources.chooser() is not None else 1
    found: list[Built | UnsuitableError] = []
    taken: set[str] = set()
    while len(found) < least or (len(found) < len(order) and sum(isinstance(one, Built) for one in found) < n):
        found += _outcomes(order[len(found) : len(found) + CHUNK], resources, taken, seed)
        if progress is not None:
            progress(len(found), max(least, len(found)))
    kept = [one for one in found if isinstance(one, Built)]
    kept.sort(key=lambda one: both(*one.chances) if one.chances else 0.0, reverse=True)
    chosen = kept[:n]
    rows = [row for one in chosen for row in one.rows]
    chances = [one.chances for one in chosen if one.chances]
    good = dict(zip(RELATIONS, np.mean(chances, axis=0).tolist(), strict=True)) if chances else {}
    refused = Counter((one.filter, one.reason) for one in found if isinstance(one, UnsuitableError))
    refused["wanted", "others are surer, or came first"] = len(kept) - len(chosen)
    ranked = sorted((-count, reason, name) for (name, reason), count in refused.items() if count)
    fallen = {name: {why: -less for less, why, of in ranked if of == name} for name in (*FILTERS, *LATER)}
    return rows, Quality(len(sentences), len(found), len(chosen), fallen, good)


def _outcomes(
    sentences: Sequence[str], resources: Resources, taken: set[str], seed: int
) -> Iterator[Built | UnsuitableError]:
    """Every sentence's rows, or why it has none; a text that is `taken` already is not taken again."""
    suitable: list[tuple[Suitable, list[Choice]]] = []
    for one in resources.filters().check(sentences):
        if isinstance(one, UnsuitableError):
            yield one
        elif one.text in taken:
            yield UnsuitableError("repeated", "another sentence but for marks, capitals or a name")
        elif isinstance(found := attempt(negatable, one, resources.parser.language), UnsuitableError):
            yield found
        else:
            taken.add(one.text)
            suitable.append((one, found))
    words, chooser = [found for _, found in suitable], resources.chooser()
    chosen = chooser(words) if chooser is not None else [some[0] for some in words]
    for (one, _), choice in zip(suitable, chosen, strict=True):
        yield attempt(_built, one, choice, resources, seed) if isinstance(choice, Choice) else choice


def _built(one: Suitable, choice: Choice, resources: Resources, seed: int) -> Built:
    """The rows of a choice.

    Raises:
        UnsuitableError: its word has no typo.
    """
    language, token, start = resources.parser.language, choice.token, choice.token.idx
    rng = np.random.default_rng([seed, zlib.crc32(one.text.encode())])  # the same wherever it stands among the texts
    typo, slip = make_typo(token.text, rng, resources.misspellings, language)
    new = [(c.relation.title(), c.word, "word replaced", f"WordNet {c.source}") for c in choice.candidates]
    if choice.filler and resources.model is not None:
        new.append(("Random MLM", choice.filler, "word replaced", f"filler of {resources.model.name}"))
    new.append(("Typo", typo, slip, "codespell" if slip == "common misspelling" else "seeded"))
    rows = [
        PairRow(
            *(one.text, language.replace(token, word), subset, start, start + len(token)),
            *(rule, token.text, word, source),
        )
        for subset, word, rule, source in new
    ]
    negations = (("Negation (Main)", one.main, one.negation), ("Negation (Antonym)", token, choice.negation))
    for subset, verb, negation in negations:
        first, last = min(edit.start for edit in negation.edits), max(edit.end for edit in negation.edits)
        source = f"rules, {resources.parser.name}"
        rows.append(PairRow(one.text, negation.text, subset, first, last, negation.rule, verb.text, "", source))
    return Built(choice.chances, rows)
