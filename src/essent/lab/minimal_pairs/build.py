"""Minimal pairs from any sentences: filters, one word per sentence, six changes of it (Chiang et al. 2023, 2)."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from essent._core.atomic import write_text
from essent._core.types import TextsLike
from essent.errors import DataError, InputError
from essent.lab.minimal_pairs.check import make_typo
from essent.lab.minimal_pairs.english import negate, part_of_speech, replace_word, statement, ungrammatical
from essent.lab.minimal_pairs.masked import MaskedModel
from essent.lab.minimal_pairs.overlap import PUBLISHED, Tokenize, lexical_overlap, words_and_marks
from essent.lab.minimal_pairs.parsing import (
    Doc,
    Negation,
    Parser,
    Token,
    UnsuitableError,
    attempt,
    is_word,
    like_case,
    word_lists,
)
from essent.lab.minimal_pairs.wordnet import WordNet
from essent.lab.minimal_pairs.words import RELATIONS, Choice, Chooser, Confidence, both, negatable
from essent.tasks.examples import SUBSETS, MinimalPair

SHORTEST, LONGEST = 6, 25  # words
NAME, NAMES = "[NAME]", ("Jackie", "Robin", "Casey")  # Appendix A.1; the paper takes sentences with one name only
QUOTES = '"“”'
PLAIN = re.compile(rf"[\w ,.…!'’;&%$()/:+\-{QUOTES}]+")
FACES = r"(?<=[\s.!])(?:[:;=]-?[)D(/]|<3)"
EDGES = re.compile(rf"^[*>~_\s]+|(?:[^{QUOTES}\w.!?,:;)\]]|{FACES}|(?<=[.!])[.!])+$")  # emphasis, emoji, dots
BEGINNING = re.compile(r"[\"“]?[^\W\d_]")
END = re.compile(r"(?:\w|\([^()]+\))(?:[.!]?[\"”]?|[\"”][.!])$")
PAUSE = re.compile(r"(?<=\w)(?:\.{2,}|…)(?=[\s\w])")
REPEATED = re.compile(r"[.!,;'’\-]{2,}|\s{2,}|\s[.,!;]|\.\w{2,}")
WORD = re.compile(r"(?<!['’])\b\w+\b(?!\.\w)")  # not the letters of i.e., nor the i of hawai'i
CAPITALS = re.compile(r"\b[A-Z]{4,}\b")


@dataclass(frozen=True)
class Suitable:
    """An original, its parse, its main verb, and the negation of that."""

    text: str
    doc: Doc
    main: Token
    negation: Negation


def filter_sentences(
    sentences: Sequence[str],
    parser: Parser,
    misspelled: Container[str] = frozenset(),
    lexicon: Container[str] = frozenset(),
) -> list[Suitable | UnsuitableError]:
    """For each sentence an original with names for [NAME], or the first filter that it does not pass.

    Args:
        misspelled: words that are known to be wrong.
        lexicon: lower-case words that are known besides those of the language.
    """

    def parsed(doc: Doc) -> Suitable:
        for token in doc:
            _check_word(token, misspelled, lexicon)
        if (reason := ungrammatical(doc)) is not None:
            raise UnsuitableError("grammar", reason)
        main = statement(doc)
        return Suitable(doc.user_data["text"], doc, main, negate(main))

    texts = [attempt(looks_suitable, sentence) for sentence in sentences]
    docs = iter(parser([text for text in texts if isinstance(text, str)]))
    outcomes = [attempt(parsed, next(docs)) if isinstance(text, str) else text for text in texts]
    negated = iter(parser([outcome.negation.text for outcome in outcomes if isinstance(outcome, Suitable)]))
    return [
        attempt(_with_same_verb, outcome, next(negated)) if isinstance(outcome, Suitable) else outcome
        for outcome in outcomes
    ]


def _check_word(token: Token, misspelled: Container[str], lexicon: Container[str]) -> None:
    """Refuse a word that is misspelled or unknown."""
    lower = token.lower_
    if lower in misspelled:
        raise UnsuitableError("words", "a misspelled word")
    if token.text != lower or not lower.isalpha() or not part_of_speech(token) or is_word(lower):
        return
    if lower not in word_lists()["informal"] and lower not in lexicon and token.lemma_ not in lexicon:
        raise UnsuitableError("words", "an unknown word")


def _with_same_verb(original: Suitable, negated: Doc) -> Suitable:
    """The original, if its negation is a statement with the same main verb."""
    main = attempt(statement, negated)
    if isinstance(main, UnsuitableError):
        raise UnsuitableError("main verb", f"its negation is {main}")
    if main.lemma_ != original.main.lemma_:
        raise UnsuitableError("main verb", "its negation has another main verb")
    return original


def looks_suitable(sentence: str) -> str:
    """The sentence without what stands around it, with a capital and names for [NAME].

    Raises:
        UnsuitableError: by its length, marks or words it is no original.
    """
    text = sentence.strip()
    if not any(mark in text[1:-1] for mark in QUOTES):
        text = text.strip(QUOTES)
    text = WORD.sub(_mended, EDGES.sub("", text))
    for name in NAMES:
        text = text.replace(NAME, name, 1)
    for name, reason, is_fault in LOOKS:
        if is_fault(PAUSE.sub(",", text)):
            raise UnsuitableError(name, reason)
    return text[:1].upper() + text[1:]


def _mended(word: re.Match[str]) -> str:
    """A contraction with its apostrophe; IM in capitals may be another word."""
    shouted = len(word[0]) > 1 and word[0].isupper()
    return word[0] if shouted else like_case(_contractions().get(word[0].lower(), word[0]), word[0])


@cache
def _contractions() -> dict[str, str]:
    """Words without their apostrophe, as they should be: dont and im, and i with them."""
    return {contraction.replace("'", "").lower(): contraction for contraction in word_lists()["contraction"]}


def _words(text: str) -> int:
    return sum(any(letter.isalnum() for letter in part) for part in text.split())


@cache
def _curse() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(sorted(word_lists()['curse']))})\b", re.IGNORECASE)


MARKS = "marks other than , . ! ' ; : & % $ - / ( ) and quotation marks"
LOOKS: tuple[tuple[str, str, Callable[[str], object]], ...] = (  # filter, reason, what is true of a text that falls
    ("length", f"fewer than {SHORTEST} words", lambda text: _words(text) < SHORTEST),
    ("length", f"more than {LONGEST} words", lambda text: _words(text) > LONGEST),
    ("question", "a question", lambda text: "?" in text),
    ("names", f"more than {len(NAMES)} {NAME}", lambda text: NAME in text),
    ("whole sentence", "no letter at its beginning", lambda text: not BEGINNING.match(text)),
    ("whole sentence", "no end of a sentence", lambda text: not END.search(text)),
    ("marks", MARKS, lambda text: not PLAIN.fullmatch(text)),
    ("marks", "half a quotation", lambda text: text.count('"') % 2 or text.count("“") != text.count("”")),
    ("marks", "repeated marks or a blank before one", REPEATED.search),
    ("marks", "words in capitals", lambda text: len(CAPITALS.findall(text)) > 1),
    ("language", "cursing", lambda text: _curse().search(text)),
)
FILTERS = (*dict.fromkeys(name for name, _, _ in LOOKS), "words", "grammar", "statement", "main verb")


# -- rows, and what became of the other sentences ---------------------------------------------------------------------


@dataclass(frozen=True)
class PairRow:
    """One minimal pair.

    Attributes:
        original, converted: the two sentences.
        subset: one of the six of HEROS.
        start, end: characters of the original that were changed (an insertion has start = end).
        rule: what was done, e.g. "letters swapped" or "do-support".
        word, replacement: the chosen word and what stands for it; for a negation the verb or adjective, and "".
        source: where the new word is from, e.g. "WordNet synset verb 00227165".
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
    """A report about built pairs.

    Attributes:
        sentences: distinct sentences of the texts.
        seen: how many of them were looked at.
        originals: that were built.
        fallen: every filter -> reason -> sentences, the most frequent reason first.
        good: "synonym" and "antonym" -> the share of them that are good by the confidence; empty without a model.
    """

    sentences: int
    seen: int
    originals: int
    fallen: Mapping[str, Mapping[str, int]]
    good: Mapping[str, float]

    @property
    def left(self) -> dict[str, int]:
        """Filter -> sentences that passed it and those before it."""
        fell = (-sum(reasons.values()) for reasons in self.fallen.values())
        return dict(zip(self.fallen, list(accumulate(fell, initial=self.seen))[1:], strict=True))


