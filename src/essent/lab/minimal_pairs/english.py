"""English on a dependency tree: what is a statement, what agrees with what, and negation (HEROS, section 2.2.6).

What is not negated gets "not", with do-support where no auxiliary carries it; what is negated loses its "not" and keeps
the auxiliary, as the paper does: "You do not know" → "You do know".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from essent.lab.minimal_pairs.parsing import (
    UPOS,
    Doc,
    Edit,
    Negation,
    Token,
    UnsuitableError,
    apply_edits,
    article,
    lemmas,
    like_case,
    word_lists,
)

QUESTION = ("how", "what", "when", "where", "which", "who", "whom", "whose", "why")
IN_A_PHRASE = ("prt", "dative", "oprd", "acomp", "attr", "agent")  # what belongs to the meaning of its verb
WITH_MORE = ("as", "than", "most", "least", "one", "ones")  # what an adjective means something else with
DOUBLED = ("that", "had", "very", "so")  # words that may come twice
IDIOMS = {  # lemma -> auxiliaries with which it means something else: I would like, I can't believe
    **dict.fromkeys(("like", "love"), ("would", "'d")),
    **dict.fromkeys(("believe", "wait", "stand", "bear", "help"), ("can", "ca", "could")),
}
FRAMES = {  # WordNet's sentence frames (wninput(5WN)) for what a verb has beside it
    "object": {8, 9, 10, 11, 14, 15, 16, 17, 18, 19, 20, 21, 24, 25, 30, 31},
    "nothing": {1, 2, 3, 4, 12, 13, 22, 23, 27},
    "clause": {26, 29, 34},
    "to": {24, 28, 29},
    "gerund": {33},
}
SUBJECT = ("nsubj", "nsubjpass", "csubj", "csubjpass", "expl")
FINITE = ("VBZ", "VBP", "VBD", "MD")
BE = ("am", "is", "are", "was", "were", "'m", "'re", "'s")
NEGATORS = ("not", "n't", "never")
STEMS = {"ca": "can", "wo": "will", "sha": "shall"}
OWN_CLAUSE = ("ccomp", "advcl", "relcl", "acl", "conj", "csubj", "csubjpass", "parataxis", "pcomp")
UNNEGATED = {("ai", "n't"), ("had", "better"), ("'d", "better"), ("would", "rather"), ("'d", "rather"), ("got", "ta")}
POINTING = ("the", "this", "that", "these", "those")
SUPPORT = {"VBZ": "does", "VBP": "do", "VBD": "did"}


def statement(doc: Doc) -> Token:
    """The main verb of a declarative sentence: the root of its parse, with a subject before its finite verb.

    Raises:
        UnsuitableError: a question, a title, a fragment; the reason.
    """
    roots = [token for token in doc if token.dep_ == "ROOT" and (token.is_alpha or carrier(token) is not None)]
    if not roots:
        raise UnsuitableError("statement", "no words")
    main = next((root for root in roots if carrier(root) is not None and subject(root) is not None), roots[0])
    for reason, applies in FAULTS.items():
        if applies(main):
            raise UnsuitableError("statement", reason)
    return main


def negate(token: Token) -> Negation:
    """The sentence with a verb or adjective negated, or with its negation taken.

    Raises:
        UnsuitableError: the rules leave it alone; the reason.
    """
    _refuse_if(not token.tag_.startswith(("JJ", "VB", "MD")), "neither a verb nor an adjective")
    return negate_adjective(token) if token.tag_.startswith("JJ") else negate_verb(token)


def replaceable(doc: Doc) -> list[Token]:
    """Verbs and adjectives with a meaning of their own in the sentence."""
    return [token for token in doc if _has_a_meaning(token) and _stands_alone(token)]


def _has_a_meaning(token: Token) -> bool:
    lower = token.lower_
    named = token.text != lower and token.i > 0
    if token.tag_[:2] not in ("VB", "JJ") or named or not lower.isalpha() or len(lower) < 3:
        return False
    lemma = next(iter(lemmas(lower, token.tag_)), None)
    return lemma is not None and lemma not in word_lists()["light"]


def part_of_speech(token: Token) -> str:
    """As WordNet says it: "verb", "adj", "noun" or "adv"; "" for another."""
    return UPOS.get(token.tag_[:1], "").lower()


def fits(token: Token, frames: set[int]) -> bool:
    """Whether a word that stands in these sentence frames of WordNet takes what stands beside the token."""
    return not frames or token.tag_.startswith("JJ") or any(frames & FRAMES[need] for need in _needs(token))


def replace_word(token: Token, new: str) -> str:
    """The sentence with another word in the place of one, in its capitals, with the a or an that goes with it."""
    edits = [Edit(token.idx, token.idx + len(token), like_case(new, token.text))]
    before = token.doc[token.i - 1] if token.i else token
    if before.lower_ in ("a", "an") and article(token.lower_) == before.lower_ != article(new):
        edits.append(Edit(before.idx, before.idx + len(before), like_case(article(new), before.text[:1])))
    return apply_edits(str(token.doc.user_data["text"]), edits)


def ungrammatical(doc: Doc) -> str | None:
    """A doubled word, or a wrong a or an: the stand-in for the paper's language-tool; None without such a sign."""
    for before, word in pairwise(doc):
        if before.lower_ == word.lower_ and word.is_alpha and word.lower_ not in DOUBLED:
            return "a doubled word"
        if before.lower_ in ("a", "an") and word.text.islower() and article(word.text) != before.lower_:
            return "a or an before the wrong sound"
    return None


