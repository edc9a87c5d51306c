"""The page in a real Chromium: no errors, tables that sort, a theme that turns, a phone's width (`-m browser`)."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from report_helpers import HOSTILE, board, everything, heads_board, scored

from essent.report.write import write_report

pytestmark = pytest.mark.browser
LONG = "a model with a name that is rather long for a phone/and-has-parts_that_do_not_break_anywhere"


def opened(browser: Browser, path: Path, query: str = "", width: int = 1280, bypass_csp: bool = True) -> Page:
    """The page in a new tab; its policy forbids to evaluate texts in it, unless it is bypassed."""
    page = browser.new_page(viewport={"width": width, "height": 900}, bypass_csp=bypass_csp)
    page.messages = []
    page.on("console", lambda message: page.messages.append(message.text))
    page.on("pageerror", lambda error: page.messages.append(str(error)))
    page.goto(f"{path.as_uri()}{query}")
    return page


@pytest.fixture
def page(tmp_path: Path) -> Path:
    scores = [70.5, None, 9.25, -3.0, 88.0]
    write_report([scored(score, "cr", f"m{at}") for at, score in enumerate(scores)], tmp_path / "report.html")
    return tmp_path / "report.html"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    results, boards = everything()
    results += [scored(50.0, f"task {at} with a long name", LONG) for at in range(12)]
    write_report(results, tmp_path / "report.html", searches=[*boards, board(LONG)], title=f"{LONG} {HOSTILE}")
    return tmp_path / "report.html"


def test_only_its_own_script_runs_and_without_errors(browser: Browser, whole: Path) -> None:
    page = opened(browser, whole, bypass_csp=False)
    assert page.messages == []
    assert page.get_by_role("button", name="Dark theme").count() == 1, "its own script has run"
    assert page.locator("script").count() == 1
    # the check itself: what got into the page in spite of the escaping would be stopped, and would be seen
    bad = "<script>document.documentElement.dataset.hacked = 1</script></body>"
    whole.write_text(whole.read_text("utf-8").replace("</body>", bad), "utf-8")
    page = opened(browser, whole, bypass_csp=False)
    assert page.locator("[data-hacked]").count() == 0
    assert "Content Security Policy" in " ".join(page.messages)


def test_tables_sort_by_mouse_and_keyboard(browser: Browser, page: Path) -> None:
    script = """() => {
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
    }"""
    assert opened(browser, page).evaluate(script) == [
        "m0 m1 m2 m3 m4", "none none",
        True, "m4 m0 m2 m3 m1", "none descending",
        True, "m3 m2 m0 m4 m1", "none ascending",
        True, "m0 m1 m2 m3 m4", "ascending none",
        True, "m4 m3 m2 m1 m0", "descending none",
    ]  # fmt: skip


@pytest.mark.parametrize(("query", "dark"), [("", False), ("?theme=dark", True)])
def test_the_theme_turns(browser: Browser, page: Path, query: str, dark: bool) -> None:
    script = """() => {
      const colour = () => getComputedStyle(document.body).backgroundColor;
      const button = document.getElementById("theme");
      const observed = [colour(), button.textContent];
      button.click();
      return [...observed, colour(), button.textContent];
    }"""
    light, night = ["rgb(255, 255, 255)", "Dark theme"], ["rgb(18, 22, 27)", "Light theme"]
    assert opened(browser, page, query).evaluate(script) == ([*night, *light] if dark else [*light, *night])


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_the_window(browser: Browser, whole: Path, tmp_path: Path, width: int) -> None:
    """It does not scroll sideways, the verdict is on the first screen, and numbers fit into their cells."""
    script = """() => {
      document.querySelectorAll("details").forEach((part) => { part.open = true; });
      const root = document.documentElement;
      const wide = [...document.querySelectorAll("main *")].filter((part) =>
        part.getBoundingClientRect().right > root.clientWidth + 1 && !part.closest(".scroll"));
      return [root.clientWidth, root.scrollWidth <= root.clientWidth, wide.map((part) => part.outerHTML.slice(0, 80))];
    }"""
    assert opened(browser, whole, width=width).evaluate(script) == [width, True, []]
    results = [scored(70.0), scored(60.0, recipe="cls")]
    write_report(results, tmp_path / "heads.html", searches=[heads_board()])
    script = """() => {
      const wide = [...document.querySelectorAll(".heat td")].filter(cell => cell.scrollWidth > cell.clientWidth);
      return [document.querySelector(".verdict").getBoundingClientRect().bottom < 500, wide.length];
    }"""
    assert opened(browser, tmp_path / "heads.html", width=width).evaluate(script) == [True, 0]
