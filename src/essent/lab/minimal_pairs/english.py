"""English grammar on a dependency tree: statements, replaceable words, and negation (HEROS, section 2.2.6).

A positive clause gets "not", with do-support if it has no auxiliary. A negated clause loses its "not" and keeps the
auxiliary, as in the paper: "You do not know" → "You do know".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from essent.lab.minimal_pairs.parsing import (
    UPOS,
    Doc,
    Edit,
    Token,
    UnsuitableError,
    apply_edits,
    article,
    lemmas,
    like_case,
    word_lists,
)

QUESTION = ("how", "what", "when", "where", "which", "who", "whom", "whose", "why")
PHRASE_DEPENDENTS = ("prt", "dative", "oprd", "acomp", "attr", "agent")  # dependents that belong to the verb's meaning
COMPARISONS = ("as", "than", "most", "least", "one", "ones")  # words that change the meaning of an adjective
DOUBLED = ("that", "had", "very", "so")  # words that may be repeated
IDIOMS = {  # lemma -> auxiliaries that change its meaning: I would like, I can't believe
    **dict.fromkeys(("like", "love"), ("would", "'d")),
    **dict.fromkeys(("believe", "wait", "stand", "bear", "help"), ("can", "ca", "could")),
}
SUBJECT = ("nsubj", "nsubjpass", "csubj", "csubjpass", "expl")
FINITE = ("VBZ", "VBP", "VBD", "MD")
BE = ("am", "is", "are", "was", "were", "'m", "'re", "'s")
NEGATORS = ("not", "n't", "never")
STEMS = {"ca": "can", "wo": "will", "sha": "shall"}
CLAUSES = ("ccomp", "advcl", "relcl", "acl", "conj", "csubj", "csubjpass", "parataxis", "pcomp")
UNNEGATED = {("ai", "n't"), ("had", "better"), ("'d", "better"), ("would", "rather"), ("'d", "rather"), ("got", "ta")}
POINTING = ("the", "this", "that", "these", "those")
SUPPORT = {"VBZ": "does", "VBP": "do", "VBD": "did"}


def statement(doc: Doc) -> Token:
    """Return the main verb of a declarative sentence.

    It is the root of the parse, with a subject before its finite verb.

    Raises:
        UnsuitableError: the sentence is a question, a title or a fragment; the message is the reason.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, statement
        >>> (doc,) = Parser()(["The museum opens at nine on Sundays."])
        >>> statement(doc)
        opens
    """
    roots = [token for token in doc if token.dep_ == "ROOT" and (token.is_alpha or finite_word(token) is not None)]
    if not roots:
        raise UnsuitableError("no words")
    main = next((root for root in roots if finite_word(root) is not None and subject(root) is not None), roots[0])
    for reason, applies in FAULTS.items():
        if applies(main):
            raise UnsuitableError(reason)
    return main


def negate(token: Token) -> str:
    """Negate a verb or adjective in its sentence, or remove its negation.

    Returns:
        The changed sentence.

    Raises:
        UnsuitableError: no rule applies; the message is the reason.

    Example:
        >>> from essent.lab.minimal_pairs import Parser, negate, statement
        >>> (doc,) = Parser()(["The museum opens at nine on Sundays."])
        >>> negate(statement(doc))
        'The museum does not open at nine on Sundays.'
    """
    _refuse_if(not token.tag_.startswith(("JJ", "VB", "MD")), "neither a verb nor an adjective")
    return negate_adjective(token) if token.tag_.startswith("JJ") else negate_verb(token)


def replaceable(doc: Doc) -> list[Token]:
    """Return the verbs and adjectives that a synonym can replace: not auxiliaries, nor parts of a phrase."""
    return [token for token in doc if _has_replaceable_meaning(token) and _stands_alone(token)]


def _has_replaceable_meaning(token: Token) -> bool:
    """Whether a word is a verb or adjective with a meaning of its own, and no name."""
    lower = token.lower_
    is_name = token.text != lower and token.i > 0
    if token.tag_[:2] not in ("VB", "JJ") or is_name or not lower.isalpha() or len(lower) < 3:
        return False
    return any(lemma not in word_lists()["light"] for lemma in lemmas(lower, token.tag_)[:1])


def part_of_speech(token: Token) -> str:
    """Return WordNet's name of the part of speech: "verb", "adj", "noun" or "adv"; "" for others."""
    return UPOS.get(token.tag_[:1], "").lower()


