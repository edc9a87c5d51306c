"""The page at `/` in a real Chromium, on `essent serve` as users start it: `pytest -m browser`.

Playwright drives the Chromium that is installed; axe looks for what screen readers and others would stumble over.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import axe_playwright_python
import httpx
import pytest
from playwright.sync_api import Browser, Request

from servers import running, started
from waiting import LIMIT

pytestmark = pytest.mark.browser
TITLE = "essent: look into a model"
SCRIPTS = (
    '<img src=x onerror="document.title=1"> <script>document.title=2</script> & "quoted"',
    "</script><script>document.title = 3</script>",
    "</textarea></title><svg onload=document.title=4>",
    "<iframe srcdoc='<script>parent.document.title = 5</script>'>",
    '"><a href="javascript:document.title = 6" autofocus onfocus="document.title = 7">x</a>',
    "{{constructor.constructor('document.title = 9')()}} ${document.title = 10}",
)
ELEMENTS = "[...document.querySelectorAll('*')].map((one) => [one.tagName, ...one.getAttributeNames()].join(' '))"
TOO_WIDE = """() => [...document.querySelectorAll("body, body *")].filter((part) =>
  part.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !part.closest(".scroll"))
  .map((part) => part.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def url(graph_folder: Path, static_folder: Path) -> Iterator[str]:
    """Two models."""
    with started(f"tiny={graph_folder}", str(static_folder), "--port", "0") as (_, _, address):
        yield address


class Tab:
    """A page, its messages and its requests; nothing is evaluated in it as text, as its policy forbids that."""

    def __init__(self, browser: Browser, url: str, **options: object) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page = self.context.new_page()
        self.messages: list[str] = []
        self.requests: list[Request] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request))
        self.page.goto(url)

    def until(self, script: str) -> None:
        end = time.monotonic() + LIMIT
        while not self.page.evaluate(script):
            assert time.monotonic() < end, (script, self.messages)
            self.page.wait_for_timeout(20)

    def settle(self) -> Tab:
        """Wait until every section has its answer."""
        self.until(
            "[...document.querySelectorAll('.status')].every((one) => one.textContent && !/Comp/.test(one.textContent))"
        )
        return self

    def select(self, name: str, option: str) -> Tab:
        self.page.select_option(name, option)
        return self.settle()

    def press(self, button: str) -> Tab:
        self.page.get_by_role("button", name=button, exact=True).click()
        return self.settle()

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()


@pytest.fixture
def tab(browser: Browser, url: str) -> Iterator[Tab]:
    opened = Tab(browser, url).settle()
    yield opened
    opened.context.close()
    assert opened.messages == []
    assert all(request.url.startswith((url, "data:")) for request in opened.requests)


def test_matrix_matches_the_server(tab: Tab, url: str) -> None:
    lines = ["A dog runs.", "Two dogs run.", "Coffee is cold."]
    tab.page.fill("#lines", "\n".join(["", *lines, "   "]))
    tab.page.focus("#lines")
    tab.page.keyboard.press("Control+Enter")
    tab.until("document.querySelector('#sentences .status').textContent === '3 sentences.'")
    table = tab.page.get_by_role("region", name="Similarity, tiny").get_by_role("table")
    rows = [row.get_by_role("cell").all_inner_texts() for row in table.get_by_role("row").all()[1:]]
    scores = httpx.post(url + "/compare", json={"pairs": [[a, b] for a in lines for b in lines]}).json()["scores"]
    assert [float(cell.replace("−", "-")) for row in rows for cell in row] == pytest.approx(scores, abs=0.0051)
    shades = [int(re.search(r"h(\d+)", cell.get_attribute("class"))[1]) for cell in table.locator("td[class]").all()]
    assert [shades[0], shades[4], shades[8]] == [20, 20, 20]
    assert shades[1] == shades[3] < 20
    tab.page.fill("#lines", "word " * 400 + "\nA dog runs.")
    tab.press("Compare")
    assert "reads at most 256" in tab.texts("#sentences > .status")[0]
    tab.messages.clear()  # Chromium's own line about the answer 400


