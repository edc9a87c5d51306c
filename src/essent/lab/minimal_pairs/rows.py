"""Minimal pairs, once built: rows, the lexical overlap of the two sentences of a pair, and checks.

Source: Chiang et al. 2023 (HEROS), Table 1 and Appendix B. ROUGE is that of the PyPI package `rouge` 1.0.1, which the
paper used: distinct words between spaces and full stops, with their capitals and commas. (If a space follows the last
full stop, the package also counts an empty word; this module does not.)
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, pairwise, product
from pathlib import Path

from essent._core.atomic import write_text
from essent.errors import DataError, InputError
from essent.lab.minimal_pairs.english import NEGATORS, statement, ungrammatical
from essent.lab.minimal_pairs.parsing import Doc, Parser, UnsuitableError, attempt, is_near, is_word, levenshtein
from essent.tasks.examples import SUBSETS, MinimalPair

HEROS = {"rouge1": 92.9, "rouge2": 84.8, "rougeL": 92.9, "levenshtein": 0.10, "length": 13.8}  # Table 1 of the paper
Tokenize = Callable[[str], Sequence[Hashable]]


# -- lexical overlap ---------------------------------------------------------------------------------------------------


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
    return {**dict(zip(HEROS, means, strict=True)), "pairs": float(len(rows))}


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
    """Return a longest common subsequence; if there are several, the one that the package `rouge` returns."""
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


# -- rows and their report ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairRow:
    """A minimal pair: a sentence and a changed copy of it.

    Attributes:
        original, converted: the two sentences.
        subset: one of the six subsets of HEROS.
        start, end: characters of the original that were changed (an insertion has start = end).
        rule: the kind of change, e.g. "letters swapped" or "do-support".
        word, replacement: the chosen word and its replacement; for a negation the verb or adjective, and "".
        source: origin of the new word, e.g. "WordNet synset verb 00227165".

    Example:
        >>> from essent.lab.minimal_pairs import Parser, Resources, build
        >>> texts = ["The shop on the corner sells old books about the sea."]
        >>> rows, quality = build(texts, Resources(Parser()), n=1)
        >>> row = rows[1]
        >>> row.subset, row.word, row.rule
        ('Negation (Main)', 'sells', 'do-support')
        >>> row.converted
        'The shop on the corner does not sell old books about the sea.'
    """

    original: str
    converted: str
    subset: str
    start: int
    end: int
    rule: str
    word: str
    replacement: str
    source: str


@dataclass(frozen=True)
class Quality:
    """The report of `build`: how many sentences were excluded and why, and the estimated quality of the pairs.

    Attributes:
        sentences: number of distinct sentences in the texts.
        seen: number of sentences examined.
        originals: number of sentences that minimal pairs were built from.
        fallen: number of excluded sentences per reason, the most frequent reason first.
        good: estimated share of good pairs for "synonym" and "antonym"; empty without a masked language model.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, Resources, build
        >>> texts = ["The shop on the corner sells old books about the sea. Is it open?"]
        >>> rows, quality = build(texts, Resources(Parser()))
        >>> quality.seen, quality.originals, quality.fallen
        (2, 1, {'fewer than 6 words': 1})
    """

    sentences: int
    seen: int
    originals: int
    fallen: Mapping[str, int]
    good: Mapping[str, float]


def write_rows(rows: Iterable[PairRow], path: str | Path) -> None:
    """Write minimal pairs as a .jsonl file, one JSON object per line.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, Resources, build, write_rows
        >>> from essent.tasks import load_heros
        >>> texts = ["The shop on the corner sells old books about the sea."]
        >>> rows, quality = build(texts, Resources(Parser()))
        >>> write_rows(rows, "my-pairs.jsonl")
        >>> len(load_heros("my-pairs.jsonl").pairs)
        3
    """
    write_text(path, "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))


def overlaps(rows: Sequence[PairRow], tokenize: Tokenize = words_and_marks) -> dict[str, dict[str, float]]:
    """Return the lexical overlap of all pairs, of each subset, and of the paper's HEROS (Table 1).

    The values are those of `lexical_overlap`.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, Resources, build, overlaps
        >>> texts = ["The shop on the corner sells old books about the sea."]
        >>> rows, quality = build(texts, Resources(Parser()))
        >>> {subset: round(values["rouge1"], 1) for subset, values in overlaps(rows).items()}
        {'all': 84.5, 'Typo': 90.0, 'Negation (Main)': 81.8, 'Negation (Antonym)': 81.8, "the paper's HEROS": 92.9}
    """
    groups = {"all": rows, **{subset: [row for row in rows if row.subset == subset] for subset in SUBSETS}}
    measured = {
        name: lexical_overlap([(row.original, row.converted) for row in members], tokenize)
        for name, members in groups.items()
        if members
    }
    return {**measured, "the paper's HEROS": HEROS}


# -- checks of finished pairs -----------------------------------------------------------------------------------------

REPLACED = ("Synonym", "Antonym", "Random MLM")
ARTICLES = {"a", "an"}
FULL = {"'ve": "have"}  # must've becomes must not have
MARKS = '.,!;:()"“”'


@dataclass(frozen=True)
class Finding:
    """A faulty pair: its number from 1, and the problem, with the same text for all problems of a kind.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, check_rows
        >>> from essent.tasks import MinimalPair
        >>> pair = MinimalPair("He runs an old shop.", "He runs a big store.", "Synonym")
        >>> (finding,) = check_rows([pair], Parser())
        >>> f"pair {finding.number}: {finding.problem}"
        'pair 1: more than one word differs'
    """

    number: int
    pair: MinimalPair
    problem: str


def check_rows(
    pairs: Iterable[MinimalPair], parser: Parser, misspellings: Mapping[str, Sequence[str]] | None = None
) -> list[Finding]:
    """Return the problems of minimal pairs, at most one per pair, in the order of the pairs.

    A pair without a problem may still be wrong: the check parses both sentences, but it is not a grammar checker.

    Args:
        pairs: built pairs, or pairs read by `load_heros`.
        parser: parses both sentences of each pair.
        misspellings: misspellings of each word, which are accepted as typos.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, check_rows
        >>> from essent.tasks import load_heros
        >>> pairs = load_heros("minimal-pairs.jsonl").pairs
        >>> check_rows(pairs[:6], Parser())
        []
    """
    rows, findings = list(pairs), []
    texts = list(dict.fromkeys(text for pair in rows for text in (pair.original, pair.changed)))
    docs = dict(zip(texts, parser(texts), strict=True))
    for number, pair in enumerate(rows, start=1):
        before, after = docs[pair.original], docs[pair.changed]
        if pair.original == pair.changed:
            problem: str | None = "the two sentences are equal"
        elif pair.subset == "Typo":
            problem = _replacement_problem(pair, misspellings or {})
        else:
            problem = _replacement_problem(pair) if pair.subset in REPLACED else _negation_problem(before, after)
            if problem is None and not ungrammatical(before) and (error := ungrammatical(after)):
                problem = f"ungrammatical: {error}"
        if problem is not None:
            findings.append(Finding(number, pair, problem))
    return findings


def _replacement_problem(pair: MinimalPair, misspellings: Mapping[str, Sequence[str]] | None = None) -> str | None:
    """Check that one word, articles aside, is replaced; with `misspellings`, that its replacement is a typo."""
    before, after = pair.original.split(), pair.changed.split()
    if len(before) != len(after):
        return "more than one word differs"
    changes = [
        tuple(word.strip(MARKS).lower() for word in pair)
        for pair in zip(before, after, strict=True)
        if pair[0] != pair[1]
    ]
    changes = [change for change in changes if {*change} != ARTICLES]
    if len(changes) != 1:
        return "more than one word differs" if changes else "only an article differs"
    ((old, new),) = changes
    if old == new:
        return "only marks or capitals differ"
    is_typo = misspellings is None or new in misspellings.get(old, ()) or (is_near(new, old) and not is_word(new))
    return None if is_typo else "the typo is another word"


def _negation_problem(before: Doc, after: Doc) -> str | None:
    """Check that two statements differ in one negation only, apart from do-support and the form of one verb."""
    old, new = (Counter(FULL.get(token.lower_, token.lemma_.lower()) for token in doc) for doc in (before, after))
    counts = [sum(token.lower_ in NEGATORS for token in doc) for doc in (before, after)]
    if abs(counts[0] - counts[1]) != 1:
        return "no negation is added or removed" if counts[0] == counts[1] else "more than one negation differs"
    if {*(old - new), *(new - old)} - {*NEGATORS, "do", *ARTICLES}:
        return "more than the negation differs"
    outcomes = (attempt(statement, doc) for doc in (before, after))
    return next((f"not a statement: {error}" for error in outcomes if isinstance(error, UnsuitableError)), None)
