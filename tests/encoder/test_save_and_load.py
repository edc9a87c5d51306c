"""Saved folders: stock modules where that is exact, essent's own otherwise, golden vectors in both."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save
from sentence_transformers import SentenceTransformer

import essent
from essent import Encoder
from essent._core.folders.files import write_digests
from essent.errors import ModelError, NotFittedError, RecipeError, VerificationError
from essent.model.loading import load
from essent.recipe.recipe import Recipe
from families import CORPUS, FAMILIES
from samples import daily

LONG = "word " * 300  # more than the 256 tokens that the models read
TEXTS = [*CORPUS[:8], "hi", "the , . a", "A [MASK] here", "ends in a quote'", LONG, "?!"]
STOCK = [
    "cls",
    "last-token | zscore",
    "mean reduce=max | whiten | normalize",
    "static-remove-biases | zscore",
    "random | normalize",
    "first-last-tfidf | abtt | normalize",
    "prompt layers=2*1+-1*2",
    "layers=0 | zscore",
]
ON_FAMILIES = ("mean | whiten", "last2", "first-last-idf", "static")
OWN = [
    "ditto:2-3 | quantile",
    "mean | flow:1",
    "prompt-topk-denoised",
    "weights=sif reduce=dct:2",
]


def difference(vectors: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference, relative to the longest vector where that is longer than 1."""
    return float(np.abs(vectors - expected).max()) / max(1.0, float(np.linalg.norm(expected, axis=1).max()))


def saved(folder: Path, recipe: str, target: Path, layout: str = "stock") -> Encoder:
    encoder = Encoder(folder, recipe).fit(CORPUS[:8])
    encoder.save(str(target), create_model_card=False, layout=layout)
    return encoder


ON_BERT = [("bert", recipe) for recipe in STOCK]
ON_FAMILY = [(family, ON_FAMILIES[row % len(ON_FAMILIES)]) for row, family in enumerate(FAMILIES)]


