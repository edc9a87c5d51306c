"""States of the whole model, from as little of it as the recipe reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from essent.encoder.encoder import Encoder
from essent.model import attention
from essent.model.backbone import Backbone, number_of_layers
from essent.recipe.tokens import Frame, pad
from essent.recipe.types import RequiredOutputs
from families import FAMILIES
from reference import Reference
from samples import TEXTS, daily

Shells = Callable[[str], SentenceTransformer]
References = Callable[[str], Reference]


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "albert", "deberta-v2", "modernbert", "t5", "gpt2", "llama"))
def test_layers_match_the_whole_model(family: str, shell_of: Shells, reference_of: References) -> None:
    """hidden_states[k] of the whole model with output_hidden_states, also below a final norm, also when cut at k."""
    reference, shell = reference_of(family), shell_of(family)
    ids = list(reference.sentence("Two dogs run through the green field", None).ids)
    oracle = reference.run(ids)[0]
    for cut, layers in ((3, {0}), (3, {0, 1, 2}), (3, {3}), (3, {0, 1, 2, 3}), (2, {2}), (2, {0, 1, 2}), (0, {0})):
        backbone = Backbone(shell[0].model, shell.tokenizer, shell.max_seq_length)
        backbone.cut(cut)
        tokens = pad([ids, ids[:2]], Frame((), ()), backbone.pad_id)
        with torch.inference_mode():
            hidden = backbone.states(tokens, RequiredOutputs(frozenset(layers))).hidden
        assert set(hidden) == layers
        for layer, states in hidden.items():
            scale = max(1.0, np.abs(oracle[layer]).max())
            np.testing.assert_allclose(states[0].numpy(), oracle[layer], atol=1e-5 * scale)


@pytest.mark.parametrize("family", ["bert", "t5", "llama", "modernbert"])
def test_only_the_requested_heads_are_computed(family: str, shell_of: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[list[int]] = []
    computed = attention._probabilities

    def noted(*arguments: torch.Tensor, **options: object) -> torch.Tensor:
        requested.append((arguments[4] + 1).tolist())
        return computed(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(attention, "_probabilities", noted)
    monkeypatch.setattr(attention, "SHORT", 0)  # short texts have whole matrices in any case
    Encoder(shell_of(family), "mean").encode(["a man"])
    assert requested == []
    Encoder(shell_of(family), "ditto:2-3").encode(["a man"])
    assert requested == [[3]]
    Encoder(shell_of(family), "weights=ditto:1-4*ditto:1-2*ditto:3-1").encode(["a man"])
    assert requested[1:] == [[2, 4], [1]]


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "albert", "deberta-v2", "gpt2"))
def test_encoders_sharing_a_model_are_independent(family: str, folder_of: Callable[[str], Path]) -> None:
    """As each from its folder, loaded no deeper than it reads; no hook on a layer fires for another encoder."""
    shell = SentenceTransformer(str(folder_of(family)), device="cpu")
    recipes = ["layers=1+2", "ditto:2-2", "layers=0+1+2+L", "layers=2", "static", "random"]
    alone = [Encoder(str(folder_of(family)), recipe).encode(TEXTS) for recipe in recipes]
    encoders = [Encoder(shell, recipe) for recipe in recipes]
    for _ in range(2):
        for encoder, vectors in zip(encoders, alone, strict=True):
            np.testing.assert_allclose(encoder.encode(TEXTS), vectors, atol=1e-5)


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "llama"))
def test_the_callers_model_is_unchanged(family: str, folder_of: Callable[[str], Path]) -> None:
    shell = SentenceTransformer(str(folder_of(family)), device="cpu", model_kwargs={"attn_implementation": "eager"})
    model = shell[0].model
    features = shell.tokenizer(["a man is playing"], return_tensors="pt", return_token_type_ids=False)

    def everything() -> list[torch.Tensor]:
        with torch.no_grad():
            output = model(**features, output_hidden_states=True, output_attentions=True)
        return [output.last_hidden_state, *output.hidden_states, *output.attentions]

    shell.tokenizer.pad_token = shell.tokenizer.pad_token or shell.tokenizer.eos_token  # stock decoders cannot pad
    texts = [text for text in TEXTS if text]
    settings, vectors, states = model.config.to_dict(), shell.encode(texts), everything()
    for recipe in ("ditto:2-3", "layers=0+1", "static", "mean"):
        Encoder(shell, recipe).encode(TEXTS)
    assert model.config.to_dict() == settings
    assert model.config._attn_implementation == "eager"
    assert number_of_layers(model) == 3
    np.testing.assert_array_equal(shell.encode(texts), vectors)
    for before, after in zip(states, everything(), strict=True):
        torch.testing.assert_close(before, after)
