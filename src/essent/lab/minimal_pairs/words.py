"""The choice of a word and its replacements: WordNet's candidates, scored in context by a masked language model.

Source: Chiang et al. 2023, sections 2.2.2 to 2.2.4; the authors chose the words by hand. The model here predicts masked
words, so that no encoder that is evaluated later has chosen the pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import TypeAlias

from essent.lab.minimal_pairs.english import negate, part_of_speech, replaceable
from essent.lab.minimal_pairs.parsing import (
    Doc,
    Token,
    UnsuitableError,
    attempt,
    inflect,
    lemmas,
    levenshtein,
    read_table,
    spellings,
    text_of,
    word_lists,
)
from essent.lab.minimal_pairs.resources import (
    RELATIONS,
    Evidence,
    Lemma,
    MaskedModel,
    Query,
    WordNet,
    probability,
    spelled,
)

SYNONYM_WEIGHT = 3.0  # weight of the synonym's log-probability; the antonym's has 1, since it fails less often


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
UNCOUNTED = 2.0  # penalty for a word that does not occur in WordNet's tagged texts
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
        prior: log of the share of the sense, minus the penalty of the relation.
        prefix: whether it, or `via`, differs from the word by a prefix only: unhappy.
        via: the near synonym whose antonym it is; else "".
    """

    relation: str
    lemma: str
    word: str
    prior: float
    prefix: bool = False
    via: str = ""


Offer: TypeAlias = tuple[str, str, Lemma, str]  # synonym or antonym, WordNet's relation, the candidate, via


@cache
def _excluded() -> set[tuple[str, ...]]:
    """Return replacements that seldom fit: word, "synonym" or "antonym", replacement."""
    return {(row["word"], row["relation"], row["other"]) for row in read_table("excluded.tsv")}


def substitutes(token: Token, wordnet: WordNet) -> list[Candidate]:
    """Return synonyms and antonyms in a word's frequent senses, each word once; empty unless both kinds exist.

    Words of the sentence, words in data/excluded.tsv and light words are excluded.
    """
    lemma, part = lemmas(token.lower_, token.tag_)[0], part_of_speech(token)
    excluded_words = _forms_in_sentence(token) | spellings(lemma) | word_lists()["light"]
    best: dict[str, dict[str, Candidate]] = {relation: {} for relation in RELATIONS}
    senses = wordnet.senses(lemma, part)
    total = sum(uses + 0.5 for uses, _ in senses)  # add-half
    for number, (uses, sense) in enumerate(senses[:SENSES]):
        share = (uses + 0.5) / total
        for offer in _offers(sense, part, wordnet) if share >= SHARE or not number else ():
            relation, word = offer[0], spelled(offer[2])
            if word in excluded_words or (lemma, relation, word) in _excluded():
                continue
            if (candidate := _candidate(token, part, offer, math.log(share), wordnet)) is not None:
                best[relation][word] = max(best[relation].get(word, candidate), candidate, key=lambda c: c.prior)
    synonyms, antonyms = (
        [candidate for word, candidate in best[relation].items() if word not in best[other]]
        for relation, other in (RELATIONS, RELATIONS[::-1])
    )
    direct = [candidate for candidate in antonyms if not candidate.via]  # preferred to antonyms of near synonyms
    return [*synonyms, *(direct or antonyms)] if synonyms and antonyms else []


def _forms_in_sentence(token: Token) -> set[str]:
    return {form for word in token.doc for form in (word.lower_, word.lemma_)}


