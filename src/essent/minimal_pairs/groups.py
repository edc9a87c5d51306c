"""The group of auxiliaries and verb around a word, which is what "not" is put into or taken from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from essent.minimal_pairs.inflection import readings
from essent.minimal_pairs.tags import Tagged
from essent.types import InputError

FINITE = ("M", "B", "H", "D", "F")
BETWEEN = ("A", "X")  # what may stand between an auxiliary and its verb
PARTS_OF_GROUP = {"be", "been", "being", "have", "'ve"}  # auxiliaries that are not finite


class CannotNegateError(InputError):
    """A sentence that the rules leave alone; the message is the reason, the same for all sentences of a kind."""


@dataclass(frozen=True)
class Group:
    """Auxiliaries and verb that are negated together.

    Attributes:
        first: place of the word that carries tense, or of the bare verb.
        auxiliary: whether "not" follows that word; otherwise it needs do-support.
        verb: place of the verb with the meaning; `first` for a copula.
        negator: place of "not" or "n't", if there is one.
        imperative: whether the clause is one.
    """

    first: int
    auxiliary: bool
    verb: int
    negator: int | None = None
    imperative: bool = False


def is_nominal(tags: Sequence[Tagged], index: int) -> bool:
    """Whether what looks like a finite verb is a noun: "three *stops*", "that disgusting *act*", "some *shows* get"."""
    if tags[index].tag != "F":
        return False
    if index and (
        tags[index - 1].tag in ("Q", "DT", "J") or tags[index - 1].word.lower in ("much", "many", "few", "any")
    ):
        return True
    if index and tags[index - 1].word.lower in ("these", "those") and tags[index].form == "VBZ":  # those reams
        return True
    if index and tags[index - 1].word.lower in ("this", "that") and _is_bare_noun(tags, index):  # at that point
        return True
    next_is_finite = index + 1 < len(tags) and tags[index + 1].tag in FINITE
    after_subject = index and tags[index - 1].tag in ("PR", "W")  # all you need is
    return next_is_finite and not after_subject and any(one.pos == "noun" for one in readings(tags[index].word.lower))


def _is_bare_noun(tags: Sequence[Tagged], index: int) -> bool:
    """Whether a verb after "this" or "that" is a noun: in a form of the plural, before "of", after "at"."""
    lower = tags[index].word.lower
    if not any(one.pos == "noun" for one in readings(lower)):
        return False
    before = tags[index - 2] if index > 1 else None
    if before is not None and before.word.lower in ("at", "from", "in", "on", "with"):
        return True
    base = lower == tags[index].lemma and tags[index].form != "VBD"
    of = index + 1 < len(tags) and tags[index + 1].word.lower == "of"
    return (before is None or before.tag in ("U", "C", "I")) and (base or of)


def group_from(tags: Sequence[Tagged], first: int) -> Group:
    """The group that begins with a finite word."""
    tag = tags[first]
    rest = first + 1
    negator = None
    while rest < len(tags) and tags[rest].tag in BETWEEN:
        if tags[rest].tag == "X" and negator is None:
            negator = rest
        rest += 1
    following = tags[rest] if rest < len(tags) else None
    verb = rest if following is not None and following.tag in ("V", "E", "G", "F", "J", "H") else first
    joined = negator is not None and (negator == first + 1 or tags[negator].word.lower == "n't")
    if tag.tag in ("B", "M") or tag.word.lower.startswith("'"):  # clitics are auxiliaries
        auxiliary = True
    elif tag.tag == "H":
        better = following is not None and tags[first + 1].word.lower in ("better", "got")
        auxiliary = better or joined or _is_participle(tags, rest) or _is_participle(tags, first + 1)
    elif tag.tag == "D":
        alone = following is None or following.tag in ("U", "C")  # of course they do
        auxiliary = joined or alone or bool(following and following.tag == "V" and rest > first)
    else:
        return Group(first, False, first)
    if not auxiliary:
        return Group(first, False, first)
    return Group(first, True, _head(tags, verb), negator)


def _is_participle(tags: Sequence[Tagged], index: int) -> bool:
    """Whether a word after "have" is its participle, also where it was taken for something else: have *left*."""
    if index >= len(tags) or tags[index].tag not in ("E", "F", "J", "N", "A"):
        return False
    if tags[index].tag == "E":
        return True
    following = tags[index + 1].tag if index + 1 < len(tags) else "U"
    return following not in ("N", "J") and any(
        one.form == "VBN" and (tags[index].tag not in ("N", "A") or one.lemma != tags[index].word.lower)
        for one in readings(tags[index].word.lower)
    )


def _head(tags: Sequence[Tagged], verb: int) -> int:
    """From the first verb after the auxiliary to the one with the meaning: could have been *boosted*."""
    while tags[verb].word.lower in PARTS_OF_GROUP:
        after = verb + 1
        while after < len(tags) and tags[after].tag in BETWEEN:
            after += 1
        if after == len(tags) or tags[after].tag not in ("E", "G", "V", "F"):
            return verb
        verb = after
    return verb


def group_around(tags: Sequence[Tagged], verb: int) -> Group | None:
    """The finite group whose meaning is the verb at `verb`; None for an infinitive or participle on its own."""
    if tags[verb].tag == "F":
        return Group(verb, False, verb)
    index = verb - 1
    while index >= 0:
        word = tags[index]
        bare = word.word.lower == "have" and any(tag.tag == "M" for tag in tags[max(0, index - 3) : index])
        if word.tag in ("M", "B", "H", "D") and not bare:
            group = group_from(tags, index)
            return group if group.verb == verb and group.auxiliary else None
        if word.tag not in BETWEEN and word.word.lower not in PARTS_OF_GROUP:
            return None
        index -= 1
    return None
