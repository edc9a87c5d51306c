"""Checks of the space of the vectors: how alike unrelated texts are, and what a similarity follows but meaning."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from scipy.stats import spearmanr

from essent._core.texts import encoded_anyway
from essent.engine.compiled import CompiledEncoder
from essent.engine.gain import cosines
from essent.tasks.geometry import average_cosine
from essent.tasks.heros import comparisons
from essent.verification.model_under_test import ModelUnderTest
from essent.verification.report import Problem

ANISOTROPIC = 0.5  # average cosine: most of what two vectors share then is what all share
DEAD, DEAD_SHARE = 1e-3, 0.02  # of the median deviation; of the dimensions: all-MiniLM-L6-v2 has 3 of 384 and does well
DOMINATING, FEW_DIMENSIONS = 0.2, 8  # share of the squared length in one of at least so many dimensions
LENGTH, VARIED = 0.3, 0.25  # rank correlation; deviation of log lengths below which lengths hardly differ
RANDOM_PAIRS = 20_000
FEWEST = 20  # texts: what fewer have in common may be chance
NEGATION = 0.5  # a toss-up between negation and synonym; the whole 95 % interval must lie above it
FOREIGN = 0.2  # of the tokens of the English minimal pairs unknown: then they say nothing of this model
LARGEST = float(torch.finfo(torch.float16).max)  # 65,504
SAME = 0.99  # cosine with float32: below, half precision has lost more than its own rounding
TRIED = 8  # texts


def finite(model: ModelUnderTest) -> Iterator[Problem]:
    """Some text has a vector that is not finite."""
    wrong = ~np.isfinite(model.vectors).all(axis=1)
    if wrong.any():
        yield Problem(
            f"{int(wrong.sum())} of {len(wrong)} texts have vectors with infinite or undefined numbers, the first of "
            f"them {model.texts[int(np.argmax(wrong))]!r:.60}.",
            "Get the weights again from where they came from; a training that diverged must be repeated with a lower "
            "learning rate.",
            figures={"texts": int(wrong.sum())},
        )


def anisotropy(model: ModelUnderTest) -> Iterator[Problem]:
    """The typical cosine of unrelated texts is above 0.5."""
    typical = average_cosine(model.vectors)
    if len(model.texts) >= FEWEST and typical > ANISOTROPIC:
        yield Problem(
            f"The vectors point one way: the typical cosine of two unrelated texts is {typical:.2f}.",
            f"{model.command_with('centre')}; or keep the vectors and calibrate the similarity: --calibrate FILE",
            figures={"average_cosine": typical},
        )


def dead_dimensions(model: ModelUnderTest) -> Iterator[Problem]:
    """More than 2 % of the dimensions are the same for all texts."""
    deviation = model.vectors.std(axis=0)
    dead = deviation <= DEAD * np.median(deviation)
    if len(model.texts) >= FEWEST and float(dead.mean()) > DEAD_SHARE:
        yield Problem(
            f"{int(dead.sum())} of {len(dead)} dimensions are the same for all texts: they say nothing.",
            f"{model.command_with(f'whiten:{len(dead) - int(dead.sum())}')}; look whether the weights are whole",
            figures={"dead": int(dead.sum()), "dimensions": len(dead)},
        )


def dominating_dimensions(model: ModelUnderTest) -> Iterator[Problem]:
    """One dimension makes up more than 20 % of the vectors' squared length."""
    shares = (model.units**2).mean(axis=0)
    wide = len(shares) >= FEW_DIMENSIONS and len(model.texts) >= FEWEST
    if wide and float(shares.max()) > DOMINATING:
        yield Problem(
            f"Dimension {int(shares.argmax())} of {len(shares)} makes up {100 * shares.max():.0f} % of the vectors' "
            "squared length: a cosine is mostly a comparison of this one number.",
            model.command_with("zscore"),
            figures={"dimension": int(shares.argmax()), "share": float(shares.max())},
        )


def length_bias(model: ModelUnderTest) -> Iterator[Problem]:
    """Texts of one length look alike: the cosine of random pairs follows their lengths by a correlation above 0.3."""
    lengths = np.log(np.maximum([len(ids) for ids in model.ids], 1))
    if len(lengths) < FEWEST or float(lengths.std()) < VARIED:
        return
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, len(lengths), (2, RANDOM_PAIRS))
    first, second = first[first != second], second[first != second]
    pair_cosines = np.einsum("nd,nd->n", model.units[first], model.units[second])
    correlation = float(spearmanr(pair_cosines, -np.abs(lengths[first] - lengths[second])).statistic)
    if correlation > LENGTH:
        yield Problem(
            "Texts of one length look alike, whatever they say: the cosine of random pairs follows the closeness of "
            f"their lengths (rank correlation {correlation:.2f}).",
            f"{model.command_with('abtt:2')}; or compare texts of like length (essent encode --chunk)",
            figures={"correlation": correlation},
        )


def negation(model: ModelUnderTest) -> Iterator[Problem]:
    """It ranks the negation of a sentence above the same sentence with a synonym in more than half of the cases."""
    task = model.minimal_pairs
    if model.unknown is not None:
        flat = [token for ids in model.ids_of(list(task.originals)) for token in ids]
        if flat.count(model.unknown) > FOREIGN * len(flat):
            return
    scores = task.run(lambda texts: model.encoder.encode(texts, show_progress_bar=False))
    wins = next((c for c in comparisons(scores) if (c.above, c.below) == ("a negation", "a synonym")), None)
    if wins is not None and wins.low > NEGATION:
        yield Problem(
            f"Blind to negation: {wins.sentence()}",
            model.command(
                "essent train -m MODEL with negations as hard negatives (essent lab minimal-pairs build makes them of "
                "your sentences), or a cross-encoder that looks at the best pairs again"
            ),
            figures={"share": wins.share, "low": wins.low, "high": wins.high},
        )


def float16(model: ModelUnderTest) -> Iterator[Problem]:
    """In float16 a weight or a state is infinite, or the vectors are others."""
    if isinstance(model.encoder, CompiledEncoder):
        return
    weights = [p.detach() for p in model.encoder.parameters() if p.is_floating_point()]
    largest = max((float(p.abs().max()) for p in weights if p.numel()), default=0.0)
    fix = (
        "Keep it in float32, or in bfloat16, which has float32's range: essent save --format openvino --precision "
        "bfloat16."
    )
    if largest > LARGEST:
        yield Problem(
            f"A weight of {largest:,.0f} is infinite in float16, which ends at {LARGEST:,.0f}.",
            fix,
            figures={"largest": largest},
        )
        return
    texts = sorted(model.texts, key=len)[-TRIED:]
    exact = np.asarray(model.encoder.encode(texts, show_progress_bar=False), np.float64)
    try:
        half = copy.deepcopy(model.encoder).half()
        halved = np.asarray(encoded_anyway(partial(half.encode, texts, show_progress_bar=False)), np.float64)
    except (RuntimeError, NotImplementedError):
        return  # an operation that this device does not have in float16: nobody runs it so here
    if not np.isfinite(halved).all():
        yield Problem("In float16 hidden states overflow: the vectors are infinite or undefined.", fix)
    elif (lowest := float(cosines(exact, halved).min())) < SAME:
        yield Problem(
            f"In float16 the vectors are others: their cosine with those in float32 is down to {lowest:.3f}.",
            fix,
            figures={"lowest_cosine": lowest},
        )
