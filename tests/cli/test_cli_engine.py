"""`--engine` and `--precision` in every command that encodes: the same names and refusals, and what they change."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from command_line import TEXTS, run
from essent import Encoder
from essent._core.arithmetic import has_bfloat16
from essent.engine.loss import cosines

here = pytest.mark.skipif(not has_bfloat16("cpu"), reason="this CPU has no bfloat16 arithmetic")


@pytest.fixture
def lines_of(tiny: str, lines: Path, pairs: Path, tmp_path: Path) -> dict[str, tuple[object, ...]]:
    return {
        "encode": ("encode", lines, "-m", tiny, "-o", tmp_path / "vectors.npy"),
        "parts": ("encode", lines, "-m", tiny, "-o", tmp_path / "parts"),
        "evaluate": ("evaluate", "-m", tiny, "-r", "mean", "-d", pairs),
        "evaluate as is": ("evaluate", "-m", tiny, "--as-is", "-d", pairs),
        "search": ("search", "-m", tiny, "-d", pairs, "--space", "layers"),
        "distill": ("distill", "-m", tiny, "-t", lines, "-o", tmp_path / "static"),
    }


def test_bfloat16_is_refused_on_other_processors(lines_of: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    for line in lines_of.values():
        assert "This CPU has no bfloat16 arithmetic" in run(*line, "--precision", "bfloat16", code=2).stderr


def test_wrong_names_are_refused_before_anything_is_loaded(lines_of: dict) -> None:
    for line in lines_of.values():
        elsewhere = [part if part != line[line.index("-m") + 1] else "nowhere" for part in line]
        shown = run(*elsewhere, "--precision", "bf16", code=2).stderr
        assert 'Choose from: "auto", "float32", "bfloat16".' in shown
    for name in ("encode", "parts", "evaluate"):
        assert (
            "onnx runs in float32" in run(*lines_of[name], "--engine", "onnx", "--precision", "bfloat16", code=2).stderr
        )


@here
def test_vectors_in_bfloat16_are_near_those_in_float32(tiny: str, lines_of: dict, tmp_path: Path) -> None:
    run(*lines_of["encode"], "--precision", "bfloat16")
    found, exact = np.load(tmp_path / "vectors.npy"), Encoder(tiny).encode(TEXTS)
    assert found.dtype == np.float32
    assert not np.array_equal(found, exact)
    assert cosines(found, exact).min() > 0.99


@here
def test_a_result_says_what_it_was_computed_in(lines_of: dict) -> None:
    for name in ("evaluate", "evaluate as is"):
        shown = json.loads(run(*lines_of[name], "--precision", "bfloat16", "--json", "-").stdout)
        assert shown["results"][0]["provenance"]["precision"] == "bfloat16"
        shown = json.loads(run(*lines_of[name], "--json", "-").stdout)
        assert "precision" not in shown["results"][0]["provenance"]


@here
def test_parts_of_another_precision_are_refused(lines_of: dict) -> None:
    run(*lines_of["parts"], "--precision", "bfloat16")
    shown = run(*lines_of["parts"], code=2).stderr
    assert "torch bfloat16" in shown


@pytest.mark.slow  # conversions
@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=here)])
def test_graphs_of_recipes(tiny: str, lines: Path, pairs: Path, tmp_path: Path, precision: str) -> None:
    """A recipe that learns is fitted first; recipes of an evaluation are shaped on each task as in torch."""
    recipe, file = "layers=1 weights=idf | zscore", tmp_path / "vectors.npy"
    given = ("--engine", "openvino", "--precision", precision)
    run("encode", lines, "-m", tiny, "-r", recipe, "-o", file, *given)
    wanted = Encoder(tiny, recipe).fit(TEXTS).encode(TEXTS)
    least = 0.9999 if precision == "float32" else 0.9
    assert cosines(np.load(file), wanted)[[0, 2, 3]].min() > least
    table = run("evaluate", "-m", tiny, "-r", "mean", recipe, "-d", pairs, *given, "--json", "-")
    own = run("evaluate", "-m", tiny, "-r", "mean", recipe, "-d", pairs, "--json", "-")
    if precision == "float32":
        scores = [[r["metrics"]["spearman"]["all"] for r in json.loads(t.stdout)["results"]] for t in (table, own)]
        assert scores[0] == pytest.approx(scores[1])
