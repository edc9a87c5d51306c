"""A model's folder that is being saved when the process dies: the old model or the new one, never a part of either."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kill_harness import check_old_or_new, killed_at_every_write
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

import essent
from essent import Encoder, StaticEncoder
from essent.engine.files import save_compiled
from families import CORPUS

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("under_the_shim")]
MOST = 60  # of each kind, for the folders that are like another one


def encoder(model: Path | SentenceTransformer, recipe: str) -> Encoder:
    return Encoder(model if isinstance(model, SentenceTransformer) else str(model), recipe, device="cpu").fit(CORPUS)


@pytest.fixture(scope="module")
def table(bert: Path) -> SentenceTransformer:
    first = StaticEmbedding(Encoder(str(bert)).tokenizer.backend_tokenizer, embedding_dim=8)
    return SentenceTransformer(modules=[first], device="cpu")


@pytest.mark.parametrize("recipe", ["mean | zscore", "ditto:2-3 weights=idf"])
def test_a_new_encoder(bert: Path, tmp_path: Path, recipe: str) -> None:
    model = encoder(bert, recipe)
    assert check_old_or_new(lambda: model.save(str(tmp_path / "model")), tmp_path / "model") > 60


@pytest.mark.parametrize(("first", "second"), [("ditto:2-3", "mean | zscore"), ("static", "ditto:2-3")])
def test_over_another_encoder(bert: Path, tmp_path: Path, first: str, second: str) -> None:
    folder = tmp_path / "model"
    encoder(bert, first).save(str(folder))
    (folder / "notes.txt").write_text("mine")
    replacement = encoder(bert, second)
    check_old_or_new(lambda: replacement.save(str(folder)), folder, most=MOST)


def test_a_static_table(table: SentenceTransformer, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    encoder(table, "static | centre").save(str(folder))
    replacement = encoder(table, "static | centre | normalize")
    check_old_or_new(lambda: replacement.save(str(folder)), folder, most=MOST)
    replacement.save(str(folder))
    np.testing.assert_allclose(StaticEncoder.load(folder).encode(CORPUS[:2]), replacement.encode(CORPUS[:2]), atol=1e-6)


@pytest.mark.parametrize("engine", ["openvino", "onnx"])
def test_a_graph_over_another(bert: Path, tmp_path: Path, engine: str) -> None:
    folder = tmp_path / "graph"
    essent.compile(encoder(bert, "cls"), engine).save(str(folder))
    replacement = essent.compile(encoder(bert, "mean"), engine)
    check_old_or_new(lambda: save_compiled(replacement, folder), folder, most=MOST)


def test_where_folders_cannot_be_exchanged(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a death between two renames leaves the old folder aside, and whoever reads or writes next puts it back."""
    monkeypatch.setattr("essent._core.atomic._exchange", lambda *_: False)
    folder = tmp_path / "model"
    old, new = encoder(bert, "cls"), encoder(bert, "mean")
    old.save(str(folder))
    allowed_vectors = {encoded.tobytes() for encoded in (old.encode(CORPUS[:3]), new.encode(CORPUS[:3]))}
    points: list[int] = []
    action: Callable[[], None] = lambda: new.save(str(folder))  # noqa: E731
    for number, state in killed_at_every_write(action, folder, most=MOST, half=False):
        points.append(number)
        assert Encoder(str(folder)).encode(CORPUS[:3]).tobytes() in allowed_vectors, state
        assert essent.verify(str(folder)).passed
    assert len(points) > 40
