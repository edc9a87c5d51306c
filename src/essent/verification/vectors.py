"""Checks of the vectors: similarity of unrelated texts, single dimensions, length, negation, half precision."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from scipy.stats import spearmanr

from essent._core.texts import encode_allowing_nonfinite
from essent.engine.compiled import CompiledEncoder
from essent.engine.gain import cosines
from essent.tasks.geometry import average_cosine
from essent.tasks.heros import comparisons
from essent.verification.model_under_test import ModelUnderTest
from essent.verification.report import Problem

ANISOTROPIC = 0.5  # average cosine: above it, two vectors share mostly what all vectors share
DEAD, DEAD_SHARE = (
    1e-3,
    0.02,
)  # of the median deviation; of the dimensions: all-MiniLM-L6-v2 has 3 of 384
DOMINATING, FEW_DIMENSIONS = 0.2, 8  # share of the squared length; minimum number of dimensions
LENGTH, VARIED = 0.3, 0.25  # rank correlation; standard deviation of log lengths: below it, lengths hardly differ
RANDOM_PAIRS = 20_000
MIN_TEXTS = 20  # fewer texts may have something in common by chance
NEGATION = 0.5  # chance level of negation against synonym; the whole 95 % interval must lie above it
FOREIGN = 0.2  # unknown share of the tokens of the English minimal pairs: above it, they do not apply to the model
LARGEST = float(torch.finfo(torch.float16).max)  # 65,504
SAME = 0.99  # cosine with float32: below it, the loss is more than half precision's rounding
N_LONGEST = 8  # texts computed in float16


def finite(model: ModelUnderTest) -> Iterator[Problem]:
    """A vector is infinite or undefined."""
    wrong = ~np.isfinite(model.vectors).all(axis=1)
    if wrong.any():
        yield Problem(
            f"{int(wrong.sum())} of {len(wrong)} texts have vectors with infinite or undefined numbers, the first is "
            f"{model.texts[int(np.argmax(wrong))]!r:.60}.",
            "Download the weights again; if the training diverged, repeat it with a lower learning rate.",
            figures={"texts": int(wrong.sum())},
        )


def anisotropy(model: ModelUnderTest) -> Iterator[Problem]:
    """The average cosine of unrelated texts is above 0.5."""
    typical = average_cosine(model.vectors)
    if len(model.texts) >= MIN_TEXTS and typical > ANISOTROPIC:
        yield Problem(
            f"The vectors share one direction: the average cosine of two unrelated texts is {typical:.2f}.",
            f"{model.command_with('centre')}; or only calibrate the similarity: essent save --calibrate FILE",
            figures={"average_cosine": typical},
        )


def dead_dimensions(model: ModelUnderTest) -> Iterator[Problem]:
    """More than 2 % of the dimensions are constant."""
    deviation = model.vectors.std(axis=0)
    dead = deviation <= DEAD * np.median(deviation)
    if len(model.texts) >= MIN_TEXTS and float(dead.mean()) > DEAD_SHARE:
        yield Problem(
            f"{int(dead.sum())} of {len(dead)} dimensions are constant: they carry no information.",
            f"{model.command_with(f'whiten:{len(dead) - int(dead.sum())}')}; check that the weights are complete",
            figures={"dead": int(dead.sum()), "dimensions": len(dead)},
        )


def dominating_dimensions(model: ModelUnderTest) -> Iterator[Problem]:
    """One dimension has more than 20 % of the vectors' squared length."""
    shares = (model.units**2).mean(axis=0)
    wide = len(shares) >= FEW_DIMENSIONS and len(model.texts) >= MIN_TEXTS
    if wide and float(shares.max()) > DOMINATING:
        yield Problem(
            f"Dimension {int(shares.argmax())} of {len(shares)} has {100 * shares.max():.0f} % of the vectors' squared "
            "length: cosines mostly compare this one number.",
            model.command_with("zscore"),
            figures={"dimension": int(shares.argmax()), "share": float(shares.max())},
        )


def length_bias(model: ModelUnderTest) -> Iterator[Problem]:
    """The cosine of random pairs correlates by more than 0.3 with the similarity of their lengths."""
    lengths = np.log(np.maximum([len(ids) for ids in model.ids], 1))
    if len(lengths) < MIN_TEXTS or float(lengths.std()) < VARIED:
        return
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, len(lengths), (2, RANDOM_PAIRS))
    first, second = first[first != second], second[first != second]
    pair_cosines = np.einsum("nd,nd->n", model.units[first], model.units[second])
    correlation = float(spearmanr(pair_cosines, -np.abs(lengths[first] - lengths[second])).statistic)
    if correlation > LENGTH:
        yield Problem(
            "Texts of similar length have similar vectors: the cosine of random pairs correlates with the similarity "
            f"of their lengths (rank correlation {correlation:.2f}).",
            f"{model.command_with('abtt:2')}; or compare texts of similar length (essent encode --chunk)",
            figures={"correlation": correlation},
        )


def negation(model: ModelUnderTest) -> Iterator[Problem]:
    """A negated sentence ranks above the sentence with a synonym in significantly more than half of the cases."""
    task = model.minimal_pairs
    if model.unknown is not None:
        flat = [token for ids in model.ids_of(list(task.originals)) for token in ids]
        if flat.count(model.unknown) > FOREIGN * len(flat):
            return
    scores = task.run(lambda texts: model.encoder.encode(texts, show_progress_bar=False))
    wins = next((c for c in comparisons(scores) if (c.above, c.below) == ("a negation", "a synonym")), None)
    if wins is not None and wins.low > NEGATION:
        yield Problem(
            f"Insensitive to negation: {wins.sentence()}",
            model.command(
                "essent train -m MODEL with negations as hard negatives (essent lab minimal-pairs build makes them "
                "from your sentences), or rerank the best pairs with a cross-encoder"
            ),
            figures={"share": wins.share, "low": wins.low, "high": wins.high},
        )


def float16(model: ModelUnderTest) -> Iterator[Problem]:
    """In float16, a weight or hidden state is infinite, or the vectors differ."""
    if isinstance(model.encoder, CompiledEncoder):
        return
    weights = [p.detach() for p in model.encoder.parameters() if p.is_floating_point()]
    largest = max((float(p.abs().max()) for p in weights if p.numel()), default=0.0)
    fix = "Use float32, or bfloat16, which has float32's range: essent save --format openvino --precision bfloat16."
    if largest > LARGEST:
        yield Problem(
            f"A weight of {largest:,.0f} is infinite in float16, whose maximum is {LARGEST:,.0f}.",
            fix,
            figures={"largest": largest},
        )
        return
    texts = sorted(model.texts, key=len)[-N_LONGEST:]
    exact = np.asarray(model.encoder.encode(texts, show_progress_bar=False), np.float64)
    try:
        half = copy.deepcopy(model.encoder).half()
        halved = np.asarray(encode_allowing_nonfinite(partial(half.encode, texts, show_progress_bar=False)), np.float64)
    except (RuntimeError, NotImplementedError):
        return  # this device lacks an operation in float16, so the model never runs in float16 here
    if not np.isfinite(halved).all():
        yield Problem("In float16, hidden states overflow: the vectors are infinite or undefined.", fix)
    elif (lowest := float(cosines(exact, halved).min())) < SAME:
        yield Problem(
            f"In float16, the vectors differ: the lowest cosine with float32 is {lowest:.3f}.",
            fix,
            figures={"lowest_cosine": lowest},
        )
