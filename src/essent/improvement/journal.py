"""What is finished: DIR/.work has a plan, and a folder for each step with what came of it.

A step's result is written when it is whole. The same command finds it there and goes on behind it. What was spent
on a step that was interrupted is not counted, only what it takes when it is done again.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from essent._core import clock
from essent._core.atomic import remove_leftovers, write_bytes, write_json
from essent.errors import DataError
from essent.tasks.result import plain
from essent.version import __version__

WORK, PLAN, RESULT, FOUND = ".work", "plan.json", "result.json", "evidence.npz"
FORMAT = 2
Evidence = Mapping[str, np.ndarray]


class Journal:
    """The folder DIR/.work of one improvement.

    Args:
        output: DIR.
        identity: model, data and settings, plain values; another run with the same one goes on here.

    Raises:
        DataError: DIR holds something else, or was begun with another model, data or settings: says which.
    """

    def __init__(self, output: Path, identity: Mapping[str, Any]) -> None:
        self.output, self.folder = output, output / WORK
        self.identity = json.loads(json.dumps({"format": FORMAT, "essent": __version__, **identity}))
        self.carried, self.began = 0.0, clock.elapsed()

    @property
    def spent(self) -> float:
        """Seconds of the budget that are gone: those of this process, and of the steps that others finished."""
        return self.carried + clock.elapsed() - self.began

    # -- the plan ---------------------------------------------------------------------------------------------------

    def check(self, force: bool = False) -> None:
        """Refuse a folder of something else; with `force` an earlier improvement is removed, and only that."""
        if self.output.exists() and not self.output.is_dir():
            raise DataError(f"{self.output} is a file; an improvement writes a folder. Choose another name.")
        begun = (self.folder / PLAN).is_file()
        if force and begun:
            shutil.rmtree(self.folder)
            begun = False
        elif begun:
            self._check_same(json.loads((self.folder / PLAN).read_text("utf-8"))["identity"])
        others = self.output.is_dir() and any(entry.name != WORK for entry in self.output.iterdir())
        if others and not begun and not force:
            raise DataError(f"The folder {self.output} exists and holds something else. Choose another folder.")

    def _check_same(self, before: Mapping[str, Any]) -> None:
        changed = [name for name in self.identity if before.get(name) != self.identity[name]]
        if changed:
            shown = "; ".join(f"{name} was {before.get(name)!r} and is {self.identity[name]!r}" for name in changed)
            raise DataError(
                f"{self.output} was begun with something else: {shown}. Give the same again to go on, another folder, "
                "or --force (force=True) to begin anew."
            )

    def plan(self, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """The plan that was made at the beginning; made now where there is none."""
        path = self.folder / PLAN
        if path.is_file():
            done = [path, *self.folder.glob(f"*/{RESULT}")]
            self.carried = sum(float(json.loads(one.read_text("utf-8"))["seconds"]) for one in done)
            return dict(json.loads(path.read_text("utf-8"))["plan"])
        began = clock.elapsed()
        made = dict(plain(make()))
        seconds = round(clock.elapsed() - began, 2)
        write_json(path, {"identity": self.identity, "seconds": seconds, "plan": made}, indent=1)
        return made

    # -- steps ------------------------------------------------------------------------------------------------------

    def step(self, name: str, run: Callable[[Path], tuple[Mapping[str, Any], Mapping[str, Evidence]]]) -> Step:
        """A step's result: what is on the disk, or what `run` gives, which is then written.

        Args:
            run: gets the step's folder, and gives plain values, and the evidence of encoders by their names.
        """
        folder = self.folder / name
        if not (folder / RESULT).is_file():
            began = clock.elapsed()
            folder.mkdir(parents=True, exist_ok=True)
            result, evidence = run(folder)
            arrays = {f"{who}/{key}": array for who, found in evidence.items() for key, array in found.items()}
            if arrays:
                file = io.BytesIO()
                np.savez(file, **arrays)  # type: ignore[arg-type]
                write_bytes(folder / FOUND, file.getvalue())
            seconds = round(clock.elapsed() - began, 2)
            write_json(folder / RESULT, plain({"seconds": seconds, **result}), indent=1)
        return Step(name, folder)

    def decision(self, name: str, decide: Callable[[], Any]) -> Any:
        """What was decided by the clock before a step began; decided once."""
        path = self.folder / name / "decision.json"
        if not path.is_file():
            write_json(path, plain(decide()), indent=1)
        return json.loads(path.read_text("utf-8"))

    def clean(self) -> None:
        """Remove models and vectors of the steps; plan and results stay."""
        for path in self.folder.glob("*/*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name not in (RESULT, FOUND, "decision.json"):
                path.unlink()

    def tidy(self) -> None:
        """Remove what a killed run was writing."""
        for path in (self.folder / PLAN, *self.folder.glob(f"**/{RESULT}"), *self.folder.glob(f"**/{FOUND}")):
            remove_leftovers(path)


class Step:
    """A finished step.

    Attributes:
        result: plain values.
        evidence: what every encoder of the step gave, by its name.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.result: dict[str, Any] = json.loads((folder / RESULT).read_text("utf-8"))
        self.evidence: dict[str, dict[str, np.ndarray]] = {}
        if (folder / FOUND).is_file():
            with np.load(folder / FOUND, allow_pickle=False) as arrays:
                for key in arrays.files:
                    who, _, part = key.rpartition("/")
                    self.evidence.setdefault(who, {})[part] = arrays[key]
