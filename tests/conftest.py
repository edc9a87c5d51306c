"""Tiny random models of every family, built once a session; no network, no download."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub

import pytest
import torch
from hypothesis import HealthCheck, settings
from sentence_transformers import SentenceTransformer

from essent.model.loading import open_model
from families import MASKED, build_family, build_generator
from reference import Reference

torch.set_num_threads(1)  # tiny matrices: threads that wait for each other on a busy machine cost a hundred times more
settings.register_profile(
    "essent", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("essent")


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Family -> folder of a tiny random model with its tokenizer."""
    root = tmp_path_factory.mktemp("families")
    return cache(lambda family: build_family(family, root / family))


@pytest.fixture(scope="session")
def shell_of(folder_of: Callable[[str], Path]) -> Callable[[str], SentenceTransformer]:
    """Family -> the same model loaded once by sentence-transformers; an Encoder on it shares the weights and head."""
    return cache(lambda family: open_model(str(folder_of(family)), {"device": "cpu"}, with_mlm_head=family in MASKED))


@pytest.fixture(scope="session")
def reference_of(folder_of: Callable[[str], Path]) -> Callable[[str], Reference]:
    """Family -> the slow, obvious implementation on it, float64."""
    return cache(lambda family: Reference(folder_of(family), family))


@pytest.fixture(scope="session")
def bert(folder_of: Callable[[str], Path]) -> Path:
    """Folder of a tiny BERT: 3 layers of 4 heads, 32 dimensions, at most 256 tokens."""
    return folder_of("bert")


@pytest.fixture(scope="session")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a tiny random T5 that writes between sentinels."""
    return str(build_generator(tmp_path_factory.mktemp("t5") / "t5"))
