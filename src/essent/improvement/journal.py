"""The journal of an improvement: its plan, decisions and finished steps, so that a resumed run repeats them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from essent._core import machine
from essent._core.atomic import remove_leftovers, write_json
from essent.errors import DataError
from essent.tasks.result import plain

WORK, FORMAT = ".work", 5


class Journal:
    """DIR/.work/journal.json: plan, decisions and the values of finished steps, each with its seconds.

    Args:
        output: DIR.
        identity: model, data and settings as plain values; a run with the same values resumes here.

    Raises:
        DataError: DIR contains other files, or an improvement with another model, data or settings; names them.
    """

    def __init__(self, output: Path, identity: Mapping[str, Any], force: bool) -> None:
        self.output, self.folder, self.path = output, output / WORK, output / WORK / "journal.json"
        self.entries: dict[str, Any] = {"identity": json.loads(json.dumps({"format": FORMAT, **identity}))}
        if output.exists() and not output.is_dir():
            raise DataError(f"{output} is a file, but improve writes a folder. Choose another name.")
        if force and self.path.is_file():
            shutil.rmtree(self.folder)
        elif self.path.is_file():
            self._resume()
        elif not force and output.is_dir() and any(entry.name != WORK for entry in output.iterdir()):
            raise DataError(f"The folder {output} contains other files. Choose another folder.")
        self._earlier = sum(entry["seconds"] for name, entry in self.entries.items() if name != "identity")
        self._began = machine.elapsed()

    def _resume(self) -> None:
        for path in (self.path, *self.folder.glob("*.npz")):
            remove_leftovers(path)
        entries = json.loads(self.path.read_text("utf-8"))
        before, current = entries["identity"], self.entries["identity"]
        if changed := [name for name in current if before.get(name) != current[name]]:
            differences = "; ".join(f"{name} was {before.get(name)!r} and is {current[name]!r}" for name in changed)
            raise DataError(
                f"Cannot resume in {self.output}: {differences}. Use the earlier settings to resume, another folder, "
                "or --force (force=True) to start over."
            )
        self.entries = entries

    @property
    def spent(self) -> float:
        """Seconds of the budget spent in this process and in finished steps of earlier ones."""
        return float(self._earlier + machine.elapsed() - self._began)

    def once(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return the entry of a name, computed and written only if missing: a resumed run keeps all decisions."""
        if name not in self.entries:
            began = machine.elapsed()
            values = compute()
            self.entries[name] = plain({**values, "seconds": round(machine.elapsed() - began, 2)})
            write_json(self.path, self.entries, indent=1)
        return dict(self.entries[name])
