"""`essent search --ask N`: pairs to annotate in a file or on the terminal, and the annotated pairs to search on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from essent.cli.console import show_note
from essent.cli.files import check_output
from essent.errors import InputError

if TYPE_CHECKING:
    from essent.selection.annotation import AnnotatedPairs, Annotation, ScoredPair

FILE = Path("ask.csv")  # where the answers of the terminal are kept
SUFFIXES = (".csv", ".jsonl")
SCALE = (0.0, 5.0)
HOW = (
    "How alike in meaning are the two texts? 0 (unrelated) to 5 (the same meaning); s skips a pair, q stops. Every "
    "answer is kept in {file} at once."
)


def on_terminal() -> bool:
    """Whether somebody can answer."""
    return sys.stdin.isatty()


def annotated_pairs(
    ask_file: Path | None, texts: list[str], choose: Callable[[], Annotation], note: Callable[[str], None]
) -> AnnotatedPairs | None:
    """Annotated pairs of the texts, from a file or from whoever sits at the terminal.

    Args:
        ask_file: None asks on the terminal, and keeps the answers in FILE.
        choose: gives the pairs to annotate; called where there is no file yet.
        note: is called with what is to be done with a file that has been written.

    Returns:
        None where a file has been written that is to be filled in first.

    Raises:
        DataError: a file of another kind, a score that is not a number, or none at all.
    """
    from essent.selection.annotation import read_annotated, read_pairs

    file, answers = ask_file or FILE, ask_file is None and on_terminal()
    check_output(file, True, SUFFIXES)
    if not file.exists():
        annotation = choose()
        annotation.write(file)
        if not answers:
            note(
                f"{len(annotation.pairs)} pairs to judge are in {file}. Fill in the column score, for example from 0 "
                "(unrelated) to 5 (the same meaning), and run the same command again; pairs may be left without a "
                "score."
            )
            return None
    if answers:
        _ask_all(read_pairs(file), file)
    return read_annotated(file, texts)


def _ask_all(pairs: list[ScoredPair], file: Path) -> None:
    """Ask for the scores that are missing, and write the file after each answer."""
    from essent.selection.annotation import write_pairs

    missing = [index for index, (_, _, score) in enumerate(pairs) if score is None]
    if missing:
        show_note(HOW.format(file=file))
    for number, index in enumerate(missing, start=1):
        first, second, _ = pairs[index]
        print(f"\n{number} of {len(missing)}\n  {first}\n  {second}", file=sys.stderr)  # noqa: T201
        answer = _answer()
        if answer == "q":
            return
        if answer != "s":
            pairs[index] = (first, second, float(answer))
            write_pairs(file, pairs)


def _answer() -> str:
    """A number on the scale, "s" or "q"; the end of the input is "q"."""
    while True:
        print("score: ", end="", file=sys.stderr, flush=True)  # noqa: T201
        line = sys.stdin.readline()
        answer = line.strip().lower().replace(",", ".") if line else "q"
        try:
            known = answer in ("s", "q") or SCALE[0] <= float(answer) <= SCALE[1]
        except ValueError:
            known = False
        if known:
            return answer
        show_note(f"{answer!r} is not a number from 0 to 5, nor s or q.")


def check_ask(ask: int | None, file: Path | None, texts: list[Path] | None) -> None:
    """Refuse options that do not go together, before anything is read."""
    if file is not None and ask is None:
        raise InputError("--ask-file belongs to --ask N.")
    if ask is not None and texts is None:
        raise InputError("--ask chooses pairs of unlabelled texts to judge; give these with --texts.")
