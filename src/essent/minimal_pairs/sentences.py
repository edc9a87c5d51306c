"""Which sentences are suitable originals, and why the others are not (HEROS, section 2.2.1 and Appendix A.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import cache

from essent.minimal_pairs.edits import word_lists
from essent.minimal_pairs.english import English
from essent.minimal_pairs.language import Doc, Language, Negation, Parser, Token, UnsuitableError, attempt

SHORTEST, LONGEST = 6, 25  # words
NAME, NAMES = "[NAME]", ("Jackie", "Robin", "Casey")  # Appendix A.1; the paper takes sentences with one name only
PLAIN = re.compile(r"[\w ,.…!'’;&%$()/:+\-\"“”]+")
QUOTES = re.compile(r"\"\"|^[^\"]*(?:\"[^\"]*\"[^\"]*)*\"[^\"]*$|“[^”]*$|^[^“]*”")  # doubled, or without their partner
FACES = r"(?<=[\s.!])(?:[:;=]-?[)D(/]|<3)"
EDGES = re.compile(rf"^[\"“”'*>~_\s]+|(?:[^\w.!?,:;)\]]|{FACES}|(?<=[.!])[.!])+$")  # quotation marks, emphasis, emoji
BARE_EDGES = re.compile(rf"^[*>~_\s]+|(?:[^\"“”\w.!?,:;)\]]|{FACES}|(?<=[.!])[.!])+$")  # all but quotation marks
BEGINNING = re.compile(r"[\"“]?(?:[^\W\d_]|\[NAME\])")
END = re.compile(r"(?:\w|\[NAME\]|\([^()]+\))(?:[.!]?[\"”]?|[\"”][.!])$")
PAUSE = re.compile(r"(?<=\w)(?:\.{2,}|…)(?=[\s\w])")
REPEATED = re.compile(r"[.!,;'’\-]{2,}|\s{2,}|\s[.,!;]|\.\w{2,}")
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
        language: whose grammar they obey.
        misspelled: words that are known to be wrong.
        lexicon: lower-case words that are known besides those of the language.
    """

    parser: Parser
    language: Language = field(default_factory=English)
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
        if (reason := next((reason for token in doc if (reason := self._unknown(token))), None)) is not None:
            raise UnsuitableError("words", reason)
        if (reason := self.language.ungrammatical(doc)) is not None:
            raise UnsuitableError("grammar", reason)
        main = self.language.statement(doc)
        if main.lemma_ in word_lists()["filler verb"] and re.search(rf"\b(I|you) {main.text}\s*[,.]", doc.text):
            raise UnsuitableError("main verb", "a filler such as 'I mean,'")
        return Suitable(doc.user_data["text"], doc, main, self.language.negate(main))

    def _unknown(self, token: Token) -> str | None:
        """What is wrong with a word, or None."""
        lower = token.lower_
        joined = token.i and not token.nbor(-1).whitespace_  # spaCy parts "cant" as it does "can't"
        if lower in word_lists()["no apostrophe"] or (joined and lower in ("nt", "m", "re", "ve", "s", "ll")):
            return "a missing apostrophe"
        if lower in self.misspelled:
            return "a misspelled word"
        plain = token.text == lower and lower.isalpha() and self.language.part(token)
        return "an unknown word" if plain and not self._is_known(token) else None

    def _is_known(self, token: Token) -> bool:
        lower = token.lower_
        listed = lower in word_lists()["informal"] or lower in self.lexicon or token.lemma_ in self.lexicon
        return listed or self.language.is_word(lower)

    def _still(self, one: Suitable, negated: Doc) -> Suitable:
        """The original, if its negation is a statement with the same main verb, negated once more or less."""
        try:
            main = self.language.statement(negated)
        except UnsuitableError as error:
            raise UnsuitableError("main verb", f"its negation is {error}") from None
        if main.lemma_ != one.main.lemma_ or self.language.ungrammatical(negated):
            raise UnsuitableError("main verb", "its negation has another main verb")
        return one


def looks_suitable(sentence: str) -> str:
    """The sentence without what stands around it, with a capital and names for [NAME].

    Raises:
        UnsuitableError: by its length, marks or words it is no original.
    """
    sentence = _trimmed(sentence)
    for name, reason, found in LOOKS:
        if found(sentence):
            raise UnsuitableError(name, reason)
    text = _named(sentence)
    return text[:1].upper() + text[1:]


def _trimmed(sentence: str) -> str:
    """Without what stands around it; quotation marks at an edge stay where there are others inside."""
    trimmed, bare = EDGES.sub("", sentence), BARE_EDGES.sub("", sentence)
    return bare if re.search('["“”]', trimmed) and not QUOTES.search(bare) else trimmed


def _words(sentence: str) -> int:
    return sum(any(letter.isalnum() for letter in part) for part in sentence.split())


def _named(sentence: str) -> str:
    """With a name for each [NAME]."""
    for name in NAMES:
        sentence = sentence.replace(NAME, name, 1)
    return sentence


def _plain(sentence: str) -> str:
    return PAUSE.sub(",", _named(sentence))


@cache
def _curse() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(sorted(word_lists()['curse']))})\b", re.IGNORECASE)


MARKS = "marks other than , . ! ' ; : & % $ - / ( ) and quotation marks"
LOOKS: tuple[tuple[str, str, Callable[[str], object]], ...] = (  # filter, reason, what is true of a sentence that falls
    ("length", f"fewer than {SHORTEST} words", lambda sentence: _words(sentence) < SHORTEST),
    ("length", f"more than {LONGEST} words", lambda sentence: _words(sentence) > LONGEST),
    ("question", "a question", lambda sentence: "?" in sentence),
    ("names", f"more than {len(NAMES)} {NAME}", lambda sentence: sentence.count(NAME) > len(NAMES)),
    ("whole sentence", "no letter at its beginning", lambda sentence: not BEGINNING.match(sentence)),
    ("whole sentence", "no end of a sentence", lambda sentence: not END.search(sentence)),
    ("marks", MARKS, lambda sentence: not PLAIN.fullmatch(_plain(sentence))),
    ("marks", "a quotation mark without its partner", lambda sentence: QUOTES.search(_plain(sentence))),
    ("marks", "repeated marks or a blank before one", lambda sentence: REPEATED.search(_plain(sentence))),
    ("marks", "words in capitals", lambda sentence: len(CAPITALS.findall(_plain(sentence))) > 1),
    ("language", "cursing", lambda sentence: _curse().search(sentence)),
)
FILTERS = (*dict.fromkeys(name for name, _, _ in LOOKS), "words", "grammar", "statement", "main verb")
