"""A recipe bound to a model: refusals point at the part at fault, and come before any weights are read."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from essent.encoder.encoder import Encoder
from essent.errors import ModelError, UnsupportedRecipeError
from essent.model.capabilities import ModelCapabilities, check_recipe
from essent.recipe.recipe import Recipe
from essent.recipe.types import RequiredOutputs
from essent.selection.evaluation import evaluate
from essent.tasks.pairs import PairTask

BERT = ModelCapabilities("bert", 12, 12, mask=True)
GPT = ModelCapabilities("gpt2", 12, 12, mask=False)
T5 = ModelCapabilities("t5", 12, 12, mask=True, positions=False)
REFUSED = [
    (BERT, "layers=0+13", "13", "layers 0 (embedding output) to 12 (= L)"),
    (BERT, "weights=idf*ditto:1-99", "1-99", "1-1 to 12-12"),
    (BERT, "layers=L-13 | zscore", "L-13", "layers 0"),
    (BERT, "ditto:13-1 | zscore", "13-1", "there is no head 13-1"),
    (GPT, "template=T1 weights=mask", "mask", "such as about or prompteol"),
    (GPT, "prompt", "mask", "such as about or prompteol"),
    (GPT, "t0-mean", "[MASK]", "templates without [MASK]"),
    (T5, "prompt-denoised", "L-bias", "no position ids"),
    (BERT, "prompt-topk", "topk:200", "the recipes without topk, such as prompt"),
    (GPT, "prompt-topk-denoised", "topk:200-bias", "use a prompt for decoders"),
]


@pytest.mark.parametrize(("capabilities", "text", "part", "allowed"), REFUSED)
def test_a_refusal_points_at_the_part(capabilities: ModelCapabilities, text: str, part: str, allowed: str) -> None:
    with pytest.raises(UnsupportedRecipeError) as caught:
        check_recipe(Recipe.parse(text), capabilities)
    message = str(caught.value)
    assert allowed in message
    recipe, carets = message.splitlines()[1:3]
    marked = "".join(letter for letter, caret in zip(recipe, carets, strict=False) if caret == "^")
    assert marked
    assert marked in part or part in marked


def test_the_highest_layer_and_head_are_allowed() -> None:
    for recipe in ("layers=12", "layers=L-12", "ditto:12-12"):
        check_recipe(Recipe.parse(recipe), BERT)


def test_refusals_come_before_the_weights(bert: Path, tmp_path: Path) -> None:
    empty = str(tmp_path / "empty")
    shutil.copytree(bert, empty, ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(UnsupportedRecipeError):
        Encoder(empty, "layers=20")
    with pytest.raises(UnsupportedRecipeError):
        evaluate(empty, ["mean", "layers=20"], [PairTask("a", (("x", "y", 1.0, None),))])
    with pytest.raises(ModelError, match="Cannot load the model"):
        Encoder(empty, "mean")


def test_a_plan_reads_no_more_than_it_needs(shell: SentenceTransformer) -> None:
    for recipe, required in (
        ("first-last", RequiredOutputs(frozenset({0, 3}))),
        ("static-ditto:2-1", RequiredOutputs(static=True, attention_heads=frozenset({(2, 1)}))),
        ("layers=random:32+1 weights=idf", RequiredOutputs(frozenset({1}))),
    ):
        assert Encoder(shell, recipe).module.plan.required == required


def test_widths_are_known_before_anything_runs(shell_of: Callable[[str], SentenceTransformer]) -> None:
    with pytest.raises(UnsupportedRecipeError, match="static has 24, L has 32 dimensions"):
        Encoder(shell_of("electra"), "layers=static+L")
    with pytest.raises(UnsupportedRecipeError, match="random has 768"):
        Encoder(shell_of("bert"), "layers=random+L")
    for recipe, width in {"static": 24, "random": 768, "mean reduce=dct:3": 96, "mean | whiten:5": 5}.items():
        encoder = Encoder(shell_of("electra"), recipe)
        assert encoder.get_embedding_dimension() == width
        assert encoder.fit(["a man", "two dogs", "the moon"] * 4).encode("a man").shape == (width,)
