"""Word importance: perturbed masking and head diagonals against one pass a token in float64."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from essent.errors import InputError, ModelError
from essent.lab.explain import importance
from essent.lab.explain.importance import HeadAgreement, head_agreement, impact_agreement, impact_matrix
from families import CORPUS, WITHOUT_MASK, Folders
from reference import Counts, Reference


def framed(reference: Reference, text: str) -> tuple[list[int], list[int]]:
    """Ids of a text with its special tokens, and the places of its own."""
    sentence = reference.sentence(text, None)
    return list(sentence.ids), [n for n in range(len(sentence.ids)) if sentence.content[n]]


def tfidf_of(sequences: list[tuple[list[int], list[int]]], counts: Counts) -> list[float]:
    return [counts.idf(ids[n]) * counts.tf(ids[n]) for ids, own in sequences for n in own]


def test_impact_and_its_agreement_with_tfidf(
    folder_of: Folders, reference_of: Callable[[str], Reference], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importance, "TOKENS", 50)  # several batches
    model, reference, texts = folder_of("roberta"), reference_of("roberta"), CORPUS[:3]
    impacts = [impact_matrix(model, text, device="cpu") for text in texts]
    ids, own = framed(reference, texts[0])

    def state(position: int, *masked: int) -> np.ndarray:
        own_ids = [reference.tokenizer.mask_token_id if n in masked else token for n, token in enumerate(ids)]
        return reference.run(own_ids)[0][reference.last][position]

    expected = np.array([[np.linalg.norm(state(i, i) - state(i, i, j)) for j in own] for i in own])
    assert impacts[0].matrix == pytest.approx(expected, abs=1e-4)
    assert impacts[0].means == pytest.approx(expected.mean(axis=0), abs=1e-4)
    assert impacts[0].ids == tuple(ids[n] for n in own)
    assert list(impacts[0].tokens) == reference.tokenizer.convert_ids_to_tokens(list(impacts[0].ids))

    means = np.concatenate([impact.means for impact in impacts])
    counts = Counts.of([framed(reference, text)[0] for text in CORPUS])
    weights = tfidf_of([framed(reference, text) for text in texts], counts)
    agreement = impact_agreement(model, texts, frequency_texts=CORPUS, device="cpu")
    assert agreement.pearson == pytest.approx(100 * pearsonr(means, weights).statistic, abs=1e-2)
    assert agreement.spearman == pytest.approx(100 * spearmanr(means, weights).statistic, abs=1e-2)
    assert (agreement.tokens, agreement.texts) == (len(means), 3)


def test_every_head_against_tfidf(folder_of: Folders, reference_of: Callable[[str], Reference]) -> None:
    reference = reference_of("deberta-v2")
    texts = [*CORPUS[:6], "", CORPUS[0]]  # of many lengths; an empty one; a repeated one
    sequences = [framed(reference, text) for text in texts]
    expected = tfidf_of(sequences, Counts.of([ids for ids, _ in sequences]))
    agreement = head_agreement(folder_of("deberta-v2"), texts, batch_size=2, device="cpu")
    assert agreement.pearson.shape == agreement.spearman.shape == (reference.last, 4)
    for layer, head in np.ndindex(agreement.pearson.shape):
        diagonal: list[float] = []
        for ids, own in sequences:
            values = reference.diagonal(ids, f"{layer + 1}-{head + 1}") if own else []
            diagonal += [values[n] for n in own]
        assert agreement.pearson[layer, head] == pytest.approx(100 * pearsonr(diagonal, expected).statistic, abs=1e-2)
        spearman = 100 * spearmanr(diagonal, expected).statistic
        assert agreement.spearman[layer, head] == pytest.approx(spearman, abs=0.2)  # near-ties may swap
    assert (agreement.tokens, agreement.texts) == (len(expected), len(texts))


def test_best_heads() -> None:
    spearman = np.array([[10.0, math.nan], [30.0, 20.0]])
    agreement = HeadAgreement(spearman + 1, spearman, 9, 2)
    assert agreement.best(3) == [("2-1", 31.0, 30.0), ("2-2", 21.0, 20.0), ("1-1", 11.0, 10.0)]


def test_short_texts(bert: Path) -> None:
    """No correlation of fewer than two tokens, or of tokens of equal weight."""
    assert impact_matrix(bert, "").matrix.shape == (0, 0)
    assert impact_matrix(bert, "man").matrix.tolist() == [[0.0]]
    alone = impact_agreement(bert, ["man", ""])
    assert math.isnan(alone.pearson)
    assert alone.tokens == 1
    for text in ("", "man man"):
        agreement = head_agreement(bert, [text])
        assert np.isnan([agreement.pearson, agreement.spearman]).all()


def test_refusals(folder_of: Folders, bert: Path, static_folder: Path) -> None:
    for measure in (impact_matrix, head_agreement):  # of a static model: zeros, as if measured
        with pytest.raises(ModelError, match="A static model has no attention heads"):
            measure(static_folder, ["hello world"])
    with pytest.raises(InputError, match=f"mask token.*{WITHOUT_MASK[0]}"):
        impact_matrix(folder_of(WITHOUT_MASK[0]), "a", device="cpu")
    with pytest.raises(InputError, match="at least one text"):
        head_agreement(bert, [])
