"""Processes in which modules are hidden, as if they were not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from command_line import environment


def environment_without(names: Sequence[str], folder: Path) -> dict[str, str]:
    """The variables of a process that, as those that it starts, cannot import packages with these names."""
    startup = folder / "startup"
    startup.mkdir(exist_ok=True)
    (startup / "sitecustomize.py").write_text(
        f"""
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {tuple(names)!r} else super().find_spec(name, path, target)

sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]
""",
        "utf-8",
    )
    return environment(PYTHONPATH=os.pathsep.join([str(startup), *filter(None, sys.path)]))


def run_without(names: Sequence[str], folder: Path, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without packages with these names."""
    return subprocess.run(
        command,
        cwd=folder,
        env=environment_without(names, folder),
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
