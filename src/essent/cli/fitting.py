"""What a recipe learns, and from which texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent.cli import options as opt
from essent.cli.console import show_note
from essent.cli.texts import listed
from essent.types import NotFittedError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from essent.static import StaticEncoder


def is_ready(encoder: SentenceTransformer) -> bool:
    """Whether the encoder can encode already: its recipe learns nothing, or has learned it."""
    from essent.encoder import Encoder

    if not isinstance(encoder, Encoder):
        return True  # an exported graph has learned what it needs
    try:
        encoder.module.require_fit()
    except NotFittedError:
        return False
    return True


def learns(encoder: SentenceTransformer | StaticEncoder) -> bool:
    """Whether the recipe learns anything at all."""
    from essent.static import StaticEncoder

    if isinstance(encoder, StaticEncoder):
        return False
    from essent.encoder import Encoder

    return isinstance(encoder, Encoder) and (encoder.module.plan.reads_stats or encoder.module.chain.needs_fit)


def note_unused(encoder: Any, fit: Sequence[Path] | None, frequencies: Sequence[Path] | None) -> None:
    """Say which of the given files the encoder has no use for."""
    options = (("--fit", fit), ("--frequencies", frequencies))
    given = [f"{option} {listed(files)}" for option, files in options if files]
    who = getattr(encoder, "recipe", None) or "The model"
    if given and not learns(encoder):
        show_note(f"{who} learns nothing: {' and '.join(given)} {'are' if given[1:] else 'is'} not used.")
    elif frequencies and not encoder.module.plan.reads_stats:
        show_note(f"{who} counts no tokens: --frequencies {listed(frequencies)} is not used.")


def fit_on(
    encoder: Any,
    learning: opt.Learning,
    texts: tuple[list[str] | None, list[str] | None],
    run: opt.Run,
    batch_size: int = 32,
) -> None:
    """Let the encoder learn from the texts of --fit and --frequencies, and say which are not used.

    Raises:
        NotFittedError: it has not learned what it needs, and there is no --fit.
    """
    if not run.quiet:
        note_unused(encoder, learning.fit, learning.frequencies)
    if texts[0] is not None and learns(encoder):
        encoder.fit(texts[0], frequency_texts=texts[1], batch_size=batch_size, show_progress_bar=run.progress)
    elif not is_ready(encoder):
        raise NotFittedError(f"The recipe {str(encoder.recipe)!r} learns from texts: give them with --fit FILE.")
    elif learns(encoder) and learning.frequencies is not None:
        run.note(f"It is fitted already: --frequencies {listed(learning.frequencies)} is not used without --fit.")
