"""What the words beside a verb or adjective allow in its place, as far as that can be listed.

A language model of a few layers does not know that nobody "thinks the man" or "completes with the work"; rules do.
"""

from __future__ import annotations

from collections.abc import Sequence

from essent.minimal_pairs.groups import FINITE
from essent.minimal_pairs.tags import Tagged

CLAUSAL = set("think realize hope wonder".split())  # I believe you, such nonsense: no "I think you"
NOT_CLAUSAL = set(
    "disbelieve ignore disregard distrust reject hide".split()
)  # I believe he left: no "I reject he left"
NOT_TO = set("let grant discontinue deny disallow reject".split())  # allow me to go: no "deny me to go"
SHOWN = set("present display exhibit reveal disclose".split())  # show us how: no "display us how"
OBJECT = set("conceal disguise smash present display exhibit complete".split())  # he hides: no "he conceals"
NO_OBJECT = set("refrain rely comment consent differ dissent abstain succeed triumph".split())
NO_GERUND = set("end conclude terminate avert".split())  # they started to clap, clapping: no "ended clapping"
OF_THINGS = set("tragic tragicomic".split())  # that is sad: tragic; I am sad: not
OF_PERSONS = set("glad grateful thankful".split())  # I am sad: glad; a sad story: not
EXTREME = set("huge massive enormous immense gigantic".split())  # big enough, very big: no "huge enough"
PERSONS = set("i you he she we they me him us them".split())
COMPLEMENTED = set("find consider call make keep leave".split())  # I find it funny: no "discover it funny"
SEPARABLE = set("up out off down over away back".split())  # laugh it off: no "giggle it off"
NOT_BEFORE_NOUNS = set("alike alive alone asleep awake afraid aware glad".split())  # similar cases: no "alike cases"
BEFORE_NOUNS = set("little particular ultimate actual real certain sheer utter very".split())  # not after "is"


def fits(tags: Sequence[Tagged], index: int, lemma: str) -> bool:
    """Whether a word takes what stands beside it, as far as that can be listed."""
    after = tags[index + 1 : index + 2]
    if lemma in BEFORE_NOUNS:
        return bool(after) and after[0].tag in ("N", "G")
    attributive = bool(index and after) and tags[index - 1].tag in ("DT", "J", "PO") and after[0].tag in ("N", "J", "G")
    if lemma in NOT_BEFORE_NOUNS and attributive:
        return False
    if lemma in NOT_TO and any(tag.tag == "TO" for tag in tags[index : index + 5]):
        return False
    if lemma in SHOWN and (any(asks(tag) for tag in tags[index + 1 : index + 4]) or (after and after[0].tag == "PO")):
        return False
    noun = bool(after) and (after[0].tag in ("DT", "N", "J", "PO", "Q") or after[0].word.lower in ("you", "it", "such"))
    if lemma in CLAUSAL and noun and not _takes_clause(tags, index):
        return False
    if lemma in NOT_CLAUSAL and (not noun or _takes_clause(tags, index)):
        return False
    if lemma in OBJECT and not noun:
        return False
    if (lemma in NO_OBJECT and noun) or (lemma in NO_GERUND and after and after[0].tag == "G"):
        return False
    if lemma in OF_THINGS | OF_PERSONS and (lemma in OF_THINGS) == _of_a_person(tags, index):
        return False
    next_word = after[0].word.lower if after else ""
    if (lemma in EXTREME and next_word == "enough") or (lemma == "discover" and after and after[0].tag == "PO"):  # him
        return False
    before = tags[index - 1].lemma if index else ""
    return not (lemma == "incorrect" and before in ("do", "go", "get", "doing", "going"))


def _of_a_person(tags: Sequence[Tagged], index: int) -> bool:
    """Whether a pronoun for a person, or a name, stands before an adjective."""
    before = tags[max(0, index - 5) : index]
    return any(tag.word.lower in PERSONS or (tag.tag == "N" and tag.word.text[0].isupper()) for tag in before)


def has_complement(tags: Sequence[Tagged], index: int) -> bool:
    """ "I find it funny", "laugh the whole thing off": what comes after the verb's object belongs to its meaning."""
    place = index + 1
    while place < len(tags) and place < index + 6 and tags[place].tag in ("PO", "PR", "DT", "J", "N", "A"):
        here, after = tags[place], tags[place + 1] if place + 1 < len(tags) else None
        ends = after is None or after.tag not in ("N", "J", "DT", "PO", "G", "Q")
        if place > index + 1 and ends and here.word.lower in SEPARABLE:
            return True
        if place > index + 1 and ends and here.tag == "J" and tags[index].lemma in COMPLEMENTED:
            return True
        place += 1
    if place == index + 1 or place >= len(tags):
        return False
    if tags[place].word.lower == "as" and tags[index].lemma in COMPLEMENTED:
        return True
    if tags[place].word.lower not in SEPARABLE:
        return False
    return place + 1 == len(tags) or tags[place + 1].tag not in ("DT", "N", "PO", "Q")


def _takes_clause(tags: Sequence[Tagged], index: int) -> bool:
    """Whether a clause with a finite verb of its own follows the verb: "I believe (that) the dog was here"."""
    for number, tag in enumerate(tags[index + 1 : index + 8]):
        if number == 0 and tag.tag in ("W", "S"):
            return True
        if tag.tag in ("U", "C", "P", "TO"):
            return False
        if number and tag.tag in FINITE:
            return True
    return False


def asks(tag: Tagged) -> bool:
    """ "What", "how": not sure what it is."""
    return tag.tag == "W" and tag.word.lower != "that"
