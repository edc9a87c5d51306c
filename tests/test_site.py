"""The site is built as `make docs` builds it: no warning, every notebook runs, no link leads nowhere, all is local."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[1]
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("image", "href")}
NAVIGATED = {("a", "href")}
NO_REQUEST = {"canonical", "search", "next", "prev", "index", "genindex"}  # kinds of <link> that nothing is loaded for


class Page(HTMLParser):
    """What a page loads, where it links to, and the anchors in it that links can name."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        for name, value in attrs:
            if (tag, name) in NAVIGATED and value:
                self.links.append(value)
            if (tag, name) in LOADED and values.get("rel") not in NO_REQUEST and not f"{value}".startswith("data:"):
                self.loads.append(f"{value}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "--quiet", "docs", str(folder / "html")]
    done = subprocess.run(
        [*command, "-d", str(folder / "doctrees")], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return folder / "html"


def pages_of(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in sorted(site.rglob("*.html"))}


def broken(site: Path) -> list[str]:
    """Links and loaded files that are not there, anchors in pages included."""
    pages = pages_of(site)
    wrong = []
    for file, page in pages.items():
        for link in (*page.links, *page.loads):
            target, anchor = urldefrag(link)
            if "://" in target or target.startswith(("mailto:", "data:")):
                continue
            linked = (file.parent / unquote(target.partition("?")[0])).resolve() if target else file
            if not linked.is_file():
                wrong.append(f"{file.name}: {link}")
            elif anchor and linked in pages and unquote(anchor) not in pages[linked].anchors:
                wrong.append(f"{file.name}: {link}: no such anchor")
    return wrong


@pytest.mark.slow
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = pages_of(site)
    assert len(pages) > 80
    assert broken(site) == []
    assert [f"{file.name}: {link}" for file, page in pages.items() for link in page.loads if "//" in link] == []
    for file in site.rglob("*.css"):
        assert not re.search(r"url\(http|@import", file.read_text("utf-8")), file