def replace_word(token: Token, new: str) -> str:
    """Return the sentence with the token replaced by `new`; capitals and a preceding "a" or "an" are adapted."""
    edits = [Edit(token.idx, token.idx + len(token), like_case(new, token.text))]
    before = token.doc[token.i - 1] if token.i else token
    if before.lower_ in ("a", "an") and article(token.lower_) == before.lower_ != article(new):
        edits.append(Edit(before.idx, before.idx + len(before), like_case(article(new), before.text[:1])))
    return apply_edits(token.doc, edits)


def ungrammatical(doc: Doc) -> str | None:
    """Return the error if a word is doubled, or "a" and "an" are confused, else None (the paper uses language-tool)."""
    for before, word in pairwise(doc):
        if before.lower_ == word.lower_ and word.is_alpha and word.lower_ not in DOUBLED:
            return "a doubled word"
        if before.lower_ in ("a", "an") and word.text.islower() and article(word.text) != before.lower_:
            return "a or an before the wrong sound"
    return None


def _is_question_or_subordinate(main: Token) -> bool:
    """Whether a clause begins with a question word or conjunction, or its verb precedes the subject."""
    finite, clause_subject = finite_word(main), subject(main)
    inverted = finite is not None and clause_subject is not None and clause_subject.i > finite.i
    return inverted or any(child.lower_ in QUESTION or child.dep_ == "mark" for child in main.lefts)


def _is_reporting_clause(main: Token) -> bool:
    """Whether the root is a reporting clause after the statement: "It works, he said", "It works, I am sure"."""
    clause_subject, sure = subject(main), [child for child in main.rights if child.lower_ in ("sure", "afraid")]
    complements = {child.dep_ for child in main.rights if child not in sure}
    if clause_subject is None or complements & {"dobj", "acomp", "attr", "ccomp", "xcomp"}:
        return False
    reported = [child for child in main.lefts if child.dep_ == "ccomp" and child.i < clause_subject.i]
    return any(finite_word(child) is not None for child in reported) and (main.pos_ == "VERB" or bool(sure))


def _is_title(main: Token) -> bool:
    words = [word for word in main.doc[1:] if word.is_alpha and len(word) > 3]
    return len(words) > 3 and sum(word.text[0].isupper() for word in words) > len(words) / 2


FAULTS: dict[str, Callable[[Token], bool]] = {  # why a root is not a statement's; the first that applies
    "a question": lambda main: "?" in main.doc.text,
    "no main verb": lambda main: main.pos_ not in ("VERB", "AUX") or finite_word(main) is None,
    "no subject of the main verb": lambda main: subject(main) is None,
    "a question or a subordinate clause": _is_question_or_subordinate,
    "a reporting clause after the statement": _is_reporting_clause,
    "a title": _is_title,
}


def _stands_alone(token: Token) -> bool:
    """Whether a word is not part of a phrase or compound with its own meaning."""
    if any(word.lower_ == "-" for word in token.doc[max(token.i - 1, 0) : token.i + 2]):
        return False
    return _adjective_stands_alone(token) if token.tag_.startswith("JJ") else _verb_stands_alone(token)


def _adjective_stands_alone(token: Token) -> bool:
    """Whether an adjective is an attribute or predicate without measure, comparison or complement."""
    if token.i and token.nbor(-1).tag_ in ("NN", "NNS", "CD"):  # six years old
        return False
    if any(word.lower_ in COMPARISONS for word in (*token.children, *token.doc[token.i + 1 : token.i + 2])):
        return False
    if token.dep_ == "acomp":
        return bool(token.head.lemma_ != "make")
    return bool(token.dep_ == "amod" and token.head.i > token.i and token.head.tag_ not in ("CD", "RB"))