def _offers(sense: Lemma, part: str, wordnet: WordNet) -> Iterator[Offer]:
    """Yield words of the synset and of similar, broader and narrower ones; antonyms of all but the narrower words."""
    synset, word = sense.synset(), spelled(sense)
    similar = [("similar", synonym) for synonym in synset.similar_tos()]
    similar += [("hypernym", hypernym) for hypernym in synset.hypernyms()]
    hyponyms = [("hyponym", hyponym) for hyponym in synset.hyponyms()]
    for source, other in [("synset", synset), *similar, *hyponyms]:
        max_rank = 2 if source in ("synset", "similar") else 1
        for lemma in other.lemmas():
            if wordnet.rank(lemma, part) <= max_rank and not _same_stem(spelled(lemma), word):
                yield "synonym", source, lemma, ""
    heads = [("direct" if head == sense else "through synset", head) for head in synset.lemmas()]
    heads += [(f"through {source}", head) for source, other in similar for head in other.lemmas()]
    for source, head in heads:
        for antonym in head.antonyms():
            yield "antonym", source, antonym, "" if source == "direct" else spelled(head)


def _candidate(token: Token, part: str, offer: Offer, prior: float, wordnet: WordNet) -> Candidate | None:
    """Inflect an offer like the replaced word; None unless it is a single word of letters that fits the sentence."""
    relation, source, offered, near_synonym = offer
    lemma = spelled(offered)
    word, via = (inflect(form, token.tag_) if form else "" for form in (lemma, near_synonym))
    if not word or via is None or not word.isalpha() or not fits(token, set(offered.frame_ids())):
        return None
    pairs = [sorted((word, base), key=len) for base in (token.lower_, via) if base]
    prefix = any(longer == prefix + shorter for shorter, longer in pairs for prefix in PREFIXES)
    rare = UNCOUNTED if wordnet.count(lemma, part) == 0 else 0.0
    return Candidate(relation, lemma, word, prior - PENALTY[source] - rare, prefix, via)


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


def _same_stem(first: str, second: str) -> bool:
    """Whether two words are too similar to be synonyms (grey and gray, fresh and refreshing); antonyms may be."""
    return first in second or second in first or levenshtein(first, second) <= 2 + (len(first) > 7)


# -- the choice -------------------------------------------------------------------------------------------------------

SURE = 0.35  # minimum probability that a synonym or antonym is good
BETWEEN, RELATED = 0.42, 0.50  # minimum similarity of `Candidate.via`; maximum of an unrelated word
FILLER_GAP = 3.0  # maximum difference (natural log) between the most probable word and a random one
FLUENT = math.log(0.01)  # log-probability from which a random word is fluent, whatever the gap
COMPARED, RANDOM = 8, 6  # number of synonyms, of antonyms, and of random words whose states are compared


@dataclass(frozen=True)
class Choice:
    """A word of a sentence, its negation, its replacements, and the probability that each replacement is good."""

    token: Token
    negation: str
    candidates: Sequence[Candidate] = ()
    filler: str = ""
    chances: Sequence[float] = ()

    @property
    def text(self) -> str:
        """The sentence."""
        return text_of(self.token.doc)

    def query(self, *words: str) -> Query:
        """Return the query that scores words in place of this one."""
        start = self.token.idx
        return Query(self.text, start, start + len(self.token), tuple(dict.fromkeys(words)))


def negatable(doc: Doc) -> list[Choice]:
    """Return the words of a sentence that can be replaced and negated, with their negations.

    Raises:
        UnsuitableError: there are none; the message is the reason.
    """
    negations = {token: attempt(negate, token) for token in replaceable(doc)}
    if not negations:
        raise UnsuitableError("no verb or adjective that can be replaced")
    choices = [Choice(token, negation) for token, negation in negations.items() if isinstance(negation, str)]
    if not choices:
        raise UnsuitableError(str(list(negations.values())[-1]))
    return choices


def choose(
    sentences: Sequence[Sequence[Choice]], wordnet: WordNet, model: MaskedModel
) -> list[Choice | UnsuitableError]:
    """Choose for each sentence the word whose synonym and antonym are most probably good."""
    offered = [[replace(choice, candidates=substitutes(choice.token, wordnet)) for choice in row] for row in sentences]
    offered = [[choice for choice in choices if choice.candidates] for choices in offered]
    flat = [choice for choices in offered for choice in choices]
    best = map(_best, flat, compare(flat, wordnet, model))
    chosen: list[Choice | UnsuitableError] = []
    for choices in offered:
        reason = "no word has both a synonym and an antonym in one of its frequent senses"
        if choices:
            reason = "no synonym, antonym and random word fit into the sentence"
        filled = filter(None, islice(best, len(choices)))
        chosen.append(max(filled, key=lambda choice: both(*choice.chances), default=UnsuitableError(reason)))
    return chosen


