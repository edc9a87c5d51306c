"""`essent encode` to a file: every input and output; nothing is computed for a call that cannot end well."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense

from command_line import TEXTS, error, run
from essent import Encoder


@pytest.fixture
def call(tiny: str):
    def encode(*arguments: object, **options):
        return run("encode", "-m", tiny, *arguments, **options)

    return encode


def test_standard_input_and_options(call, tiny: str, lines: Path, tmp_path: Path) -> None:
    """A prompt stands before the texts of a fit too."""
    stdin = "\ufeffA man\r\n\nThe dogs run\u2028on\n".encode()
    options = ("--prompt", "query: ", "--normalize", "--truncate-dim", 8, "--device", "cpu", "--fit", lines)
    recipe, texts = "cls weights=idf | centre", ["A man", "", "The dogs run\u2028on"]
    call("-r", recipe, *options, "--batch-size", 1, "-o", tmp_path / "v.npy", stdin=stdin)
    encoder = Encoder(tiny, recipe).fit([f"query: {text}" for text in TEXTS])
    expected = encoder.encode(texts, prompt="query: ", normalize_embeddings=True, truncate_dim=8)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-6)


def test_texts_of_several_files_in_their_order(call, tiny: str, lines: Path, tmp_path: Path) -> None:
    recipe, more = "mean | zscore", tmp_path / "more.csv"
    more.write_text('id,body\n0,"Two cats, a dog"\n1,One bird.\n', "utf-8")
    assert "no column 'text'" in call(more, "-o", tmp_path / "v.npy", code=2).stderr
    fitted = Encoder(tiny, recipe).fit([*TEXTS, "Two cats, a dog", "One bird."])
    expected = fitted.encode(["Two cats, a dog", "A", "B", *TEXTS[:1]])
    command = (more, "-", lines, "-r", recipe, "--column", "body", "-o", tmp_path / "v.npy", "-f")
    for files in (("--fit", lines, more), ("--fit", lines, "--fit", more)):
        completed = call(*command, *files, stdin=b"A\nB\n")
        np.testing.assert_allclose(np.load(tmp_path / "v.npy")[[0, 2, 3, 4]], expected, atol=1e-6)
        assert f"is fitted on {lines}, {more}." in completed.stderr
    twice = call("-", "-", "-o", tmp_path / "x.npy", code=2, stdin=b"A\n").stderr
    assert "Standard input (-) can be read only once." in twice


def test_saved_encoder_needs_no_recipe_and_no_fit(tiny: str, lines: Path, tmp_path: Path) -> None:
    encoder = Encoder(tiny, "mean | zscore").fit(TEXTS)
    encoder.prompts, encoder.default_prompt_name = {"query": "query: "}, "query"
    encoder.save(str(tmp_path / "saved"))
    log = run("encode", "-m", tmp_path / "saved", lines, "-o", tmp_path / "v.npy").stderr
    assert "fitted" not in log
    assert "Use --prompt for another" in log
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), encoder.encode(TEXTS), atol=1e-5)
    refused = error("encode", "-m", tmp_path / "saved", "-r", "mean", lines, "-o", tmp_path / "w.npy")
    assert "its own recipe" in refused


def test_a_model_without_a_recipe(tiny: str, lines: Path, tmp_path: Path) -> None:
    model = SentenceTransformer(tiny, device="cpu")
    model.append(Dense(model.get_embedding_dimension(), 8))
    model.save(str(tmp_path / "model"))
    log = run("encode", "-m", tmp_path / "model", lines, "--fit", lines, "-o", tmp_path / "v.npy").stderr
    assert f"The model has nothing to fit: --fit {lines} is ignored." in " ".join(log.split())
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), model.encode(TEXTS), atol=1e-6)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a\n\xff\n", "Standard input, line 2: not UTF-8"), (b"", "Standard input contains no")],
)
def test_invalid_standard_input(call, tmp_path: Path, content: bytes, message: str) -> None:
    assert message in call("-", "-o", tmp_path / "v.npy", code=2, stdin=content).stderr


def test_nothing_is_loaded_for_a_call_that_cannot_end_well(
    call, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("essent.encoder.encoder.load", lambda *_, **__: pytest.fail("the model was loaded"))
    (tmp_path / "v.npy").write_bytes(b"mine")
    assert "--force" in call(lines, "-o", tmp_path / "v.npy", code=2).stderr
    assert "[MASK] [red]" in call("-r", 'template="[MASK] [red]"', lines, "-o", tmp_path / "x.npy", code=2).stderr


def test_interrupted_run_leaves_nothing(call, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("numpy.save", interrupt)
    assert "Interrupted" in call(lines, "-o", tmp_path / "v.npy", code=130).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]