def _asks(main: Token) -> bool:
    """Whether a clause begins with a question word or conjunction, or its verb stands before the subject."""
    finite, its_subject = carrier(main), subject(main)
    late = finite is not None and its_subject is not None and its_subject.i > finite.i
    return late or any(child.lower_ in QUESTION or child.dep_ == "mark" for child in main.lefts)


def _reports(main: Token) -> bool:
    """Whether the root says only who says what is before it: "It works, he said yesterday", "It works, I am sure"."""
    its_subject, sure = subject(main), [child for child in main.rights if child.lower_ in ("sure", "afraid")]
    beside = {child.dep_ for child in main.rights if child not in sure}
    if its_subject is None or beside & {"dobj", "acomp", "attr", "ccomp", "xcomp"}:
        return False
    before = any(
        child.dep_ == "ccomp" and child.i < its_subject.i and carrier(child) is not None for child in main.lefts
    )
    return before and (main.pos_ == "VERB" or bool(sure))


def _is_title(main: Token) -> bool:
    words = [word for word in main.doc[1:] if word.is_alpha and len(word) > 3]
    return len(words) > 3 and sum(word.text[0].isupper() for word in words) > len(words) / 2


FAULTS: dict[str, Callable[[Token], bool]] = {  # why a root makes no statement; the first that is true
    "a question": lambda main: "?" in main.doc.text,
    "no main verb": lambda main: main.pos_ not in ("VERB", "AUX") or carrier(main) is None,
    "no subject of the main verb": lambda main: subject(main) is None,
    "a question or a clause of none": _asks,
    "who says it stands behind the statement": _reports,
    "a title": _is_title,
}


def _stands_alone(token: Token) -> bool:
    """Whether a word is no part of a phrase or compound with a meaning of its own."""
    before, after = (token.doc[n].lower_ if 0 <= n < len(token.doc) else "" for n in (token.i - 1, token.i + 1))
    if "-" in (before, after):
        return False
    return _adjective_stands_alone(token, after) if token.tag_.startswith("JJ") else _verb_stands_alone(token)


def _adjective_stands_alone(token: Token, after: str) -> bool:
    """Whether an adjective is an attribute or predicate with nothing that measures, compares or completes it."""
    if token.i and token.nbor(-1).tag_ in ("NN", "NNS", "CD"):  # six years old
        return False
    if after in WITH_MORE or any(child.lower_ in WITH_MORE for child in token.children):
        return False
    if token.dep_ == "acomp":
        return bool(token.head.lemma_ != "make")
    return bool(token.dep_ == "amod" and token.head.i > token.i and token.head.tag_ not in ("CD", "RB"))


def _verb_stands_alone(token: Token) -> bool:
    """Whether a verb is no auxiliary or modifier, and has no particle, complement or auxiliary that it needs."""
    if token.dep_ in ("aux", "auxpass", "amod", "compound", "prep"):
        return False
    beside = {child.dep_ for child in token.children}
    small = any(child.dep_ == "ccomp" and carrier(child) is None for child in token.children)  # I find it funny
    idiom = {child.lower_ for child in token.children} & {*IDIOMS.get(token.lemma_, ())}
    if small or idiom or beside & {*IN_A_PHRASE}:
        return False
    return token.tag_ != "VBN" or token.dep_ == "conj" or bool(beside & {"aux", "auxpass"})


def _needs(verb: Token) -> tuple[str, ...]:
    """What a verb has beside it, of which a replacement must take one."""
    kinds = {child.dep_ for child in verb.children}
    if "ccomp" in kinds:
        return ("clause",)
    if (complement := next((child for child in verb.children if child.dep_ == "xcomp"), None)) is not None:
        return ("gerund",) if complement.tag_ == "VBG" else ("to",)
    if kinds & {"dobj", "nsubjpass"}:
        return ("object",)
    gap = verb.dep_ in ("relcl", "xcomp", "acl") or verb.head.dep_ in ("relcl", "xcomp")  # the book that I read
    return ("object", "nothing") if gap else ("nothing",)


# -- negation ---------------------------------------------------------------------------------------------------------


def carrier(verb: Token) -> Token | None:
    """The finite word of a verb's group, which "not" follows: its first auxiliary or itself; None for an infinitive."""
    return next((word for word in (*_auxiliaries(verb), verb) if word.tag_ in FINITE), None)


