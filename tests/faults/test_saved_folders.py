"""A model's folder that is being saved when the process dies: the old model or the new one, never a part of either."""

from __future__ import annotations

from pathlib import Path

import pytest
from kill_harness import check_old_or_new, killed_at_every_write

import essent
from essent import Encoder
from families import CORPUS

pytestmark = pytest.mark.faults
MOST = 60  # of each kind, for the folders that are like another one


def encoder(model: Path, recipe: str) -> Encoder:
    return Encoder(str(model), recipe, device="cpu").fit(CORPUS)


def test_a_new_encoder(bert: Path, tmp_path: Path) -> None:
    model = encoder(bert, "ditto:2-3 weights=idf")
    assert check_old_or_new(lambda: model.save(str(tmp_path / "model")), tmp_path / "model") > 60


@pytest.mark.parametrize(("first", "second"), [("ditto:2-3", "mean | zscore"), ("static", "ditto:2-3")])
def test_over_another_encoder(bert: Path, tmp_path: Path, first: str, second: str) -> None:
    folder = tmp_path / "model"
    encoder(bert, first).save(str(folder))
    (folder / "notes.txt").write_text("mine")
    replacement = encoder(bert, second)
    check_old_or_new(lambda: replacement.save(str(folder)), folder, most=MOST)


def test_a_graph_over_another(bert: Path, tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    essent.compile(encoder(bert, "cls"), "onnx").save(str(folder))
    replacement = essent.compile(encoder(bert, "mean"), "onnx")
    check_old_or_new(lambda: replacement.save(folder), folder, most=MOST)


def test_where_folders_cannot_be_exchanged(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a death between two renames leaves the old folder aside, and whoever reads or writes next puts it back."""
    monkeypatch.setattr("essent._core.atomic._exchange", lambda *_: False)
    folder = tmp_path / "model"
    old, new = encoder(bert, "cls"), encoder(bert, "mean")
    old.save(str(folder))
    allowed_vectors = {encoded.tobytes() for encoded in (old.encode(CORPUS[:3]), new.encode(CORPUS[:3]))}
    points = 0
    for state in killed_at_every_write(lambda: new.save(str(folder)), folder, most=MOST, half=False):
        points += 1
        assert Encoder(str(folder)).encode(CORPUS[:3]).tobytes() in allowed_vectors, state
        assert essent.verify(str(folder)).passed
    assert points > 40