def write_rows(rows: Iterable[PairRow], path: str | Path) -> None:
    """One JSON object a line."""
    write_text(path, "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))


def by_subset(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """The pairs of each subset that there is, in the paper's order."""
    present = {pair.subset for pair in pairs}
    return {subset: [pair for pair in pairs if pair.subset == subset] for subset in SUBSETS if subset in present}


def overlaps(rows: Sequence[PairRow], tokenize: Tokenize = words_and_marks) -> dict[str, dict[str, float]]:
    """Lexical overlap of every subset and of all, and the paper's (Table 1)."""
    groups = {"all": [*rows], **by_subset(rows)}
    texts = {name: [(row.original, row.converted) for row in members] for name, members in groups.items()}
    measured = {name: lexical_overlap(pairs, tokenize) for name, pairs in texts.items()}
    return {**measured, "the paper's HEROS": PUBLISHED["HEROS"]}


def sample(pairs: Sequence[Pair], number: int = 3, seed: int = 0) -> dict[str, list[Pair]]:
    """A few pairs of each subset to read."""
    rng = np.random.default_rng(seed)
    return {
        subset: [members[index] for index in sorted(rng.permutation(len(members))[:number])]
        for subset, members in by_subset(pairs).items()
    }


def as_dict(quality: Quality, rows: Sequence[PairRow], tokenize: Tokenize = words_and_marks) -> dict[str, Any]:
    """Plain values for a JSON file."""
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
    """What the pairs are built from; Synonym, Antonym and Random MLM need both WordNet and the model.

    Attributes:
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

    def chooser(self) -> Chooser | None:
        """What chooses a word of a sentence and what may stand for it; None where something for it is missing."""
        if self.wordnet is None or self.model is None:
            return None
        return Chooser(self.wordnet, self.model, self.confidence or Confidence.load())


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
    refused["wanted", "others are surer, or came first"] = len(built) - len(chosen)
    ranked = sorted((-count, reason, name) for (name, reason), count in refused.items() if count)
    fallen = {name: {why: -less for less, why, of in ranked if of == name} for name in (*FILTERS, *LATER)}
    return rows, Quality(len(sentences), len(outcomes), len(chosen), fallen, good)


def _outcomes(
    sentences: Sequence[str], resources: Resources, used_texts: set[str], seed: int
) -> Iterator[Built | UnsuitableError]:
    """Every sentence's rows, or why it has none; one of the `used_texts` is not used again."""
    wrong = frozenset(word for words in resources.misspellings.values() for word in words)
    suitable: list[tuple[Suitable, list[Choice]]] = []
    for original in filter_sentences(sentences, resources.parser, wrong, resources.wordnet or frozenset()):
        if isinstance(original, UnsuitableError):
            yield original
        elif original.text in used_texts:
            yield UnsuitableError("repeated", "another sentence but for marks, capitals or a name")
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
    """The rows of a choice.

    Raises:
        UnsuitableError: its word has no typo.
    """
    token, start, text = choice.token, choice.token.idx, original.text
    rng = np.random.default_rng([seed, zlib.crc32(text.encode())])  # the same wherever it stands among the texts
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
