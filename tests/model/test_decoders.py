"""Decoders: prompts equal a plain script of the papers' code, their prefix is computed once; bidirectional."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import essent
from essent import Encoder, verify
from essent.engine.graph import Graph
from essent.errors import EngineError, ModelError, RecipeError
from essent.model.loading import read_capabilities
from essent.recipe.named import TEMPLATES
from families import DECODERS, MORE_DECODERS, NO_CACHE, Folders
from reference import Reference, References
from samples import TEXTS, daily

LAYERS = {  # of the published prompts with one forward pass
    "prompteol": -1,
    "prompteol-example": -1,
    "pretended-cot": -2,
    "knowledge": -2,
    "prompt-sth": -1,
    "prompt-sum": -1,
}
WRITTEN = [text for text in TEXTS if text]
SENTENCES = [*WRITTEN, 'He said "no" twice', "How far is it?", "so it ends.", "wow!"]


def by_script(reference: Reference, prompt: str, layer: int) -> np.ndarray:
    """Run the papers' evaluation code (scaling_sentemb, PretCoTandKE), without its padding: state of the last token."""
    vectors = []
    for sentence in SENTENCES:
        if sentence[-1] not in ".?\"'":
            sentence += "."
        sentence = sentence.replace('"', "'")
        if sentence[-1] == "?":
            sentence = sentence[:-1] + "."
        ids = reference.tokenizer(prompt.replace("{text}", sentence).strip())["input_ids"]
        vectors.append(reference.run(ids)[0][layer][-1])
    return np.array(vectors)


@pytest.mark.parametrize("family", daily([*DECODERS, *MORE_DECODERS], "gpt2", "llama", "gemma3_text"))
def test_named_prompts_equal_the_published_code(family: str, folder_of: Folders, reference_of: References) -> None:
    for name, layer in LAYERS.items():
        vectors = Encoder(folder_of(family), name).encode(SENTENCES, batch_size=3)
        expected = by_script(reference_of(family), TEMPLATES[name], layer)
        np.testing.assert_allclose(vectors, expected, atol=1e-5, err_msg=name)


def test_meta_eol_is_the_mean_of_its_prompts(folder_of: Folders, reference_of: References) -> None:
    reference = reference_of("mistral")  # 300 of its tokens fit
    expected = np.mean([by_script(reference, TEMPLATES[f"metaeol-{n}"], -1) for n in range(1, 9)], axis=0)
    vectors = Encoder(folder_of("mistral"), "metaeol").encode(SENTENCES, batch_size=3)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


