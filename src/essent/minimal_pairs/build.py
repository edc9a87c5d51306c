"""Minimal pairs from any sentences: filters, one word a sentence, six changes of it (Chiang et al. 2023, section 2)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from essent.minimal_pairs.choose import Choice, Chooser, ContextChooser
from essent.minimal_pairs.confidence import Confidence
from essent.minimal_pairs.edits import split_sentences
from essent.minimal_pairs.english import English
from essent.minimal_pairs.language import Language, Negation, Parser, Token, UnsuitableError
from essent.minimal_pairs.masked import MaskedModel
from essent.minimal_pairs.quality import Quality
from essent.minimal_pairs.rows import PairRow
from essent.minimal_pairs.sentences import FILTERS, Filters, Suitable
from essent.minimal_pairs.typos import make_typo
from essent.minimal_pairs.wordnet import WordNet
from essent.types import DataError, InputError, TextsLike

CHUNK = 128  # sentences whose words are masked together
LATER = ("repeated", "replaceable word", "negation of the word", "synonym and antonym", "in context", "typo", "wanted")


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
    same_negations: bool = True

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

    def chooser(self) -> Chooser:
        """What chooses a word of a sentence and what may stand for it."""
        if self.wordnet is None or self.model is None:
            return Chooser(self.language, self.wordnet, self.same_negations)
        judge = self.confidence or Confidence.load()
        return ContextChooser(
            language=self.language,
            wordnet=self.wordnet,
            same_negations=self.same_negations,
            model=self.model,
            judge=judge,
        )


class Built(NamedTuple):
    """The rows of an original, and how sure its synonym and antonym are."""

    confidence: float
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
        Rows, the subsets of one original together, in a random order of originals that `seed` determines; and what
        became of the other sentences. Fewer than `n` originals when the texts do not give more.

    Raises:
        InputError: n or look_at below 1.
        DataError: no texts.
        MissingDependencyError: LemmInflect is not installed.
    """
    if n < 1:
        raise InputError(f"n must be at least 1, not {n}.")
    if look_at < 1:
        raise InputError(f"look_at must be at least 1, not {look_at}.")
    sentences = list(dict.fromkeys(sentence for text in texts for sentence in split_sentences(text)))
    if not sentences:
        raise DataError("There are no sentences to build minimal pairs from.")
    order = [sentences[number] for number in np.random.default_rng(seed).permutation(len(sentences))]
    found = _search(order, resources, n, n * look_at, seed, progress)
    kept = [one for one in found if isinstance(one, Built)]
    surest = sorted(range(len(kept)), key=lambda number: -kept[number].confidence)[:n]
    rows = [row for number in sorted(surest) for row in kept[number].rows]
    refused = [one for one in found if isinstance(one, UnsuitableError)]
    refused += [UnsuitableError("wanted", "others are surer, or came first")] * (len(kept) - len(surest))
    return rows, Quality.of(len(sentences), len(found), len(surest), refused, (*FILTERS, *LATER))


def _search(
    order: Sequence[str],
    resources: Resources,
    n: int,
    look_at: int,
    seed: int,
    progress: Callable[[int, int], object] | None,
) -> list[Built | UnsuitableError]:
    """What becomes of the sentences: of `look_at` where a model says which are the surest, and until there are `n`."""
    found: list[Built | UnsuitableError] = []
    taken: set[str] = set()
    least = min(len(order), look_at) if isinstance(resources.chooser(), ContextChooser) else 1
    built = 0
    while len(found) < len(order) and (built < n or len(found) < least):
        found += _outcomes(order[len(found) : len(found) + CHUNK], resources, taken, seed)
        built = sum(isinstance(one, Built) for one in found)
        if progress is not None:
            progress(len(found), max(least, len(found)) if built >= n else len(order))
    return found


def _outcomes(
    sentences: Sequence[str], resources: Resources, taken: set[str], seed: int
) -> Iterator[Built | UnsuitableError]:
    """Every sentence's rows, or why it has none; a text that is `taken` already is not taken again."""
    suitable: list[Suitable] = []
    for one in resources.filters().check(sentences):
        if isinstance(one, UnsuitableError):
            yield one
        elif one.text in taken:
            yield UnsuitableError("repeated", "another sentence but for marks, capitals or a name")
        else:
            taken.add(one.text)
            suitable.append(one)
    for one, choices in zip(suitable, resources.chooser()(suitable), strict=True):
        if isinstance(choices, UnsuitableError):
            yield choices
            continue
        built = (Built(choice.confidence, _rows_of(one, choice, resources, seed)) for choice in choices)
        yield next((some for some in built if some.rows), None) or UnsuitableError("typo", "no typo of the word")


def _rows_of(one: Suitable, choice: Choice, resources: Resources, seed: int) -> list[PairRow]:
    """The rows of a choice; none when its word has no typo."""
    rng = np.random.default_rng([seed, zlib.crc32(one.text.encode())])  # the same wherever it stands among the texts
    typo = make_typo(choice.token.text, rng, resources.misspellings, resources.language)
    if typo is None:
        return []
    new = [
        (subset, some[0].word, "word replaced", f"WordNet {some[0].source}, {some[0].sense}")
        for subset, some in (("Synonym", choice.synonyms), ("Antonym", choice.antonyms))
        if some
    ]
    if choice.fillers and resources.model is not None:
        new.append(("Random MLM", choice.fillers[0], "word replaced", f"filler of {resources.model.name}"))
    new.append(("Typo", *typo, "codespell" if typo[1] == "common misspelling" else "seeded"))
    token, start = choice.token, choice.token.idx
    rows = [
        PairRow(
            *(one.text, resources.language.replace(token, word), subset, start, start + len(token)),
            *(rule, token.text, word, source),
        )
        for subset, word, rule, source in new
    ]
    main = _negated(one, one.main, "Negation (Main)", one.negation, resources.parser.name)
    return [*rows, main, _negated(one, token, "Negation (Antonym)", choice.negation, resources.parser.name)]


def _negated(one: Suitable, token: Token, subset: str, negation: Negation, parser: str) -> PairRow:
    start, end = min(edit.start for edit in negation.edits), max(edit.end for edit in negation.edits)
    return PairRow(one.text, negation.text, subset, start, end, negation.rule, token.text, "", f"rules, {parser}")
