"""The choice of a word and its replacements: WordNet's candidates, scored in context by a masked language model.

A logistic regression estimates the probability that a synonym or an antonym is good in context. Its coefficients are in
data/coefficients.json; `essent lab minimal-pairs fit` writes such a file from labels, with their digest.

Source: Chiang et al. 2023, sections 2.2.2 to 2.2.4; the authors chose the words by hand. The model here predicts masked
words, so that no encoder that is evaluated later has chosen the pairs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from essent._core.atomic import write_json
from essent.errors import DataError
from essent.lab.minimal_pairs.english import negate, part_of_speech, replaceable
from essent.lab.minimal_pairs.masked import Asked, MaskedModel, Slot
from essent.lab.minimal_pairs.overlap import levenshtein
from essent.lab.minimal_pairs.parsing import (
    DATA,
    Doc,
    Negation,
    Token,
    UnsuitableError,
    attempt,
    inflect,
    lemmas,
    read_table,
    spellings,
    word_lists,
)
from essent.lab.minimal_pairs.wordnet import Lemma, WordNet, spelled

UNSEEN, LEAST = -12.0, -14.0  # log-probability of a word without a token, and the lower limit
SYNONYM_WEIGHT = 3.0  # of the synonym's log-probability against the antonym's: synonyms fail more often
RELATIONS = ("synonym", "antonym")


class Evidence(NamedTuple):
    """The features of a replacement in context.

    Attributes:
        similarity: of its state and the replaced word's, minus the similarity of unrelated words.
        prior: log share of the sense, minus the penalties of WordNet's relation to it.
        probability: its log-probability in context; -inf if it is not a single token.
        prefix: whether it differs from the word by a prefix only: unhappy.
    """

    similarity: float
    prior: float
    probability: float
    prefix: bool = False

    def terms(self) -> dict[str, float]:
        """Return the terms of the regression by name."""
        likely = max(self.probability, LEAST) if math.isfinite(self.probability) else UNSEEN
        return {**self._asdict(), "probability": likely, "prefix": float(self.prefix)}


@dataclass(frozen=True)
class Confidence:
    """Coefficients for synonyms and antonyms by name of the term, and a description of the labels behind them."""

    coefficients: Mapping[str, Mapping[str, float]]
    fitted_on: Mapping[str, Any]

    @staticmethod
    @cache
    def load(path: Path = DATA / "coefficients.json") -> Confidence:
        """Read a file of `essent lab minimal-pairs fit`.

        Raises:
            DataError: the file is not readable, or not such a file.
        """
        try:
            coefficients = json.loads(path.read_text("utf-8"))
            return Confidence({relation: coefficients[relation] for relation in RELATIONS}, coefficients["fitted_on"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} has no coefficients of `essent lab minimal-pairs fit`: {error!r}.") from error

    def save(self, path: str | Path) -> None:
        """Write a file that `load` reads."""
        write_json(path, {"fitted_on": dict(self.fitted_on), **self.coefficients})

    def chance(self, relation: str, evidence: Evidence) -> float:
        """Return the probability that the replacement is a good synonym or antonym."""
        weights, terms = self.coefficients[relation], {"constant": 1.0, **evidence.terms()}
        return 1 / (1 + math.exp(-sum(weight * terms[name] for name, weight in weights.items())))


def both(synonym: float, antonym: float) -> float:
    """Combine the probabilities of a synonym and an antonym into the score that ranks originals."""
    return SYNONYM_WEIGHT * math.log(synonym) + math.log(antonym)


# -- WordNet's candidates for a word ----------------------------------------------------------------------------------

SHARE, SENSES = 0.08, 4  # minimum share of a word's tagged uses per sense; maximum number of senses
PENALTY = {  # natural log, by relation to the word
    "synset": 0.0,
    "similar": 1.5,
    "hyponym": 2.0,
    "hypernym": 2.5,
    "direct": 0.0,
    "through synset": 0.5,
    "through similar": 0.7,
    "through hypernym": 1.5,
}
UNCOUNTED = 2.0  # for a word that does not occur in WordNet's tagged texts
PREFIXES = ("un", "in", "im", "il", "ir", "dis", "non", "de", "mis")
FRAMES = {  # WordNet's sentence frames (wninput(5WN)) by the complement of a verb
    "object": {8, 9, 10, 11, 14, 15, 16, 17, 18, 19, 20, 21, 24, 25, 30, 31},
    "nothing": {1, 2, 3, 4, 12, 13, 22, 23, 27},
    "clause": {26, 29, 34},
    "to": {24, 28, 29},
    "gerund": {33},
}


@dataclass(frozen=True)
class Candidate:
    """A replacement, inflected like the word that it replaces.

    Attributes:
        relation: "synonym" or "antonym".
        lemma, word: e.g. "increase" and "increased".
        source: WordNet's relation and the sense of the replaced word: "similar, adj 01586342".
        prior: log of the share of the sense, minus the penalty of the relation.
        prefix: whether it, or `via`, differs from the word by a prefix only: unhappy.
        via: the near synonym whose antonym it is; else "".
    """

    relation: str
    lemma: str
    word: str
    source: str
    prior: float
    prefix: bool = False
    via: str = ""


Offer: TypeAlias = tuple[str, str, Lemma, str]  # synonym or antonym, WordNet's relation, the candidate, via


def substitutes(token: Token, wordnet: WordNet) -> list[Candidate]:
    """Return synonyms and antonyms in a word's frequent senses, each word once; empty unless there are both.

    Words of the sentence, words in data/excluded.tsv and light words are excluded.
    """
    lemma, part = lemmas(token.lower_, token.tag_)[0], part_of_speech(token)
    sentence_forms = {form for word in token.doc for form in (word.lower_, word.lemma_)} | spellings(lemma)
    barred = sentence_forms | word_lists()["light"]
    best: dict[str, dict[str, Candidate]] = {relation: {} for relation in RELATIONS}
    senses = wordnet.senses(lemma, part)
    total = sum(uses + 0.5 for uses, _ in senses)  # add-half
    for number, (uses, sense) in enumerate(senses[:SENSES]):
        share = (uses + 0.5) / total
        for offer in _offers(sense, part, wordnet) if share >= SHARE or not number else ():
            relation, word = offer[0], spelled(offer[2])
            if word in barred or (lemma, relation, word) in _excluded():
                continue
            if (candidate := _candidate(token, part, sense, offer, math.log(share), wordnet)) is not None:
                known = best[relation].get(word, candidate)
                best[relation][word] = max(known, candidate, key=lambda c: c.prior)
    same, opposite = best.values()
    synonyms = [candidate for word, candidate in same.items() if word not in opposite]
    antonyms = [candidate for word, candidate in opposite.items() if word not in same]
    direct = [candidate for candidate in antonyms if not candidate.via]  # preferred to antonyms of near synonyms
    return [*synonyms, *(direct or antonyms)] if synonyms and antonyms else []


def _offers(sense: Lemma, part: str, wordnet: WordNet) -> Iterator[Offer]:
    """Yield words of the synset and of similar, more general and more specific ones; antonyms of them and the word."""
    synset, word = sense.synset(), spelled(sense)
    near = [("similar", synonym) for synonym in synset.similar_tos()]
    near += [("hypernym", hypernym) for hypernym in synset.hypernyms()]
    below = [("hyponym", hyponym) for hyponym in synset.hyponyms()]
    for source, other in [("synset", synset), *near, *below]:
        usual = 2 if source in ("synset", "similar") else 1
        for lemma in other.lemmas():
            if wordnet.rank(lemma, part) <= usual and not _same_stem(spelled(lemma), word):
                yield "synonym", source, lemma, ""
    heads = [("direct" if head == sense else "through synset", head) for head in synset.lemmas()]
    heads += [(f"through {source}", head) for source, other in near for head in other.lemmas()]
    for source, head in heads:
        for antonym in head.antonyms():
            yield "antonym", source, antonym, "" if source == "direct" else spelled(head)


def _candidate(token: Token, part: str, sense: Lemma, offer: Offer, prior: float, wordnet: WordNet) -> Candidate | None:
    """Inflect an offer like the replaced word; None unless it is a single word of letters that fits the sentence."""
    relation, how, offered, between = offer
    lemma = spelled(offered)
    word, via = (inflect(form, token.tag_) if form else "" for form in (lemma, between))
    if not word or via is None or not word.isalpha() or not fits(token, set(offered.frame_ids())):
        return None
    pairs = [sorted((word, base), key=len) for base in (token.lower_, via) if base]
    prefix = any(longer == prefix + shorter for shorter, longer in pairs for prefix in PREFIXES)
    rare = UNCOUNTED if wordnet.count(lemma, part) == 0 else 0.0
    source = f"{how}, {part} {sense.synset().offset():08d}"
    return Candidate(relation, lemma, word, source, prior - PENALTY[how] - rare, prefix, via)


def fits(token: Token, frames: set[int]) -> bool:
    """Whether a word with these sentence frames of WordNet accepts the complements of the token."""
    return not frames or token.tag_.startswith("JJ") or any(frames & FRAMES[need] for need in _needs(token))


def _needs(verb: Token) -> tuple[str, ...]:
    """Return the kinds of complement of a verb; a replacement must accept one of them."""
    kinds = {child.dep_ for child in verb.children}
    if "ccomp" in kinds:
        return ("clause",)
    if (complement := next((child for child in verb.children if child.dep_ == "xcomp"), None)) is not None:
        return ("gerund",) if complement.tag_ == "VBG" else ("to",)
    if kinds & {"dobj", "nsubjpass"}:
        return ("object",)
    gap = verb.dep_ in ("relcl", "xcomp", "acl") or verb.head.dep_ in ("relcl", "xcomp")  # the book that I read
    return ("object", "nothing") if gap else ("nothing",)


@cache
def _excluded() -> frozenset[tuple[str, str, str]]:
    """Read the excluded replacements, which seldom fit: word, "synonym" or "antonym", replacement."""
    return frozenset((row["word"], row["relation"], row["other"]) for row in read_table("excluded.tsv"))


def _same_stem(first: str, second: str) -> bool:
    """Whether two words are too similar to be synonyms (grey and gray, fresh and refreshing); antonyms may be."""
    return first in second or second in first or levenshtein(first, second) <= 2 + (len(first) > 7)


# -- the choice -------------------------------------------------------------------------------------------------------

SURE = 0.35  # minimum probability that a synonym or antonym is good
BETWEEN, RELATED = 0.42, 0.50  # minimum similarity of `Candidate.via`; below the second, a random word is unrelated
FILLER_GAP = 3.0  # maximum difference (natural log) between the most probable word and a random one,
FLUENT = math.log(0.01)  # unless the random one has this log-probability
NO_WORD = ("synonym and antonym", "no word has both in one of its frequent senses")
MISFIT = ("in context", "no synonym, antonym and random word fit into the sentence")
LOOKED_AT, RANDOM = 8, 6  # number of synonyms, of antonyms, and of random words whose states are compared


@dataclass(frozen=True)
class Choice:
    """A word of a sentence, its negation, its replacements, and the probability that each candidate is good."""

    token: Token
    negation: Negation
    candidates: Sequence[Candidate] = ()
    filler: str = ""
    chances: Sequence[float] = ()

    def ask(self, *words: str) -> Asked:
        """Return the query that scores words in place of this one."""
        start = self.token.idx
        return Asked(str(self.token.doc.user_data["text"]), start, start + len(self.token), tuple(dict.fromkeys(words)))


def negatable(doc: Doc) -> list[Choice]:
    """Return the words of a sentence that can be replaced and negated, with their negations.

    Raises:
        UnsuitableError: there are none; the message is the reason.
    """
    negations = {token: attempt(negate, token) for token in replaceable(doc)}
    if not negations:
        raise UnsuitableError("replaceable word", "no verb or adjective that can be replaced")
    choices = [Choice(token, negation) for token, negation in negations.items() if isinstance(negation, Negation)]
    if not choices:
        raise UnsuitableError("negation of the word", str(list(negations.values())[-1]))
    return choices


@dataclass(frozen=True)
class Chooser:
    """Choice of words and replacements: WordNet's candidates, scored in context by a masked language model."""

    wordnet: WordNet
    model: MaskedModel
    confidence: Confidence

    def __call__(self, sentences: Sequence[Sequence[Choice]]) -> list[Choice | UnsuitableError]:
        """Choose for each sentence the word whose synonym and antonym are most probably good."""
        offered = [
            [replace(choice, candidates=substitutes(choice.token, self.wordnet)) for choice in choices]
            for choices in sentences
        ]
        offered = [[choice for choice in choices if choice.candidates] for choices in offered]
        flat = [choice for choices in offered for choice in choices]
        best = iter([self._best(choice, *looked_up) for choice, looked_up in zip(flat, self.look(flat), strict=True)])
        chosen: list[Choice | UnsuitableError] = []
        for choices in offered:
            fit = [choice for choice in (next(best) for _ in choices) if choice is not None]
            missing = UnsuitableError(*(MISFIT if choices else NO_WORD))
            chosen.append(max(fit, key=lambda choice: both(*choice.chances), default=missing))
        return chosen

    def look(self, choices: Sequence[Choice]) -> list[tuple[dict[Candidate, Evidence], list[str]]]:
        """Return for each choice the evidence of its candidates, and unrelated words, the most probable first."""
        slots = self.model.slots([choice.ask(*(c.word for c in choice.candidates)) for choice in choices])
        queries = []
        for choice, slot in zip(choices, slots, strict=True):
            candidates, fillers = self._likeliest(choice, slot), self._unrelated(choice.token, slot)
            words = [word for c in candidates for word in (c.word, c.via) if word]
            queries.append((choice.ask(*words, *fillers), slot, candidates, fillers))
        looked_up = []
        similarities = self.model.similarities([query for query, *_ in queries])
        for (_, slot, candidates, fillers), alike in zip(queries, similarities, strict=True):
            fit = [c for c in candidates if not c.via or alike[c.via] >= BETWEEN]
            evidence = {c: Evidence(alike[c.word], c.prior, slot.words[c.word], c.prefix) for c in fit}
            looked_up.append((evidence, [word for word in fillers if alike[word] < RELATED]))
        return looked_up

    def _likeliest(self, choice: Choice, slot: Slot) -> list[Candidate]:
        """Return the `LOOKED_AT` most probable candidates of each relation, before their states are compared."""
        evidence = {c: Evidence(0.0, c.prior, slot.words[c.word]) for c in choice.candidates}
        ordered = self._sorted(evidence)
        return [c for relation in RELATIONS for c in [c for c in ordered if c.relation == relation][:LOOKED_AT]]

    def _sorted(self, evidence: Mapping[Candidate, Evidence]) -> dict[Candidate, float]:
        """Return the probability that each candidate is good, the highest first."""
        chances = {c: self.confidence.chance(c.relation, known) for c, known in evidence.items()}
        return dict(sorted(chances.items(), key=lambda entry: (-entry[1], entry[0].lemma)))

    def _best(self, choice: Choice, known: Mapping[Candidate, Evidence], fillers: Sequence[str]) -> Choice | None:
        """Return the choice with its best synonym, best antonym and most probable filler; None if one is missing."""
        chances = self._sorted(known)
        first = {c.relation: c for c in reversed(chances) if chances[c] >= SURE}
        if len(first) < len(RELATIONS) or not fillers:
            return None
        pair = [first[relation] for relation in RELATIONS]
        return replace(choice, candidates=pair, filler=fillers[0], chances=[chances[c] for c in pair])

    def _unrelated(self, token: Token, slot: Slot) -> list[str]:
        """Return the most probable words in the same form that are unrelated to the word (section 2.2.4)."""
        lemma = lemmas(token.lower_, token.tag_)[0]
        sentence_forms = {form for word in token.doc for form in (word.lower_, word.lemma_)}
        taboo = sentence_forms | self.wordnet.relatives(lemma) | spellings(lemma)
        least = min(max(slot.fillers.values(), default=0.0) - FILLER_GAP, FLUENT)
        likely = (word for word, probability in slot.fillers.items() if probability >= least and word not in taboo)
        return [word for word in likely if self._may_stand(token, lemma, word, taboo)][:RANDOM]

    def _may_stand(self, token: Token, lemma: str, word: str, taboo: set[str]) -> bool:
        """Whether a word has mostly the token's part of speech, is unrelated to its lemma, and fits the sentence."""
        part, light = part_of_speech(token), word_lists()["light"] | word_lists()["not random"]
        own = [form for form in lemmas(word, token.tag_) if self.wordnet.is_mostly(form, part)]
        own = [form for form in own if form not in light and not token.vocab[form].like_num]
        if any(form in taboo or lemma in self.wordnet.relatives(form) for form in own):
            return False
        usual = (sense for form in own for _, sense in self.wordnet.senses(form, part)[:1])
        return any(fits(token, set(sense.frame_ids())) for sense in usual)
