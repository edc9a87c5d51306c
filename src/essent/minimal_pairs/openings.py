"""Where the main clause of a sentence begins: after conjunctions, interjections, and a clause or phrase before it."""

from __future__ import annotations

from collections.abc import Sequence

from essent.minimal_pairs.function_words import LINKING
from essent.minimal_pairs.groups import BETWEEN, FINITE, CannotNegateError, is_nominal
from essent.minimal_pairs.inflection import readings
from essent.minimal_pairs.tags import Tagged

OPENING = ("I", "U", "C", "A")
SUBORDINATE = set("because if although unless whereas whether while when whenever since as cuz cause 'cause".split())
WISHES = set("wanted tried used decided promised managed needed happened started began forgot got had".split())
PRONOUNS = set("i you he she it we they this there".split())
ROLES = set("a an the my your our someone somebody one".split())
PLACES = set("in on at for with without during after from to".split())
THIS = set("this that these those one last next some most my your his our their".split())
TIMES = set("day time way year week month season night morning evening minute moment part days nights".split())
VOCATIVES = set("man dude god bro boy guys jeez jeepers gosh except yikes".split())
RELATIVE = set("that all everything anything something everyone anyone someone one thing so".split())
CLAUSAL = set(  # verbs and adjectives that a clause may follow without "that"
    "think know say feel hope find doubt believe guess mean tell see hear wish assume suppose swear bet notice realize "
    "realise understand figure claim remember forget decide prove show learn imagine pretend expect ask make let help "
    "sure glad sorry afraid happy certain aware sad be".split()
)


def clause_start(tags: Sequence[Tagged]) -> int:
    """Where the main clause may begin: after conjunctions, adverbs, interjections, and after a clause and its comma."""
    start = 0
    while start < len(tags) and opens_sentence(tags[start]):
        start += 1
    if start == len(tags):
        raise CannotNegateError("no main verb")
    lower = tags[start].word.lower
    as_long_as = lower == "as" and tags[start + 1 : start + 2] and tags[start + 1].word.lower in ("long", "soon", "far")
    if as_long_as or (tags[start].tag in ("S", "W") and lower in SUBORDINATE) or _is_role(tags, start):
        end = _after_comma(tags, start) or _after_clause(tags, start)
        if end is None:
            raise CannotNegateError("a subordinate clause without an end")
        return end
    if (after := _after_phrase(tags, start)) is not None:
        return after
    if tags[start].tag == "W" and start + 1 < len(tags) and tags[start + 1].tag in FINITE:
        raise CannotNegateError("a question")
    return start


def _is_role(tags: Sequence[Tagged], start: int) -> bool:
    """ "As a nurse, …", "as someone from Spain …": a phrase, not a clause."""
    return tags[start].word.lower == "as" and start + 1 < len(tags) and tags[start + 1].word.lower in ROLES


def _after_comma(tags: Sequence[Tagged], start: int) -> int | None:
    """Where the main clause begins after the comma that ends a clause or a role; None without one."""
    for index in range(start + 1, len(tags)):
        over = _is_role(tags, start) or any(tag.tag in FINITE for tag in tags[start:index])
        if tags[index].word.lower == "," and over:
            after = index + 1
            while after < len(tags) and tags[after].tag in OPENING:
                after += 1
            if after < len(tags) and tags[after].tag not in ("S", "W", "P"):
                return after
    return None


def _after_clause(tags: Sequence[Tagged], start: int) -> int | None:
    """Where the main clause begins after a clause without a comma: at a pronoun with a verb that nothing else wants."""
    role = over = _is_role(tags, start)
    for index in range(start + 2, len(tags) - 1):
        if over and begins_clause(tags, index) and (role or _is_free(tags, index)):
            return index
        if tags[index].tag in FINITE and not is_nominal(tags, index):
            over, role = True, False
    return None


def _after_phrase(tags: Sequence[Tagged], start: int) -> int | None:
    """Where the main clause begins after "In that case", "One day", "Of course", "Man", without a comma."""
    words = [tag.word.lower for tag in tags[start : start + 2]]
    called = words[0] in VOCATIVES or not (tags[start].known or words[0].endswith("s"))
    if called and start + 1 < len(tags) and begins_clause(tags, start + 1):
        return start + 1
    settled = words == ["of", "course"] or (words[0] in THIS and words[1:2] and words[1] in TIMES)
    if words == ["in", "case"] or (not settled and words[0] not in PLACES):
        return None
    for index in range(start + 1, min(start + 8, len(tags))):
        if index > start + 1 and begins_clause(tags, index):
            return index if settled or _is_whole(tags, start, index) else None
        if tags[index].tag in ("S", "W", "V", "U", "TO", "C") or (
            tags[index].tag in FINITE and not is_nominal(tags, index)
        ):
            return None
        settled = settled and index == start + 1
    return None


