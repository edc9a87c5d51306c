"""Whether a saved folder is what was saved: its files by their digests, its vectors by the golden vectors in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from essent.encoder import Encoder
from essent.folders import (
    STATE_FOLDER,
    check_digests,
    check_folder,
    damage_named,
    has_digests,
    opening,
    read_arrays,
)
from essent.portable import folder_of
from essent.saved import ABOUT, ARRAYS, is_essent_folder, read_about
from essent.types import EssentError, ModelError, VerificationError

TOLERANCE = 1e-5


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes:
        differences: the largest difference to the golden vectors, by each way of loading the folder.
        files: how many files have the digests that they were saved with; None where the folder lists no digests.
    """

    recipe: str
    portable: bool
    reason: str
    differences: dict[str, float]
    files: int | None = None

    @property
    def passed(self) -> bool:
        return all(difference <= TOLERANCE for difference in self.differences.values())


def verify(name: str, *, untrusted: bool = False) -> Verification:
    """Compare a saved folder with what was saved: its files with their digests, its vectors with the golden vectors.

    Args:
        name: a folder, or a name on the hub.
        untrusted: look at the files alone, and load nothing.

    Raises:
        ModelError: not an essent folder.
        VerificationError: a file is missing, damaged, changed, or asks for more than to be read; a way of loading
            differs by more than 1e-5; or there is nothing to compare with.
    """
    if not is_essent_folder(name, {}):
        raise ModelError(f"{name!r} is not a folder that essent saved: it has no {STATE_FOLDER}/encoder.json.")
    root = folder_of(name, {})
    try:
        with damage_named(name):
            check_folder(root)
            files = check_digests(root, whole=True) if has_digests(root) else None
            about, arrays = read_about(root / STATE_FOLDER / ABOUT), read_arrays(root / STATE_FOLDER / ARRAYS)
            texts, golden = about["golden_texts"], arrays["golden"]
            ways = {} if untrusted or not texts else _ways(name, root, about["portable"])
    except EssentError as error:
        raise VerificationError(f"{name!r} is not what was saved: {error}") from error
    if untrusted and files is None:
        raise VerificationError(
            f"{name!r} lists no digests, as essent {about.get('essent')} saved none: without loading it there is "
            "nothing to compare. Save it again with this version."
        )
    if not texts and files is None:
        raise VerificationError(f"{name!r} has no golden vectors ({about['reason']}); save it with Encoder.save.")
    try:
        differences = {
            way: _difference(model.encode(texts, show_progress_bar=False), golden) for way, model in ways.items()
        }
    except Exception as error:
        raise VerificationError(f"{name!r} is loaded, but cannot encode its golden texts: {error!r}") from error
    report = Verification(about["text"], about["portable"], about["reason"], differences, files)
    if not report.passed:
        shown = ", ".join(f"{way}: {difference:.1e}" for way, difference in differences.items())
        raise VerificationError(
            f"{name!r} does not give its golden vectors back (largest difference {shown}; allowed {TOLERANCE:.0e}). "
            "The weights, the tokenizer or a library have changed since it was saved."
        )
    return report


def _ways(name: str, root: Path, portable: bool) -> dict[str, SentenceTransformer]:
    """The folder as essent loads it and, where it is portable, as plain sentence-transformers does."""
    ways: dict[str, SentenceTransformer] = {"essent": Encoder(name)}
    if portable:
        with opening(str(root), {}):
            ways["sentence-transformers"] = SentenceTransformer(str(root))
    return ways


def _difference(vectors: np.ndarray, golden: np.ndarray) -> float:
    """Largest difference of an entry, relative to the length of the longest golden vector where that is above 1."""
    if vectors.shape != golden.shape or not np.isfinite(vectors).all():
        return float("inf")
    scale = max(float(np.linalg.norm(golden, axis=1).max(initial=0.0)), 1.0)
    return float(np.abs(vectors - golden).max(initial=0.0)) / scale
