"""Sentences with words of a tiny WordNet, and this WordNet in the format of Princeton, where NLTK looks for it."""

from pathlib import Path


def rows_of(name: str) -> list[list[str]]:
    """The rows of a table beside this file."""
    return [line.split("\t") for line in Path(__file__).with_name(name).read_text("utf-8").splitlines()]


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
UNSUITABLE = dict(rows_of("unsuitable.tsv"))  # sentence: a part of the reason


# -- a tiny WordNet ---------------------------------------------------------------------------------------------------


PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
LICENCE = "  1 Not Princeton's database: a few words in the format of WordNet 3.0 Copyright Princeton University.\n"
# name of a synset -> part of speech, words, pointers (kind and synset, from, to), how often its first sense is tagged
SYNSETS = {name: row for name, *row in rows_of("synsets.tsv")}
NUMBERS = {name: number for number, name in enumerate(SYNSETS)}  # also tell the senses of a word from each other
WIDTH = 300  # of every line, so that its offset in the file follows from its number


def write_wordnet(data: Path) -> Path:
    """Write all files that NLTK wants into its data folder; returns this."""
    folder = data / "corpora" / "wordnet"
    folder.mkdir(parents=True)
    (folder / "lexnames").write_text("00\tadj.all\t3\n", "latin-1")
    (folder / "index.sense").touch()
    counts: list[str] = []
    for number, (part, letter) in enumerate(PARTS.items(), start=1):
        offsets: dict[str, list[str]] = {}  # of the synsets of a word
        for name, (kind, words, _, count) in SYNSETS.items():
            if kind != part:
                continue
            for word in words.replace("(p)", "").split():
                offsets.setdefault(word, []).append(_offset(name))
                counts.append(f"{word}%{number}:00:{NUMBERS[name]:02d}:: 1 {count}\n")
        index = [
            f"{word} {letter} {len(at)} 1 ! {len(at)} 1 {' '.join(at)}  \n" for word, at in sorted(offsets.items())
        ]
        (folder / f"{part}.exc").touch()
        (folder / f"data.{part}").write_text(LICENCE + "".join(map(_line, SYNSETS)), "latin-1")
        (folder / f"index.{part}").write_text(LICENCE + "".join(index), "latin-1")
    (folder / "cntlist.rev").write_text("".join(sorted(counts)), "latin-1")
    return data


def _offset(name: str) -> str:
    return f"{len(LICENCE) + WIDTH * NUMBERS[name]:08d}"


def _line(name: str) -> str:
    part, words, pointers, _ = SYNSETS[name]
    senses = [f" {word} {NUMBERS[name]:x}" for word in words.split()]
    head = f"{_offset(name)} 00 {PARTS[part]} {len(senses):02x}{''.join(senses)} {len(pointers.split()):03d}"
    for pointer in pointers.split():
        target, start, end = pointer[1:].split(",")
        head += f" {pointer[0]} {_offset(target)} {PARTS[SYNSETS[target][0]]} {int(start):02x}{int(end):02x}"
    return f"{head} | {name} in a few words  ".ljust(WIDTH - 1) + "\n"
