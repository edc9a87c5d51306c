"""The page at `/`: its policy, and that it alone needs no key."""

from __future__ import annotations

import base64
import hashlib
import re

import httpx

from essent.serving.prepared import Prepared
from essent.serving.routes import explorer_page
from servers import running


def test_the_page_is_sent_with_its_policy(client: httpx.Client) -> None:
    answer = client.get("/", headers={"accept": "text/html,*/*;q=0.8"})
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["connect-src"], policy["frame-ancestors"]) == ("'none'", "'self'", "'none'")
    for tag in ("script", "style"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, flags=re.DOTALL)
        assert policy[f"{tag}-src"] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert not re.findall(r"(?:src|href|action)=\"(?!data:,|#)", answer.text)
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3\.org/2000/svg)", answer.text
    )
    assert client.get("/").content == b""
    assert client.post("/", headers={"accept": "text/html"}, json={"inputs": "a dog"}).json()[0]


def test_the_page_needs_no_key_and_everything_else_does(static: Prepared) -> None:
    browser = {"accept": "text/html"}
    with running([static], ("secret",)) as server:
        assert httpx.get(server.url, headers=browser).content == explorer_page()[0]
        for method, path in (("GET", "/recipe"), ("POST", "/compare"), ("POST", "/"), ("PUT", "/")):
            assert httpx.request(method, server.url + path, json={}).status_code == 401, path
    with running([static], no_page=True) as server:
        assert httpx.get(server.url, headers=browser).content == b""
