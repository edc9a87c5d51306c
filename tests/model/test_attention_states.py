"""Value vectors and attention outputs, against hooks by hand in float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedModel

import essent
from essent import Encoder
from essent.errors import UnsupportedRecipeError
from essent.recipe.layers import resolve
from essent.selection.space import Grid, Space
from families import Folders
from reference import Reference
from samples import TEXTS, daily
from selection_samples import TASK

References = Callable[[str], Reference]
FAMILIES = ("bert", "gpt2", "llama", "gemma3_text", "distilbert", "albert", "t5", "modernbert")
MODULES = {  # family -> paths of the value projection and W_O in the layer's attention
    "bert": ("encoder.layer.{}.attention.self.value", "encoder.layer.{}.attention.output.dense"),
    "gpt2": ("h.{}.attn.c_attn", "h.{}.attn.c_proj"),
    "llama": ("layers.{}.self_attn.v_proj", "layers.{}.self_attn.o_proj"),
    "gemma3_text": ("layers.{}.self_attn.v_proj", "layers.{}.self_attn.o_proj"),
    "distilbert": ("transformer.layer.{}.attention.v_lin", "transformer.layer.{}.attention.out_lin"),
    "t5": ("encoder.block.{}.layer.0.SelfAttention.v", "encoder.block.{}.layer.0.SelfAttention.o"),
    "modernbert": ("layers.{}.attn.Wqkv", "layers.{}.attn.Wo"),
    "albert": (
        "encoder.albert_layer_groups.0.albert_layers.0.attention.value",
        "encoder.albert_layer_groups.0.albert_layers.0.attention.dense",
    ),
}
SOURCES = ("value:1", "value:L", "attention:2", "attention:L-out", "attention:L-1-out")


def plain_states(model: PreTrainedModel, family: str, ids: list[int]) -> dict[tuple[int, str], np.ndarray]:
    """States (T,·) of one text by layer and kind: hooks on the modules, eager attention, float64."""
    calls: dict[str, list[np.ndarray]] = {"value": [], "attention": [], "attention-out": []}
    value_path, output_path = MODULES[family]
    handles = []

    def note_value(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        fused = family in ("gpt2", "modernbert")
        calls["value"].append((output.chunk(3, dim=-1)[2] if fused else output)[0].numpy())

    def note_output(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        calls["attention"].append(inputs[0][0].numpy())
        calls["attention-out"].append(output[0].numpy())

    for layer in range(1 if family == "albert" else 3):
        handles.append(model.get_submodule(value_path.format(layer)).register_forward_hook(note_value))
        handles.append(model.get_submodule(output_path.format(layer)).register_forward_hook(note_output))
    with torch.no_grad():
        model(input_ids=torch.tensor([ids]))
    for handle in handles:
        handle.remove()
    return {(layer + 1, kind): states for kind, rows in calls.items() for layer, states in enumerate(rows)}


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, atol=1e-5 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "gpt2", "llama"))
def test_states_equal_a_plain_script(family: str, folder_of: Folders, reference_of: References) -> None:
    """Mean over the tokens, alone, in a batch, and padded on the left."""
    folder, model = folder_of(family), reference_of(family).model
    for source in SOURCES:
        encoder = Encoder(str(folder), f"layers={source}", device="cpu")
        key = resolve(source, 3).key
        plain = [plain_states(model, family, ids or [0])[key].mean(axis=0) for ids in encoder.module.ids(TEXTS)]
        nonempty_rows = [row for row, ids in enumerate(encoder.module.ids(TEXTS)) if ids]
        expected = np.stack(plain)[nonempty_rows]
        texts = [TEXTS[row] for row in nonempty_rows]
        assert_same(encoder.encode(texts), expected)
        assert_same(np.stack([encoder.encode(text) for text in texts]), expected)
        features = encoder.module.pad(encoder.module.ids(texts), "left")
        with torch.inference_mode():
            assert_same(encoder.module(features)["sentence_embedding"].numpy(), expected)
        assert encoder.get_embedding_dimension() == expected.shape[1]


def test_grouped_values_occur_once(folder_of: Folders) -> None:
    encoder = Encoder(str(folder_of("llama")), "layers=value:2", device="cpu")
    assert encoder.get_embedding_dimension() == 16  # 2 kv heads of 8 dimensions, shared by 4 heads
    with pytest.raises(UnsupportedRecipeError, match="value:2 has 16, attention:2 has 32"):
        Encoder(str(folder_of("llama")), "layers=value:2+attention:2", device="cpu")


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_mixes_weights_and_templates(family: str, folder_of: Folders, reference_of: References) -> None:
    """Layers and attention in one mix; with a template, the prefix cache is not used."""
    folder, model = folder_of(family), reference_of(family).model
    recipe = "template=about layers=0.5*attention:L-out+2*attention:1-out+-1*L weights=last"
    encoder = Encoder(str(folder), recipe, device="cpu")
    for text, vector in zip(TEXTS, encoder.encode(TEXTS), strict=True):
        ids = encoder.module.ids([text])[0]
        states = plain_states(model, family, ids)
        with torch.no_grad():
            last = model(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
        mixed = 0.5 * states[3, "attention-out"] + 2 * states[1, "attention-out"] - last
        assert_same(vector, mixed[-1])


def test_training_reaches_the_weights(bert: Path) -> None:
    encoder = Encoder(str(bert), "layers=attention:1-out", device="cpu")
    features = encoder.module.preprocess(TEXTS[:2])
    encoder.module(features)["sentence_embedding"].sum().backward()
    block = encoder.module.backbone.model.encoder.layer[0].attention
    assert block.output.dense.weight.grad.abs().sum() > 0
    assert block.self.value.weight.grad.abs().sum() > 0


def test_saved_folders_load_in_sentence_transformers(bert: Path, tmp_path: Path) -> None:
    encoder = Encoder(str(bert), "layers=0.5*attention:2-out+0.5*1 weights=ditto:1-2 | centre", device="cpu").fit(TEXTS)
    expected = encoder.encode(TEXTS)
    encoder.save(str(tmp_path / "saved"))
    assert_same(Encoder(str(tmp_path / "saved"), device="cpu").encode(TEXTS), expected)
    stock = SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=True)
    assert_same(stock.encode(TEXTS), expected)


# -- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "recipe", "message"),
    [
        *(("bert", f"layers={source}", "k of 1 to 3") for source in ("value:0", "attention:4", "attention:L-3-out")),
        ("mpnet", "layers=value:1", "transformers' mpnet has no attention interface"),
        ("deberta-v2", "layers=value:1", "transformers' deberta-v2 has no attention interface"),
        ("lfm2", "layers=value:3", "some layers of this model have no attention"),
        ("lfm2", "ditto:2-1", "some layers of this model have no attention"),
    ],
)
def test_refused_before_the_weights_are_read(
    family: str, recipe: str, message: str, folder_of: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(folder_of(family))
    monkeypatch.setattr("essent.model.loading._open", None)
    with pytest.raises(UnsupportedRecipeError, match=message):
        Encoder(folder, recipe, device="cpu")


def test_hybrids_have_no_heads(folder_of: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped by spaces; a family whose `layer_types` are unknown is refused in its pass."""
    space = Space((Grid(weights=("uniform", "ditto:*")),))
    board = essent.search(str(folder_of("lfm2")), TASK, space, baselines=["mean"], device="cpu")
    assert [str(trial.recipe) for trial in board.trials] == ["mean"]
    monkeypatch.setattr("essent.model.capabilities.NO_ATTENTION", frozenset())
    with pytest.raises(UnsupportedRecipeError, match="3 layers of this model call attention 1 times"):
        Encoder(str(folder_of("lfm2")), "layers=value:3", device="cpu")
