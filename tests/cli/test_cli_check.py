"""`essent check`: a folder against what was saved, and against a server; tests/verification has the health checks."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from command_line import run
from essent import Encoder
from essent._core.folders.files import write_digests
from essent.serving.prepared import prepare
from families import build_tokenizer
from servers import running
from static_models import table_of


def test_a_changed_folder_is_exit_code_1(tiny: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    Encoder(tiny, "mean").save(str(model))
    assert "same vectors" in run("check", model, "--skip", "anisotropy").stdout
    state = model / "essent" / "state.safetensors"
    arrays = load_file(state)
    save_file(arrays | {"golden": arrays["golden"] + 1}, state)
    assert "state.safetensors has changed since it was saved" in run("check", model, code=1).stderr
    write_digests(model)
    assert "golden vectors" in run("check", model, code=1).stderr
    untrusted = run("check", model, "--files-only").stdout
    assert "files are unchanged" in untrusted
    assert "nothing was loaded" in untrusted
    assert "was not saved by essent" in run("check", tiny, "--files-only", code=2).stderr


def table(seed: int, width: int = 12) -> SentenceTransformer:
    """A model of its own, a random table."""
    tokenizer = build_tokenizer("wordpiece").backend_tokenizer
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, table_of(tokenizer, width, seed))], device="cpu")


@pytest.mark.enable_socket
def test_against_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, plain, different, narrow = (str(tmp_path / name) for name in ("saved", "plain", "other", "narrow"))
    Encoder(table(0), "static").save(saved)
    for path, model in ((plain, table(0)), (different, table(1)), (narrow, table(0, 6))):
        model.save(path)
    with running([prepare(saved, "auto", tmp_path / "unused")], keys=("secret",)) as server:
        refused = run("check", saved, "--against", server.url, code=2).stderr
        assert "returned 401" in refused
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        for model, address in ((saved, server.url), (plain, server.url + "/v1/")):
            output = run("check", model, "--against", address).stdout
            assert f"✓ {server.url}/v1/embeddings returns the model's vectors for " in output
            assert "lowest cosine 1.000000" in output
        assert "same vectors" in run("check", saved, "--against", server.url).stdout  # the folder itself, too
        wrong = run("check", different, "--against", server.url, code=1).stderr
        assert f"does not return the vectors of {different!r}: cosine " in wrong
        narrower = run("check", narrow, "--against", server.url, code=1).stderr
        assert f"returns 12 dimensions, but {narrow!r} has 6" in narrower
    unreachable = run("check", plain, "--against", server.url, code=2).stderr
    assert f"{server.url}/v1/embeddings cannot be read" in unreachable
