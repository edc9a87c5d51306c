"""The lexical overlap of the two sentences of a pair.

Source: Chiang et al. 2023 (HEROS), Table 1 and Appendix B. ROUGE is that of the PyPI package `rouge` 1.0.1, which the
paper used: distinct words between spaces and full stops, with their capitals and commas. (If a space follows the last
full stop, the package also counts an empty word; this module does not.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain, pairwise, product

from essent.errors import DataError, InputError
from essent.lab.minimal_pairs.parsing import levenshtein

NAMES = ("rouge1", "rouge2", "rougeL", "levenshtein", "length")
Tokenize = Callable[[str], Sequence[Hashable]]


def words_and_marks(text: str) -> list[str]:
    """Split a text into lower-case words and punctuation marks, as BERT's tokenizer does before its word pieces."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


def lexical_overlap(pairs: Iterable[tuple[str, str]], tokenize: Tokenize = words_and_marks) -> dict[str, float]:
    """Compute the mean lexical overlap of P pairs of sentences (HEROS, Table 1).

    Args:
        pairs: original and changed sentence; empty sentences are allowed.
        tokenize: splits a sentence into tokens, for `levenshtein` and `length`. The paper used bert-base-uncased's
            ids; the default has no word pieces, so rare words and typos count as one token.

    Returns:
        `rouge1`, `rouge2`, `rougeL`: F1 × 100. `levenshtein`: edits of tokens, divided by the longer sentence's
        length, in [0, 1]. `length`: tokens per sentence, mean over both. `pairs`: P.

    Raises:
        DataError: there are no pairs.
        InputError: a pair is not two strings.

    Example:
        >>> from essent.lab.minimal_pairs import lexical_overlap
        >>> overlap = lexical_overlap([("He owns a car.", "He owns a boat.")])
        >>> {name: round(value, 1) for name, value in overlap.items()}
        {'rouge1': 75.0, 'rouge2': 66.7, 'rougeL': 75.0, 'levenshtein': 0.2, 'length': 5.0, 'pairs': 1.0}
    """
    rows: list[tuple[float, ...]] = []
    for number, pair in enumerate(pairs, start=1):
        if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise InputError(f"Pair {number} is {pair!r}: must be two strings.")
        first, second = map(tokenize, pair)
        edits = levenshtein(first, second) / max(len(first), len(second), 1)
        rows.append((*_rouge(*pair), edits, (len(first) + len(second)) / 2))
    if not rows:
        raise DataError("There are no pairs to compare. Pass at least one pair of sentences.")
    means = (sum(column) / len(rows) for column in zip(*rows, strict=True))
    return {**dict(zip(NAMES, means, strict=True)), "pairs": float(len(rows))}


def _rouge(first: str, second: str) -> list[float]:
    """Compute ROUGE-1, ROUGE-2 and summary-level ROUGE-L of two texts, F1 × 100; two empty sides score 100."""
    sentences = [[part.split() for part in text.split(".") if part.strip()] for text in (first, second)]
    words = [list(chain.from_iterable(parts)) for parts in sentences]
    unigrams, bigrams = [set(side) for side in words], [set(pairwise(side)) for side in words]
    common = {word for left, right in product(*sentences) for word in common_subsequence(left, right)}
    single, double = (sum(map(len, sides)) for sides in (unigrams, bigrams))
    shared = len(unigrams[0] & unigrams[1]), len(bigrams[0] & bigrams[1]), len(common)
    totals = zip(shared, (single, double, single), strict=True)
    return [200.0 * both / total if total else 100.0 for both, total in totals]


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Return a longest common subsequence; of several, the one that `rouge` returns if `first` is the reference."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, left in enumerate(first, start=1):
        for j, right in enumerate(second, start=1):
            table[i][j] = table[i - 1][j - 1] + 1 if left == right else max(table[i - 1][j], table[i][j - 1])
    common: list[str] = []
    i, j = len(first), len(second)
    while i and j:
        if first[i - 1] == second[j - 1]:
            common.append(first[i - 1])
            i, j = i - 1, j - 1
        elif table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return common[::-1]
