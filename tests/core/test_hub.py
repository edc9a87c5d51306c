"""Names that lead nowhere: said at once, not after every file was asked for six times."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from essent import Encoder
from essent._core import hub
from essent._core.hub import reach_model
from essent.errors import ModelError
from essent.lab.minimal_pairs.resources import MaskedModel


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


def test_a_reachable_hub_and_offline_mode_add_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({}, {"local_files_only": True}):  # the tests run with HF_HUB_OFFLINE, without sockets
        assert reach_model("nobody/no-such-model", options) == options
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    hub._answers.cache_clear()
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: SimpleNamespace(head=lambda *_, **__: None))
    assert reach_model("nobody/no-such-model") == {}
