"""Averages over contexts: float64 loops, resumed runs, other batches and orders; what is refused."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from essent._core import machine
from essent._core.display import duration
from essent.encoder.encoder import Encoder
from essent.encoder.plan import Plan
from essent.errors import DataError, InputError, ModelError
from essent.model.backbone import Backbone
from essent.model.loading import load
from essent.model.token_rows import rows_backbone
from essent.recipe.contexts import Contexts
from essent.recipe.recipe import Recipe
from essent.static import gather, sums
from essent.static.gather import Gathered, average_contexts
from families import CORPUS, Folders
from samples import LONG, TEXTS
from static_models import table_of

Backbones = Callable[[str], Backbone]
CORPUS = [*CORPUS[:8], *TEXTS, LONG, "the ☃ man", "Zebrafish, and a zebrafish"]


@pytest.fixture(scope="module")
def backbone_of(folder_of: Folders) -> Backbones:
    return lambda family: load(str(folder_of(family)), [], {"device": "cpu"}).backbone


@pytest.fixture(scope="module")
def backbone(backbone_of: Backbones) -> Backbone:
    return backbone_of("bert")


def loop(backbone: Backbone, layer: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One text, one token at a time, float64: averages, counts, document frequencies."""
    rows = len(backbone.vocabulary)
    sums, count, frequency = np.zeros((rows, backbone.dimensions)), np.zeros(rows, int), np.zeros(rows, int)
    for text in CORPUS:
        ids = backbone.tokenizer(text, truncation=True, max_length=backbone.max_seq_length)["input_ids"]
        if not ids:
            continue
        with torch.no_grad():
            states = backbone.model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0]
        for token, state in zip(ids, states.double().numpy(), strict=True):
            sums[token] += state
            count[token] += 1
        frequency[list(set(ids))] += 1
    return sums / np.maximum(count, 1)[:, None], count, frequency


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize(("order", "batch_size"), [(1, 32), (-1, 1)])
def test_averages_match_a_loop(family: str, order: int, batch_size: int, backbone_of: Backbones) -> None:
    backbone = backbone_of(family)
    contexts, vectors, _ = average_contexts(backbone, CORPUS[::order], batch_size=batch_size)
    assert sorted(contexts.tables) == [0, 1, 2, 3]
    assert vectors is None
    for layer in (0, 2, 3):
        expected, count, frequency = loop(backbone, layer)
        np.testing.assert_array_equal(contexts.count, count)
        np.testing.assert_array_equal(contexts.document_frequency, frequency)
        occurring = contexts.seen
        np.testing.assert_allclose(contexts.table(layer)[occurring], expected[occurring], atol=1e-5)
    assert contexts.texts == len(CORPUS)


# -- tokens never seen ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["alone", "static", "zero", "mean"])
def test_unseen_tokens(rule: str, backbone: Backbone) -> None:
    contexts = average_contexts(backbone, CORPUS[:2], layers=[3], unseen=rule).contexts
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
    padding = [not name for name in backbone.vocabulary.tokens]
    assert any(padding)
    assert not contexts.table(3)[padding].any()


# -- a run that is killed ---------------------------------------------------------------------------------------------


def test_a_checkpoint_is_refused_by_another_run(backbone: Backbone, backbone_of: Backbones, tmp_path: Path) -> None:
    plan = Plan(Recipe.parse("mean"), backbone)
    settings: dict[str, Any] = {"layers": [3], "state": tmp_path / "state.safetensors", "every": 0.0}
    average_contexts(backbone, CORPUS, plan, **settings)
    resumed = average_contexts(backbone, CORPUS, plan, **settings, unseen="mean").contexts  # the rule may differ
    whole = average_contexts(backbone, CORPUS, layers=[3], unseen="mean").contexts
    np.testing.assert_array_equal(resumed.table(3), whole.table(3))
    for model, texts, reason in (
        (backbone, CORPUS[:-1], "the texts differ"),
        (backbone_of("electra"), CORPUS, "the model differ"),
    ):
        with pytest.raises(DataError, match=reason):
            average_contexts(model, texts, Plan(Recipe.parse("mean"), model), **settings)


