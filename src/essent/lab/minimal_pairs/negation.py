"""English negation on a dependency tree: at the main verb, or at any verb or adjective (HEROS, section 2.2.6).

What is not negated gets "not", with do-support where no auxiliary carries it; what is negated loses its "not" and keeps
the auxiliary, as the paper does: "You do not know" → "You do know".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from essent.lab.minimal_pairs.parsing import Edit, Negation, Token, UnsuitableError, like_case, word_lists

SUBJECT = ("nsubj", "nsubjpass", "csubj", "csubjpass", "expl")
FINITE = ("VBZ", "VBP", "VBD", "MD")
BE = ("am", "is", "are", "was", "were", "'m", "'re", "'s")
NEGATORS = ("not", "n't", "never")
STEMS = {"ca": "can", "wo": "will", "sha": "shall"}
OWN_CLAUSE = ("ccomp", "advcl", "relcl", "acl", "conj", "csubj", "csubjpass", "parataxis", "pcomp")
IDIOMS = {("ai", "n't"), ("had", "better"), ("'d", "better"), ("would", "rather"), ("'d", "rather"), ("got", "ta")}
POINTING = ("the", "this", "that", "these", "those")
GRADED = ("ADJ", "ADV")
SUPPORT = {"VBZ": "does", "VBP": "do", "VBD": "did"}


def carrier(verb: Token) -> Token | None:
    """The finite word of a verb's group, which "not" follows: its first auxiliary or itself; None for an infinitive."""
    group = [child for child in verb.lefts if child.dep_ in ("aux", "auxpass")]
    return next((word for word in (*group, verb) if word.tag_ in FINITE), None)


def subject(verb: Token) -> Token | None:
    """The subject beside a verb."""
    return next((child for child in verb.children if child.dep_ in SUBJECT), None)


def negator(verb: Token) -> Token | None:
    """The "not" or "never" of a verb."""
    return next((child for child in verb.children if child.dep_ == "neg" and child.lower_ in NEGATORS), None)


def negate_verb(verb: Token) -> Negation:
    """Put or take the "not" of a verb group; for an infinitive of "going to", "have to" … that of its governor."""
    _check_negatives(verb)
    finite = carrier(verb)
    if _is_governed(verb):
        return negate_adjective(verb.head) if verb.head.tag_.startswith("JJ") else negate_verb(verb.head)
    if finite is not None:
        _check_idioms(verb, finite)
    if (no := negator(verb)) is not None:
        return _take(verb, no)
    _check_adverbs(verb, finite)
    if finite is None:
        return _put_before(verb)
    if finite.lemma_ == "get" or (finite == verb and not (verb.lower_ in BE or verb.tag_ == "MD")):
        return _put_with_do(finite)
    return _put_after(finite)


def negate_adjective(adjective: Token) -> Negation:
    """Not at the verb of its clause: "It does not look good", "He did not read a good book" (but "the good book").

    Where something stands between the two, before the adjective: "It is (or was) not illegal".
    """
    predicate = adjective.dep_ == "acomp"
    verb = adjective.head if predicate else _verb_of(adjective.head)
    if verb is None or verb.i > adjective.i or not (carrier(verb) is not None or _is_governed(verb)):
        raise UnsuitableError("main verb", "an adjective that no 'not' at a verb reaches")
    grades = [token.left_edge.i for token in adjective.lefts if token.dep_ in ("advmod", "npadvmod")]
    first = adjective.doc[min([*grades, adjective.i])]  # *very* good
    between = adjective.doc[verb.i + 1 : first.i]
    parted = any(token.head != verb and not adjective.is_ancestor(token) for token in between)
    if not (predicate and parted and verb.lemma_ == "be") or negator(verb) is not None:
        return negate_verb(verb)
    _check_negatives(verb)
    return Negation.of(adjective.doc, [Edit(first.idx, first.idx, "not ")], "not before the adjective")


def _is_governed(verb: Token) -> bool:
    """Whether the "not" of an infinitive stands at the verb before it: "is (not) going to *find*"."""
    governed = verb.tag_ == "VB" and verb.dep_ == "xcomp" and verb.head.lemma_ in word_lists()["semi-modal"]
    return governed and carrier(verb) is None


