"""Which word of a sentence is replaced, and by what: WordNet's candidates, judged in their place by a language model.

Source: Chiang et al. 2023, sections 2.2.2 to 2.2.4; the authors judged by hand what a model judges here. The model is
a masked one that predicts words: no encoder that is measured later has chosen the pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from essent.minimal_pairs.confidence import Confidence, Evidence, both
from essent.minimal_pairs.edits import word_lists
from essent.minimal_pairs.language import CannotNegateError, Language, Negation, Token, UnsuitableError, attempt
from essent.minimal_pairs.masked import Asked, MaskedModel, Slot
from essent.minimal_pairs.sentences import Suitable
from essent.minimal_pairs.substitutes import Candidate, Substitutes
from essent.minimal_pairs.wordnet import WordNet

SURE = {"synonym": -0.3, "antonym": 0.0}  # log-odds from which one is taken
BETWEEN, RELATED = 0.42, 0.50  # from which the word between a word and its antonym, and a random word, mean the same
FILLER_GAP = 3.0  # how much less likely (natural log) than the likeliest word a random one may be,
FLUENT = math.log(0.01)  # unless it is as likely as this
LOOKED_AT, RANDOM = 8, 6  # synonyms and antonyms, and random words, whose states are compared


@dataclass(frozen=True)
class Choice:
    """A word of a sentence, its negation, and what may stand for it, the best first.

    `confidence` is the log-probability that synonym and antonym are good.
    """

    token: Token
    negation: Negation
    synonyms: Sequence[Candidate] = ()
    antonyms: Sequence[Candidate] = ()
    fillers: Sequence[str] = ()
    confidence: float = 0.0

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Synonyms and antonyms."""
        return (*self.synonyms, *self.antonyms)

    def ask(self, *words: str) -> Asked:
        """A question to the masked model about the word's place."""
        start = self.token.idx
        return Asked(str(self.token.doc.user_data["text"]), start, start + len(self.token), tuple(dict.fromkeys(words)))


@dataclass(frozen=True)
class Chooser:
    """Chooses a word of a sentence by its place, its substitutes by the frequency of senses.

    `same_negations`: whether the word's negation may be that of the main verb.
    """

    language: Language
    wordnet: WordNet | None = None
    same_negations: bool = False

    def __call__(self, suitable: Sequence[Suitable]) -> Iterator[list[Choice] | UnsuitableError]:
        """For each sentence its choices, the best first, or why it has none."""
        offered = [attempt(self._options, one) for one in suitable]
        judged = iter(self.in_context([one for found in offered if isinstance(found, list) for one in found]))
        for found in offered:
            if isinstance(found, UnsuitableError):
                yield found
                continue
            kept = [choice for choice in (next(judged) for _ in found) if choice is not None]
            order = sorted(kept, key=lambda choice: (-choice.confidence, choice.token.i))
            reason = "no synonym, antonym and random word that fit into the sentence"
            yield order or UnsuitableError("in context", reason)

    def in_context(self, choices: Sequence[Choice]) -> Sequence[Choice | None]:
        """The choices as they are: a model tells those that fit."""
        return choices

    def _options(self, one: Suitable) -> list[Choice]:
        places = self.language.replaceable(one.doc)
        if not places:
            raise UnsuitableError("replaceable word", "no verb or adjective of its own meaning")
        negations = {token: attempt(self._negation, one, token) for token in places}
        found = [Choice(token, some) for token, some in negations.items() if isinstance(some, Negation)]
        if not found:
            raise UnsuitableError("negation of the word", str(negations[places[-1]]))
        if self.wordnet is None:
            return found
        offers = Substitutes(self.wordnet, self.language)
        offered = [(choice, *offers.of(choice.token)) for choice in found]
        kept = [
            replace(choice, synonyms=same, antonyms=other, confidence=same[0].prior + other[0].prior)
            for choice, same, other in offered
            if same and other
        ]
        if not kept:
            raise UnsuitableError("synonym and antonym", "no word that has both in one of its frequent senses")
        return kept

    def _negation(self, one: Suitable, token: Token) -> Negation:
        negation = self.language.negate(token)
        if negation.text == one.negation.text and not self.same_negations:
            raise CannotNegateError("the negation of the word is that of the main verb")
        return negation


