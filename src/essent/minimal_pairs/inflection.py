"""Lemmas and inflected forms of English, from LemmInflect."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType

from essent.types import optional_import

UPOS = {"V": "VERB", "J": "ADJ", "N": "NOUN", "R": "ADV"}  # first letter of a Penn Treebank tag
WORDNET = {"V": "verb", "J": "adj", "N": "noun", "R": "adv"}
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


def library() -> ModuleType:
    """LemmInflect, or what to install."""
    return optional_import("lemminflect", "heros")


@lru_cache(maxsize=50_000)
def lemmas(word: str, tag: str) -> tuple[str, ...]:
    """The lemmas whose form of a Penn Treebank tag is a lower-case word; none when the lexicon has no such."""
    upos = UPOS.get(tag[:1], "")
    forms = ("VB", "VBP") if tag in ("VB", "VBP") else (tag,)
    found = library().getAllLemmas(word, upos=upos).get(upos, ()) if upos else ()
    return tuple(lemma for lemma in found if any(word in inflections(lemma, upos).get(form, ()) for form in forms))


@lru_cache(maxsize=50_000)
def inflections(lemma: str, upos: str) -> dict[str, tuple[str, ...]]:
    """Tag -> spellings of a lemma."""
    found: dict[str, tuple[str, ...]] = dict(library().getAllInflections(lemma, upos=upos))
    if upos == "VERB" and found:
        found.setdefault("VBP", (lemma,))
        found.setdefault("VBN", found.get("VBD", ()))  # left out where it is spelled like the past
    return found


@lru_cache(maxsize=50_000)
def inflect(lemma: str, tag: str) -> str | None:
    """A lemma in the form of a tag; None when it has none of one word (the superlative of dead)."""
    if tag in ("VB", "VBP", "JJ", "NN", "RB"):
        return lemma
    if (lemma, tag) in PREFERRED:
        return PREFERRED[lemma, tag]
    spelled = inflections(lemma, UPOS[tag[:1]]).get(tag, ())
    if not spelled and tag[0] == "V":
        spelled = library().getInflection(lemma, tag) or ()
    return str(spelled[0]) if spelled else None


@lru_cache(maxsize=50_000)
def is_word(word: str) -> bool:
    """Whether the lexicon has a lower-case word in any form, or the singular of what looks like a plural."""
    return bool(library().getAllLemmas(word))
