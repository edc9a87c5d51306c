"""Template denoising: the empty template's states, shifted by the sentence's length, leave the template's tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from essent.encoder.encoder import Encoder
from reference import Reference
from samples import LONG, TEXTS

Shells = Callable[[str], SentenceTransformer]


def test_by_hand(shell_of: Shells, reference_of: Callable[[str], Reference]) -> None:
    model, encoder = reference_of("bert").model, Encoder(shell_of("bert"), "prompt-denoised")
    ids = encoder.module.ids(["two dogs run."])[0]
    frame = encoder.module.plan.frame
    words = len(ids) - len(frame)
    at = ids.index(encoder.tokenizer.mask_token_id)
    template = [*frame.before, *frame.after]
    positions = [*range(len(frame.before)), *range(len(frame.before) + words, len(ids))]
    with torch.no_grad():
        sentence = model(torch.tensor([ids])).last_hidden_state[0, at]
        bias = model(torch.tensor([template]), position_ids=torch.tensor([positions])).last_hidden_state[0, at - words]
    np.testing.assert_allclose(encoder.encode("two dogs run."), (sentence - bias).numpy(), atol=1e-5)


def test_the_users_words_stay_as_they_are(shell_of: Shells) -> None:
    plain = Encoder(shell_of("bert"), "template=bert weights=content").encode(TEXTS)
    debiased = Encoder(shell_of("bert"), "template=bert layers=L-bias weights=content").encode(TEXTS)
    full = [n for n, text in enumerate(TEXTS) if text]  # the empty text falls back to all tokens of the template
    np.testing.assert_allclose(debiased[full], plain[full], atol=1e-5)


def test_the_empty_text_leaves_nothing(shell_of: Shells) -> None:
    assert np.abs(Encoder(shell_of("bert"), "prompt-denoised").encode("")).max() < 1e-5


def test_a_single_pass_per_length(shell_of: Shells) -> None:
    encoder = Encoder(shell_of("bert"), "prompt-denoised")
    rows = []
    encoder.module.backbone.model.embeddings.register_forward_hook(lambda *a: rows.append(a[2].shape[0]))
    encoder.encode(["a man", "a dog", "the dogs run"], batch_size=32)
    lengths = {len(ids) for ids in encoder.module.ids(["a man", "a dog", "the dogs run"])}
    assert rows == [3, len(lengths)]
    encoder.encode(["a man", "a dog", "the dogs run"], batch_size=32)
    assert rows == [3, len(lengths), 3]


def test_training_clears_the_cached_states(shell_of: Shells) -> None:
    encoder = Encoder(shell_of("bert"), "prompt-denoised")
    encoder.encode(TEXTS)
    assert encoder.module.backbone.template_states
    encoder.train()
    assert not encoder.module.backbone.template_states
    encoder(encoder.preprocess(["a man"]))["sentence_embedding"].sum().backward()
    assert not encoder.module.backbone.template_states
    for parameter in encoder.parameters():
        parameter.grad = None
    encoder.eval()


def test_a_long_text_is_finite(shell_of: Shells) -> None:
    assert np.isfinite(Encoder(shell_of("bert"), "prompt-denoised").encode([LONG * 3])).all()
