"""Which sentences are suitable originals, and why the others are not (HEROS, section 2.2.1 and Appendix A.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cache

from essent.lab.minimal_pairs.edits import like_case, word_lists
from essent.lab.minimal_pairs.language import Doc, Negation, Parser, Token, UnsuitableError, attempt

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


@dataclass(frozen=True)
class Filters:
    """What sentences are asked for.

    Attributes:
        parser: parses them.
        misspelled: words that are known to be wrong.
        lexicon: lower-case words that are known besides those of the language.
    """

    parser: Parser
    misspelled: frozenset[str] = frozenset()
    lexicon: Container[str] = frozenset()

    def check(self, sentences: Sequence[str]) -> list[Suitable | UnsuitableError]:
        """For each sentence an original with names for [NAME], or the first filter that it does not pass."""
        looked = [attempt(looks_suitable, one) for one in sentences]
        docs = iter(self.parser([one for one in looked if isinstance(one, str)]))
        found = [attempt(self._parsed, next(docs)) if isinstance(one, str) else one for one in looked]
        negated = iter(self.parser([one.negation.text for one in found if isinstance(one, Suitable)]))
        return [attempt(self._still, one, next(negated)) if isinstance(one, Suitable) else one for one in found]

    def _parsed(self, doc: Doc) -> Suitable:
        language = self.parser.language
        if (reason := next((reason for token in doc if (reason := self._unknown(token))), None)) is not None:
            raise UnsuitableError("words", reason)
        if (reason := language.ungrammatical(doc)) is not None:
            raise UnsuitableError("grammar", reason)
        main = language.statement(doc)
        return Suitable(doc.user_data["text"], doc, main, language.negate(main))

    def _unknown(self, token: Token) -> str | None:
        """What is wrong with a word, or None."""
        lower, language = token.lower_, self.parser.language
        if lower in self.misspelled:
            return "a misspelled word"
        if token.text != lower or not lower.isalpha() or not language.part(token) or language.is_word(lower):
            return None
        listed = lower in word_lists()["informal"] or lower in self.lexicon or token.lemma_ in self.lexicon
        return None if listed else "an unknown word"

    def _still(self, one: Suitable, negated: Doc) -> Suitable:
        """The original, if its negation is a statement with the same main verb."""
        main = attempt(self.parser.language.statement, negated)
        if isinstance(main, UnsuitableError):
            raise UnsuitableError("main verb", f"its negation is {main}")
        if main.lemma_ != one.main.lemma_:
            raise UnsuitableError("main verb", "its negation has another main verb")
        return one


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
    for name, reason, found in LOOKS:
        if found(PAUSE.sub(",", text)):
            raise UnsuitableError(name, reason)
    return text[:1].upper() + text[1:]


def _mended(word: re.Match[str]) -> str:
    """A contraction with its apostrophe; IM in capitals may be another word."""
    shouted = len(word[0]) > 1 and word[0].isupper()
    return word[0] if shouted else like_case(_contractions().get(word[0].lower(), word[0]), word[0])


@cache
def _contractions() -> dict[str, str]:
    """Words without their apostrophe, as they should be: dont and im, and i with them."""
    return {one.replace("'", "").lower(): one for one in word_lists()["contraction"]}


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
