"""Which word of a sentence is replaced, and by what: WordNet's candidates, judged in their place by a language model.

Source: Chiang et al. 2023, sections 2.2.2 to 2.2.4; the authors judged by hand what a model judges here. The model is
a masked one that predicts words: no encoder that is measured later has chosen the pairs.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from essent.minimal_pairs.confidence import Confidence, Evidence
from essent.minimal_pairs.edits import word_lists
from essent.minimal_pairs.language import CannotNegateError, Language, Negation, Token, UnsuitableError, attempt
from essent.minimal_pairs.masked import Asked, MaskedModel, Slot
from essent.minimal_pairs.sentences import Suitable
from essent.minimal_pairs.substitutes import Candidate, substitutes
from essent.minimal_pairs.wordnet import WordNet

SYNONYM_GAP, ANTONYM_GAP = 9.0, 9.5  # how much less likely (natural log) than the original a replacement may be
UNSEEN_GAP = 5.0  # a word that the model has no token for counts as this much less likely than the original
UNKNOWN_OWN = 3.0  # such an original as this much less likely than the likeliest filler
SURE = -0.7  # log-odds from which a synonym or antonym is taken; of all that are the surest originals are kept
BETWEEN, RELATED = 0.42, 0.60  # from which the word between a word and its antonym, and a random word, mean the same
CONTRARY, UNSEEN_CONTRARY = 0.15, 0.30  # from which an antonym is of the word's sense; one that is not a single token
PREFIXES = ("un", "in", "im", "il", "ir", "dis", "non", "de", "mis")
LOOKED_AT, RANDOM = 8, 4  # synonyms and antonyms, and random words, whose states are compared


@dataclass(frozen=True)
class Choice:
    """A word of a sentence, its negation, and what may stand for it.

    `confidence` is the log-probability that synonym and antonym are good.
    """

    token: Token
    negation: Negation
    synonyms: Sequence[Candidate] = ()
    antonyms: Sequence[Candidate] = ()
    filler: str = ""
    confidence: float = 0.0


@dataclass(frozen=True)
class Chooser:
    """What choices are made with; without a model by the frequency of senses, without WordNet by place."""

    language: Language
    wordnet: WordNet | None = None
    model: MaskedModel | None = None
    confidence: Confidence | None = None
    seed: int = 0
    same_negations: bool = False

    def __call__(self, suitable: Sequence[Suitable]) -> Iterator[list[Choice] | UnsuitableError]:
        """For each sentence its choices, the best first, or why it has none."""
        offered = [attempt(self._options, one) for one in suitable]
        flat = [choice for found in offered if isinstance(found, list) for choice in found]
        judged = iter(self._in_context(flat) if self.model is not None and self.wordnet is not None else flat)
        for found in offered:
            if isinstance(found, UnsuitableError):
                yield found
                continue
            kept = [choice for choice in (next(judged) for _ in found) if choice is not None]
            order = sorted(kept, key=lambda choice: (-choice.confidence, choice.token.i))
            yield order or UnsuitableError(
                "in context", "no synonym, antonym and random word that fit into the sentence"
            )

    def _options(self, one: Suitable) -> list[Choice]:
        places = self.language.replaceable(one.doc)
        if not places:
            raise UnsuitableError("replaceable word", "no verb or adjective of its own meaning")
        found, problem = [], ""
        for token in places:
            try:
                found.append(Choice(token, self._negation(one, token)))
            except CannotNegateError as error:
                problem = str(error)
        if not found:
            raise UnsuitableError("negation of the word", problem)
        if self.wordnet is None:
            return found
        offered = [(choice, *substitutes(self.wordnet, self.language, choice.token)) for choice in found]
        both = [
            replace(choice, synonyms=same, antonyms=other, confidence=same[0].prior + other[0].prior)
            for choice, same, other in offered
            if same and other
        ]
        if not both:
            raise UnsuitableError("synonym and antonym", "no word that has both in one of its frequent senses")
        return both

    def _negation(self, one: Suitable, token: Token) -> Negation:
        """The negation of a word, another than that of the main verb unless `same_negations` are allowed."""
        negation = self.language.negate(token)
        if negation.text == one.negation.text and not self.same_negations:
            raise CannotNegateError("the negation of the word is that of the main verb")
        return negation

    def slots(self, choices: Sequence[Choice]) -> list[Slot]:
        """What the model expects in the place of each choice's word."""
        assert self.model is not None  # noqa: S101  callers asked
        return self.model.slots([asked(one, (c.word for c in (*one.synonyms, *one.antonyms))) for one in choices])

    def evidence(
        self, choices: Sequence[Choice], slots: Sequence[Slot]
    ) -> list[tuple[dict[str, Evidence], dict[str, float]]]:
        """For each choice what is known of its candidates, by word, and how alike all words are that were compared."""
        assert self.model is not None  # noqa: S101  callers asked
        words = [[c.word for c in (*one.synonyms, *one.antonyms)] for one in choices]
        between = [[c.via for c in one.antonyms if c.via] for one in choices]
        compared = [list(dict.fromkeys((*some, *vias))) for some, vias in zip(words, between, strict=True)]
        alike = alikeness(self.model, choices, compared)
        return [
            ({c.word: self._evidence(one, c, slot, near) for c in (*one.synonyms, *one.antonyms)}, near)
            for one, slot, near in zip(choices, slots, alike, strict=True)
        ]

    def _evidence(self, one: Choice, c: Candidate, slot: Slot, near: Mapping[str, float]) -> Evidence:
        assert self.wordnet is not None  # noqa: S101  callers asked
        part = self.language.part(one.token)
        lemma = self.language.lemmas(one.token.lower_, one.token)[0]
        senses = max(1, len(self.wordnet.senses(lemma, part)))
        probability, prefix = slot.words[c.word], has_prefix(c, one.token.lower_)
        return Evidence(near[c.word], c.prior, probability, own(slot), senses, part == "verb", prefix)

    def _in_context(self, flat: Sequence[Choice]) -> list[Choice | None]:
        """Choices that the model finds plausible; None where no synonym, antonym or random word is."""
        slots = self.slots(flat)
        left = [plausible(one, slot) for one, slot in zip(flat, slots, strict=True)]
        kept = [n for n, one in enumerate(left) if one is not None]
        known = iter(self.evidence([one for one in left if one is not None], [slots[n] for n in kept]))
        best = [self._best(one, *next(known)) if one is not None else None for one in left]
        fillers = {n: self._unrelated(one, slots[n]) for n, one in enumerate(best) if one is not None}
        random = self._random_words(flat, fillers)
        return [
            replace(one, filler=random[n]) if one is not None and n in random else None for n, one in enumerate(best)
        ]

    def _best(self, one: Choice, known: Mapping[str, Evidence], near: Mapping[str, float]) -> Choice | None:
        """The surest synonym and antonym, where both are sure enough."""
        judge = self.confidence or Confidence.load()
        same = {c: judge.log_odds("synonym", known[c.word]) for c in one.synonyms}
        contraries = [c for c in one.antonyms if is_contrary(c, one.token.lower_, near)]
        opposite = {c: judge.log_odds("antonym", known[c.word]) for c in contraries}
        synonym = max(same, key=lambda c: (same[c], c.lemma), default=None)
        antonym = max(
            (c for c in opposite if c.lemma != getattr(synonym, "lemma", "")),
            key=lambda c: (opposite[c], c.lemma),
            default=None,
        )
        if synonym is None or antonym is None or min(same[synonym], opposite[antonym]) < SURE:
            return None
        sure = judge.both(same[synonym], opposite[antonym])
        return replace(one, synonyms=[synonym], antonyms=[antonym], confidence=sure)

    def _unrelated(self, one: Choice, slot: Slot) -> list[str]:
        """Likely fillers in the same form that have nothing to do with the word (section 2.2.4), in random order."""
        assert self.wordnet is not None  # noqa: S101  callers asked
        token, part = one.token, self.language.part(one.token)
        lemma = self.language.lemmas(token.lower_, token)[0]
        related = self.wordnet.relatives(lemma) | self.language.forms(lemma)
        present = related | {word.lower_ for word in token.doc} | {word.lemma_ for word in token.doc}
        found: list[str] = []
        for word in slot.fillers:
            lemmas = [one for one in self.language.lemmas(word, token) if self.wordnet.is_mostly(one, part)]
            lemmas = [one for one in lemmas if one not in word_lists()["light"]]
            if not lemmas or {word, *lemmas} & present or any(lemma in self.wordnet.relatives(one) for one in lemmas):
                continue
            usual = [(one, sense.synset) for one in lemmas for sense in self.wordnet.senses(one, part)[:2]]
            if not any(self.language.fits(token, synset, one) for one, synset in usual):
                continue
            found.append(word)
            if len(found) == RANDOM:
                break
        order = generator(token.doc.user_data["text"], self.seed).permutation(len(found))
        return [found[place] for place in order]

    def _random_words(self, choices: Sequence[Choice], fillers: Mapping[int, list[str]]) -> dict[int, str]:
        """For each number the first of its fillers that does not mean too much the same in the word's place."""
        assert self.model is not None  # noqa: S101  callers asked
        some = {number: words for number, words in fillers.items() if words}
        alike = alikeness(self.model, [choices[number] for number in some], list(some.values()))
        good = ({word: near for word, near in one.items() if near < RELATED} for one in alike)
        return {number: next(iter(words)) for number, words in zip(some, good, strict=True) if words}


