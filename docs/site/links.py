"""Links that leave docs/, to pages of the root, which the site has too, and to source files; levels of headings."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import Any

SOURCE = "https://github.com/essent/essent/blob/main/"
ROOT_PAGES = {"ARCHITECTURE.md": "architecture", "CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog"}
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")


def rewritten(text: str, place: PurePosixPath) -> str:
    """The text with the links of a page at this place, which is relative to the repository's root."""

    def target(match: re.Match[str]) -> str:
        path = PurePosixPath(os.path.normpath(place.parent / match[1]))
        if path.parts[0] == "docs":
            return match[0]
        anchor = match[2] or ""
        if name := ROOT_PAGES.get(str(path)):
            back = "../" * (len(place.parts) - 2)
            return f"]({back}_generated/project/{name}.md{anchor})"
        return f"]({SOURCE}{path}{anchor})"

    return LINK.sub(target, text)


def moved(text: str) -> str:
    """The text of a page of the root as it stands in docs/_generated/project/."""

    def target(match: re.Match[str]) -> str:
        path, anchor = match[1], match[2] or ""
        if name := ROOT_PAGES.get(path):
            return f"]({name}.md{anchor})"
        if path.startswith("docs/") and path.endswith(".md"):
            return f"](../../{path.removeprefix('docs/')}{anchor})"
        return f"]({SOURCE}{path}{anchor})"

    return LINK.sub(target, text)


def on_read(app: Any, name: str, source: list[str]) -> None:
    """Sphinx's event: before a page is read."""
    if not name.startswith("_generated/"):
        source[0] = rewritten(source[0], PurePosixPath(f"docs/{name}.md"))


def on_page(app: Any, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Sphinx's event: before a page is written. A heading needs a level, for those who hear the page."""
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app: Any) -> dict[str, bool]:
    """Listen, to pages after furo has made its navigation."""
    app.connect("source-read", on_read)
    app.connect("html-page-context", on_page, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
