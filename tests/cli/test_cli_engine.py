"""`--engine` and `--precision` in every command that encodes: the same names and refusals, and what they change."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from command_line import TEXTS, error, run
from essent import Encoder
from essent._core.machine import has_bfloat16
from essent.engine.gain import cosines

needs_bfloat16 = pytest.mark.skipif(not has_bfloat16("cpu"), reason="this CPU has no bfloat16 arithmetic")
BFLOAT16 = ("--precision", "bfloat16")


@pytest.fixture
def commands(tiny: str, lines: Path, pairs: Path, tmp_path: Path) -> dict[str, tuple[object, ...]]:
    return {
        "encode": ("encode", lines, "-o", tmp_path / "vectors.npy", "-m", tiny),
        "parts": ("encode", lines, "-o", tmp_path / "parts", "-m", tiny),
        "evaluate": ("evaluate", "-r", "mean", "-d", pairs, "-m", tiny),
        "evaluate as is": ("evaluate", "--as-is", "-d", pairs, "-m", tiny),
        "search": ("search", "-d", pairs, "--space", "layers", "-m", tiny),
    }


def test_refusals(commands: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another processor; wrong names, before anything is loaded."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    for name, command in commands.items():
        assert "This CPU has no bfloat16 arithmetic" in error(*command, *BFLOAT16)
        elsewhere = (*command[:-1], "nowhere")
        assert 'Choose from: "auto", "float32", "bfloat16".' in error(*elsewhere, "--precision", "bf16")
        if name != "search":
            assert "onnx runs in float32" in error(*elsewhere, "--engine", "onnx", *BFLOAT16)


@needs_bfloat16
def test_bfloat16_matches_float32(tiny: str, commands: dict, tmp_path: Path) -> None:
    run(*commands["encode"], *BFLOAT16)
    vectors, exact = np.load(tmp_path / "vectors.npy"), Encoder(tiny).encode(TEXTS)
    assert vectors.dtype == np.float32
    assert not np.array_equal(vectors, exact)
    assert cosines(vectors, exact).min() > 0.99
    run(*commands["parts"], *BFLOAT16)
    assert "torch bfloat16" in error(*commands["parts"])  # parts of another precision
    for name, options in (("evaluate", BFLOAT16), ("evaluate as is", BFLOAT16), ("evaluate", ())):
        report = json.loads(run(*commands[name], *options, "--json", "-").stdout)
        assert report["results"][0]["provenance"].get("precision") == ("bfloat16" if options else None)


@pytest.mark.slow  # conversions
@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=needs_bfloat16)])
def test_graphs_of_recipes(tiny: str, lines: Path, pairs: Path, tmp_path: Path, precision: str) -> None:
    """A recipe that learns is fitted first; recipes of an evaluation are shaped on each task as in torch."""
    recipe, file = "layers=1 weights=idf | zscore", tmp_path / "vectors.npy"
    graph = ("--engine", "openvino", "--precision", precision)
    run("encode", lines, "-m", tiny, "-r", recipe, "-o", file, *graph)
    expected = Encoder(tiny, recipe).fit(TEXTS).encode(TEXTS)
    least = 0.9999 if precision == "float32" else 0.9
    assert cosines(np.load(file), expected)[[0, 2, 3]].min() > least
    command = ("evaluate", "-m", tiny, "-r", "mean", recipe, "-d", pairs, "--json", "-")
    scores = [
        [result["metrics"]["spearman"]["all"] for result in json.loads(run(*command, *how).stdout)["results"]]
        for how in (graph, ())
    ]
    if precision == "float32":
        assert scores[0] == pytest.approx(scores[1])
