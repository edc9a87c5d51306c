"""Build minimal pairs from any sentences: one word per sentence, six changes of it (Chiang et al. 2023, section 2)."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from essent._core.arguments import TextsLike, check_size
from essent._core.atomic import write_text
from essent._core.display import text_progress
from essent.errors import DataError
from essent.lab.minimal_pairs.english import negate, part_of_speech, replace_word, statement, ungrammatical
from essent.lab.minimal_pairs.parsing import (
    Doc,
    Parser,
    UnsuitableError,
    attempt,
    is_word,
    like_case,
    make_typo,
    misspellings,
    word_lists,
)
from essent.lab.minimal_pairs.resources import RELATIONS, MaskedModel, WordNet
from essent.lab.minimal_pairs.words import Choice, both, choose, negatable
from essent.tasks.examples import MinimalPair

# -- the sentences ----------------------------------------------------------------------------------------------------

SHORTEST, LONGEST = 6, 25  # words
NAME, NAMES = "[NAME]", ("Jackie", "Robin", "Casey")  # Appendix A.1; the paper uses sentences with one name only
QUOTES = '"“”'
PLAIN = re.compile(rf"[\w ,.…!'’;&%$()/:+\-{QUOTES}]+")
FACES = r"(?<=[\s.!])(?:[:;=]-?[)D(/]|<3)"
EDGES = re.compile(rf"^[*>~_\s]+|(?:[^{QUOTES}\w.!?,:;)\]]|{FACES}|(?<=[.!])[.!])+$")  # emphasis, emoji, dots
BEGINNING = re.compile(r"[\"“]?[^\W\d_]")
END = re.compile(r"(?:\w|\([^()]+\))(?:[.!]?[\"”]?|[\"”][.!])$")
PAUSE = re.compile(r"(?<=\w)(?:\.{2,}|…)(?=[\s\w])")
REPEATED = re.compile(r"[.!,;'’\-]{2,}|\s{2,}|\s[.,!;]|\.\w{2,}")
WORD = re.compile(r"(?<!['’])\b\w+\b(?!\.\w)")  # excludes the letters of i.e. and the i of hawai'i
CAPITALS = re.compile(r"\b[A-Z]{4,}\b")


@cache
def _swear_words() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(sorted(word_lists()['curse']))})\b", re.IGNORECASE)


@cache
def _contractions() -> dict[str, str]:
    """Return contractions by their letters: dont -> don't."""
    return {contraction.replace("'", "").lower(): contraction for contraction in word_lists()["contraction"]}


def filter_sentences(
    sentences: Sequence[str],
    parser: Parser,
    misspelled: Container[str] = frozenset(),
    lexicon: Container[str] = frozenset(),
) -> list[Choice | UnsuitableError]:
    """Return for each sentence its main verb and negation, with names in place of [NAME], or why it is excluded.

    Args:
        misspelled: misspelled words, which exclude a sentence.
        lexicon: lower-case words that are accepted in addition to LemmInflect's.
    """
    texts = [attempt(looks_suitable, sentence) for sentence in sentences]
    docs = iter(parser([text for text in texts if isinstance(text, str)]))
    mains = [attempt(_main_verb, next(docs), misspelled, lexicon) if isinstance(text, str) else text for text in texts]
    negated = iter(parser([main.negation for main in mains if isinstance(main, Choice)]))
    return [attempt(_with_same_verb, main, next(negated)) if isinstance(main, Choice) else main for main in mains]


def _main_verb(doc: Doc, misspelled: Container[str], lexicon: Container[str]) -> Choice:
    """Return the main verb of a parse; raise UnsuitableError unless it is a grammatical statement of known words."""
    for token in doc:
        lower = token.lower_
        if lower in misspelled:
            raise UnsuitableError("a misspelled word")
        plain = token.text == lower and lower.isalpha() and part_of_speech(token)
        if plain and not (
            is_word(lower) or lower in word_lists()["informal"] or lower in lexicon or token.lemma_ in lexicon
        ):
            raise UnsuitableError("an unknown word")
    if (reason := ungrammatical(doc)) is not None:
        raise UnsuitableError(reason)
    main = statement(doc)
    return Choice(main, negate(main))


def _with_same_verb(main: Choice, negated: Doc) -> Choice:
    """Return a main verb if its negation, parsed again, is a statement with the same main verb."""
    verb = attempt(statement, negated)
    if isinstance(verb, UnsuitableError):
        raise UnsuitableError(f"its negation is not a statement: {verb}")
    if verb.lemma_ != main.token.lemma_:
        raise UnsuitableError("its negation has another main verb")
    return main