def _verb_stands_alone(token: Token) -> bool:
    """Whether a verb is neither auxiliary nor modifier, and needs no particle, complement or auxiliary."""
    if token.dep_ in ("aux", "auxpass", "amod", "compound", "prep"):
        return False
    dependents = {child.dep_ for child in token.children}
    small_clause = any(
        child.dep_ == "ccomp" and finite_word(child) is None for child in token.children
    )  # find it funny
    idiom = {child.lower_ for child in token.children} & {*IDIOMS.get(token.lemma_, ())}
    if small_clause or idiom or dependents & {*PHRASE_DEPENDENTS}:
        return False
    return token.tag_ != "VBN" or token.dep_ == "conj" or bool(dependents & {"aux", "auxpass"})


# -- negation ---------------------------------------------------------------------------------------------------------


def finite_word(verb: Token) -> Token | None:
    """Return the finite word of a verb group, which "not" follows: an auxiliary or the verb; None for infinitives."""
    return next((word for word in (*_auxiliaries(verb), verb) if word.tag_ in FINITE), None)


def _auxiliaries(verb: Token) -> list[Token]:
    return [child for child in verb.lefts if child.dep_ in ("aux", "auxpass")]


def subject(verb: Token) -> Token | None:
    """Return the subject of a verb."""
    return next((child for child in verb.children if child.dep_ in SUBJECT), None)


def negator(verb: Token) -> Token | None:
    """Return the "not" or "never" of a verb."""
    return next((child for child in verb.children if child.dep_ == "neg" and child.lower_ in NEGATORS), None)


def negate_verb(verb: Token) -> str:
    """Add or remove the "not" of a verb group; for an infinitive after "going to", "have to" …, of its governor."""
    _check_negatives(verb)
    finite = finite_word(verb)
    if _is_governed(verb):
        return negate(verb.head)
    if finite is not None:
        _check_idioms(verb, finite)
    if (negation := negator(verb)) is not None:
        return _remove_negator(verb, negation)
    _check_adverbs(verb, finite)
    if finite is None:
        return _insert_before_verb(verb)
    if finite.lemma_ == "get" or (finite == verb and not (verb.lower_ in BE or verb.tag_ == "MD")):
        return _insert_with_do(finite)
    return _insert_after_auxiliary(finite)


def negate_adjective(adjective: Token) -> str:
    """Put "not" at the verb of the clause: "It does not look good", "He did not read a good book" (no "the").

    If other words separate the two, "not" precedes the adjective: "It is (or was) not illegal".
    """
    predicate = adjective.dep_ == "acomp"
    verb = adjective.head if predicate else _verb_governing(adjective.head)
    if verb is None or verb.i >= adjective.i or (finite_word(verb) is None and not _is_governed(verb)):
        raise UnsuitableError("an adjective outside the scope of a 'not' at its verb")
    degrees = [token.left_edge.i for token in adjective.lefts if token.dep_ in ("advmod", "npadvmod")]
    first = adjective.doc[min([*degrees, adjective.i])]  # *very* good
    between = adjective.doc[verb.i + 1 : first.i]
    separated = any(token.head != verb and not adjective.is_ancestor(token) for token in between)
    if not (predicate and separated and verb.lemma_ == "be") or negator(verb) is not None:
        return negate_verb(verb)
    _check_negatives(verb)
    return apply_edits(adjective.doc, [Edit(first.idx, first.idx, "not ")])


def _refuse_if(condition: object, reason: str) -> None:
    if condition:
        raise UnsuitableError(reason)


def _is_governed(verb: Token) -> bool:
    """Whether the "not" of an infinitive belongs to the verb before it: "is (not) going to *find*"."""
    governed = verb.tag_ == "VB" and verb.dep_ == "xcomp" and verb.head.lemma_ in word_lists()["semi-modal"]
    return governed and finite_word(verb) is None


