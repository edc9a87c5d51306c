"""Tags and the main verb from a spaCy pipeline, in the place of the rule tagger's.

Nothing takes spaCy by itself: otherwise the same texts would give other pairs on a machine that happens to have a
model.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from essent.minimal_pairs.function_words import TABLE
from essent.minimal_pairs.inflection import readings
from essent.minimal_pairs.tags import Tagged
from essent.minimal_pairs.words import Word
from essent.types import ModelError, optional_import

DEFAULT = "en_core_web_sm"
TAGS = {  # Penn Treebank's tags -> those of `closed`; of several, the first that the word can be
    **dict.fromkeys(("NN", "NNS", "NNP", "NNPS"), ("N", "PR")),
    **dict.fromkeys(("JJ", "JJR", "JJS"), ("J", "DT", "PR")),
    **dict.fromkeys(("RB", "RBR", "RBS"), ("A", "X", "S")),
    **dict.fromkeys(("VBP", "VBZ", "VBD"), ("F", "B", "H", "D")),
    **dict.fromkeys(("WDT", "WP", "WP$", "WRB"), ("W", "S")),
    "VB": ("V",),
    "VBG": ("G",),
    "VBN": ("E",),
    "MD": ("M",),
    "DT": ("DT", "PR"),
    "PDT": ("DT",),
    "PRP$": ("DT",),
    "POS": ("DT",),
    "IN": ("P", "S", "W"),
    "RP": ("A", "P"),
    "EX": ("PR",),
    "CC": ("C",),
    "CD": ("Q",),
    "UH": ("I",),
    "TO": ("TO",),
}
SUBJECT = ("nsubj", "nsubjpass", "csubj", "csubjpass", "expl")  # dependencies; names of spaCy's English models
OPEN = ("N", "J", "A", "F", "V", "G", "E")


class SpacyTagger:
    """Tags words as `tag_words` does, by a spaCy pipeline that sets Penn Treebank tags; its parser finds the main verb.

    Args:
        pipeline: a pipeline, or the name or folder of an installed one.

    Raises:
        ModelError: no such pipeline; or, when words are tagged, one that sets no tags.
        MissingDependencyError: spaCy is not installed.
    """

    def __init__(self, pipeline: Any = DEFAULT) -> None:
        spacy = optional_import("spacy", "spacy")
        try:
            self.pipeline: Any = spacy.load(pipeline) if isinstance(pipeline, str) else pipeline
        except (OSError, ValueError) as error:
            raise ModelError(
                f"spaCy has no pipeline {pipeline!r}: {error} Install one with: python -m spacy download {DEFAULT}; or "
                "use the rule tagger, which needs none."
            ) from error

    def __call__(self, words: Sequence[Word]) -> list[Tagged]:
        """The words with their tags; `root` is None where the pipeline has no parser."""
        if not words:
            return []
        spaces = [word.end < after.start for word, after in pairwise(words)]
        spelled = [word.text.replace("’", "'") for word in words]
        tokens = list(
            self.pipeline(
                optional_import("spacy.tokens", "spacy").Doc(
                    self.pipeline.vocab, words=spelled, spaces=[*spaces, False]
                )
            )
        )
        if not any(token.tag_ for token in tokens):
            raise ModelError("The spaCy pipeline sets no tags: it has no tagger, or is for another language.")
        parsed = tokens[0].doc.has_annotation("DEP")
        root = _root(tokens) if parsed else None
        return [
            _tagged(word, token, number == root if parsed else None)
            for number, (word, token) in enumerate(zip(words, tokens, strict=True))
        ]


def _root(tokens: Sequence[Any]) -> int | None:
    """Place of the first root, if it has a subject before it."""
    root = next((token for token in tokens if token.dep_ == "ROOT"), None)
    if root is None or not any(child.dep_ in SUBJECT for child in root.lefts):
        return None
    return int(root.i)


def _tagged(word: Word, token: Any, root: bool | None) -> Tagged:
    """A word that is listed keeps to what the list allows; the others are what the pipeline says."""
    lower, wanted = word.lower, _wanted(token)
    if not any(letter.isalnum() for letter in lower) and lower != "&":
        return Tagged(word, "U", lower, "", True, root)
    listed = {"n't": ("X",), "'s": ("B", "DT")}.get(lower, TABLE.get(lower))
    tag = next((one for one in wanted if listed is None or one in listed), listed[0] if listed else "N")
    if tag not in OPEN:
        return Tagged(word, tag, lower, "", True, root)
    found = [reading for reading in readings(lower) if tag in reading.tags]
    best = next((reading for reading in found if reading.form == token.tag_), found[0] if found else None)
    if best is None:
        return Tagged(word, tag, lower, "", tag != "N" or listed is not None, root)
    return Tagged(word, tag, best.lemma, best.form, True, root)


def _wanted(token: Any) -> tuple[str, ...]:
    """The tags that a token may have, the best first; pronouns by what they are to their verb."""
    if token.tag_ == "PRP":
        return ("PO", "PR") if token.dep_ and token.dep_ not in SUBJECT else ("PR", "PO")
    if token.tag_ == "DT" and token.dep_ and token.dep_ not in ("det", "predet"):
        return ("PR", "DT")
    if token.tag_ == "IN" and token.dep_ == "mark":
        return ("S", "W", "P")
    return TAGS.get(token.tag_, ("U",) if not token.text[0].isalnum() else ("N",))