def compare(
    choices: Sequence[Choice], wordnet: WordNet, model: MaskedModel
) -> list[tuple[dict[Candidate, Evidence], list[str]]]:
    """Return, for each choice, the evidence for its candidates, and unrelated words, most probable first."""
    scores = model.mask_scores([choice.query(*(c.word for c in choice.candidates)) for choice in choices])
    queries = []
    for choice, (logs, probable) in zip(choices, scores, strict=True):
        ranked = _ranked({c: Evidence(0.0, c.prior, logs[c.word]) for c in choice.candidates})
        candidates = [c for relation in RELATIONS for c in [c for c in ranked if c.relation == relation][:COMPARED]]
        fillers = _unrelated(choice.token, probable, wordnet)
        words = [word for c in candidates for word in (c.word, c.via) if word]
        queries.append((choice.query(*words, *fillers), logs, candidates, fillers))
    compared = []
    similarities = model.similarities([query for query, *_ in queries])
    for (_, logs, candidates, fillers), similarity in zip(queries, similarities, strict=True):
        evidence = {
            c: Evidence(similarity[c.word], c.prior, logs[c.word], c.prefix)
            for c in candidates
            if not c.via or similarity[c.via] >= BETWEEN
        }
        compared.append((evidence, [word for word in fillers if similarity[word] < RELATED]))
    return compared


def _ranked(evidence: Mapping[Candidate, Evidence]) -> dict[Candidate, float]:
    """Return the probability that each candidate is good, the highest first."""
    chances = {c: probability(c.relation, its_evidence) for c, its_evidence in evidence.items()}
    return dict(sorted(chances.items(), key=lambda entry: (-entry[1], entry[0].lemma)))


def _best(choice: Choice, compared: tuple[Mapping[Candidate, Evidence], Sequence[str]]) -> Choice | None:
    """Return the choice with its best synonym, best antonym and most probable filler; None if one is missing."""
    evidence, fillers = compared
    chances = _ranked(evidence)
    best = {c.relation: c for c in reversed(chances) if chances[c] >= SURE}
    if len(best) < len(RELATIONS) or not fillers:
        return None
    pair = [best[relation] for relation in RELATIONS]
    return replace(choice, candidates=pair, filler=fillers[0], chances=[chances[c] for c in pair])


def _unrelated(token: Token, probable: Mapping[str, float], wordnet: WordNet) -> list[str]:
    """Return the most probable words in the same form that are unrelated to the word (section 2.2.4).

    `probable` are the logarithms of the probabilities of words, the most probable first.
    """
    lemma, part = lemmas(token.lower_, token.tag_)[0], part_of_speech(token)
    excluded_words = _forms_in_sentence(token) | wordnet.relatives(lemma) | spellings(lemma)
    light = word_lists()["light"] | word_lists()["not random"]

    def fits_unrelated(word: str) -> bool:
        forms = [form for form in lemmas(word, token.tag_) if wordnet.is_mostly(form, part)]
        forms = [form for form in forms if form not in light and not token.vocab[form].like_num]
        if any(form in excluded_words or lemma in wordnet.relatives(form) for form in forms):
            return False
        first_senses = (sense for form in forms for _, sense in wordnet.senses(form, part)[:1])
        return any(fits(token, set(sense.frame_ids())) for sense in first_senses)

    least = min(max(probable.values(), default=0.0) - FILLER_GAP, FLUENT)
    words = (word for word, log in probable.items() if log >= least and word not in excluded_words)
    return list(islice(filter(fits_unrelated, words), RANDOM))
