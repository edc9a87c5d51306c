"""A static encoder starts without scipy: a query's sum needs none of it, and is the same to the bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from essent import Encoder, StaticEncoder
from essent.static import encoder as module
from families import CORPUS


@pytest.fixture(scope="module")
def folder(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    backbone = Encoder(str(bert), "static", device="cpu").module.backbone
    path = tmp_path_factory.mktemp("static") / "table"
    rows = backbone.static_table.detach()
    SentenceTransformer(modules=[StaticEmbedding(backbone.tokenizer.backend_tokenizer, rows)]).save(str(path))
    return path


def test_few_texts_match_many_bit_for_bit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = StaticEncoder.load(folder)
    texts = ["", "the", *CORPUS[:4], "the moon " * 300]
    few = [encoder.encode([text])[0] for text in texts]
    batch = encoder.encode(texts)
    monkeypatch.setattr(module, "FEW", 0)
    many = StaticEncoder.load(folder).encode(texts)
    assert np.array_equal(batch, many)
    assert np.array_equal(np.stack(few), many)


@pytest.mark.slow  # a process of its own
def test_the_first_text_imports_no_scipy(folder: Path) -> None:
    code = (
        "import sys; from essent import StaticEncoder\n"
        f"assert StaticEncoder.load({str(folder)!r}).encode(['How far is the moon?']).any()\n"
        "print([name for name in ('scipy', 'torch', 'pandas', 'sklearn') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
