"""What the tests of encoders share."""

from __future__ import annotations

from typing import Any

import pytest

from essent.model.backbone import Backbone
from essent.recipe.types import Tokens


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts went through the model, pass by pass."""
    batch_sizes: list[int] = []
    run = Backbone.states

    def counting(backbone: Backbone, tokens: Tokens, *arguments: Any) -> Any:
        batch_sizes.append(len(tokens))
        return run(backbone, tokens, *arguments)

    monkeypatch.setattr(Backbone, "states", counting)
    return batch_sizes