def _verb_of(noun: Token) -> Token | None:
    """The verb of an indefinite object, or of a complement: "It is (not) my old phone"."""
    beside = [child for child in noun.lefts if child.dep_ in ("det", "poss", "nummod", "neg", "predet")]
    if noun.dep_ == "attr" and noun.head.lemma_ == "be":
        beside = [child for child in beside if child.dep_ not in ("poss", "nummod") and child.lower_ not in POINTING]
    if noun.tag_.startswith("NNP") or any(child.lower_ not in ("a", "an") for child in beside):
        return None
    phrase = noun.head if noun.dep_ == "pobj" and noun.head.dep_ == "prep" else noun
    fitting = phrase != noun or noun.dep_ in ("attr", "dobj")
    return phrase.head if fitting and phrase.head.pos_ in ("VERB", "AUX") else None


def _clause(verb: Token) -> Iterator[Token]:
    """The words of a verb's own clause: not those of clauses inside or beside it."""
    yield verb
    for child in verb.children:
        if child.dep_ not in OWN_CLAUSE or (child.dep_ == "ccomp" and carrier(child) is None):
            yield from _clause(child)


def _check_negatives(verb: Token) -> None:
    """Refuse a verb in whose clause another word negates: "I have no idea", but not "I hope that it never rains"."""
    for word in _clause(verb):
        negates = word.lower_ in word_lists()["negative"] and word.dep_ != "intj" and word != negator(verb)
        if negates or (word.lower_ in NEGATORS and word.head != verb and word.i < verb.i):
            raise UnsuitableError("main verb", f"negated by {word.lower_!r}")
    if verb.dep_ == "conj" and subject(verb) is None and negator(verb.head) is not None:
        raise UnsuitableError("main verb", "shares the negation of another verb")


def _check_idioms(verb: Token, finite: Token) -> None:
    """Refuse groups that take no "not", or lose no "not"."""
    if any((finite.lower_, token.lower_) in IDIOMS for token in verb.doc[finite.i + 1 : finite.i + 3]):
        raise UnsuitableError("main verb", "an idiom that takes no 'not': ain't, had better, would rather, gotta")
    if verb.lemma_ == "be" and any(
        _is_bare_clause(token) or _is_indefinite_existential(token) for token in verb.rights
    ):
        raise UnsuitableError("main verb", "'be' before a clause without 'that', or 'there is' with 'some' or 'few'")
    alone = not any(token.dep_ in ("dobj", "advmod", "prep") for token in verb.rights)
    if verb.lemma_ == "do" and finite == verb and alone:
        raise UnsuitableError("main verb", "a form of do that stands for another verb")


def _is_bare_clause(word: Token) -> bool:
    """Whether a clause is all that follows a form of be, without a word that begins it: "The thing is *they left*"."""
    alone = not any(token.dep_ in ("acomp", "attr", "prep") for token in word.head.rights)  # but: I am glad they left
    before = word.doc[word.left_edge.i : word.i]
    introduced = any(token.tag_[:1] in ("W", "I") for token in before)  # exactly what I thought
    return alone and not introduced and word.dep_ == "ccomp" and carrier(word) is not None


def _is_indefinite_existential(word: Token) -> bool:
    """Whether a word is what there are some or few of: "There are quite a few cars"."""
    existential = word.dep_ == "attr" and any(token.dep_ == "expl" for token in word.head.lefts)
    return existential and any(token.lower_ in ("some", "few") for token in word.lefts)


def _check_adverbs(verb: Token, finite: Token | None) -> None:
    """Refuse to put "not" beside an adverb that does not go with it."""
    after = verb.doc[finite.i + 1 : finite.i + 3] if finite is not None else ()
    beside = {token.lower_ for token in (*verb.children, *after)} - ({"already"} if finite != verb else set())
    if positive := word_lists()["positive adverb"] & beside:
        raise UnsuitableError("main verb", f"{min(positive)!r} does not go with 'not'")
    if any(
        token.lower_ == "too" and (token.i > token.head.i or token.head.pos_ not in GRADED) for token in _clause(verb)
    ):
        raise UnsuitableError("main verb", "'too' does not go with 'not'")  # in the sense of "also"
    if any(token.lower_ in ("either", "yet") for token in (*after, *verb.doc[verb.i + 1 : verb.i + 2])):
        raise UnsuitableError("main verb", "'either' or 'yet' at the verb")


