"""Filters that select the original sentences of minimal pairs (Chiang et al. 2023, section 2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cache

from essent.lab.minimal_pairs.english import negate, part_of_speech, statement, ungrammatical
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

SHORTEST, LONGEST = 6, 25  # words
NAME, NAMES = "[NAME]", ("Jackie", "Robin", "Casey")  # Appendix A.1; the paper uses sentences with one name only
QUOTES = '"“”'
PLAIN = re.compile(rf"[\w ,.…!'’;&%$()/:+\-{QUOTES}]+")
FACES = r"(?<=[\s.!])(?:[:;=]-?[)D(/]|<3)"
EDGES = re.compile(rf"^[*>~_\s]+|(?:[^{QUOTES}\w.!?,:;)\]]|{FACES}|(?<=[.!])[.!])+$")  # emphasis, emoji, dots
BEGINNING = re.compile(r"[\"“]?[^\W\d_]")
END = re.compile(r"(?:\w|\([^()]+\))(?:[.!]?[\"”]?|[\"”][.!])$")
PAUSE = re.compile(r"(?<=\w)(?:\.{2,}|…)(?=[\s\w])")
REPEATED = re.compile(r"[.!,;'’\-]{2,}|\s{2,}|\s[.,!;]|\.\w{2,}")
WORD = re.compile(r"(?<!['’])\b\w+\b(?!\.\w)")  # excludes the letters of i.e. and the i of hawai'i
CAPITALS = re.compile(r"\b[A-Z]{4,}\b")


@dataclass(frozen=True)
class Suitable:
    """An original sentence with its parse, its main verb and its negation."""

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
    """Return for each sentence its original, with names in place of [NAME], or the first filter that excludes it.

    Args:
        misspelled: misspelled words, which exclude a sentence.
        lexicon: lower-case words that are accepted in addition to LemmInflect's.
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
    """Raise UnsuitableError if a word is misspelled or unknown."""
    lower = token.lower_
    if lower in misspelled:
        raise UnsuitableError("words", "a misspelled word")
    if token.text != lower or not lower.isalpha() or not part_of_speech(token) or is_word(lower):
        return
    if lower not in word_lists()["informal"] and lower not in lexicon and token.lemma_ not in lexicon:
        raise UnsuitableError("words", "an unknown word")


def _with_same_verb(original: Suitable, negated: Doc) -> Suitable:
    """Return the original if its negation, parsed again, is a statement with the same main verb."""
    main = attempt(statement, negated)
    if isinstance(main, UnsuitableError):
        raise UnsuitableError("main verb", f"its negation is not a statement: {main}")
    if main.lemma_ != original.main.lemma_:
        raise UnsuitableError("main verb", "its negation has another main verb")
    return original


def looks_suitable(sentence: str) -> str:
    """Return the sentence without surrounding marks, with an initial capital and names in place of [NAME].

    Raises:
        UnsuitableError: its length, marks or words exclude it.
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
    """Add the missing apostrophe of a contraction; capitals are left alone, since IM may be another word."""
    shouted = len(word[0]) > 1 and word[0].isupper()
    return word[0] if shouted else like_case(_contractions().get(word[0].lower(), word[0]), word[0])


@cache
def _contractions() -> dict[str, str]:
    """Map contractions without their apostrophe (dont, im), and i, to the correct form."""
    return {contraction.replace("'", "").lower(): contraction for contraction in word_lists()["contraction"]}


def _words(text: str) -> int:
    return sum(any(letter.isalnum() for letter in part) for part in text.split())


@cache
def _curse() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(sorted(word_lists()['curse']))})\b", re.IGNORECASE)


MARKS = "marks other than , . ! ' ; : & % $ - / ( ) and quotation marks"
LOOKS: tuple[tuple[str, str, Callable[[str], object]], ...] = (  # filter, reason, true for an excluded text
    ("length", f"fewer than {SHORTEST} words", lambda text: _words(text) < SHORTEST),
    ("length", f"more than {LONGEST} words", lambda text: _words(text) > LONGEST),
    ("question", "a question", lambda text: "?" in text),
    ("names", f"more than {len(NAMES)} {NAME}", lambda text: NAME in text),
    ("whole sentence", "does not start with a letter", lambda text: not BEGINNING.match(text)),
    ("whole sentence", "does not end like a sentence", lambda text: not END.search(text)),
    ("marks", MARKS, lambda text: not PLAIN.fullmatch(text)),
    ("marks", "unbalanced quotation marks", lambda text: text.count('"') % 2 or text.count("“") != text.count("”")),
    ("marks", "repeated marks, or a space before a mark", REPEATED.search),
    ("marks", "words in capitals", lambda text: len(CAPITALS.findall(text)) > 1),
    ("language", "a swear word", lambda text: _curse().search(text)),
)
FILTERS = (*dict.fromkeys(name for name, _, _ in LOOKS), "words", "grammar", "statement", "main verb")
