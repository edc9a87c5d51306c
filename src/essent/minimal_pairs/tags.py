"""A rule tagger: what each word can be, and the likeliest row of tags by a small table of what follows what.

It needs no model and no parser. Readings of open words come from LemmInflect, their odds from WordNet's counts of
tagged senses where those are at hand. It is right often enough to build pairs from sentences that can be chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from essent.minimal_pairs.function_words import TABLE
from essent.minimal_pairs.inflection import Reading, readings
from essent.minimal_pairs.words import Word

Counts = Callable[[str, str], float]  # lemma and part of speech ("verb", "adj", "noun", "adv") -> tagged senses

# After a tag: tags that follow freely | that follow sometimes. What is not listed costs RARE.
FOLLOWS = {
    "START": "PR DT N I A C S W J V D | P G Q M B E U F H",
    "DT": "N J | A E G Q U DT",
    "J": "N U C P TO S W | J A PR DT I V",
    "N": "F B M H D P C U S W | A N TO G E PR J I X",
    "PR": "F B M H D U | A C P S W TO V J X E",
    "PO": "P TO U C A S W | V J G N DT PR E",
    "P": "DT N PR PO J G Q | W A P",
    "TO": "V K | X DT N PO PR J G",
    "M": "V Y K | PR U H",
    "B": "J E G DT N P L X W | PR TO Q U S PO C",
    "H": "E X L DT N J TO | PO PR Q P",
    "D": "V Y K PR | DT PO N W U",
    "Y": "V K | U",
    "L": "J E G DT L P X C U TO N | PR S W Q PO A",
    "K": "V K | U E",
    "X": "V J E G DT A N P TO | Q PR W U",
    "F": "DT PR PO N P J A TO W S U G | C Q E X V B M",
    "V": "DT PR PO N P J A TO W S U G | C Q E X V",
    "G": "DT PR PO N P J A TO W S U | C Q E X",
    "E": "P TO A U DT C S W PR PO | N J Q G V",
    "A": "J A F G P PR U C B M H D | V E DT S W N TO X Q PO",
    "C": "PR DT N J A V F G E W P S | B M H D Q I X PO TO",
    "S": "PR DT N J | A P G Q E W U F C TO",
    "W": "PR DT N B M H D F A J TO | G Q P V C U",
    "U": "PR DT N J A C S W P G F B M H D V E I Q TO X U PO |",
    "I": "U I | PR DT N A C S W V J P F",
    "Q": "N J U | P C A S B F M H D TO Q W PR",
}
FREE, SOMETIMES, RARE = 0.0, 1.6, 5.0
PROSE = {"noun": 0.8, "verb": 0.6, "adj": 0.85, "adv": 1.0}  # odds of readings that nothing was counted for
SINGULAR = ("this", "that", "a", "an", "every", "each")
VARIANTS = {
    "Y": "X",
    "K": "A",
    "L": "A",
}  # tags within the search: another tag, where what comes before decides what follows
POS_OF = {"N": "noun", "J": "adj", "A": "adv", "V": "verb", "F": "verb", "G": "verb", "E": "verb"}


def _costs() -> dict[str, dict[str, float]]:
    table = {}
    for tag, line in FOLLOWS.items():
        free, sometimes = (part.split() for part in line.split("|"))
        table[tag] = {**dict.fromkeys(sometimes, SOMETIMES), **dict.fromkeys(free, FREE)}
    return table


COSTS = _costs()


class Tagged(NamedTuple):
    """A word with its tag; `lemma` and `form` (VBZ, VBD, JJR …) where it is an open word; `known` to a lexicon.

    `root` says whether a parser found it to be the verb of the main clause with a subject; None when nobody parsed.
    """

    word: Word
    tag: str
    lemma: str
    form: str
    known: bool
    root: bool | None = None


Tagger = Callable[[Sequence[Word]], list[Tagged]]  # `tag_words` or a `essent.minimal_pairs.SpacyTagger`


def tag_words(words: Sequence[Word], counts: Counts | None = None) -> list[Tagged]:
    """The likeliest tags of a sentence, by Viterbi's algorithm over `FOLLOWS`."""
    if not words:
        return []
    choices = [_choices(word, number == 0, counts) for number, word in enumerate(words)]
    for article, readable in zip(words, choices[1:], strict=False):
        noun = readable["N"][1] if "N" in readable else None
        if article.lower in SINGULAR and noun is not None and noun.form == "NNS" and len(readable) > 1:
            del readable["N"]  # this looks: no plural noun
    for number in range(1, len(words)):
        if words[number].lower == "like" and _follows_subject(words, number):
            del choices[number]["P"]
    best: list[dict[str, tuple[float, str]]] = []
    before: dict[str, tuple[float, str]] = {"START": (0.0, "")}
    for options in choices:
        step = {}
        for tag, (cost, _) in options.items():
            paths = [(total + COSTS[last].get(tag, RARE), last) for last, (total, _) in before.items()]
            total, last = min(paths)
            step[tag] = (total + cost, last)
        best.append(step)
        before = step
    tag = min(before, key=lambda one: (before[one][0], one))
    found: list[Tagged] = []
    for word, options, step in zip(reversed(words), reversed(choices), reversed(best), strict=True):
        reading = options[tag][1]
        lemma, form = (reading.lemma, reading.form) if reading else (word.lower, "")
        found.append(
            Tagged(word, VARIANTS.get(tag, tag), lemma, form, bool(reading) or tag != "N" or word.lower in TABLE)
        )
        tag = step[tag][1]
    return found[::-1]


