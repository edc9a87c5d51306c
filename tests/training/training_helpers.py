"""What the tests of contrastive training share."""

from typing import Any

from families import CORPUS

TEXTS = [*CORPUS[:8], *(f"{text} Again, {number}." for number, text in enumerate(CORPUS[:8]))]
TRIPLETS = list(zip(TEXTS, TEXTS[1:], TEXTS[2:], strict=False))
SMALL: dict[str, Any] = {"batch_size": 4, "learning_rate": 1e-3, "device": "cpu"}
