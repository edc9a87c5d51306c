"""What a folder may hold beside a model, what a new model replaces, and what is asked of a repository on the hub."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import essent
from essent import Encoder
from essent._core.folders import files as files_module
from essent._core.folders.files import DIGESTS, ENCODER, GRAPH, check_replaceable, read_json
from essent._core.hub import full_name
from essent.engine.compiled import CompiledEncoder
from essent.errors import DamagedError, DataError, EssentError, ModelError, UnsupportedRecipeError
from essent.recipe.contexts import read_about
from samples import daily

TEXTS = ["dogs run", "a man plays a flute", "the moon is far"]
BESIDE = ("handler.py", "training_config.json", "notes.onnx.txt", "vocabulary.csv", "chat_template.jinja", "lora.json")


@pytest.mark.parametrize("kind", daily(("encoder", "graph"), "encoder"))
def test_saving_keeps_the_files_of_a_folder_without_a_model(
    kind: str, bert: Path, compiled_by: Callable[[str], CompiledEncoder], tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    mine = {*BESIDE, "README.md", "old.safetensors", "1_Pooling/notes.txt", "essent/notes.txt", "code/essent/notes.txt"}
    for name in mine:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("my own\n")
    encoder: Any = Encoder(bert, "ditto:1-2", device="cpu") if kind == "encoder" else compiled_by("onnx")
    for _ in range(2):
        encoder.save(str(folder))
        assert {name for name in mine if (folder / name).read_text() == "my own\n"} == mine
    assert essent.verify(str(folder)).passed
    encoder.save(str(tmp_path / "card"))
    assert kind == "graph" or "Recipe: `ditto:1-2`" in (tmp_path / "card" / "README.md").read_text()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"contains adapter_config\.json, which libraries would read"):
        encoder.save(str(tmp_path / "other"))


def test_unread_files_may_be_anything(bert: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(bert, folder)
    (folder / "notes").symlink_to("/")
    (folder / "results.csv").symlink_to("/nowhere")
    for name in BESIDE:
        (folder / name).write_text("my own\n")
    assert Encoder(folder, "mean").encode(["dogs"]).any()


def test_a_graph_replaces_a_graph_and_nothing_beside_it(
    compiled_by: Callable[[str], CompiledEncoder], tmp_path: Path
) -> None:
    folder = tmp_path / "graph"
    compiled = compiled_by("openvino")
    compiled.save(str(folder))
    (folder / "handler.py").write_text("mine")
    (folder / "README.md").write_text("mine")
    for digests in (True, False):  # essent 0.1 wrote none
        if not digests:
            (folder / DIGESTS).unlink()
        compiled.save(str(folder))
        assert (folder / "handler.py").read_text() == (folder / "README.md").read_text() == "mine"
        assert essent.load(str(folder)).encode(TEXTS).shape == (3, 32)


def test_a_model_replaces_only_its_own_kind(tmp_path: Path) -> None:
    for kind, second_kind in ((ENCODER, GRAPH), (GRAPH, ENCODER)):
        folder = tmp_path / Path(kind).stem
        (folder / "essent").mkdir(parents=True)
        (folder / kind).write_text("{}")
        check_replaceable(folder, kind)
        with pytest.raises(ModelError, match=f"holds another model .{kind}"):
            check_replaceable(folder, second_kind)


@pytest.mark.parametrize("name", ["contexts.json", "contexts.safetensors", "essent"])
def test_averages_outside_their_folder_are_refused(name: str, tmp_path: Path) -> None:
    folder, outside = tmp_path / "averages", tmp_path / "outside"
    folder.mkdir()
    (folder / "contexts.json").write_text("{}")
    (folder / name).unlink(missing_ok=True)
    outside.mkdir()
    (folder / name).symlink_to(outside)
    with pytest.raises(DataError, match="outside the model's folder"):
        read_about(folder)


def test_a_too_large_settings_file_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "LARGEST", 10)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"x": "y" * 100}))
    with pytest.raises(DamagedError) as caught:
        read_json(path)
    assert str(caught.value) == f"{path} has 109 bytes; a settings file can have at most 10."


def test_a_name_without_an_owner_belongs_to_sentence_transformers(cached: Callable[..., Path]) -> None:
    cache = cached("sentence-transformers/tiny")
    options = {"cache_folder": str(cache), "local_files_only": True}
    assert Encoder("tiny", "mean", **options).encode(TEXTS).shape == (3, 32)
    (weights,) = cache.glob("*/snapshots/*/model.safetensors")
    weights = weights.rename(weights.with_name("pytorch_model.bin"))
    with pytest.raises(EssentError, match=r"sentence-transformers/tiny/pytorch_model\.bin holds pickled weights"):
        Encoder("tiny", "mean", **options)
    weights.unlink()
    with pytest.raises(UnsupportedRecipeError):  # without weights, which would be fetched later
        Encoder("tiny", "layers=99", **options)
    assert full_name("bert-base-uncased") == "bert-base-uncased"
    assert full_name("somebody/tiny") == "somebody/tiny"
