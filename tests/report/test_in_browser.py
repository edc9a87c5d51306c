"""The page in a real Chromium: no errors, tables that sort, a theme that turns, a phone's width. `pytest -m browser`.

A copy of the page gets a script at its end that uses it and writes what it saw into the document.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from report_helpers import HOSTILE, board, everything, heads_board, scored

from essent.report.write import write_report
from essent.tasks.result import Result

pytestmark = pytest.mark.browser
SCORES = [70.5, None, 9.25, -3.0, 88.0]
LONG = "a model with a name that is rather long for a phone/and-has-parts_that_do_not_break_anywhere"


def chromium(page: Path, *options: str, query: str = "") -> tuple[str, str]:
    """The document after its scripts have run, and what Chromium says on standard error."""
    program = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    assert program, "Chromium is not on the path; install it (apt-get install chromium) to run the tests marked browser"
    done = subprocess.run(
        [program, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
         "--hide-scrollbars", "--window-size=1280,900", "--virtual-time-budget=3000",
         f"--user-data-dir={page.parent / 'profile'}", *options, "--dump-dom", f"{page.as_uri()}{query}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout, done.stderr


def run_script(page: Path, script: str, *options: str, query: str = "", width: int | None = None) -> object:
    """What a script appended to the page returns; `width` shows it in a frame, as a window is at least 500 wide."""
    text = re.sub(r"<meta http-equiv[^>]*>", "", page.read_text("utf-8"))
    code = f"document.documentElement.dataset.output = JSON.stringify((() => {{{script}}})());"
    text = text.replace("</body>", f"<script>{code}</script></body>")
    if width is not None:
        tell = "document.documentElement.dataset.output = this.contentDocument.documentElement.dataset.output"
        text = f"""<!DOCTYPE html><html><body><iframe style="width:{width}px;height:900px;border:0" onload="{tell}"
            srcdoc="{html.escape(text)}"></iframe></body></html>"""
    copy = page.with_name("copy.html")
    copy.write_text(text, "utf-8")
    document, errors = chromium(copy, *options, query=query)
    assert "CONSOLE" not in errors, errors
    outputs = re.findall(r'^<html[^>]* data-output="([^"]*)"', document, flags=re.MULTILINE)
    assert len(outputs) == 1, document[:300]
    return json.loads(html.unescape(outputs[0]))


@pytest.fixture
def page(tmp_path: Path) -> Path:
    results: list[Result] = [scored(score, "cr", f"m{at}") for at, score in enumerate(SCORES)]
    write_report(results, tmp_path / "report.html")
    return tmp_path / "report.html"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    results, boards = everything()
    results += [scored(50.0, f"task {at} with a long name", LONG) for at in range(12)]
    write_report(results, tmp_path / "report.html", searches=[*boards, board(LONG)], title=f"{LONG} {HOSTILE}")
    return tmp_path / "report.html"


def test_no_errors_under_its_own_policy(whole: Path) -> None:
    document, errors = chromium(whole)
    assert "CONSOLE" not in errors, errors
    assert "Dark theme" in document, "its own script has run"
    assert document.count("<script") == 1


def test_a_foreign_script_does_not_run(whole: Path) -> None:
    """The check itself: what got into the page in spite of the escaping would be stopped, and would be seen."""
    bad = "<script>document.documentElement.dataset.hacked = 1</script></body>"
    whole.write_text(whole.read_text("utf-8").replace("</body>", bad), "utf-8")
    document, errors = chromium(whole)
    assert "data-hacked" not in document
    assert "CONSOLE" in errors
    assert "Content Security Policy" in errors


def test_tables_sort_by_mouse_and_keyboard(page: Path) -> None:
    script = """
      const table = document.querySelector("table.sortable");
      const names = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent).join(" ");
      const states = () => [...table.tHead.rows[0].cells].map((cell) => cell.getAttribute("aria-sort")).join(" ");
      const observed = [names(), states()];
      for (const column of [1, 1, 0, 0]) {
        const control = table.tHead.rows[0].cells[column].querySelector("button");
        control.focus();
        observed.push(document.activeElement === control);
        control.click();
        observed.push(names(), states());
      }
      return observed;
    """
    assert run_script(page, script) == [
        "m0 m1 m2 m3 m4", "none none",
        True, "m4 m0 m2 m3 m1", "none descending",
        True, "m3 m2 m0 m4 m1", "none ascending",
        True, "m0 m1 m2 m3 m4", "ascending none",
        True, "m4 m3 m2 m1 m0", "descending none",
    ]  # fmt: skip


@pytest.mark.parametrize(("query", "dark"), [("", False), ("?theme=dark", True), ("?theme=light", False)])
def test_the_theme_turns(page: Path, query: str, dark: bool) -> None:
    script = """
      const colour = () => getComputedStyle(document.body).backgroundColor;
      const button = document.getElementById("theme");
      const observed = [colour(), button.textContent];
      button.click();
      return [...observed, colour(), button.textContent];
    """
    light, night = ["rgb(255, 255, 255)", "Dark theme"], ["rgb(18, 22, 27)", "Light theme"]
    assert run_script(page, script, query=query) == ([*night, *light] if dark else [*light, *night])


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_does_not_scroll_sideways(whole: Path, width: int) -> None:
    script = """
      document.querySelectorAll("details").forEach((part) => { part.open = true; });
      const root = document.documentElement;
      const wide = [...document.querySelectorAll("main *")].filter((part) =>
        part.getBoundingClientRect().right > root.clientWidth + 1 && !part.closest(".scroll"));
      return [root.clientWidth, root.scrollWidth <= root.clientWidth, wide.map((part) => part.outerHTML.slice(0, 80))];
    """
    assert run_script(whole, script, width=width) == [width, True, []]


def test_the_verdict_fits_the_screen_and_numbers_their_cells(tmp_path: Path) -> None:
    results = [scored(70.0), scored(60.0, recipe="cls")]
    write_report(results, tmp_path / "report.html", searches=[heads_board("isotropy")])
    script = """
      const wide = [...document.querySelectorAll(".heat td")].filter(cell => cell.scrollWidth > cell.clientWidth);
      return [document.querySelector(".verdict").getBoundingClientRect().bottom < 500, wide.length];
    """
    for width in (390, 1280):
        assert run_script(tmp_path / "report.html", script, width=width) == [True, 0]
