"""Decoders: prompts equal a plain script of the papers' code, their prefix is computed once; bidirectional."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

import essent
from essent import Encoder, verify
from essent.engine.graph import Graph
from essent.errors import EngineError, ModelError, RecipeError
from essent.model.loading import read_capabilities
from essent.recipe.named import TEMPLATES
from families import DECODERS, MORE_DECODERS, NO_CACHE
from samples import TEXTS, daily

LAYERS = {  # of the published prompts with one forward pass
    "prompteol": -1,
    "prompteol-example": -1,
    "pretended-cot": -2,
    "knowledge": -2,
    "prompt-sth": -1,
    "prompt-sum": -1,
}
SENTENCES = [*filter(None, TEXTS), 'He said "no" twice', "How far is it?", "so it ends.", "wow!"]


@cache
def plain_model(folder: Path) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()


def by_script(folder: Path, prompt: str, layer: int) -> np.ndarray:
    """Run the papers' evaluation code (scaling_sentemb, PretCoTandKE): left padding, state of the last token."""
    tokenizer, model = plain_model(folder)
    tokenizer.pad_token_id, tokenizer.padding_side = 0, "left"
    sentences = []
    for sentence in SENTENCES:
        if sentence[-1] not in ".?\"'":
            sentence += "."
        sentence = sentence.replace('"', "'")
        if sentence[-1] == "?":
            sentence = sentence[:-1] + "."
        sentences.append(prompt.replace("{text}", sentence).strip())
    batch = tokenizer(sentences, return_tensors="pt", padding=True)
    if model.config.model_type == "gpt2":  # the script leaves positions to the model, which counts padding
        batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        return model(**batch, output_hidden_states=True).hidden_states[layer][:, -1, :].numpy()


@pytest.mark.parametrize("family", daily([*DECODERS, *MORE_DECODERS], "gpt2", "llama", "gemma3_text"))
def test_named_prompts_equal_the_published_code(family: str, folder_of: Callable[[str], Path]) -> None:
    folder = folder_of(family)
    for name, layer in LAYERS.items():
        vectors = Encoder(folder, name).encode(SENTENCES, batch_size=3)
        np.testing.assert_allclose(vectors, by_script(folder, TEMPLATES[name], layer), atol=1e-5, err_msg=name)


def test_meta_eol_is_the_mean_of_its_prompts(folder_of: Callable[[str], Path]) -> None:
    folder = folder_of("mistral")  # 300 of its tokens fit
    expected = np.mean([by_script(folder, TEMPLATES[f"metaeol-{n}"], -1) for n in range(1, 9)], axis=0)
    np.testing.assert_allclose(Encoder(folder, "metaeol").encode(SENTENCES, batch_size=3), expected, atol=1e-5)


