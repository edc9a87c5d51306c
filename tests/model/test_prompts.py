"""Prompts of decoders: vectors equal those of a plain transformers script, written after the papers' code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from essent import verify
from essent.encoder.encoder import Encoder
from families import DECODERS, MORE_DECODERS, NO_CACHE
from samples import TEXTS

PROMPTS = {  # as published: prompt, index of the hidden state
    "prompteol": ('This sentence : "*sent 0*" means in one word:"', -1),
    "prompteol-example": (
        'This sentence : "A jockey riding a horse." means in one word:"Equestrian".'
        'This sentence : "*sent 0*" means in one word:"',
        -1,
    ),
    "pretended-cot": ('After thinking step by step , this sentence : "*sent 0*" means in one word:"', -2),
    "knowledge": (
        "The essence of a sentence is often captured by its main subjects and actions, while descriptive terms provide "
        'additional but less central details. With this in mind , this sentence : "*sent 0*" means in one word:"',
        -2,
    ),
    "prompt-sth": ('This sentence : "*sent 0*" means something', -1),
    "prompt-sum": ('This sentence : "*sent 0*" can be summarized as', -1),
}
SENTENCES = [*filter(None, TEXTS), 'He said "no" twice', "How far is it?", "so it ends.", "wow!"]


def by_script(folder: Path, prompt: str, layer: int) -> np.ndarray:
    """Run the papers' evaluation code (scaling_sentemb, PretCoTandKE): left padding, state of the last token."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token_id, tokenizer.padding_side = 0, "left"
    model = AutoModel.from_pretrained(folder).eval()
    sentences = []
    for sentence in SENTENCES:
        if sentence[-1] not in ".?\"'":
            sentence += "."
        sentence = sentence.replace('"', "'")
        if sentence[-1] == "?":
            sentence = sentence[:-1] + "."
        sentences.append(prompt.replace("*sent 0*", sentence).strip())
    batch = tokenizer(sentences, return_tensors="pt", padding=True)
    if model.config.model_type == "gpt2":  # the script leaves positions to the model, which counts padding
        batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        return model(**batch, output_hidden_states=True).hidden_states[layer][:, -1, :].numpy()


@pytest.mark.parametrize("family", [*DECODERS, *MORE_DECODERS])
def test_named_prompts_equal_the_published_code(family: str, folder_of: Callable[[str], Path]) -> None:
    folder = folder_of(family)
    for name, (prompt, layer) in PROMPTS.items():
        vectors = Encoder(folder, name).encode(SENTENCES, batch_size=3)
        np.testing.assert_allclose(vectors, by_script(folder, prompt, layer), atol=1e-5, err_msg=name)


# -- the prompt's prefix ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [*DECODERS, *MORE_DECODERS])
def test_the_prefix_of_a_prompt_is_computed_once(family: str, folder_of: Callable[[str], Path]) -> None:
    """Every layer and every token, with the prefix longer than a sliding window; the first batch and later ones."""
    encoder = Encoder(folder_of(family), "template=knowledge layers=0+2+L weights=position")
    backbone, prefix = encoder.module.backbone, len(encoder.module.plan.frame.prefix)
    widths = []
    backbone.model.get_input_embeddings().register_forward_hook(lambda *call: widths.append(tuple(call[2].shape[:2])))
    vectors = encoder.encode(SENTENCES, batch_size=1)
    lengths = [len(ids) for ids in encoder.module.ids(SENTENCES)]
    assert prefix > 20
    assert sum(rows * width for rows, width in widths) < prefix + 1.5 * sum(length - prefix for length in lengths)
    again = encoder.encode(SENTENCES[::-1], batch_size=4)[::-1]
    assert (1, prefix) in widths[:2]
    assert widths.count((1, prefix)) == 1
    backbone.prefixes.clear()
    backbone.__dict__["cache_argument"] = ""
    plain = encoder.encode(SENTENCES)
    np.testing.assert_allclose(vectors, plain, atol=1e-5)
    np.testing.assert_allclose(again, plain, atol=1e-5)


def test_a_prefix_is_not_reused_where_gradients_or_new_weights_need_it(folder_of: Callable[[str], Path]) -> None:
    encoder = Encoder(folder_of("llama"), "prompteol")
    encoder.encode(SENTENCES)
    assert encoder.module.backbone.prefixes
    encoder.train()
    assert not encoder.module.backbone.prefixes
    encoder(encoder.preprocess(SENTENCES))["sentence_embedding"].sum().backward()
    assert not encoder.module.backbone.prefixes
    table = encoder.module.backbone.static_table
    assert table.grad is not None
    assert table.grad[list(encoder.module.plan.frame.prefix[1:3])].abs().sum() > 0


def test_new_weights_are_read_by_the_prefix_too(folder_of: Callable[[str], Path]) -> None:
    encoder = Encoder(folder_of("llama"), "prompteol")
    before = encoder.encode(SENTENCES)
    weights = {name: 1.5 * weight for name, weight in encoder.state_dict().items()}
    encoder.load_state_dict(weights)
    fresh = Encoder(folder_of("llama"), "prompteol")
    fresh.load_state_dict(weights)
    after = encoder.encode(SENTENCES)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(after, fresh.encode(SENTENCES), atol=1e-6)
    encoder.bfloat16()
    assert np.isfinite(encoder.encode(SENTENCES)).all()  # keys and values of the prefix in the new type


@pytest.mark.parametrize("family", list(NO_CACHE))
def test_models_whose_prefix_cannot_be_reused(family: str, folder_of: Callable[[str], Path]) -> None:
    """Attention in both directions; linear attention beside ordinary one."""
    encoder = Encoder(folder_of(family), "knowledge")
    vectors = encoder.encode(SENTENCES)
    assert not encoder.module.backbone.prefixes
    np.testing.assert_allclose(np.stack([encoder.encode(text) for text in SENTENCES]), vectors, atol=1e-5)


def test_a_prompt_is_saved_as_stock_modules_if_its_text_is_tokenized_alone(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    for name, by_stock_modules in (("prompteol | centre", False), ("one-word | centre", True)):
        folder = tmp_path / name[:3]
        encoder = Encoder(folder_of("gpt2"), name).fit(SENTENCES)
        encoder.save(str(folder))
        assert ("sentence-transformers" in verify(str(folder)).differences) == by_stock_modules
        assert (folder / "code").is_dir() != by_stock_modules
        plain = SentenceTransformer(str(folder), trust_remote_code=not by_stock_modules)
        np.testing.assert_allclose(plain.encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-5)
