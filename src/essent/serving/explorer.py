"""The page for browsers: one file, put together of the package's own ones, with a policy that lets nothing else run."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

from essent.report.colours import page_colours

FILES = Path(__file__).parent / "page"
SCRIPTS = ("common.js", "sentences.js", "pairs.js", "start.js")


@dataclass(frozen=True)
class Page:
    """A page and the headers that it is sent with."""

    html: bytes
    headers: dict[str, str]


def explorer() -> Page:
    """The page; it fetches nothing but this server's own paths, and all that it shows of texts is plain text."""
    style = _read("explorer.css").replace("/* colours */", page_colours())
    script = "".join(map(_read, SCRIPTS))
    html = _read("explorer.html").replace("/* style */", style).replace("/* script */", script)
    policy = {
        "default-src": "'none'",
        "connect-src": "'self'",
        "style-src": _hash(style),
        "script-src": _hash(script),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    headers = {
        "content-security-policy": "; ".join(f"{name} {allowed}" for name, allowed in policy.items()),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
        "vary": "accept",
    }
    return Page(html.encode(), headers)


def _read(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What a policy calls the text of an element."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
