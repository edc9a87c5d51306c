"""Digests distinguish weights, configurations, tokenizers, recipes and token counts."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from essent import Encoder
from essent.encoder.module import digest_of, digest_of_backbone, key_of
from essent.recipe.types import CorpusStats


def test_keys_tell_models_recipes_and_counts_apart() -> None:
    counts = [CorpusStats(2, np.array([1, n]), np.array([1, 1])) for n in (1, 2)]
    keys = {key_of(m, r, s) for m in ("m", "n") for r in ("mean", "cls") for s in (None, *counts)}
    assert len(keys) == 12


def test_another_tokenizer_or_configuration_is_another_model(bert: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bert, tmp_path / "model"))
    original, backbone = (Encoder(source, "mean").module.backbone for source in (bert, folder))
    assert digest_of_backbone(backbone) == digest_of_backbone(original)  # the path is no part of it
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-3}), "utf-8")
    assert digest_of_backbone(Encoder(folder, "mean").module.backbone) != digest_of_backbone(original)
    assert len({digest_of_backbone(original, *settings) for settings in ((), (64,), (128,))}) == 3
    backbone.tokenizer.add_tokens(["flutist"])
    assert digest_of_backbone(backbone) != digest_of_backbone(original)


@pytest.mark.parametrize(("rows", "dtype"), [((0, 1), torch.float32), ((3, 2900), torch.int8)])
def test_digests_distinguish_swapped_weights(rows: tuple[int, int], dtype: torch.dtype) -> None:
    model = torch.nn.Module()
    model.register_buffer("rows", (torch.randn(3000, 7, generator=torch.manual_seed(0)) * 50).to(dtype))
    before = digest_of(model)
    changed = model.rows.data.numpy()  # torch does not see what changes here
    changed[list(rows)] = changed[list(rows[::-1])]
    assert digest_of(model) != before
    changed[list(rows)] = changed[list(rows[::-1])]
    assert digest_of(model) == before
    changed[-1, -1] += 1  # behind the last whole block
    assert digest_of(model) != before
