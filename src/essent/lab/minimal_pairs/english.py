"""English on a dependency tree: what is a statement, which words may be replaced, what agrees with what."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from essent.lab.minimal_pairs.negation import carrier, negate_adjective, negate_verb, subject
from essent.lab.minimal_pairs.parsing import (
    UPOS,
    Doc,
    Edit,
    Negation,
    Token,
    UnsuitableError,
    apply_edits,
    article,
    lemmas,
    like_case,
    word_lists,
)

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


def statement(doc: Doc) -> Token:
    """The main verb of a declarative sentence: the root of its parse, with a subject before its finite verb.

    Raises:
        UnsuitableError: a question, a title, a fragment; the reason.
    """
    roots = [token for token in doc if token.dep_ == "ROOT" and (token.is_alpha or carrier(token) is not None)]
    if not roots:
        raise UnsuitableError("statement", "no words")
    main = next((root for root in roots if carrier(root) is not None and subject(root) is not None), roots[0])
    if (reason := next((reason for reason, applies in FAULTS.items() if applies(main)), None)) is not None:
        raise UnsuitableError("statement", reason)
    return main


def negate(token: Token) -> Negation:
    """The sentence with a verb or adjective negated, or with its negation taken.

    Raises:
        UnsuitableError: the rules leave it alone; the reason.
    """
    if token.tag_.startswith("JJ"):
        return negate_adjective(token)
    if not token.tag_.startswith(("VB", "MD")):
        raise UnsuitableError("main verb", "neither a verb nor an adjective")
    return negate_verb(token)


def replaceable(doc: Doc) -> list[Token]:
    """Verbs and adjectives with a meaning of their own in the sentence."""
    return [token for token in doc if _has_a_meaning(token) and _stands_alone(token)]


def _has_a_meaning(token: Token) -> bool:
    lower = token.lower_
    named = token.text != lower and token.i > 0
    if token.tag_[:2] not in ("VB", "JJ") or named or not lower.isalpha() or len(lower) < 3:
        return False
    lemma = next(iter(lemmas(lower, token.tag_)), None)
    return lemma is not None and lemma not in word_lists()["light"]


def part_of_speech(token: Token) -> str:
    """As WordNet says it: "verb", "adj", "noun" or "adv"; "" for another."""
    return UPOS.get(token.tag_[:1], "").lower()


def fits(token: Token, frames: set[int]) -> bool:
    """Whether a word that stands in these sentence frames of WordNet takes what stands beside the token."""
    return not frames or token.tag_.startswith("JJ") or any(frames & FRAMES[need] for need in _needs(token))


def replace_word(token: Token, new: str) -> str:
    """The sentence with another word in the place of one, in its capitals, with the a or an that goes with it."""
    edits = [Edit(token.idx, token.idx + len(token), like_case(new, token.text))]
    before = token.doc[token.i - 1] if token.i else token
    if before.lower_ in ("a", "an") and article(token.lower_) == before.lower_ != article(new):
        edits.append(Edit(before.idx, before.idx + len(before), like_case(article(new), before.text[:1])))
    return apply_edits(str(token.doc.user_data["text"]), edits)


def ungrammatical(doc: Doc) -> str | None:
    """A doubled word, or a wrong a or an: the stand-in for the paper's language-tool; None without such a sign."""
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
    return late or any(child.lower_ in QUESTION or child.dep_ == "mark" for child in main.lefts)


def _reports(main: Token) -> bool:
    """Whether the root says only who says what is before it: "It works, he said yesterday", "It works, I am sure"."""
    its_subject, sure = subject(main), [child for child in main.rights if child.lower_ in ("sure", "afraid")]
    beside = {child.dep_ for child in main.rights if child not in sure}
    if its_subject is None or beside & {"dobj", "acomp", "attr", "ccomp", "xcomp"}:
        return False
    before = any(
        child.dep_ == "ccomp" and child.i < its_subject.i and carrier(child) is not None for child in main.lefts
    )
    return before and (main.pos_ == "VERB" or bool(sure))


def _is_title(main: Token) -> bool:
    words = [word for word in main.doc[1:] if word.is_alpha and len(word) > 3]
    return len(words) > 3 and sum(word.text[0].isupper() for word in words) > len(words) / 2


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
    if after in WITH_MORE or any(child.lower_ in WITH_MORE for child in token.children):
        return False
    if token.dep_ == "acomp":
        return bool(token.head.lemma_ != "make")
    return bool(token.dep_ == "amod" and token.head.i > token.i and token.head.tag_ not in ("CD", "RB"))


def _verb_stands_alone(token: Token) -> bool:
    """Whether a verb is no auxiliary or modifier, and has no particle, complement or auxiliary that it needs."""
    if token.dep_ in ("aux", "auxpass", "amod", "compound", "prep"):
        return False
    beside = {child.dep_ for child in token.children}
    small = any(child.dep_ == "ccomp" and carrier(child) is None for child in token.children)  # I find it funny
    idiom = {child.lower_ for child in token.children} & {*IDIOMS.get(token.lemma_, ())}
    if small or idiom or beside & {*IN_A_PHRASE}:
        return False
    return token.tag_ != "VBN" or token.dep_ == "conj" or bool(beside & {"aux", "auxpass"})


def _needs(verb: Token) -> tuple[str, ...]:
    """What a verb has beside it, of which a replacement must take one."""
    kinds = {child.dep_ for child in verb.children}
    if "ccomp" in kinds:
        return ("clause",)
    if (complement := next((child for child in verb.children if child.dep_ == "xcomp"), None)) is not None:
        return ("gerund",) if complement.tag_ == "VBG" else ("to",)
    if kinds & {"dobj", "nsubjpass"}:
        return ("object",)
    gap = verb.dep_ in ("relcl", "xcomp", "acl") or verb.head.dep_ in ("relcl", "xcomp")  # the book that I read
    return ("object", "nothing") if gap else ("nothing",)
