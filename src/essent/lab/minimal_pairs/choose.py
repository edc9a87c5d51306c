"""Which word of a sentence is replaced, and by what: WordNet's candidates, judged in their place by a language model.

Source: Chiang et al. 2023, sections 2.2.2 to 2.2.4; the authors judged by hand what a model judges here. The model is
a masked one that predicts words: no encoder that is measured later has chosen the pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from essent.lab.minimal_pairs.confidence import RELATIONS, Confidence, Evidence, both
from essent.lab.minimal_pairs.edits import word_lists
from essent.lab.minimal_pairs.language import Language, Negation, Token, UnsuitableError, attempt
from essent.lab.minimal_pairs.masked import Asked, MaskedModel, Slot
from essent.lab.minimal_pairs.sentences import Suitable
from essent.lab.minimal_pairs.substitutes import Candidate, Substitutes
from essent.lab.minimal_pairs.wordnet import WordNet

SURE = 0.35  # probability from which a synonym or antonym is taken; of more than are wanted, the surest are kept
BETWEEN, RELATED = 0.42, 0.50  # from which the word between a word and its antonym, and a random word, mean the same
FILLER_GAP = 3.0  # how much less likely (natural log) than the likeliest word a random one may be,
FLUENT = math.log(0.01)  # unless it is as likely as this
NO_WORD = ("synonym and antonym", "no word that has both in one of its frequent senses")
MISFIT = ("in context", "no synonym, antonym and random word that fit into the sentence")
LOOKED_AT, RANDOM = 8, 6  # synonyms and antonyms, and random words, whose states are compared


@dataclass(frozen=True)
class Choice:
    """A word of a sentence, its negation, what may stand for it, and how probable it is that each candidate is good."""

    token: Token
    negation: Negation
    candidates: Sequence[Candidate] = ()
    filler: str = ""
    chances: Sequence[float] = ()

    def ask(self, *words: str) -> Asked:
        """A question to the masked model about the word's place."""
        start = self.token.idx
        return Asked(str(self.token.doc.user_data["text"]), start, start + len(self.token), tuple(dict.fromkeys(words)))


def negatable(one: Suitable, language: Language) -> list[Choice]:
    """The words that may be chosen, with their negations.

    Raises:
        UnsuitableError: there are none; why.
    """
    negations = {token: attempt(language.negate, token) for token in language.replaceable(one.doc)}
    if not negations:
        raise UnsuitableError("replaceable word", "no verb or adjective of its own meaning")
    found = [Choice(token, some) for token, some in negations.items() if isinstance(some, Negation)]
    if not found:
        raise UnsuitableError("negation of the word", str(list(negations.values())[-1]))
    return found


@dataclass(frozen=True)
class Chooser:
    """Chooses by what a masked language model makes of WordNet's candidates in their place."""

    language: Language
    wordnet: WordNet
    model: MaskedModel
    judge: Confidence

    def __call__(self, sentences: Sequence[Sequence[Choice]]) -> list[Choice | UnsuitableError]:
        """Of the words of each sentence the one that is surest to have a synonym, an antonym and a random word."""
        offers = Substitutes(self.wordnet, self.language)
        offered = [[replace(one, candidates=offers.of(one.token)) for one in words] for words in sentences]
        offered = [[one for one in words if one.candidates] for words in offered]
        flat = [one for words in offered for one in words]
        judged = iter([self._best(one, *seen) for one, seen in zip(flat, self.look(flat), strict=True)])
        found: list[Choice | UnsuitableError] = []
        for words in offered:
            fit = [choice for choice in (next(judged) for _ in words) if choice is not None]
            missing = UnsuitableError(*(MISFIT if words else NO_WORD))
            found.append(max(fit, key=lambda choice: both(*choice.chances), default=missing))
        return found

    def look(self, choices: Sequence[Choice]) -> list[tuple[dict[Candidate, Evidence], list[str]]]:
        """For each choice the evidence of its candidates, and unrelated words, the likeliest first."""
        slots = self.model.slots([one.ask(*(c.word for c in one.candidates)) for one in choices])
        likely = [self._likeliest(one, slot) for one, slot in zip(choices, slots, strict=True)]
        fillers = [self._unrelated(one.token, slot) for one, slot in zip(choices, slots, strict=True)]
        words = [[word for c in some for word in (c.word, c.via) if word] for some in likely]
        near = self.model.similarities(
            [one.ask(*some, *more) for one, some, more in zip(choices, words, fillers, strict=True)]
        )
        found = []
        for slot, some, more, alike in zip(slots, likely, fillers, near, strict=True):
            fit = [c for c in some if not c.via or alike[c.via] >= BETWEEN]
            evidence = {c: Evidence(alike[c.word], c.prior, slot.words[c.word], c.prefix) for c in fit}
            found.append((evidence, [word for word in more if alike[word] < RELATED]))
        return found

    def _likeliest(self, one: Choice, slot: Slot) -> list[Candidate]:
        """The `LOOKED_AT` likeliest candidates of each kind, before their states are compared."""

        def chance(c: Candidate) -> float:
            return self.judge.chance(c.relation, Evidence(0.0, c.prior, slot.words[c.word]))

        found: list[Candidate] = []
        for relation in RELATIONS:
            some = [c for c in one.candidates if c.relation == relation]
            found += sorted(some, key=lambda c: (-chance(c), c.lemma))[:LOOKED_AT]
        return found

    def _best(self, one: Choice, known: Mapping[Candidate, Evidence], fillers: Sequence[str]) -> Choice | None:
        """The choice with its surest synonym, its surest antonym and the likeliest filler; None if one is missing."""
        chances = {c: self.judge.chance(c.relation, evidence) for c, evidence in known.items()}
        sure = [c for c in sorted(chances, key=lambda c: (-chances[c], c.lemma)) if chances[c] >= SURE]
        first = {c.relation: c for c in reversed(sure)}
        if len(first) < len(RELATIONS) or not fillers:
            return None
        pair = [first[relation] for relation in RELATIONS]
        return replace(one, candidates=pair, filler=fillers[0], chances=[chances[c] for c in pair])

    def _unrelated(self, token: Token, slot: Slot) -> list[str]:
        """The likeliest words in the same form that have nothing to do with the word (section 2.2.4)."""
        lemma = self.language.lemmas(token.lower_, token)[0]
        said = {form for word in token.doc for form in (word.lower_, word.lemma_)}
        taboo = said | self.wordnet.relatives(lemma) | self.language.forms(lemma)
        least = min(max(slot.fillers.values(), default=0.0) - FILLER_GAP, FLUENT)
        likely = (word for word, probability in slot.fillers.items() if probability >= least and word not in taboo)
        return [word for word in likely if self._may_stand(token, lemma, word, taboo)][:RANDOM]

    def _may_stand(self, token: Token, lemma: str, word: str, taboo: set[str]) -> bool:
        """Whether a word, mostly of the same part of speech and unrelated to a lemma, may stand for a token."""
        part, light = self.language.part(token), word_lists()["light"] | word_lists()["not random"]
        lemmas = [one for one in self.language.lemmas(word, token) if self.wordnet.is_mostly(one, part)]
        lemmas = [one for one in lemmas if one not in light and not token.vocab[one].like_num]
        if any(one in taboo or lemma in self.wordnet.relatives(one) for one in lemmas):
            return False
        usual = (sense for one in lemmas for _, sense in self.wordnet.senses(one, part)[:1])
        return any(self.language.fits(token, set(sense.frame_ids())) for sense in usual)
