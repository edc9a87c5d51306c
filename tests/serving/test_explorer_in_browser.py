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
from playwright.sync_api import Browser, Error, Request, Route
from test_command import started

from servers import running
from waiting import LIMIT

pytestmark = pytest.mark.browser
HOSTILE = '<img src=x onerror="document.title=1"> <script>document.title=2</script> & "quoted"'
SCRIPTS = (
    HOSTILE,
    "</script><script>document.title = 3</script>",
    "</textarea></title><svg onload=document.title=4>",
    "<iframe srcdoc='<script>parent.document.title = 5</script>'>",
    '"><a href="javascript:document.title = 6" autofocus onfocus="document.title = 7">x</a>',
    "javascript:document.title=8",
    "{{constructor.constructor('document.title = 9')()}} ${document.title = 10}",
)


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
        self.url = url
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
    assert {request.url.split("/")[2] for request in opened.requests if not request.url.startswith("data:")} == {
        url.split("/")[2]
    }


def test_matrix_matches_the_server(tab: Tab, url: str) -> None:
    lines = ["A dog runs.", "Two dogs run.", "Coffee is cold."]
    tab.page.fill("#lines", "\n".join(["", *lines, "   "]))
    tab.press("Compare")
    table = tab.page.get_by_role("region", name="Similarity, tiny").get_by_role("table")
    rows = [row.get_by_role("cell").all_inner_texts() for row in table.get_by_role("row").all()[1:]]
    pairs = [[a, b] for a in lines for b in lines]
    scores = httpx.post(url + "/compare", json={"pairs": pairs}).json()["scores"]
    assert [float(cell.replace("−", "-")) for row in rows for cell in row] == pytest.approx(scores, abs=0.0051)
    assert [text.split(maxsplit=1)[1] for text in table.get_by_role("rowheader").all_inner_texts()] == lines
    shades = [int(re.search(r"h(\d+)", cell.get_attribute("class"))[1]) for cell in table.locator("td[class]").all()]
    assert [shades[0], shades[4], shades[8]] == [20, 20, 20]
    assert shades[1] == shades[3] < 20


def test_words_are_shaded_by_their_weights(tab: Tab, url: str) -> None:
    tab.page.select_option("#first", "static")
    tab.page.fill("#lines", "two dogs run")
    tab.press("Compare")
    tokens = httpx.post(url + "/explain", json={"text": "two dogs run", "model": "static"}).json()["tokens"]
    for by in ("impact", "weight"):
        tab.page.select_option("#shade", by)
        tab.settle()
        shaded = [text.split("\n") for text in tab.texts("#sentences .tokens li")]
        assert [word for word, _ in shaded] == ["two", "dogs", "run"]
        assert [float(number) for _, number in shaded] == pytest.approx([token[by] for token in tokens], abs=0.00051)


def test_small_changes_are_marked_and_measured(tab: Tab) -> None:
    tab.page.fill("#original", "the dog does bark")
    tab.page.fill("#changed", "the dog does bark\nthe dog does not bark\nthe cat does bark")
    tab.press("Measure")
    rows = tab.page.locator("#pairs tbody tr").all()
    assert rows[0].locator("td").nth(0).inner_text() == "1.000"
    assert "0 % of the way to an unrelated text" in rows[0].inner_text()
    assert [row.locator("mark").all_inner_texts() for row in rows] == [[], ["not"], ["cat"]]
    assert [row.locator("del").all_inner_texts() for row in rows] == [[], [], ["dog"]]
    lengths = [row.locator(".moved").bounding_box()["width"] for row in rows]
    assert lengths[0] < 1 < min(lengths[1:])


def test_two_models_side_by_side(tab: Tab) -> None:
    assert tab.texts("#sentences h3") == ["Similarity, tiny", "Words that count, tiny"]
    tab.page.select_option("#second", "static")
    tab.settle()
    for section, kinds in (("sentences", ("Similarity", "Words that count")), ("pairs", ("Moved",))):
        expected = [f"{kind}, {model}" for kind in kinds for model in ("tiny", "static")]
        assert tab.texts(f"#{section} h3") == expected
    assert len(tab.texts("#facts li")) == 2
    first, second = (tab.page.locator("#pairs figure").nth(column).bounding_box() for column in (0, 1))
    assert first["y"] == second["y"]


ELEMENTS = "[...document.querySelectorAll('*')].map((one) => [one.tagName, ...one.getAttributeNames()].join(' '))"


@pytest.mark.parametrize("without_policy", [False, True])
def test_texts_are_never_markup(browser: Browser, url: str, without_policy: bool) -> None:
    """In no view: without the page's policy too, which would stop what had become markup."""
    tab = Tab(browser, url, bypass_csp=without_policy).settle()
    tab.page.select_option("#second", "static")
    tab.settle()
    tab.page.fill("#lines", "\n".join(SCRIPTS))
    tab.page.fill("#original", HOSTILE)
    tab.page.fill("#changed", "\n".join(SCRIPTS))
    tab.press("Compare").press("Measure")
    for by in ("weight", "impact"):
        tab.page.select_option("#shade", by)
        tab.settle()
    assert [text.split(maxsplit=1)[1] for text in tab.texts("#sentences tbody th")] == [*SCRIPTS, *SCRIPTS]
    assert tab.texts("#sentences .tokens li")
    assert tab.page.locator("#pairs tbody th").count() == 2 * len(SCRIPTS)
    elements = tab.page.evaluate(ELEMENTS)
    assert {"IMG", "IFRAME"} & {words.split()[0] for words in elements} == set()
    assert [words for words in elements if " on" in words or "srcdoc" in words or "autofocus" in words] == []
    assert [words.split()[0] for words in elements].count("SCRIPT") == 1
    assert tab.page.title() == "essent: look into a model"
    assert tab.messages == []
    tab.context.close()