def _verb_governing(noun: Token) -> Token | None:
    """Return the verb of an indefinite object or of a complement: "It is (not) my old phone"."""
    determiners = [child for child in noun.lefts if child.dep_ in ("det", "poss", "nummod", "neg", "predet")]
    if noun.dep_ == "attr" and noun.head.lemma_ == "be":
        determiners = [
            word for word in determiners if word.dep_ not in ("poss", "nummod") and word.lower_ not in POINTING
        ]
    if noun.tag_.startswith("NNP") or any(word.lower_ not in ("a", "an") for word in determiners):
        return None
    phrase = noun.head if noun.dep_ == "pobj" and noun.head.dep_ == "prep" else noun
    is_complement = phrase != noun or noun.dep_ in ("attr", "dobj")
    return phrase.head if is_complement and phrase.head.pos_ in ("VERB", "AUX") else None


def _clause(verb: Token) -> Iterator[Token]:
    """Yield the words of a verb's own clause, without those of embedded or coordinate clauses."""
    yield verb
    for child in verb.children:
        if child.dep_ not in CLAUSES or (child.dep_ == "ccomp" and finite_word(child) is None):
            yield from _clause(child)


def _check_negatives(verb: Token) -> None:
    """Refuse a clause with another negation: "I have no idea", but not "I hope that it never rains"."""
    for word in _clause(verb):
        negates = word.lower_ in word_lists()["negative"] and word.dep_ != "intj" and word != negator(verb)
        negates |= word.lower_ in NEGATORS and word.head != verb and word.i < verb.i
        _refuse_if(negates, f"negated by {word.lower_!r}")
    shared = verb.dep_ == "conj" and subject(verb) is None and negator(verb.head) is not None
    _refuse_if(shared, "shares the negation of another verb")


def _check_idioms(verb: Token, finite: Token) -> None:
    """Refuse verb groups to which "not" cannot be added, or from which it cannot be removed."""
    idioms = {(finite.lower_, token.lower_) for token in verb.doc[finite.i + 1 : finite.i + 3]} & UNNEGATED
    _refuse_if(idioms, "an idiom that cannot be negated with 'not': ain't, had better, would rather, gotta")
    after = {token.dep_ for token in verb.rights}
    alone = verb.lemma_ == "do" and finite == verb and not after & {"dobj", "advmod", "prep"}
    _refuse_if(alone, "a form of do that replaces another verb")
    existential = any(token.dep_ == "expl" for token in verb.lefts)
    for word in verb.rights if verb.lemma_ == "be" else ():
        # "The thing is *they left*"; but: I am glad they left, it is exactly what I thought
        introduced = any(token.tag_[:1] in ("W", "I") for token in verb.doc[word.left_edge.i : word.i])
        alone = not introduced and not after & {"acomp", "attr", "prep"}
        bare = word.dep_ == "ccomp" and finite_word(word) is not None and alone
        some = any(token.lower_ in ("some", "few") for token in word.lefts)  # "There are quite a few *cars*"
        fixed = bare or (word.dep_ == "attr" and existential and some)
        _refuse_if(fixed, "'be' before a clause without 'that', or 'there is' with 'some' or 'few'")


def _check_adverbs(verb: Token, finite: Token | None) -> None:
    """Refuse adverbs that cannot be combined with "not"."""
    after = verb.doc[finite.i + 1 : finite.i + 3] if finite is not None else ()
    adverbs = {token.lower_ for token in (*verb.children, *after)} - ({"already"} if finite != verb else set())
    positive = min(word_lists()["positive adverb"] & adverbs, default="")
    _refuse_if(positive, f"{positive!r} does not go with 'not'")
    too = (token for token in _clause(verb) if token.lower_ == "too")
    also = any(token.i > token.head.i or token.head.pos_ not in ("ADJ", "ADV") for token in too)
    _refuse_if(also, "'too' does not go with 'not'")
    next_words = {token.lower_ for token in (*after, *verb.doc[verb.i + 1 : verb.i + 2])}
    _refuse_if(next_words & {"either", "yet"}, "'either' or 'yet' at the verb")


