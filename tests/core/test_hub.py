"""Names that lead nowhere: said at once, not after every file was asked for six times."""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import essent
from command_line import environment
from essent import Encoder, train
from essent._core import hub
from essent._core.folders.files import read_json
from essent.errors import DataError, ModelError
from essent.lab.minimal_pairs.resources import MaskedModel
from essent.tasks import load_task
from families import CORPUS

COMMIT = "a" * 40


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub cannot be reached, as the tests block sockets; a library that would ask again fails."""

    def refuse(seconds: float) -> None:
        raise AssertionError(f"it waits {seconds} s to ask again")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    hub._answers.cache_clear()
    monkeypatch.setattr(time, "sleep", refuse)


@pytest.mark.usefixtures("unreachable")
@pytest.mark.parametrize(
    ("load", "name", "reason"),
    [
        (Encoder, "nobody/no-such-model", "We couldn't connect"),
        (Encoder, "no-such-model", "We couldn't connect"),
        (Encoder, "my model", "Repo id must"),
        (MaskedModel, "nobody/no-such-model", "We couldn't connect"),
    ],
)
def test_a_wrong_name_fails_at_once(load: Callable[[str], Any], name: str, reason: str) -> None:
    with pytest.raises(ModelError, match=f"Cannot load the model .*{name}': {reason}"):
        load(name)


@pytest.mark.usefixtures("unreachable")
def test_a_data_set_that_is_not_cached_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    with pytest.raises(DataError, match=r"Cannot load split 'test' of the data set .*LocalEntryNotFoundError"):
        load_task("stsb")


def test_load_reads_folders() -> None:
    for name in ("typo", "nobody/tiny"):
        with pytest.raises(ModelError, match=f"There is no folder '{name}'"):
            essent.load(name)


@pytest.mark.usefixtures("unreachable")
def test_the_cache_is_read(cached: Callable[..., Path]) -> None:
    cache = cached("nobody/tiny")
    assert Encoder("nobody/tiny", "mean", cache_folder=str(cache)).encode(["dogs"]).any()
    assert MaskedModel("nobody/tiny", cache_dir=str(cache)).name == "nobody/tiny"
    (snapshot,) = cache.glob("*/snapshots/*")
    options = hub.reach_model("nobody/tiny", {"cache_dir": str(cache)})
    assert hub.file_options(options)["revision"] == snapshot.name
    settings: dict[str, Any] = {"max_steps": 1, "batch_size": 2, "projection_head": "prediction-transform"}
    train("nobody/tiny", CORPUS[:4], output=cache / "trained", options={"cache_folder": str(cache)}, **settings)
    assert read_json(cache / "trained" / "training.json")["projection_head_origin"] == "taken from the checkpoint"


class Hub(SimpleHTTPRequestHandler):
    """A hub with the model nobody/tiny, of one commit."""

    folder: Path
    paths: list[str]

    def translate_path(self, path: str) -> str:
        self.paths.append(path)
        name = "tree.json" if "/tree/" in path else "info.json"
        return str(self.folder / (path.partition(f"/resolve/{COMMIT}/")[2] or name))

    def end_headers(self) -> None:
        for header in ("X-Repo-Commit", COMMIT), ("ETag", f'"{self.path}"'), ("X-Error-Code", "EntryNotFound"):
            self.send_header(*header)
        super().end_headers()


@pytest.mark.slow  # two processes, which read the hub's address when they start
@pytest.mark.enable_socket
def test_all_files_are_of_one_commit_and_cached_ones_need_no_request(bert: Path, tmp_path: Path) -> None:
    Hub.folder = Path(shutil.copytree(bert, tmp_path / "hub"))
    (Hub.folder / "tree.json").write_text("[]")
    (Hub.folder / "info.json").write_text(json.dumps({"id": "nobody/tiny", "sha": COMMIT}))
    expected = Encoder(bert, "mean").encode(["dogs"])[0].tolist()
    code = "from essent import Encoder; print(Encoder('nobody/tiny', 'mean').encode(['dogs'])[0].tolist())"
    paths = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hub = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": ""}
        for _ in range(2):
            Hub.paths = []
            printed = subprocess.run([sys.executable, "-c", code], env=environment(**hub), stdout=-1, check=True).stdout
            paths.append(Hub.paths)
            assert json.loads(printed) == expected
        server.shutdown()
    assert f"/nobody/tiny/resolve/{COMMIT}/config.json" in paths[0]
    assert not any("/resolve/main/" in path for path in paths[0])
    files = {path.rpartition("/")[2] for path in paths[1] if "/resolve/" in path}
    assert files <= {"modules.json"}  # there is none, and sentence-transformers asks each time
