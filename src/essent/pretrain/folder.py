"""The folder of a masked-language-model run: what may be there, what a resumed run must equal, the finished model."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from essent.atomic import remove_leftovers, replacing_folder, require_replaceable, write_text
from essent.folders import is_read
from essent.train import WRITE_ERRORS, check_checkpoint, last_checkpoint, left_over
from essent.types import DataError, TrainingError

ABOUT, CHECKPOINTS, STARTED = "training.json", "checkpoints", "run.json"
KEPT = ("start", "settings", "texts", "sequences")  # what a resumed run has in common with the one before


class RunFolder:
    """An output folder; `checkpoints` stand below it until the run is done.

    Args:
        resume: go on from the last whole checkpoint, `resumed`, if there is one.
        force: replace a model that is there, and drop the checkpoints of an unfinished run.

    Raises:
        DataError: it holds something that must not go.
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

    def settled(self, about: Mapping[str, Any]) -> int | None:
        """The number of steps of the run that is resumed; None for a new one.

        Raises:
            DataError: it was another run; says what differs.
        """
        if self.resumed is None:
            return None
        place = self.checkpoints / STARTED
        try:
            before = json.loads(place.read_text(encoding="utf-8"))
            steps = int(before.pop("steps"))
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{self.output} cannot be resumed: {place} cannot be read ({error}).") from error
        old, new = _flat(before), _flat(json.loads(json.dumps({key: about[key] for key in KEPT})))
        shown = [f"{key} was {old.get(key)!r} and is {new[key]!r}" for key in new if old.get(key) != new[key]]
        if shown:
            raise DataError(f"{self.output} cannot be resumed with other texts or settings: {', '.join(shown)}.")
        return steps

    def begin(self, about: Mapping[str, Any], steps: int) -> None:
        """Write down which run this is; a run that is not resumed drops the checkpoints of another.

        Of the processes that torchrun starts only the first does.
        """
        if os.environ.get("RANK", "0") != "0":
            return
        if self.resumed is None and self.checkpoints.is_dir():
            shutil.rmtree(self.checkpoints)
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        values = {**{key: about[key] for key in KEPT}, "steps": steps}
        write_text(self.checkpoints / STARTED, json.dumps(values, ensure_ascii=False, indent=2))

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
                text = json.dumps(_without_nan(about), ensure_ascii=False, indent=2)
                (whole / ABOUT).write_text(text, encoding="utf-8")
        except WRITE_ERRORS as error:
            raise TrainingError(
                f"The model is trained and cannot be written to {self.output}: {error}. {left_over(self.checkpoints)} "
                "Free some space and resume."
            ) from error


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"settings": {"seed": 0}} -> {"seed": 0}, with the part's name where two parts have one name."""
    flat: dict[str, Any] = {}
    for part, inside in values.items():
        for key, value in inside.items():
            flat[f"{part}.{key}" if key in flat or part in ("texts", "sequences") else key] = value
    return flat


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: null instead."""
    if isinstance(value, dict):
        return {key: _without_nan(inside) for key, inside in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(inside) for inside in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
