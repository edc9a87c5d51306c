"""`essent encode` to a file: every input, and options of the vectors."""

from pathlib import Path

import numpy as np
import pytest

from command_line import TEXTS, run
from essent import Encoder


def test_standard_input_and_options() -> None:
    """A prompt stands before the texts of a fit too."""
    stdin = "\ufeffA man\r\n\nThe dogs run\u2028on\n".encode()
    recipe, texts = "cls weights=idf | centre", ["A man", "", "The dogs run\u2028on"]
    options = "--prompt 'query: ' --normalize --truncate-dim 8 --device cpu --fit texts.txt --batch-size 1"
    run(f"encode -m tiny -r '{recipe}' {options} -o v.npy", stdin=stdin)
    encoder = Encoder("tiny", recipe).fit([f"query: {text}" for text in TEXTS])
    expected = encoder.encode(texts, prompt="query: ", normalize_embeddings=True, truncate_dim=8)
    np.testing.assert_allclose(np.load("v.npy"), expected, atol=1e-6)


@pytest.mark.parametrize("files", ["--fit texts.txt more.csv", "--fit texts.txt --fit more.csv"])
def test_texts_of_several_files_in_their_order(files: str) -> None:
    Path("more.csv").write_text('id,body\n0,"Two cats, a dog"\n1,One bird.\n', "utf-8")
    more, recipe = ["Two cats, a dog", "One bird."], "mean | zscore"
    command = f"encode more.csv - texts.txt -m tiny -r '{recipe}' --column body -o v.npy -f {files}"
    completed = run(command, stdin=b"A\nB\n")
    expected = Encoder("tiny", recipe).fit([*TEXTS, *more]).encode([*more, "A", "B", *TEXTS])
    np.testing.assert_allclose(np.load("v.npy"), expected, atol=1e-6)
    assert "is fitted on texts.txt, more.csv." in completed.stderr
    assert "Standard input, line 2: not UTF-8" in run(command, code=2, stdin=b"a\n\xff\n").stderr


def test_saved_encoder_needs_no_recipe_and_no_fit() -> None:
    encoder = Encoder("tiny", "mean | zscore").fit(TEXTS)
    encoder.prompts, encoder.default_prompt_name = {"query": "query: "}, "query"
    encoder.save("saved")
    command = "encode -m saved texts.txt -o v.npy"
    log = run(command).stderr
    assert "fitted" not in log
    assert "Use --prompt for another" in log
    np.testing.assert_allclose(np.load("v.npy"), encoder.encode(TEXTS), atol=1e-5)


def test_an_interrupted_run_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = sorted(folder.iterdir())
    monkeypatch.setattr("numpy.save", interrupt)
    assert "Interrupted" in run("encode texts.txt -m tiny -o v.npy --device cpu", code=130).stderr
    assert sorted(folder.iterdir()) == before
