"""Recipes × tasks: the same scores as one encoder at a time, with one pass a template."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from essent.encoder.encoder import Encoder
from essent.errors import DataError, InputError, ModelError, RecipeError, UnknownNameError, UnsupportedRecipeError
from essent.recipe.recipe import Recipe
from essent.selection.evaluation import evaluate
from essent.selection.run import search
from essent.selection.space import Space
from essent.tasks.examples import Example, Pair
from essent.tasks.labels import LabelTask
from essent.tasks.pairs import PairTask
from essent.tasks.retrieval import RetrievalTask
from families import CORPUS, build_family
from near_ties import Watched, one_by_one

Shells = Callable[[str], SentenceTransformer]
WORDS = " ".join(CORPUS[:8]).split()
PAIRS = tuple(
    Pair(" ".join(WORDS[n : n + 6]), " ".join(WORDS[n + n % 4 : n + 7]), float(n % 4), "even" if n % 2 else "odd")
    for n in range(40)
)
TASK = PairTask("tiny", PAIRS)
RECIPES = [
    "mean",
    "first-last | zscore",
    "first-last | whiten:8",
    "first-last-idf-zscore",
    "ditto:2-3",
    "static-remove-biases",
    "prompt",
    "prompt-denoised",
    "t4-idf-quantile",
    "random",
]


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_scores_match_single_encoders(family: str, shell_of: Shells) -> None:
    together = evaluate(shell_of(family), RECIPES, [TASK])
    assert list(together) == [str(Recipe.parse(recipe)) for recipe in RECIPES]
    for recipe, (result,) in zip(RECIPES, together.values(), strict=True):
        watched = Watched.of(TASK)
        alone = watched.run(Encoder(shell_of(family), recipe).fit(TASK.texts()))
        assert result.main_score == watched.expected(recipe), recipe
        near = 100 * watched.rounding(recipe)
        assert result.metrics["pearson"]["all"] == pytest.approx(alone.metrics["pearson"]["all"], abs=near), recipe
        assert result.provenance["recipe_digest"] == Recipe.parse(recipe).digest()


def test_the_default_prompt_stands_before_every_text(shell_of: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    shell, recipes = shell_of("bert"), ["mean | zscore", "weights=idf"]
    without = evaluate(shell, recipes, [TASK])
    monkeypatch.setattr(shell, "prompts", {"query": "the cat of the "})
    monkeypatch.setattr(shell, "default_prompt_name", "query")
    for (text, (result,)), (plain,) in zip(evaluate(shell, recipes, [TASK]).items(), without.values(), strict=True):
        alone = Watched.of(TASK)
        alone.run(Encoder(shell, text).fit(TASK.texts()))
        assert result.main_score == alone.expected(text)
        assert plain.main_score != alone.expected(text)
        assert result.provenance["prompt"] == "the cat of the "
        assert plain.provenance["prompt"] is None


def test_number_of_passes(shell_of: Shells) -> None:
    shell, rows = shell_of("bert"), []
    distinct = len(set(TASK.texts()))
    handle = shell[0].model.embeddings.register_forward_hook(lambda *call: rows.append(call[2].shape[0]))
    evaluate(shell, ["mean", "first-last", "layers=1 | zscore", "ditto:1-1", "ditto:3-2", "cls | whiten:8"], [TASK])
    without = sum(rows)
    rows.clear()
    evaluate(shell, ["mean", "cls", "t0-mean", "template=T0 weights=mask", "t4-mean"], [TASK])
    handle.remove()
    assert without == distinct
    assert sum(rows) == 3 * distinct


def test_a_pass_goes_no_deeper_than_the_recipes_read(shell_of: Shells) -> None:
    shell, calls = shell_of("bert"), [0, 0, 0]

    def counter(layer_index: int) -> Callable:
        def hook(*_: object) -> None:
            calls[layer_index] += 1

        return hook

    handles = [layer.register_forward_hook(counter(n)) for n, layer in enumerate(shell[0].model.encoder.layer)]
    evaluate(shell, ["static", "random"], [TASK])
    assert calls == [0, 0, 0]
    evaluate(shell, ["layers=1", "ditto:2-1 layers=0", "static"], [TASK], batch_size=64)
    for handle in handles:
        handle.remove()
    assert calls == [1, 1, 0]


def test_tasks_are_fitted_separately(shell_of: Shells) -> None:
    first, second = PairTask("first", PAIRS[:15]), PairTask("second", PAIRS[15:])
    together = evaluate(shell_of("bert"), ["first-last-idf-zscore"], [first, second])["first-last-idf | zscore"]
    for task, result in zip((first, second), together, strict=True):
        alone = evaluate(shell_of("bert"), ["first-last-idf-zscore"], [task])["first-last-idf | zscore"][0]
        assert result.metrics == alone.metrics
        assert result.task == task.name


def test_fit_and_frequency_texts(shell_of: Shells) -> None:
    fit_texts = [pair.sentence1 + " kitten" for pair in PAIRS]
    recipe = "first-last-idf | zscore"
    result = evaluate(shell_of("bert"), [recipe], [TASK], fit_texts=fit_texts, frequency_texts=CORPUS)[recipe][0]
    alone = Watched.of(TASK)
    alone.run(Encoder(shell_of("bert"), recipe).fit(fit_texts, frequency_texts=CORPUS))
    assert result.main_score == alone.expected(recipe)
    assert result.provenance["fitted_on"] == result.provenance["frequencies_from"] == "other texts"
    assert evaluate(shell_of("bert"), [recipe], [TASK])[recipe][0].metrics != result.metrics


def test_results_are_reported_as_they_come(shell_of: Shells) -> None:
    reported = []
    evaluate(
        shell_of("bert"),
        ["mean", "cls"],
        [TASK, PairTask("again", PAIRS)],
        report=lambda recipe, result: reported.append(recipe),
    )
    assert reported == ["mean", "cls", "mean", "cls"]


def test_model_is_unchanged(shell_of: Shells) -> None:
    before = shell_of("bert").encode(CORPUS[:4])
    evaluate(shell_of("bert"), RECIPES, [TASK])
    np.testing.assert_array_equal(shell_of("bert").encode(CORPUS[:4]), before)


def test_mistakes_are_refused_before_loading() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'mean'"):
        evaluate("no-such-model", ["maen"], [TASK])
    with pytest.raises(RecipeError, match="needs its head"):
        evaluate("no-such-model", ["ditto"], [TASK])
    with pytest.raises((UnknownNameError, DataError)):
        evaluate("no-such-model", ["mean"], ["stsbb"])
    with pytest.raises(InputError, match="at least one task"):
        evaluate("no-such-model", ["mean"], [])
    with pytest.raises(ModelError):
        evaluate("no-such-model", ["mean"], [TASK])


def test_unsupported_recipe_is_refused(shell_of: Shells) -> None:
    with pytest.raises(UnsupportedRecipeError, match="no layer 7"):
        evaluate(shell_of("bert"), ["mean", "layers=7"], [TASK])


def test_shared_texts_and_cache(shell_of: Shells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from essent.selection import evaluation as evaluation

    ran: list[int] = []
    run = evaluation.pool_texts

    def counting(backbone: object, plans: object, texts: list[str], *arguments: object, **settings: object) -> object:
        ran.append(len(texts))
        return run(backbone, plans, texts, *arguments, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(evaluation, "pool_texts", counting)
    half = PairTask("half", PAIRS[:20])
    recipes = ["mean", "first-last | zscore", "ditto:2-3"]
    plain = evaluate(shell_of("bert"), recipes, [half, TASK])
    distinct = len(set(TASK.texts()))
    assert sum(ran) == distinct
    ran.clear()
    cached = evaluate(shell_of("bert"), recipes, [TASK], cache=tmp_path / "cache")
    again = evaluate(shell_of("bert"), recipes, [half, TASK], cache=tmp_path / "cache")
    assert ran == [distinct]
    for recipe in recipes:
        assert again[recipe][1].main_score == cached[recipe][0].main_score
    evaluate(shell_of("bert"), ["mean", "first-last-idf"], [TASK], cache=tmp_path / "cache")
    assert ran == [distinct, distinct]  # idf's rows depend on what it has counted
    for recipe, alone in one_by_one(shell_of("bert"), recipes, TASK).items():
        assert again[recipe][1].main_score == alone.expected(recipe)
        assert plain[recipe][1].main_score == alone.expected(recipe)
    assert not any("morning" in path.read_text("latin-1") for path in (tmp_path / "cache").iterdir())


def test_texts_cut_at_a_length(bert: Path) -> None:
    words = " ".join(["flute", "dog", "moon"] * 20)
    pairs = (
        Pair(f"a man {words}", f"a man {words} red ball", 1.0),
        Pair("a dog", "the dog", 2.0),
        Pair("a", "moon", 3),
    )
    task = PairTask("toy", pairs)
    (cut,) = evaluate(bert, ["mean"], [task], max_seq_length=12)["mean"]
    encoder = Encoder(bert, "mean")
    encoder.max_seq_length = 12
    assert cut.metrics == task.run(encoder).metrics
    assert cut.provenance["max_seq_length"] == 12
    assert cut.metrics != evaluate(bert, ["mean"], [task])["mean"][0].metrics
    (long,) = evaluate(bert, ["mean"], [task], max_seq_length=10**6)["mean"]
    assert long.provenance["max_seq_length"] == Encoder(bert, "mean").max_seq_length
    with pytest.raises(InputError, match="max_seq_length=0: must be a whole number of at least 1"):
        evaluate(bert, ["mean"], [task], max_seq_length=0)
    with pytest.raises(InputError, match="set your encoder's own limit"):
        evaluate(encoder, [], [task], max_seq_length=8)


def test_evaluate_refusals(bert: Path) -> None:
    for arguments, message in (
        ((["mean"], "stsb"), r"tasks is a list, \['stsb'\]"),
        (("mean", [TASK]), r"recipes is a list, \['mean'\]"),
        ((["mean"], TASK), "tasks is a list"),
        ((["mean"], [TASK, TASK]), "Two tasks are called 'tiny'"),
    ):
        with pytest.raises(InputError, match=message):
            evaluate(bert, *arguments)
    with pytest.raises(InputError, match="give recipes with them"):
        evaluate(bert, [], [TASK], fit_texts=["a"])


def test_pairs_in_memory_are_a_task(shell_of: Shells) -> None:
    shell, rows = shell_of("bert"), [tuple(pair[:3]) for pair in PAIRS]
    frame = pandas.DataFrame(rows, columns=["sentence1", "sentence2", "score"])
    expected = evaluate(shell, ["mean"], [TASK])["mean"][0].main_score
    both = evaluate(shell, ["mean"], [rows, frame])["mean"]
    assert [(result.task, result.main_score) for result in both] == [("pairs", expected), ("pairs 2", expected)]
    with pytest.raises(InputError, match="tasks is a list; give \\[DataFrame\\]"):
        evaluate(shell, ["mean"], frame)


def test_lookup_by_any_spelling(shell_of: Shells) -> None:
    results = evaluate(shell_of("bert"), ["whitening", "mean|abtt:2"], [TASK])
    assert results["whitening"] is results["first-last | whiten"]
    assert results["mean | abtt:2"] is results["mean|abtt:2"]
    for unknown in ("cls", "no such recipe"):
        with pytest.raises(KeyError, match=unknown):
            results[unknown]


def test_models_without_a_recipe(bert: Path, tmp_path: Path) -> None:
    transformer = Transformer(str(bert))
    size = transformer.get_embedding_dimension()
    dense, without = tmp_path / "dense", tmp_path / "without-prompt"
    SentenceTransformer(modules=[transformer, Pooling(size), Dense(size, 8)]).save(str(dense))
    SentenceTransformer(modules=[transformer, Pooling(size, include_prompt=False)]).save(str(without))
    for folder in (dense, without):
        ((result,),) = evaluate(str(folder), [], [TASK]).values()
        assert result.main_score == pytest.approx(TASK.run(SentenceTransformer(str(folder))).main_score, abs=1e-3)
    with pytest.raises(RecipeError, match="include_prompt=False"):
        Encoder(without)
    assert Encoder(without, "mean").encode("a cat").shape == (size,)


def test_labels_without_a_test_part_are_refused_before_the_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("essent.selection.evaluation.load", lambda *_: pytest.fail("the model was loaded"))
    task = LabelTask("mine", tuple(Example((f"t{n}",), "ab"[n % 2], "train") for n in range(20)))
    with pytest.raises(DataError, match="'mine' has no test part to score"):
        evaluate("no-such-model", ["mean"], [task])


def test_notes_on_applied_prompts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """sentence-transformers warns of a default prompt when it loads a model, whatever is then done with it."""
    folder = build_family("bert", tmp_path / "bert")
    shell = SentenceTransformer(str(folder), prompts={"query": "query: ", "passage": "passage: "}, device="cpu")
    shell.default_prompt_name = "query"
    shell.save(str(tmp_path / "prompts"))
    model = str(tmp_path / "prompts")
    texts = {str(n): f"the moon {n}" for n in range(4)}
    retrieval = RetrievalTask("found", texts, texts, {n: {n: 1} for n in texts})
    pairs = [("a cat", "the dog", 1.0), ("a dog", "the cat", 2.0), ("the moon", "a cat", 0.5)]
    pytest.importorskip("pytrec_eval")
    caplog.clear()
    for recipes in (["mean"], []):
        notes = evaluate(model, recipes, [retrieval, pairs]).notes()
        assert "found: The model's prompts are applied: 'query: ' before the queries and 'passage: ' before" in str(
            notes
        )
        assert "pairs 2: The model's prompts are applied: 'query: ' before the texts." in notes
    board = search(model, pairs, Space(named=("mean",)), baselines=("mean",))
    assert "pairs: The model's prompts are applied: 'query: ' before the texts." in board.notes
    assert "Default prompt name" not in caplog.text