def test_words_are_shaded_and_changes_are_marked(tab: Tab, url: str) -> None:
    tab.select("#first", "static")
    tab.page.fill("#lines", "two dogs run")
    tab.press("Compare")
    tokens = httpx.post(url + "/explain", json={"text": "two dogs run", "model": "static"}).json()["tokens"]
    for by in ("impact", "weight"):
        shaded = [text.split("\n") for text in tab.select("#shade", by).texts("#sentences .tokens li")]
        assert [word for word, _ in shaded] == ["two", "dogs", "run"]
        assert [float(number) for _, number in shaded] == pytest.approx([token[by] for token in tokens], abs=0.00051)
    tab.page.fill("#original", "the dog does bark")
    tab.page.fill("#changed", "the dog does bark\nthe dog does not bark\nthe cat does bark")
    rows = tab.press("Measure").page.locator("#pairs tbody tr").all()
    assert "0 % of the way to an unrelated text" in rows[0].inner_text()
    assert [row.locator("mark").all_inner_texts() for row in rows] == [[], ["not"], ["cat"]]
    lengths = [row.locator(".moved").bounding_box()["width"] for row in rows]
    assert lengths[0] < 1 < min(lengths[1:])
    tab.select("#second", "tiny")
    assert tab.texts("#pairs h3") == ["Moved, static", "Moved, tiny"]
    first, second = (tab.page.locator("#pairs figure").nth(column).bounding_box() for column in (0, 1))
    assert first["y"] == second["y"]


@pytest.mark.parametrize("without_policy", [False, True])
def test_texts_are_never_markup(browser: Browser, url: str, without_policy: bool) -> None:
    """In no view: without the page's policy too, which would stop what had become markup."""
    tab = Tab(browser, url, bypass_csp=without_policy).settle().select("#second", "static")
    tab.page.fill("#lines", "\n".join(SCRIPTS))
    tab.page.fill("#original", SCRIPTS[0])
    tab.page.fill("#changed", "\n".join(SCRIPTS))
    tab.press("Compare").press("Measure").select("#shade", "weight").select("#shade", "impact")
    assert [text.split(maxsplit=1)[1] for text in tab.texts("#sentences tbody th")] == [*SCRIPTS, *SCRIPTS]
    assert tab.page.locator("#pairs tbody th").count() == 2 * len(SCRIPTS)
    elements = tab.page.evaluate(ELEMENTS)
    assert {"IMG", "IFRAME"} & {words.split()[0] for words in elements} == set()
    assert [words for words in elements if " on" in words or "srcdoc" in words or "autofocus" in words] == []
    assert [words.split()[0] for words in elements].count("SCRIPT") == 1
    assert (tab.page.title(), tab.messages) == (TITLE, [])
    tab.context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_axe_finds_nothing_and_nothing_is_too_wide(browser: Browser, url: str, scheme: str, width: int) -> None:
    tab = Tab(browser, url, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True).settle()
    tab.page.fill("#lines", "\n".join(f"A rather long sentence with number {number}." for number in range(12)))
    tab.page.fill("#changed", "unbreakable" * 30)
    tab.select("#second", "static").press("Compare").press("Measure")
    assert tab.page.evaluate(TOO_WIDE) == []
    tab.page.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8"))
    for name in ("Dark theme", "Light theme") if scheme == "light" else ("Light theme", "Dark theme"):
        report = tab.page.evaluate("axe.run()")
        assert len(report["passes"]) > 25
        assert [(violation["id"], violation["nodes"][0]["html"]) for violation in report["violations"]] == []
        tab.press(name)
    tab.context.close()


def test_key_is_stored_in_the_tab_only(browser: Browser, static: object) -> None:
    with running([static], ("right-key",)) as server:
        tab = Tab(browser, server.url)
        tab.until("!document.getElementById('access').hidden")
        assert tab.page.get_attribute("#key", "type") == "password"
        for key in ("wrong-key", "right-key"):
            tab.page.fill("#key", key)
            with tab.page.expect_response("**/v1/models") as answered:
                tab.page.get_by_role("button", name="Use it").click()
            assert answered.value.request.headers["authorization"] == f"Bearer {key}"
            if key == "wrong-key":
                tab.until("document.getElementById('problem').textContent === 'The server does not know this key.'")
        tab.until("document.getElementById('access').hidden")
        tab.page.reload()
        tab.until("document.querySelectorAll('#sentences table, #pairs table').length === 2")
        assert tab.page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        tab.context.close()
