"""The masked language model: probabilities and states against a slow pass for each word."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from heros_sentences import SENTENCES
from transformers import AutoModelForMaskedLM, AutoTokenizer

from essent.errors import ModelError
from essent.lab.minimal_pairs.masked import Asked, MaskedModel
from essent.lab.minimal_pairs.parsing import read_table


def queries_for(*words: str) -> list[Asked]:
    """One word of each sentence."""
    spans = [list(re.finditer(r"\w+", text))[n % 7].span() for n, text in enumerate(SENTENCES)]
    return [Asked(text, *span, words) for text, span in zip(SENTENCES, spans, strict=True)]


def test_slots_match_single_passes(model: MaskedModel, masked_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(masked_folder)
    slow = AutoModelForMaskedLM.from_pretrained(masked_folder).double().eval()
    queries = queries_for("green", "buy", "blorp")
    model.batch_size = 5
    for (text, start, end, _), slot in zip(queries, model.slots(queries), strict=True):
        ids = tokenizer(text[:start] + "[MASK]" + text[end:], return_tensors="pt")
        with torch.no_grad():
            row = slow(**ids).logits[0, ids["input_ids"][0].tolist().index(4)].log_softmax(-1)
        assert slot.words["green"] == pytest.approx(float(row[tokenizer.vocab["green"]]), abs=1e-5)
        assert slot.words["blorp"] == -np.inf
        expected = {filler: float(row[tokenizer.vocab[filler]]) for filler in slot.fillers}
        assert slot.fillers == pytest.approx(expected, abs=1e-5)
        assert list(expected.values()) == sorted(expected.values(), reverse=True)
        assert not {"##s", "[PAD]", ".", "("} & set(slot.fillers)


def test_similarities_are_cosines_of_states(model: MaskedModel, masked_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(masked_folder)
    slow = AutoModelForMaskedLM.from_pretrained(masked_folder).double().eval()

    def state(text: str, word: str, start: int) -> np.ndarray:
        ids = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            hidden = slow(**ids, output_hidden_states=True).hidden_states[2][0]
        inside = [n for n in range(hidden.shape[0]) if (span := ids.token_to_chars(n)) and span.start == start]
        return hidden[inside[0]].numpy()

    vectors = np.stack(
        [state(text, word, text.index(word)) for text, word, _ in map(dict.values, read_table("probes.tsv"))]
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    base = np.mean([first @ second for first, second in permutations(vectors, 2)])
    assert 0 < base < 1
    queries = queries_for("green", "buy")
    for (text, start, end, substitutes), similarities in zip(queries, model.similarities(queries), strict=True):
        own = state(text, text[start:end], start)
        assert set(similarities) == set(substitutes)
        for substitute, cosine in similarities.items():
            vector = state(text[:start] + substitute + text[end:], substitute, start)
            expected = own @ vector / np.linalg.norm(own) / np.linalg.norm(vector)
            assert cosine == pytest.approx((expected - base) / (1 - base), abs=1e-5)


def test_truncated_words(model: MaskedModel) -> None:
    text = "the river " * 60 + "green"
    (slot,) = model.slots([Asked(text, 600, 605, ("green",))])
    assert slot == ({"green": -np.inf}, {})
    (similarities,) = model.similarities([Asked(text, 600, 605, ("strange",))])
    assert similarities["strange"] == pytest.approx(-model.baseline / (1 - model.baseline))  # of a cosine of 0


def test_masked_model_refusals(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="mask"):
        MaskedModel(str(folder_of("gpt2")))
    with pytest.raises(ModelError, match="nowhere"):
        MaskedModel(str(tmp_path / "nowhere"))
