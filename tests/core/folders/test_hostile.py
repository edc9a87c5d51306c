"""Nothing in a folder has code run, files outside read, or anything downloaded; what is refused is named."""

import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hostile import ATTACKS, attack

import essent
from essent import Encoder, EncoderTransformer, StaticEncoder
from essent._core.folders.check import check_model
from essent._core.folders.files import has_digests, write_digests
from essent.errors import ModelError
from essent.lab.minimal_pairs.resources import MaskedModel
from essent.lab.templates.search import Generator
from kinds import error_of, save_kind

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
    def whole(kind: str) -> Path:
        if kind == "plain":
            return bert
        save_kind(kind, bert, root / kind)
        return root / kind

    return whole


@pytest.fixture
def attacked(request: pytest.FixtureRequest, whole_of: Callable[[str], Path], tmp_path: Path) -> Iterator[Path]:
    """A folder after an attack; afterwards nothing has run."""
    marker, folder = tmp_path / "marker", tmp_path / "model"
    shutil.copytree(whole_of(ATTACKS[request.param][0]), folder)
    attack(request.param, folder, marker)
    if has_digests(folder) and not any(path.is_fifo() for path in folder.rglob("*")):
        write_digests(folder)  # whoever writes a folder can write its digests too
    yield folder
    assert not marker.exists(), f"{request.param}: code of the folder ran"


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
    assert Encoder(folder, "mean", trust_remote_code=True).encode(TEXTS).shape == (3, 32)
    assert marker.read_text() == "ran"


def test_a_cache_of_the_hub_links_only_to_its_store(cached: Callable[..., Path], bert: Path) -> None:
    (snapshot,) = cached("a/b").glob("models--a--b/snapshots/*")
    assert Encoder(snapshot, "mean").encode(TEXTS).shape == (3, 32)
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(bert / "config.json")
    with pytest.raises(ModelError, match=r"config\.json is a link"):
        check_model(str(snapshot), {})
