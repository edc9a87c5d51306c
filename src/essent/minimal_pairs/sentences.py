"""Which sentences are suitable originals, and why the others are not (HEROS, section 2.2.1 and Appendix A.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import cache

from essent.minimal_pairs.edits import word_lists
from essent.minimal_pairs.english import English
from essent.minimal_pairs.language import Doc, Language, Negation, Parser, Token, UnsuitableError, attempt

SHORTEST, LONGEST = 8, 25  # words
NAME, NAME_INSTEAD = "[NAME]", "Jackie"  # Appendix A.1
PLAIN = re.compile(r"[\w ,.…!'’;&%$()/:+\-\"“”]+")
QUOTES = re.compile(r"\"\"|^[^\"]*(?:\"[^\"]*\"[^\"]*)*\"[^\"]*$|“[^”]*$|^[^“]*”")  # doubled, or without their partner
FACES = r"(?<=[\s.!])(?:[:;=]-?[)D(/]|<3)"
EDGES = re.compile(rf"^[\"“”'*>~_\s]+|(?:[^\w.!?,:;)\]]|{FACES}|(?<=[.!])[.!])+$")  # quotation marks, emphasis, emoji
BARE_EDGES = re.compile(rf"^[*>~_\s]+|(?:[^\"“”\w.!?,:;)\]]|{FACES}|(?<=[.!])[.!])+$")  # all but quotation marks
BEGINNING = re.compile(r"[\"“]?(?:[^\W\d_]|\[NAME\])")
END = re.compile(r"(?:\w|\[NAME\]|\([^()]+\))(?:[.!]?[\"”]?|[\"”][.!])$")
PAUSE = re.compile(r"(?<=\w)(?:\.{2,}|…)(?=\s)")
REPEATED = re.compile(r"[.!,;'’\-]{2,}|\s{2,}|\s[.,!;]|\.\w{2,}")
OPEN = ("noun", "verb", "adj", "adv")


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
        """For each sentence an original with "Jackie" for [NAME], or the first filter that it does not pass."""
        looked = [attempt(looks_suitable, one) for one in sentences]
        docs = iter(self.parser([one for one in looked if isinstance(one, str)]))
        found = [attempt(self._parsed, next(docs)) if isinstance(one, str) else one for one in looked]
        negated = iter(self.parser([one.negation.text for one in found if isinstance(one, Suitable)]))
        return [attempt(self._still, one, next(negated)) if isinstance(one, Suitable) else one for one in found]

    def _parsed(self, doc: Doc) -> Suitable:
        if (reason := self._unknown(doc)) is not None:
            raise UnsuitableError("words", reason)
        if (reason := self.language.ungrammatical(doc)) is not None:
            raise UnsuitableError("grammar", reason)
        main = self.language.statement(doc)
        following = doc[main.i + 1].text if main.i + 1 < len(doc) else "."
        speaker = main.i and doc[main.i - 1].lower_ in ("i", "you")
        if speaker and main.lemma_ in word_lists()["filler verb"] and following in ",.":
            raise UnsuitableError("main verb", "a filler such as 'I mean,'")
        return Suitable(doc.user_data["text"], doc, main, self.language.negate(main))

    def _unknown(self, doc: Doc) -> str | None:
        for token in doc:
            lower = token.lower_
            joined = token.i and not doc[token.i - 1].whitespace_  # spaCy parts "cant" as it does "can't"
            if lower in word_lists()["no apostrophe"] or (joined and lower in ("nt", "m", "re", "ve", "s", "ll")):
                return "a missing apostrophe"
            if lower in self.misspelled:
                return "a misspelled word"
            if token.text == lower and lower.isalpha() and self.language.part(token) and not self._is_known(token):
                return "an unknown word"
        return None

    def _is_known(self, token: Token) -> bool:
        lower = token.lower_
        return (
            lower in word_lists()["informal"]
            or lower in self.lexicon
            or self.language.is_word(lower)
            or token.lemma_ in self.lexicon
        )

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
    """The sentence without what stands around it, with a capital and "Jackie" for [NAME].

    Raises:
        UnsuitableError: by its length, marks or words it is no original.
    """
    sentence = _trimmed(sentence)
    for name, look in LOOKS.items():
        if (reason := look(sentence)) is not None:
            raise UnsuitableError(name, reason)
    text = sentence.replace(NAME, NAME_INSTEAD)
    return text[:1].upper() + text[1:]


def _trimmed(sentence: str) -> str:
    """Without what stands around it; quotation marks at an edge stay where there are others inside."""
    trimmed, bare = EDGES.sub("", sentence), BARE_EDGES.sub("", sentence)
    return bare if re.search('["“”]', trimmed) and not QUOTES.search(bare) else trimmed


def _length(sentence: str) -> str | None:
    number = sum(any(letter.isalnum() for letter in part) for part in sentence.split())
    if number < SHORTEST:
        return f"fewer than {SHORTEST} words"
    return f"more than {LONGEST} words" if number > LONGEST else None


def _question(sentence: str) -> str | None:
    return "a question" if "?" in sentence else None


def _names(sentence: str) -> str | None:
    return f"more than one {NAME}" if sentence.count(NAME) > 1 else None


def _ends(sentence: str) -> str | None:
    if not BEGINNING.match(sentence):
        return "no letter at its beginning"
    return None if END.search(sentence) else "no end of a sentence"


def _marks(sentence: str) -> str | None:
    plain = PAUSE.sub(",", sentence.replace(NAME, NAME_INSTEAD))
    if not PLAIN.fullmatch(plain):
        return "marks other than , . ! ' ; : & % $ - / ( ) and quotation marks"
    if QUOTES.search(plain):
        return "a quotation mark without its partner"
    if REPEATED.search(plain):
        return "repeated marks or a blank before one"
    if sum(word.isupper() and len(word) > 3 for word in plain.split()) > 1:
        return "words in capitals"
    return None


@cache
def _cursing() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(sorted(word_lists()['curse']))})\b", re.IGNORECASE)


LOOKS: dict[str, Callable[[str], str | None]] = {
    "length": _length,
    "question": _question,
    "names": _names,
    "whole sentence": _ends,
    "marks": _marks,
    "language": lambda sentence: "cursing" if _cursing().search(sentence) else None,
}
FILTERS = (*LOOKS, "words", "grammar", "statement", "main verb")