def contents(gathered: Gathered) -> list[Any]:
    """Every array that tables are made of."""
    contexts, vectors, held_out = gathered
    return [*contexts.tables.values(), contexts.count, vectors, held_out.tokens, *held_out.averages.values()]


def test_a_run_killed_after_any_batch_has_the_same_bytes(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a portion, in the teacher's second template, and among the single tokens."""
    monkeypatch.setattr(sums, "PORTION", 8)
    plan, is_held_out = Plan(Recipe.parse("template=T0+T1"), backbone), np.arange(len(CORPUS)) % 5 == 0
    settings: dict[str, Any] = {"layers": [3], "unseen": "alone", "batch_size": 1, "every": 0.0}
    run = partial(average_contexts, backbone, CORPUS, plan, is_held_out, **settings)
    states, passes, limit = backbone.states, [0], [10**6]

    def counted(*arguments: Any) -> Any:
        passes[0] += 1
        if passes[0] > limit[0]:
            raise KeyboardInterrupt
        return states(*arguments)

    monkeypatch.setattr(backbone, "states", counted)
    expected, total = contents(run()), passes[0]
    assert total > 30
    for limit[0] in (2, total // 2, total - 1):
        path, passes[0] = tmp_path / f"{limit[0]}", 0
        with pytest.raises(KeyboardInterrupt):
            run(state=path)
        done, limit[0], passes[0] = limit[0], 10**6, 0
        resumed = contents(run(state=path))
        assert passes[0] == total - done
        for array, whole in zip(resumed, expected, strict=True):
            np.testing.assert_array_equal(array, whole)


def test_a_kill_loses_at_most_a_minute(backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine where each batch takes 25 seconds, and each checkpoint 7."""
    seconds, lost, pool, save_file = [0.0], [], Plan.pool, sums.save_file
    monkeypatch.setattr(machine, "elapsed", lambda: seconds[0])

    def pooled(*arguments: Any) -> Any:
        seconds[0] += 25
        return pool(*arguments)

    def saved(*arguments: Any, **options: Any) -> None:
        lost.append(seconds[0])
        save_file(*arguments, **options)
        seconds[0] += 7

    monkeypatch.setattr(Plan, "pool", pooled)
    monkeypatch.setattr(sums, "save_file", saved)
    path, plan = tmp_path / "state", Plan(Recipe.parse("mean"), backbone)
    average_contexts(backbone, CORPUS, plan, layers=[3], batch_size=1, unseen="zero", state=path)
    assert len(lost) > 3
    assert set(np.diff([-7, *lost[:-1]])) == {57}  # two batches and the checkpoint before them


# -- notes: the estimated time, tokens that do not occur --------------------------------------------------------------


def test_the_time_is_estimated_before_the_pass(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine where each text takes a second in the first template, and two in the second."""
    seconds, notes, add = [0.0], [], sums.Sums._add
    monkeypatch.setattr(machine, "elapsed", lambda: seconds[0])

    def added(self: sums.Sums, frame: Any, sequences: Any, rows: Any) -> None:
        seconds[0] += len(sequences) * (1 if frame == self.frame else 2)
        add(self, frame, sequences, rows)

    monkeypatch.setattr(sums.Sums, "_add", added)
    plan = Plan(Recipe.parse("t0-mean"), backbone)
    gathered = average_contexts(backbone, CORPUS, plan, layers=[3], note=notes.append)
    work = 3 * len(CORPUS)
    assert seconds[0] == work + 3 + work  # timed on one text, then on all of these few
    assert notes[0].startswith(f"Estimated time: {duration(work)} for {2 * len(CORPUS)} texts in 2 passes, at most ")
    seconds[0] = 0.0
    quiet = average_contexts(backbone, CORPUS, plan, layers=[3])
    assert seconds[0] == work  # without a note, nothing is timed
    np.testing.assert_array_equal(gathered.contexts.table(3), quiet.contexts.table(3))
    np.testing.assert_array_equal(gathered.vectors, quiet.vectors)


@pytest.mark.parametrize(("family", "rule"), [("bert", "static"), ("electra", "mean")])
def test_a_large_vocabulary_is_not_run(
    family: str, rule: str, backbone_of: Backbones, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "FREE_TOKENS", 0)
    backbone, notes = backbone_of(family), []
    few, many = CORPUS[8:10], [*CORPUS, *(f"{text} {text} {text}" for text in CORPUS)]
    contexts = average_contexts(backbone, few, layers=[3], note=notes.append).contexts
    assert contexts.about["unseen"] == rule
    missing = sum(map(bool, backbone.vocabulary.tokens)) - int(contexts.seen.sum())
    assert notes[-1].startswith(f"{missing} tokens do not occur in the texts. To run the model on each takes ")
    assert f"more than the {contexts.count.sum()} of the texts" in notes[-1]
    assert "unseen=alone runs them" in notes[-1]
    average_contexts(backbone, few, layers=[3], unseen="alone", note=notes.append)
    assert notes[-1] == f"Running the model on {missing} single tokens that do not occur in the texts."
    assert average_contexts(backbone, many, layers=[3]).contexts.about["unseen"] == "alone"


# -- teachers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "teacher"),
    [
        ("bert", "prompt-denoised"),
        ("bert", "mean weights=idf"),
        ("bert", "template=1*T0+2*T3 weights=content"),
        ("gpt2", "about"),
    ],
)
def test_a_teacher_with_a_template_or_counts(family: str, teacher: str, folder_of: Folders) -> None:
    """Its vectors are those of the encoder; the contexts are those of the texts without a template."""
    encoder = Encoder(str(folder_of(family)), teacher, device="cpu")
    backbone = encoder.module.backbone
    plan = Plan(encoder.recipe, backbone)
    gathered = average_contexts(backbone, CORPUS, plan, layers=[2])
    if plan.reads_stats:
        encoder.fit(CORPUS)
    np.testing.assert_allclose(gathered.vectors, encoder.encode(CORPUS), atol=1e-5)
    alone = average_contexts(backbone, CORPUS, layers=[2]).contexts
    np.testing.assert_allclose(gathered.contexts.table(2), alone.table(2), atol=1e-5)
    np.testing.assert_array_equal(gathered.contexts.count, alone.count)


# -- files and errors -------------------------------------------------------------------------------------------------


def test_refusals(backbone: Backbone, backbone_of: Backbones, wordpiece: Tokenizer, tmp_path: Path) -> None:
    for texts, settings, reason in (
        ([], {}, "no texts"),
        ("a text", {}, "list of texts"),
        (CORPUS, {"layers": [9]}, "Layer 9 does not exist: the model has layers 0 to 3"),
        (CORPUS, {"layers": []}, r"layers=\[\]"),
        (CORPUS, {"unseen": "guess"}, "alone, static, zero, mean"),
    ):
        with pytest.raises(InputError, match=reason):
            average_contexts(backbone, texts, **settings)
    with pytest.raises(InputError, match="24 dimensions, but its states 32"):
        average_contexts(backbone_of("electra"), CORPUS, unseen="static")
    with pytest.raises(ModelError, match="no contextual states"):
        average_contexts(rows_backbone(table_of(wordpiece), wordpiece), CORPUS)
    for text, reason in (('{"format": 7}', "format 7"), ("{", "damaged")):
        (tmp_path / "contexts.json").write_text(text)
        with pytest.raises(DataError, match=reason):
            Contexts.load(tmp_path)
