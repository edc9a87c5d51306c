"""The tagger that is a spaCy pipeline: a real one of spaCy, whose tags and parse a component of the test sets."""

from __future__ import annotations

from typing import Any

import pytest

from essent.minimal_pairs import CannotNegateError, Resources, SpacyTagger, build, check_rows, negate
from essent.minimal_pairs.substitutes import replaceable
from essent.minimal_pairs.tags import tag_words
from essent.minimal_pairs.words import split_words
from essent.tasks.heros import MinimalPair
from essent.types import ModelError

spacy = pytest.importorskip("spacy")
# word, Penn Treebank's tag, head (its number), dependency
PARSES = """\
The DT 1 det|dog NN 4 nsubj|that WDT 3 nsubj|barks VBZ 1 relcl|bites VBZ 4 ROOT|. . 4 punct
She PRP 2 nsubj|has VBZ 2 aux|bought VBN 2 ROOT|the DT 4 det|old JJ 5 amod|house NN 2 dobj|. . 2 punct
She PRP 3 nsubj|has VBZ 3 aux|not RB 3 neg|bought VBN 3 ROOT|the DT 5 det|old JJ 6 amod|house NN 3 dobj|. . 3 punct
She PRP 2 nsubj|has VBZ 2 aux|bought VBN 2 ROOT|the DT 5 det|old JJ 5 amod|house NN 2 dobj|near IN 5 prep|the DT 8 det|river NN 6 pobj|. . 2 punct
She PRP 3 nsubj|has VBZ 3 aux|not RB 3 neg|bought VBN 3 ROOT|the DT 6 det|old JJ 6 amod|house NN 3 dobj|near IN 6 prep|the DT 9 det|river NN 7 pobj|. . 3 punct
His PRP$ 1 poss|dog NN 2 nsubj|was VBD 2 ROOT|very RB 4 advmod|happy JJ 2 acomp|. . 2 punct
His PRP$ 1 poss|dog NN 2 nsubj|was VBD 2 ROOT|not RB 2 neg|very RB 5 advmod|happy JJ 2 acomp|. . 2 punct
The DT 1 det|dog NN 6 nsubj|that WDT 3 nsubj|barks VBZ 1 relcl|does VBZ 6 aux|not RB 6 neg|bite VB 6 ROOT|. . 6 punct
Go VB 0 ROOT|home RB 0 advmod|. . 0 punct
The DT 2 det|old JJ 2 amod|house NN 2 ROOT|. . 2 punct
Who WP 1 nsubj|knows VBZ 1 ROOT|. . 1 punct
Blorps NNS 1 nsubj|blorp VBP 1 ROOT|it PRP 1 dobj|. . 1 punct
"""  # noqa: E501


@pytest.fixture(scope="module")
def tagger() -> SpacyTagger:
    known = {}
    for line in PARSES.strip().splitlines():
        rows = [part.split() for part in line.split("|")]
        known[tuple(row[0] for row in rows)] = rows

    @spacy.Language.component("essent_test_parser")
    def parse(doc: Any) -> Any:
        for token, (_, tag, head, dependency) in zip(doc, known[tuple(token.text for token in doc)], strict=True):
            token.tag_, token.dep_, token.head = tag, dependency, doc[int(head)]
        return doc

    pipeline = spacy.blank("en")
    pipeline.add_pipe("essent_test_parser")
    return SpacyTagger(pipeline)


@pytest.mark.parametrize(
    ("sentence", "wanted"),
    [
        ("The dog that barks bites.", "The dog that barks does not bite."),
        ("She has bought the old house.", "She has not bought the old house."),
        ("His dog was very happy.", "His dog was not very happy."),
    ],
)
def test_the_parsers_main_verb_is_negated(tagger: SpacyTagger, sentence: str, wanted: str) -> None:
    found = negate(sentence, tagger=tagger)
    assert found.text == wanted
    assert negate(found.text, found.back, tagger).text == sentence


@pytest.mark.parametrize("sentence", ["The old house.", "Who knows."])
def test_what_has_no_main_verb(tagger: SpacyTagger, sentence: str) -> None:
    with pytest.raises(CannotNegateError, match=r"no main verb|a question"):
        negate(sentence, tagger=tagger)


def test_an_imperative(tagger: SpacyTagger) -> None:
    assert negate("Go home.", tagger=tagger).text == "Do not go home."


def test_tags_are_those_of_the_rules(tagger: SpacyTagger) -> None:
    """On sentences that both read rightly: tags, lemmas and forms; and what no lexicon knows is not chosen."""
    for sentence in ("She has bought the old house.", "His dog was very happy."):
        words = split_words(sentence)
        found, rules = tagger(words), tag_words(words)
        assert [(one.tag, one.lemma, one.form) for one in found] == [(one.tag, one.lemma, one.form) for one in rules]
        assert sum(bool(one.root) for one in found) == 1
        assert all(one.root is None for one in rules)
    unknown = tagger(split_words("Blorps blorp it."))
    assert [(one.tag, one.form) for one in unknown[:3]] == [("N", ""), ("F", ""), ("PO", "")]
    assert not unknown[0].known
    assert replaceable(unknown) == []
    assert tagger([]) == []


def test_pairs_are_built_with_it(tagger: SpacyTagger) -> None:
    rows, quality = build(["She has bought the old house near the river.", "Who knows."], Resources(tagger=tagger))
    assert {row.subset: row.converted for row in rows if row.subset != "Typo"} == {
        "Negation (Main)": "She has not bought the old house near the river.",
        "Negation (Antonym)": "She has not bought the old house near the river.",
    }
    assert len(rows) == 3
    assert check_rows([MinimalPair(row.original, row.converted, row.subset) for row in rows]) == []
    assert quality.seen == 2


def test_what_is_no_pipeline(tagger: SpacyTagger) -> None:
    with pytest.raises(ModelError, match="spacy download"):
        SpacyTagger("en_no_such_model")
    with pytest.raises(ModelError, match="sets no tags"):
        SpacyTagger(spacy.blank("en"))(split_words("It is so."))
