"""A sentence and its negation: at the main verb, or at any verb or adjective (HEROS, section 2.2.6).

What is not negated gets "not", with do-support where no auxiliary carries it; what is negated loses its "not" and keeps
the auxiliary, as the paper does: "You do not know" → "You do know". `Style` tells how else a "not" is put or taken, so
that a negation can be taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from essent.minimal_pairs.clauses import is_caused, main_group
from essent.minimal_pairs.function_words import DEGREE
from essent.minimal_pairs.groups import CannotNegateError, Group, group_around
from essent.minimal_pairs.inflection import inflect
from essent.minimal_pairs.scope import ALREADY, check_negatives, check_polarity
from essent.minimal_pairs.tags import Tagged, Tagger, tag_words
from essent.minimal_pairs.words import Edit, apply_edits, like_case, mend_article, split_words

STEMS = {"ca": "can", "wo": "will", "sha": "shall"}
SHORT = {"can": "ca", "will": "wo", "shall": "sha"}
FREQUENCY = ("always", "often", "constantly", "ever", "necessarily", "entirely", "fully", "quite", "completely")
OUTSIDE = set(  # adverbs about the statement: "not" follows them
    "probably definitely certainly actually also still just literally honestly clearly obviously generally usually "
    "currently apparently simply basically surely now then again sometimes maybe perhaps kind sort".split()
)


@dataclass(frozen=True)
class Style:
    """How a "not" is put or taken.

    Attributes:
        contraction: "" puts " not", after can "cannot"; " not" never joins; "n't" and "n’t" put that.
        drop_do: taking "not" from "does not run" gives "runs"; otherwise "does run", as in the paper.
        undo: the "not" to take was put before; it goes from "the best that I have not ever seen" too.
    """

    contraction: str = ""
    drop_do: bool = False
    undo: bool = False


@dataclass(frozen=True)
class Negation:
    """A negated sentence.

    Attributes:
        text: the sentence.
        edits: what was changed, in places of the original.
        rule: what was done, e.g. "do-support" or "not removed".
        back: the style that negates `text` back to the original.
    """

    text: str
    edits: tuple[Edit, ...]
    rule: str
    back: Style


def negate(sentence: str, style: Style | None = None, tagger: Tagger = tag_words) -> Negation:
    """Negate the main verb.

    Args:
        style: how; by default the paper's.
        tagger: words to tagged words; by default the rules'.

    Raises:
        CannotNegateError: questions, fragments, sentences with another negation ("never"), or with words that want
            one ("any") where it would be taken away; the message is the reason.
        MissingDependencyError: LemmInflect is not installed.
    """
    tags = tagger(split_words(sentence))
    return negate_group(sentence, tags, main_group(tags), style or Style())


def negate_at(sentence: str, tags: Sequence[Tagged], index: int, style: Style | None = None) -> Negation:
    """Negate the verb or adjective at place `index` of the tagged words; see `negate`."""
    style = style or Style()
    tag = tags[index].tag
    if tag == "J":
        return _negate_adjective(sentence, tags, index, style)
    if tag not in ("V", "F", "G", "E"):
        raise CannotNegateError("neither a verb nor an adjective")
    group = group_around(tags, index)
    if tag == "F" and tags[index].form == "VBP" and index and tags[index - 1].tag == "C":
        return _negate_bare(sentence, tags, index)  # to impact or *enjoy*, with the "to" of the verb before
    if is_caused(tags, index):
        return _negate_bare(sentence, tags, index)
    if group is None:
        try:
            group = main_group(tags)
        except CannotNegateError:
            group = None
        if group is None or group.verb != index:
            return _negate_bare(sentence, tags, index)
    return negate_group(sentence, tags, group, style)


def negate_group(sentence: str, tags: Sequence[Tagged], group: Group, style: Style) -> Negation:
    """Put or take the "not" of a verb group."""
    words = [tag.word.lower for tag in tags]
    check_negatives(tags, group)
    if "ai" in words[group.first : group.first + 1]:
        raise CannotNegateError("ain't")
    if group.negator is not None:
        if not style.undo:
            check_polarity(tags, group.negator)
        if words[group.negator + 1 : group.negator + 2] == ["only"]:
            raise CannotNegateError("not only")
        return _take(sentence, tags, group, group.negator, style)
    after = next((word for word in words[group.verb + 1 : group.verb + 2] if word in ("either", "yet")), None)
    if after or words[group.first + 1 : group.first + 2] in (["either"], ["yet"]):
        raise CannotNegateError("'either' or 'yet' at the verb")
    if group.auxiliary:
        return _put_after(sentence, tags, group, style)
    return _put_with_do(sentence, tags, group, style)


# -- putting ----------------------------------------------------------------------------------------------------------


def _put_after(sentence: str, tags: Sequence[Tagged], group: Group, style: Style) -> Negation:
    word = tags[group.first].word
    if style.contraction.startswith("n") and not word.text.startswith(("'", "’")):
        stem = SHORT.get(word.lower, word.lower)
        edit = Edit(word.start, word.end, like_case(stem, word.text[:1]) + style.contraction)
    else:
        after = group.first
        while after + 1 < len(tags) and tags[after + 1].word.lower in OUTSIDE and tags[after + 1].tag == "A":
            after += 1
        end = tags[after].word.end
        joined = word.lower == "can" and not style.contraction and after == group.first
        edit = Edit(end, end, "not" if joined else " not")
    return _done(sentence, [edit], "not after the auxiliary", Style(undo=True))


def _put_with_do(sentence: str, tags: Sequence[Tagged], group: Group, style: Style) -> Negation:
    tagged = tags[group.first]
    word = tagged.word
    if group.imperative:
        do, base = "do", tagged.lemma if tagged.lemma != "be" else "be"
    else:
        do, base = _support(tags, group.first)
    no = style.contraction if style.contraction.startswith("n") else " not"
    at_start = word.start == _first_letter(tags)
    text = f"{like_case(do, word.text[:1]) if at_start else do}{no}"
    before = tags[group.first - 1].word if group.first else None
    if before is not None and before.lower in FREQUENCY:  # he always forgets: he does not always forget
        edits = [Edit(before.start, before.start, f"{text} "), Edit(word.start, word.end, base)]
    else:
        edits = [Edit(word.start, word.end, f"{text} {base}")]
    return _done(sentence, edits, "do-support", Style(drop_do=True, undo=True))


def _first_letter(tags: Sequence[Tagged]) -> int:
    return next((tag.word.start for tag in tags if tag.tag != "U"), 0)


def _support(tags: Sequence[Tagged], index: int) -> tuple[str, str]:
    """The form of do that a finite verb needs, and the verb's base: "runs" gives does, run."""
    tagged = tags[index]
    lower = tagged.word.lower
    irregular = {"have": "do", "'ve": "do", "has": "does", "had": "did", "do": "do", "does": "does", "did": "did"}
    if lower in irregular:
        return irregular[lower], "have" if lower in ("have", "has", "had", "'ve") else "do"
    if lower == tagged.lemma:  # put, read, let: present and past look alike
        past = lower == inflect(tagged.lemma, "VBD") and _third_person(tags, index)
        return ("did" if past else "do"), tagged.lemma
    return ("does" if tagged.form == "VBZ" else "did"), tagged.lemma


