"""Continuous templates: only their rows move, and the model with more rows is an ordinary one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from training_helpers import SMALL, TEXTS

from essent import Encoder, Recipe, verify
from essent.errors import InputError, UnsupportedRecipeError
from essent.tasks.pairs import PairTask
from essent.training.continuous import free_template
from essent.training.run import train
from essent.training.settings import BERT_TEMPLATES, ROBERTA_TEMPLATES

CASES = {
    "bert": BERT_TEMPLATES[1],
    "roberta": ROBERTA_TEMPLATES[0],
    "modernbert": ROBERTA_TEMPLATES[1],
    "xlm-roberta": '"{text}" means [MASK]',
}


@pytest.mark.parametrize("family", CASES)
def test_before_training_nothing_has_changed(family: str, folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    """The rows begin as copies: the free template gives the vectors of the written one, also in plain ST."""
    template = CASES[family].replace("{text}", "{tokens}")
    words = Encoder(str(folder_of(family)), Recipe(template=template, weights=("mask",)))
    encoder = Encoder(str(folder_of(family)), "mean")
    assert free_template(encoder, [CASES[family]]).count("[V") > 1
    expected = words.encode([*TEXTS, "", "[V1] [MASK]"])
    np.testing.assert_allclose(encoder.encode([*TEXTS, "", "[V1] [MASK]"]), expected, atol=1e-6)
    encoder.save(str(tmp_path))
    assert set(verify(str(tmp_path)).differences) == {"essent", "sentence-transformers"}


@pytest.mark.slow
def test_only_the_template_is_trained(bert: Path, dev: PairTask, tmp_path: Path) -> None:
    settings = {**SMALL, "learning_rate": 1e-2, "max_steps": 4, "validate_every": 2}
    encoder = train(bert, TEXTS, "optiprompt", output=tmp_path / "run", validate=dev, **settings)
    before = Encoder(str(bert), "mean").module.backbone.model.state_dict()
    after = load_file(tmp_path / "run" / "model.safetensors")
    words = "embeddings.word_embeddings.weight"
    tokenizer = encoder.module.backbone.tokenizer
    known = [index for token, index in tokenizer.get_vocab().items() if not token.startswith("[V")]
    free = [index for token, index in tokenizer.get_vocab().items() if token.startswith("[V")]
    assert all(torch.equal(before[name], weight) for name, weight in after.items() if name != words)
    assert torch.equal(before[words][known], after[words][known])
    assert encoder.recipe.template is not None
    assert len(free) == encoder.recipe.template.count("[V") == 7
    began = Encoder(str(bert), "mean")
    free_template(began, BERT_TEMPLATES[1:])
    moved = (began.module.backbone.static_table[free] - after[words][free]).abs().amax(dim=1)
    assert (moved > 1e-4).all()
    plain = SentenceTransformer(str(tmp_path / "run"))
    np.testing.assert_allclose(plain.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)


def test_refusals(bert: Path, tmp_path: Path, folder_of: Callable[[str], Path]) -> None:
    with pytest.raises(InputError, match="one at a time, got 2"):
        train(bert, TEXTS, "optiprompt", output=tmp_path, objective="different-templates", **SMALL)
    with pytest.raises(UnsupportedRecipeError, match="no words"):
        train(bert, TEXTS, "optiprompt", output=tmp_path, templates=["{text}[MASK]"], **SMALL)
    with pytest.raises(UnsupportedRecipeError, match="no mask token"):
        train(folder_of("gpt2"), TEXTS, "optiprompt", output=tmp_path, **SMALL)
    assert not list(tmp_path.iterdir())
