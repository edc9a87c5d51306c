"""Which word of a sentence is replaced, and by what: WordNet's candidates, judged in their place by a language model.

Source: Chiang et al. 2023, sections 2.2.2 to 2.2.4; the authors judged by hand what a model judges here. The model is
a masked one that predicts words: no encoder that is measured later has chosen the pairs.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from essent.minimal_pairs.confidence import Evidence, confidence
from essent.minimal_pairs.function_words import TABLE
from essent.minimal_pairs.groups import CannotNegateError
from essent.minimal_pairs.inflection import forms_of, inflect, readings
from essent.minimal_pairs.masked import MaskedModel, Slot
from essent.minimal_pairs.negation import Negation, negate_at
from essent.minimal_pairs.sentences import Suitable, UnsuitableError, ungrammatical
from essent.minimal_pairs.substitutes import LIGHT, Candidate, part_of_speech, replaceable, substitutes
from essent.minimal_pairs.tags import Tagged
from essent.minimal_pairs.wordnet import WordNet
from essent.minimal_pairs.words import Word, split_words

SYNONYM_GAP, ANTONYM_GAP = 9.0, 9.5  # how much less likely (natural log) than the original a replacement may be
UNSEEN_GAP = 5.0  # a word that the model has no token for counts as this much less likely than the original
UNKNOWN_OWN = 3.0  # such an original as this much less likely than the likeliest filler
SURE = 0.0  # log-odds from which a synonym or antonym is taken; of all that are the surest originals are kept
BETWEEN, RELATED = 0.42, 0.60  # from which the word between a word and its antonym, and a random word, mean the same
CONTRARY, UNSEEN_CONTRARY = 0.15, 0.30  # from which an antonym is of the word's sense; one that is not a single token
PREFIXES = ("un", "in", "im", "il", "ir", "dis", "non", "de", "mis")
LOOKED_AT = 8  # synonyms, antonyms and fillers whose states are compared
AT_ONCE = 2  # fillers, as the first that is good is taken
NATURAL, NATURAL_BY_FREQUENCY = 0.4, 2.0  # for a word whose negation reads well, in log-odds and in log shares


@dataclass(frozen=True)
class Choice:
    """A word of a sentence, by its place among the words, its negation, and what may stand for it.

    `value` compares the words of a sentence, `sureness` sentences: log-odds that synonym and antonym are good.
    """

    index: int
    negation: Negation
    synonym: Candidate | None = None
    antonym: Candidate | None = None
    filler: str = ""
    value: float = 0.0
    confidence: float = 0.0


@dataclass(frozen=True)
class Options:
    """A word with its negation and all of its candidates."""

    index: int
    negation: Negation
    synonyms: Sequence[Candidate] = ()
    antonyms: Sequence[Candidate] = ()


def choose(
    suitable: Sequence[Suitable], wordnet: WordNet | None, model: MaskedModel | None, seed: int = 0
) -> Iterator[list[Choice] | UnsuitableError]:
    """For each sentence its choices, the best first, or why it has none; the seed is for the random word."""
    options = [_options(one, wordnet) for one in suitable]
    flat = [
        (one, option)
        for one, found in zip(suitable, options, strict=True)
        if not isinstance(found, UnsuitableError)
        for option in found
    ]
    judged: Iterator[Choice | None]
    if wordnet is None:
        judged = iter(
            [Choice(option.index, option.negation, value=float(_is_natural(one, option.index))) for one, option in flat]
        )
    elif model is None:
        judged = iter([_by_frequency(one, option) for one, option in flat])
    else:
        judged = iter(_in_context(flat, wordnet, model, seed))
    for found in options:
        if isinstance(found, UnsuitableError):
            yield found
            continue
        kept = [choice for choice in (next(judged) for _ in found) if choice is not None]
        if not kept:
            yield UnsuitableError("in context", "no synonym and antonym that fit into the sentence")
        else:
            yield sorted(kept, key=lambda choice: (-choice.value, choice.index))


def _options(one: Suitable, wordnet: WordNet | None) -> list[Options] | UnsuitableError:
    places = replaceable(one.tags)
    if not places:
        return UnsuitableError("replaceable word", "no verb or adjective of its own meaning")
    found, problem = [], ""
    for index in places:
        try:
            found.append(Options(index, negated_at(one, index)))
        except CannotNegateError as error:
            problem = str(error)
    if not found:
        return UnsuitableError("negation of the word", problem)
    if wordnet is None:
        return found
    offered = [(option, *substitutes(wordnet, one.tags, option.index)) for option in found]
    both = [replace(option, synonyms=same, antonyms=other) for option, same, other in offered if same and other]
    return both or UnsuitableError("synonym and antonym", "no word that has both in one of its frequent senses")


def negated_at(one: Suitable, index: int) -> Negation:
    """The sentence with its word at `index` negated.

    Raises:
        CannotNegateError: the rules leave it alone, or it would look wrong.
    """
    negation = negate_at(one.text, one.tags, index)
    if reason := ungrammatical(split_words(negation.text)):
        raise CannotNegateError(reason)
    return negation


def _is_natural(one: Suitable, index: int) -> bool:
    """Whether the negation of the word will read well: of a finite verb, or an adjective after its verb."""
    tag, before = one.tags[index].tag, one.tags[index - 1].tag if index else "U"
    return before in ("B", "A", "X") if tag == "J" else tag in ("F", "V")


def _by_frequency(one: Suitable, option: Options) -> Choice:
    same, opposite = option.synonyms[0], option.antonyms[0]
    value = same.prior + opposite.prior + NATURAL_BY_FREQUENCY * _is_natural(one, option.index)
    return Choice(option.index, option.negation, same, opposite, value=value)


def _in_context(
    asked: Sequence[tuple[Suitable, Options]], wordnet: WordNet, model: MaskedModel, seed: int
) -> list[Choice | None]:
    """Choices that the model finds plausible; None where no synonym or no antonym is."""
    words = [(one.text, one.tags[option.index].word) for one, option in asked]
    candidates = [[c.word for c in (*option.synonyms, *option.antonyms)] for _, option in asked]
    slots = model.slots([(*word, some) for word, some in zip(words, candidates, strict=True)])
    plausible = [_plausible(option, slot) for (_, option), slot in zip(asked, slots, strict=True)]
    compared = [
        list(dict.fromkeys([c.word for c in (*p.same, *p.opposite)] + [c.via for c in p.opposite if c.via]))
        if p.same and p.opposite
        else []
        for p in plausible
    ]
    alike = _alike(words, compared, model)
    found = [_best(*pair, left, some, wordnet) for pair, left, some in zip(asked, plausible, alike, strict=True)]
    fillers = _fillers_of_the_best(asked, found, slots, wordnet, seed)
    random = _random_words(words, fillers, model)
    return [
        replace(best, filler=random.get(number, "")) if best is not None and number in fillers else None
        for number, best in enumerate(found)
    ]


def _fillers_of_the_best(
    asked: Sequence[tuple[Suitable, Options]],
    found: Sequence[Choice | None],
    slots: Sequence[Slot],
    wordnet: WordNet,
    seed: int,
) -> dict[int, list[str]]:
    """Random words for each sentence's best choice that has any; by its number."""
    best_first = sorted((-best.value, number) for number, best in enumerate(found) if best is not None)
    kept: dict[str, tuple[int, list[str]]] = {}
    for _, number in best_first:
        one, option = asked[number]
        if one.text in kept and kept[one.text][1]:
            continue
        fillers = _unrelated(one, one.tags[option.index], slots[number], wordnet)
        if fillers or one.text not in kept:
            kept[one.text] = number, shuffled(fillers, one.text, seed)
    return dict(kept.values())