def _third_person(tags: Sequence[Tagged], index: int) -> bool:
    """Whether the subject before a verb is he, she, it, or a name or noun without s."""
    for tag in reversed(tags[:index]):
        if tag.word.lower in ("i", "you", "we", "they", "these", "those", "who", "that", "which"):
            return False
        if tag.word.lower in ("he", "she", "it", "this", "someone", "everyone", "everybody", "somebody"):
            return True
        if tag.tag == "N":
            return tag.form != "NNS"
    return False


# -- taking -----------------------------------------------------------------------------------------------------------


def _take(sentence: str, tags: Sequence[Tagged], group: Group, place: int, style: Style) -> Negation:
    """Without the negator at `place`."""
    auxiliary, negator = tags[group.first].word, tags[place].word
    verb = tags[group.verb]
    if style.drop_do and tags[group.first].tag == "D" and group.verb > group.first and verb.tag == "V":
        return _take_with_do(sentence, tags, group, place)
    stem = STEMS.get(auxiliary.lower, auxiliary.lower)
    if negator.lower == "n't":
        edits = [Edit(auxiliary.start, negator.end, like_case(stem, auxiliary.text[:1]))]
        contraction = negator.text
    elif negator.start == auxiliary.end:  # cannot
        edits, contraction = [Edit(negator.start, negator.end, "")], ""
    else:
        edits = [_without(sentence, negator.start, negator.end)]
        contraction = " not" if auxiliary.lower == "can" else ""
    return _done(sentence, edits, "not removed", Style(contraction))


