"""Static encoders of a model: the fit against a dense solution, what is folded and lost, choices, files, errors."""

import math
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

from essent import verify
from essent.encoder.encoder import Encoder
from essent.errors import InputError, RecipeError
from essent.recipe.recipe import Recipe
from essent.recipe.tokens import text_ids
from essent.static import distillation, sums
from essent.static.distillation import TeacherScore, collect, distill, find_choice, make_encoder
from essent.static.table import Choice, Material, bag_matrix, fit_rows, rank_agreement, reduce_table
from essent.tasks.pairs import PairTask
from families import CORPUS, Folders
from samples import TEXTS

DISTINCT = [text for text in dict.fromkeys([*CORPUS, *TEXTS]) if text]


@pytest.fixture(scope="module")
def material(shell: SentenceTransformer) -> Material:
    return collect(shell, DISTINCT)[0]


# -- the fit ----------------------------------------------------------------------------------------------------------


def test_the_fit_is_the_least_squares_solution() -> None:
    generator = np.random.default_rng(0)
    sequences = [generator.integers(0, 9, generator.integers(1, 7)).tolist() for _ in range(30)] + [[]]
    token_counts = bag_matrix(sequences, 11)
    dense = np.array([np.bincount(ids, minlength=11) / max(len(ids), 1) for ids in map(np.int64, sequences)])
    np.testing.assert_allclose(token_counts.toarray(), dense, atol=1e-7)
    vectors, prior = generator.standard_normal((31, 4)), generator.standard_normal((11, 4))
    target = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled = prior * (((dense @ prior) * target).sum() / ((dense @ prior) ** 2).sum())
    for strength in (0.02, 0.5):
        exact = np.linalg.solve(dense.T @ dense + strength * np.eye(11), dense.T @ target + strength * scaled)
        fitted = fit_rows(token_counts, vectors.astype(np.float32), prior.astype(np.float32), strength)
        np.testing.assert_allclose(fitted, exact, atol=1e-4)
        np.testing.assert_allclose(fitted[9:], scaled[9:], atol=1e-6)  # tokens of no text
    assert np.isfinite(fit_rows(token_counts, vectors * 0, prior * 0)).all()
    with pytest.raises(InputError, match="NaN"):
        fit_rows(token_counts, vectors * np.nan, prior)


# -- tables -----------------------------------------------------------------------------------------------------------


def test_the_table_without_a_fit_is_the_weighted_averages(material: Material) -> None:
    table = material.table(Choice("1+L", "sif:0.01", None))
    stats = material.stats
    averages = ((material.contexts.table(1) + material.contexts.table(3)) / 2)[: material.rows]
    expected = averages * (0.01 / (0.01 + stats.count / stats.count.sum()))[:, None]
    expected[material.tokenizer.unk_token_id] = 0
    np.testing.assert_allclose(table, expected, atol=1e-5)


def test_shaping_is_folded_in(material: Material) -> None:
    plain = material.table(Choice("L", "idf", None))
    shaped = material.table(Choice("L", "idf", None, "abtt:2"))
    vectors = (material.token_counts @ plain).astype(np.float64)
    centred = vectors - vectors.mean(axis=0)
    components = np.linalg.svd(centred, full_matrices=False)[2][:2]
    expected = centred - centred @ components.T @ components
    known = [material.tokenizer.unk_token_id not in ids for ids in text_ids(material.tokenizer, material.texts)]
    np.testing.assert_allclose((material.token_counts @ shaped)[known], expected[known], atol=1e-4)


