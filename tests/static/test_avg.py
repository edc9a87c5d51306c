"""Averages over contexts as a source: what they mean, how folders are written, and that encoders carry them."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from essent import verify
from essent.encoder.encoder import Encoder
from essent.errors import RecipeError, UnsupportedRecipeError
from essent.model.loading import load
from essent.recipe.contexts import Contexts
from essent.recipe.layers import AverageTable
from essent.recipe.recipe import Recipe
from essent.selection.evaluation import Bench
from essent.static.gather import average_contexts
from families import CORPUS
from samples import TEXTS
from selection_samples import Shells


@pytest.fixture(scope="module")
def contexts(bert: Path) -> Contexts:
    backbone = load(str(bert), [], {"device": "cpu"}).backbone
    return average_contexts(backbone, [*CORPUS[:8], *TEXTS])[0]


@pytest.fixture
def folder(contexts: Contexts, tmp_path: Path) -> Path:
    contexts.save(tmp_path / "avg")
    return tmp_path / "avg"


def averages(contexts: Contexts, layer: int, model: SentenceTransformer) -> np.ndarray:
    """Mean of the rows of a text's tokens, special ones included; float64."""
    table = contexts.table(layer).astype(np.float64)
    return np.array([table[ids].mean(axis=0) for ids in model.tokenizer(TEXTS)["input_ids"]])


def test_avg_is_the_mean_of_the_rows_and_mixes_with_layers(
    contexts: Contexts, folder: Path, shell: SentenceTransformer
) -> None:
    """Mixed it is BERT + Avg, (1 − w)·BERT + w·Avg (Stankevičius, equation 10)."""
    for layer, source in ((3, ""), (3, "@L"), (2, "@L-1"), (0, "@0")):
        vectors = Encoder(shell, f"layers=avg:{folder}{source}").encode(TEXTS)
        np.testing.assert_allclose(vectors, averages(contexts, layer, shell), atol=1e-5)
    mixed = Encoder(shell, f"layers=1.5*L+-0.5*avg:{folder}").encode(TEXTS)
    expected = 1.5 * Encoder(shell, "mean").encode(TEXTS) - 0.5 * averages(contexts, 3, shell)
    np.testing.assert_allclose(mixed, expected, atol=1e-5)


@pytest.mark.parametrize(
    "recipe",
    ["layers=0.5*L+0.5*{0} weights=idf | zscore", "layers={0}@1+{0}@2 | quantile"],
)
def test_an_encoder_carries_the_rows(recipe: str, folder: Path, tmp_path: Path, shell: SentenceTransformer) -> None:
    encoder = Encoder(shell, recipe.format(f"avg:{folder}"))
    expected = encoder.fit(TEXTS).encode(TEXTS)
    encoder.save(str(tmp_path / "saved"))
    shutil.rmtree(folder)
    again = Encoder(tmp_path / "saved")
    assert again.recipe == encoder.recipe
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=1e-5)
    assert verify(str(tmp_path / "saved")).passed
    again.save(str(tmp_path / "twice"))
    np.testing.assert_allclose(Encoder(tmp_path / "twice").encode(TEXTS), expected, atol=1e-5)


def test_changed_files_are_read_again(contexts: Contexts, folder: Path, shell: SentenceTransformer) -> None:
    recipe = Recipe.parse(f"layers=avg:{folder}")
    for factor in (1, -1):
        replace(contexts, tables={3: factor * contexts.table(3)}).save(folder)
        ((_, vectors),) = Bench(shell, [recipe], batch_size=8, progress=False, options={}).vectors(TEXTS)
        np.testing.assert_allclose(vectors, factor * averages(contexts, 3, shell), atol=1e-5)


# -- names of folders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a,b=c", "50% *|'x' 1+1", 'Ünï "me"@2'])
def test_folders_of_any_name(name: str, contexts: Contexts, tmp_path: Path) -> None:
    contexts.save(tmp_path / name)
    loaded = Contexts.load(tmp_path / name, {3})
    assert list(loaded.tables) == [3]
    for attribute in ("texts", "last", "vocabulary", "about"):
        assert getattr(loaded, attribute) == getattr(contexts, attribute)
    np.testing.assert_array_equal(loaded.stats.count, contexts.count)
    source = AverageTable.of(tmp_path / name, "1")
    recipe = Recipe.parse(f"layers=0.5*L+0.5*{source.spec()} | centre")
    assert Recipe.parse(str(recipe)) == Recipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("avg:2024", r"write avg:\./2024"),
        ("avg", "missing a required argument"),
        ("avg:@L", "write avg:FOLDER"),
        ("avg:place@L-bias", "with a layer of 0"),
        ("avg:my folder", "write a space as %20"),
        ("avg:a,b", "too many positional arguments"),
    ],
)
def test_malformed_sources(source: str, reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        Recipe(layers=source)


def test_mismatched_folders(folder: Path, tmp_path: Path, shell_of: Shells) -> None:
    with pytest.raises(RecipeError, match=r"has no contexts.json"):
        Encoder(shell_of("bert"), f"layers=avg:{tmp_path}/nowhere")
    with pytest.raises(RecipeError, match=r"Layer 7 was not averaged\. Averaged layers: 0, 1, 2, 3"):
        Encoder(shell_of("bert"), f"layers=avg:{folder}@7")
    with pytest.raises(UnsupportedRecipeError, match="belong to another tokenizer"):
        Encoder(shell_of("roberta"), f"layers=avg:{folder}")
    with pytest.raises(UnsupportedRecipeError, match="different widths"):
        Encoder(shell_of("bert"), f"layers=random:16+avg:{folder}")