def _take(verb: Token, no: Token) -> Negation:
    """Without the negator."""
    if not no.i:
        raise UnsuitableError("main verb", "negated at the beginning")
    if no.i + 1 < len(no.doc) and no.nbor().lower_ == "even":
        raise UnsuitableError("main verb", "'even' wants its negation")
    after = " ".join(word.lower_ for word in verb.subtree if word.i > no.i and not _is_coordinate(word, verb))
    if polar_words := [
        polar_word for polar_word in sorted(word_lists()["polarity"]) if re.search(rf"\b{polar_word}\b", after)
    ]:
        raise UnsuitableError("main verb", f"{polar_words[0]!r} wants its negation")
    before, blank = no.nbor(-1), len(no.nbor(-1).whitespace_)  # no blank in cannot
    edit = Edit(no.idx - blank, no.idx + len(no), "")
    if no.lower_ == "n't":
        stem = STEMS.get(before.lower_, before.lower_)
        edit = Edit(before.idx, no.idx + len(no), like_case(stem, before.text[:1]))
    return Negation.of(verb.doc, [edit], "never removed" if no.lower_ == "never" else "not removed")


def _is_coordinate(word: Token, verb: Token) -> bool:
    """Whether a word is in a clause beside the verb's, with a subject of its own."""
    chain = [word, *(token for token in word.ancestors if token.i != verb.i and verb.is_ancestor(token))]
    return any(token.dep_ in ("conj", "parataxis") and subject(token) is not None for token in chain)


def _put_before(verb: Token) -> Negation:
    """Not before an infinitive's "to", or before a bare infinitive or participle."""
    group = [child.i for child in verb.lefts if child.dep_ in ("aux", "auxpass")]
    first = verb.doc[min([*group, verb.i])]
    if first.i == 0:
        raise UnsuitableError("main verb", "a fragment")
    if verb.dep_ == "pcomp" and verb.head.lower_ == "without":
        raise UnsuitableError("main verb", "negated by 'without'")
    if verb.tag_ == "VB" and verb.dep_ not in ("xcomp", "ccomp", "csubj"):
        raise UnsuitableError("main verb", "an infinitive that takes no 'not' of its own")
    return Negation.of(verb.doc, [Edit(first.idx, first.idx, "not ")], "not before the verb")


def _put_after(finite: Token) -> Negation:
    """Not after an auxiliary and the adverbs that are about the whole sentence."""
    doc, last = finite.doc, finite
    while last.i + 1 < len(doc) and last.nbor().lower_ in word_lists()["sentence adverb"]:
        last = last.nbor()
    end = last.idx + len(last)
    edit = Edit(end, end, "not" if finite.lower_ == "can" and last == finite else " not")
    if last.i + 1 < len(doc) and last.nbor().lower_ == "'ve":  # must've: must not have
        edit = Edit(end, end + len("'ve"), " not have")
    return Negation.of(doc, [edit], "not after the auxiliary")


def _put_with_do(verb: Token) -> Negation:
    """Do, does or did with not, and the verb's base; before adverbs at the verb: he does not always forget."""
    if not verb.is_alpha:
        raise UnsuitableError("main verb", "an unknown verb")
    first = verb
    while first.i > 1 and first.nbor(-1).head == verb and _is_of_the_verb(first.nbor(-1)):
        first = first.nbor(-1)
    put = like_case(SUPPORT[verb.tag_], verb.text[:1]) if not verb.i else SUPPORT[verb.tag_]
    edits = [Edit(first.idx, first.idx, f"{put} not "), Edit(verb.idx, verb.idx + len(verb), verb.lemma_)]
    return Negation.of(verb.doc, edits, "do-support")


def _is_of_the_verb(adverb: Token) -> bool:
    """Whether "not" comes before an adverb of one word that says how or when, and nothing about the statement."""
    joined = any(adverb.children) or adverb.nbor(-1).tag_ == "CC"  # very quickly, quickly and quietly
    return (
        not joined
        and adverb.dep_ == "advmod"
        and adverb.tag_ == "RB"
        and adverb.lower_ not in word_lists()["sentence adverb"]
    )
