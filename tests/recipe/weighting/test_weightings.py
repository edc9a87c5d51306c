"""What every token weighting promises, each one against counting by hand; reductions against loops over tokens."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from essent.encoder.encoder import Encoder
from essent.errors import NotFittedError
from essent.recipe.named import TEMPLATES
from essent.recipe.pooling import reductions
from essent.recipe.recipe import Recipe
from essent.recipe.tokens import Vocabulary
from essent.recipe.types import States, Tokens
from essent.recipe.weighting.base import combine_many, weightings
from families import CORPUS, build_tokenizer
from reference import reduced
from samples import TEXTS

SPECS = {"ditto": ["ditto:1-1", "ditto:3-4"], "remove": ["remove", "remove:3"], "sif": ["sif", "sif:0.1"]}
EVERY = [spec for name in weightings for spec in SPECS.get(name, [name])]
EDGES = ["", " ", "the", "...", "[MASK]", "the the the", "[SEP] [CLS]"]


def encoder_of(shell: SentenceTransformer, spec: str) -> Encoder:
    template = {"mask": TEMPLATES["T2"], "second": TEMPLATES["echo"]}.get(spec)
    return Encoder(shell, Recipe(template=template, weights=tuple(spec.split("*")))).fit([*CORPUS, *TEXTS])


def weights_of(encoder: Encoder, texts: list[str], side: str = "right") -> list[np.ndarray]:
    """ω of each text, padding checked to be 0 and dropped."""
    features = encoder.module.pad(encoder.module.ids(texts), side)
    with torch.inference_mode():
        weights = encoder(features)["token_weights"]
    attention_mask = features["attention_mask"].bool()
    assert weights.shape == attention_mask.shape
    assert (weights[~attention_mask] == 0).all()
    return [row[attended].numpy() for row, attended in zip(weights, attention_mask, strict=True)]


@pytest.mark.parametrize("spec", [*EVERY, "idf*ditto:2-2", "cls*last", "sif*content"])
def test_the_contract(spec: str, shell: SentenceTransformer) -> None:
    assert "*" in spec or weightings.create(spec).spec() == spec
    encoder, texts = encoder_of(shell, spec), [*TEXTS, *EDGES]
    together = weights_of(encoder, texts)
    normalized = all(weightings.create(part).normalized for part in spec.split("*"))
    for text in (TEXTS[0], "", "[MASK]"):
        np.testing.assert_allclose(weights_of(encoder, [text])[0], together[texts.index(text)], atol=1e-6)
    for weights, padded_left_weights in zip(together, weights_of(encoder, texts, "left"), strict=True):
        assert (weights >= 0).all()
        assert np.isfinite(weights).all()
        assert weights.sum() == pytest.approx(1, abs=1e-5) if normalized else weights.sum() > 0
        np.testing.assert_allclose(padded_left_weights, weights, atol=1e-6)


def test_counts_must_be_learned_first() -> None:
    vocabulary = Vocabulary(build_tokenizer("wordpiece"), 300)
    for spec in ("idf", "tfidf", "sif:0.1", "remove:3"):
        with pytest.raises(NotFittedError, match=f"weights={spec} needs token counts: call fit"):
            weightings.create(spec).table(vocabulary, None)  # type: ignore[attr-defined]


# -- removal ----------------------------------------------------------------------------------------------------------


def test_removal_reads_the_first_word_as_a_word(shell_of: Callable[[str], SentenceTransformer]) -> None:
    """Byte-level tokenizers mark a word by the space before it: without one the first word would be a sub-word."""
    encoder = Encoder(shell_of("roberta"), "static-remove-biases")
    first, second = encoder.module.ids(["kitten the", "the kitten"])
    assert sorted(first) == sorted(second)


# -- position ---------------------------------------------------------------------------------------------------------


def test_several_masks_are_averaged_and_the_users_are_not(shell: SentenceTransformer) -> None:
    encoder = Encoder(shell, Recipe(template=TEMPLATES["T4"], weights=("mask",)))
    text = "the [MASK] man"
    weights = weights_of(encoder, [text])[0]
    assert sorted(set(weights.tolist())) == pytest.approx([0, 1 / 3], abs=1e-6)
    np.testing.assert_array_equal(
        weights > 0, np.array(encoder.module.ids([text])[0]) == encoder.tokenizer.mask_token_id
    )
    assert encoder.tokenizer(text)["input_ids"].count(encoder.tokenizer.mask_token_id) == 1  # it is as it was


def test_products_of_half_precision_do_not_underflow() -> None:
    """1e-4 · 1e-4 is 0 in sixteen bits; a text whose weights are all 0 would become a plain mean."""
    attended = torch.ones(1, 3, dtype=torch.bool)
    tokens = Tokens(torch.zeros(1, 3, dtype=torch.long), attended, attended)
    diagonals = {(1, head): torch.tensor([[1e-4, 2e-4, 3e-4]], dtype=torch.float16) for head in (1, 2)}
    product = [weightings.create(f"ditto:1-{head}") for head in (1, 2)]
    weights = combine_many([product, []], tokens, States({}, diagonals), None, None)  # type: ignore[arg-type]
    np.testing.assert_allclose(weights[0, 0], [1e-8, 4e-8, 9e-8], rtol=1e-2)
    np.testing.assert_allclose(weights[0, 1], [1 / 3] * 3)


# -- reductions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["sum", "max", "power:2", "power", "dct:1", "dct:9"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_reductions_equal_loops(spec: str, side: str) -> None:
    """What stands on padding is large, and must not count."""
    lengths, draw = [1, 2, 5, 7], np.random.default_rng(0)  # shorter and longer than the number of DCT coefficients
    order = np.arange(7) if side == "right" else np.arange(7)[::-1]
    attention_mask = torch.from_numpy(order < np.array(lengths)[:, None])  # (B,T)
    hidden = torch.from_numpy(draw.standard_normal((4, 7, 5))) + 1e3 * ~attention_mask[..., None]
    weights = torch.from_numpy(draw.random((4, 7)) + 0.1) * attention_mask
    weights[2:, 3] = 0  # a token that only the texts of five and seven have
    vectors = reductions.create(spec).reduce(hidden, weights, attention_mask).numpy()
    for row in range(len(lengths)):
        attended = attention_mask[row]
        oracle = reduced(list(hidden[row][attended].numpy()), weights[row][attended].tolist(), spec)
        np.testing.assert_allclose(vectors[row], oracle, atol=1e-9)
    assert vectors.shape[1] == reductions.create(spec).width(5)
