"""Sentences in short frames that say what they are about, so that a masked language model learns to answer prompts.

`The text " Two dogs run on a beach " is about beach .` asks at the end for what the sentence before it is about, as a
prompt does. There are no labels and no pairs: the fillings are rare words of the sentence itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from essent.errors import InputError

FRAMES = (  # none is a template of PromptBERT, so that those remain a test
    'The text " {text} " is about {first} .',
    '" {text} " is about {first} and {second} .',
    '" {text} " : {first} , {second} .',
    'This text : " {text} " says {first} .',
    'What " {text} " tells is {first} .',
)
SHORTEST, LONGEST = 4, 22  # words of a sentence that leaves room for its frame
LEAST = 4  # texts that a filling occurs in; rarer ones are names and misspellings
RAREST = 3  # words of a sentence that can be fillings
LETTERS = re.compile(r"[^\W\d_]{3,}")


def in_frames(texts: Sequence[str], share: float, seed: int = 0) -> list[str]:
    """Texts of which a random `share` is put into one of `FRAMES`, with one or two of its three rarest words.

    A text stays unchanged if it has under 4 or over 22 words, or under two words that occur in four texts or more.

    Raises:
        InputError: not one of the texts can be framed.
    """
    counts = Counter(word for text in texts for word in {word.lower() for word in LETTERS.findall(text)})
    generator = np.random.default_rng([seed, 2])
    drawn = generator.random(len(texts)) < share
    found, framed = list(texts), False
    for place in np.flatnonzero(drawn).tolist():
        fillings = _fillings(texts[place], counts)
        if len(fillings) > 1:
            first, second = (fillings[number] for number in generator.permutation(len(fillings))[:2])
            frame = FRAMES[generator.integers(len(FRAMES))]
            found[place] = frame.format(text=texts[place].rstrip(" ."), first=first, second=second)
            framed = True
    if not framed:
        raise InputError(
            f"frames={share}: no text has {SHORTEST} to {LONGEST} words and two words that {LEAST} texts have. Give "
            "more texts, one sentence each, or frames=0."
        )
    return found


def _fillings(text: str, counts: Counter[str]) -> list[str]:
    """The rarest words of a text that are not too rare, spelled as in the text."""
    if not SHORTEST <= len(text.split()) <= LONGEST:
        return []
    written = {word.lower(): word for word in LETTERS.findall(text)}
    known = sorted((word for word in written if counts[word] >= LEAST), key=lambda word: (counts[word], word))
    return [written[word] for word in known[:RAREST]]
