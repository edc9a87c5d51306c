"""Scored pairs for tests of the search: repeated texts, an empty one, texts that several pairs join.

No two texts have the same words in another order: pairs of such would tie exactly, and rounding would rank them.
"""

import numpy as np

from essent.data import Pair
from essent.tasks import PairTask
from families import CORPUS

WORDS = sorted({word.strip(".,") for text in CORPUS for word in text.split()})
_draw = np.random.default_rng(7)
PAIRS = tuple(
    Pair(
        " ".join(_draw.choice(WORDS, 3 + n % 6, replace=False)),
        " ".join(_draw.choice(WORDS, 2 + n % 5, replace=False)),
        n % 7 + n / 50,
    )
    for n in range(60)
)
TASK = PairTask("tiny", (*PAIRS, PAIRS[3], Pair("", WORDS[0], 0.0), Pair(PAIRS[0].sentence1, PAIRS[9].sentence2, 1.5)))
