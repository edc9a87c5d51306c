"""What similarities are calibrated on: texts, and judged pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from essent.cli import options as opt
from essent.cli.texts import read_files, read_judged
from essent.types import InputError

if TYPE_CHECKING:
    from essent.encoder import Encoder


@dataclass(frozen=True)
class Calibrating:
    """What similarities are to mean: `@with_options(Calibrating, into="calibrating")`.

    Attributes:
        calibrate: texts like those that will be compared; the saved model then says of a cosine how many random pairs
            of them are less similar.
        judged_pairs: duplicates or scored pairs; the saved model then says of a cosine how probable a match is.
        match_score: the score from which on a scored pair counts as a match.
        data_folder: folder of the named tasks: DIR/sts/NAME.jsonl or SentEval's layout. Default: the hub.
    """

    calibrate: opt.Files = None
    judged_pairs: opt.Tasks = None
    match_score: Annotated[float | None, typer.Option(metavar="NUMBER")] = None
    data_folder: Annotated[Path | None, typer.Option(metavar="DIR")] = None

    def read(self, column: str) -> Callable[[Encoder, opt.Run, int], None]:
        """Read the files, before a model is loaded; gives what calibrates it then.

        Raises:
            InputError: options that do not go together.
            DataError: files that cannot be read.
        """
        if self.calibrate is None:
            if self.judged_pairs is not None or self.match_score is not None:
                raise InputError("--judged-pairs and --match-score belong to --calibrate FILES, texts to compare with.")
            return lambda encoder, run, batch_size: None
        texts = read_files(self.calibrate, column)
        pairs = None if self.judged_pairs is None else read_judged(self.judged_pairs, self.data_folder, False)

        def calibrate(encoder: Encoder, run: opt.Run, batch_size: int) -> None:
            encoder.calibrate(
                texts, pairs, match_score=self.match_score, batch_size=batch_size, show_progress_bar=run.progress
            )
            run.note(f"A calibrated similarity is the {encoder.calibration}.")

        return calibrate
