"""The log-odds of a synonym and an antonym, and that the surest originals are kept."""

from __future__ import annotations

import math
import sys

import pytest
from heros_sentences import SENTENCES

from essent.minimal_pairs import Resources, build
from essent.minimal_pairs.confidence import Evidence, confidence
from essent.types import InputError


def test_the_log_odds_are_a_sum() -> None:
    evidence = Evidence(similarity=0.5, prior=-1.0, probability=-4.0, own=-2.0, senses=4, verb=True, prefix=True)
    assert math.isclose(evidence.synonym, 4.9 + 2.05 - 0.25 - 0.72 - 0.86 - 0.93 * math.log(4))
    assert math.isclose(evidence.antonym, 4.2 + 1.1 - 0.35 - 0.72 - 0.46 - 0.23 * math.log(4) + 0.93 - 0.6)


def test_words_without_a_token_and_improbable_ones() -> None:
    unseen = Evidence(0.5, -1.0, -math.inf, -math.inf, 1)
    assert math.isclose(unseen.synonym, Evidence(0.5, -1.0, -12.0, -12.0, 1).synonym)
    assert Evidence(0.5, -1.0, -40.0, -2.0, 1).antonym == Evidence(0.5, -1.0, -14.0, -2.0, 1).antonym
    assert unseen.synonym < Evidence(0.5, -1.0, -4.0, -2.0, 1).synonym


def test_the_synonym_weighs_more() -> None:
    chances = [1 / (1 + math.exp(-odds)) for odds in (0.5, 2.0)]
    assert math.isclose(confidence(0.5, 2.0), 3 * math.log(chances[0]) + math.log(chances[1]))
    assert confidence(2.0, 0.5) > confidence(0.5, 2.0)


def test_the_surest_are_kept_whatever_their_order(resources: Resources, lenient: None) -> None:
    kept = {
        (n, seed): {row.original for row in build(SENTENCES, resources, n=n, seed=seed)[0]}
        for n in (2, 4, 6)
        for seed in (0, 1)
    }
    assert kept[2, 0] < kept[4, 0] < kept[6, 0]
    assert all(kept[n, 0] == kept[n, 1] for n in (2, 4, 6))
    _, quality = build(SENTENCES, resources, n=2)
    assert quality.fallen["wanted"] == {"others are surer, or came first": quality.left["typo"] - 2}


def test_looking_stops(resources: Resources, lenient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[build.__module__], "CHUNK", 4)
    shown: list[tuple[int, int]] = []
    rows, quality = build(SENTENCES, resources, n=1, look_at=5, progress=lambda seen, all: shown.append((seen, all)))
    assert len({row.original for row in rows}) == 1
    assert quality.seen == shown[-1][0] == shown[-1][1] == 8 < len(SENTENCES)
    *_, everything = build(SENTENCES, resources, n=1000, look_at=1)
    assert everything.seen == len(SENTENCES)


def test_without_a_model_the_first_are_kept(lenient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[build.__module__], "CHUNK", 4)
    rows, quality = build(SENTENCES, Resources(), n=2)
    assert len({row.original for row in rows}) == 2
    assert quality.seen < len(SENTENCES)


def test_at_least_one_sentence_is_looked_at(resources: Resources) -> None:
    with pytest.raises(InputError, match="look_at must be at least 1, not 0"):
        build(SENTENCES, resources, look_at=0)
