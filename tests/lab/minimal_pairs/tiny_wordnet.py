"""A WordNet of a few words, written in the format of Princeton's database files, where NLTK looks for it."""

from __future__ import annotations

from pathlib import Path

LETTER = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
KEYS = {"noun": "1", "verb": "2", "adj": "3", "adv": "4"}
LICENCE = "  1 Not Princeton's database: a few words in the format of WordNet 3.0 Copyright Princeton University.\n"

# name of a synset: part of speech, words, how often its first sense is tagged, pointers (kind, synset, from, to)
SYNSETS: dict[str, tuple[str, str, int, list[tuple[str, str, int, int]]]] = {
    "illegal": ("adj", "illegal", 9, [("!", "legal", 1, 1), ("&", "illegitimate", 0, 0)]),
    "legal": ("adj", "legal", 8, [("!", "illegal", 1, 1)]),
    "illegitimate": ("adj", "illegitimate", 2, [("&", "illegal", 0, 0)]),
    "boost": ("verb", "boost hike hike_up", 4, [("@", "increase", 0, 0)]),
    "increase": ("verb", "increase", 20, [("!", "decrease", 1, 1), ("~", "boost", 0, 0)]),
    "decrease": ("verb", "decrease lower", 7, [("!", "increase", 1, 1)]),
    "big": ("adj", "large big", 30, [("!", "small", 2, 1), ("!", "small", 1, 2)]),
    "small": ("adj", "small little", 30, [("!", "big", 1, 1), ("!", "big", 2, 2)]),
    "happy": ("adj", "happy glad(p)", 30, [("!", "unhappy", 1, 1), ("!", "sad", 2, 1), ("+", "happiness", 1, 1)]),
    "unhappy": ("adj", "unhappy", 9, [("!", "happy", 1, 1)]),
    "sad": ("adj", "sad", 9, [("!", "happy", 1, 2)]),
    "buy": ("verb", "buy purchase", 30, [("!", "sell", 1, 1)]),
    "sell": ("verb", "sell", 20, [("!", "buy", 1, 1)]),
    "love": ("verb", "love adore", 30, [("!", "hate", 1, 1)]),
    "hate": ("verb", "hate detest", 20, [("!", "love", 1, 1)]),
    "start": ("verb", "start begin", 30, [("!", "stop", 1, 1)]),
    "stop": ("verb", "stop halt", 20, [("!", "start", 1, 1)]),
    "happiness": ("noun", "happiness", 5, [("+", "happy", 1, 1)]),
    "really": ("adv", "really", 5, []),
    "slope": ("noun", "bank slope", 5, []),
    "limits": ("noun", "bounds bound", 2, []),
    "institution": ("noun", "bank depository", 3, []),
}


FRAMES = {"start": [(8, 0), (28, 1)]}  # of verbs: number of the frame, of which word, 0 for all


WIDTH = 300  # of every line, so that its offset in the file follows from its number


def write_wordnet(data: Path) -> Path:
    """Write all files that NLTK wants into its data folder; returns this."""
    folder = data / "corpora" / "wordnet"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lexnames").write_text("00\tadj.all\t3\n", "latin-1")
    for name in ("index.sense", *(f"{part}.exc" for part in LETTER)):
        (folder / name).touch()
    for part in LETTER:
        lines = [_line(name) for name in _names(part)]
        (folder / f"data.{part}").write_text(LICENCE + "".join(lines), "latin-1")
        (folder / f"index.{part}").write_text(LICENCE + "".join(_index(part)), "latin-1")
    counts = [
        f"{word}%{KEYS[part]}:00:{_number(name, word):02d}:: 1 {count}\n"
        for name, (part, _, count, _) in SYNSETS.items()
        for word in _words(name)
    ]
    (folder / "cntlist.rev").write_text("".join(sorted(counts)), "latin-1")
    return data


def _names(part: str) -> list[str]:
    return [name for name, row in SYNSETS.items() if row[0] == part]


def _words(name: str) -> list[str]:
    return SYNSETS[name][1].replace("(p)", "").split()


def _offset(name: str) -> str:
    return f"{len(LICENCE) + WIDTH * _names(SYNSETS[name][0]).index(name):08d}"


def _number(name: str, word: str) -> int:
    """How many meanings of a word come before this one: tells its senses from each other."""
    return [synset for synset in SYNSETS if word in _words(synset)].index(name)


def _line(name: str) -> str:
    part, words, _, pointers = SYNSETS[name]
    spelled = " ".join(f"{word} {_number(name, word.removesuffix('(p)'))}" for word in words.split())
    pointed = "".join(
        f" {kind} {_offset(synset)} {LETTER[SYNSETS[synset][0]]} {source:02x}{target:02x}"
        for kind, synset, source, target in pointers
    )
    head = f"{_offset(name)} 00 {LETTER[part]} {len(words.split()):02x} {spelled} {len(pointers):03d}{pointed}"
    frames = FRAMES.get(name, [])
    verb_frames = f" {len(frames):02d}" + "".join(f" + {n:02d} {of:02x}" for n, of in frames) if frames else ""
    return f"{head}{verb_frames} | {name} in a few words  ".ljust(WIDTH - 1) + "\n"


def _index(part: str) -> list[str]:
    words = sorted({word for name in _names(part) for word in _words(name)})
    offsets = {word: [_offset(name) for name in _names(part) if word in _words(name)] for word in words}
    return [f"{word} {LETTER[part]} {len(at)} 1 ! {len(at)} 1 {' '.join(at)}  \n" for word, at in offsets.items()]
