"""The flow: towards a Gaussian, the same every time, finite where there is little to learn from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from shaping_reference import sentence_like

from essent.errors import MissingDependencyError
from essent.recipe.shaping.flow import Flow

pytest.importorskip("zuko")
SMALL = {"epochs": 2, "transforms": 2, "hidden": 16, "batch_size": 32}


def log_likelihood(step: Flow, vectors: np.ndarray) -> float:
    """Mean log-density of z-scored vectors under the fitted flow."""
    module = step.module()
    standard = module.first(torch.from_numpy(vectors)).float()
    return float(module.network().log_prob(standard).mean())


def test_training_raises_the_likelihood_of_held_out_vectors() -> None:
    random = np.random.default_rng(0)
    curve = random.standard_normal((700, 4))
    curve[:, 1] += curve[:, 0] ** 2  # what no affine map makes Gaussian
    short, long = (Flow(epochs, 2, 32, 32).fit(curve[:300]) for epochs in (1, 8))
    assert log_likelihood(long, curve[300:]) > log_likelihood(short, curve[300:]) + 0.1


def test_a_seed_gives_the_same_bytes_and_leaves_torchs_generator_alone() -> None:
    vectors = sentence_like(80, 6)
    before = torch.random.get_rng_state()
    first, again = Flow(**SMALL).fit(vectors), Flow(**SMALL).fit(vectors)
    shaped = first.transform(vectors)
    assert torch.equal(before, torch.random.get_rng_state())
    assert shaped.tobytes() == again.transform(vectors).tobytes()
    assert not np.array_equal(shaped, Flow(**SMALL, seed=1).fit(vectors).transform(vectors))


def test_half_precision_keeps_the_weights() -> None:
    vectors = sentence_like(40, 6)
    module = Flow(**SMALL).fit(vectors).module().half()
    assert {buffer.dtype for buffer in module.buffers()} <= {torch.float32, torch.float64, torch.bool}
    assert module(torch.from_numpy(vectors).half()).dtype == torch.float16


def test_without_zuko_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(MissingDependencyError, match=r"essent\[flow\]"):
        Flow(**SMALL).fit(sentence_like(8, 3))