def looks_suitable(sentence: str) -> str:
    """Return the sentence without surrounding marks, with an initial capital and names in place of [NAME].

    Raises:
        UnsuitableError: its length, marks or words exclude it.
    """
    text = sentence.strip()
    if not any(mark in text[1:-1] for mark in QUOTES):
        text = text.strip(QUOTES)
    text = WORD.sub(_with_apostrophe, EDGES.sub("", text))
    for name in NAMES:
        text = text.replace(NAME, name, 1)
    for reason, is_fault in LOOKS.items():
        if is_fault(PAUSE.sub(",", text)):
            raise UnsuitableError(reason)
    return text[:1].upper() + text[1:]


def _with_apostrophe(word: re.Match[str]) -> str:
    """Add the missing apostrophe of a contraction (dont, im, i); IM is unchanged, since it may be another word."""
    if len(word[0]) > 1 and word[0].isupper():
        return word[0]
    return like_case(_contractions().get(word[0].lower(), word[0]), word[0])


def _word_count(text: str) -> int:
    return sum(any(map(str.isalnum, word)) for word in text.split())


LOOKS: dict[str, Callable[[str], object]] = {  # why a text is excluded; the first reason that applies
    f"fewer than {SHORTEST} words": lambda text: _word_count(text) < SHORTEST,
    f"more than {LONGEST} words": lambda text: _word_count(text) > LONGEST,
    "a question": lambda text: "?" in text,
    f"more than {len(NAMES)} {NAME}": lambda text: NAME in text,
    "does not start with a letter": lambda text: not BEGINNING.match(text),
    "does not end like a sentence": lambda text: not END.search(text),
    "marks other than , . ! ' ; : & % $ - / ( ) and quotation marks": lambda text: not PLAIN.fullmatch(text),
    "unbalanced quotation marks": lambda text: text.count('"') % 2 or text.count("“") != text.count("”"),
    "repeated marks, or a space before a mark": REPEATED.search,
    "words in capitals": lambda text: len(CAPITALS.findall(text)) > 1,
    "a swear word": lambda text: _swear_words().search(text),
}


# -- building ---------------------------------------------------------------------------------------------------------

CHUNK = 128  # sentences whose words are masked together
LOOK_AT = 20  # sentences examined per original, from which the surest are chosen


@dataclass(frozen=True)
class Quality:
    """The report of `build`: how many sentences were excluded and why, and the estimated quality of the pairs.

    Attributes:
        seen: number of sentences examined.
        originals: number of sentences that minimal pairs were built from.
        fallen: number of excluded sentences per reason, the most frequent reason first.
        good: estimated share of good pairs for "synonym" and "antonym"; empty without a masked language model.

    Example:
        >>> from essent.lab.minimal_pairs import build
        >>> texts = ["The shop on the corner sells old books about the sea. Is it open?"]
        >>> pairs, quality = build(texts)
        >>> quality.seen, quality.originals, quality.fallen
        (2, 1, {'fewer than 6 words': 1})
    """

    seen: int
    originals: int
    fallen: Mapping[str, int]
    good: Mapping[str, float]


class Built(NamedTuple):
    """The pairs of an original, and the probabilities that its synonym and its antonym are good; () without a model."""

    chances: Sequence[float]
    pairs: list[MinimalPair]


