"""`essent save` and `essent check`, and `--precision` of every command that encodes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer

import essent
from command_line import TEXTS, error, read_json, run, write_rows
from essent import Encoder
from essent._core.folders.files import write_digests
from essent._core.machine import has_bfloat16
from essent.engine.compiled import cosines
from essent.serving.prepared import prepare
from servers import running


def test_portable_or_the_reason() -> None:
    output, recipe = Path("model [MASK]"), "first-last | zscore"  # brackets are no markup
    printed = run(f"save -m tiny -r '{recipe}' --fit texts.txt -o '{output}'").stdout
    assert "model [MASK]" in printed
    assert "Plain sentence-transformers loads this folder" in printed
    expected = Encoder("tiny", recipe).fit(TEXTS).encode(TEXTS)
    np.testing.assert_allclose(SentenceTransformer(str(output)).encode(TEXTS), expected, atol=1e-5)
    (output / "mine.txt").touch()
    completed = run(f"save -m tiny -r ditto:1-2 --fit texts.txt -o '{output}' --force")
    assert "cannot load this folder: layers=0+L weights=ditto:1-2 reads attention" in completed.stdout
    assert "ditto:1-2 has nothing to fit: --fit texts.txt is ignored." in completed.stderr
    assert (output / "mine.txt").exists()


def test_a_saved_folder_is_saved_again_without_a_recipe() -> None:
    """In another format and with calibrated similarities."""
    assert run("save -m tiny -r 'mean | zscore' --fit texts.txt -o model -q").stdout == ""
    command = "save -m model --format legacy --calibrate many.txt -o again --force"
    log = run(command).stderr
    assert "Calibrated similarity: share of 1,770 random pairs of 60 texts that are less similar." in log
    rows = [
        {"sentence1": text, "sentence2": other, "label": label}
        for text in Path("many.txt").read_text("utf-8").splitlines()[:20]
        for other, label in ((text.upper(), 1), ("How far is it?", 0))
    ]
    command += f" --match-pairs {write_rows(Path('duplicates.jsonl'), rows)}"
    log = run(command).stderr
    assert "probability of a match, from 40 labelled pairs of duplicates (20 matches)" in log
    assert "only for them" in error(f"{command} --match-score 4")
    first, again = Encoder("model"), Encoder("again")
    assert again.recipe == first.recipe
    assert again.calibration is not None
    assert again.calibration.meaning == "probability"
    np.testing.assert_allclose(again.encode(["A text."]), first.encode(["A text."]), atol=1e-6)
    assert read_json(Path("again/1_Pooling/config.json"))["pooling_mode_mean_tokens"] is True


@pytest.mark.slow  # a conversion; tests/engine has them once
def test_a_graph_and_its_use() -> None:
    recipe = "layers=0+1 | zscore"
    fitted = f"-m tiny -r '{recipe}' --fit texts.txt"
    assert f"graph: {recipe}, openvino float32" in run(f"save --format openvino {fitted} -o graph").stderr
    command = "encode -m graph texts.txt -o v.npy"
    assert "has nothing to fit" in run(f"{command} --fit texts.txt").stderr
    np.testing.assert_allclose(np.load("v.npy"), Encoder("tiny", recipe).fit(TEXTS).encode(TEXTS), atol=3e-5)
    table, own = (run(f"evaluate -d my-pairs.jsonl {model}").stdout for model in ("-m graph", fitted))
    assert table.split()[-1] == own.split()[-1]
    for refused in (f"{command} -f", "evaluate -d my-pairs.jsonl -m graph"):
        assert "with its own recipe" in error(f"{refused} -r mean")
    assert "takes no device" in error(f"{command} -f --device cpu")


# -- check ------------------------------------------------------------------------------------------------------------


def test_a_changed_folder_is_exit_code_1() -> None:
    model, state = Path("model"), Path("model/essent/state.safetensors")
    Encoder("tiny", "mean").save(str(model))
    assert "same vectors" in run("check model --skip anisotropy").stdout
    arrays = load_file(state)
    save_file(arrays | {"golden": arrays["golden"] + 1}, state)
    assert "state.safetensors has changed since it was saved" in error("check model", code=1)
    write_digests(model)
    assert "golden vectors" in error("check model", code=1)
    untrusted = run("check model --files-only").stdout
    assert "files are unchanged" in untrusted
    assert "nothing was loaded" in untrusted


@pytest.mark.enable_socket
def test_against_a_server(static_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Encoder(static_folder, "static").save("saved")
    Encoder(static_folder, "static | centre").fit(TEXTS).save("different")

    def check(model: object, code: int = 0, path: str = "") -> str:
        return run(f"check {model} --against {server.url}{path}", code=code).output

    with running([prepare("saved", "auto", Path("unused"))], keys=("secret",)) as server:
        assert "returned 401" in check("saved", 2)
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        assert "same vectors" in check("saved")  # the folder itself, too
        output = check(static_folder, path="/v1/")
        assert f"✓ {server.url}/v1/embeddings returns the model's vectors for " in output
        assert "lowest cosine 1.000000" in output
        assert "does not return the vectors of 'different': cosine " in check("different", 1)
        assert "returns 12 dimensions, but 'tiny' has 32" in check("tiny", 1)
    monkeypatch.setattr("essent.verification.report.verify", lambda *_: pytest.fail("the folder was loaded first"))
    assert f"{server.url}/v1/embeddings cannot be read" in check("saved", 2)


@pytest.mark.enable_socket
@pytest.mark.slow  # a conversion
def test_a_graph_against_its_server(static_folder: Path) -> None:
    """With the default prompt, which the server puts before its texts; the golden vectors are without it."""
    encoder = Encoder(static_folder, "static")
    encoder.prompts, encoder.default_prompt_name = {"query": "the dogs run "}, "query"
    essent.compile(encoder).save("graph")
    with running([prepare("graph", "auto", Path("unused"))]) as server:
        output = run(f"check graph --against {server.url}").output
    assert "same vectors" in output
    assert "returns the model's vectors for " in output


# -- precision --------------------------------------------------------------------------------------------------------

VECTORS = "encode texts.txt -m tiny -o v.npy"
PARTS = "encode texts.txt -m tiny -o parts"
EVALUATE = "evaluate -m tiny -d my-pairs.jsonl --json -"
SEARCH = "search -m tiny -d my-pairs.jsonl --space layers"


@pytest.mark.parametrize("command", [VECTORS, PARTS, f"{EVALUATE} -r mean", f"{EVALUATE} --as-is", SEARCH])
def test_a_cpu_without_bfloat16(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    assert "This CPU has no bfloat16 arithmetic" in error(f"{command} --precision bfloat16")


@pytest.mark.skipif(not has_bfloat16("cpu"), reason="this CPU has no bfloat16 arithmetic")
def test_bfloat16_matches_float32() -> None:
    run(f"{VECTORS} --precision bfloat16")
    vectors, exact = np.load("v.npy"), Encoder("tiny").encode(TEXTS)
    assert vectors.dtype == np.float32
    assert not np.array_equal(vectors, exact)
    assert cosines(vectors, exact).min() > 0.99
    run(f"{PARTS} --precision bfloat16")
    assert "torch bfloat16" in error(PARTS)  # parts of another precision
    for options, precision in (("-r mean", "bfloat16"), ("--as-is", "bfloat16"), ("-r mean", "auto")):
        (stored,) = json.loads(run(f"{EVALUATE} {options} --precision {precision}").stdout)["results"]
        assert stored["provenance"].get("precision") == (None if precision == "auto" else precision)