def _follows_subject(words: Sequence[Word], index: int) -> bool:
    """Whether nothing but adverbs stands between a word and I, you, we or they: I quite *like*."""
    before = index - 1
    while before and TABLE.get(words[before].lower, ("",))[0] == "A":
        before -= 1
    return words[before].lower in ("i", "we", "they") or (before < index - 1 and words[before].lower == "you")


def _choices(word: Word, first: bool, counts: Counts | None) -> dict[str, tuple[float, Reading | None]]:
    """Tags that a word can have, each with its cost and the reading of an open word."""
    lower = word.lower
    if not any(letter.isalnum() for letter in lower) and lower != "&":
        return {"U": (0.0, None)}
    if lower[0].isdigit():
        return {"Q": (0.0, None)}
    if lower == "'s":
        return {"B": (0.0, None), "DT": (1.0, None)}  # it is; the possessive
    if lower in ("not", "n't"):
        return {"X": (0.0, None), "Y": (0.0, None)}  # Y: after do and modals, where a bare verb follows
    if lower in TABLE:
        listed = {tag: (0.3 * rank, _listed(lower, tag)) for rank, tag in enumerate(TABLE[lower])}
        return _with_variant(listed)
    capital = word.text[0].isupper()
    found: dict[str, tuple[float, Reading | None]] = {}
    odds: dict[str, tuple[float, Reading]] = {}
    for reading in readings(lower):
        weight = _odds(reading, counts)
        for tag in reading.tags:
            if tag not in odds or weight > odds[tag][0]:
                odds[tag] = (weight, reading)
    total = sum({reading.pos: weight for weight, reading in odds.values()}.values()) or 1.0
    for tag, (weight, reading) in odds.items():
        found[tag] = (-math.log(weight / total), reading)
    if not found or (capital and not first):
        found["N"] = (0.0, None) if not found or capital else found["N"]
    return _with_variant(found)


def _with_variant(choices: dict[str, tuple[float, Reading | None]]) -> dict[str, tuple[float, Reading | None]]:
    """K is an adverb after do, a modal or "to", where a bare verb follows; L one after be or have."""
    return {**choices, "K": choices["A"], "L": choices["A"]} if "A" in choices else choices


def _odds(reading: Reading, counts: Counts | None) -> float:
    counted = counts(reading.lemma, reading.pos) if counts is not None else 0.0
    return counted + PROSE[reading.pos]


def _listed(lower: str, tag: str) -> Reading | None:
    """The reading of a listed word that is open too, such as "need" or "like"."""
    if tag not in POS_OF:
        return None
    return next((one for one in readings(lower) if tag in one.tags), None)
