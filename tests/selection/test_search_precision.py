"""A search whose passes are in bfloat16: the same leaderboard to a tenth of a point, sums and diagonals in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from families import CORPUS

from essent.arithmetic import has_bfloat16, in_precision
from essent.model import RequiredOutputs, load
from essent.selection import Settings, search
from essent.selection.program import Block, Program
from essent.tasks import load_pairs, sample_pairs_path
from essent.tokens import framed_ids, pad
from essent.types import DataError, EngineError, InputError

here = pytest.mark.skipif(not has_bfloat16("cpu"), reason="this CPU has no bfloat16 arithmetic")


def test_names_and_machines(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(precision="bf16").precision == "bfloat16"
    with pytest.raises(InputError, match="allowed: auto, float32, bfloat16"):
        Settings(precision="float16")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    with pytest.raises(EngineError, match="no bfloat16 arithmetic"):
        search(str(bert), load_pairs(sample_pairs_path()), "layers", precision="bfloat16", device="cpu")


@here
@pytest.mark.parametrize("family", ["bert", pytest.param("modernbert", marks=pytest.mark.slow)])
def test_the_leaderboard_is_that_of_float32(folder_of, family: str) -> None:
    """Every recipe of heads, layers, weights and shaping, on 160 pairs of English by an untrained model."""
    task = load_pairs(sample_pairs_path())
    boards = [
        search(str(folder_of(family)), task, "full", precision=precision, device="cpu", seed=1)
        for precision in ("float32", "bfloat16")
    ]
    scores = [{trial.recipe: trial.scores["spearman"] for trial in board.trials} for board in boards]
    assert scores[0].keys() == scores[1].keys()
    differences = np.array([scores[0][recipe] - scores[1][recipe] for recipe in scores[0]])
    assert np.abs(differences).max() > 0  # it was computed otherwise
    assert np.median(np.abs(differences)) < 0.1
    assert boards[1].provenance["precision"] == "bfloat16"
    assert "precision" not in boards[0].provenance


@here
def test_diagonals_and_sums_are_in_float32(bert: Path) -> None:
    backbone = in_precision(load(str(bert), [], {"device": "cpu"}).backbone, "bfloat16", shared=False)
    program = Program([], backbone)
    assert program.passes == []
    block = Block(_frame(backbone), backbone.dimensions, [("ditto:2-1",), ()], [((_source(2), 1.0),)])
    tokens = pad(framed_ids(backbone.tokenizer, block.frame, CORPUS[:4], None), block.frame, backbone.pad_id)
    with torch.inference_mode():
        states = backbone.states(tokens, block.required | RequiredOutputs(frozenset({2})))
        columns, weights = block.read(tokens, states, backbone, None)
    assert states.hidden[2].dtype == torch.bfloat16
    assert states.diagonals[2, 1].dtype == torch.float32
    assert [column.dtype for column in columns] == [torch.float32]
    assert weights.dtype == torch.float32


@here
def test_a_work_folder_of_another_precision_is_refused(bert: Path, tmp_path: Path) -> None:
    task = load_pairs(sample_pairs_path())
    search(str(bert), task, "layers", device="cpu", work=tmp_path / "work")
    with pytest.raises(DataError, match="holds another search"):
        search(str(bert), task, "layers", device="cpu", work=tmp_path / "work", precision="bfloat16")


def _frame(backbone):
    from essent.model import make_frame

    return make_frame(backbone.tokenizer, None)


def _source(layer: int):
    from essent.sources import resolve

    return resolve(str(layer), 3)
