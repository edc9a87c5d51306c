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


def write_wordnet(data: Path) -> Path:
    """Write all files that NLTK wants into its data folder; returns this."""
    folder = data / "corpora" / "wordnet"
    folder.mkdir(parents=True, exist_ok=True)
    offsets = _offsets()
    (folder / "lexnames").write_text("00\tadj.all\t3\n", "latin-1")
    for name in ("index.sense", *(f"{part}.exc" for part in LETTER)):
        (folder / name).touch()
    for part in LETTER:
        lines = [_line(name, offsets) for name, row in SYNSETS.items() if row[0] == part]
        (folder / f"data.{part}").write_text(LICENCE + "".join(lines), "latin-1")
        (folder / f"index.{part}").write_text(LICENCE + "".join(_index(part, offsets)), "latin-1")
    counts = [
        f"{word}%{KEYS[part]}:00:{_number(name, word):02d}:: 1 {count}\n"
        for name, (part, words, count, _) in SYNSETS.items()
        for word in words.replace("(p)", "").split()
    ]
    (folder / "cntlist.rev").write_text("".join(sorted(counts)), "latin-1")
    return data


def _offsets() -> dict[str, int]:
    """Every line is as long with any offset in it, so two rounds are enough."""
    unknown = dict.fromkeys(SYNSETS, 0)
    offsets = {}
    for part in LETTER:
        at = len(LICENCE)
        for name, row in SYNSETS.items():
            if row[0] == part:
                offsets[name] = at
                at += len(_line(name, unknown))
    return offsets


def _number(name: str, word: str) -> int:
    """How many meanings of a word come before this one: tells its senses from each other."""
    return [synset for synset, row in SYNSETS.items() if word in row[1].replace("(p)", "").split()].index(name)


def _line(name: str, offsets: dict[str, int]) -> str:
    part, words, _, pointers = SYNSETS[name]
    spelled = " ".join(f"{word} {_number(name, word.removesuffix('(p)'))}" for word in words.split())
    pointed = "".join(
        f" {kind} {offsets[synset]:08d} {LETTER[SYNSETS[synset][0]]} {source:02x}{target:02x}"
        for kind, synset, source, target in pointers
    )
    head = f"{offsets[name]:08d} 00 {LETTER[part]} {len(words.split()):02x} {spelled} {len(pointers):03d}{pointed}"
    frames = FRAMES.get(name, [])
    verb_frames = f" {len(frames):02d}" + "".join(f" + {n:02d} {of:02x}" for n, of in frames) if frames else ""
    return f"{head}{verb_frames} | {name} in a few words  \n"


def _index(part: str, offsets: dict[str, int]) -> list[str]:
    synsets_by_word: dict[str, list[str]] = {}
    for name, (kind, words, _, _) in SYNSETS.items():
        for word in words.replace("(p)", "").split() if kind == part else ():
            synsets_by_word.setdefault(word, []).append(name)
    return [
        f"{word} {LETTER[part]} {len(names)} 1 ! {len(names)} 1 {' '.join(f'{offsets[n]:08d}' for n in names)}  \n"
        for word, names in sorted(synsets_by_word.items())
    ]
