"""Every named recipe on every family equals the slow reference; alone, in any batch, padded on either side."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from essent.encoder.encoder import Encoder
from essent.errors import UnsupportedRecipeError
from essent.recipe.named import NAMED
from essent.recipe.recipe import Recipe
from essent.recipe.weighting.base import weightings
from families import FAMILIES, MASKED, RELATIVE, WITHOUT_MASK, Folders
from reference import Counts, Reference, Sentence, shaped
from samples import HEADS, LONG, TEXTS, daily

Shells = Callable[[str], SentenceTransformer]
References = Callable[[str], Reference]

ROWS = [row.name for row in NAMED.values() if not row.argument and "|" not in row.text and row.name != "metaeol"]
DITTOS = [f"{row.name}:{head}" for row in NAMED.values() if row.argument for head in HEADS]
WEIGHTINGS = {spec.partition(":")[0] for row in (*ROWS, *DITTOS) for spec in Recipe.parse(row).weights}
MORE = [
    "layers=0.3*0+-0.5*1+1.2*L",
    "layers=L-2",
    "layers=static+1",
    "layers=random:32,7+L",
    "template=T2 layers=0.5*topk:5+2*static weights=mask",
    "weights=content",
    *(f"weights={name}" for name in weightings if name not in WEIGHTINGS),  # position, sif
    "weights=tfidf*position",
    "weights=idf*ditto:2-1",
    "weights=remove:5",
    "reduce=max",
    "weights=content reduce=power:3",
    "reduce=dct:4",
    "template='The word {text} .' weights=content*idf",
    "template=0.7*T0+-0.3*T4 weights=mask",
    "template=1.5*about+-0.5*echo layers=0+L weights=content",
]
SHAPED = ["first-last-idf-zscore", "t4-idf-quantile", "mean | normalize", "mean | zscore | normalize"]
EVERYWHERE = {  # one recipe a part that a model computes in its own way
    "first-last-idf",
    "ditto:2-3",
    "static-remove-biases",
    "prompt-topk-denoised",
    "layers-1-2-L",
    "layers=random:32,7+L",
    "weights=content",
    "weights=position",
    "template='The word {text} .' weights=content*idf",
}


def cases() -> Iterator[Any]:
    """Every recipe on a family that can run it, in turn; `make test-all`: on another, each part's own path on all."""
    names, absolute = list(FAMILIES), [family for family in MASKED if family not in RELATIVE]
    for row, text in enumerate([*ROWS, *DITTOS, *MORE, *SHAPED]):
        able = absolute if "mask" in Recipe.parse(text).weights else names
        chosen = able[row % len(able)]
        more = names if text in EVERYWHERE else [names[(5 * row + 8) % len(names)]]
        yield pytest.param(text, chosen)
        yield from (pytest.param(text, family, marks=pytest.mark.slow) for family in more if family != chosen)


def cannot_run(recipe: Recipe, family: str, reference: Reference) -> bool:
    """Masks need a mask token, denoising position ids, a mix sources of one width."""
    sources = [name for name, _ in recipe.layers]
    return (
        (any("[MASK]" in (template or "") for template, _ in recipe.terms) and reference.tokenizer.mask_token is None)
        or (family in RELATIVE and any(name.endswith("-bias") for name in sources))
        or (any(name.startswith("topk") for name in sources) and family in WITHOUT_MASK)
        or ("static" in sources and any(name[0] in "0123456789L" for name in sources) and reference.rows.shape[1] != 32)
    )


def sentences(reference: Reference, encoder: Encoder, texts: list[str], term: int = 0) -> list[Sentence]:
    """Ids by tokenising the filled template; essent's own where a tokenizer glues the template to the text.

    Args:
        term: number of the template, if the recipe adds several.
    """
    recipe, template = encoder.recipe, encoder.recipe.terms[term][0]
    leading = reference.mark == "Ġ" and any(w.startswith("remove") for w in recipe.weights)
    if template is None or reference.mark == "##":
        return [reference.sentence(text, template, leading) for text in texts]
    listed, frame = [], list(encoder.module.plan.frames)[term]
    for ids in encoder.module.ids(texts)[term * len(texts) :][: len(texts)]:
        before, between, after = ((False,) * len(part or ()) for part in (frame.before, frame.between, frame.after))
        words = (True,) * frame.room(len(ids))
        content = (*before, *words, *between, *words, *after) if frame.between else (*before, *words, *after)
        listed.append(Sentence(tuple(ids), content))
    return listed


