"""Build minimal pairs from any sentences: one word per sentence, six changes of it (Chiang et al. 2023, section 2)."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from essent._core.atomic import write_text
from essent._core.types import TextsLike
from essent.errors import DataError, InputError
from essent.lab.minimal_pairs.check import make_typo
from essent.lab.minimal_pairs.english import replace_word
from essent.lab.minimal_pairs.filters import FILTERS, Suitable, filter_sentences
from essent.lab.minimal_pairs.masked import MaskedModel
from essent.lab.minimal_pairs.overlap import PUBLISHED, Tokenize, lexical_overlap, words_and_marks
from essent.lab.minimal_pairs.parsing import Parser, UnsuitableError, attempt
from essent.lab.minimal_pairs.wordnet import WordNet
from essent.lab.minimal_pairs.words import RELATIONS, Choice, Chooser, Confidence, both, negatable
from essent.tasks.examples import SUBSETS, MinimalPair

# -- rows and their report --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairRow:
    """A minimal pair: a sentence and a changed copy of it.

    Attributes:
        original, converted: the two sentences.
        subset: one of the six subsets of HEROS.
        start, end: characters of the original that were changed (an insertion has start = end).
        rule: the kind of change, e.g. "letters swapped" or "do-support".
        word, replacement: the chosen word and its replacement; for a negation the verb or adjective, and "".
        source: origin of the new word, e.g. "WordNet synset verb 00227165".

    Example:
        >>> from essent.lab.minimal_pairs import Parser, Resources, build
        >>> texts = ["The shop on the corner sells old books about the sea."]
        >>> rows, quality = build(texts, Resources(Parser()), n=1)
        >>> row = rows[1]
        >>> row.subset, row.word, row.rule
        ('Negation (Main)', 'sells', 'do-support')
        >>> row.converted
        'The shop on the corner does not sell old books about the sea.'
    """

    original: str
    converted: str
    subset: str
    start: int
    end: int
    rule: str
    word: str
    replacement: str
    source: str


Pair = TypeVar("Pair", PairRow, MinimalPair)


@dataclass(frozen=True)
class Quality:
    """The report of `build`: how many sentences each filter excluded, and the estimated quality of the pairs.

    Attributes:
        sentences: number of distinct sentences in the texts.
        seen: number of sentences examined.
        originals: number of sentences that minimal pairs were built from.
        fallen: number of excluded sentences per filter and reason, the most frequent reason first.
        good: estimated share of good pairs for "synonym" and "antonym"; empty without a masked language model.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, Resources, build
        >>> texts = ["The shop on the corner sells old books about the sea. Is it open?"]
        >>> rows, quality = build(texts, Resources(Parser()))
        >>> quality.seen, quality.originals, quality.fallen["length"]
        (2, 1, {'fewer than 6 words': 1})
    """

    sentences: int
    seen: int
    originals: int
    fallen: Mapping[str, Mapping[str, int]]
    good: Mapping[str, float]

    @property
    def left(self) -> dict[str, int]:
        """Number of sentences that passed each filter and all filters before it."""
        fell = (-sum(reasons.values()) for reasons in self.fallen.values())
        return dict(zip(self.fallen, list(accumulate(fell, initial=self.seen))[1:], strict=True))


def write_rows(rows: Iterable[PairRow], path: str | Path) -> None:
    """Write minimal pairs as a .jsonl file, one JSON object per line.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, Resources, build, write_rows
        >>> from essent.tasks import load_heros
        >>> texts = ["The shop on the corner sells old books about the sea."]
        >>> rows, quality = build(texts, Resources(Parser()))
        >>> write_rows(rows, "my-pairs.jsonl")
        >>> len(load_heros("my-pairs.jsonl").pairs)
        3
    """
    write_text(path, "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))


def by_subset(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Group pairs by subset, in the paper's order; subsets without pairs are omitted."""
    present = {pair.subset for pair in pairs}
    return {subset: [pair for pair in pairs if pair.subset == subset] for subset in SUBSETS if subset in present}


