"""Sentences in frames: who is framed, with what, and the same every time."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from essent.errors import InputError
from essent.lab.pretrain.data import FRAMES, in_frames, pack
from essent.lab.pretrain.run import pretrain
from essent.lab.pretrain.settings import Pretraining, Start

NOUNS = ("river", "garden", "kitchen", "station", "window")
TEXTS = [f"The old {NOUNS[n % 5]} is near the Big {NOUNS[(n * 3 + 1) % 5]} of Ulm{n}." for n in range(60)]
ALL = [re.escape(frame).replace(r"\{text\}", "(?P<text>.+)") for frame in FRAMES]
PATTERNS = [
    re.compile(pattern.replace(r"\{first\}", r"(?P<first>\w+)").replace(r"\{second\}", r"(?P<second>\w+)"))
    for pattern in ALL
]


def test_every_frame_holds_the_sentence_and_its_rare_words() -> None:
    framed = in_frames(TEXTS, 1.0)
    counts = Counter(word for text in TEXTS for word in set(re.findall(r"[a-z]{3,}", text.lower())))
    used = set()
    for before, after in zip(TEXTS, framed, strict=True):
        number, match = next((n, match) for n, pattern in enumerate(PATTERNS) if (match := pattern.fullmatch(after)))
        used.add(number)
        text, *fillings = match.groups()
        assert text == before.rstrip(".")
        assert all(filling in before for filling in fillings)  # as it is written there
        assert len(set(fillings)) == len(fillings)
        rarest = sorted(counts[w] for w in set(re.findall(r"[a-z]{3,}", before.lower())) if counts[w] >= 4)[:3]
        assert all(counts[filling.lower()] <= rarest[-1] for filling in fillings)
    assert len(used) == len(FRAMES)


def test_share_of_framed_texts() -> None:
    odd = ["Too short.", "word " * 23, "Unheardof neologisms abound nowadays.", "这里没有空格"]
    framed = in_frames([*TEXTS, *odd], 0.5, seed=3)
    assert framed[-4:] == odd
    assert 15 < sum(before == after for before, after in zip(TEXTS, framed, strict=False)) < 45
    assert framed == in_frames([*TEXTS, *odd], 0.5, seed=3) != in_frames([*TEXTS, *odd], 0.5, seed=4)


def test_frame_refusals() -> None:
    with pytest.raises(InputError, match="no text has 4 to 22 words"):
        in_frames(["One two.", "Three."], 0.5)


def test_validation_texts_are_plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packed: list[list[str]] = []

    def recording_pack(tokenizer: Any, texts: list[str], *sizes: Any, **options: Any) -> Any:
        packed.append(texts)
        return pack(tokenizer, texts, *sizes, **options)

    monkeypatch.setattr("essent.lab.pretrain.run.pack", recording_pack)
    settings = Pretraining(max_steps=1, batch_size=2, max_seq_length=32, frames=1.0)
    pretrain(TEXTS, tmp_path, Start(config="tiny", vocabulary=200), settings, device="cpu")
    learned, measured = packed
    assert all(any(pattern.fullmatch(text) for pattern in PATTERNS) for text in learned)
    assert set(measured) <= set(TEXTS)
