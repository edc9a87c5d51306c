"""English negation on a dependency tree: at the main verb, or at any verb or adjective (HEROS, section 2.2.6).

What is not negated gets "not", with do-support where no auxiliary carries it; what is negated loses its "not" and keeps
the auxiliary, as the paper does: "You do not know" → "You do know".
"""

from __future__ import annotations

from collections.abc import Iterator

from essent.minimal_pairs.edits import Edit, like_case, word_lists
from essent.minimal_pairs.inflection import lemmas
from essent.minimal_pairs.language import SUBJECT, CannotNegateError, Negation, Token

FINITE = ("VBZ", "VBP", "VBD", "MD")
BE = ("am", "is", "are", "was", "were", "'m", "'re", "'s")
NEGATORS = ("not", "n't")
STEMS = {"ca": "can", "wo": "will", "sha": "shall"}
OWN_CLAUSE = ("ccomp", "advcl", "relcl", "acl", "conj", "csubj", "csubjpass", "parataxis", "pcomp")
IDIOMS = {("had", "better"), ("'d", "better"), ("would", "rather"), ("'d", "rather"), ("got", "ta")}
SUPPORT = {"VBZ": "does", "VBP": "do", "VBD": "did"}


def carrier(verb: Token) -> Token | None:
    """The finite word of a verb's group, which "not" follows: its first auxiliary or itself; None for an infinitive."""
    group = [child for child in verb.lefts if child.dep_ in ("aux", "auxpass")]
    return next((word for word in (*group, verb) if word.tag_ in FINITE), None)


def subject(verb: Token) -> Token | None:
    """The subject beside a verb."""
    return next((child for child in verb.children if child.dep_ in SUBJECT), None)


def clause(verb: Token) -> Iterator[Token]:
    """The words of a verb's own clause: not those of clauses inside or beside it."""
    yield verb
    for child in verb.children:
        if child.dep_ not in OWN_CLAUSE or (child.dep_ == "ccomp" and carrier(child) is None):
            yield from clause(child)


def negator(verb: Token) -> Token | None:
    """The "not" of a verb."""
    return next((child for child in verb.children if child.dep_ == "neg" and child.lower_ in NEGATORS), None)


def negate_verb(verb: Token) -> Negation:
    """Put or take the "not" of a verb group."""
    _check_negatives(verb)
    finite = carrier(verb)
    _check_idioms(verb, finite)
    no = negator(verb)
    if no is not None:
        return _take(verb, no)
    _check_adverbs(verb, finite)
    if finite is None:
        return _put_before(verb)
    if finite.lemma_ == "get" or (finite == verb and not (verb.lower_ in BE or verb.tag_ == "MD")):
        return _put_with_do(finite)
    return _put_after(finite)


def negate_adjective(adjective: Token) -> Negation:
    """Not before the adjective and what grades it; at the verb when a form of be stands right before."""
    first, head, doc = left_edge(adjective), adjective.head, adjective.doc
    article = doc[first - 1] if first and doc[first - 1].lower_ in ("a", "an") else None
    copula = head.head if adjective.dep_ == "amod" and head.dep_ == "attr" and article is not None else head
    start = article.i if article is not None and copula != head else first
    if copula.lemma_ == "be" and copula.i < start and all(one.head == copula for one in doc[copula.i + 1 : start]):
        return negate_verb(copula)
    if adjective.tag_ == "JJS":
        raise CannotNegateError("a superlative")
    if first == 0 or (doc[first - 1].i == doc[0].i and not doc[0].is_alpha):
        raise CannotNegateError("an adjective at the beginning")
    before = doc[first - 1]
    if before.lower_ in NEGATORS or before.lower_ in word_lists()["negative"] or negator(head) is not None:
        raise CannotNegateError("negated by another word")
    edits = [Edit(doc[first].idx, doc[first].idx, "not ")]
    if before.lower_ == "an":
        edits.append(Edit(before.idx, before.idx + 2, like_case("a", before.text[:1])))
    return Negation.of(doc, edits, "not before the adjective")


def left_edge(adjective: Token) -> int:
    """Place of the first word that grades an adjective: "*very* good", "*a little* sad"; its own without one."""
    grades = [child for child in adjective.lefts if child.dep_ in ("advmod", "npadvmod")]
    edge = min([child.left_edge.i for child in grades], default=adjective.i)
    return int(edge if all(one.is_alpha for one in adjective.doc[edge : adjective.i]) else adjective.i)