def _is_whole(tags: Sequence[Tagged], start: int, index: int) -> bool:
    """Whether the phrase before a clause is over: not "with the people I know", but "in my opinion they know"."""
    before = tags[index - 1]
    if before.word.lower in RELATIVE or before.tag == "P":
        return False
    phrase = [tag.word.lower for tag in tags[start:index]]
    if "the" in phrase and before.word.lower in TIMES:  # by the time it is
        return False
    if before.tag != "N" or before.word.text[0].isupper() or THIS.intersection(phrase):
        return True
    verb = next(tag.tag for tag in tags[index + 1 :] if tag.tag in FINITE)
    return verb in ("M", "B", "D") or tags[index].word.lower in ("it", "this", "there")


def begins_clause(tags: Sequence[Tagged], index: int) -> bool:
    """Whether a pronoun has a finite verb right after it."""
    if tags[index].word.lower not in PRONOUNS or tags[index].tag not in ("PR", "PO", "DT", "A"):
        return False
    after = index + 1
    while after < len(tags) and tags[after].tag in BETWEEN:
        after += 1
    if after == len(tags) or tags[after].tag not in FINITE or is_nominal(tags, after):
        return False
    if tags[index].word.lower in ("he", "she", "it", "this") and tags[after].tag == "F":
        return tags[after].word.lower != tags[after].lemma  # not: read it let me know
    return True


def _is_free(tags: Sequence[Tagged], index: int) -> bool:
    """Whether a clause at `index` is no relative clause ("the book I read") and no object ("if you think I lie")."""
    before = tags[index - 1]
    if before.word.lower == "then":
        return True
    if any(tag.lemma in CLAUSAL for tag in tags[max(0, index - 3) : index]):
        return False
    if before.tag == "N":
        verb = next(tag.tag for tag in tags[index + 1 :] if tag.tag in FINITE)
        return verb in ("M", "B") or tags[index].word.lower in ("it", "this", "there")
    return before.tag in ("F", "V", "G", "E", "PR", "PO", "J", "A", "Q") and before.word.lower not in RELATIVE


def opens_sentence(tag: Tagged) -> bool:
    """Whether a sentence may begin with this word."""
    return (tag.tag in OPENING and tag.word.lower not in ("here", "there")) or tag.word.lower == "so"


def drops_subject(tags: Sequence[Tagged], index: int) -> bool:
    """Whether a clause begins with its finite verb, as in a note: "Can't tell", "Was expecting it", "Gave up early"."""
    word, after = tags[index], index + 1
    while after < len(tags) and tags[after].tag in BETWEEN:
        after += 1
    if after == len(tags):
        return False
    following, lower = tags[after], word.word.lower
    if word.tag == "M":
        return following.tag == "V"
    if word.tag == "D":
        return lower in ("does", "did") and following.tag == "V"
    if word.tag == "B":
        rest = tags[after + 1].tag if after + 1 < len(tags) else "N"
        return lower in ("am", "was", "were") and following.tag in ("E", "G", "J") and rest not in ("N", "J")
    if word.tag == "H":
        return following.tag == "E" or (lower == "had" and after == index + 1 and following.tag in ("DT", "TO", "Q"))
    if word.tag != "F" or after > index + 2 or lower in ("lets", "says", "thanks"):
        return False
    return _full_verb_opens(word, following)


def _full_verb_opens(word: Tagged, following: Tagged) -> bool:
    """Whether what follows shows that a verb of its own (no auxiliary) has lost its subject."""
    lower = word.word.lower
    if word.form == "VBZ" and following.word.lower == "like" and word.lemma not in LINKING:
        return False  # lies like these are rare
    if word.form == "VBZ":
        return following.tag in ("PO", "DT", "P", "TO", "W", "J") or following.word.lower in PRONOUNS | {"that"}
    if word.form != "VBD" or lower == word.lemma:
        return False
    if following.tag == "TO":
        return lower in WISHES
    if any(one.form == "VBN" for one in readings(lower)):
        return following.tag in ("DT", "PO") or following.word.lower in PRONOUNS
    return following.tag in ("PO", "DT", "P", "A", "W", "S", "PR")
