"""Where the verbs of a sentence stand: the verb of the main clause, and the group of auxiliaries around any verb."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from essent.minimal_pairs.function_words import SUBJECTS
from essent.minimal_pairs.groups import FINITE, CannotNegateError, Group, group_around, group_from, is_nominal
from essent.minimal_pairs.inflection import inflect, readings
from essent.minimal_pairs.openings import CLAUSAL, clause_start, drops_subject, opens_sentence
from essent.minimal_pairs.tags import Tagged

NOMINAL = ("N", "PR", "Q", "G", "PO")
FEELINGS = ("sure", "sad", "glad", "happy", "funny", "weird", "cool", "certain")  # taken for adverbs


def main_group(tags: Sequence[Tagged]) -> Group:
    """The verb group of the main clause.

    Raises:
        CannotNegateError: questions, fragments, and what the rules cannot tell.
    """
    if not tags:
        raise CannotNegateError("no words")
    if tags[-1].word.lower == "?" or any(tag.word.lower == "?" for tag in tags):
        raise CannotNegateError("a question")
    if tags[0].root is not None:
        return _parsed_group(tags)
    if found := next((tag.word.lower for tag in tags if tag.word.lower in ("gotta", "wanna")), None):
        raise CannotNegateError(f"{found!r} takes no 'not'")
    if tags[0].word.lower == "its" and len(tags) > 1 and tags[1].tag in ("DT", "P", "X", "S", "W", "PR"):
        raise CannotNegateError("a missing apostrophe")
    start = clause_start(tags)
    dropped = drops_subject(tags, start)
    if not dropped and (imperative := _imperative(tags, start)):
        return imperative
    return _first_free_verb(tags, start, dropped)


def _first_free_verb(tags: Sequence[Tagged], start: int, dropped: bool) -> Group:
    """The group of the first finite verb that belongs to no clause opened before it."""
    pending, subject = 0, False
    bare = False  # whether the last clause to open has nothing before its pronoun
    relative: int | None = None  # the first verb of such a clause
    index = start
    while index < len(tags):
        tag, lower = tags[index].tag, tags[index].word.lower
        if lower in (":", ";", '"', "“", "(") and not (lower == '"' and (index == start or _is_quoted(tags, index))):
            raise CannotNegateError("a mark before the main verb")
        if is_nominal(tags, index) or _is_reduced(tags, index) or (not pending and _is_noun_here(tags, index)):
            subject = True
        elif tag == "F" and is_caused(tags, index):
            pass
        elif tag in FINITE and not _is_possessive(tags, index):
            if pending:
                pending -= 1
                relative = index if bare and relative is None else relative
                index = group_from(tags, index).verb + 1
                continue
            if not subject and not (dropped and index == start):
                raise CannotNegateError("no subject before the verb")
            if relative is not None and _has_own_subject(tags, relative, index):
                index = relative  # thanks for the advice I *needed* it and I owe you: no relative clause
            _check_subject(tags, index)
            if _is_fragment(tags, start, index):
                raise CannotNegateError("a fragment before the main verb")
            return group_from(tags, index)
        if _opens_clause(tags, index, subject):
            bare = pending == 0 and tag == "PR" and lower != "that"
            pending += 1
        before_verb = index + 1 < len(tags) and tags[index + 1].tag in FINITE
        if tag in NOMINAL or lower in ("here", "there", "this", "that", "all") or (tag == "J" and before_verb):
            subject = True
        index += 1
    raise CannotNegateError("no main verb")


def _is_quoted(tags: Sequence[Tagged], index: int) -> bool:
    """Whether the mark at `index` ends a quotation that is the subject: "Go home" was what he said."""
    return tags[0].word.lower == '"' and index + 1 < len(tags) and tags[index + 1].tag in FINITE


def _parsed_group(tags: Sequence[Tagged]) -> Group:
    """The group of the verb that a parser found to be the main one."""
    root = next((index for index, tag in enumerate(tags) if tag.root), None)
    if root is None:
        start = next((index for index, tag in enumerate(tags) if not opens_sentence(tag)), 0)
        if imperative := _imperative(tags, start):
            return imperative
        raise CannotNegateError("no main verb")
    if tags[0].tag == "W" and len(tags) > 1 and tags[1].tag in FINITE:
        raise CannotNegateError("a question")
    group = group_from(tags, root) if tags[root].tag in FINITE else group_around(tags, root)
    if group is None:
        raise CannotNegateError("no main verb")
    _check_subject(tags, group.first)
    return group


def _imperative(tags: Sequence[Tagged], start: int) -> Group | None:
    """ "Go home", "Don't go", "Let's go": a bare verb, or do with one, where the clause begins."""
    word = tags[start]
    following = [tag.tag for tag in tags[start + 1 : start + 3]]
    if word.word.lower == "let" and tags[start + 1 : start + 2] and tags[start + 1].word.lower == "'s":
        negator = start + 2 if following[1:] == ["X"] else None
        return Group(start + 1, True, start + 1, negator, imperative=True)
    if word.tag == "V" or (word.tag == "F" and word.form in ("VB", "VBP") and word.lemma == word.word.lower):
        if following[:1] and following[0] in FINITE:
            return None
        return Group(start, False, start, None, imperative=True)
    if word.word.lower == "do" and following[:1] in (["X"], ["V"]):
        group = group_from(tags, start)
        return Group(group.first, True, group.verb, group.negator, imperative=True)
    return None


def _opens_clause(tags: Sequence[Tagged], index: int, subject: bool) -> bool:
    """Whether a clause with a verb of its own begins here, before the main verb."""
    tag, lower = tags[index].tag, tags[index].word.lower
    if tag in ("S", "W"):
        return lower != "for"
    if (
        lower == "that"
        and subject
        and tags[index - 1].tag not in ("C", "U")
        and index + 1 < len(tags)
        and tags[index + 1].tag in (*FINITE, "PR", "DT")
    ):
        return True
    if index == 0 or not subject:
        return False
    before = tags[index - 1]
    return lower in (*SUBJECTS, "you") and (before.tag == "N" or before.word.lower in ("all", "everything", "one"))


def _has_own_subject(tags: Sequence[Tagged], relative: int, index: int) -> bool:
    """Whether a pronoun of its own stands before a verb, so that the clause before it belongs to no subject."""
    before = index - 1
    while before > relative and tags[before].tag == "A":
        before -= 1
    return before > relative and tags[before].word.lower in (*SUBJECTS, "you")


def _check_subject(tags: Sequence[Tagged], index: int) -> None:
    """Refuse verbs that only look like the main one: inversions, comparisons, nouns taken for verbs."""
    verb, after = tags[index], tags[index + 1].word.lower if index + 1 < len(tags) else ""
    if after in (*SUBJECTS, "you", "it") and verb.tag in ("M", "B", "H", "D"):
        raise CannotNegateError("an inversion")
    if (
        index > 1
        and tags[index - 2].word.lower in ("as", "than", "like")
        and tags[index - 1].word.lower in (*SUBJECTS, "you")
    ):
        raise CannotNegateError("no main verb")
    if disagrees(tags, index):
        raise CannotNegateError("no agreement of subject and verb")


def disagrees(tags: Sequence[Tagged], index: int) -> bool:
    """Whether a verb in the form of the plural stands right after a singular noun: it is rather a noun itself."""
    verb, before = tags[index], tags[index - 1] if index else None
    if verb.tag != "F" or before is None:
        return False
    base = verb.word.lower == verb.lemma and inflect(verb.lemma, "VBD") != verb.lemma
    unknown_plural = not before.form and before.word.lower.endswith("s")
    singular = before.tag == "DT" or (before.tag == "N" and not unknown_plural and before.word.lower == before.lemma)
    phrase = tags[max(0, index - 6) : index]
    joined = any(tag.word.lower in ("and", "or") for tag in phrase)
    of_many = any(one.form == "NNS" and two.tag == "P" for one, two in pairwise(phrase))  # stories on this page make me
    return base and singular and not joined and not of_many


def _is_noun_here(tags: Sequence[Tagged], index: int) -> bool:
    """Whether what looks like a present tense is a noun: "his *comment*", "the mango *pods* I had were".

    Raises:
        CannotNegateError: it may be one, and no verb would be left.
    """
    verb, before = tags[index], tags[index - 1] if index else None
    if verb.tag != "F" or verb.form == "VBD" or before is None:
        return False
    if before.tag == "C":  # sitting here and listen
        return True
    if not any(one.pos == "noun" for one in readings(verb.word.lower)):
        return False
    if before.word.lower == "his":
        return True
    if before.tag == "U" and verb.form != "VBZ":
        raise CannotNegateError("no main verb")  # thanks for the news, hope you win
    if before.tag != "N":
        return False
    if index + 1 < len(tags) and (tags[index + 1].tag == "C" or tags[index + 1].word.lower in ('"', "”")):
        return True
    if index + 1 == len(tags) or tags[index + 1].tag == "U":
        raise CannotNegateError("no main verb")  # such awful pet names
    return verb.lemma not in CLAUSAL and _has_later_verb(tags, index)


def _has_later_verb(tags: Sequence[Tagged], index: int) -> bool:
    """Whether a verb without a subject of its own follows in the same clause."""
    pending = 0
    for after in range(index + 1, len(tags)):
        tag, lower = tags[after].tag, tags[after].word.lower
        if tag in ("C", "U"):
            return False
        if tag in ("S", "W") or lower in (*SUBJECTS, "you", "it", "that"):
            pending += 1
        elif tag in FINITE and not is_nominal(tags, after) and not is_caused(tags, after):
            if not pending:
                return tag != "F"
            pending -= 1
    return False


def _is_reduced(tags: Sequence[Tagged], index: int) -> bool:
    """Whether what looks like a past tense is a participle: "the glass *used* in this vintage is …"."""
    if tags[index].tag != "F" or not index or tags[index - 1].tag != "N":
        return False
    if not any(one.form == "VBN" for one in readings(tags[index].word.lower)):
        return False
    if index + 1 == len(tags) or tags[index + 1].tag != "P":
        return False
    rest = (
        tags[after].tag
        for after in range(index + 1, len(tags))
        if tags[after].tag in (*FINITE, "C", "S", "W", "U", "PR") and not _is_possessive(tags, after)
    )
    return next(rest, "U") in FINITE


def is_caused(tags: Sequence[Tagged], index: int) -> bool:
    """ "It made you remember": a bare infinitive, though it looks like a finite verb."""
    if tags[index].word.lower != tags[index].lemma:
        return False
    before = index - 1
    while before >= 0 and index - before < 5 and tags[before].tag in ("PR", "PO", "N", "DT", "J"):
        before -= 1
    return 0 <= before < index - 1 and tags[before].lemma in ("make", "let", "help")


def _is_fragment(tags: Sequence[Tagged], start: int, index: int) -> bool:
    """ "Glad I'm not the only one": what is left of the main clause has no verb."""
    if start and tags[start - 1].word.lower in FEELINGS:
        return True
    if tags[start].tag not in ("J", "E", "G") or any(tag.word.lower in (",", "but") for tag in tags[start:index]):
        return False
    before = next((tag for tag in reversed(tags[start:index]) if tag.tag != "A"), tags[start])
    return before.tag == "PR" and before.word.lower not in ("this", "that", "these", "those")


def _is_possessive(tags: Sequence[Tagged], index: int) -> bool:
    """ "Jackie's dog": 's after a noun and before what it owns."""
    if tags[index].word.lower != "'s" or index == 0 or tags[index - 1].tag != "N":
        return False
    following = next((tag.tag for tag in tags[index + 1 :] if tag.tag not in ("A",)), "U")
    return following in ("N", *FINITE) or (
        following == "J" and any(tag.tag == "N" for tag in tags[index + 2 : index + 4])
    )
