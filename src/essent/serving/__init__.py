"""An embeddings server: OpenAI's and TEI's paths over HTTP, a queue, and an engine in a process that is watched.

The HTTP process needs no torch. The door imports a name when it is first used, so that nothing of HTTP is loaded in the
engine's process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door

if TYPE_CHECKING:
    from essent.serving.run import serve
    from essent.serving.settings import Settings

_WHERE = {
    "Settings": "essent.serving.settings",
    "serve": "essent.serving.run",
}

__all__ = [
    "Settings",
    "serve",
]

__getattr__, __dir__ = lazy_door(__name__, _WHERE)