def test_nothing_foreign_runs(browser: Browser, url: str) -> None:
    """The check itself: what got into the page in spite of everything would be stopped, and would be seen."""
    tab = Tab(browser, "about:blank")

    def with_more(route: Route) -> None:
        answer = route.fetch()
        bad = '<script>document.title = 1</script><img src="https://example.org/x.png"></body>'
        route.fulfill(response=answer, body=answer.text().replace("</body>", bad))

    tab.page.route(url + "/", with_more)
    tab.page.goto(url + "/")
    tab.settle()
    assert tab.page.title() == "essent: look into a model"
    assert len([line for line in tab.messages if "Content Security Policy" in line]) == 2
    with pytest.raises(Error, match="TrustedHTML"):
        tab.page.evaluate("document.body.innerHTML = '<b>x</b>'")
    tab.context.close()


def test_everything_is_reached_by_the_tab_key(tab: Tab) -> None:
    tab.page.evaluate("document.activeElement.blur()")
    tab.page.mouse.click(2, 2)
    reached = []
    for _ in range(40):
        tab.page.keyboard.press("Tab")
        reached.append(
            tab.page.evaluate(
                "(({id, classList, textContent}) => id || classList[0] || textContent)(document.activeElement)"
            )
        )
    for control in (
        "theme",
        "first",
        "second",
        "lines",
        "Compare",
        "shade",
        "scroll",
        "original",
        "changed",
    ):
        assert control in reached, (control, reached)


def test_control_enter_sends(tab: Tab) -> None:
    tab.page.fill("#lines", "One.\nTwo.\nThree.\nFour.")
    tab.page.focus("#lines")
    tab.page.keyboard.press("Control+Enter")
    tab.until("document.querySelector('#sentences .status').textContent === '4 sentences.'")


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_does_not_scroll_sideways(browser: Browser, url: str, width: int) -> None:
    tab = Tab(browser, url, viewport={"width": width, "height": 800}).settle()
    tab.page.fill("#lines", "\n".join(f"A rather long sentence with number {number}." for number in range(12)))
    tab.page.select_option("#second", "static")
    tab.settle().press("Compare")
    tab.page.fill("#changed", "unbreakable" * 30)
    tab.press("Measure")
    wide = tab.page.evaluate("""() => {
      const root = document.documentElement;
      const parts = [...document.querySelectorAll("body *")].filter((part) =>
        part.getBoundingClientRect().right > root.clientWidth + 1 && !part.closest(".scroll"));
      return [root.scrollWidth <= root.clientWidth, parts.map((part) => part.outerHTML.slice(0, 80))];
    }""")
    assert wide == [True, []]
    tab.context.close()


def test_dark_and_light(browser: Browser, url: str) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    white, night = "rgb(255, 255, 255)", "rgb(18, 22, 27)"
    for scheme, colours, name in (("light", [white, night], "Dark theme"), ("dark", [night, white], "Light theme")):
        tab = Tab(browser, url, color_scheme=scheme).settle()
        before = [tab.page.evaluate(colour)]
        tab.press(name)
        assert [*before, tab.page.evaluate(colour)] == colours
        tab.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_serious(browser: Browser, url: str, scheme: str, width: int) -> None:
    tab = Tab(browser, url, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True).settle()
    tab.page.select_option("#second", "static")
    tab.settle()
    tab.page.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8"))
    report = tab.page.evaluate("axe.run()")
    assert len(report["passes"]) > 25
    assert [
        (violation["impact"], violation["id"], violation["nodes"][0]["html"]) for violation in report["violations"]
    ] == []
    tab.context.close()


def test_key_is_stored_in_the_tab_only(browser: Browser, static: object) -> None:
    with running([static], ("right-key",)) as server:
        tab = Tab(browser, server.url)
        tab.until("!document.getElementById('access').hidden")
        assert tab.page.get_attribute("#key", "type") == "password"
        for key in ("wrong-key", "right-key"):
            assert tab.page.locator("#access").is_visible()
            tab.page.fill("#key", key)
            with tab.page.expect_response("**/v1/models") as answered:
                tab.page.get_by_role("button", name="Use it").click()
            assert answered.value.request.headers["authorization"] == f"Bearer {key}"
            if key == "wrong-key":
                tab.until("document.getElementById('problem').textContent === 'The server does not know this key.'")
        tab.until("document.getElementById('access').hidden")
        assert tab.texts("#problem") == [""]
        tab.until("document.querySelectorAll('#sentences table, #pairs table').length === 2")
        assert tab.page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        tab.page.reload()
        tab.until("document.querySelectorAll('#pairs table').length === 1")
        tab.context.close()
        second_tab = Tab(browser, server.url)
        second_tab.until("!document.getElementById('access').hidden")
        second_tab.context.close()


def test_errors_are_displayed(tab: Tab) -> None:
    tab.page.fill("#lines", "word " * 400 + "\nA dog runs.")
    tab.press("Compare")
    assert "reads at most 256" in tab.texts("#sentences > .status")[0]
    tab.page.fill("#lines", "A dog runs.")
    tab.press("Compare")
    assert tab.texts("#sentences > .status") == ["1 sentence."]
    tab.messages.clear()  # Chromium's own line about the answer 400
