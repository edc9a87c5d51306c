"""Averages over contexts: float64 loops, resumed runs, other batches and orders; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from essent.encoder.pipeline.plan import Plan
from essent.errors import DataError, InputError, ModelError
from essent.model.backbone import Backbone
from essent.model.loading import load
from essent.model.token_rows import rows_backbone
from essent.recipe.recipe import Recipe
from essent.recipe.sources.contexts import Contexts
from essent.static import gather
from essent.static.gather import Settings, average_contexts
from families import CORPUS, build_tokenizer
from samples import LONG, TEXTS

CORPUS = [*CORPUS[:8], *TEXTS, LONG, "the ☃ man", "Zebrafish, and a zebrafish"]


@pytest.fixture(scope="module")
def backbone_of(folder_of: Callable[[str], Path]) -> Callable[[str], Backbone]:
    return lambda family: load(str(folder_of(family)), [], {"device": "cpu"}).backbone


@pytest.fixture(scope="module")
def backbone(backbone_of: Callable[[str], Backbone]) -> Backbone:
    return backbone_of("bert")


def loop(backbone: Backbone, layer: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One text, one token at a time, float64: averages, counts, document frequencies."""
    rows = len(backbone.vocabulary)
    sums, count, frequency = np.zeros((rows, backbone.dimensions)), np.zeros(rows, int), np.zeros(rows, int)
    for text in CORPUS:
        limit = {"truncation": True, "max_length": backbone.max_seq_length} if backbone.max_seq_length else {}
        ids = backbone.tokenizer(text, **limit)["input_ids"]
        if not ids:
            continue
        with torch.no_grad():
            states = backbone.model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0]
        for token, state in zip(ids, states.double().numpy(), strict=True):
            sums[token] += state
            count[token] += 1
        for token in set(ids):
            frequency[token] += 1
    return sums / np.maximum(count, 1)[:, None], count, frequency


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_averages_match_a_loop(family: str, backbone_of: Callable[[str], Backbone]) -> None:
    backbone = backbone_of(family)
    contexts, vectors = average_contexts(backbone, CORPUS)
    assert sorted(contexts.tables) == [0, 1, 2, 3]
    assert vectors is None
    for layer in (0, 2, 3):
        expected, count, frequency = loop(backbone, layer)
        np.testing.assert_array_equal(contexts.count, count)
        np.testing.assert_array_equal(contexts.document_frequency, frequency)
        occurring = contexts.seen
        np.testing.assert_allclose(contexts.table(layer)[occurring], expected[occurring], atol=1e-5)
    assert contexts.texts == len(CORPUS)


def test_vectors_come_along_whatever_the_order_and_the_batches(backbone: Backbone) -> None:
    plan = Plan(Recipe.parse("first-last"), backbone)
    contexts, vectors = average_contexts(backbone, CORPUS, Settings(layers=[3]), plan)
    reordered, reversed_vectors = average_contexts(backbone, CORPUS[::-1], Settings(layers=[3], batch_size=1), plan)
    np.testing.assert_allclose(contexts.table(3), reordered.table(3), atol=1e-5)
    np.testing.assert_array_equal(contexts.count, reordered.count)
    assert vectors is not None
    assert reversed_vectors is not None
    assert vectors.shape == (len(CORPUS), backbone.dimensions)
    np.testing.assert_allclose(vectors, reversed_vectors[::-1], atol=1e-5)


# -- tokens never seen ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["alone", "static", "zero", "mean"])
def test_unseen_tokens(rule: str, backbone: Backbone) -> None:
    contexts, _ = average_contexts(backbone, CORPUS[:2], Settings(layers=[3], unseen=rule))
    token = next(i for i in np.flatnonzero(~contexts.seen) if backbone.vocabulary.tokens[i])
    frame = [backbone.tokenizer.cls_token_id, token, backbone.tokenizer.sep_token_id]
    with torch.no_grad():
        states = backbone.model(input_ids=torch.tensor([frame])).last_hidden_state[0, 1]
    table, averages = backbone.static_table.detach().numpy(), contexts.table(3)[contexts.seen]
    rows, counts = table[contexts.seen[: len(table)]], contexts.count[contexts.seen]
    deviations = [vectors - vectors.mean(axis=0) for vectors in (averages, rows)]
    scale = np.divide(*(np.linalg.norm(deviation, axis=1).mean() for deviation in deviations))
    expected = {
        "alone": states.numpy(),
        "static": averages.mean(axis=0) + (table[token] - rows.mean(axis=0)) * scale,
        "zero": np.zeros(backbone.dimensions),
        "mean": counts @ averages / counts.sum(),
    }[rule]
    np.testing.assert_allclose(contexts.table(3)[token], expected, atol=1e-5)
    padding = [i for i, name in enumerate(backbone.vocabulary.tokens) if not name]
    assert padding
    assert not contexts.table(3)[padding].any()