def test_all_of_it(shell: SentenceTransformer, tmp_path: Path) -> None:
    choice = Choice("L-1+L", shaping="abtt:1")
    distilled, again = (
        distill(shell, DISTINCT, choice, dimensions=9, dtype="int8", state=tmp_path / "state") for _ in range(2)
    )
    assert (tmp_path / "state").is_file()  # the pass leaves it for another choice
    assert distilled.encoder.recipe == Recipe.parse("static | normalize")
    vectors = distilled.encoder.encode(DISTINCT)
    assert vectors.shape == (len(DISTINCT), 9)
    np.testing.assert_array_equal(again.encoder.encode(DISTINCT), vectors)
    distilled.encoder.save(str(tmp_path / "static"))
    assert verify(str(tmp_path / "static")).passed
    stock = SentenceTransformer(str(tmp_path / "static"), device="cpu")
    np.testing.assert_allclose(stock.encode(DISTINCT), vectors, atol=1e-5)
    static = pytest.importorskip("model2vec").StaticModel.from_pretrained(tmp_path / "static")
    np.testing.assert_allclose(static.encode(DISTINCT), vectors, atol=1e-5)


def test_a_teacher_replaces_a_pooling_without_recipe(shell: SentenceTransformer, tmp_path: Path) -> None:
    ends = SentenceTransformer(modules=[*shell, Dense(32, 8)], device="cpu")
    ends.save(str(tmp_path / "dense"))
    expected = distill(shell, DISTINCT, teacher="mean layers=2").encoder.encode(DISTINCT)
    for model in (ends, str(tmp_path / "dense")):
        with pytest.raises(RecipeError, match="which no recipe describes"):
            distill(model, DISTINCT)
        distilled = distill(model, DISTINCT, teacher="mean layers=2", device="cpu")
        np.testing.assert_allclose(distilled.encoder.encode(DISTINCT), expected, atol=1e-5)


def test_fewer_dimensions_keep_the_similarities(material: Material) -> None:
    table = material.table(Choice(ridge=None))
    reduced = [reduce_table(material.token_counts, table, size) for size in (table.shape[1], 9)]
    vectors = [material.token_counts @ rows for rows in (table, *reduced)]
    before, after, fewer = (rows @ rows.T for rows in vectors)
    np.testing.assert_allclose(after, before, atol=1e-4)
    assert 50 < rank_agreement(fewer.ravel(), before.ravel()) < 100


# -- agreement with the teacher ---------------------------------------------------------------------------------------


