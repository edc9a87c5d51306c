"""Names that lead nowhere: said at once, not after every file was asked for six times.

In processes of their own, since huggingface_hub reads its settings when it is imported and the tests block sockets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from essent._core.hub import reach_model
from essent.errors import ModelError
from waiting import LIMIT

CLOSED = "http://127.0.0.1:9"  # the port of the discard service: nobody listens
ASK = """
import json, sys, time
from importlib import import_module
import sentence_transformers, transformers
waits = []
time.sleep = waits.append  # huggingface_hub sleeps before it asks again
for module, function, *arguments in json.loads(sys.argv[1]):
    waits.clear()
    try:
        getattr(import_module("essent." + module), function)(*arguments)
        said = ["nothing", ""]
    except Exception as error:
        said = [type(error).__name__, str(error)]
    print(json.dumps([*said, sum(waits)]))
"""
SERVE = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Nothing(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(404)
        self.end_headers()
server = ThreadingHTTPServer(("127.0.0.1", 0), Nothing)
print(server.server_port, flush=True)
server.serve_forever()
"""


def ask(calls: list[list[str | None]], endpoint: str, home: Path, **environment: str) -> list[tuple[str, str, float]]:
    """Of each call (module, function, arguments) the error and the seconds of its sleeps, where it may ask that hub."""
    variables = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
    settings = {
        **variables,
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(calls)], env=settings, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()[-len(calls) :]]


@pytest.mark.slow  # a process of its own, which imports everything
def test_offline_a_wrong_name_fails_at_once_and_the_cache_is_read(bert: Path, tmp_path: Path) -> None:
    commit = "0123456789012345678901234567890123456789"
    store = tmp_path / "hub" / "models--nobody--tiny"
    (store / "refs").mkdir(parents=True)
    (store / "refs" / "main").write_text(commit)
    (store / "snapshots").mkdir()
    (store / "snapshots" / commit).symlink_to(bert)
    wrong = [
        ["encoder", "Encoder", "nobody/no-such-model"],
        ["encoder", "Encoder", "no-such-model", "mean"],
        ["lab.minimal_pairs.resources", "MaskedModel", "nobody/no-such-model"],
        ["lab.templates.generate", "Generator", "nobody/no-such-model"],
        ["tasks.data", "hub_rows", "nobody/no-such-data", None, "test", "--data-folder DIR"],
    ]
    wrong_names = [["encoder", "Encoder", name, "mean"] for name in ("my model", "nobody/tiny")]
    *refused, named, read = ask([*wrong, *wrong_names], CLOSED, tmp_path)
    check_the_name_is_refused(*named)
    for (module, *_), (name, message, seconds) in zip(wrong, refused, strict=True):
        assert name == ("DataError" if module == "tasks.data" else "ModelError")
        assert f"neither a folder nor cached, and {CLOSED} cannot be reached" in message
        assert seconds == 0  # huggingface_hub alone takes minutes
    assert read == ("nothing", "", 0)


def check_the_name_is_refused(name: str, message: str, seconds: float) -> None:
    """What no repository can be called is refused for its name."""
    assert name == "ModelError"
    assert "'my model'" in message
    assert "Repo id must" in message
    assert "cannot be reached" not in message
    assert seconds == 0
    assert reach_model("my model", {"revision": "main"}) == {"revision": "main"}


@pytest.mark.slow  # processes of its own, which import everything
def test_a_reachable_hub_is_queried(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
            [(name, message, _)] = ask([["encoder", "Encoder", "nobody/no-such-model", "mean"]], endpoint, tmp_path)
        finally:
            server.terminate()
    assert name == "ModelError"
    assert "cannot be reached" not in message
    assert "Cannot load the model 'nobody/no-such-model'" in message


def test_hf_hub_offline_sends_no_request() -> None:
    for options in ({}, {"local_files_only": True}):  # the tests run with HF_HUB_OFFLINE, without sockets
        assert reach_model("nobody/no-such-model", options) == options


@pytest.mark.parametrize("name", ["./no-such-folder", "/no/such/folder", "a/b/c"])
def test_a_path_is_no_name(name: str) -> None:
    with pytest.raises(ModelError, match="There is no model folder"):
        reach_model(name)