# -- a run that is killed ---------------------------------------------------------------------------------------------


def test_a_killed_run_goes_on(
    backbone: Backbone, backbone_of: Callable[[str], Backbone], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "PORTION", 4)
    plan = Plan(Recipe.parse("mean"), backbone)
    whole, vectors = average_contexts(backbone, CORPUS, Settings(layers=[1, 3]), plan)
    path, encoded, framed_ids = tmp_path / "state.safetensors", [0], gather.framed_ids
    settings = Settings(layers=[1, 3], state=path, every=0.0)

    def counted(tokenizer: Any, frame: Any, texts: list[str], limit: int | None) -> list[list[int]]:
        if encoded[0] == 12:
            raise KeyboardInterrupt
        encoded[0] += len(texts)
        return framed_ids(tokenizer, frame, texts, limit)

    monkeypatch.setattr(gather, "framed_ids", counted)
    with pytest.raises(KeyboardInterrupt):
        average_contexts(backbone, CORPUS, settings, plan)
    encoded[0] = 100
    for _ in range(2):  # goes on; is complete, and nothing is encoded again
        again, same = average_contexts(backbone, CORPUS, settings, plan)
        assert encoded[0] == 100 + len(CORPUS) - 12
        np.testing.assert_allclose(again.table(3), whole.table(3), atol=1e-6)
        np.testing.assert_allclose(same, vectors, atol=1e-6)
        np.testing.assert_array_equal(again.count, whole.count)
    for model, texts, layers, reason in (
        (backbone, CORPUS[:-1], [1, 3], "the texts differ"),
        (backbone, CORPUS, [3], "the settings differ"),
        (backbone_of("electra"), CORPUS, [1, 3], "the model differ"),
    ):
        with pytest.raises(DataError, match=reason):
            average_contexts(model, texts, Settings(layers=layers, state=path), Plan(Recipe.parse("mean"), model))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="Delete it to start over"):
        average_contexts(backbone, CORPUS, settings, plan)
    average_contexts(backbone, CORPUS, replace(settings, renew=True), plan)


# -- files and errors -------------------------------------------------------------------------------------------------


def test_saved_and_loaded(backbone: Backbone, tmp_path: Path) -> None:
    contexts, _ = average_contexts(backbone, CORPUS, Settings(layers=[0, 3]))
    contexts.save(tmp_path / "avg")
    again = Contexts.load(tmp_path / "avg")
    expected = (contexts.texts, 3, backbone.vocabulary.digest, contexts.about)
    assert (again.texts, again.last, again.vocabulary, again.about) == expected
    for layer in (0, 3):
        np.testing.assert_array_equal(again.table(layer), contexts.table(layer))
    np.testing.assert_array_equal(again.stats.count, contexts.count)
    assert list(Contexts.load(tmp_path / "avg", {3}).tables) == [3]
    with pytest.raises(DataError, match=r"Layer 1 was not averaged. Averaged layers: 0, 3 \(L = 3"):
        again.table(1)


def test_refusals(backbone: Backbone, backbone_of: Callable[[str], Backbone], tmp_path: Path) -> None:
    for texts, settings, reason in (
        ([], None, "no texts"),
        ("a text", None, "list of texts"),
        (CORPUS, Settings(layers=[9]), "Layer 9 does not exist: the model has layers 0 to 3"),
        (CORPUS, Settings(layers=[]), r"layers=\[\]"),
        (CORPUS, Settings(unseen="guess"), "alone, static, zero, mean"),
    ):
        with pytest.raises(InputError, match=reason):
            average_contexts(backbone, texts, settings)
    with pytest.raises(InputError, match="24 dimensions, but its states 32"):
        average_contexts(backbone_of("electra"), CORPUS, Settings(unseen="static"))
    with pytest.raises(InputError, match="cannot be computed in the same pass"):
        average_contexts(backbone, CORPUS, None, Plan(Recipe.parse("layers=L weights=idf"), backbone))
    tokenizer = build_tokenizer("wordpiece").backend_tokenizer
    with pytest.raises(ModelError, match="no contextual states"):
        average_contexts(rows_backbone(np.ones((tokenizer.get_vocab_size(), 2)), tokenizer), CORPUS)
    for text, reason in ((None, "has no contexts.json"), ('{"format": 7}', "format 7"), ("{", "damaged")):
        if text is not None:
            (tmp_path / "contexts.json").write_text(text)
        with pytest.raises(DataError, match=reason):
            Contexts.load(tmp_path)
