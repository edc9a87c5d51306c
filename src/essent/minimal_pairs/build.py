"""Minimal pairs from any sentences: filters, one word a sentence, six changes of it (Chiang et al. 2023, section 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from essent.minimal_pairs.choose import Choice, Chooser, generator
from essent.minimal_pairs.confidence import Confidence
from essent.minimal_pairs.edits import split_sentences
from essent.minimal_pairs.english import English
from essent.minimal_pairs.inflection import library as lemminflect
from essent.minimal_pairs.language import Language, Negation, Parser, Token, UnsuitableError
from essent.minimal_pairs.masked import MaskedModel
from essent.minimal_pairs.quality import Quality
from essent.minimal_pairs.rows import PairRow
from essent.minimal_pairs.sentences import FILTERS, Filters, Suitable
from essent.minimal_pairs.typos import make_typo
from essent.minimal_pairs.wordnet import WordNet
from essent.types import DataError, InputError, TextsLike

CHUNK = 128  # sentences whose words are masked together
LATER = ("replaceable word", "negation of the word", "synonym and antonym", "in context", "typo")
ENOUGH = "wanted"  # the last filter: sentences beyond those that were asked for


@dataclass(frozen=True)
class Resources:
    """What the pairs are built from; without one the subsets that need it are left out.

    Attributes:
        parser: of the language's sentences.
        wordnet: for Synonym, Antonym and Random MLM.
        model: for Random MLM, and to choose between synonyms and antonyms in context.
        misspellings: word to misspellings; without them typos are slips of a finger only.
        language: how it negates, inflects and agrees.
        confidence: coefficients by which synonyms and antonyms are sorted, by default those of the package.
        same_negations: whether a word may be taken whose negation is that of the main verb, as in the paper.
    """

    parser: Parser
    wordnet: WordNet | None = None
    model: MaskedModel | None = None
    misspellings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    language: Language = field(default_factory=English)
    confidence: Confidence | None = None
    same_negations: bool = False

    @property
    def subsets(self) -> tuple[str, ...]:
        """The subsets that can be built, in the paper's order."""
        words = ("Synonym", "Antonym") if self.wordnet is not None else ()
        random = ("Random MLM",) if self.wordnet is not None and self.model is not None else ()
        return (*words, *random, "Typo", "Negation (Main)", "Negation (Antonym)")

    def filters(self) -> Filters:
        """What sentences are asked for, with the words that these resources know."""
        wrong = frozenset(word for words in self.misspellings.values() for word in words)
        return Filters(self.parser, self.language, wrong, self.wordnet or frozenset())

    def chooser(self, seed: int) -> Chooser:
        """What chooses a word of a sentence and what may stand for it."""
        return Chooser(self.language, self.wordnet, self.model, self.confidence, seed, self.same_negations)


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
        Rows, the subsets of one original together, in a random order of originals that `seed` determines; and what
        became of the other sentences. Fewer than `n` originals when the texts do not give more.

    Raises:
        InputError: n or look_at below 1.
        DataError: no texts.
        MissingDependencyError: LemmInflect is not installed.
    """
    for name, value in (("n", n), ("look_at", look_at)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, not {value}.")
    lemminflect()
    sentences = list(dict.fromkeys(sentence for text in texts for sentence in split_sentences(text)))
    if not sentences:
        raise DataError("There are no sentences to build minimal pairs from.")
    order = np.random.default_rng(seed).permutation(len(sentences))
    enough = min(len(order), n * look_at if resources.model is not None and resources.wordnet is not None else 1)
    filters = resources.filters()
    taken: set[str] = set()
    fallen: Counter[tuple[str, str]] = Counter()
    found: list[Built] = []
    seen = 0
    for start in range(0, len(order), CHUNK):
        suitable = _suitable([sentences[number] for number in order[start : start + CHUNK]], filters, taken, fallen)
        seen += len(order[start : start + CHUNK])
        for outcome in _convert(suitable, resources, seed):
            if isinstance(outcome, UnsuitableError):
                fallen[outcome.filter, outcome.reason] += 1
            else:
                found.append(outcome)
        if progress is not None:
            progress(seen, max(enough, seen) if len(found) >= n else len(order))
        if len(found) >= n and seen >= enough:
            break
    surest = sorted(range(len(found)), key=lambda number: -found[number].confidence)[:n]
    if len(found) > n:
        fallen[ENOUGH, "others are surer, or came first"] += len(found) - n
    rows = [row for number in sorted(surest) for row in found[number].rows]
    return rows, Quality.of(rows, seen, len(sentences), fallen, (*FILTERS, "repeated", *LATER, ENOUGH))


def _suitable(
    sentences: Sequence[str], filters: Filters, taken: set[str], fallen: Counter[tuple[str, str]]
) -> list[Suitable]:
    """The sentences that pass the filters and are not `taken` yet; counts why the others fell."""
    suitable: list[Suitable] = []
    for one in filters.check(sentences):
        if isinstance(one, Suitable) and one.text not in taken:
            taken.add(one.text)
            suitable.append(one)
        elif isinstance(one, Suitable):
            fallen["repeated", "another sentence but for marks, capitals or a name"] += 1
        else:
            fallen[one.filter, one.reason] += 1
    return suitable


class Built(NamedTuple):
    """The rows of an original, and how sure its synonym and antonym are."""

    confidence: float
    rows: list[PairRow]


def _convert(suitable: Sequence[Suitable], resources: Resources, seed: int) -> Iterator[Built | UnsuitableError]:
    """Every sentence's rows, or why it has none."""
    for one, choices in zip(suitable, resources.chooser(seed)(suitable), strict=True):
        if isinstance(choices, UnsuitableError):
            yield choices
            continue
        rows = [_rows_of(one, choice, resources, generator(one.text, seed)) for choice in choices]
        good = next((place for place, some in enumerate(rows) if some is not None), None)
        if good is None:
            yield UnsuitableError("typo", "no typo of the word")
        else:
            yield Built(choices[good].confidence, rows[good] or [])


def _rows_of(one: Suitable, choice: Choice, resources: Resources, rng: np.random.Generator) -> list[PairRow] | None:
    """The rows of a choice; None when its word has no typo."""
    token, language, rows = choice.token, resources.language, []

    def replaced(subset: str, new: str, rule: str, source: str) -> PairRow:
        converted = language.replace(token, new)
        return PairRow(one.text, converted, subset, token.idx, token.idx + len(token), rule, token.text, new, source)

    if resources.wordnet is not None:
        for subset, candidate in (("Synonym", choice.synonyms[0]), ("Antonym", choice.antonyms[0])):
            source = f"WordNet {candidate.source}, {candidate.sense}"
            rows.append(replaced(subset, candidate.word, "word replaced", source))
    if choice.filler and resources.model is not None:
        rows.append(replaced("Random MLM", choice.filler, "word replaced", f"filler of {resources.model.name}"))
    typo = make_typo(token.text, rng, resources.misspellings, language)
    if typo is None:
        return None
    rows.append(replaced("Typo", *typo, "codespell" if typo[1] == "common misspelling" else "seeded"))
    for subset, place, negation in (
        ("Negation (Main)", one.main, one.negation),
        ("Negation (Antonym)", token, choice.negation),
    ):
        rows.append(_negated(one, place, subset, negation, resources.parser.name))
    return rows


def _negated(one: Suitable, token: Token, subset: str, negation: Negation, parser: str) -> PairRow:
    start, end = min(edit.start for edit in negation.edits), max(edit.end for edit in negation.edits)
    return PairRow(one.text, negation.text, subset, start, end, negation.rule, token.text, "", f"rules, {parser}")