def expected(reference: Reference, encoder: Encoder, texts: list[str]) -> np.ndarray:
    total = 0.0
    for term, (_, factor) in enumerate(encoder.recipe.terms):
        reference_sentences = sentences(reference, encoder, texts, term)
        counts = Counts.of([s.ids for s in reference_sentences])
        vectors = [reference.vector(s, encoder.recipe, counts) for s in reference_sentences]
        total = total + factor * np.array(vectors)
    return shaped(total, encoder.recipe.shaping)


def assert_close(vectors: np.ndarray, oracle: np.ndarray, tolerance: float = 1e-5) -> None:
    scale = max(1.0, float(np.abs(oracle).max()))
    assert np.abs(vectors - oracle).max() <= tolerance * scale


@pytest.mark.parametrize(("text", "family"), [*cases()])
def test_recipe_equals_the_reference(family: str, text: str, shell_of: Shells, reference_of: References) -> None:
    recipe, reference = Recipe.parse(text), reference_of(family)
    if cannot_run(recipe, family, reference):
        with pytest.raises(UnsupportedRecipeError, match=r"cannot run the recipe|different widths"):
            Encoder(shell_of(family), recipe)
        return
    encoder = Encoder(shell_of(family), recipe).fit(TEXTS)
    vectors, oracle = encoder.encode(TEXTS), expected(reference, encoder, TEXTS)
    if recipe.reduce.startswith("power"):
        vectors, oracle = vectors**3, oracle**3  # a cube root turns 1e-15 into 1e-5
    if named := [name for name, _ in recipe.layers if name.startswith("topk")]:
        every = sentences(reference, encoder, TEXTS)
        sure = [all(reference.ranks_surely(sentence, name) for name in named) for sentence in every]
        assert sum(sure) > len(sure) / 2  # of equally probable tokens float32 may take another one
        vectors, oracle = vectors[sure], oracle[sure]
    assert_close(vectors, oracle, 1e-4 if recipe.shaping else 1e-5)  # a z-score divides by small spreads


POOLED = ["mean", "first-last-idf", "last-token", "weights=position", "reduce=max", "prompt-denoised", "ditto:2-3"]


@pytest.mark.parametrize("family", ["bert", "llama", *(daily(["roberta", "deberta-v2", "t5", "gpt2", "modernbert"]))])
def test_neighbours_order_and_padding_side_do_not_matter(family: str, folder_of: Folders) -> None:
    start = list(FAMILIES).index(family)
    for text in [POOLED[(start + step) % len(POOLED)] for step in range(2)]:  # each recipe on some families
        if text == "prompt-denoised" and family in {*WITHOUT_MASK, *RELATIVE}:
            continue
        encoder = Encoder(folder_of(family), text).fit(TEXTS)
        alone = np.concatenate([encoder.encode([text]) for text in TEXTS[:4]])
        batch = [*TEXTS, *(f"{text} {n}" for n, text in enumerate(TEXTS)), LONG]
        assert_close(encoder.encode(batch[::-1], batch_size=64)[::-1][:4], alone)
        for encoder.tokenizer.padding_side in ("left", "right"):
            features = encoder.preprocess(batch)
            assert bool(features["attention_mask"][1, 0]) == (encoder.tokenizer.padding_side == "right")
            assert_close(encoder(features)["sentence_embedding"][:4].detach().numpy(), alone)


def test_weights_in_bfloat16(bert: Path) -> None:
    exact, rough = (
        Encoder(bert, "ditto:1-2 | normalize", model_kwargs={"dtype": dtype}).encode([*TEXTS, LONG])
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert (exact * rough).sum(axis=1).min() > 0.99
