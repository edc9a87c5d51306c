"""A small task to validate on."""

from __future__ import annotations

import pytest

from essent.tasks.examples import Pair
from essent.tasks.pairs import PairTask
from families import CORPUS


@pytest.fixture(scope="session")
def dev() -> PairTask:
    pairs = [Pair(CORPUS[i], CORPUS[j], float((3 * i + 5 * j) % 7)) for i in range(8) for j in range(i)]
    return PairTask("dev", tuple(pairs))
