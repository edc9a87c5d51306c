"""The space of the vectors: how alike unrelated texts are, and what a similarity follows besides the meaning."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from essent.tasks.geometry import average_cosine
from essent.tasks.heros import comparisons
from essent.verification.finding import Finding
from essent.verification.patient import Patient

ANISOTROPIC = 0.5  # average cosine: most of what two vectors share then is what all share
DEAD, DEAD_SHARE = 1e-3, 0.02  # of the median deviation; of the dimensions: all-MiniLM-L6-v2 has 3 of 384 and does well
DOMINATING, FEW_DIMENSIONS = 0.2, 8  # share of the squared length in one of at least so many dimensions
LENGTH, VARIED = 0.3, 0.25  # rank correlation; deviation of log lengths below which lengths hardly differ
RANDOM_PAIRS = 20_000
FEWEST = 20  # texts: what fewer have in common may be chance
NEGATION = 0.5  # a toss-up between negation and synonym; the whole 95 % interval must lie above it
FOREIGN = 0.2  # of the tokens of the English minimal pairs unknown: then they say nothing of this model


def finite(patient: Patient) -> Iterator[Finding]:
    """Some text has a vector that is not finite."""
    wrong = ~np.isfinite(patient.vectors).all(axis=1)
    if wrong.any():
        yield Finding(
            f"{int(wrong.sum())} of {len(wrong)} texts have vectors with infinite or undefined numbers, the first of "
            f"them {patient.texts[int(np.argmax(wrong))]!r:.60}.",
            "Get the weights again from where they came from; a training that diverged must be repeated with a lower "
            "learning rate.",
            figures={"texts": int(wrong.sum())},
        )


def anisotropy(patient: Patient) -> Iterator[Finding]:
    """The typical cosine of unrelated texts is above 0.5."""
    typical = average_cosine(patient.vectors)
    if len(patient.texts) >= FEWEST and typical > ANISOTROPIC:
        yield Finding(
            f"The vectors point one way: the typical cosine of two unrelated texts is {typical:.2f}.",
            f"{patient.command_with('centre')}; or keep the vectors and calibrate the similarity: --calibrate FILE",
            figures={"average_cosine": typical},
        )


def dead_dimensions(patient: Patient) -> Iterator[Finding]:
    """More than 2 % of the dimensions are the same for all texts."""
    deviation = patient.vectors.std(axis=0)
    dead = deviation <= DEAD * np.median(deviation)
    if len(patient.texts) >= FEWEST and float(dead.mean()) > DEAD_SHARE:
        yield Finding(
            f"{int(dead.sum())} of {len(dead)} dimensions are the same for all texts: they say nothing.",
            f"{patient.command_with(f'whiten:{len(dead) - int(dead.sum())}')}; look whether the weights are whole",
            figures={"dead": int(dead.sum()), "dimensions": len(dead)},
        )


def dominating_dimensions(patient: Patient) -> Iterator[Finding]:
    """One dimension makes up more than 20 % of the vectors' squared length."""
    shares = (patient.units**2).mean(axis=0)
    wide = len(shares) >= FEW_DIMENSIONS and len(patient.texts) >= FEWEST
    if wide and float(shares.max()) > DOMINATING:
        yield Finding(
            f"Dimension {int(shares.argmax())} of {len(shares)} makes up {100 * shares.max():.0f} % of the vectors' "
            "squared length: a cosine is mostly a comparison of this one number.",
            patient.command_with("zscore"),
            figures={"dimension": int(shares.argmax()), "share": float(shares.max())},
        )


def length_bias(patient: Patient) -> Iterator[Finding]:
    """Texts of one length look alike: the cosine of random pairs follows their lengths by a correlation above 0.3."""
    from scipy.stats import spearmanr

    lengths = np.log(np.maximum([len(ids) for ids in patient.ids], 1))
    if len(lengths) < FEWEST or float(lengths.std()) < VARIED:
        return
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, len(lengths), (2, RANDOM_PAIRS))
    first, second = first[first != second], second[first != second]
    cosines = np.einsum("nd,nd->n", patient.units[first], patient.units[second])
    found = float(spearmanr(cosines, -np.abs(lengths[first] - lengths[second])).statistic)
    if found > LENGTH:
        yield Finding(
            "Texts of one length look alike, whatever they say: the cosine of random pairs follows the closeness of "
            f"their lengths (rank correlation {found:.2f}).",
            f"{patient.command_with('abtt:2')}; or compare texts of like length (essent encode --chunk)",
            figures={"correlation": found},
        )


def negation(patient: Patient) -> Iterator[Finding]:
    """It ranks the negation of a sentence above the same sentence with a synonym in more than half of the cases."""
    task = patient.minimal_pairs
    if patient.unknown is not None:
        flat = [one for ids in patient.ids_of(list(task.originals)) for one in ids]
        if flat.count(patient.unknown) > FOREIGN * len(flat):
            return
    result = task.run(lambda texts: patient.encoder.encode(texts, show_progress_bar=False))
    found = next((c for c in comparisons(result) if (c.above, c.below) == ("a negation", "a synonym")), None)
    if found is not None and found.low > NEGATION:
        yield Finding(
            f"Blind to negation: {found.sentence()}",
            patient.command(
                "essent train -m MODEL with negations as hard negatives (essent lab minimal-pairs build makes them of "
                "your sentences), or a cross-encoder that looks at the best pairs again"
            ),
            figures={"share": found.share, "low": found.low, "high": found.high},
        )