@pytest.mark.parametrize("family", daily([*DECODERS, *MORE_DECODERS], "gpt2", "llama"))
def test_echo_is_the_mean_of_the_second_occurrence(family: str, folder_of: Callable[[str], Path]) -> None:
    """Pieces are tokenized apart and joined, as in the published code."""
    folder = folder_of(family)
    tokenizer, model = plain_model(folder)
    begins = tokenizer.tokenize("a")[0].startswith("▁")  # of every piece, where the published code has a space too much
    expected = []
    for sentence in SENTENCES:
        text = tokenizer(sentence if begins else " " + sentence, add_special_tokens=False)["input_ids"]
        between = tokenizer(", rewritten sentence:", add_special_tokens=False)["input_ids"][begins:]
        ids = [*tokenizer("Rewrite the sentence:")["input_ids"], *text, *between, *text]
        with torch.no_grad():
            states = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        expected.append(states[-len(text) :].mean(dim=0).numpy())
    encoder = Encoder(folder, "echo")
    np.testing.assert_allclose(encoder.encode(SENTENCES, batch_size=3), expected, atol=1e-5)
    encoder.tokenizer.padding_side = "left"
    padded_left = encoder(encoder.preprocess(SENTENCES))["sentence_embedding"].detach()
    np.testing.assert_allclose(padded_left, expected, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_long_texts_of_echo_are_truncated_in_both_occurrences(side: str, folder_of: Callable[[str], Path]) -> None:
    encoder = Encoder(folder_of("llama"), "echo")
    encoder.tokenizer.truncation_side = side
    encoder.max_seq_length = 41
    frame, (ids,) = encoder.module.plan.frame, encoder.module.ids(["playing a large flute " * 20])
    room = (41 - len(frame)) // 2
    assert len(ids) == len(frame) + 2 * room
    assert ids[len(frame.before) :][:room] == ids[len(ids) - room :]
    assert np.isfinite(encoder.encode(["", "a"])).all()


def test_an_ensemble_adds_the_vectors_of_its_templates(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    folder = folder_of("gpt2")
    parts = [Encoder(folder, f"template={name} weights=last").encode(SENTENCES) for name in ("about", "one-word")]
    encoder = Encoder(folder, "template=1.5*about+-0.5*one-word weights=last | centre").fit(SENTENCES)
    total = 1.5 * parts[0] - 0.5 * parts[1]
    vectors = encoder.encode(SENTENCES, batch_size=2)
    np.testing.assert_allclose(vectors, total - total.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(np.concatenate([encoder.encode([text]) for text in SENTENCES]), vectors, atol=1e-5)
    features = encoder(encoder.preprocess(SENTENCES))  # as trainers call it
    np.testing.assert_allclose(features["sentence_embedding"].detach(), vectors, atol=1e-5)
    encoder.save(str(tmp_path / "saved"))
    plain = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True)
    np.testing.assert_allclose(plain.encode(SENTENCES), vectors, atol=1e-5)
    np.testing.assert_allclose(Encoder(str(tmp_path / "saved")).encode(SENTENCES), vectors, atol=1e-5)
    with pytest.raises(RecipeError, match="texts, not of tokens"):
        encoder.encode(SENTENCES, output_value="token_embeddings")
    with pytest.raises(EngineError, match="adds several templates"):
        Graph(encoder.module)


# -- the prompt's prefix ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3_text"])
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
    encoder, fresh = (Encoder(folder_of("llama"), "prompteol") for _ in range(2))
    encoder.encode(SENTENCES)
    assert encoder.module.backbone.prefixes
    weights = {name: 1.5 * weight for name, weight in encoder.state_dict().items()}
    for each in (encoder, fresh):
        each.load_state_dict(weights)
    np.testing.assert_allclose(encoder.encode(SENTENCES), fresh.encode(SENTENCES), atol=1e-6)
    encoder.train()
    assert not encoder.module.backbone.prefixes
    encoder(encoder.preprocess(SENTENCES))["sentence_embedding"].sum().backward()
    assert not encoder.module.backbone.prefixes
    table = encoder.module.backbone.static_table
    assert table.grad is not None
    assert table.grad[list(encoder.module.plan.frame.prefix[1:3])].abs().sum() > 0
    encoder.bfloat16().eval()
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


# -- attention in both directions -------------------------------------------------------------------------------------

OFF = {"config_kwargs": {"is_causal": False}}
WRITTEN = [text for text in TEXTS if text]


@pytest.fixture
def asking(folder_of: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Family -> a copy of its folder whose config.json asks for attention in both directions."""

    def build(family: str, **setting: bool) -> Path:
        folder = tmp_path / family
        shutil.copytree(folder_of(family), folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **(setting or {"is_causal": False})}))
        return folder

    return build


def mean_by_script(folder: Path, texts: list[str]) -> np.ndarray:
    """The mean of each text's last states, one text at a time, under a mask (1,1,T,T) made by hand."""
    tokenizer, config = AutoTokenizer.from_pretrained(folder), AutoConfig.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, config=config, attn_implementation="eager").eval()
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or [None]
    means = []
    for text in texts:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        distance = torch.arange(ids.shape[1])[:, None] - torch.arange(ids.shape[1])
        full = torch.zeros(1, 1, *distance.shape)
        near = full if window is None else full.masked_fill(distance.abs() > window, torch.finfo().min)
        mask = near if kinds == [None] else {"full_attention": full, "sliding_attention": near}
        mask = full if set(kinds) == {"full_attention"} else mask
        with torch.no_grad():
            positions = torch.arange(ids.shape[1])[None]
            states = model(input_ids=ids, attention_mask=mask, position_ids=positions).last_hidden_state
        means.append(states.mean(dim=1))
    return torch.cat(means).numpy()


@pytest.mark.parametrize("family", daily([*DECODERS, *MORE_DECODERS], "gpt2", "gemma3_text"))
def test_a_bidirectional_checkpoint_is_respected(family: str, asking: Callable[..., Path]) -> None:
    folder = asking(family)
    short = [text for text in WRITTEN if len(text) < 30]
    encoder = Encoder(folder, "mean")
    for batch_size in (1, 7):
        vectors = encoder.encode(short, batch_size=batch_size)
        np.testing.assert_allclose(vectors, mean_by_script(folder, short), atol=1e-5)


@pytest.mark.parametrize("family", daily(["gpt2", "gemma3_text"], "gemma3_text"))
def test_the_option_equals_a_bidirectional_checkpoint(
    family: str, folder_of: Callable[[str], Path], asking: Callable[..., Path], tmp_path: Path
) -> None:
    """The first token sees the last; also behind a prompt, whose prefix is not computed once; also when saved."""
    with pytest.warns(UserWarning, match="usually get worse"):
        first = Encoder(folder_of(family), "cls", **OFF)
    assert not first.module.backbone.cache_argument
    changed = first.encode(["the moon is large", "the moon is green"])
    assert np.abs(changed[0] - changed[1]).max() > 1e-3
    causal = Encoder(folder_of(family), "cls").encode(["the moon is large", "the moon is green"])
    np.testing.assert_allclose(causal[0], causal[1], atol=1e-6)
    folder = asking(family)
    for recipe in ("mean layers=1+L", "prompteol"):
        with pytest.warns(UserWarning, match="LLM2Vec"):
            encoder = Encoder(folder_of(family), recipe, **OFF)
        vectors = encoder.encode(TEXTS)
        assert not encoder.module.backbone.prefixes
        np.testing.assert_allclose(vectors, Encoder(folder, recipe).encode(TEXTS), atol=1e-6)
    encoder.save(str(tmp_path / "own"))
    np.testing.assert_allclose(Encoder(tmp_path / "own").encode(TEXTS), vectors, atol=1e-5)


@pytest.mark.slow  # a conversion of its own
def test_stock_modules_and_graphs_keep_it(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="usually get worse"):
        encoder = Encoder(folder_of("llama"), "mean", **OFF)
    vectors = encoder.encode(WRITTEN)
    encoder.save(str(tmp_path / "stock"))
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "stock")).encode(WRITTEN), vectors, atol=1e-5)
    graph = essent.compile(encoder, "openvino", threads=1)
    np.testing.assert_allclose(graph.encode(WRITTEN), vectors, atol=1e-5)
    assert not read_capabilities(folder_of("llama"), OFF).causal
    Encoder(folder_of("llama"), "mean").save(str(tmp_path / "causal"))
    with pytest.warns(UserWarning, match="usually get worse"):
        np.testing.assert_allclose(Encoder(tmp_path / "causal", **OFF).encode(WRITTEN), vectors, atol=1e-5)