def generator(text: str, seed: int) -> np.random.Generator:
    """Of what is random about a sentence: the same wherever it stands among the texts."""
    return np.random.default_rng([seed, zlib.crc32(text.encode())])


def shuffled(words: Sequence[str], text: str, seed: int) -> list[str]:
    """Words in an order that the sentence and the seed determine."""
    return [words[place] for place in generator(text, seed).permutation(len(words))]


def _alike(
    words: Sequence[tuple[str, Word]], others: Sequence[Sequence[str]], model: MaskedModel
) -> list[dict[str, float]]:
    """For each word of a sentence the cosines of other words in its place."""
    asked = [(*word, some) for word, some in zip(words, others, strict=True) if some]
    cosines = iter(model.similarities(asked) if asked else [])
    return [dict(zip(some, next(cosines), strict=True)) if some else {} for some in others]


def _random_words(
    words: Sequence[tuple[str, Word]], fillers: Mapping[int, list[str]], model: MaskedModel
) -> dict[int, str]:
    """For each number the first of its fillers that does not mean too much the same in the word's place."""
    left, found = {number: some for number, some in fillers.items() if some}, dict[int, str]()
    while left:
        alike = _alike([words[number] for number in left], [some[:AT_ONCE] for some in left.values()], model)
        for number, cosines in zip(left, alike, strict=True):
            if good := [word for word, similarity in cosines.items() if similarity < RELATED]:
                found[number] = good[0]
        left = {number: some[AT_ONCE:] for number, some in left.items() if number not in found and some[AT_ONCE:]}
    return found


