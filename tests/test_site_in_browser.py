"""Every page of the site in a real Chromium: a silent console, nothing asked elsewhere, nothing serious for axe.

`make docs`, then `pytest -m browser tests/test_site_in_browser.py`.
"""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.enable_socket]
SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"
SIZES = {"wide": (1280, 900), "phone": (390, 844)}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Requests are not news."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    assert (SITE / "index.html").is_file(), "run `make docs` first"
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def names() -> list[str]:
    return sorted(file.relative_to(SITE).as_posix() for file in SITE.rglob("*.html"))


@pytest.mark.parametrize(("scheme", "size"), [("light", "wide"), ("dark", "wide"), ("light", "phone")])
def test_every_page_is_sound(browser: Browser, address: str, scheme: str, size: str) -> None:
    width, height = SIZES[size]
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
    page, messages, requests = context.new_page(), [], []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    axe = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
    wrong = []
    for name in names():
        page.goto(f"{address}/{name}")
        page.evaluate(axe)
        violations = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
        serious = [violation for violation in violations if violation["impact"] in ("serious", "critical")]
        wrong.extend((name, violation["id"], violation["nodes"][0]["html"][:150]) for violation in serious)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        wrong.extend([(name, "wider than the window by", str(wide))] if wide > 1 else [])
    context.close()
    assert wrong == []
    assert messages == []
    assert {url for url in requests if not url.startswith((address, "data:"))} == set()


def test_search_finds_without_a_network(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(f"{address}/search.html?q=whiten")
    page.wait_for_selector('#search-results li a[href$="recipes.html"]', timeout=30_000)  # one by one they appear
    page.close()
