"""The folder of a masked-language-model run: what may be there, what a resumed run must equal, the finished model."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from essent._core.atomic import remove_leftovers, replacing_folder, require_replaceable, write_text
from essent._core.folders.names import is_read
from essent.errors import DataError, TrainingError
from essent.training.checkpoints import WRITE_ERRORS, check_checkpoint, check_same_run, last_checkpoint, left_over

ABOUT, CHECKPOINTS, STARTED = "training.json", "checkpoints", "run.json"


class RunFolder:
    """An output folder; `checkpoints` stand below it until the run is done.

    Args:
        resume: go on from the last whole checkpoint, `resumed`, if there is one.
        force: replace a model that is there, and drop the checkpoints of an unfinished run.

    Raises:
        DataError: it holds something that must not be replaced.
    """

    def __init__(self, output: Path, *, resume: bool, force: bool) -> None:
        self.output, self.checkpoints, self.resume = output, output / CHECKPOINTS, resume
        require_replaceable(output)
        remove_leftovers(output)
        found = last_checkpoint(self.checkpoints)
        if found is not None and not (resume or force):
            raise DataError(
                f"{output} holds an unfinished run, the last checkpoint is {found.name}. Resume it (resume=True, "
                "--resume), replace it (force=True, --force), or choose another folder."
            )
        if (output / "modules.json").exists():
            raise DataError(
                f"{output} holds a sentence-transformers model (modules.json), whose files would mix with this one's; "
                "choose another folder."
            )
        if found is None and not force and (output / "config.json").exists():
            finished = "holds a model already" + (", no unfinished run to resume" if resume else "")
            raise DataError(f"{output} {finished}. force=True (--force) replaces it.")
        self.resumed = found if resume else None
        if self.resumed is not None:
            check_checkpoint(self.resumed)

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write down which run this is, and drop the checkpoints of another; of a resumed run, compare.

        Of the processes that torchrun starts only the first one writes.

        Raises:
            DataError: the run that is resumed was another one; says what differs.
        """
        if self.resumed is not None:
            check_same_run(self.checkpoints / STARTED, about, self.output)
        elif os.environ.get("RANK", "0") == "0":
            if self.checkpoints.is_dir():
                shutil.rmtree(self.checkpoints)
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            write_text(self.checkpoints / STARTED, json.dumps(about, ensure_ascii=False, indent=2))

    def finish(self, model: Any, tokenizer: Any, about: Mapping[str, Any]) -> None:
        """Save model, tokenizer and `training.json`; in one step they appear, and an older model and checkpoints go.

        Files that libraries do not read as a part of a model stay.

        Raises:
            TrainingError: they cannot be written; the checkpoints stay.
        """
        others = [entry.name for entry in self.output.iterdir() if not is_read(entry.name)]
        carried = set(others) - {CHECKPOINTS, ABOUT}
        try:
            with replacing_folder(self.output, sorted(carried)) as whole:
                model.save_pretrained(whole)
                tokenizer.save_pretrained(whole)
                (whole / ABOUT).write_text(json.dumps(about, ensure_ascii=False, indent=2), encoding="utf-8")
        except WRITE_ERRORS as error:
            raise TrainingError(
                f"The model is trained and cannot be written to {self.output}: {error}. {left_over(self.checkpoints)} "
                "Free some space and resume."
            ) from error