def _take_with_do(sentence: str, tags: Sequence[Tagged], group: Group, place: int) -> Negation:
    do, negator, verb = tags[group.first].word, tags[place].word, tags[group.verb]
    form = {"does": "VBZ", "did": "VBD", "do": "VB"}[do.lower]
    new = inflect(verb.lemma if verb.lemma else verb.word.lower, form) or verb.word.lower
    if group.verb == place + 1:
        edits = [Edit(do.start, verb.word.end, like_case(new, do.text[:1]))]
    else:
        between = sentence[negator.end : verb.word.start].lstrip()
        edits = [Edit(do.start, verb.word.end, between + new)]
    contraction = negator.text if negator.lower == "n't" else ""
    return _done(sentence, edits, "not and do removed", Style(contraction))


def _without(sentence: str, start: int, end: int) -> Edit:
    """Take a word and one blank beside it."""
    if start and sentence[start - 1] == " ":
        return Edit(start - 1, end, "")
    return Edit(start, end + (sentence[end : end + 1] == " "), "")


# -- adjectives and bare verbs ----------------------------------------------------------------------------------------


def _negate_adjective(sentence: str, tags: Sequence[Tagged], index: int, style: Style) -> Negation:
    """Not before the adjective and what grades it; before its article when both follow a form of be."""
    first = index
    noun_follows = index + 1 < len(tags) and tags[index + 1].tag == "N"
    while first and tags[first - 1].tag in ("A", "DT", "PR") and _grades(tags[first - 1], noun_follows):
        first -= 1
    if first > 1 and tags[first - 1].word.lower in ("bit", "little") and tags[first - 2].word.lower == "a":
        first -= 2
    before = first - 1
    has_article = before >= 0 and tags[before].word.lower in ("a", "an")
    if has_article:
        before -= 1
    copula = before
    while copula >= 0 and tags[copula].tag == "A":
        copula -= 1
    if copula >= 0 and tags[copula].tag == "X":
        owner = copula - 1
        while owner > 0 and tags[owner].tag == "A":
            owner -= 1
        return negate_group(sentence, tags, Group(owner, True, owner, copula), style)
    if copula >= 0 and tags[copula].word.lower in ("be", "been"):  # would not be safe, not: would be not safe
        group = group_around(tags, copula)
        if group is not None:
            return negate_group(sentence, tags, group, style)
    if any(tag.word.lower in ALREADY for tag in tags[max(0, first - 3) : first]):
        raise CannotNegateError("negated by another word")
    after_be = copula >= 0 and (tags[copula].tag == "B" or tags[copula].word.lower in ("be", "been", "being"))
    if has_article and after_be:
        place = tags[first - 1].word.start
        return _done(sentence, [Edit(place, place, "not ")], "not before the article", Style())
    place = tags[first].word.start
    edits = [Edit(place, place, "not "), *mend_article([tag.word for tag in tags], first, "not")]
    if place == _first_letter(tags) and tags[first].form:  # Bad jokes: Not bad jokes
        edits[0] = Edit(place, tags[first].word.end, f"Not {tags[first].word.lower}")
    return _done(sentence, edits, "not before the adjective", Style())


def _grades(tagged: Tagged, noun_follows: bool) -> bool:
    lower = tagged.word.lower
    if noun_follows and lower in ("this", "that"):  # that specific detail
        return False
    if tagged.tag != "A":
        return lower in ("more", "most", "less")
    return lower in DEGREE or (lower.endswith("ly") and lower not in OUTSIDE)


def _negate_bare(sentence: str, tags: Sequence[Tagged], index: int) -> Negation:
    """Not before an infinitive's "to", or before a bare infinitive or participle."""
    first = index
    while first and tags[first - 1].tag == "A":
        first -= 1
    if first and tags[first - 1].tag == "X":
        negator = tags[first - 1].word
        if negator.lower != "not":
            raise CannotNegateError("a contraction without its verb")
        check_polarity(tags, first - 1)
        return _done(sentence, [_without(sentence, negator.start, negator.end)], "not removed", Style())
    if first and tags[first - 1].tag == "TO":
        first -= 1
        if first and tags[first - 1].word.lower == "not":
            negator = tags[first - 1].word
            return _done(sentence, [_without(sentence, negator.start, negator.end)], "not removed", Style())
    place = tags[first].word.start
    return _done(sentence, [Edit(place, place, "not ")], "not before the verb", Style())


def _done(sentence: str, edits: Sequence[Edit], rule: str, back: Style) -> Negation:
    return Negation(apply_edits(sentence, edits), tuple(edits), rule, back)