@dataclass(frozen=True)
class Plausible:
    """What may stand in a word's place by its probability there, and the word's own (natural log)."""

    same: list[Candidate]
    opposite: list[Candidate]
    own: float


def _plausible(option: Options, slot: Slot) -> Plausible:
    own = max(slot.own, slot.first - UNKNOWN_OWN)
    kept = []
    for candidates, gap in ((option.synonyms, SYNONYM_GAP), (option.antonyms, ANTONYM_GAP)):
        known = [replace(c, probability=float(slot.words[c.word])) for c in candidates]
        gaps = {c.lemma: own - c.probability if c.seen else UNSEEN_GAP for c in known}
        good = [c for c in known if gaps[c.lemma] <= gap and (c.seen or c.counted)]
        kept.append(sorted(good, key=lambda c: (0.5 * gaps[c.lemma] - c.prior, c.lemma))[:LOOKED_AT])
    if any(not c.via for c in kept[1]):  # an antonym of the word itself needs no detour
        kept[1] = [c for c in kept[1] if not c.via]
    return Plausible(kept[0], kept[1], own)


def _best(
    one: Suitable, option: Options, left: Plausible, alike: Mapping[str, float], wordnet: WordNet
) -> Choice | None:
    """The surest synonym and antonym, where both are sure enough."""
    if not left.same or not left.opposite:
        return None
    tagged = one.tags[option.index]
    senses = max(1, len(wordnet.senses(tagged.lemma, part_of_speech(tagged))))

    def evidence(c: Candidate) -> Evidence:
        prefix = _has_prefix(c, tagged.word.lower)
        return Evidence(alike[c.word], c.prior, c.probability, left.own, senses, tagged.tag != "J", prefix)

    same = [(evidence(c).synonym, c.lemma, c) for c in left.same]
    contraries = [c for c in left.opposite if _is_contrary(c, tagged.word.lower, alike)]
    opposite = [(evidence(c).antonym, c.lemma, c) for c in contraries]
    surest = max((found for found in same if found[0] >= SURE), key=lambda found: found[:2], default=None)
    if surest is None:
        return None
    others = [found for found in opposite if found[0] >= SURE and found[1] != surest[1]]
    contrary = max(others, key=lambda found: found[:2], default=None)
    if contrary is None:
        return None
    sure = confidence(surest[0], contrary[0])
    value = sure + NATURAL * _is_natural(one, option.index)
    return Choice(option.index, option.negation, surest[2], contrary[2], value=value, confidence=sure)


def _is_contrary(candidate: Candidate, word: str, alike: Mapping[str, float]) -> bool:
    """Whether an antonym is of the sense that the word has here; one with a prefix always is."""
    if candidate.via and alike[candidate.via] < BETWEEN:
        return False
    if _has_prefix(candidate, word):
        return True
    return alike[candidate.word] >= (CONTRARY if candidate.seen else UNSEEN_CONTRARY)


def _has_prefix(candidate: Candidate, word: str) -> bool:
    """Whether an antonym is the word, or the one between, with or without a prefix."""
    return any(_differ_by_a_prefix(candidate.word, other) for other in (word, candidate.via) if other)


def _differ_by_a_prefix(first: str, second: str) -> bool:
    shorter, longer = sorted((first, second), key=len)
    return any(longer == prefix + shorter for prefix in PREFIXES)


def _unrelated(one: Suitable, tagged: Tagged, slot: Slot, wordnet: WordNet) -> list[str]:
    """The likeliest fillers in the same form that have nothing to do with the word (section 2.2.4)."""
    related = wordnet.relatives(tagged.lemma) | forms_of(tagged.lemma)
    present = {tag.lemma for tag in one.tags} | {tag.word.lower for tag in one.tags}
    part, forms = part_of_speech(tagged), ("VB", "VBP") if tagged.form in ("VB", "VBP") else (tagged.form,)
    place = one.tags.index(tagged)
    more = place > 0 and one.tags[place - 1].word.lower in ("more", "most", "less", "least")
    found: list[str] = []
    for word in slot.fillers:
        lemmas = [r.lemma for r in readings(word) if r.pos == part and r.form in forms]
        lemmas = [lemma for lemma in lemmas if wordnet.is_mostly(lemma, part) and lemma not in LIGHT]
        if more and any(not (inflect(lemma, "JJS") or "most").startswith("most") for lemma in lemmas):
            continue  # the most important, but not the most big
        if not lemmas or word in TABLE or {word, *lemmas} & (related | present):
            continue
        if not any(tagged.lemma in wordnet.relatives(lemma) for lemma in lemmas):
            found.append(word)
        if len(found) == LOOKED_AT:
            break
    return found
