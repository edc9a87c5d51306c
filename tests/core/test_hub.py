"""Names that lead nowhere: said at once, not after every file was asked for six times."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from command_line import environment
from essent import Encoder
from essent._core import hub
from essent.errors import ModelError
from essent.lab.minimal_pairs.resources import MaskedModel

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
def test_the_cache_is_read(cached: Callable[..., Path]) -> None:
    cache = cached("nobody/tiny")
    assert Encoder("nobody/tiny", "mean", cache_folder=str(cache)).encode(["dogs"]).any()


class Hub(BaseHTTPRequestHandler):
    """A hub with the model nobody/tiny, of one commit."""

    folder: Path
    paths: list[str]

    def do_HEAD(self) -> None:
        self.paths.append(self.path)
        _, of_commit, name = self.path.partition(f"/resolve/{COMMIT}/")
        file, status = self.folder / name, 200
        self.content = b"[]" if "/tree/" in self.path else json.dumps({"id": "nobody/tiny", "sha": COMMIT}).encode()
        if of_commit:
            self.content, status = (file.read_bytes(), 200) if file.is_file() else (b"", 404)
        self.send_response(status)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{name}"')
        self.send_header("Content-Length", str(len(self.content)))
        if status == 404:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(self.content)

    def log_message(self, *_: object) -> None: ...


@pytest.mark.slow  # two processes, which read the hub's address when they start
@pytest.mark.enable_socket
def test_all_files_are_of_one_commit_and_cached_ones_need_no_request(bert: Path, tmp_path: Path) -> None:
    Hub.folder, expected = bert, Encoder(bert, "mean").encode(["dogs"])[0].tolist()
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
