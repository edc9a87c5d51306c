"""The server tokenizes as the encoder does, also in another process and when a template is filled with the text."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from essent.encoder.encoder import Encoder
from essent.recipe.reading import reading_of
from samples import LONG, TEXTS


@pytest.mark.parametrize(
    ("family", "recipe"),
    [("gpt2", "prompteol"), ("gpt2", "echo"), ("llama", "about"), ("roberta", "template=T4"), ("bert", "prompt")],
)
def test_ids_and_tokens_equal_those_of_the_encoder(family: str, recipe: str, folder_of: Callable[[str], Path]) -> None:
    module = Encoder(folder_of(family), recipe).module
    frame, tokenizer = module.plan.frame, module.backbone.tokenizer
    reading = reading_of(tokenizer, frame, 256)
    texts = [*TEXTS, LONG, 'He said "no"', "a </s> b", "A [MASK] runs."]
    module.max_seq_length = None
    sequences = list(map(np.array, reading.framed(texts)))
    for process_reading in (reading, pickle.loads(pickle.dumps(reading))):  # noqa: S301  of this test
        assert process_reading.framed(texts) == module.ids(texts)
    for limit, side in ((len(frame) + 1, "right"), (len(frame) + 7, "left")):
        module.max_seq_length, tokenizer.truncation_side = limit, side
        truncated = reading.truncate(texts, sequences, limit, side == "left")
        assert [ids.tolist() for ids in truncated] == module.ids(texts)
    for text, ids in zip(texts, sequences, strict=True):
        tokens = reading.tokens(text)
        assert [token["id"] for token in tokens] == ids.tolist()
        spans = [(token["start"], token["stop"]) for token in tokens if not token["special"]]
        assert all(0 <= start <= stop <= len(text) for start, stop in spans)
        if text == TEXTS[0] and family != "llama":  # whose unknown pieces are no words
            assert "flute" in {text[start:stop].strip() for start, stop in spans}