def asked(one: Choice, words: Iterable[str]) -> Asked:
    """A question to the masked model about a word's place."""
    start = one.token.idx
    return Asked(str(one.token.doc.user_data["text"]), start, start + len(one.token), tuple(words))


def alikeness(model: MaskedModel, choices: Sequence[Choice], words: Sequence[Sequence[str]]) -> list[dict[str, float]]:
    """For each choice how much each word means the same in the place of its token."""
    found = model.similarities([asked(one, some) for one, some in zip(choices, words, strict=True)]) if choices else []
    return [dict(zip(some, one, strict=True)) for some, one in zip(words, found, strict=True)]


def generator(text: str, seed: int) -> np.random.Generator:
    """Of what is random about a sentence: the same wherever it stands among the texts."""
    return np.random.default_rng([seed, zlib.crc32(text.encode())])


def own(slot: Slot) -> float:
    """Log-probability of the word that stood in a slot."""
    return max(slot.own, slot.first - UNKNOWN_OWN)


def plausible(one: Choice, slot: Slot) -> Choice | None:
    """The choice with what is probable enough in the word's place, `LOOKED_AT` of each kind; None without any."""
    kept = []
    for candidates, most in ((one.synonyms, SYNONYM_GAP), (one.antonyms, ANTONYM_GAP)):
        known = [replace(c, probability=float(slot.words[c.word])) for c in candidates]
        gaps = {c.lemma: own(slot) - c.probability if c.seen else UNSEEN_GAP for c in known}
        good = [c for c in known if gaps[c.lemma] <= most and (c.seen or c.counted)]
        kept.append(sorted(good, key=lambda c: (0.5 * gaps[c.lemma] - c.prior, c.lemma))[:LOOKED_AT])
    if any(not c.via for c in kept[1]):  # an antonym of the word itself needs no detour
        kept[1] = [c for c in kept[1] if not c.via]
    return replace(one, synonyms=kept[0], antonyms=kept[1]) if all(kept) else None


def is_contrary(candidate: Candidate, word: str, alike: Mapping[str, float]) -> bool:
    """Whether an antonym is of the sense that the word has here; one with a prefix always is."""
    if candidate.via and alike[candidate.via] < BETWEEN:
        return False
    if has_prefix(candidate, word):
        return True
    return alike[candidate.word] >= (CONTRARY if candidate.seen else UNSEEN_CONTRARY)


def has_prefix(candidate: Candidate, word: str) -> bool:
    """Whether an antonym is the word, or the one between, with or without a prefix: unhappy."""
    both = ((candidate.word, other) for other in (word, candidate.via) if other)
    ordered = (sorted(pair, key=len) for pair in both)
    return any(longer == prefix + shorter for shorter, longer in ordered for prefix in PREFIXES)