def _remove_negator(verb: Token, negation: Token) -> str:
    """Remove the "not", "n't" or "never" of a verb."""
    _refuse_if(not negation.i, "negated at the beginning")
    _refuse_if(negation.i + 1 < len(negation.doc) and negation.nbor().lower_ == "even", "'even' requires its negation")
    later = [word.lower_ for word in verb.subtree if word.i > negation.i and not _is_coordinate(word, verb)]
    for word in sorted(word_lists()["polarity"]):
        _refuse_if(re.search(rf"\b{word}\b", " ".join(later)), f"{word!r} requires its negation")
    before, end = negation.nbor(-1), negation.idx + len(negation)
    edit = Edit(negation.idx - len(before.whitespace_), end, "")  # no space in cannot
    if negation.lower_ == "n't":
        edit = Edit(before.idx, end, like_case(STEMS.get(before.lower_, before.lower_), before.text[:1]))
    return apply_edits(verb.doc, [edit])


def _is_coordinate(word: Token, verb: Token) -> bool:
    """Whether a word is in a coordinate clause with its own subject."""
    path = [word, *(token for token in word.ancestors if token.i != verb.i and verb.is_ancestor(token))]
    return any(token.dep_ in ("conj", "parataxis") and subject(token) is not None for token in path)


def _insert_before_verb(verb: Token) -> str:
    """Put "not" before an infinitive's "to", or before a bare infinitive or participle."""
    first = min([*_auxiliaries(verb), verb], key=lambda word: word.i)
    is_complement = verb.dep_ in ("xcomp", "ccomp", "csubj")
    _refuse_if(first.i == 0, "a fragment")
    _refuse_if(verb.dep_ == "pcomp" and verb.head.lower_ == "without", "negated by 'without'")
    _refuse_if(verb.tag_ == "VB" and not is_complement, "an infinitive that cannot have its own 'not'")
    return apply_edits(verb.doc, [Edit(first.idx, first.idx, "not ")])


def _insert_after_auxiliary(finite: Token) -> str:
    """Put "not" after an auxiliary and the sentence adverbs that follow it."""
    doc, last = finite.doc, finite
    while last.i + 1 < len(doc) and last.nbor().lower_ in word_lists()["sentence adverb"]:
        last = last.nbor()
    end = last.idx + len(last)
    edit = Edit(end, end, "not" if finite.lower_ == "can" and last == finite else " not")
    if last.i + 1 < len(doc) and last.nbor().lower_ == "'ve":  # must've: must not have
        edit = Edit(end, end + len("'ve"), " not have")
    return apply_edits(doc, [edit])


def _insert_with_do(verb: Token) -> str:
    """Put do, does or did with "not" before the verb's base form and its adverbs: he does not always forget."""
    _refuse_if(not verb.is_alpha, "an unknown verb")
    first = verb
    while first.i > 1 and first.nbor(-1).head == verb and _follows_not(first.nbor(-1)):
        first = first.nbor(-1)
    support = SUPPORT[verb.tag_] if verb.i else like_case(SUPPORT[verb.tag_], verb.text[:1])
    edits = [Edit(first.idx, first.idx, f"{support} not "), Edit(verb.idx, verb.idx + len(verb), verb.lemma_)]
    return apply_edits(verb.doc, edits)


def _follows_not(adverb: Token) -> bool:
    """Whether "not" precedes an adverb: a single word of manner or time, no sentence adverb."""
    joined = any(adverb.children) or adverb.nbor(-1).tag_ == "CC"  # very quickly, quickly and quietly
    of_sentence = adverb.lower_ in word_lists()["sentence adverb"]
    return not (joined or of_sentence) and (adverb.dep_, adverb.tag_) == ("advmod", "RB")
