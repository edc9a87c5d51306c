"""Mask predictions are the model's own, in any batch; denoised ones go through the same head."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from essent.encoder.encoder import Encoder
from essent.errors import InputError, ModelError, RecipeError
from essent.lab.explain.predictions import mask_predictions, shown
from essent.recipe.named import TEMPLATES
from families import Folders
from reference import Reference

TEXTS = ["A man is playing a large flute.", "dogs", "", "How far is the moon from the earth"]


def test_predictions_equal_the_reference(folder_of: Folders, reference_of: Callable[[str], Reference]) -> None:
    reference, model = reference_of("roberta"), str(folder_of("roberta"))
    predictions = mask_predictions(model, TEXTS, template="T1", top=4, denoised=True, batch_size=2)
    masks = range(1, TEMPLATES["T1"].count("[MASK]") + 1)
    assert [(row.text, row.mask) for row in predictions.rows] == [(text, mask) for text in TEXTS for mask in masks]
    rows, vocabulary = iter(predictions.rows), Encoder(model, "mean").module.backbone.vocabulary
    for text in TEXTS:
        sentence = reference.sentence(text, TEMPLATES["T1"])
        ids = sentence.ids
        plain = reference.token_probabilities(ids)
        denoised = reference.token_probabilities(ids, reference.source(sentence, "L-bias"))
        for position in np.flatnonzero(np.array(ids) == reference.tokenizer.mask_token_id):
            row = next(rows)
            for tokens, probabilities in ((row.tokens, plain[position]), (row.denoised, denoised[position])):
                order = np.argsort(-probabilities, kind="stable")
                np.testing.assert_allclose([t.probability for t in tokens], probabilities[order[:4]], atol=1e-5)
                names = {shown(vocabulary, int(i)) for i in order[:6]}  # near ties may swap
                assert {prediction.token for prediction in tokens} <= names


def test_bad_input(bert: Path, folder_of: Folders) -> None:
    with pytest.raises(ModelError, match="gpt2 has no masked-LM head"):
        mask_predictions(folder_of("gpt2"), TEXTS)
    with pytest.raises(InputError, match="at least one text"):
        mask_predictions(str(bert), [])
    with pytest.raises(InputError, match="top=0"):
        mask_predictions(str(bert), TEXTS, top=0)
    for template, message in (
        ("one-word", r"has no \[MASK\] to predict"),
        ("{text} means [MASK]" + " and so on" * 90, r"tokens, and the model reads at most 256"),
        ("[MASK]", "must have exactly one"),
        ("T0+T4", "one template, not a sum or none"),
        ("{tokens} means [MASK] : {tokens}", "repeats the text: use denoised=False"),
    ):
        with pytest.raises(RecipeError, match=message):
            mask_predictions(str(bert), TEXTS, template=template, denoised=True)
