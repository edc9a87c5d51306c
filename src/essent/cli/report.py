"""`--report FILE` of `evaluate` and `search`: results and leaderboards as a page or a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from essent.cli.console import show_note
from essent.cli.files import check_output

if TYPE_CHECKING:
    from essent.selection.leaderboard import Leaderboard
    from essent.tasks.result import Result

SUFFIXES = (".html", ".md", ".png")


def check_report(path: Path | None, force: bool) -> None:
    """Refuse a report that cannot be written, before anything is computed.

    Raises:
        DataError: another suffix, or a file that exists (unless `force`).
        MissingDependencyError: without Jinja (.html) or matplotlib (.png).
    """
    if path is not None:
        from essent.report.write import check_library

        check_output(path, force, SUFFIXES)
        check_library(path.suffix)


def read_reports(files: Sequence[Path]) -> tuple[list[Result], list[Leaderboard]]:
    """Results and leaderboards out of files that --json wrote.

    Raises:
        DataError: a file that cannot be read, or is neither.
    """
    results: list[Result] = []
    boards: list[Leaderboard] = []
    if files:
        from essent.report.read import read_results
    for file in dict.fromkeys(files):
        content = read_results(file)
        if isinstance(content, list):
            results.extend(content)
        else:
            boards.append(content)
    return results, boards


def write_page(results: Iterable[Result], boards: Iterable[Leaderboard], path: Path) -> None:
    """Write the report, and say so."""
    from essent.report.write import write_report

    write_report(list(results), path, searches=list(boards))
    show_note(f"Wrote {path}.")
