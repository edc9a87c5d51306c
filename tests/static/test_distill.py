"""Static encoders of a model: the fit against a dense solution, what is folded and lost, choices, files, errors."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

from essent import verify
from essent.encoder.encoder import Encoder
from essent.errors import InputError, RecipeError
from essent.recipe.recipe import Recipe
from essent.recipe.tokens.ids import text_ids, unknown_token
from essent.static.distillation import (
    collect,
    compare,
    coverage_of,
    distill,
    find_choice,
    make_encoder,
    share_of_new,
)
from essent.static.table import Choice, Material, agreement, bag_matrix, fit_rows, reduce_table
from essent.tasks.examples import Example
from essent.tasks.labels import LabelTask
from essent.tasks.locate import load_pairs
from families import CORPUS
from samples import TEXTS

TEXTS_ = [text for text in dict.fromkeys([*CORPUS, *TEXTS]) if text]


@pytest.fixture(scope="module")
def material(shell_of: Callable[[str], SentenceTransformer]) -> Material:
    return collect(shell_of("bert"), TEXTS_)[0]


# -- the fit ----------------------------------------------------------------------------------------------------------


def test_the_fit_is_the_least_squares_solution() -> None:
    generator = np.random.default_rng(0)
    sequences = [generator.integers(0, 9, generator.integers(1, 7)).tolist() for _ in range(30)] + [[]]
    token_counts = bag_matrix(sequences, 11)
    dense = np.zeros((31, 11))
    for row, ids in enumerate(sequences):
        for token in ids:
            dense[row, token] += 1 / len(ids)
    np.testing.assert_allclose(token_counts.toarray(), dense, atol=1e-7)
    vectors, prior = generator.standard_normal((31, 4)), generator.standard_normal((11, 4))
    target = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled = prior * (((dense @ prior) * target).sum() / ((dense @ prior) ** 2).sum())
    for strength in (0.02, 0.5):
        exact = np.linalg.solve(dense.T @ dense + strength * np.eye(11), dense.T @ target + strength * scaled)
        fitted = fit_rows(token_counts, vectors.astype(np.float32), prior.astype(np.float32), strength)
        np.testing.assert_allclose(fitted, exact, atol=1e-4)
        np.testing.assert_allclose(fitted[9:], scaled[9:], atol=1e-6)  # tokens of no text


def test_refused_fits() -> None:
    token_counts, vectors, prior = bag_matrix([[0], [1]], 2), np.ones((2, 3)), np.ones((2, 3))
    with pytest.raises(InputError, match="do not belong together"):
        fit_rows(token_counts, vectors[:1], prior)
    with pytest.raises(InputError, match="positive number"):
        fit_rows(token_counts, vectors, prior, 0.0)
    for strength in (-1.0, float("inf"), float("nan"), "0.1", True):
        with pytest.raises(InputError, match="positive number"):
            fit_rows(token_counts, vectors, prior, strength)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="NaN"):
        fit_rows(token_counts, vectors * np.nan, prior)
    assert np.isfinite(fit_rows(token_counts, vectors * 0, prior * 0)).all()


# -- tables -----------------------------------------------------------------------------------------------------------


def test_the_table_without_a_fit_is_the_weighted_averages(material: Material) -> None:
    table = material.table(Choice("1+L", "sif:0.01", None))
    stats = material.stats
    averages = (material.contexts.table(1) + material.contexts.table(3)) / 2
    unknown = material.tokenizer.backend_tokenizer.token_to_id(unknown_token(material.tokenizer.backend_tokenizer))
    for token in range(material.rows):
        weight = 0.01 / (0.01 + stats.count[token] / stats.count.sum())
        expected = averages[token] * weight * (token != unknown)
        np.testing.assert_allclose(table[token], expected, atol=1e-5)


def test_shaping_is_folded_in(material: Material) -> None:
    plain = material.table(Choice("L", "idf", None))
    shaped = material.table(Choice("L", "idf", None, "abtt:2"))
    vectors = (material.token_counts @ plain).astype(np.float64)
    centred = vectors - vectors.mean(axis=0)
    components = np.linalg.svd(centred, full_matrices=False)[2][:2]
    expected = centred - centred @ components.T @ components
    known = np.array([all(material.tokenizer.decode([i]) != "[UNK]" for i in ids) for ids in ids_of(material)])
    np.testing.assert_allclose((material.token_counts @ shaped)[known], expected[known], atol=1e-4)
    with pytest.raises(RecipeError, match="not affine"):
        material.table(Choice("L", "uniform", None, "quantile"))
    with pytest.raises(RecipeError, match="not a fixed weight"):
        material.table(Choice("L", "position", None))


def ids_of(material: Material) -> list[list[int]]:
    return text_ids(material.tokenizer, material.texts)


def test_the_fit_comes_closer_to_the_model(material: Material, shell_of: Callable[[str], SentenceTransformer]) -> None:
    whole = Encoder(shell_of("bert"), "mean | normalize").encode(TEXTS_)

    def closeness(choice: Choice) -> float:
        return float((make_encoder(material, choice).encoder.encode(TEXTS_) * whole).sum(axis=1).mean())

    assert closeness(Choice(ridge=0.01)) > closeness(Choice(ridge=1.0)) > closeness(Choice(ridge=None))


def test_all_of_it(shell_of: Callable[[str], SentenceTransformer], tmp_path: Path) -> None:
    model = shell_of("bert")
    distilled = distill(
        model, TEXTS_, Choice("L-1+L", shaping="abtt:1"), dimensions=9, dtype="int8", state=tmp_path / "s"
    )
    assert (tmp_path / "s").is_file()  # the pass leaves it for another choice
    assert distilled.encoder.recipe == Recipe.parse("static | normalize")
    assert distilled.encoder.encode(TEXTS_).shape == (len(TEXTS_), 9)
    assert 0.5 < distilled.losses["variance"] < 1
    assert 50 < distilled.losses["dimensions"] < 100
    assert 90 < distilled.losses["bits"] <= 100
    assert "similarities agree" in "".join(distilled.summary())
    distilled.encoder.save(str(tmp_path / "static"))
    assert verify(str(tmp_path / "static")).passed
    again = distill(model, TEXTS_, Choice("L-1+L", shaping="abtt:1"), dimensions=9, dtype="int8", state=tmp_path / "s")
    np.testing.assert_array_equal(again.encoder.encode(TEXTS_), distilled.encoder.encode(TEXTS_))
    stock = SentenceTransformer(str(tmp_path / "static"), device="cpu")
    np.testing.assert_allclose(stock.encode(TEXTS_), distilled.encoder.encode(TEXTS_), atol=1e-5)
    static = pytest.importorskip("model2vec").StaticModel.from_pretrained(tmp_path / "static")
    np.testing.assert_allclose(static.encode(TEXTS_), distilled.encoder.encode(TEXTS_), atol=1e-5)


def test_a_teacher_replaces_a_pooling_without_recipe(
    shell_of: Callable[[str], SentenceTransformer], tmp_path: Path
) -> None:
    plain = shell_of("bert")
    ends = SentenceTransformer(modules=[*plain, Dense(32, 8)], device="cpu")
    ends.save(str(tmp_path / "dense"))
    expected = distill(plain, TEXTS_, teacher="mean layers=2").encoder.encode(TEXTS_)
    for model in (ends, str(tmp_path / "dense")):
        with pytest.raises(RecipeError, match="which no recipe describes"):
            distill(model, TEXTS_)
        distilled = distill(model, TEXTS_, teacher="mean layers=2", device="cpu")
        np.testing.assert_allclose(distilled.encoder.encode(TEXTS_), expected, atol=1e-5)


def test_words_of_its_own(shell_of: Callable[[str], SentenceTransformer], tmp_path: Path) -> None:
    texts = [*TEXTS_, *[f"a zebrafish in cold water, number {n}" for n in range(6)]]
    distilled = distill(shell_of("bert"), texts, words=3, expressions=20)
    tokens = text_ids(distilled.encoder.tokenizer, ["zebrafish", "cold water"])
    assert [len(ids) for ids in tokens] == [1, 1]
    distilled.encoder.save(str(tmp_path / "static"))
    assert verify(str(tmp_path / "static")).passed


def test_fewer_dimensions_keep_the_similarities(material: Material) -> None:
    table = material.table(Choice(ridge=None))
    same, share, preserved = reduce_table(material.token_counts, table, table.shape[1])
    assert share == pytest.approx(1.0)
    assert preserved == pytest.approx(100.0, abs=1e-3)
    np.testing.assert_allclose(
        (material.token_counts @ same) @ (material.token_counts @ same).T, gram(material, table), atol=1e-4
    )
    _, less, worse = reduce_table(material.token_counts, table, 2)
    assert less < share
    assert worse < preserved
    assert agreement(material.token_counts, table, table * 3) == pytest.approx(100.0)


@pytest.mark.slow
def test_smaller_tables_take_no_memory_for_every_text() -> None:
    generator = np.random.default_rng(0)
    texts, tokens, wide = 200_000, 500, 64
    rows = np.sort(generator.integers(0, tokens, (texts, 2)), axis=1)
    token_counts = sparse.csr_matrix(
        (np.full(2 * texts, 0.5, np.float32), rows.ravel(), np.arange(0, 2 * texts + 1, 2))
    )
    table = generator.standard_normal((tokens, wide)).astype(np.float32)
    tracemalloc.start()
    smaller, share, preserved = reduce_table(token_counts, table, 16)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < texts * wide * 4  # bytes of all vectors once
    vectors = (token_counts @ table).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    values, components = np.linalg.eigh(vectors.T @ vectors)
    assert share == pytest.approx(values[-16:].sum() / values.sum())
    np.testing.assert_allclose(np.abs(smaller), np.abs(table @ components[:, ::-1][:, :16]), atol=1e-4)
    assert preserved == agreement(token_counts, table, smaller)


def gram(material: Material, table: np.ndarray) -> np.ndarray:
    vectors = material.token_counts @ table
    return np.asarray(vectors @ vectors.T)


# -- choosing ---------------------------------------------------------------------------------------------------------


def test_choices_are_tried_and_ordered(
    material: Material, tmp_path: Path, shell_of: Callable[[str], SentenceTransformer]
) -> None:
    file = tmp_path / "few.csv"
    file.write_text(
        "sentence1,sentence2,score\n" + "".join(f'"{a}","{b}",{n % 5}\n' for n, (a, b) in enumerate(PAIRED)), "utf-8"
    )
    task = load_pairs(str(file))
    reported: list[tuple[float, Choice]] = []
    trials = find_choice(material, task, report=lambda *trial: reported.append(trial))
    assert sorted(reported, key=lambda trial: -trial[0]) == trials
    assert len(trials) == (4 + 2) * 4 * 4 + 4 * 4
    best_score, best = trials[0]
    (scores,) = compare(make_encoder(material, best), Encoder(shell_of("bert"), "mean").encode, [task])
    assert scores.static == pytest.approx(best_score, abs=1e-6)
    assert scores.coverage == 1.0
    assert scores.share == pytest.approx(100 * scores.static / scores.model)
    assert {choice.ridge for _, choice in trials} == {None, 0.03, 0.1, 0.3, 1.0}
    bare = replace(material, vectors=None, fits={})
    assert {choice.ridge for _, choice in find_choice(bare, task)} == {None}


@pytest.mark.slow
def test_any_kind_of_judgement_chooses(material: Material) -> None:
    task = LabelTask("labels", tuple(Example((text,), str(n % 2)) for n, text in enumerate(TEXTS_)), folds=3)
    bare = replace(material, vectors=None, fits={})
    best_score, best = find_choice(bare, task)[0]
    direct = task.run(make_encoder(bare, best).encoder).main_score
    assert direct == pytest.approx(best_score, abs=100 / len(TEXTS_))


PAIRED = [(a.replace('"', ""), b.replace('"', "")) for a, b in zip(TEXTS_, TEXTS_[3:] + TEXTS_[:3], strict=True)]


# -- what is refused --------------------------------------------------------------------------------------------------


def test_refusals(material: Material, shell_of: Callable[[str], SentenceTransformer], tmp_path: Path) -> None:
    model = shell_of("bert")
    with pytest.raises(RecipeError, match="'static' is no layer"):
        distill(model, TEXTS_, Choice("static"))
    with pytest.raises(InputError, match="Layer 9"):
        distill(model, TEXTS_, Choice("9"))
    with pytest.raises(InputError, match="no texts"):
        distill(model, [])
    with pytest.raises(InputError, match="float32, float16, int8"):
        make_encoder(material, Choice(), dtype="int4")
    with pytest.raises(InputError, match="between 1 and the model's 32"):
        make_encoder(material, Choice(), dimensions=33)
    with pytest.raises(InputError, match=r"dimensions=0 must be a whole number from 1"):
        make_encoder(material, Choice(), dimensions=0)
    for dimensions, shaping, reason in (
        (33, "", "between 1 and the model's 32"),
        (9, "whiten:8", "what shaping 'whiten:8' leaves: 8"),
        (2.0, "", r"dimensions=2\.0 must be a whole number from 1"),
        (True, "", "dimensions=True must be"),
    ):
        with pytest.raises(InputError, match=reason):
            distill(model, TEXTS_, Choice(shaping=shaping), dimensions=dimensions, state=tmp_path / "state")  # type: ignore[arg-type]
    assert not (tmp_path / "state").exists()  # before the pass
    with pytest.raises(InputError, match="cannot run along"):
        distill(model, TEXTS_, teacher="t0-mean")
    with pytest.raises(RecipeError, match="leave the shaping out"):
        distill(model, TEXTS_, teacher="mean | zscore")
    with pytest.raises(InputError, match="words=-1 must be a whole number"):
        distill(model, TEXTS_, words=-1)
    with pytest.raises(InputError, match=r"expressions=2\.5 must be a whole number"):
        distill(model, TEXTS_, expressions=2.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="were not taken along"):
        replace(material, vectors=None, fits={}).table(Choice())


# -- tokens that the corpus lacks -------------------------------------------------------------------------------------


def test_share_of_new_tokens_from_singletons() -> None:
    assert share_of_new([[1, 2, 2], [3, 1, 4]]) == 2 / 6
    generator = np.random.default_rng(0)
    sampled = generator.zipf(1.3, 40_000).clip(max=100_000)
    corpus, more = sampled[:20_000], sampled[20_000:]
    assert abs(share_of_new(corpus.reshape(-1, 20).tolist()) - (~np.isin(more, corpus)).mean()) < 0.01
    assert math.isnan(share_of_new([[], []]))


def test_small_corpora_are_logged(
    shell_of: Callable[[str], SentenceTransformer], caplog: pytest.LogCaptureFixture
) -> None:
    material, _ = collect(shell_of("bert"), TEXTS_)
    assert "% of the tokens of further texts of the same kind" in caplog.text
    assert "unseen=alone" in caplog.text
    assert coverage_of(material.tokenizer, material.contexts.count, TEXTS_) == 1.0
    few, _ = collect(shell_of("bert"), TEXTS_[:3])
    ids = text_ids(few.tokenizer, list(TEXTS_))
    expected = np.mean([few.contexts.count[token] > 0 for sequence in ids for token in sequence])
    assert coverage_of(few.tokenizer, few.contexts.count, TEXTS_) == expected < 1
    assert math.isnan(coverage_of(few.tokenizer, few.contexts.count, []))
    caplog.clear()
    collect(shell_of("bert"), TEXTS_ * 2)  # every token twice at least
    assert "further texts" not in caplog.text
