"""Sentences with words of the tiny WordNet, and sentences that are left out for a stated reason."""

PAPER = {  # Table 2: original, Negation (Main), Negation (Antonym), the replaced word
    "And that is why it is (or was) illegal.": (
        "And that is not why it is (or was) illegal.",
        "And that is why it is (or was) not illegal.",
        "illegal",
    ),
    "You do not know how much that boosted my self-esteem right now.": (
        "You do know how much that boosted my self-esteem right now.",
        "You do not know how much that did not boost my self-esteem right now.",
        "boosted",
    ),
}
SENTENCES = [
    *PAPER,
    "My brother decided to buy a house near the river.",
    "She bought a large car for her son last year.",
    "The children were happy about the new school.",
    "I love the way that she sings in the morning.",
    "They started to build a bridge over the river.",
    "He is a big man with a small dog.",
    "It isn't illegal to sell your own books here.",
    "We hate the noise that the trains make at night.",
    "The company increased the price of bread last week.",
    "Everyone was glad when the long winter stopped.",
]
UNSUITABLE = {  # sentence: filter, a part of the reason
    "Too short to be taken.": ("length", "fewer than 6"),
    " ".join(["word"] * 26) + ".": ("length", "more than 25"),
    "Is this the house that they want to buy?": ("question", "a question"),
    "Yesterday [NAME] and [NAME] went to see [NAME] and [NAME].": ("names", "more than 3"),
    "(Yesterday) he went to the market to buy bread.": ("whole sentence", "letter"),
    "Yesterday he went to the market to buy bread,": ("whole sentence", "end"),
    "Yesterday he went to the #market to buy bread.": ("marks", "marks other"),
    "Yesterday he went to the market,, to buy bread.": ("marks", "repeated"),
    "Yesterday he went to the LOCAL MARKET to buy bread.": ("marks", "capitals"),
    "Yesterday he went to the damn market to buy bread.": ("language", "a swear word"),
    "Yesterday he went to the blorptastic market to buy bread.": ("words", "unknown"),
    "Yesterday he definately went to the market to buy bread.": ("words", "misspelled"),
    "How do I change the HEAD to another commit": ("statement", "a question"),
    "Yesterday he went to the the market to buy bread.": ("grammar", "doubled"),
    "Yesterday he went to an market to buy bread.": ("grammar", "wrong sound"),
    "He hardly goes to the market to buy bread.": ("main verb", "negated by 'hardly'"),
    "Go to the market now and buy some bread.": ("statement", "no "),
    "To the old market for some bread and butter.": ("statement", "no main verb"),
    "I do not know any of the people in there.": ("main verb", "'any' requires its negation"),
}
