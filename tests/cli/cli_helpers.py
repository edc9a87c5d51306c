"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import Result

TEXTS = ["A man is playing a large flute.", "", "How far is the moon from the earth?", "Two dogs run. [MASK] [red]"]
Run = Callable[..., Result]