@dataclass(frozen=True, kw_only=True)
class ContextChooser(Chooser):
    """Chooses by what a masked language model makes of the candidates in their place."""

    wordnet: WordNet
    model: MaskedModel
    judge: Confidence

    def in_context(self, choices: Sequence[Choice]) -> list[Choice | None]:
        """The surest synonym, antonym and an unrelated word of each; None where one of them is missing."""
        known, slots, near = self.look(choices)
        return [self._best(*four) for four in zip(choices, known, slots, near, strict=True)]

    def look(
        self, choices: Sequence[Choice]
    ) -> tuple[list[dict[str, Evidence]], list[list[str]], list[dict[str, float]]]:
        """For each choice the evidence of its candidates, unrelated words, and how alike all are to the word."""
        slots = self.model.slots([one.ask(*(c.word for c in one.candidates)) for one in choices])
        likely = [self._likeliest(one, slot) for one, slot in zip(choices, slots, strict=True)]
        random = [self._unrelated(one, slot) for one, slot in zip(choices, slots, strict=True)]
        words = [
            one.ask(*(word for c in one.candidates for word in (c.word, c.via) if word), *fillers)
            for one, fillers in zip(likely, random, strict=True)
        ]
        near = self.model.similarities(words)
        known = [
            {
                c.word: Evidence(alike[c.word], c.prior, slot.words[c.word], c.has_prefix(one.token.lower_))
                for c in one.candidates
                if not c.via or alike[c.via] >= BETWEEN
            }
            for one, slot, alike in zip(likely, slots, near, strict=True)
        ]
        return known, random, near

    def _likeliest(self, one: Choice, slot: Slot) -> Choice:
        """The choice with `LOOKED_AT` candidates of each kind.

        None that neither WordNet nor the model has met, but for a word's own antonym: uninteresting for interesting.
        """

        def best(relation: str, candidates: Sequence[Candidate]) -> list[Candidate]:
            met = [c for c in candidates if c.counted or c.source == "direct" or math.isfinite(slot.words[c.word])]
            odds = {c: self.judge.log_odds(relation, Evidence(0.0, c.prior, slot.words[c.word])) for c in met}
            return sorted(met, key=lambda c: (-odds[c], c.lemma))[:LOOKED_AT]

        return replace(one, synonyms=best("synonym", one.synonyms), antonyms=best("antonym", one.antonyms))

    def _best(
        self, one: Choice, known: Mapping[str, Evidence], fillers: Sequence[str], near: Mapping[str, float]
    ) -> Choice | None:
        synonym, sure = self._surest("synonym", one.synonyms, known)
        antonym, surer = self._surest("antonym", one.antonyms, known)
        random = [word for word in fillers if near[word] < RELATED]
        if synonym is None or antonym is None or not random or synonym.lemma == antonym.lemma:
            return None
        return replace(one, synonyms=[synonym], antonyms=[antonym], fillers=random, confidence=both(sure, surer))

    def _surest(
        self, relation: str, candidates: Sequence[Candidate], known: Mapping[str, Evidence]
    ) -> tuple[Candidate | None, float]:
        """The surest candidate with its log-odds; None when it is not sure enough."""
        odds = {c: self.judge.log_odds(relation, known[c.word]) for c in candidates if c.word in known}
        best = max(odds, key=lambda c: (odds[c], c.lemma), default=None)
        return (best, odds[best]) if best is not None and odds[best] >= SURE[relation] else (None, 0.0)

    def _unrelated(self, one: Choice, slot: Slot) -> list[str]:
        """The likeliest words in the same form that have nothing to do with the word (section 2.2.4)."""
        token, (lemma, *_) = one.token, self.language.lemmas(one.token.lower_, one.token)
        related = self.wordnet.relatives(lemma) | self.language.forms(lemma)
        taboo = related | {form for word in token.doc for form in (word.lower_, word.lemma_)}
        least = min(max(slot.fillers.values(), default=0.0) - FILLER_GAP, FLUENT)
        likely = (word for word, probability in slot.fillers.items() if probability >= least and word not in taboo)
        return [word for word in likely if self._may_stand(token, lemma, word, taboo)][:RANDOM]

    def _may_stand(self, token: Token, lemma: str, word: str, taboo: set[str] | frozenset[str]) -> bool:
        """Whether a word, mostly of the same part of speech and unrelated to a lemma, may stand for a token."""
        part = self.language.part(token)
        lemmas = [one for one in self.language.lemmas(word, token) if self.wordnet.is_mostly(one, part)]
        lemmas = [one for one in lemmas if one not in word_lists()["light"] and not token.vocab[one].like_num]
        if taboo & {*lemmas} or any(lemma in self.wordnet.relatives(one) for one in lemmas):
            return False
        usual = ((one, sense.synset) for one in lemmas for sense in self.wordnet.senses(one, part)[:1])
        return any(self.language.fits(token, synset, one) for one, synset in usual)
