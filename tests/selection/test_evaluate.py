"""Recipes × tasks: the same scores as one encoder at a time, with one pass a template."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, Router

import essent
from essent.encoder.encoder import Encoder
from essent.errors import DataError, InputError, RecipeError, UnknownNameError, UnsupportedRecipeError
from essent.recipe.recipe import Recipe
from essent.selection import evaluation
from essent.selection.evaluation import evaluate
from essent.selection.run import search
from essent.selection.space import Space
from essent.tasks.examples import Example, Pair
from essent.tasks.labels import LabelTask
from essent.tasks.pairs import PairTask
from families import CORPUS
from near_ties import Watched, one_by_one
from selection_samples import PAIRS, TASK, Shells, retrieval

TRAINING = LabelTask("mine", tuple(Example((f"t{n}",), "ab"[n % 2], "train") for n in range(20)))
RECIPES = ["first-last | zscore", "first-last | whiten | normalize", "static-remove-biases", "t4-idf-quantile"]
RECIPES += ["mean", "first-last-idf-zscore", "ditto:2-3", "prompt", "prompt-denoised", "random"]


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_scores_match_single_encoders(family: str, shell_of: Shells) -> None:
    before = shell_of(family).encode(CORPUS[:4])
    together = evaluate(shell_of(family), RECIPES, [TASK])
    np.testing.assert_array_equal(shell_of(family).encode(CORPUS[:4]), before)  # the model is unchanged
    assert together["whitening | normalize"] is together["first-last | whiten | normalize"]
    assert list(together) == [str(Recipe.parse(recipe)) for recipe in RECIPES]
    for recipe, (result,) in zip(RECIPES, together.values(), strict=True):
        watched = Watched.of(TASK)
        watched.run(Encoder(shell_of(family), recipe).fit(TASK.texts()))
        assert result.main_score == watched.expected(recipe), recipe
        assert result.provenance["recipe_digest"] == Recipe.parse(recipe).digest()


def test_one_pass_per_template_no_deeper_than_the_recipes_read(shell: SentenceTransformer) -> None:
    distinct = len(set(TASK.texts()))
    modules = [shell[0].model.embeddings, *shell[0].model.encoder.layer]
    rows = [0] * len(modules)

    def count(index: int, module: object, inputs: object, output: Any) -> None:
        rows[index] += (output[0] if isinstance(output, tuple) else output).shape[0]

    handles = [module.register_forward_hook(partial(count, index)) for index, module in enumerate(modules)]
    for recipes, expected in (
        (["mean", "first-last", "layers=1 | zscore", "ditto:1-1", "ditto:3-2", "cls | whiten:8"], [distinct] * 4),
        (["mean", "cls", "t0-mean", "template=T0 weights=mask", "t4-mean"], [3 * distinct] * 4),
        (["static", "random"], [0] * 4),
        (["layers=1", "ditto:2-1 layers=0", "static"], [distinct] * 3 + [0]),
    ):
        rows[:] = [0] * len(modules)
        evaluate(shell, recipes, [TASK])
        assert rows == expected, recipes
    for handle in handles:
        handle.remove()
    with pytest.raises(UnsupportedRecipeError, match="no layer 7"):
        evaluate(shell, ["layers=7"], [TASK])


@pytest.mark.parametrize(
    ("recipes", "tasks", "options", "error", "message"),
    [
        (["maen"], [TASK], {}, UnknownNameError, "Did you mean 'mean'"),
        (["ditto"], [TASK], {}, RecipeError, "needs a head"),
        (["mean"], ["stsbb"], {}, (UnknownNameError, DataError), "stsb"),
        (["mean"], "stsb", {}, InputError, r"tasks must be a list: use \['stsb'\]"),
        ("mean", [TASK], {}, InputError, r"recipes must be a list: use \['mean'\]"),
        (["mean"], pandas.DataFrame(), {}, InputError, "instead of a DataFrame"),
        (["mean"], [TASK, TASK], {}, InputError, "Two tasks have the name 'tiny'"),
        (["mean"], [TRAINING], {}, DataError, "'mine' has no test part"),
        ([], [TASK], {"max_seq_length": 8}, InputError, "but recipes is empty"),
    ],
)
def test_mistakes_are_refused_before_loading(
    recipes: Any, tasks: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        evaluate("no-such-model", recipes, tasks, **options)


def test_other_texts_to_learn_from_are_encoded_once(
    shell: SentenceTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_sizes: list[int] = []
    pool_texts = evaluation.pool_texts

    def counting(backbone: Any, plans: Any, texts: list[str], *arguments: Any, **settings: Any) -> Any:
        pass_sizes.append(len(texts))
        return pool_texts(backbone, plans, texts, *arguments, **settings)

    monkeypatch.setattr(evaluation, "pool_texts", counting)
    half, recipes = PairTask("half", PAIRS[:20]), ["mean", "first-last | zscore", "ditto:2-3"]
    sizes = [len(task.texts()) for task in (half, TASK)]
    plain = evaluate(shell, recipes, [half, TASK])
    assert pass_sizes == sizes
    for recipe, alone in one_by_one(shell, recipes, TASK).items():
        assert plain[recipe][1].main_score == alone.expected(recipe)
    pass_sizes.clear()
    evaluate(shell, recipes, [half, TASK], fit_texts=CORPUS)
    assert pass_sizes == [sizes[0], len(CORPUS), sizes[1]]
    pass_sizes.clear()
    evaluate(shell, ["weights=idf | zscore"], [half, TASK], fit_texts=CORPUS)  # counted on each task
    assert pass_sizes == [sizes[0], len(CORPUS), sizes[1], len(CORPUS)]
    recipe, fit_texts = "first-last-idf | zscore", [pair.sentence1 + " kitten" for pair in PAIRS]
    (result,) = evaluate(shell, [recipe], [TASK], fit_texts=fit_texts, frequency_texts=CORPUS)[recipe]
    alone = Watched.of(TASK)
    alone.run(Encoder(shell, recipe).fit(fit_texts, frequency_texts=CORPUS))
    assert result.main_score == alone.expected(recipe)
    assert result.provenance["fitted_on"] == result.provenance["frequencies_from"] == "other texts"


def test_texts_cut_at_a_length(bert: Path) -> None:
    words = "a man " + "flute dog moon " * 20
    task = PairTask("toy", (Pair(words, f"{words} red ball", 1.0), *PAIRS[:3]))
    encoder = Encoder(bert, "mean")
    whole, cut, long = (
        evaluate(bert, ["mean"], [task], max_seq_length=length)["mean"][0] for length in (None, 12, 10**6)
    )
    assert long.provenance["max_seq_length"] == whole.provenance["max_seq_length"] == encoder.max_seq_length
    encoder.max_seq_length = 12
    assert cut.metrics == task.run(encoder).metrics != whole.metrics
    assert cut.provenance["max_seq_length"] == 12


def test_pairs_in_memory_are_a_task(shell: SentenceTransformer) -> None:
    rows = [tuple(pair[:3]) for pair in TASK.pairs]
    frame = pandas.DataFrame(rows, columns=["sentence1", "sentence2", "score"])
    results = evaluate(shell, ["mean"], [TASK, rows, frame])["mean"]
    assert [result.task for result in results] == ["tiny", "pairs 2", "pairs 3"]
    assert len({result.main_score for result in results}) == 1


def test_a_model_without_a_recipe(bert: Path, tmp_path: Path) -> None:
    transformer, folder = Transformer(str(bert)), str(tmp_path / "without-prompt")
    pooling = Pooling(transformer.get_embedding_dimension(), include_prompt=False)
    SentenceTransformer(modules=[transformer, pooling]).save(folder)
    (result,) = evaluate(folder, [], [TASK])["SentenceTransformer"]
    assert result.main_score == pytest.approx(TASK.run(SentenceTransformer(folder)).main_score, abs=1e-3)
    sizes: list[int] = []
    own = SentenceTransformer(folder)
    own[0].register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0]["input_ids"])))
    evaluate(own, [], [TASK], batch_size=3)
    assert max(sizes) == 3
    with pytest.raises(InputError, match="batch_size=0"):
        evaluate(own, [], [TASK], batch_size=0)
    with pytest.raises(RecipeError, match="include_prompt"):
        Encoder(folder)
    assert Encoder(folder, "mean").encode("a cat").shape == (32,)


def test_prompts_of_the_model_are_applied(bert: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """sentence-transformers warns of a default prompt when it loads a model, whatever is then done with it."""
    shell = SentenceTransformer(str(bert), prompts={"query": "query: ", "passage": "passage: "}, device="cpu")
    shell.default_prompt_name = "query"
    shell.save(str(tmp_path / "prompts"))
    model = str(tmp_path / "prompts")
    caplog.clear()
    for recipes in (["mean | zscore"], []):
        results = evaluate(model, recipes, [replace(retrieval(), query_prompt=None), TASK])
        assert any("'query: ' before the queries and 'passage: ' before" in note for note in results.notes())
        assert "tiny: The model's prompts are applied: 'query: ' before the texts." in results.notes()
        ((_, result),) = results.values()
        alone = Watched.of(TASK)
        alone.run(Encoder(model, *recipes or ["mean"]).fit(TASK.texts()))
        assert result.main_score == alone.expected(*recipes or ["mean"])
    board = search(model, TASK, Space(named=("mean",)), baselines=("mean",))
    assert "tiny: The model's prompts are applied: 'query: ' before the texts." in board.notes
    assert "Default prompt name" not in caplog.text


def test_queries_and_documents_of_a_router(bert: Path, tmp_path: Path) -> None:
    """Saved static and full encoders become one model, which is read, and scored with queries on their own route."""
    essent.distill(str(bert), CORPUS, unseen="static").encoder.save(str(tmp_path / "static"))
    Encoder(bert, "mean").save(str(tmp_path / "full"))
    queries, documents = (SentenceTransformer(str(tmp_path / name), device="cpu") for name in ("static", "full"))
    router = Router.for_query_document(list(queries), list(documents))
    SentenceTransformer(modules=[router], device="cpu").save(str(tmp_path / "both"))
    task = replace(retrieval(), query_prompt=None)
    (result,) = evaluate(str(tmp_path / "both"), [], [task])["SentenceTransformer"]
    vectors = [queries.encode(list(task.queries.values())), documents.encode(list(task.corpus.values()))]
    assert result.main_score == pytest.approx(task.score_vectors(np.concatenate(vectors)).main_score)
    assert result.main_score != pytest.approx(task.run(documents).main_score)
    both = essent.load(tmp_path / "both")
    np.testing.assert_array_equal(both.encode_query(CORPUS), queries.encode(CORPUS))
    np.testing.assert_array_equal(both.encode_document(CORPUS), documents.encode(CORPUS))
