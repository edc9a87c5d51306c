"""Which sentences are suitable originals, and why the others are not (HEROS, section 2.2.1 and Appendix A.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import pairwise

from essent.minimal_pairs.clauses import main_group
from essent.minimal_pairs.function_words import TABLE
from essent.minimal_pairs.groups import CannotNegateError, Group
from essent.minimal_pairs.inflection import readings, singular
from essent.minimal_pairs.negation import Negation, Style, negate_group
from essent.minimal_pairs.tags import Tagged, Tagger, tag_words
from essent.minimal_pairs.words import CLITICS, Word, count_words, split_words, wrong_articles
from essent.types import InputError

SHORTEST, LONGEST = 8, 25  # words
NAME, NAME_INSTEAD = "[NAME]", "Jackie"  # Appendix A.1
PLAIN = re.compile(r"[A-Za-z0-9 ,.…!'’;&%$()/:+\-\"“”]+")
QUOTES = re.compile(r"\"\"|^[^\"]*(?:\"[^\"]*\"[^\"]*)*\"[^\"]*$|“[^”]*$|^[^“]*”")  # doubled, or without their partner
FACES = r"(?<=[\s.!])(?:[:;=]-?[)D(/]|<3)"
EDGES = re.compile(rf"^[\"“”'*>~_\s]+|(?:[^\w.!?,:;)\]]|{FACES}|(?<=[.!])[.!])+$")  # quotation marks, emphasis, emoji
BARE_EDGES = re.compile(rf"^[*>~_\s]+|(?:[^\"“”\w.!?,:;)\]]|{FACES}|(?<=[.!])[.!])+$")  # all but quotation marks
BEGINNING = re.compile(r"[\"“]?(?:[A-Za-z]|\[NAME\])")
END = re.compile(r"(?:[A-Za-z0-9]|\[NAME\]|\([^()]+\))(?:[.!]?[\"”]?|[\"”][.!])$")
PAUSE = re.compile(r"(?<=\w)(?:\.{2,}|…)(?=\s)")
REPEATED = re.compile(r"[.!,;'’\-]{2,}|\s{2,}|\s[.,!;]|\.\w{2,}")
CURSES = re.compile(
    r"\b(?:\w*f+u+c+k\w*|\w*shit\w*|\w*bitch\w*|\w*cunt\w*|ass|\w*asshole\w*|\w*bastard\w*|dick\w*|piss\w*|damn\w*|"
    r"crap\w*|slut\w*|whore\w*|fag\w*|nigg\w*|retard\w*|porn\w*|rap(?:e|ed|es|ing|ist)s?|sex\w*|cock\w*|puss(?:y|ies)|"
    r"wank\w*|twat\w*|idiots?|morons?|nazis?|hell|frick\w*|kill yourself|suicid\w*)\b",
    re.IGNORECASE,
)
FILLER_VERBS = ("mean", "guess", "know", "think", "say", "swear", "suppose", "bet")
POSITIVE = ("pretty", "already", "rather", "only", "even", "almost", "kinda", "too")
NO_APOSTROPHE = set(
    "im ive dont cant wont didnt doesnt isnt wasnt arent thats youre theyre hes shes theres whats".split()
)
INFORMAL = set(  # of what people write, in no lexicon
    "kinda info pics pic vid app apps bro bros tv website websites podcast screenshot username karma cop cops "
    "tbh legit lmao hella stats gif youtube instagram facebook twitter crypto calories gamers casinos euros meds merch "
    "downvoting upvoting texted texting gaming streamer streamers "
    "lol reddit subreddit subreddits upvote upvotes upvoted downvote downvotes downvoted repost mod mods "
    "etc meme memes gonna vs btw ads mic bio promo vids username usernames gameplay playlist videogame videogames "
    "iphone photoshop selfie selfies wiki rehab cgi bbq dlc collab gosh geez dunno goodnight congrats backstory "
    "meetup prequel offseason playthrough cryptocurrency brexit overthinking snarky cringy cringey giggly whilst "
    "amidst whomever themself badass barista carpool backflips veggies millennia redditor redditors".split()
)
AGREEMENT = {
    "i": ("is", "are", "were", "has", "does", "'s", "'re"),
    "you": ("am", "is", "was", "has", "does", "'s"),
    "we": ("am", "is", "was", "has", "does", "'s"),
    "they": ("am", "is", "was", "has", "does", "'s"),
    "he": ("am", "are", "were", "have", "do", "'re", "'m"),
    "she": ("am", "are", "were", "have", "do", "'re", "'m"),
    "it": ("am", "are", "were", "have", "do", "'re", "'m"),
}


@dataclass(frozen=True)
class Suitable:
    """An original: its words with tags, and the negation of its main verb."""

    text: str
    tags: tuple[Tagged, ...]
    main: Group
    negation: Negation


class UnsuitableError(InputError):
    """Why a sentence is left out: the filter and the reason."""

    def __init__(self, filter: str, reason: str) -> None:
        super().__init__(reason)
        self.filter, self.reason = filter, reason


@dataclass(frozen=True)
class Filters:
    """What sentences are asked for.

    Attributes:
        shortest, longest: words between blanks.
        misspelled: words that are known to be wrong.
        lexicon: lower-case words that are known besides those of LemmInflect.
        tagger: words to tagged words; by default the rules'.
    """

    shortest: int = SHORTEST
    longest: int = LONGEST
    misspelled: frozenset[str] = frozenset()
    lexicon: Container[str] = frozenset()
    tagger: Tagger = tag_words

    def check(self, sentence: str) -> Suitable:
        """The sentence with "Jackie" for [NAME] and a capital at its beginning, tagged.

        Raises:
            UnsuitableError: the first filter that it does not pass.
        """
        sentence = _trimmed(sentence)
        for name, filter in LOOKS.items():
            if (reason := filter(self, sentence)) is not None:
                raise UnsuitableError(name, reason)
        text = sentence.replace(NAME, NAME_INSTEAD)
        text = text[:1].upper() + text[1:]
        words = split_words(text)
        if (reason := self._unknown(words)) is not None:
            raise UnsuitableError("words", reason)
        tags = tuple(self.tagger(words))
        if (reason := ungrammatical(words)) is not None:
            raise UnsuitableError("grammar", reason)
        if wrong_articles(text):
            raise UnsuitableError("grammar", "a or an before the wrong sound")
        main, negation = self._negate(text, tags)
        return Suitable(text, tags, main, negation)

    def _unknown(self, words: Sequence[Word]) -> str | None:
        for word in words:
            if word.lower in NO_APOSTROPHE:
                return "a missing apostrophe"
            if word.lower in self.misspelled:
                return "a misspelled word"
            if word.text[0].islower() and word.lower.isalpha() and not self._is_known(word):
                return "an unknown word"
        return None

    def _is_known(self, word: Word) -> bool:
        lower = word.lower
        listed = lower in TABLE or lower in CLITICS or lower in INFORMAL or lower in self.lexicon
        return listed or bool(readings(lower)) or singular(lower) in self.lexicon

    def _negate(self, text: str, tags: Sequence[Tagged]) -> tuple[Group, Negation]:
        """The negation of the main verb, and that negating again gives the sentence back."""
        try:
            main = main_group(tags)
            negation = negate_group(text, tags, main, Style())
        except CannotNegateError as error:
            raise UnsuitableError("main verb", str(error)) from None
        if main.imperative:
            raise UnsuitableError("main verb", "an imperative")
        if (reason := _unfit(tags, main)) is not None:
            raise UnsuitableError("main verb", reason)
        if (reason := ungrammatical(split_words(negation.text))) is not None:
            raise UnsuitableError("main verb", reason)
        try:
            again = self.tagger(split_words(negation.text))
            back = negate_group(negation.text, again, main_group(again), negation.back).text
        except CannotNegateError:
            back = ""
        if back != text:
            raise UnsuitableError("main verb", "its negation cannot be taken back")
        return main, negation


def _unfit(tags: Sequence[Tagged], main: Group) -> str | None:
    """Main verbs that are no statement, or that "not" would not negate."""
    after = tags[main.verb + 1 : main.verb + 2]
    if tags[main.verb].lemma in FILLER_VERBS and after and after[0].word.lower in (",", "."):
        return "a filler such as 'I mean,'"
    if main.negator is None:
        place = main.first + 1 if main.auxiliary else main.first - 1
        adverb = tags[place].word.lower if 0 <= place < len(tags) else ""
        if adverb in POSITIVE and not (main.auxiliary and adverb in ("too", "already")):  # it's not too cold
            return "an adverb that does not go with 'not'"
    return None


def ungrammatical(words: Sequence[Word]) -> str | None:
    """A sign of bad grammar that needs no parser, or None: the stand-in for the paper's language-tool."""
    for before, word in pairwise(words):
        if before.lower == word.lower and word.lower.isalpha() and word.lower not in ("that", "had", "very", "so"):
            return "a doubled word"
        if word.lower in AGREEMENT.get(before.lower, ()):
            return "no agreement of subject and verb"
        if before.lower in ("a", "an") and word.lower in ("a", "an", "the", ".", ",", "!"):
            return "an article without a noun"
        if before.lower in ("do", "does", "did", "not") and word.lower in ("is", "am", "are", "was", "were"):
            return "no agreement of subject and verb"
    for first, second, third in zip(words, words[1:], words[2:], strict=False):
        if (second.lower, third.lower) in (("not", "not"), ("n't", "not")) or first.lower == second.lower == "not":
            return "a doubled word"
    if words and words[0].text == "i":
        return "a small letter"
    return "a small letter" if any(word.text == "i" for word in words) else None


