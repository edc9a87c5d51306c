"""What a language owes: English, and a small Esperanto whose parser and lexicon stand here, under one contract."""

from __future__ import annotations

import re
from typing import Any

import pytest
import spacy
from heros_sentences import PAPER

from essent.errors import MissingDependencyError, ModelError
from essent.lab.minimal_pairs.build import Resources, build
from essent.lab.minimal_pairs.edits import Edit, read_table
from essent.lab.minimal_pairs.english import English, inflect
from essent.lab.minimal_pairs.language import Language, Negation, Parser, UnsuitableError

ENDINGS = {"verb": ("as", "is", "os", "i"), "noun": ("o", "on", "oj", "ojn"), "adj": ("a", "an", "aj", "ajn")}
FORM = re.compile(r"(as|is|os|i|[oa]j?n?)$")


@spacy.Language.component("essent_esperanto")
def parse(doc: Any) -> Any:
    """Endings say what a word is; the first finite verb is the root, a noun in -o before it the subject."""
    root = next((token for token in doc if token.lower_.endswith(("as", "is", "os"))), doc[0])
    for token in doc:
        part = next((part for part, some in ENDINGS.items() if token.lower_.endswith(some)), "")
        token.tag_ = part.upper() or "X"
        token.head = root
        token.dep_ = "ROOT" if token == root else "nsubj" if part == "noun" and token.i < root.i else "dep"
        token.lemma_ = FORM.sub("", token.lower_) + {"verb": "i", "noun": "o", "adj": "a"}.get(part, "")
    return doc


class Esperanto(Language):
    """A language whose morphology has no exceptions: "ne" stands before what it negates."""

    name, pipelines, negators = "Esperanto", ("eo",), ("ne",)

    def statement(self, doc: Any) -> Any:
        main = next((token for token in doc if token.dep_ == "ROOT" and token.tag_ == "VERB"), None)
        if main is None or doc[0].lower_ == "ĉu":
            raise UnsuitableError("statement", "a question" if main is not None else "no main verb")
        return main

    def negate(self, token: Any) -> Negation:
        before = token.doc[token.i - 1] if token.i else None
        if before is not None and before.lower_ == "ne":
            return Negation.of(token.doc, [Edit(before.idx, token.idx, "")], "ne removed")
        return Negation.of(token.doc, [Edit(token.idx, token.idx, "ne ")], "ne before the word")

    def replaceable(self, doc: Any) -> list[Any]:
        return [token for token in doc if token.tag_ in ("VERB", "ADJ") and len(token) > 2]

    def part(self, token: Any) -> str:
        return {"VERB": "verb", "ADJ": "adj", "NOUN": "noun"}.get(token.tag_, "")

    def lemmas(self, word: str, like: Any) -> tuple[str, ...]:
        return (FORM.sub("", word) + {"verb": "i", "adj": "a"}[self.part(like)],)

    def inflect(self, lemma: str, like: Any) -> str | None:
        found = FORM.search(like.lower_)
        return FORM.sub("", lemma) + found[0] if found else None

    def forms(self, lemma: str) -> set[str]:
        return {FORM.sub("", lemma) + ending for some in ENDINGS.values() for ending in some}

    def is_word(self, word: str) -> bool:
        return (
            word in "la mi ne hundo en ĝardeno dormas malnova granda domo estas tre bela vidas nun ĉar ĝi tago".split()
        )


ESPERANTO = ["La granda hundo dormas en la malnova ĝardeno nun.", "Mi vidas la malnova domo ĉar ĝi estas bela."]


@pytest.fixture(scope="module")
def esperanto() -> Parser:
    pipeline = spacy.blank("xx")
    pipeline.add_pipe("essent_esperanto")
    pipeline.meta["parses"] = True
    return Parser(Esperanto(), pipeline)


@pytest.fixture(params=["English", "Esperanto"])
def spoken(request: pytest.FixtureRequest, parser: Parser, esperanto: Parser) -> tuple[Language, Parser, list[str]]:
    """A language, its parser and sentences of it."""
    if request.param == "English":
        return English(), parser, list(PAPER)
    return Esperanto(), esperanto, ESPERANTO


def test_the_contract(spoken: tuple[Language, Parser, list[str]]) -> None:
    language, parse_all, sentences = spoken
    for doc, sentence in zip(parse_all(sentences), sentences, strict=True):
        assert doc.user_data["text"] == sentence
        main = language.statement(doc)
        once = language.negate(main)
        assert once.text != sentence
        assert once.rule
        (negated,) = parse_all([once.text])
        assert language.statement(negated).lemma_ == main.lemma_
        assert language.replaceable(doc)
        for token in language.replaceable(doc):
            lower = token.lower_
            (lemma, *_) = language.lemmas(lower, token)
            assert language.part(token) in ("verb", "adj")
            assert language.inflect(lemma, token) == lower
            assert lower in language.forms(lemma)
            assert language.replace(token, lower) == sentence
            assert language.is_word(lower)
    assert not language.is_word("blorpz")
    assert language.negators
    with pytest.raises(UnsuitableError):
        language.statement(parse_all(["?"])[0])


def test_pairs_of_another_language(esperanto: Parser) -> None:
    rows, _ = build(ESPERANTO, Resources(esperanto))
    found = {(row.original, row.subset): row.converted for row in rows}
    assert found[ESPERANTO[0], "Negation (Main)"] == "La granda hundo ne dormas en la malnova ĝardeno nun."
    assert found[ESPERANTO[0], "Negation (Antonym)"] == "La ne granda hundo dormas en la malnova ĝardeno nun."
    assert {subset for _, subset in found} == {"Typo", "Negation (Main)", "Negation (Antonym)"}


def test_parsers_that_are_not_there_or_do_not_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="Install it with: python -m spacy download en_nowhere"):
        Parser(English(), "en_nowhere")
    with pytest.raises(ModelError, match="has no tagger: English needs one such as en_core_web_sm"):
        Parser(English(), spacy.blank("en"))
    monkeypatch.setattr(English, "pipelines", ("en_core_web_nowhere",))
    with pytest.raises(ModelError, match="python -m spacy download en_core_web_nowhere"):
        Parser(English())
    monkeypatch.setitem(__import__("sys").modules, "spacy", None)
    with pytest.raises(MissingDependencyError, match=r"essent\[heros\]"):
        Parser(English())


def test_typographic_apostrophes(parser: Parser) -> None:
    (doc,) = parser(["I don’t think it’s bad."])
    language = English()
    assert language.negate(language.statement(doc)).text == "I do think it’s bad."


def test_the_forms_of_the_table_are_used() -> None:
    """LemmInflect lacks some of them, and lists others second."""
    for row in read_table("forms.tsv"):
        assert inflect(row["lemma"], row["tag"]) == row["form"]


def test_lemmas_of_verbs_are_right_after_parsing(parser: Parser) -> None:
    """spaCy's small model takes these for hat and rid."""
    docs = parser(["He hates the cold house.", "A man rides a horse."])
    assert [token.lemma_ for doc in docs for token in doc if token.tag_ == "VBZ"] == ["hate", "ride"]
