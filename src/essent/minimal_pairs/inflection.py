"""Lemmas and inflected forms of English, from LemmInflect."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

from essent.types import optional_import

PARTS = {"NOUN": "noun", "VERB": "verb", "ADJ": "adj", "ADV": "adv"}
# LemmInflect's form -> the tags of `closed` that it can be
TAGS = {
    "VB": ("V",),
    "VBP": ("F",),
    "VBZ": ("F",),
    "VBD": ("F",),
    "VBG": ("G",),
    "VBN": ("E",),
    "JJ": ("J",),
    "JJR": ("J",),
    "JJS": ("J",),
    "NN": ("N",),
    "NNS": ("N",),
    "RB": ("A",),
    "RBR": ("A",),
    "RBS": ("A",),
}
PREFERRED = {  # where LemmInflect's first form is not the usual one
    ("get", "VBN"): "gotten",
    ("wake", "VBD"): "woke",
    ("show", "VBN"): "shown",
    ("prove", "VBN"): "proven",
    ("hang", "VBD"): "hung",
    ("shine", "VBD"): "shone",
    ("speed", "VBD"): "sped",
    ("leave", "VBD"): "left",
}


class Reading(NamedTuple):
    """What an open word can be: its lemma, part of speech, form, and the tags that this form may have."""

    lemma: str
    pos: str
    form: str
    tags: tuple[str, ...]


def library() -> ModuleType:
    """LemmInflect, or what to install."""
    return optional_import("lemminflect", "heros")


@lru_cache(maxsize=50_000)
def readings(word: str) -> tuple[Reading, ...]:
    """Every reading of a lower-case word in LemmInflect's lexicon; none when it is not there."""
    found: list[Reading] = []
    for upos, lemmas in library().getAllLemmas(word).items():
        if upos not in PARTS:
            continue
        for lemma in lemmas:
            for form, spelled in inflections(lemma, upos).items():
                if word in spelled and form in TAGS:
                    found.append(Reading(lemma, PARTS[upos], form, TAGS[form]))
    return tuple(sorted(found, key=lambda one: one.form == "NNS"))  # "dog" may be a plural, but seldom is


@lru_cache(maxsize=50_000)
def inflections(lemma: str, upos: str) -> dict[str, tuple[str, ...]]:
    """Form -> spellings of a lemma."""
    found: dict[str, tuple[str, ...]] = library().getAllInflections(lemma, upos=upos)
    if "VBD" in found and "VBN" not in found:  # left out where it is spelled like the past
        return {**found, "VBN": found["VBD"]}
    return found


def inflect(lemma: str, form: str) -> str | None:
    """A lemma in another form, its first word inflected ("hike up"); None when there is none (the superlative of dead).

    Adjectives without an ending take "more" and "most".
    """
    head, _, tail = lemma.partition(" ")
    if form in ("VB", "VBP", "JJ", "NN", "RB"):
        return lemma
    if head == "be":
        return {"VBZ": "is", "VBD": "was", "VBG": "being", "VBN": "been"}.get(form)
    upos = {"V": "VERB", "J": "ADJ", "N": "NOUN", "R": "ADV"}[form[0]]
    preferred = PREFERRED.get((head, form))
    spelled = (preferred,) if preferred else inflections(head, upos).get(form, ())
    if not spelled and upos == "VERB":
        spelled = library().getInflection(head, form) or ()
    if not spelled and form in ("JJR", "JJS", "RBR", "RBS"):
        return f"{'more' if form.endswith('R') else 'most'} {lemma}"
    if not spelled:
        return None
    return f"{spelled[0]} {tail}" if tail else str(spelled[0])


def singular(word: str) -> str:
    """What a word that no lexicon lists would be the plural of, by its ending: survivors, survivor; "" if none."""
    found = library().getAllLemmasOOV(word, "NOUN").get("NOUN", ()) if len(word) > 4 and word.endswith("s") else ()
    return next((lemma for lemma in found if lemma != word and len(lemma) > 3), "")


def forms_of(lemma: str) -> set[str]:
    """Every spelling of every inflection of a lemma, itself included."""
    found = {lemma}
    for upos in PARTS:
        for spelled in inflections(lemma, upos).values():
            found.update(spelled)
    return found