def _auxiliaries(verb: Token) -> list[Token]:
    return [child for child in verb.lefts if child.dep_ in ("aux", "auxpass")]


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
        return negate(verb.head)
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
    if verb is None or verb.i >= adjective.i or (carrier(verb) is None and not _is_governed(verb)):
        raise UnsuitableError("main verb", "an adjective that no 'not' at a verb reaches")
    grades = [token.left_edge.i for token in adjective.lefts if token.dep_ in ("advmod", "npadvmod")]
    first = adjective.doc[min([*grades, adjective.i])]  # *very* good
    between = adjective.doc[verb.i + 1 : first.i]
    parted = any(token.head != verb and not adjective.is_ancestor(token) for token in between)
    if not (predicate and parted and verb.lemma_ == "be") or negator(verb) is not None:
        return negate_verb(verb)
    _check_negatives(verb)
    return Negation.of(adjective.doc, [Edit(first.idx, first.idx, "not ")], "not before the adjective")


def _refuse_if(condition: object, reason: str) -> None:
    if condition:
        raise UnsuitableError("main verb", reason)


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
        negates |= word.lower_ in NEGATORS and word.head != verb and word.i < verb.i
        _refuse_if(negates, f"negated by {word.lower_!r}")
    shared = verb.dep_ == "conj" and subject(verb) is None and negator(verb.head) is not None
    _refuse_if(shared, "shares the negation of another verb")


def _check_idioms(verb: Token, finite: Token) -> None:
    """Refuse groups that take no "not", or lose no "not"."""
    idioms = {(finite.lower_, token.lower_) for token in verb.doc[finite.i + 1 : finite.i + 3]} & UNNEGATED
    _refuse_if(idioms, "an idiom that takes no 'not': ain't, had better, would rather, gotta")
    fixed = any(_is_bare_clause(word) or _is_indefinite_existential(word) for word in verb.rights)
    _refuse_if(verb.lemma_ == "be" and fixed, "'be' before a clause without 'that', or 'there is' with 'some' or 'few'")
    alone = not any(token.dep_ in ("dobj", "advmod", "prep") for token in verb.rights)
    _refuse_if(verb.lemma_ == "do" and finite == verb and alone, "a form of do that stands for another verb")


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
    positive = min(word_lists()["positive adverb"] & beside, default="")
    _refuse_if(positive, f"{positive!r} does not go with 'not'")
    also = [token for token in _clause(verb) if token.lower_ == "too"]
    also = [token for token in also if token.i > token.head.i or token.head.pos_ not in ("ADJ", "ADV")]
    _refuse_if(also, "'too' does not go with 'not'")
    beside = {token.lower_ for token in (*after, *verb.doc[verb.i + 1 : verb.i + 2])}
    _refuse_if(beside & {"either", "yet"}, "'either' or 'yet' at the verb")


def _take(verb: Token, no: Token) -> Negation:
    """Without the negator."""
    _refuse_if(not no.i, "negated at the beginning")
    _refuse_if(no.i + 1 < len(no.doc) and no.nbor().lower_ == "even", "'even' wants its negation")
    after = " ".join(word.lower_ for word in verb.subtree if word.i > no.i and not _is_coordinate(word, verb))
    for word in sorted(word_lists()["polarity"]):
        _refuse_if(re.search(rf"\b{word}\b", after), f"{word!r} wants its negation")
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
    first = min([*_auxiliaries(verb), verb], key=lambda word: word.i)
    own = verb.dep_ in ("xcomp", "ccomp", "csubj")
    _refuse_if(first.i == 0, "a fragment")
    _refuse_if(verb.dep_ == "pcomp" and verb.head.lower_ == "without", "negated by 'without'")
    _refuse_if(verb.tag_ == "VB" and not own, "an infinitive that takes no 'not' of its own")
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
    _refuse_if(not verb.is_alpha, "an unknown verb")
    first = verb
    while first.i > 1 and first.nbor(-1).head == verb and _is_of_the_verb(first.nbor(-1)):
        first = first.nbor(-1)
    put = like_case(SUPPORT[verb.tag_], verb.text[:1]) if not verb.i else SUPPORT[verb.tag_]
    edits = [Edit(first.idx, first.idx, f"{put} not "), Edit(verb.idx, verb.idx + len(verb), verb.lemma_)]
    return Negation.of(verb.doc, edits, "do-support")


def _is_of_the_verb(adverb: Token) -> bool:
    """Whether "not" comes before an adverb of one word that says how or when, and nothing about the statement."""
    joined = any(adverb.children) or adverb.nbor(-1).tag_ == "CC"  # very quickly, quickly and quietly
    of_sentence = adverb.lower_ in word_lists()["sentence adverb"]
    return not (joined or of_sentence) and (adverb.dep_, adverb.tag_) == ("advmod", "RB")
