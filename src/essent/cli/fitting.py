"""What a recipe learns, and from which texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent.cli.console import show_note, wants_progress
from essent.cli.texts import listed
from essent.errors import NotFittedError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from essent.static.encoder import StaticEncoder


def is_ready(encoder: SentenceTransformer) -> bool:
    """Whether the encoder can encode already: its recipe learns nothing, or has learned it."""
    from essent.encoder.encoder import Encoder

    if not isinstance(encoder, Encoder):
        return True  # an exported graph has learned what it needs
    try:
        encoder.module.require_fit()
    except NotFittedError:
        return False
    return True


def learns(encoder: SentenceTransformer | StaticEncoder) -> bool:
    """Whether the recipe learns anything at all."""
    from essent.static.encoder import StaticEncoder

    if isinstance(encoder, StaticEncoder):
        return False
    from essent.encoder.encoder import Encoder

    return isinstance(encoder, Encoder) and (encoder.module.plan.reads_stats or encoder.module.chain.needs_fit)


def note_unused(encoder: Any, fit: Sequence[Path] | None) -> None:
    """Say that the encoder has no use for the texts of --fit."""
    if fit and not learns(encoder):
        recipe = getattr(encoder, "recipe", None) or "The model"
        show_note(f"{recipe} learns nothing: --fit {listed(fit)} is not used.")


def fit_on(encoder: Any, fit: Sequence[Path] | None, texts: list[str] | None) -> None:
    """Fit the encoder on the texts of --fit, and say where they are not used.

    Raises:
        NotFittedError: the recipe learns from texts, and there is no --fit.
    """
    note_unused(encoder, fit)
    if texts is not None and learns(encoder):
        encoder.fit(texts, show_progress_bar=wants_progress())
    elif not is_ready(encoder):
        raise NotFittedError(f"The recipe {str(encoder.recipe)!r} learns from texts: give them with --fit FILE.")
