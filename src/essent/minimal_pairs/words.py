"""A sentence as words with their places, and edits of it; nothing here knows grammar."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

CLITICS = ("n't", "'s", "'re", "'m", "'ve", "'ll", "'d")
WORD = re.compile(r"\[NAME\]|[^\W\d_]+(?:['’\-][^\W\d_]+)*['’]?|\d+(?:[.,:/\-]\d+)*[^\W_]*|\.{2,}|\S", re.UNICODE)
EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*]*[^\s*])\1(?![\w*])")  # *so*, **never**
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z])")
ABBREVIATION = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|vs|etc|e\.g|i\.e|No|[A-Z])\.)$")
VOWEL_SOUND = re.compile(r"(?:[aeio]|u(?!n[ai][^nmd]|s[eiu]|t[ei]|r[aeiou]|b[ei])|h(?:our|on[eo]|eir))", re.IGNORECASE)
CONSONANT_SOUND = re.compile(r"(?:eu|ewe|one\b|once\b|uni(?!n|m|d)|use|usu|uti)", re.IGNORECASE)


class Word(NamedTuple):
    """A word, clitic ("n't", "'s") or mark: as written, in lower case with straight apostrophes, and its place."""

    text: str
    lower: str
    start: int
    end: int


class Edit(NamedTuple):
    """Put `text` in the place of the characters from `start` to `end`."""

    start: int
    end: int
    text: str


def split_sentences(text: str) -> list[str]:
    """Sentences of a text: they end at . ! ? before a capital, not after an abbreviation; and at line ends.

    A text that is a quoted field of a CSV file is read as such, and stars for emphasis are taken away.
    """
    found: list[str] = []
    for line in EMPHASIS.sub(r"\2", _unquoted(text)).splitlines():
        held = ""
        for part in SENTENCE_END.split(line):
            held = f"{held} {part}" if held else part
            if not ABBREVIATION.search(held):
                found.append(held.strip())
                held = ""
        found.append(held.strip())
    return [sentence for sentence in found if sentence]


def _unquoted(text: str) -> str:
    """A CSV field as it was before it was written: "He said ""no""." gives He said "no"."""
    inside = text.strip()[1:-1]
    is_field = text.strip() == f'"{inside}"' and '""' in inside and '"' not in inside.replace('""', "")
    return inside.replace('""', '"') if is_field else text


def split_words(sentence: str) -> list[Word]:
    """Words in order; "don't" gives "do" and "n't", "cannot" gives "can" and "not", "it's" gives "it" and "'s"."""
    words: list[Word] = []
    for match in WORD.finditer(sentence):
        text, start = match[0], match.start()
        lower = text.lower().replace("’", "'")
        if len(lower) != len(text):  # a letter whose lower case is longer: no word of English
            lower = text
        cut = _cut(lower)
        for begin, end in ((0, cut), (cut, len(text))) if cut else ((0, len(text)),):
            words.append(Word(text[begin:end], lower[begin:end], start + begin, start + end))
    return words


def _cut(lower: str) -> int:
    """Where a word's clitic begins; 0 when it has none."""
    if lower == "cannot":
        return 3
    return next((len(lower) - len(end) for end in CLITICS if lower.endswith(end) and len(lower) > len(end)), 0)


def apply_edits(sentence: str, edits: Sequence[Edit]) -> str:
    """The sentence with all edits made; they may not overlap."""
    for edit in sorted(edits, key=lambda one: (one.start, one.end), reverse=True):
        sentence = sentence[: edit.start] + edit.text + sentence[edit.end :]
    return sentence


def count_words(sentence: str) -> int:
    """Words between blanks that have a letter or digit in them."""
    return sum(any(letter.isalnum() for letter in part) for part in sentence.split())


def like_case(word: str, model: str) -> str:
    """`word` in the capitals of `model`: all, the first one, or as it is."""
    if len(model) > 1 and model.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if model[:1].isupper() else word


def article(word: str) -> str:
    """ "a" or "an" by the sound that a word seems to begin with: an hour, a union, an uncle."""
    return "an" if VOWEL_SOUND.match(word) and not CONSONANT_SOUND.match(word) else "a"


def replace_word(sentence: str, words: Sequence[Word], index: int, new: str) -> str:
    """Another word in the place of one; capitals are kept and a/an before it mended."""
    old = words[index]
    return apply_edits(sentence, [Edit(old.start, old.end, like_case(new, old.text)), *mend_article(words, index, new)])


def mend_article(words: Sequence[Word], index: int, new: str) -> list[Edit]:
    """The edit of an article before word `index`, when `new` comes to stand there; empty where it fits."""
    if index == 0 or words[index - 1].lower not in ("a", "an"):
        return []
    before = words[index - 1]
    if article(words[index].lower) != before.lower and article(new) == article(words[index].lower):
        return []  # a spelling that the rule gets wrong: leave it to the writer
    wanted = article(new)
    return [] if wanted == before.lower else [Edit(before.start, before.end, like_case(wanted, before.text[:1]))]


def wrong_articles(sentence: str) -> Counter[tuple[str, str]]:
    """Every "a" or "an" before the wrong sound, with the word after it."""
    words = [word.lower for word in split_words(sentence)]
    both = [(first, second) for first, second in pairwise(words) if first in ("a", "an") and len(second) > 1]
    return Counter((first, second) for first, second in both if second.isalpha() and article(second) != first)