def _check_negatives(verb: Token) -> None:
    """Refuse a verb in whose clause another word negates: "I have no idea", but not "I hope that it never rains"."""
    for word in clause(verb):
        if word.lower_ in word_lists()["negative"] and word.dep_ != "intj":
            raise CannotNegateError(f"negated by {word.lower_!r}")
        if word.lower_ in NEGATORS and word.head != verb and word.i < verb.i:
            raise CannotNegateError(f"negated by {word.lower_!r}")
    if verb.dep_ == "conj" and subject(verb) is None and negator(verb.head) is not None:
        raise CannotNegateError("shares the negation of another verb")


def _check_idioms(verb: Token, finite: Token | None) -> None:
    """Refuse groups that take no "not", or lose no "not"."""
    if finite is None:
        return
    if finite.lower_ == "ai":
        raise CannotNegateError("ain't")
    if any((finite.lower_, one.lower_) in IDIOMS for one in verb.doc[finite.i + 1 : finite.i + 3]):
        raise CannotNegateError("an idiom that takes no 'not': had better, would rather, gotta")
    alone = not any(one.dep_ in ("dobj", "advmod", "prep") for one in verb.rights)
    if verb.lemma_ == "do" and finite == verb and alone:
        raise CannotNegateError("a form of do that stands for another verb")


def _check_adverbs(verb: Token, finite: Token | None) -> None:
    """Refuse to put "not" beside an adverb that does not go with it."""
    after = verb.doc[finite.i + 1 : finite.i + 3] if finite is not None else ()
    beside = {one.lower_ for one in (*verb.children, *after)} - ({"too", "already"} if finite != verb else {"too"})
    if positive := word_lists()["positive adverb"] & beside:
        raise CannotNegateError(f"{min(positive)!r} does not go with 'not'")
    if any(one.lower_ in ("either", "yet") for one in (*after, *verb.doc[verb.i + 1 : verb.i + 2])):
        raise CannotNegateError("'either' or 'yet' at the verb")


def _take(verb: Token, no: Token) -> Negation:
    """Without the negator."""
    after = [word.lower_ for word in verb.subtree if word.i > no.i and not _is_coordinate(word, verb)]
    if wanted := word_lists()["polarity"] & {*after}:
        raise CannotNegateError(f"{min(wanted)!r} wants its negation")
    before = verb.doc[no.i - 1] if no.i else no
    if no.lower_ == "n't":
        stem = STEMS.get(before.lower_, before.lower_)
        edit = Edit(before.idx, no.idx + len(no), like_case(stem, before.text[:1]))
    elif no.i and not before.whitespace_:  # cannot
        edit = Edit(no.idx, no.idx + len(no), "")
    elif no.i:
        edit = Edit(no.idx - 1, no.idx + len(no), "")
    else:
        raise CannotNegateError("negated at the beginning")
    return Negation.of(verb.doc, [edit], "not removed")


def _is_coordinate(word: Token, verb: Token) -> bool:
    """Whether a word is in a clause beside the verb's, with a subject of its own."""
    chain = [word, *(one for one in word.ancestors if one.i != verb.i and verb.is_ancestor(one))]
    return any(one.dep_ in ("conj", "parataxis") and subject(one) is not None for one in chain)


def _put_before(verb: Token) -> Negation:
    """Not before an infinitive's "to", or before a bare infinitive or participle."""
    group = [child.i for child in verb.lefts if child.dep_ in ("aux", "auxpass")]
    place = verb.doc[min([*group, verb.i])]
    if place.i == 0:
        raise CannotNegateError("a fragment")
    return Negation.of(verb.doc, [Edit(place.idx, place.idx, "not ")], "not before the verb")


def _put_after(finite: Token) -> Negation:
    doc, last = finite.doc, finite
    while last.i + 1 < len(doc) and doc[last.i + 1].lower_ in word_lists()["sentence adverb"]:
        last = doc[last.i + 1]
    joined = finite.lower_ == "can" and last == finite
    end = last.idx + len(last)
    return Negation.of(doc, [Edit(end, end, "not" if joined else " not")], "not after the auxiliary")


def _put_with_do(verb: Token) -> Negation:
    base = lemmas(verb.lower_, verb.tag_)
    if not base:
        raise CannotNegateError("an unknown verb")
    before = verb.doc[verb.i - 1] if verb.i else verb
    put = f"{like_case(SUPPORT[verb.tag_], verb.text[:1]) if not verb.i else SUPPORT[verb.tag_]} not"
    if before.lower_ in word_lists()["frequency adverb"]:  # he always forgets: he does not always forget
        edits = [Edit(before.idx, before.idx, f"{put} "), Edit(verb.idx, verb.idx + len(verb), base[0])]
    else:
        edits = [Edit(verb.idx, verb.idx + len(verb), f"{put} {base[0]}")]
    return Negation.of(verb.doc, edits, "do-support")