def overlaps(rows: Sequence[PairRow], tokenize: Tokenize = words_and_marks) -> dict[str, dict[str, float]]:
    """Return the lexical overlap of all pairs, of each subset, and of the paper's HEROS (Table 1).

    The values are those of `lexical_overlap`.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, Resources, build, overlaps
        >>> texts = ["The shop on the corner sells old books about the sea."]
        >>> rows, quality = build(texts, Resources(Parser()))
        >>> {subset: round(values["rouge1"], 1) for subset, values in overlaps(rows).items()}
        {'all': 84.5, 'Typo': 90.0, 'Negation (Main)': 81.8, 'Negation (Antonym)': 81.8, "the paper's HEROS": 92.9}
    """
    groups = {"all": [*rows], **by_subset(rows)}
    texts = {name: [(row.original, row.converted) for row in members] for name, members in groups.items()}
    measured = {name: lexical_overlap(pairs, tokenize) for name, pairs in texts.items()}
    return {**measured, "the paper's HEROS": PUBLISHED["HEROS"]}


def sample(pairs: Sequence[Pair], number: int = 3, seed: int = 0) -> dict[str, list[Pair]]:
    """Return a random sample of `number` pairs per subset.

    Example:
        >>> from essent.lab.minimal_pairs import sample
        >>> from essent.tasks import load_heros
        >>> pairs = load_heros("minimal-pairs.jsonl").pairs
        >>> {subset: len(members) for subset, members in sample(pairs, 2).items()}
        {'Synonym': 2, 'Antonym': 2, 'Random MLM': 2, 'Typo': 2, 'Negation (Main)': 2, 'Negation (Antonym)': 2}
    """
    rng = np.random.default_rng(seed)
    return {
        subset: [members[index] for index in sorted(rng.permutation(len(members))[:number])]
        for subset, members in by_subset(pairs).items()
    }


def as_dict(quality: Quality, rows: Sequence[PairRow], tokenize: Tokenize = words_and_marks) -> dict[str, Any]:
    """Return the report as plain values for a JSON file."""
    return {
        **asdict(quality),
        "left": quality.left,
        "pairs": dict(Counter(row.subset for row in rows)),
        "overlap": overlaps(rows, tokenize) if rows else {},
    }


# -- building ---------------------------------------------------------------------------------------------------------

CHUNK = 128  # sentences whose words are masked together
LATER = ("repeated", "replaceable word", "negation of the word", "synonym and antonym", "in context", "typo", "wanted")


@dataclass(frozen=True)
class Resources:
    """The parser, lexicons and model that minimal pairs are built from.

    Synonym, Antonym and Random MLM need both WordNet and the masked language model.

    Attributes:
        parser: parses the sentences.
        wordnet: source of synonyms and antonyms.
        model: scores them in context, and predicts random words.
        misspellings: misspellings of each word; without them, typos are random edits of one letter.
        confidence: coefficients that rank synonyms and antonyms, by default those of the package.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, Resources, build, misspellings
        >>> resources = Resources(Parser(), misspellings=misspellings())
        >>> rows, quality = build(["I noticed that the knife in the top drawer was blunt."], resources)
        >>> [row.subset for row in rows]
        ['Typo', 'Negation (Main)', 'Negation (Antonym)']
    """

    parser: Parser
    wordnet: WordNet | None = None
    model: MaskedModel | None = None
    misspellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    confidence: Confidence | None = None

    def chooser(self) -> Chooser | None:
        """Return the chooser of words and replacements; None without WordNet or without a model."""
        if self.wordnet is None or self.model is None:
            return None
        return Chooser(self.wordnet, self.model, self.confidence or Confidence.load())