@pytest.mark.parametrize("case", [*ON_BERT, *daily(ON_FAMILY, *(ON_FAMILY[row] for row in (7, 9, 10)))], ids=" ".join)
def test_stock_folders_give_the_same_vectors(
    case: tuple[str, str], folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    family, recipe = case
    texts = [text[:500] for text in TEXTS] if family == "t5" else TEXTS  # T5 cuts nothing: time grows with the square
    encoder = saved(folder_of(family), recipe, tmp_path)
    expected = encoder.encode(texts)
    assert difference(SentenceTransformer(str(tmp_path)).encode(texts), expected) < 1e-5
    assert difference(Encoder(tmp_path).encode(texts), expected) < 1e-6
    assert family != "bert" or essent.verify(str(tmp_path)).portable


def test_the_legacy_layout_has_class_paths_and_flags(bert: Path, tmp_path: Path) -> None:
    encoder = saved(bert, "first-last | zscore | normalize", tmp_path, layout="legacy")
    modules = json.loads((tmp_path / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.models.") for module in modules)
    pooling = next(module["path"] for module in modules if module["type"].endswith(".Pooling"))
    assert json.loads((tmp_path / pooling / "config.json").read_text())["pooling_mode_mean_tokens"] is True
    assert difference(SentenceTransformer(str(tmp_path)).encode(TEXTS), encoder.encode(TEXTS)) < 1e-5


@pytest.mark.parametrize("recipe", daily(OWN, "ditto:2-3 | quantile", "prompt-topk-denoised"))
def test_recipes_without_stock_modules_load_with_essent(recipe: str, bert: Path, tmp_path: Path) -> None:
    encoder = saved(bert, recipe, tmp_path / "saved")
    report = essent.verify(str(tmp_path / "saved"))
    assert not report.portable
    assert report.reason
    assert difference(Encoder(tmp_path / "saved").encode(TEXTS), encoder.encode(TEXTS)) < 1e-6
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(tmp_path / "saved"))
    with pytest.raises(RecipeError, match="legacy"):
        encoder.save(str(tmp_path / "other"), layout="legacy")


@pytest.mark.slow  # a process of its own, which imports everything
def test_the_shipped_code_runs_without_essent(bert: Path, tmp_path: Path) -> None:
    expected = saved(bert, "ditto:2-3 | quantile", tmp_path / "saved").encode(TEXTS)
    program = f"""
import sys
sys.path = [p for p in sys.path if not p.rstrip("/").endswith("/src")]
sys.meta_path = [f for f in sys.meta_path if "editable" not in repr(f).lower()]
try:
    import essent
    raise SystemExit("essent is still there")
except ImportError:
    pass
from safetensors.numpy import load_file, save, save_file
from sentence_transformers import SentenceTransformer
model = SentenceTransformer({str(tmp_path / "saved")!r}, trust_remote_code=True, device="cpu")
import essent, numpy
assert "code" in essent.__file__, essent.__file__
numpy.save({str(tmp_path / "vectors.npy")!r}, model.encode({TEXTS!r}))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    # quantiles of eight texts are steep: where two values lie close, float noise of another process moves a place far
    assert difference(np.load(tmp_path / "vectors.npy"), expected) < 1e-3


@pytest.mark.parametrize(
    ("recipe", "loads_with"), [("weights=idf | normalize", SentenceTransformer), ("ditto:1-2 | zscore", Encoder)]
)
def test_settings_counts_and_the_card(recipe: str, loads_with: type, bert: Path, tmp_path: Path) -> None:
    encoder = Encoder(bert, recipe, prompts={"query": "ask : "}, similarity_fn_name="dot").fit(CORPUS[:8])
    encoder.max_seq_length = 9
    encoder.save(str(tmp_path))
    again = Encoder(tmp_path)
    assert (again.recipe, again.max_seq_length, again.similarity_fn_name) == (encoder.recipe, 9, "dot")
    assert np.array_equal(again.encode(TEXTS, prompt_name="query"), encoder.encode(TEXTS, prompt_name="query"))
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert re.findall("^## .*", card, re.MULTILINE)[0] == "## How it was made"
    assert f"Recipe: `{recipe}`" in card
    assert "- essent\n" in card.split("---")[1]
    assert "trained." not in card
    assert f"\nfrom {loads_with.__module__.partition('.')[0]} import {loads_with.__name__}\n" in card
    assert ("trust_remote_code=True" in card) is (loads_with is Encoder)
    encoder.save(str(tmp_path / "other"), create_model_card=False)
    assert not (tmp_path / "other" / "README.md").exists()


def without_layer(data: bytes) -> bytes:
    weights = {name: array for name, array in load_arrays(data).items() if "layer.1.output" not in name}
    return save(weights, {"format": "pt"})


STATE, ABOUT, SETTINGS = "essent/state.safetensors", "essent/encoder.json", "config_sentence_transformers.json"
DAMAGED = {
    "state": (STATE, lambda data: data[:100], r"state\.safetensors is damaged"),
    "no golden": (STATE, lambda _: save({"other": np.zeros(3)}), "damaged: KeyError"),
    "recipe": (ABOUT, lambda data: without(data, "recipe"), "'recipe' must be an object .*, but is missing"),
    "format": (ABOUT, lambda data: without(data, "format"), r"has format None .* Upgrade essent"),
    "prompt": (SETTINGS, lambda _: b'{"default_prompt_name": ["a"]}', "'default_prompt_name' must"),
    "weights": ("model.safetensors", lambda data: data[:100], "damaged: SafetensorError"),
    "no weight": ("model.safetensors", without_layer, "would be random numbers"),
}


def without(data: bytes, key: str) -> bytes:
    return json.dumps({name: value for name, value in json.loads(data).items() if name != key}).encode()


@pytest.fixture(scope="module")
def idf_folder(tmp_path_factory: pytest.TempPathFactory, bert: Path) -> Path:
    target = tmp_path_factory.mktemp("idf")
    saved(bert, "mean weights=idf", target)
    return target


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_folders_are_named(case: str, idf_folder: Path, tmp_path: Path) -> None:
    file, damage, message = DAMAGED[case]
    folder = tmp_path / "copy"
    shutil.copytree(idf_folder, folder)
    (folder / file).write_bytes(damage((folder / file).read_bytes()))
    with pytest.raises(ModelError, match=f"{file}( has changed since it was saved| is damaged|: )"):
        Encoder(str(folder))
    write_digests(folder)  # as if it had been saved so
    with pytest.raises(VerificationError, match=message):
        essent.verify(str(folder))
    if case != "no golden":  # which it does not read
        with pytest.raises(ModelError, match=message):
            Encoder(str(folder))
    with pytest.raises(ModelError if file == "essent/encoder.json" else RecipeError):
        load(str(folder), [Recipe()], {})


def test_saving_an_unfitted_encoder_writes_nothing(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        Encoder(bert, "mean | zscore").save(str(tmp_path / "saved"))
    assert not (tmp_path / "saved").exists()
    with pytest.raises(RecipeError, match="Unknown layout"):
        Encoder(bert, "mean").save(str(tmp_path / "saved"), layout="old")


def test_saving_twice_gives_the_same_bytes(bert: Path, tmp_path: Path) -> None:
    encoder = saved(bert, "first-last-idf | whiten", tmp_path / "first")
    encoder.save(str(tmp_path / "second"), create_model_card=False)
    for file in (tmp_path / "first").rglob("*.safetensors"):
        assert file.read_bytes() == (tmp_path / "second" / file.relative_to(tmp_path / "first")).read_bytes(), file.name


@pytest.mark.parametrize("recipe", ["static | zscore", "layers=static+random:32"])
def test_a_static_recipe_holds_its_table_alone(recipe: str, bert: Path, tmp_path: Path) -> None:
    """What a saved folder does not have would be whatever lies in memory, and differ in each process."""
    encoder = Encoder(str(bert), recipe).fit(TEXTS)
    encoder.save(str(tmp_path / "saved"))
    vectors = encoder.encode(TEXTS)
    loaded = Encoder(str(tmp_path / "saved"))
    assert list(loaded.module.backbone.state_dict()) == ["model.embeddings.word_embeddings.weight"]
    np.testing.assert_allclose(loaded.encode(TEXTS), vectors, atol=1e-6)
    assert not any(tensor.is_meta for tensor in [*loaded.parameters(), *loaded.buffers()])
