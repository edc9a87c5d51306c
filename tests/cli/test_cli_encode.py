"""`essent encode` to a file: every input, and options of the vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from command_line import TEXTS, Output, error, run
from essent import Encoder


@pytest.fixture
def call(tiny: str) -> Callable[..., Output]:
    return partial(run, "encode", "-m", tiny)


def test_standard_input_and_options(call: Callable[..., Output], tiny: str, lines: Path, tmp_path: Path) -> None:
    """A prompt stands before the texts of a fit too."""
    stdin = "\ufeffA man\r\n\nThe dogs run\u2028on\n".encode()
    options = ("--prompt", "query: ", "--normalize", "--truncate-dim", 8, "--device", "cpu", "--fit", lines)
    recipe, texts = "cls weights=idf | centre", ["A man", "", "The dogs run\u2028on"]
    call("-r", recipe, *options, "--batch-size", 1, "-o", tmp_path / "v.npy", stdin=stdin)
    encoder = Encoder(tiny, recipe).fit([f"query: {text}" for text in TEXTS])
    expected = encoder.encode(texts, prompt="query: ", normalize_embeddings=True, truncate_dim=8)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-6)


def test_texts_of_several_files_in_their_order(
    call: Callable[..., Output], tiny: str, lines: Path, tmp_path: Path
) -> None:
    recipe, more, output = "mean | zscore", tmp_path / "more.csv", tmp_path / "v.npy"
    more.write_text('id,body\n0,"Two cats, a dog"\n1,One bird.\n', "utf-8")
    fitted = Encoder(tiny, recipe).fit([*TEXTS, "Two cats, a dog", "One bird."])
    command = (more, "-", lines, "-r", recipe, "--column", "body", "-o", output, "-f")
    for files in (("--fit", lines, more), ("--fit", lines, "--fit", more)):
        completed = call(*command, *files, stdin=b"A\nB\n")
        expected = fitted.encode(["Two cats, a dog", "One bird.", "A", "B", *TEXTS])
        np.testing.assert_allclose(np.load(output), expected, atol=1e-6)
        assert f"is fitted on {lines}, {more}." in completed.stderr
    assert "Standard input, line 2: not UTF-8" in call(*command, *files, code=2, stdin=b"a\n\xff\n").stderr


def test_saved_encoder_needs_no_recipe_and_no_fit(tiny: str, lines: Path, tmp_path: Path) -> None:
    encoder, saved = Encoder(tiny, "mean | zscore").fit(TEXTS), tmp_path / "saved"
    encoder.prompts, encoder.default_prompt_name = {"query": "query: "}, "query"
    encoder.save(str(saved))
    command = ("encode", "-m", saved, lines, "-o", tmp_path / "v.npy")
    log = run(*command).stderr
    assert "fitted" not in log
    assert "Use --prompt for another" in log
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), encoder.encode(TEXTS), atol=1e-5)
    assert "its own recipe" in error(*command, "-f", "-r", "mean")


def test_a_model_without_a_recipe(tiny: str, lines: Path, tmp_path: Path) -> None:
    model = SentenceTransformer(modules=[Transformer(tiny), Pooling(32), Dense(32, 8)], device="cpu")
    model.save(str(tmp_path / "model"))
    log = run("encode", "-m", tmp_path / "model", lines, "--fit", lines, "-o", tmp_path / "v.npy").stderr
    assert f"The model has nothing to fit: --fit {lines} is ignored." in " ".join(log.split())
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), model.encode(TEXTS), atol=1e-6)


def test_interrupted_run_leaves_nothing(
    call: Callable[..., Output], lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("numpy.save", interrupt)
    assert "Interrupted" in call(lines, "-o", tmp_path / "v.npy", code=130).stderr
    assert [*tmp_path.iterdir()] == [lines]