class Built(NamedTuple):
    """The rows of an original, and the probabilities that its synonym and its antonym are good."""

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
    """Build minimal pairs of `n` sentences, each with all subsets that the resources allow.

    Args:
        texts: texts of one or more sentences; duplicate sentences count once.
        look_at: sentences examined per requested original, or more if that yields fewer than `n` originals. The
            originals whose synonym and antonym are most probably good are returned; without a model, the first ones.
        progress: called with the number of sentences examined so far, and the number to examine.

    Returns:
        The rows, with all subsets of one original together, and a report. The best originals come first; without a
        model, the order is random and determined by `seed`. Fewer than `n` originals if there are no more.

    Raises:
        InputError: `n` or `look_at` is below 1.
        DataError: the texts contain no sentence.
        MissingDependencyError: LemmInflect is not installed.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, Resources, build
        >>> rows, quality = build(["The shop on the corner sells old books about the sea."], Resources(Parser()), n=1)
        >>> for row in rows:
        ...     print(f"{row.subset}: {row.converted}")
        Typo: The shop on the corner sels old books about the sea.
        Negation (Main): The shop on the corner does not sell old books about the sea.
        Negation (Antonym): The shop on the corner does not sell old books about the sea.
    """
    for name, value in (("n", n), ("look_at", look_at)):
        if value < 1:
            raise InputError(f"{name}={value}: must be at least 1.")
    sentences = list(dict.fromkeys(resources.parser.split(texts)))
    if not sentences:
        raise DataError("The texts contain no sentences. Pass at least one sentence.")
    order = [sentences[number] for number in np.random.default_rng(seed).permutation(len(sentences))]
    least = min(n * look_at, len(order)) if resources.chooser() is not None else 1
    outcomes: list[Built | UnsuitableError] = []
    used_texts: set[str] = set()
    while len(outcomes) < least or (len(outcomes) < len(order) and sum(isinstance(o, Built) for o in outcomes) < n):
        outcomes += _outcomes(order[len(outcomes) : len(outcomes) + CHUNK], resources, used_texts, seed)
        if progress is not None:
            progress(len(outcomes), max(least, len(outcomes)))
    built = [outcome for outcome in outcomes if isinstance(outcome, Built)]
    built.sort(key=lambda original: both(*original.chances) if original.chances else 0.0, reverse=True)
    chosen = built[:n]
    rows = [row for original in chosen for row in original.rows]
    chances = [original.chances for original in chosen if original.chances]
    good = dict(zip(RELATIONS, np.mean(chances, axis=0).tolist(), strict=True)) if chances else {}
    refused = Counter((outcome.filter, outcome.reason) for outcome in outcomes if isinstance(outcome, UnsuitableError))
    refused["wanted", "others ranked higher, or came first"] = len(built) - len(chosen)
    ranked = sorted((-count, reason, name) for (name, reason), count in refused.items() if count)
    fallen = {name: {why: -less for less, why, of in ranked if of == name} for name in (*FILTERS, *LATER)}
    return rows, Quality(len(sentences), len(outcomes), len(chosen), fallen, good)


def _outcomes(
    sentences: Sequence[str], resources: Resources, used_texts: set[str], seed: int
) -> Iterator[Built | UnsuitableError]:
    """Yield the rows of each sentence, or the reason why it has none; originals in `used_texts` are not repeated."""
    wrong = frozenset(word for words in resources.misspellings.values() for word in words)
    suitable: list[tuple[Suitable, list[Choice]]] = []
    for original in filter_sentences(sentences, resources.parser, wrong, resources.wordnet or frozenset()):
        if isinstance(original, UnsuitableError):
            yield original
        elif original.text in used_texts:
            yield UnsuitableError("repeated", "equal to another sentence except for marks, capitals or a name")
        elif isinstance(choices := attempt(negatable, original.doc), UnsuitableError):
            yield choices
        else:
            used_texts.add(original.text)
            suitable.append((original, choices))
    words, chooser = [choices for _, choices in suitable], resources.chooser()
    chosen = chooser(words) if chooser is not None else [choices[0] for choices in words]
    for (original, _), choice in zip(suitable, chosen, strict=True):
        yield attempt(_built, original, choice, resources, seed) if isinstance(choice, Choice) else choice


def _built(original: Suitable, choice: Choice, resources: Resources, seed: int) -> Built:
    """Return the rows of a choice.

    Raises:
        UnsuitableError: the word has no typo.
    """
    token, start, text = choice.token, choice.token.idx, original.text
    rng = np.random.default_rng([seed, zlib.crc32(text.encode())])  # independent of the order of the texts
    typo, slip = make_typo(token.text, rng, resources.misspellings)
    new = [(c.relation.title(), c.word, "word replaced", f"WordNet {c.source}") for c in choice.candidates]
    if choice.filler and resources.model is not None:
        new.append(("Random MLM", choice.filler, "word replaced", f"filler of {resources.model.name}"))
    new.append(("Typo", typo, slip, "codespell" if slip == "common misspelling" else "seeded"))
    rows = [
        PairRow(text, replace_word(token, word), subset, start, start + len(token), rule, token.text, word, source)
        for subset, word, rule, source in new
    ]
    source = f"rules, {resources.parser.name}"
    negations = (("Negation (Main)", original.main, original.negation), ("Negation (Antonym)", token, choice.negation))
    for subset, verb, negation in negations:
        first, last = min(edit.start for edit in negation.edits), max(edit.end for edit in negation.edits)
        rows.append(PairRow(text, negation.text, subset, first, last, negation.rule, verb.text, "", source))
    return Built(choice.chances, rows)
