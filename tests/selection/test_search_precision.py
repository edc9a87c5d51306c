"""A search whose passes are in bfloat16: the same leaderboard to a tenth of a point, sums and diagonals in float32."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from essent._core.machine import has_bfloat16
from essent.model.loading import load
from essent.recipe.recipe import Recipe
from essent.recipe.tokens.ids import framed_ids, pad
from essent.selection.program import Program
from essent.selection.run import search
from essent.tasks.sample import sample_texts
from families import CORPUS

needs_bfloat16 = pytest.mark.skipif(not has_bfloat16("cpu"), reason="this CPU has no bfloat16 arithmetic")


@needs_bfloat16
@pytest.mark.slow  # two searches
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_bfloat16_matches_float32(folder_of: Callable[[str], Path], family: str) -> None:
    """On 1,500 pairs of English sentences, judged by the words that they share."""
    texts = sample_texts()
    words = [set(text.lower().strip(".?!").split()) for text in texts]
    rows = [
        (texts[a], texts[b], len(words[a] & words[b]) / len(words[a] | words[b]))
        for a, b in np.random.default_rng(0).integers(0, len(texts), (1500, 2))
    ]
    boards = [
        search(str(folder_of(family)), rows, "layers", precision=precision, device="cpu", top=1)
        for precision in ("float32", "bfloat16")
    ]
    scores = [{trial.recipe: trial.scores["spearman"] for trial in board.trials} for board in boards]
    apart = np.array([abs(scores[0][recipe] - scores[1][recipe]) for recipe in scores[0]])
    assert 0 < apart.max() < 0.1
    assert boards[0].leader == boards[1].leader
    assert [board.provenance["precision"] for board in boards] == ["float32", "bfloat16"]


@needs_bfloat16
def test_diagonals_and_sums_are_in_float32(bert: Path) -> None:
    backbone = load(str(bert), [], {"device": "cpu"}).backbone
    backbone.compute_in("bfloat16")
    program = Program([Recipe.parse("layers=2 weights=ditto:2-1"), Recipe.parse("layers=2")], backbone)
    (block,) = program.passes[0].blocks
    tokens = pad(framed_ids(backbone.tokenizer, block.frame, CORPUS[:4], None), block.frame, backbone.pad_id)
    with torch.inference_mode():
        states = backbone.states(tokens, block.required)
        columns, weights = block.read(tokens, states, backbone, None)
    assert states.diagonals[2, 1].dtype == torch.float32
    assert [column.dtype for column in columns] == [torch.float32]
    assert weights.dtype == torch.float32
    diagonal = states.diagonals[2, 1][tokens.attention_mask]
    assert not torch.equal(diagonal, diagonal.bfloat16().float())  # more digits than bfloat16 has
