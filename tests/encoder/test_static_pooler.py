"""The fast path of static recipes: its vectors are those of padded batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import essent.encoder.encoder
import essent.encoder.plan
from essent.encoder.encoder import Encoder
from essent.encoder.plan import static_pooler_of
from essent.recipe.tokens import count_tokens
from odd_texts import ODD
from samples import LONG, TEXTS

Shells = Callable[[str], SentenceTransformer]

STATIC = [
    "static weights=tfidf*content",
    "static weights=sif*idf",
    "static weights=remove:5",
    "layers=0.75*static+-0.5*random:32,1 weights=sif",
]


def padded(encoder: Encoder, texts: Sequence[str], shape: bool = False) -> torch.Tensor:
    """Vectors by one padded batch."""
    with torch.inference_mode():
        return encoder(encoder.module.pad(encoder.module.ids(texts)), shape=shape)["sentence_embedding"]


def assert_bags_equal_padded(encoder: Encoder, texts: Sequence[str]) -> None:
    pooler = static_pooler_of(encoder.module.plan, encoder.module.backbone)
    assert pooler is not None
    with torch.inference_mode():
        vectors = pooler.pool(pooler.ids(texts), encoder.module.stats)
    torch.testing.assert_close(vectors, padded(encoder, texts), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("recipe", STATIC)
@pytest.mark.parametrize("family", ["bert", "roberta", "t5", "gpt2"])
def test_bags_equal_padded_batches(family: str, recipe: str, shell_of: Shells) -> None:
    encoder = Encoder(shell_of(family), recipe).fit(TEXTS)
    assert_bags_equal_padded(encoder, [*TEXTS, *ODD[:10], LONG, ", .", "the the"])


@pytest.mark.parametrize(("recipe", "side"), [("static weights=content", "left"), ("static weights=sif", "right")])
def test_a_length_limit_cuts_bags_too(recipe: str, side: str, shell: SentenceTransformer) -> None:
    encoder = Encoder(shell, recipe).fit(TEXTS)
    encoder.module.backbone.tokenizer = copy.copy(encoder.tokenizer)
    encoder.module.backbone.tokenizer.truncation_side = side
    for encoder.module.backbone.max_seq_length in (1, 2, 7):
        assert_bags_equal_padded(encoder, TEXTS)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_tables_of_half_precision(kind: torch.dtype, bert: Path) -> None:
    assert_bags_equal_padded(Encoder(str(bert), "static weights=idf", device="cpu").fit(TEXTS).to(kind), TEXTS)


@pytest.mark.parametrize(
    "recipe", ["layers=static+L", "static weights=cls*idf", "static reduce=max", "template='A {text} .' layers=static"]
)
def test_unsupported_recipes_have_no_static_pooler(recipe: str, shell: SentenceTransformer) -> None:
    encoder = Encoder(shell, recipe)
    assert static_pooler_of(encoder.module.plan, encoder.module.backbone) is None


def test_encode_takes_the_fast_path(shell: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(shell, "static weights=idf | zscore", prompts={"query": "how : "}).fit(TEXTS * 2)
    monkeypatch.setattr(essent.encoder.encoder, "PORTION", 3)
    expected = padded(encoder, TEXTS, shape=True).numpy()
    monkeypatch.setattr(encoder.module, "forward", None)  # nothing is padded
    texts = [*TEXTS, *TEXTS[::-1]]
    with_progress = encoder.encode(texts, show_progress_bar=True)
    np.testing.assert_allclose(with_progress, [*expected, *expected[::-1]], atol=1e-5)
    np.testing.assert_allclose(encoder.encode("dogs", prompt_name="query"), encoder.encode("how : dogs"), atol=1e-6)
    assert encoder.encode([]).shape[0] == 0
    followed = Encoder(shell, "static")
    followed.append(torch.nn.Identity())
    assert followed.encode(TEXTS).shape == (len(TEXTS), 32)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_counts_match_whole_texts(family: str, shell_of: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame's tokens stand in every text, also where the user wrote one of them."""
    module = Encoder(shell_of(family), "static weights=idf").module
    texts = [*TEXTS, *TEXTS[:2], *ODD[:10], "[CLS] [SEP] the", ""]
    monkeypatch.setattr(essent.encoder.plan, "PORTION", 5)
    counts = module.plan.count(texts, module.backbone)
    expected = count_tokens(module.ids, texts, len(module.backbone.vocabulary))
    assert counts.texts == expected.texts
    np.testing.assert_array_equal(counts.count, expected.count)
    np.testing.assert_array_equal(counts.document_frequency, expected.document_frequency)