def build(
    texts: TextsLike,
    wordnet: WordNet | None = None,
    model: MaskedModel | None = None,
    n: int = 1000,
    seed: int = 0,
    progress: bool = False,
) -> tuple[list[MinimalPair], Quality]:
    """Build minimal pairs of `n` sentences: six subsets, or without WordNet or a model, Typo and both negations.

    Args:
        texts: texts of one or more sentences; duplicate sentences count once.
        wordnet: source of synonyms and antonyms.
        model: scores them in context, and predicts random words. Twenty sentences are examined per requested original,
            or more if that yields fewer than `n` originals. The originals whose synonym and antonym are most probably
            good are returned; without a model, the first ones.
        progress: show a progress bar.

    Returns:
        The pairs, with all subsets of one original together, and a report. The best originals come first; without a
        model, the order is random and determined by `seed`. Fewer than `n` originals if there are no more.

    Raises:
        InputError: `n` is below 1.
        DataError: the texts contain no sentence.
        MissingDependencyError: the extra `heros` is not installed.

    Example:
        >>> from essent.lab.minimal_pairs import build
        >>> pairs, quality = build(["The shop on the corner sells old books about the sea."], n=1)
        >>> for pair in pairs:
        ...     print(f"{pair.subset}: {pair.changed}")
        Typo: The shop on the corner slls old books about the sea.
        Negation (Main): The shop on the corner does not sell old books about the sea.
        Negation (Antonym): The shop on the corner does not sell old books about the sea.
    """
    check_size(n, "n")
    parser = Parser()
    sentences = list(dict.fromkeys(parser.split(texts)))
    if not sentences:
        raise DataError("The texts contain no sentences. Pass at least one sentence.")
    order = [sentences[index] for index in np.random.default_rng(seed).permutation(len(sentences))]
    is_ranked = wordnet is not None and model is not None
    least = min(n * LOOK_AT, len(order)) if is_ranked else 1
    built: list[Built] = []
    excluded: Counter[str] = Counter()
    used_texts: set[str] = set()
    seen = 0
    with text_progress(
        least if is_ranked else len(order), progress, desc="Sentences", unit="sentence", estimated=True
    ) as show:
        while seen < least or (seen < len(order) and len(built) < n):
            chunk = order[seen : seen + CHUNK]
            for outcome in _outcomes(chunk, parser, wordnet, model, used_texts, seed):
                if isinstance(outcome, UnsuitableError):
                    excluded[str(outcome)] += 1
                else:
                    built.append(outcome)
            seen += len(chunk)
            show(len(chunk))
    built.sort(key=lambda original: both(*original.chances) if original.chances else 0.0, reverse=True)
    chosen = built[:n]
    chances = [original.chances for original in chosen if original.chances]
    good = dict(zip(RELATIONS, np.mean(chances, axis=0).tolist(), strict=True)) if chances else {}
    pairs = [pair for original in chosen for pair in original.pairs]
    return pairs, Quality(seen, len(chosen), dict(excluded.most_common()), good)


def _outcomes(
    sentences: Sequence[str],
    parser: Parser,
    wordnet: WordNet | None,
    model: MaskedModel | None,
    used_texts: set[str],
    seed: int,
) -> Iterator[Built | UnsuitableError]:
    """Yield the pairs of each sentence, or the reason why it has none; originals in `used_texts` are not repeated."""
    misspelled = frozenset(word for words in misspellings().values() for word in words)
    suitable: list[tuple[Choice, list[Choice]]] = []
    for main in filter_sentences(sentences, parser, misspelled, wordnet or frozenset()):
        if isinstance(main, UnsuitableError):
            yield main
        elif main.text in used_texts:
            yield UnsuitableError("equal to another sentence except for marks, capitals or a name")
        elif isinstance(choices := attempt(negatable, main.token.doc), UnsuitableError):
            yield choices
        else:
            used_texts.add(main.text)
            suitable.append((main, choices))
    offered = [choices for _, choices in suitable]
    chosen: Sequence[Choice | UnsuitableError] = [choices[0] for choices in offered]
    if wordnet is not None and model is not None:
        chosen = choose(offered, wordnet, model)
    for (main, _), choice in zip(suitable, chosen, strict=True):
        yield attempt(_pairs_of, main, choice, seed) if isinstance(choice, Choice) else choice


def _pairs_of(main: Choice, choice: Choice, seed: int) -> Built:
    """Return the pairs of a choice; raise UnsuitableError if the word has no typo."""
    token, text = choice.token, choice.text
    rng = np.random.default_rng([seed, zlib.crc32(text.encode())])  # independent of the order of the texts
    replacements = {candidate.relation.title(): candidate.word for candidate in choice.candidates}
    if choice.filler:
        replacements["Random MLM"] = choice.filler
    replacements["Typo"] = make_typo(token.text, rng, misspellings())
    changed = {subset: replace_word(token, word) for subset, word in replacements.items()}
    changed |= {"Negation (Main)": main.negation, "Negation (Antonym)": choice.negation}
    return Built(choice.chances, [MinimalPair(text, sentence, subset) for subset, sentence in changed.items()])


def write_pairs(pairs: Iterable[MinimalPair], path: str | Path) -> None:
    """Write minimal pairs as a .jsonl file, one JSON object per line: original, converted, subset.

    Example:
        >>> from essent.lab.minimal_pairs import build, write_pairs
        >>> from essent.tasks import load_heros
        >>> pairs, quality = build(["The shop on the corner sells old books about the sea."])
        >>> write_pairs(pairs, "my-pairs.jsonl")
        >>> len(load_heros("my-pairs.jsonl").pairs)
        3
    """
    rows = ({"original": pair.original, "converted": pair.changed, "subset": pair.subset} for pair in pairs)
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