def _trimmed(sentence: str) -> str:
    """Without what stands around it; quotation marks at an edge stay where there are others inside."""
    trimmed, bare = EDGES.sub("", sentence), BARE_EDGES.sub("", sentence)
    return bare if re.search('["“”]', trimmed) and not QUOTES.search(bare) else trimmed


Look = Callable[[Filters, str], "str | None"]


def _length(filters: Filters, sentence: str) -> str | None:
    number = count_words(sentence)
    if number < filters.shortest:
        return f"fewer than {filters.shortest} words"
    return f"more than {filters.longest} words" if number > filters.longest else None


def _question(_: Filters, sentence: str) -> str | None:
    return "a question" if "?" in sentence else None


def _names(_: Filters, sentence: str) -> str | None:
    return f"more than one {NAME}" if sentence.count(NAME) > 1 else None


def _ends(_: Filters, sentence: str) -> str | None:
    if not BEGINNING.match(sentence):
        return "no letter at its beginning"
    return None if END.search(sentence) else "no end of a sentence"


def _marks(_: Filters, sentence: str) -> str | None:
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


def _curses(_: Filters, sentence: str) -> str | None:
    return "cursing" if CURSES.search(sentence) else None


LOOKS: dict[str, Look] = {
    "length": _length,
    "question": _question,
    "names": _names,
    "whole sentence": _ends,
    "marks": _marks,
    "language": _curses,
}
FILTERS = (*LOOKS, "words", "grammar", "main verb")