def test_gemmas_own_setting_is_respected(asking: Callable[..., Path], tmp_path: Path) -> None:
    encoder = Encoder(asking("gemma3_text", use_bidirectional_attention=True), "cls")
    vectors = encoder.encode(["the moon is large", "the moon is green"])
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    assert not encoder.module.backbone.cache_argument
    encoder.save(str(tmp_path / "own"))  # its window, halved at loading, must not be halved twice
    long = " ".join(WRITTEN)
    np.testing.assert_allclose(Encoder(tmp_path / "own").encode([long]), encoder.encode([long]), atol=1e-5)


def test_layers_that_stay_causal_are_refused(folder_of: Callable[[str], Path]) -> None:
    with pytest.raises(ModelError, match="does not make Lfm2Model bidirectional"):  # convolutions remain causal
        Encoder(folder_of("lfm2"), "mean", **OFF)
    with pytest.raises(ModelError, match="must be True or False"):
        Encoder(folder_of("llama"), "mean", config_kwargs={"is_causal": 0})


def test_encoders_are_unchanged(folder_of: Callable[[str], Path]) -> None:
    for recipe in ("mean", "prompt-topk"):
        plain, off = Encoder(folder_of("bert"), recipe), Encoder(folder_of("bert"), recipe, **OFF)
        np.testing.assert_array_equal(off.encode(WRITTEN), plain.encode(WRITTEN))
