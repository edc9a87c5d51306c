"""Settings and presets: the papers' rows, what may be changed, what is refused; pairs from files; heads."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM

from essent._core.folders.contents import weight_files
from essent.errors import DataError, InputError, RecipeError, UnknownNameError
from essent.recipe.named import TEMPLATES
from essent.recipe.shaping.affine import Whiten
from essent.training.examples import read_examples
from essent.training.parameters import projection_heads
from essent.training.settings import BERT_TEMPLATES, ROBERTA_TEMPLATES, Settings, resolve_settings
from families import Folders


@pytest.mark.parametrize(
    ("preset", "kind", "published"),  # batch, learning rate, epochs, validate every
    [  # PromptBERT, Tables 13 and 14; SimCSE, App. A
        ("promptbert-unsup", "bert", (256, 1e-5, 1, 125)),
        ("promptbert-unsup", "roberta", (256, 1e-5, 1, 125)),
        ("promptbert-sup", "bert", (512, 5e-5, 3, 125)),
        ("promptbert-sup", "roberta", (512, 5e-5, 3, 125)),
        ("optiprompt", "bert", (256, 3e-5, 5, 1000)),
        ("simcse-unsup", "bert", (64, 3e-5, 1, 250)),
        ("simcse-unsup", "roberta", (512, 1e-5, 1, 250)),
        ("simcse-sup", "bert", (512, 5e-5, 3, 250)),
        ("prompteol", "roberta", (256, 5e-4, 1, 50)),  # PromptEOL's train_llm.sh
    ],
)
def test_presets_are_the_papers(preset: str, kind: str, published: tuple[float, ...]) -> None:
    settings = resolve_settings(preset, kind, {})
    assert (settings.batch_size, settings.learning_rate, settings.epochs, settings.validate_every) == published
    assert settings.temperature == 0.05
    allowed = {*(BERT_TEMPLATES if kind == "bert" else ROBERTA_TEMPLATES), TEMPLATES["prompteol"]}
    assert set(settings.templates) <= allowed
    assert Settings(**settings.to_dict()) == settings
    assert Settings(**{**settings.to_dict(), "templates": iter(settings.templates)}) == settings


def test_changes_of_the_objective_change_templates_and_recipe() -> None:
    settings = resolve_settings("promptbert-unsup", "bert", {"objective": "same-template", "batch_size": 8})
    assert (settings.templates, settings.batch_size, settings.predicts.weights) == (BERT_TEMPLATES[:1], 8, ("mask",))
    settings = resolve_settings("simcse-unsup", "roberta", {"objective": "different-templates"})
    assert (settings.templates, settings.recipe) == (ROBERTA_TEMPLATES, "prompt")
    settings = resolve_settings("promptbert-unsup", "bert", {"objective": "same-template", "templates": "T0"})
    assert settings.templates == (TEMPLATES["T0"],)
    settings = resolve_settings("promptbert-sup", "bert", {"objective": "simcse"})
    assert (settings.templates, settings.recipe, settings.views[0].weights) == ((), "cls", ("cls",))
    settings = resolve_settings("prompteol", "roberta", {"recipe": "about", "lora": 0})
    assert (settings.templates, settings.learning_rate) == ((TEMPLATES["about"],), 1e-5)
    assert str(settings.predicts) == "about"
    assert resolve_settings("simcse-unsup", "bert", {"lora": 8}).learning_rate == 5e-4
    assert resolve_settings("promptbert-sup", "bert", {}).predicts.layers == (("L-bias", 1.0),)
    settings = resolve_settings("promptbert-unsup", "bert", {"batch_size": np.int64(8)})
    assert json.loads(json.dumps(settings.to_dict()))["batch_size"] == 8


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"preset": "promptbert"}, UnknownNameError, "Did you mean 'promptbert-"),
        ({"objectiv": "simcse"}, UnknownNameError, "Did you mean 'objective'"),
        ({"objective": "simsce"}, UnknownNameError, "Did you mean 'simcse'"),
        ({"projection_head": "dense"}, UnknownNameError, "dense-tanh"),
        ({"batch_size": 2.5}, InputError, r"batch_size=2\.5: must be a whole number"),
        ({"epochs": float("nan")}, InputError, "epochs=nan: must be a number above 0"),
        ({"precision": "half"}, InputError, "allowed: float32, bfloat16"),
        ({"templates": ["{text} [MASK]"]}, InputError, r"needs 2 template\(s\), got 1"),
        ({"templates": ["T0+T4", "T1"]}, RecipeError, "one template per view, not a sum"),
        ({"preset": "prompteol", "recipe": "metaeol"}, RecipeError, "one template per view, not a sum"),
        ({"preset": "prompteol", "recipe": "mean"}, RecipeError, "needs recipe='prompteol' or 'about'"),
        ({"lora": -1}, InputError, "lora=-1: must be a whole number of at least 0"),
        ({"recipe": "mean"}, RecipeError, "recipe='prompt' or 'prompt-denoised'"),
        ({"objective": "simcse", "recipe": "prompt"}, RecipeError, "use objective='same-template'"),
        ({"objective": "simcse", "recipe": "mean | whiten"}, RecipeError, "fit it afterwards"),
    ],
)
def test_refusals(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        resolve_settings(changes.pop("preset", "promptbert-unsup"), "bert", changes)


# -- pairs from files -------------------------------------------------------------------------------------------------


def test_pairs_and_triplets(tmp_path: Path) -> None:
    (tmp_path / "nli.csv").write_text("sent0,sent1,hard_neg\nA dog runs.,An animal moves.,A dog sleeps.\na,b,c\n")
    examples = read_examples(tmp_path / "nli.csv")
    assert examples.rows == (("A dog runs.", "An animal moves.", "A dog sleeps."), ("a", "b", "c"))
    assert list(examples.columns()) == ["anchor", "positive", "negative"]
    (tmp_path / "qa.tsv").write_text("Question\tid\tanswer\nq1\t1\ta1\nq2\t2\ta2\n")
    assert read_examples(tmp_path / "qa.tsv").rows == (("q1", "a1"), ("q2", "a2"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no rows"),
        ("text\na\n", r"line 2: no column 'anchor' \(accepted: anchor, premise, .*Columns: 'text'"),
        ("premise,label\na,b\n", "no column 'positive'"),
        ("anchor,positive\na,b\nc, \n", "line 3: 'positive' is blank"),
        ("anchor,positive\na,b\n", "at least two different pairs, got 1"),
    ],
)
def test_bad_files(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(content)
    with pytest.raises((DataError, InputError), match=message):
        read_examples(tmp_path / "pairs.csv")


# -- heads ------------------------------------------------------------------------------------------------------------


def test_the_whitening_is_the_shaper_s() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 6)) @ rng.normal(size=(6, 6)) + 3.0
    vectors[:, 5] = vectors[:, 4]  # a component without variance
    head = projection_heads["whiten"](6, None, torch.Generator(), [])
    rows = torch.from_numpy(vectors).float()
    with pytest.raises(InputError, match="is not fitted"):
        head(rows)
    head.fit(vectors)
    np.testing.assert_allclose(head(rows).numpy(), Whiten().fit(vectors).transform(vectors), atol=1e-4)
    assert not list(head.parameters())


@pytest.mark.parametrize(
    ("family", "transform", "norm"),
    [
        ("bert", "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
        ("roberta", "lm_head.dense", "lm_head.layer_norm"),
        ("distilbert", "vocab_transform", "vocab_layer_norm"),
    ],
)
def test_the_prediction_transform_is_the_checkpoint_s_own(
    family: str, transform: str, norm: str, folder_of: Folders, tmp_path: Path
) -> None:
    model = AutoModelForMaskedLM.from_pretrained(folder_of(family), dtype=torch.float32).eval()
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    weights = weight_files(str(tmp_path), {})
    assert len(weights) > 1
    head = projection_heads["prediction-transform"](32, model.config, torch.Generator(), weights)
    vectors = torch.randn(3, 32)
    expected = model.get_submodule(norm)(torch.nn.functional.gelu(model.get_submodule(transform)(vectors)))
    torch.testing.assert_close(head(vectors), expected)
    assert head.origin == "taken from the checkpoint"
    without = projection_heads["prediction-transform"](32, model.config, torch.Generator(), [])
    assert "no prediction head" in without.origin
