"""Nothing in a folder has code run, files outside read, or anything downloaded; what is refused is named."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hostile import ATTACKS, attack, sign
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Router, StaticEmbedding
from test_places import BESIDE

import essent
from essent import Encoder, EncoderTransformer, StaticEncoder
from essent._core.folders.check import check_model
from essent.errors import EssentError, ModelError, VerificationError
from essent.lab.minimal_pairs.resources import MaskedModel
from essent.lab.templates.search import Generator

TEXTS = ["A man is playing a large flute.", "dogs", "How far is the moon from the earth?"]


def tree(folder: Path) -> dict[str, bytes | str]:
    """Everything below a folder; files by their bytes, links by where they lead."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture(scope="session")
def whole_of(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Kind -> a whole folder of it."""
    root = tmp_path_factory.mktemp("whole")

    @cache
    def build(kind: str) -> Path:
        folder = root / kind
        if kind == "plain":
            shutil.copytree(bert, folder)
        elif kind == "stages":
            modules = [Transformer(str(bert)), Pooling(32, "mean"), Dense(32, 8)]
            SentenceTransformer(modules=modules, device="cpu").save(str(folder))
        elif kind == "router":
            modules = [Router({"query": [Transformer(str(bert)), Pooling(32, "mean")]}, default_route="query")]
            SentenceTransformer(modules=modules, device="cpu").save(str(folder))
        elif kind == "table":
            table = StaticEmbedding(Encoder(bert).tokenizer.backend_tokenizer, embedding_dim=8)
            source = root / "source"
            SentenceTransformer(modules=[table], device="cpu").save(str(source))
            Encoder(source, "static | centre").fit(TEXTS).save(str(folder))
        else:
            recipe = {"stock": "first-last", "own": "ditto:2-3", "rows": "static"}[kind]
            Encoder(bert, recipe).save(str(folder))
        return folder

    return build


def test_settings_after_an_empty_file_are_checked(whole_of: Callable[[str], Path], tmp_path: Path) -> None:
    """sentence-transformers reads the next of seven files if one is empty."""
    folder = shutil.copytree(whole_of("plain"), tmp_path / "model")
    (folder / "sentence_bert_config.json").write_text("{}")
    (folder / "sentence_roberta_config.json").write_text('{"tokenizer_args": {"tokenizer_file": "/elsewhere.json"}}')
    with pytest.raises(EssentError, match=r"sentence_roberta_config.json.*tokenizer_file"):
        Encoder(folder, "mean")


@pytest.fixture
def attacked(request: pytest.FixtureRequest, whole_of: Callable[[str], Path], tmp_path: Path) -> Iterator[Path]:
    """A folder after an attack; afterwards nothing has run."""
    marker = tmp_path / "marker"
    folder = tmp_path / "model"
    shutil.copytree(whole_of(ATTACKS[request.param][0]), folder)
    attack(request.param, folder, marker)
    if not any(path.is_fifo() for path in folder.rglob("*")):
        sign(folder)
    yield folder
    assert not marker.exists(), f"{request.param}: code of the folder ran"


def error_of(action: Callable[[], object]) -> str:
    """The error of essent that an action raises, "" where it succeeds."""
    try:
        action()
    except EssentError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("attacked", list(ATTACKS), indirect=True)
def test_nothing_runs_and_the_error_names_the_cause(attacked: Path, request: pytest.FixtureRequest) -> None:
    expected_message = ATTACKS[request.node.callspec.params["attacked"]][1]
    before = {} if expected_message == "pipe" else tree(attacked.parent)
    for action in (
        lambda: Encoder(attacked).encode(TEXTS),
        lambda: essent.load(str(attacked)) if (attacked / "essent").exists() else Encoder(attacked),
    ):
        message = error_of(action)
        assert re.search(expected_message, message) if expected_message else not message, message
        assert not expected_message or str(attacked) in message, "the file at fault is named"
    if (attacked / "essent" / "encoder.json").is_file():
        for untrusted in (True, False):
            message = error_of(lambda chosen=untrusted: essent.verify(str(attacked), untrusted=chosen))
            assert re.search(expected_message, message) if expected_message else not message, message
    for action in (
        lambda: MaskedModel(str(attacked)),
        lambda: Generator(str(attacked)),
        lambda: StaticEncoder.load(attacked).encode(TEXTS),
        lambda: EncoderTransformer(str(attacked)).fit(TEXTS).transform(TEXTS),
    ):
        error_of(action)
    if before:
        assert tree(attacked.parent) == before


def test_trust_remote_code_allows_code(bert: Path, tmp_path: Path) -> None:
    folder, marker = tmp_path / "model", tmp_path / "marker"
    shutil.copytree(bert, folder)
    attack("a_configuration_of_its_own", folder, marker)
    source = (folder / "payload.py").read_text()
    source = source.replace("class Evil(BertConfig):\n    pass", "class Evil(BertConfig):\n    model_type = 'evil'")
    source = source.replace("EvilModel(BertModel):\n    pass", "EvilModel(BertModel):\n    config_class = Evil")
    (folder / "payload.py").write_text(source)
    assert Encoder(folder, "mean", trust_remote_code=True).encode(TEXTS).shape == (3, 32)
    assert marker.read_text() == "ran"


def test_a_cache_of_the_hub_may_link_to_its_store(bert: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "0123"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for file in bert.iterdir():
        shutil.copy(file, blobs / file.name)
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", file.name))
    check_model(str(snapshot), {})
    assert Encoder(snapshot, "mean").encode(TEXTS).shape == (3, 32)
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(bert / "config.json")
    with pytest.raises(ModelError, match=r"config\.json is a link"):
        check_model(str(snapshot), {})


@pytest.mark.parametrize("trusted", [False, True])
def test_unread_files_may_be_anything(bert: Path, tmp_path: Path, trusted: bool) -> None:
    folder = tmp_path / "model"
    shutil.copytree(bert, folder)
    (folder / "notes").symlink_to("/")
    (folder / "results.csv").symlink_to("/nowhere")
    for name in BESIDE:
        (folder / name).write_text("my own\n")
    assert Encoder(folder, "mean", trust_remote_code=trusted).encode(["dogs"]).any()


def test_verify_names_the_refused_file(whole_of: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(whole_of("stock"), folder)
    attack("settings_with_trust", folder, tmp_path / "marker")
    sign(folder)
    with pytest.raises(VerificationError, match=r"sentence_bert_config\.json.*trust_remote_code.* must be False"):
        essent.verify(str(folder), untrusted=True)
