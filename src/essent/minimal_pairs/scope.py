"""What stands in the clause of a verb: other negations, and words that want one."""

from __future__ import annotations

from collections.abc import Sequence

from essent.minimal_pairs.groups import BETWEEN, FINITE, CannotNegateError, Group, is_nominal
from essent.minimal_pairs.openings import clause_start
from essent.minimal_pairs.tags import Tagged

NEGATIVE_SUBJECTS = set("no nothing nobody none noone neither".split())
NEGATIVE_ADVERBS = set("never nowhere hardly barely scarcely rarely seldom".split())
ALREADY = NEGATIVE_SUBJECTS | NEGATIVE_ADVERBS | {"nor"}
POLARITY = set("any anything anyone anybody anymore anywhere ever yet either".split())  # want a negation before them
PHRASE = ("A", "J", "N", "Q", "P")  # what may stand between a negative subject and its verb


def check_negatives(tags: Sequence[Tagged], group: Group) -> None:
    """Refuse a verb in whose clause another word negates: "I have no idea", but not "I hope that it never rains"."""
    for index, tag in enumerate(tags):
        lower = tag.word.lower
        if lower == "not" and index < group.first and not _is_apart(tags, group, index):
            raise CannotNegateError("negated by 'not'")  # not one of them is
        if lower not in ALREADY or _is_interjection(tags, index):
            continue
        outside = _is_after(tags, group, index) if index > group.first else _is_before(tags, group, index)
        if not outside:
            raise CannotNegateError(f"negated by {lower!r}")


def check_polarity(tags: Sequence[Tagged], negator: int) -> None:
    """Refuse to take "not" from a clause with a word that needs it, such as "any"; a clause after it is another."""
    for index in range(negator + 1, len(tags)):
        lower = tags[index].word.lower
        if lower not in POLARITY:
            continue
        marks = (
            place
            for place in range(negator + 1, index)
            if tags[place].tag in ("C", "U") and tags[place].word.lower != "or"
        )
        if not any(_has_verb(tags, place, index) for place in marks):
            raise CannotNegateError(f"{lower!r} wants its negation")


def _is_apart(tags: Sequence[Tagged], group: Group, index: int) -> bool:
    """Whether a "not" before the verb has one of its own, or a comma or "but" after it: "Not me, but he does"."""
    before = index - 1
    while before >= 0 and tags[before].tag in BETWEEN:
        before -= 1
    if (before >= 0 and tags[before].tag in FINITE) or tags[index + 1].tag in ("TO", "G"):
        return True
    return any(tag.word.lower in (",", "but") for tag in tags[index : group.first])


def _is_interjection(tags: Sequence[Tagged], index: int) -> bool:
    """ "No, it is", "oh no that's bad", "they said no."."""
    if tags[index].word.lower != "no":
        return False
    if index + 1 == len(tags):
        return True
    after = tags[index + 1]
    return after.tag in ("U", "C", "I") or (after.tag == "PR" and after.word.lower not in ("one", "more"))


def _is_before(tags: Sequence[Tagged], group: Group, index: int) -> bool:
    """Whether a word stands in a clause or phrase that is over before the main clause: "If nobody calls, I will"."""
    try:
        start = clause_start(tags)
    except CannotNegateError:
        return False
    if index < start:
        return start <= group.first and any(tag.tag in FINITE for tag in tags[:start])
    after = tags[index + 1 : index + 4]  # no offense, but
    is_phrase = len(after) == 3 and after[0].tag == "N" and [tag.word.lower for tag in after[1:]] == [",", "but"]
    return index == start and is_phrase


def _is_after(tags: Sequence[Tagged], group: Group, index: int) -> bool:
    """Whether a word belongs to a later verb than the group's: that verb stands before it, or it to its subject."""
    if any(_is_verb(tags, place) for place in range(group.verb + 1, index)):
        return True
    lower, after = tags[index].word.lower, index + 1
    if lower in NEGATIVE_ADVERBS or (lower == "no" and after < len(tags) and tags[after].word.lower == "longer"):
        before = index - 1
        while before > group.verb and tags[before].tag in BETWEEN:
            before -= 1
        while after < len(tags) and tags[after].tag in BETWEEN:
            after += 1
        has_subject = before > group.verb and tags[before].tag in ("PR", "N", "W", "C")
        return has_subject and after < len(tags) and tags[after].tag in FINITE and not is_nominal(tags, after)
    return lower in NEGATIVE_SUBJECTS and _is_later_subject(tags, index)


def _is_later_subject(tags: Sequence[Tagged], index: int) -> bool:
    """ "I love how *nobody else* replied", "It assumed that *no sane person* would"."""
    after = index + 1
    while after < len(tags) and (tags[after].tag in PHRASE or tags[after].word.lower in ("one", "else", "of")):
        after += 1
    if after == index + 1 and tags[index].word.lower == "no":
        return False
    return after < len(tags) and tags[after].tag in FINITE and not is_nominal(tags, after)


def _has_verb(tags: Sequence[Tagged], start: int, index: int) -> bool:
    """Whether a main clause that begins after the mark or conjunction at `start` holds the word at `index`."""
    if start + 1 < len(tags) and tags[start + 1].tag in ("S", "W"):
        return False
    if any(_is_verb(tags, place) and tags[place - 1].tag in ("PR", "N", "A") for place in range(start + 1, index)):
        return True
    return any(tags[place].tag == "C" for place in (start, start + 1)) and _is_later_subject(tags, index)


def _is_verb(tags: Sequence[Tagged], index: int) -> bool:
    """Whether a finite word has a subject before it, or shares that of the verb before."""
    if tags[index].tag not in FINITE or is_nominal(tags, index):
        return False
    if tags[index].tag != "F":
        return tags[index].word.lower != "'s" or tags[index - 1].tag != "N"
    before = index - 1
    while before and tags[before].tag in BETWEEN:
        before -= 1
    return tags[before].tag in ("PR", "W", "C") or (
        tags[before].tag == "N" and (tags[before].form == "NNS") == (tags[index].form != "VBZ")
    )
