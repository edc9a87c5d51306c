"""Docstrings as autodoc wants them: essent writes them with Markdown's backticks and plain examples."""

from __future__ import annotations

import re
from typing import Any

CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)
SPECIAL = re.compile(r"([*|\\]|(?<=\w)_(?!\w))")


def rest(lines: list[str]) -> list[str]:
    """Code in double backticks, special characters escaped, an indented block after a blank line as an example."""
    out: list[str] = []
    prose: list[str] = []

    def flush() -> None:
        out.extend(escaped("\n".join(prose)).split("\n") if prose else [])
        prose.clear()

    example = doctest = False
    for number, line in enumerate(lines):
        doctest = (doctest and bool(line.strip())) or line.lstrip().startswith(">>> ")
        if doctest:  # docutils knows these as they are
            flush()
            out.append(line)
            continue
        indented = line.startswith("    ")
        if not example and indented and number and not lines[number - 1].strip() and not _in_section(lines, number):
            flush()
            out.extend(["::", ""])
            example = True
        elif example and line.strip() and not indented:
            example = False
        (out if example else prose).append(line)
    flush()
    return out


def _in_section(lines: list[str], number: int) -> bool:
    """Whether the last line without indentation opens a section such as `Args:`, or is a directive."""
    before = [line for line in lines[:number] if line.strip() and not line.startswith(" ")]
    return bool(before) and re.match(r"(Args|Returns|Raises|Yields|Attributes):$|\.\. ", before[-1]) is not None


def escaped(text: str) -> str:
    """Prose as reStructuredText."""
    pieces = CODE.split(text)
    for place in range(0, len(pieces), 2):
        pieces[place] = SPECIAL.sub(r"\\\1", pieces[place])
    for place in range(1, len(pieces), 2):
        code = pieces[place].strip("`").replace("\n", " ")
        before, after = pieces[place - 1][-1:], pieces[place + 1][:1]
        glued = "\\ " if after.isalnum() or (after and after in "_({") else ""
        pieces[place] = ("\\ " if before.isalnum() else "") + f"``{code.strip()}``" + glued
    return "".join(pieces)


def on_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """autodoc's event, before napoleon reads the sections."""
    lines[:] = rest(lines)


def setup(app: Any) -> dict[str, bool]:
    """Listen, before napoleon does."""
    app.connect("autodoc-process-docstring", on_docstring, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
