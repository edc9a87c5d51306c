"""A damaged folder: an error that names it, never a traceback; `verify` passes only where no vector has changed."""

import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from mutate import mutate

import essent
from essent import Encoder
from essent._core.folders import files as files_module
from essent._core.folders.files import DIGESTS
from essent.errors import EssentError
from families import CORPUS, build_family
from kinds import error_of, save_kind

FOLDERS = ("stock", "legacy", "own", "rows", "table", "openvino", "onnx")
WORDS = " ".join(CORPUS).split()


@pytest.fixture(scope="session")
def saved(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """Kind -> a saved folder, and one of the same kind with other weights."""
    root = tmp_path_factory.mktemp("saved")

    @cache
    def both(kind: str) -> tuple[Path, Path]:
        if not (root / "second").exists():
            build_family("bert", root / "second", seed=1)
        folders = root / kind, root / f"{kind}-other"
        for model, folder in zip((bert, root / "second"), folders, strict=True):
            save_kind(kind, model, folder)
        return folders

    return both


def vectors_of(folder: Path, texts: list[str]) -> np.ndarray:
    return np.asarray(essent.load(str(folder)).encode(texts))


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
        print(change)  # shown if anything but an error of essent is raised
        message = error_of(lambda: essent.verify(str(folder)))
        assert not message or str(folder) in message, change
        if not message:
            passed += 1
            if listed:
                np.testing.assert_array_equal(vectors_of(folder, texts), expected, change)
        error_of(lambda: vectors_of(folder, texts[:5]))
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
