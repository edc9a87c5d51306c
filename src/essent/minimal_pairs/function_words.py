"""The words of English that can be listed: auxiliaries, pronouns, conjunctions, and what they can be.

Tags are one or two letters: DT determiner, PR pronoun that can be a subject, PO one that cannot, N noun, J adjective,
A adverb, P preposition, TO, C coordinating and S subordinating conjunction, W question word or relative, M modal,
B finite be, H finite have, D finite do, V base form, F finite form (VBZ, VBD, VBP), G -ing form, E past participle,
X not, Q number, I interjection, U mark.
"""

from __future__ import annotations


def _rows(*rows: tuple[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for tags, words in rows:
        for word in words.split():
            found[word] = tuple(dict.fromkeys((*found.get(word, ()), *tags.split())))
    return found


MODALS = "can could will would shall should may might must ought ca wo sha 'll".split()
BE = ("am", "is", "are", "was", "were", "ai", "'m", "'re", "'s")
DO = ("do", "does", "did")
HAVE = ("have", "has", "had", "'ve")
SUBJECTS = ("i", "he", "she", "we", "they")  # pronouns that are nothing but subjects
NEGATIVE = set(
    "never no nothing nobody none nowhere neither nor hardly barely scarcely rarely seldom noone without few "
    "little nope".split()
)
DEGREE = set(
    "very so too really quite pretty rather extremely incredibly completely totally absolutely fairly more most less "
    "as super truly particularly especially that this just entirely that's way awfully terribly highly".split()
)
LINKING = set("be seem look feel sound become get stay remain appear smell taste go turn keep grow prove".split())
DETERMINERS = set(
    "a an the my your his her its our their this that these those no every each some any another such".split()
)

TABLE = _rows(
    ("DT", "a an the my your its our their every no another either neither such"),
    ("DT PO", "her"),
    ("DT N", "his whose"),
    ("PR DT", "this these those"),
    ("DT PR", "all some any each both most few many several enough less half"),
    ("PR DT W A", "that"),
    ("DT PR A", "more much"),
    ("PR", "i he she we they there someone somebody everyone everybody anyone anybody nobody something everything"),
    ("PR", "anything nothing none y'all noone"),
    ("PR PO", "you it"),
    ("PR Q N", "one"),
    (
        "PO",
        "me him us them myself yourself himself herself itself ourselves themselves yourselves mine yours hers ours",
    ),
    ("PO", "theirs"),
    ("P", "of in on at by with from into onto upon about against among between through during without within toward"),
    ("P", "towards under beneath beside per via despite behind beyond across around above below off over up down out"),
    ("P", "near along amongst throughout concerning regarding besides unlike versus inside outside"),
    ("A", "off over up down out around along away back apart aside ahead forward together"),
    ("P S", "for before after since until till as than like except"),
    ("A", "before since as once though however even"),
    ("P F V J", "like"),
    ("TO", "to gonna"),
    ("C", "and or but nor yet plus &"),
    ("A", "yet plus then"),
    ("S A", "so though once"),
    ("S", "because if although unless whereas whether while cause cuz 'cause whenever wherever"),
    ("W", "who whom which what when where why how whoever whatever whichever"),
    ("M", " ".join(MODALS)),
    ("B", " ".join(BE)),
    ("V", "be"),
    ("E", "been"),
    ("G", "being having doing"),
    ("H V", "have"),
    ("H", "has 've"),
    ("H E", "had"),
    ("D V", "do"),
    ("D", "does did"),
    ("E", "done"),
    ("M H", "'d"),
    ("V F N", "need dare help"),
    ("X", "not n't"),
    ("A", "never always often sometimes usually still already just also only even ever too very really quite rather"),
    ("A", "again soon now here there almost maybe perhaps probably definitely certainly actually basically honestly"),
    ("A", "obviously clearly literally seriously simply exactly especially instead otherwise anyway anyways anymore"),
    ("A", "today tomorrow yesterday tonight hardly barely rarely seldom later twice thus hence else indeed somehow"),
    ("A", "somewhere anywhere everywhere nowhere therefore meanwhile nevertheless moreover furthermore not-so enough"),
    ("A J", "pretty well right only far long hard fast early late straight close"),
    ("N", "man dude god damn today tomorrow yesterday tonight"),
    ("I", "oh ah wow hey hi hello yes yeah yep nope lol haha ok okay please thanks well ugh damn man dude no hmm god"),
    ("V F", "let thank"),
    ("Q", "two three four five six seven eight nine ten hundred thousand million billion dozen first second third"),
    ("N J", "second third first"),
)
