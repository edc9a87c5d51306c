"""Averages over contexts: float64 loops, resumed runs, other batches and orders; what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from essent.encoder.pipeline.plan import Plan
from essent.errors import DataError, InputError, ModelError, UnsupportedRecipeError
from essent.model.backbone import Backbone
from essent.model.loading import load
from essent.model.token_rows import rows_backbone
from essent.recipe.recipe import Recipe
from essent.recipe.sources.contexts import Contexts
from essent.static import gather as passes
from essent.static.gather import Settings, average_contexts
from essent.static.vocabulary import Extension, _count, extended, find_extension
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


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
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


def test_order_and_batches_change_nothing(backbone: Backbone) -> None:
    contexts, _ = average_contexts(backbone, CORPUS, Settings(layers=[3]))
    reordered, _ = average_contexts(backbone, CORPUS[::-1], Settings(layers=[3], batch_size=1))
    np.testing.assert_allclose(contexts.table(3), reordered.table(3), atol=1e-5)
    np.testing.assert_array_equal(contexts.count, reordered.count)


def test_vectors_come_along(backbone: Backbone) -> None:
    plan = Plan(Recipe.parse("first-last"), backbone)
    _, vectors = average_contexts(backbone, CORPUS, Settings(layers=[3]), plan)
    assert vectors is not None
    alone, _ = average_contexts(backbone, CORPUS[2:3], Settings(layers=[3]), plan), None
    assert alone[1] is not None
    np.testing.assert_allclose(vectors[2], alone[1][0], atol=1e-5)
    assert vectors.shape == (len(CORPUS), backbone.dimensions)


# -- tokens never seen ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["alone", "static", "zero", "mean"])
def test_unseen_tokens(rule: str, backbone: Backbone) -> None:
    contexts, _ = average_contexts(backbone, CORPUS[:2], Settings(layers=[3], unseen=rule))
    token = next(i for i in np.flatnonzero(~contexts.seen) if backbone.vocabulary.tokens[i])
    frame = [backbone.tokenizer.cls_token_id, token, backbone.tokenizer.sep_token_id]
    with torch.no_grad():
        states = backbone.model(input_ids=torch.tensor([frame])).last_hidden_state[0, 1]
    table = backbone.static_table.detach().numpy()
    rows, averages = table[contexts.seen[: len(table)]], contexts.table(3)[contexts.seen]

    def spread(vectors: np.ndarray) -> float:
        return float(np.mean([np.linalg.norm(vector - vectors.mean(axis=0)) for vector in vectors]))

    everything = contexts.table(3)[contexts.seen] * contexts.count[contexts.seen][:, None]
    expected = {
        "alone": states.numpy(),
        "static": averages.mean(axis=0) + (table[token] - rows.mean(axis=0)) * spread(averages) / spread(rows),
        "zero": np.zeros(backbone.dimensions),
        "mean": everything.sum(axis=0) / contexts.count.sum(),
    }[rule]
    np.testing.assert_allclose(contexts.table(3)[token], expected, atol=1e-5)
    padding = [i for i, name in enumerate(backbone.vocabulary.tokens) if not name]
    assert padding
    assert not contexts.table(3)[padding].any()


# -- a run that is killed ---------------------------------------------------------------------------------------------


def test_a_killed_run_goes_on(backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "PORTION", 4)
    plan = Plan(Recipe.parse("mean"), backbone)
    whole, vectors = average_contexts(backbone, CORPUS, Settings(layers=[1, 3]), plan)
    settings = Settings(layers=[1, 3], state=tmp_path / "state.safetensors", every=0.0)
    encoded: list[int] = []
    real = passes.read

    def failing(*arguments: object) -> object:
        if len(encoded) == 3:
            raise KeyboardInterrupt
        encoded.append(len(arguments[2]))  # type: ignore[arg-type]
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(passes, "read", failing)
    with pytest.raises(KeyboardInterrupt):
        average_contexts(backbone, CORPUS, settings, plan)
    assert sum(encoded) == 12
    encoded.clear()
    monkeypatch.setattr(passes, "read", lambda *a: (encoded.append(len(a[2])), real(*a))[1])
    again, same = average_contexts(backbone, CORPUS, settings, plan)
    assert sum(encoded) == len(CORPUS) - 12
    np.testing.assert_allclose(again.table(3), whole.table(3), atol=1e-6)
    np.testing.assert_allclose(same, vectors, atol=1e-6)
    np.testing.assert_array_equal(again.count, whole.count)
    encoded.clear()
    average_contexts(backbone, CORPUS, settings, plan)  # complete: nothing is encoded again
    assert not encoded
    for changed, reason in (
        ((CORPUS[:-1], settings), "the texts differ"),
        ((CORPUS, Settings(layers=[3], state=settings.state)), "the settings differ"),
    ):
        with pytest.raises(DataError, match=reason):
            average_contexts(backbone, *changed, plan)
    assert settings.state is not None
    settings.state.write_bytes(settings.state.read_bytes()[:100])
    with pytest.raises(DataError, match="delete it to begin again"):
        average_contexts(backbone, CORPUS, settings, plan)


def test_another_model_does_not_go_on(backbone_of: Callable[[str], Backbone], tmp_path: Path) -> None:
    settings = Settings(layers=[3], state=tmp_path / "state.safetensors")
    average_contexts(backbone_of("bert"), CORPUS, settings)
    with pytest.raises(DataError, match="the model differ"):
        average_contexts(backbone_of("electra"), CORPUS, settings)


# -- more words -------------------------------------------------------------------------------------------------------


def test_whole_words_are_the_mean_of_their_pieces(backbone: Backbone) -> None:
    model = backbone.tokenizer.backend_tokenizer
    extension = Extension(("zebrafish", "kittens"), ("cold coffee",))
    reader = extended(model, extension)
    rows = {text: reader.token_to_id(text) for text in ("zebrafish", "kittens", "cold coffee")}
    assert min(rows.values()) >= model.get_vocab_size()
    contexts, _ = average_contexts(backbone, CORPUS, Settings(layers=[3], reader=reader))
    sums = dict.fromkeys(rows, 0.0)
    count = dict.fromkeys(rows, 0)
    for text in CORPUS:
        encoding = model.encode(text)
        with torch.no_grad():
            states = backbone.model(input_ids=torch.tensor([encoding.ids])).last_hidden_state[0].double().numpy()
        for word in rows:
            for at in (match.start() for match in re.finditer(word, text.lower())):
                pieces = [
                    position
                    for position, (start, stop) in enumerate(encoding.offsets)
                    if start < stop and start < at + len(word) and stop > at
                ]
                sums[word] = sums[word] + states[pieces].mean(axis=0)
                count[word] += 1
    for word, row in rows.items():
        assert contexts.count[row] == count[word] > 0
        np.testing.assert_allclose(contexts.table(3)[row], sums[word] / count[word], atol=1e-5)
    frame = [backbone.tokenizer.cls_token_id, backbone.tokenizer.sep_token_id]
    assert list(contexts.count[frame]) == [len(CORPUS)] * 2


@pytest.mark.parametrize("unseen", ["alone", "zero"])
@pytest.mark.parametrize(("family", "mark"), [("bert", ""), ("xlm-roberta", "▁")])
def test_words_behind_the_limit_have_their_pieces_rows(
    family: str, mark: str, unseen: str, backbone_of: Callable[[str], Backbone]
) -> None:
    backbone = backbone_of(family)
    model = backbone.tokenizer.backend_tokenizer
    reader = extended(model, Extension((f"{mark}coldred",), ("a kitten",)))
    texts = [*CORPUS[:3], "a bed, a cold bee", "the " * 600 + "coldred and a kitten"]
    contexts, _ = average_contexts(backbone, texts, Settings(layers=[0, 3], reader=reader, unseen=unseen))
    for word in (f"{mark}coldred", "a kitten"):
        row = reader.token_to_id(word)
        pieces = model.encode(word.lstrip(mark), add_special_tokens=False).ids
        assert contexts.count[row] == 0
        assert len(pieces) > 1
        for layer in (0, 3):
            expected = np.mean([contexts.table(layer)[piece] for piece in pieces], axis=0)
            np.testing.assert_allclose(contexts.table(layer)[row], expected, atol=1e-6)
            assert expected.any() or unseen == "zero"


@pytest.mark.parametrize("kind", ["wordpiece", "metaspace"])
def test_frequent_words_and_expressions_become_tokens(kind: str) -> None:
    tokenizer: Tokenizer = build_tokenizer(kind).backend_tokenizer
    texts = ["New York zzyzx hotel", "a zzyzx in New York", "the zzyzx", "old York", "rare qqq"] * 5 + ["qqq"]
    extension = find_extension(tokenizer, texts, words=2, expressions=1, least=5)
    mark = "▁" if kind == "metaspace" else ""
    assert f"{mark}zzyzx" in extension.words
    assert len(extension.words) == 2
    assert [text.lower() for text in extension.expressions] == ["new york"]
    reader = extended(tokenizer, extension)
    assert [t.lower() for t in reader.encode("a zzyzx", add_special_tokens=False).tokens][-1] == f"{mark}zzyzx"
    assert reader.encode("in New York", add_special_tokens=False).ids[-1] == reader.token_to_id(
        extension.expressions[0]
    )
    before = tokenizer.encode("dogs run", add_special_tokens=False).ids
    assert reader.encode("dogs run", add_special_tokens=False).ids == before


def test_pairs_of_words_are_counted_for_expressions_alone() -> None:
    tokenizer: Tokenizer = build_tokenizer("wordpiece").backend_tokenizer
    words, pairs = _count(tokenizer, ["new york", "in new york"], pairs=False)
    assert (words["york"], len(pairs)) == (2, 0)
    assert _count(tokenizer, ["new york", "in new york"], pairs=True)[1]["new", "york"] == 2
    texts = ["New York zzyzx hotel"] * 5
    with_pairs = find_extension(tokenizer, texts, words=2, expressions=1)
    assert find_extension(tokenizer, texts, words=2) == Extension(with_pairs.words)


def test_byte_pairs_take_no_words() -> None:
    tokenizer = build_tokenizer("bytes").backend_tokenizer
    assert len(find_extension(tokenizer, CORPUS)) == 0
    with pytest.raises(UnsupportedRecipeError, match="not to BPE"):
        find_extension(tokenizer, CORPUS, words=5)


# -- files and errors -------------------------------------------------------------------------------------------------


def test_saved_and_loaded(backbone: Backbone, tmp_path: Path) -> None:
    contexts, _ = average_contexts(backbone, CORPUS, Settings(layers=[0, 3]))
    contexts.save(tmp_path / "avg")
    again = Contexts.load(tmp_path / "avg")
    assert (again.texts, again.last, again.vocabulary, again.about) == (
        contexts.texts,
        3,
        backbone.vocabulary.digest,
        contexts.about,
    )
    for layer in (0, 3):
        np.testing.assert_array_equal(again.table(layer), contexts.table(layer))
    np.testing.assert_array_equal(again.stats.count, contexts.count)
    assert list(Contexts.load(tmp_path / "avg", {3}).tables) == [3]
    with pytest.raises(DataError, match="Layer 1 was not averaged; there are 0, 3, of L = 3"):
        again.table(1)


def test_refusals(backbone: Backbone, backbone_of: Callable[[str], Backbone], tmp_path: Path) -> None:
    for texts, settings, reason in (
        ([], None, "no texts"),
        ("a text", None, "list of texts"),
        (CORPUS, Settings(layers=[9]), "Layer 9: the model has layers 0 to 3"),
        (CORPUS, Settings(layers=[]), r"layers=\[\]"),
        (CORPUS, Settings(unseen="guess"), "alone, static, zero, mean"),
    ):
        with pytest.raises(InputError, match=reason):
            average_contexts(backbone, texts, settings)
    with pytest.raises(InputError, match="24 dimensions, its states 32"):
        average_contexts(backbone_of("electra"), CORPUS, Settings(unseen="static"))
    with pytest.raises(InputError, match="cannot run along"):
        average_contexts(backbone, CORPUS, None, Plan(Recipe.parse("layers=L weights=idf"), backbone))
    tokenizer = build_tokenizer("wordpiece").backend_tokenizer
    with pytest.raises(ModelError, match="no states"):
        average_contexts(rows_backbone(np.ones((tokenizer.get_vocab_size(), 2)), tokenizer), CORPUS)
    with pytest.raises(DataError, match=r"has no contexts.json"):
        Contexts.load(tmp_path)
    (tmp_path / "contexts.json").write_text('{"format": 7}')
    with pytest.raises(DataError, match="format 7"):
        Contexts.load(tmp_path)
    (tmp_path / "contexts.json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        Contexts.load(tmp_path)