@pytest.fixture
def few_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold out texts of a small corpus."""
    monkeypatch.setattr(sums, "LEAST", 5)
    monkeypatch.setattr(sums, "MIN_TEXTS", 10)


@pytest.mark.usefixtures("few_held_out")
def test_agreement_on_held_out_texts(shell: SentenceTransformer) -> None:
    """It is that of a table distilled from the other texts; the held-out texts remain in the encoder."""
    texts = [*DISTINCT, *DISTINCT[:3]]
    choice, teacher = Choice("1+L", "sif:0.01", 0.3, "abtt:1"), "t0-mean"
    distilled = distill(shell, texts, choice, dimensions=20, teacher=teacher)
    is_held_out = sums.hold_out(texts)
    rest, held_out = ([*compress(texts, rows)] for rows in (~is_held_out, is_held_out))
    distinct = list(dict.fromkeys(held_out))
    assert len(distinct) == 5
    assert not set(distinct) & set(rest)  # all copies are held out
    other = distill(shell, rest, choice, dimensions=20, teacher=teacher)
    material = distilled.material.without_held_out(choice.layers)
    for layer in (1, 3):
        np.testing.assert_allclose(material.contexts.table(layer), other.material.contexts.table(layer), atol=1e-5)
    first, second = np.random.default_rng(0).integers(0, 5, (2, 20_000))
    pairs = first != second
    cosines = []
    for encoder in (Encoder(shell, teacher), other.encoder):
        vectors = encoder.encode(distinct)
        cosines.append(encoder.similarity_pairwise(vectors[first[pairs]], vectors[second[pairs]]))
    score = distilled.teacher_score
    assert score == TeacherScore(pytest.approx(100 * spearmanr(*cosines).statistic, abs=0.1), 5, held_out=True)
    whole = make_encoder(replace(distilled.material, held_out=None), choice, dimensions=20)
    np.testing.assert_array_equal(whole.encoder.encode(texts), distilled.encoder.encode(texts))


def test_agreement_without_held_out_texts(material: Material) -> None:
    score = make_encoder(material, Choice()).teacher_score
    assert str(score).endswith(f"of {len(DISTINCT)} texts of the table, so it is too high)")
    assert make_encoder(material, Choice(), score=False).teacher_score is None


def test_held_out_texts_are_a_tenth() -> None:
    for count, expected in ((199, 0), (200, 50), (900, 90), (30_000, 1000)):
        assert sums.hold_out(list(map(str, range(count)))).sum() == expected


@pytest.mark.usefixtures("few_held_out")
def test_a_low_agreement_is_stored_and_logged(
    shell: SentenceTransformer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    material, _ = collect(shell, DISTINCT, teacher="t0-mean")
    for limit, is_low in ((-100.0, False), (99.9, True)):
        monkeypatch.setattr(distillation, "FAR_WORSE", limit)
        distilled = make_encoder(material, Choice())
        assert ("far worse than its teacher" in caplog.text) == is_low
    score = distilled.teacher_score
    assert score is not None
    unknown = TeacherScore(math.nan, 5, held_out=True)
    assert str(unknown).endswith("not measured, all similarities are equal")
    distilled.encoder.save(str(tmp_path / "static"))
    assert str(score) in (tmp_path / "static" / "README.md").read_text("utf-8")
    provenance = Encoder(str(tmp_path / "static")).module.provenance
    assert provenance["teacher_score"] == {"spearman": score.spearman, "texts": 5, "held_out": True}
    assert provenance["teacher"] == str(Recipe.parse("t0-mean"))


# -- choosing ---------------------------------------------------------------------------------------------------------


def test_choices_are_tried_and_ordered(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, values in (("WEIGHTS", ("uniform", "idf")), ("SHAPINGS", ("", "centre")), ("FITS", (0.03, 1.0))):
        monkeypatch.setattr(distillation, name, values)
    task = PairTask.from_rows([(text, DISTINCT[n - 3], n % 5) for n, text in enumerate(DISTINCT)], "few")
    reported: list[tuple[float, Choice]] = []
    trials = find_choice(material, task, report=lambda *trial: reported.append(trial))
    assert trials == sorted(reported, key=lambda trial: -trial[0])
    assert len(trials) == (4 + 2) * 2 * 2 + 2 * 2
    best_score, best = trials[0]
    assert task.run(make_encoder(material, best).encoder).main_score == pytest.approx(best_score, abs=1e-6)
    assert {choice.ridge for _, choice in trials} == {None, 0.03, 1.0}


# -- what is refused --------------------------------------------------------------------------------------------------


def test_a_teacher_with_vectors_of_another_width_is_refused(folder_of: Folders) -> None:
    with pytest.raises(RecipeError, match=r"its vectors have \d+ dimensions, but the model's states"):
        distill(str(folder_of("llama")), DISTINCT, teacher="layers=value:2")


@pytest.mark.parametrize(
    ("choice", "options", "error", "message"),
    [
        (Choice("static"), {}, RecipeError, "'static' is not a layer"),
        (Choice(ridge=-1.0), {}, InputError, "ridge=-1.0: must be a positive number"),
        (Choice(shaping="quantile"), {}, RecipeError, "not affine"),
        (Choice(weights="position"), {}, RecipeError, "not a fixed weight"),
        (Choice(), {"dtype": "int4"}, InputError, "float32, float16, int8"),
        (Choice(), {"dimensions": 33}, InputError, "between 1 and the model's 32"),
        (Choice(shaping="whiten:8"), {"dimensions": 9}, InputError, "the output of shaping 'whiten:8', 8"),
        (Choice(ridge=0), {"teacher": "t0-mean"}, InputError, "do not depend on a teacher. Set ridge"),
        (Choice(), {"teacher": "mean | zscore"}, RecipeError, "Remove the shaping"),
    ],
)
def test_refused_before_the_pass(
    choice: Choice,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
    shell: SentenceTransformer,
    tmp_path: Path,
) -> None:
    with pytest.raises(error, match=message):
        distill(shell, DISTINCT, choice, state=tmp_path / "state", **options)
    assert not (tmp_path / "state").exists()
