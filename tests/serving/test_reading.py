"""The server's tokenization equals the encoder's, when a template is filled with the text too."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from essent.encoder.encoder import Encoder
from essent.recipe.reading import Reading
from families import CORPUS
from samples import LONG, TEXTS


@pytest.mark.parametrize(
    ("family", "recipe"),
    [("gpt2", "prompteol"), ("gpt2", "echo"), ("llama", "about"), ("roberta", "template=T4"), ("bert", "prompt")],
)
def test_ids_and_tokens_equal_those_of_the_encoder(family: str, recipe: str, folder_of: Callable[[str], Path]) -> None:
    module = Encoder(folder_of(family), recipe).module
    frame, tokenizer = module.plan.frame, module.backbone.tokenizer
    reading = Reading(tokenizer.backend_tokenizer.to_str(), frame, 256, False, ())
    texts = [CORPUS[0], *TEXTS, LONG, 'He said "no"', "How far?", "a </s> b", ""]
    module.max_seq_length = None
    sequences = list(map(np.array, reading.framed(texts)))
    assert [ids.tolist() for ids in sequences] == module.ids(texts)
    for limit in (len(frame) + 1, len(frame) + 7):
        module.max_seq_length = limit
        assert [ids.tolist() for ids in reading.truncate(texts, sequences, limit, False)] == module.ids(texts)
    for text, ids in zip(texts, sequences, strict=True):
        tokens = reading.tokens(text)
        assert [token["id"] for token in tokens] == ids.tolist()
        spans = [(token["start"], token["stop"]) for token in tokens if not token["special"]]
        assert all(0 <= start <= stop <= len(text) for start, stop in spans)
        if text == CORPUS[0] and family != "llama":  # whose unknown pieces are no words
            assert "flute" in {text[start:stop].strip() for start, stop in spans}


def test_a_pickled_reading_reads_the_same(folder_of: Callable[[str], Path]) -> None:
    """The name of a special token within a text is text, in the process of the engine too."""
    module = Encoder(folder_of("bert"), "prompt").module
    frame = replace(module.plan.frame, template="", dot_rule=True)  # text with the names of special tokens is plain
    reading = Reading(module.backbone.tokenizer.backend_tokenizer.to_str(), frame, 256, False, ())
    texts = ["A [MASK] runs.", *TEXTS]
    expected = reading.framed(texts)
    assert pickle.loads(pickle.dumps(reading)).framed(texts) == expected  # noqa: S301  of this test
    assert module.backbone.tokenizer.mask_token_id not in reading.text_ids(texts)[0]
