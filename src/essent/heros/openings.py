"""Where the main clause of a sentence begins: after conjunctions, interjections, and a clause or phrase before it."""

from __future__ import annotations

from collections.abc import Sequence

from essent.heros.groups import FINITE, CannotNegateError
from essent.heros.tags import Tagged

OPENING = ("I", "U", "C", "A")
SUBORDINATE = set("because if although unless whereas whether while when whenever since as cuz cause 'cause".split())


def clause_start(tags: Sequence[Tagged]) -> int:
    """Where the main clause may begin: after conjunctions, adverbs, interjections, and after a clause and its comma."""
    start = 0
    while start < len(tags) and opens_sentence(tags[start]):
        start += 1
    if start == len(tags):
        raise CannotNegateError("no main verb")
    lower = tags[start].word.lower
    as_long_as = lower == "as" and tags[start + 1 : start + 2] and tags[start + 1].word.lower in ("long", "soon", "far")
    if as_long_as or (tags[start].tag in ("S", "W") and lower in SUBORDINATE):
        for index in range(start + 1, len(tags)):
            if tags[index].word.lower == "," and any(tag.tag in FINITE for tag in tags[start:index]):
                after = index + 1
                while after < len(tags) and tags[after].tag in OPENING:
                    after += 1
                if after < len(tags) and tags[after].tag not in ("S", "W", "P"):
                    return after
        raise CannotNegateError("a subordinate clause without an end")
    if tags[start].tag == "W" and start + 1 < len(tags) and tags[start + 1].tag in FINITE:
        raise CannotNegateError("a question")
    return start


def opens_sentence(tag: Tagged) -> bool:
    return (tag.tag in OPENING and tag.word.lower not in ("here", "there")) or tag.word.lower == "so"
