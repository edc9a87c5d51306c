"""A damaged folder: an error that names it, never a traceback; `verify` passes only where no vector has changed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from mutate import mutate
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

import essent
from essent import Encoder
from essent._core.folders import files as files_module
from essent._core.folders.files import DIGESTS
from essent.engine.compiled import CompiledEncoder
from essent.errors import EssentError
from families import CORPUS, build_family

FOLDERS = ("stock", "legacy", "own", "rows", "table", "openvino", "onnx")
WORDS = " ".join(CORPUS).split()


@pytest.fixture(scope="session")
def saved(
    bert: Path, compiled_by: Callable[[str], CompiledEncoder], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Path, Path]]:
    """Kind -> a saved folder, and one of the same kind with other weights."""
    root = tmp_path_factory.mktemp("saved")

    def build(kind: str, model: str, folder: Path) -> None:
        if kind in ("openvino", "onnx"):
            own = model == str(bert)
            graph = compiled_by(kind) if own else essent.compile(Encoder(model, "layers=1", device="cpu"), kind)
            graph.save(str(folder))
        elif kind == "table":
            table = StaticEmbedding(Encoder(model).tokenizer.backend_tokenizer, embedding_dim=8)
            source = folder.with_name(f"{folder.name}-source")
            SentenceTransformer(modules=[table], device="cpu").save(str(source))
            Encoder(source, "static | centre").fit(CORPUS).save(str(folder))
        else:
            recipe = {"own": "ditto:2-3 weights=idf", "rows": "static weights=idf"}.get(kind, "mean | zscore")
            encoder = Encoder(model, recipe, device="cpu").fit(CORPUS)
            encoder.save(str(folder), layout="legacy" if kind == "legacy" else "stock")

    @cache
    def both(kind: str) -> tuple[Path, Path]:
        second = build_family("bert", root / "second", seed=1) if not (root / "second").exists() else root / "second"
        folders = root / kind, root / f"{kind}-other"
        for model, target in zip((bert, second), folders, strict=True):
            build(kind, str(model), target)
        return folders

    return both


def vectors_of(folder: Path, texts: list[str]) -> np.ndarray:
    return np.asarray(essent.load(str(folder)).encode(texts))


def error_of(action: Callable[[], object], change: str) -> str:
    """The error of essent that an action raises, "" where it succeeds; any other error fails the test."""
    try:
        action()
    except EssentError as error:
        return str(error)
    except Exception as error:
        raise AssertionError(change) from error
    return ""


CASES = [
    *((kind, 12, True) for kind in ("stock", "rows", "table")),
    *(pytest.param(kind, 500, True, marks=pytest.mark.faults) for kind in FOLDERS),
    *(pytest.param(kind, 250, False, marks=pytest.mark.faults) for kind in FOLDERS[:5]),
]


@pytest.mark.parametrize(("kind", "number", "listed"), CASES)
def test_damage_is_reported(
    kind: str, number: int, listed: bool, saved: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    """So many mutations of a folder, with its digests or without, where libraries read what is damaged."""
    whole, donor = saved(kind)
    chance, passed = random.Random(1), 0  # noqa: S311
    texts = [" ".join(chance.choices(WORDS, k=chance.randrange(1, 30))) for _ in range(1000)]
    expected = vectors_of(whole, texts)
    folder = tmp_path / "model"
    for seed in range(number):
        shutil.copytree(whole, folder)
        if not listed:
            (folder / DIGESTS).unlink()
        change = f"{kind}, seed {seed}: {mutate(folder, donor, random.Random(seed))}"  # noqa: S311
        message = error_of(lambda: essent.verify(str(folder)), change)
        assert not message or str(folder) in message, change
        if not message:
            passed += 1
            if listed:
                np.testing.assert_array_equal(vectors_of(folder, texts), expected, change)
        error_of(lambda: vectors_of(folder, texts[:5]), change)
        shutil.rmtree(folder)
    assert not listed or passed < max(12, number // 5)


@pytest.mark.parametrize("large", ["model.safetensors", "essent/state.safetensors", "tokenizer.json"])
def test_verify_detects_a_changed_byte_of_a_large_file(
    large: str, saved: Callable[[str], tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(saved("stock")[0], folder)
    content = bytearray((folder / large).read_bytes())
    content[-20] ^= 1  # in the mantissa of a number, or a letter of a token
    (folder / large).write_bytes(content)
    with pytest.raises(EssentError, match=f"{large} has changed since it was saved"):
        Encoder(folder)
    monkeypatch.setattr(files_module, "SMALL", 0)  # as for a model of real size
    with pytest.raises(EssentError, match=f"{large} has changed since it was saved"):
        essent.verify(str(folder))
