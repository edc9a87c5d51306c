"""What a recipe learns, and from which texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from essent.cli import options as opt
from essent.cli.console import show_note
from essent.cli.texts import listed
from essent.errors import NotFittedError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from essent.static.encoder import StaticEncoder

Files: TypeAlias = "Sequence[Path] | None"
FilesAndTexts: TypeAlias = "tuple[Files, list[str] | None]"


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


def note_unused(encoder: Any, fit: Files, frequencies: Files) -> None:
    """Say which of the given files the encoder has no use for."""
    named = [f"{option} {listed(files)}" for option, files in (("--fit", fit), ("--frequencies", frequencies)) if files]
    recipe = getattr(encoder, "recipe", None) or "The model"
    if named and not learns(encoder):
        show_note(f"{recipe} learns nothing: {' and '.join(named)} {'are' if named[1:] else 'is'} not used.")
    elif frequencies and not encoder.module.plan.reads_stats:
        show_note(f"{recipe} counts no tokens: --frequencies {listed(frequencies)} is not used.")


def fit_on(encoder: Any, fit: FilesAndTexts, frequencies: FilesAndTexts, run: opt.Run) -> None:
    """Fit the encoder on the texts of --fit and --frequencies, and say which are not used.

    Raises:
        NotFittedError: the recipe learns from texts, and there is no --fit.
    """
    (fit_files, texts), (frequency_files, frequency_texts) = fit, frequencies
    if not run.quiet:
        note_unused(encoder, fit_files, frequency_files)
    if texts is not None and learns(encoder):
        encoder.fit(texts, frequency_texts=frequency_texts, show_progress_bar=run.progress)
    elif not is_ready(encoder):
        raise NotFittedError(f"The recipe {str(encoder.recipe)!r} learns from texts: give them with --fit FILE.")
    elif learns(encoder) and frequency_files:
        run.note(f"It is fitted already: --frequencies {listed(frequency_files)} is not used without --fit.")
