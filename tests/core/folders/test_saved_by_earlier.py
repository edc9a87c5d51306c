"""Folders that earlier trees saved load and give the same vectors.

`saved_by_0.1.tar.xz` is of version 0.1, before folders listed the digests of their files;
`saved_before_packages_moved.tar.xz` of the last tree in which `saving` was a package of its own. Both hold a BERT of
2 layers and 16 dimensions with random weights, saved in every way there was; `vectors.npz` has the
vectors of `texts.json`.
"""

import json
import re
import shutil
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import essent
from essent import Encoder, StaticEncoder
from essent.errors import EngineError, ModelError, VerificationError
from samples import daily

ENCODERS = ("stock", "legacy", "own", "prompt", "head", "rows", "table")
GRAPHS = ("openvino", "onnx")
FIRST, BEFORE_MOVE = "saved_by_0.1", "saved_before_packages_moved"
FOLDERS = [(FIRST, name) for name in (*ENCODERS, *GRAPHS)]
FOLDERS += [(BEFORE_MOVE, name) for name in (*ENCODERS, *GRAPHS, "distilled")]


@pytest.fixture(scope="session")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def extract(name: str) -> Path:
        folder = tmp_path_factory.mktemp("saved")
        with tarfile.open(Path(__file__).with_name(f"{name}.tar.xz")) as archive:
            archive.extractall(folder, filter="data")
        return folder / name

    return extract


@pytest.fixture
def saved(extracted: Callable[[str], Path]) -> Path:
    return extracted(FIRST)


def expected(saved: Path, name: str) -> tuple[list[str], np.ndarray]:
    with np.load(saved / "vectors.npz") as vectors:
        return json.loads((saved / "texts.json").read_text()), vectors[name]


@pytest.mark.parametrize(("archive", "name"), FOLDERS)
def test_they_load_and_give_the_same_vectors(archive: str, name: str, extracted: Callable[[str], Path]) -> None:
    """Also by plain sentence-transformers, where the module in a folder asks essent for `essent.portable`."""
    saved = extracted(archive)
    texts, vectors = expected(saved, name)
    folder = str(saved / name)
    encoder, report = essent.load(folder), essent.verify(folder)
    scale = max(1.0, float(np.linalg.norm(vectors, axis=1).max()))
    assert np.abs(np.asarray(encoder.encode(texts)) - vectors).max() / scale <= (1e-4 if name == "onnx" else 1e-5)
    assert report.passed
    if archive == FIRST:
        assert report.files is None
        with pytest.raises(VerificationError, match="lists no digests"):
            essent.verify(folder, untrusted=True)
    else:
        assert (getattr(encoder, "calibration", None) is not None) == (name in ("stock", "own", *GRAPHS))
    if name in ENCODERS and (archive, name) not in ((FIRST, "prompt"), (FIRST, "table")):
        model = SentenceTransformer(folder, device="cpu", trust_remote_code=name in ("own", "head"))
        np.testing.assert_allclose(model.encode(texts), vectors, atol=1e-5)
    elif name == "table":
        np.testing.assert_allclose(StaticEncoder.load(folder).encode(texts), vectors, atol=1e-6)


def test_averages_are_a_source(saved: Path) -> None:
    texts, vectors = expected(saved, "averages")
    encoder = Encoder(saved / "model", f"layers=avg:{saved / 'averages'}@1", device="cpu")
    np.testing.assert_allclose(encoder.encode(texts), vectors, atol=1e-5)


def test_a_changed_graph_is_detected(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    shutil.copytree(saved / "openvino", folder)
    content = bytearray((folder / "model.bin").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "model.bin").write_bytes(content)
    with pytest.raises((ModelError, EngineError), match=r"graph in .* has changed since it was saved"):
        essent.load(str(folder))


@pytest.mark.parametrize("name", daily(ENCODERS, "stock", "own", "table"))
def test_a_new_encoder_replaces_an_old_format(saved: Path, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(saved / name, folder)
    (folder / "notes.txt").write_text("mine")
    encoder = Encoder(saved / "model", "mean", device="cpu")
    encoder.save(str(folder))
    encoder.save(str(tmp_path / "new"))
    new = {path.relative_to(tmp_path / "new") for path in (tmp_path / "new").rglob("*")}
    assert {path.relative_to(folder) for path in folder.rglob("*")} == {*new, Path("notes.txt")}
    assert essent.verify(str(folder)).files == essent.verify(str(tmp_path / "new")).files


def test_a_half_saved_folder_is_no_longer_possible_to_miss(saved: Path, tmp_path: Path) -> None:
    """What 0.1 left when it was killed: the transformer is there, `modules.json` is not."""
    folder = tmp_path / "model"
    Encoder(saved / "model", "first-last", device="cpu").save(str(folder))
    (folder / "modules.json").unlink()
    with pytest.raises(ModelError, match=re.escape(f"{folder / 'modules.json'} is missing")):
        Encoder(folder)