@pytest.mark.parametrize("family", daily([*DECODERS, *MORE_DECODERS], "gpt2", "llama"))
def test_echo_is_the_mean_of_the_second_occurrence(family: str, folder_of: Folders, reference_of: References) -> None:
    """Pieces are tokenized apart and joined, as in the published code."""
    reference, encoder = reference_of(family), Encoder(folder_of(family), "echo")
    begins = reference.mark == "▁"  # of every piece, where the published code has a space too much
    expected = []
    for sentence in SENTENCES:
        text = reference.tokenizer(sentence if begins else " " + sentence, add_special_tokens=False)["input_ids"]
        between = reference.tokenizer(", rewritten sentence:", add_special_tokens=False)["input_ids"][begins:]
        ids = [*reference.tokenizer("Rewrite the sentence:")["input_ids"], *text, *between, *text]
        expected.append(reference.run(ids)[0][-1][-len(text) :].mean(axis=0))
    np.testing.assert_allclose(encoder.encode(SENTENCES, batch_size=3), expected, atol=1e-5)
    encoder.tokenizer.padding_side = "left"
    padded_left = encoder(encoder.preprocess(SENTENCES))["sentence_embedding"].detach()
    np.testing.assert_allclose(padded_left, expected, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_long_texts_of_echo_are_truncated_in_both_occurrences(side: str, folder_of: Folders) -> None:
    encoder = Encoder(folder_of("llama"), "echo")
    encoder.tokenizer.truncation_side = side
    encoder.max_seq_length = 41
    frame, (ids,) = encoder.module.plan.frame, encoder.module.ids(["playing a large flute " * 20])
    room = (41 - len(frame)) // 2
    assert len(ids) == len(frame) + 2 * room
    assert ids[len(frame.before) :][:room] == ids[len(ids) - room :]


def test_an_ensemble_adds_the_vectors_of_its_templates(folder_of: Folders, tmp_path: Path) -> None:
    model, folder = folder_of("gpt2"), str(tmp_path / "saved")
    parts = [Encoder(model, f"template={name} weights=last").encode(SENTENCES) for name in ("about", "one-word")]
    total = 1.5 * parts[0] - 0.5 * parts[1]
    encoder = Encoder(model, "template=1.5*about+-0.5*one-word weights=last | centre").fit(SENTENCES)
    encoder.save(folder)
    for vectors in (
        encoder.encode(SENTENCES, batch_size=2),
        [encoder.encode(text) for text in SENTENCES],
        encoder(encoder.preprocess(SENTENCES))["sentence_embedding"].detach(),  # as trainers call it
        Encoder(folder).encode(SENTENCES),
        SentenceTransformer(folder, trust_remote_code=True).encode(SENTENCES),
    ):
        np.testing.assert_allclose(vectors, total - total.mean(axis=0), atol=1e-5)
    with pytest.raises(RecipeError, match="texts, not of tokens"):
        encoder.encode(SENTENCES, output_value="token_embeddings")
    with pytest.raises(EngineError, match="adds several templates"):
        Graph(encoder.module)


# -- the prompt's prefix ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3_text"])
def test_the_prefix_of_a_prompt_is_computed_once(family: str, folder_of: Folders) -> None:
    """Every layer and every token, with the prefix longer than a sliding window; the first batch and later ones."""
    encoder = Encoder(folder_of(family), "template=knowledge layers=0+2+L weights=position")
    backbone, prefix = encoder.module.backbone, len(encoder.module.plan.frame.prefix)
    widths = []
    backbone.model.get_input_embeddings().register_forward_hook(lambda *call: widths.append(tuple(call[2].shape[:2])))
    vectors = encoder.encode(SENTENCES, batch_size=1)
    lengths = [len(ids) for ids in encoder.module.ids(SENTENCES)]
    assert sum(rows * width for rows, width in widths) < prefix + 1.5 * sum(length - prefix for length in lengths)
    in_batches = encoder.encode(SENTENCES[::-1], batch_size=4)[::-1]
    assert widths.count((1, prefix)) == 1
    backbone.prefixes.clear()
    backbone.__dict__["cache_argument"] = ""
    plain = encoder.encode(SENTENCES)
    np.testing.assert_allclose(vectors, plain, atol=1e-5)
    np.testing.assert_allclose(in_batches, plain, atol=1e-5)


def test_a_prefix_is_not_reused_where_gradients_or_new_weights_need_it(folder_of: Folders) -> None:
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
    assert table.grad[list(encoder.module.plan.frame.prefix[1:3])].abs().sum() > 0
    encoder.bfloat16().eval()
    assert np.isfinite(encoder.encode(SENTENCES)).all()  # keys and values of the prefix in the new type


@pytest.mark.parametrize("family", list(NO_CACHE))
def test_models_whose_prefix_cannot_be_reused(family: str, folder_of: Folders) -> None:
    """Attention in both directions; linear attention beside ordinary one."""
    encoder = Encoder(folder_of(family), "knowledge")
    vectors = encoder.encode(SENTENCES)
    assert not encoder.module.backbone.prefixes
    np.testing.assert_allclose(np.stack([encoder.encode(text) for text in SENTENCES]), vectors, atol=1e-5)


def test_a_prompt_is_saved_as_stock_modules_if_its_text_is_tokenized_alone(folder_of: Folders, tmp_path: Path) -> None:
    for name, by_stock_modules in (("prompteol | centre", False), ("one-word | centre", True)):
        folder = str(tmp_path / name[:3])
        encoder = Encoder(folder_of("gpt2"), name).fit(SENTENCES)
        encoder.save(folder)
        assert ("sentence-transformers" in verify(folder).differences) == by_stock_modules
        plain = SentenceTransformer(folder, trust_remote_code=not by_stock_modules)
        np.testing.assert_allclose(plain.encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-5)


# -- attention in both directions -------------------------------------------------------------------------------------

OFF = {"config_kwargs": {"is_causal": False}}


def asking(folder: Path, copy: Path, **setting: bool) -> Path:
    """A copy of a model's folder whose config.json asks for attention in both directions."""
    shutil.copytree(folder, copy)
    config = json.loads((folder / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | setting))
    return copy


def mean_by_script(reference: Reference, text: str) -> np.ndarray:
    """The mean of the last states of a text, under masks (1,1,T,T) made by hand."""
    ids = torch.tensor([reference.tokenizer(text)["input_ids"]])
    positions = torch.arange(ids.shape[1])
    full = torch.zeros(1, 1, len(positions), len(positions), dtype=torch.float64)
    config = reference.model.config
    kinds, window = set(getattr(config, "layer_types", None) or ()), getattr(config, "sliding_window", None)
    distance = (positions[:, None] - positions).abs()
    near = full if window is None else full.masked_fill(distance > window, torch.finfo(full.dtype).min)
    mask = {"full_attention": full, "sliding_attention": near} if len(kinds) == 2 else near
    with torch.no_grad():
        output = reference.model(input_ids=ids, attention_mask=mask, position_ids=positions[None])
    return output.last_hidden_state[0].mean(dim=0).numpy()


@pytest.mark.parametrize("family", daily([*DECODERS, *MORE_DECODERS], "gpt2", "gemma3_text"))
def test_a_checkpoint_or_the_option_asks_for_it(
    family: str, folder_of: Folders, reference_of: References, tmp_path: Path
) -> None:
    """Also behind a prompt, whose prefix is not computed once; also when saved."""
    expected = [mean_by_script(reference_of(family), text) for text in WRITTEN]
    folder = asking(folder_of(family), tmp_path / "copy", is_causal=False)
    with pytest.warns(UserWarning, match="usually get worse"):
        encoders = [Encoder(folder, "mean"), Encoder(folder_of(family), "mean", **OFF)]
    for encoder in encoders:
        for batch_size in (1, 7):
            np.testing.assert_allclose(encoder.encode(WRITTEN, batch_size=batch_size), expected, atol=1e-5)
    with pytest.warns(UserWarning, match="LLM2Vec"):
        encoder = Encoder(folder_of(family), "prompteol", **OFF)
    vectors = encoder.encode(TEXTS)
    assert not encoder.module.backbone.prefixes
    np.testing.assert_allclose(vectors, Encoder(folder, "prompteol").encode(TEXTS), atol=1e-6)
    encoder.save(str(tmp_path / "own"))
    np.testing.assert_allclose(Encoder(tmp_path / "own").encode(TEXTS), vectors, atol=1e-5)


@pytest.mark.slow  # a conversion of its own
def test_stock_modules_and_graphs_keep_it(folder_of: Folders, tmp_path: Path) -> None:
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


def test_gemmas_own_setting_is_respected(folder_of: Folders, tmp_path: Path) -> None:
    folder = asking(folder_of("gemma3_text"), tmp_path / "copy", use_bidirectional_attention=True)
    encoder = Encoder(folder, "cls")
    vectors = encoder.encode(["the moon is large", "the moon is green"])
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    assert not encoder.module.backbone.cache_argument
    encoder.save(str(tmp_path / "own"))  # its window, halved at loading, must not be halved twice
    long = " ".join(WRITTEN)
    np.testing.assert_allclose(Encoder(tmp_path / "own").encode([long]), encoder.encode([long]), atol=1e-5)


def test_layers_that_stay_causal_are_refused(folder_of: Folders) -> None:
    with pytest.raises(ModelError, match="does not make Lfm2Model bidirectional"):  # convolutions remain causal
        Encoder(folder_of("lfm2"), "mean", **OFF)
    with pytest.raises(ModelError, match="must be True or False"):
        Encoder(folder_of("llama"), "mean", config_kwargs={"is_causal": 0})


def test_encoders_are_unchanged(folder_of: Folders) -> None:
    for recipe in ("mean", "prompt-topk"):
        plain, off = Encoder(folder_of("bert"), recipe), Encoder(folder_of("bert"), recipe, **OFF)
        np.testing.assert_array_equal(off.encode(WRITTEN), plain.encode(WRITTEN))
