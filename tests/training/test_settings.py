"""Settings and presets: the papers' rows, what may be changed, what is refused; pairs from files; heads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training_helpers import SMALL, TEXTS, training_record
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM

from essent.errors import DataError, InputError, RecipeError, UnknownNameError
from essent.recipe.named import TEMPLATES
from essent.recipe.shaping.affine import Whiten
from essent.tasks.pairs import PairTask
from essent.training.examples import read_examples
from essent.training.projection import projection_heads
from essent.training.run import train_seeds
from essent.training.settings import BERT_TEMPLATES, PRESETS, ROBERTA_TEMPLATES, Settings, resolve_settings

# PromptBERT, Tables 13 and 14; SimCSE, App. A: (batch, learning rate, epochs, validate every)
PUBLISHED = {
    ("promptbert-unsup", "bert"): (256, 1e-5, 1, 125),
    ("promptbert-unsup", "roberta"): (256, 1e-5, 1, 125),
    ("promptbert-sup", "bert"): (512, 5e-5, 3, 125),
    ("promptbert-sup", "roberta"): (512, 5e-5, 3, 125),
    ("optiprompt", "bert"): (256, 3e-5, 5, 1000),
    ("simcse-unsup", "bert"): (64, 3e-5, 1, 250),
    ("simcse-unsup", "roberta"): (512, 1e-5, 1, 250),
    ("simcse-sup", "bert"): (512, 5e-5, 3, 250),
}


@pytest.mark.parametrize("key", PUBLISHED, ids=" ".join)
def test_presets_are_the_papers(key: tuple[str, str]) -> None:
    settings = resolve_settings(*key, {})
    assert (settings.batch_size, settings.learning_rate, settings.epochs, settings.validate_every) == PUBLISHED[key]
    assert settings.temperature == 0.05
    own = BERT_TEMPLATES if key[1] == "bert" else ROBERTA_TEMPLATES
    assert set(settings.templates) <= set(own)
    assert key[0] in PRESETS


def test_changes() -> None:
    settings = resolve_settings("promptbert-unsup", "bert", {"objective": "same-template", "batch_size": 8})
    assert (settings.templates, settings.batch_size, str(settings.predicts.weights)) == (
        BERT_TEMPLATES[:1],
        8,
        "('mask',)",
    )
    settings = resolve_settings("simcse-unsup", "roberta", {"objective": "different-templates"})
    assert (settings.templates, settings.recipe) == (ROBERTA_TEMPLATES, "prompt")
    settings = resolve_settings("promptbert-unsup", "bert", {"objective": "same-template", "templates": "T0"})
    assert settings.templates == (TEMPLATES["T0"],)
    settings = resolve_settings("promptbert-sup", "bert", {"objective": "simcse"})
    assert (settings.templates, settings.recipe, settings.views[0].weights) == ((), "cls", ("cls",))
    assert resolve_settings("promptbert-sup", "bert", {}).predicts.layers == (("L-bias", 1.0),)
    assert Settings(**resolve_settings("simcse-sup", "bert", {}).to_dict()) == resolve_settings(
        "simcse-sup", "bert", {}
    )


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"objectiv": "simcse"}, UnknownNameError, "Did you mean 'objective'"),
        ({"objective": "simsce"}, UnknownNameError, "Did you mean 'simcse'"),
        ({"projection_head": "dense"}, UnknownNameError, "dense-tanh"),
        ({"batch_size": 2.5}, InputError, r"batch_size=2\.5: it must be a whole number"),
        ({"max_steps": 0}, InputError, "max_steps=0"),
        ({"epochs": float("nan")}, InputError, "epochs=nan"),
        ({"temperature": 0}, InputError, "temperature=0: it must be a number above 0"),
        ({"precision": "half"}, InputError, "allowed: float32, bfloat16, float16"),
        ({"templates": ["{text} [MASK]"]}, InputError, r"takes 2 template\(s\), not 1"),
        ({"templates": ["{text} [MASK]"] * 2}, InputError, "The templates are equal"),
        ({"templates": ["{text} [MASK]", "{text}"]}, RecipeError, r"has no \[MASK\]"),
        ({"templates": ["[MASK]", "{text} [MASK]"]}, RecipeError, "exactly one"),
        ({"recipe": "mean"}, RecipeError, "recipe='prompt' or 'prompt-denoised'"),
        ({"objective": "simcse", "recipe": "prompt"}, RecipeError, "take 'same-template'"),
        ({"objective": "simcse", "recipe": "mean | whiten"}, RecipeError, "fit it afterwards"),
        ({"objective": "simcse", "recipe": "static"}, RecipeError, "no transformer layer"),
        ({"recipe": "prompt-denoised", "keep_projection_head": True}, InputError, "take recipe='prompt'"),
    ],
)
def test_refusals(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        resolve_settings("promptbert-unsup", "bert", changes)


def test_unknown_preset() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'promptbert-"):
        resolve_settings("promptbert", "bert", {})


# -- pairs from files -------------------------------------------------------------------------------------------------


def test_pairs_and_triplets(tmp_path: Path) -> None:
    (tmp_path / "nli.csv").write_text("sent0,sent1,hard_neg\nA dog runs.,An animal moves.,A dog sleeps.\na,b,c\n")
    examples = read_examples(tmp_path / "nli.csv")
    assert examples.rows == (("A dog runs.", "An animal moves.", "A dog sleeps."), ("a", "b", "c"))
    assert list(examples.columns()) == ["anchor", "positive", "negative"]
    rows = [{"Question": "q1", "id": 1, "answer": "a1"}, {"Question": "q2", "id": 2, "answer": "a2"}]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_examples(tmp_path / "qa.jsonl").rows == (("q1", "a1"), ("q2", "a2"))
    assert read_examples(tmp_path / "qa.jsonl").digest() != examples.digest()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no rows"),
        ("text\na\n", r"line 2: no column 'anchor' \(accepted: anchor, premise, .*it has 'text'"),
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


def test_the_whitening_is_the_shaper_s_and_a_stock_module() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 6)) @ rng.normal(size=(6, 6)) + 3.0
    vectors[:, 5] = vectors[:, 4]  # a component without variance
    head = projection_heads["whiten"](6, None, torch.Generator(), "")
    with pytest.raises(InputError, match="is not fitted"):
        head(torch.zeros(1, 6))
    head.fit(vectors)
    expected = Whiten().fit(vectors).transform(vectors)
    inputs = torch.from_numpy(vectors).float()
    np.testing.assert_allclose(head(inputs).numpy(), expected, atol=1e-4)
    stock = head.stock()[0]({"sentence_embedding": inputs})["sentence_embedding"]
    np.testing.assert_allclose(stock.detach().numpy(), expected, atol=1e-3)
    assert not list(head.parameters())


def test_the_prediction_transform_is_the_checkpoint_s_own(tmp_path: Path) -> None:
    config = BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    model = BertForMaskedLM(config).eval()
    model.save_pretrained(tmp_path)
    head = projection_heads["prediction-transform"](16, config, torch.Generator().manual_seed(0), str(tmp_path))
    vectors = torch.randn(3, 16)
    torch.testing.assert_close(head(vectors), model.cls.predictions.transform(vectors))
    assert head.origin == "taken from the checkpoint"
    for folder in ("", str(tmp_path / "nothing")):
        new_head = projection_heads["prediction-transform"](16, config, torch.Generator().manual_seed(0), folder)
        assert "no prediction head" in new_head.origin
    again = projection_heads["prediction-transform"](16, config, torch.Generator().manual_seed(0), "")
    assert torch.equal(new_head.dense.weight, again.dense.weight)


@pytest.mark.parametrize(
    ("family", "dense", "norm"),
    [
        ("roberta", "lm_head.dense", "lm_head.layer_norm"),
        ("mpnet", "lm_head.dense", "lm_head.layer_norm"),
        ("distilbert", "vocab_transform", "vocab_layer_norm"),
    ],
)
def test_prediction_transform_of_families(family: str, dense: str, norm: str, folder_of: Callable[[str], Path]) -> None:
    model = AutoModelForMaskedLM.from_pretrained(folder_of(family), dtype=torch.float32).eval()
    head = projection_heads["prediction-transform"](32, model.config, torch.Generator(), str(folder_of(family)))
    vectors = torch.randn(3, 32)
    expected = model.get_submodule(norm)(torch.nn.functional.gelu(model.get_submodule(dense)(vectors)))
    torch.testing.assert_close(head(vectors), expected)
    assert head.origin == "taken from the checkpoint"


# -- seeds ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # whole trainings
def test_seeds(bert: Path, dev: PairTask, tmp_path: Path) -> None:
    settings = {**SMALL, "max_steps": 1, "learning_rate": 1e-2}
    spreads = train_seeds(
        bert, TEXTS, seeds=2, output=tmp_path, validate=dev, test=[replace(dev, name="other")], **settings
    )
    spread = spreads["dev"]
    first, second = (training_record(tmp_path / f"seed-{seed}")["best_score"] for seed in (42, 43))
    written = json.loads((tmp_path / "seeds.json").read_text())
    assert written["seeds"] == [42, 43]
    assert first != second
    assert spread.scores == pytest.approx((first, second))
    assert str(spread) == f"{(first + second) / 2:.2f} ± {abs(first - second) / 2**0.5:.2f}"
    assert spreads["other"].scores == pytest.approx(spread.scores)  # the same pairs
    with pytest.raises(InputError, match="'dev' is given twice"):
        train_seeds(bert, TEXTS, seeds=2, output=tmp_path, validate=dev, test=[dev], **settings)
    with pytest.raises(InputError, match="different seeds"):
        train_seeds(bert, TEXTS, seeds=[1, 1], output=tmp_path, validate=dev, **settings)
    with pytest.raises(InputError, match="at least 1"):
        train_seeds(bert, TEXTS, seeds=0, output=tmp_path, validate=dev, **settings)
