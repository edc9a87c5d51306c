"""`essent evaluate`: the table, the JSON file, the report and where it learns from."""

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling

from command_line import TEXTS, run, write_rows
from essent import evaluate
from essent.tasks.locate import load_pairs
from essent.tasks.result import load_results
from families import Folders

PAIRS = "my-pairs.jsonl"


def test_table_and_json() -> None:
    recipes = ("mean", "weights=idf | zscore", 'template="{text} [MASK]" weights=mask')
    table = run("evaluate", "-m", "tiny", "-r", *recipes, "-d", PAIRS, "--fit", "texts.txt", "--json", "r.json").stdout
    by_recipe = evaluate("tiny", recipes, [PAIRS], fit_texts=TEXTS, frequency_texts=TEXTS)
    stored = {result.provenance["recipe"]: result for result in load_results("r.json")}
    for recipe, (expected,) in by_recipe.items():
        assert recipe in table
        assert f"{expected.main_score:.2f}" in table
        for metric, scores in expected.metrics.items():
            assert stored[recipe].metrics[metric] == pytest.approx(scores)
    learnt = stored["weights=idf | zscore"].provenance
    assert learnt["fitted_on"] == learnt["frequencies_from"] == "other texts"
    assert "avg" not in table  # of one task
    assert "Compared with mean on my-pairs: difference of spearman" in table
    assert all(comparison.summary() in table for comparison in by_recipe.comparisons())


def test_comparisons_of_mixed_tasks() -> None:
    words = "red dog moon flute man ball".split()
    rows = ({"text": f"{words[n % 6]} {words[n % 5]} {words[n % 4]}", "label": n % 2} for n in range(60))
    write_rows(Path("classes.jsonl"), rows)
    mixed = run(f"evaluate -m tiny -r mean cls -d {PAIRS} classes.jsonl geometry:{PAIRS}")
    how = "classes: logistic regression by 10-fold cross-validation, its strength chosen inside each fold."
    assert " ".join(mixed.stderr.split()).count(how) == 1
    for text in ("anisotropy", "on my-pairs: difference of spearman", "on classes: difference of accuracy"):
        assert text in mixed.stdout


def test_columns_with_other_names() -> None:
    content = Path(PAIRS).read_text("utf-8").replace("sentence1", "First").replace('"score"', '"Rating"')
    Path("own.jsonl").write_text(content, "utf-8")
    columns = "--columns sentence1=First,sentence2=sentence2 score=rating"
    run(f"evaluate -m tiny -r mean -d own.jsonl {columns} --json r.json")
    assert load_results("r.json")[0].provenance["sha256"] == load_pairs(PAIRS).digest()


@pytest.mark.parametrize("recipes", ["", "-r cls"])
def test_a_model_without_a_recipe_runs_as_it_is(recipes: str) -> None:
    """Also for `essent encode`, which has nothing to fit."""
    model = SentenceTransformer(modules=[Transformer("tiny"), Pooling(32), Dense(32, 8)], device="cpu")
    model.save("dense")
    ((expected,),) = evaluate("dense", [], [PAIRS]).values()
    table = run(f"evaluate -m dense -d {PAIRS} --as-is -q {recipes}").stdout
    assert f"{expected.main_score:.2f}" in table
    assert ("cls" in table, "Compared" in table) == (bool(recipes), bool(recipes))
    log = run("encode -m dense texts.txt --fit texts.txt -o v.npy").stderr
    assert "The model has nothing to fit: --fit texts.txt is ignored." in " ".join(log.split())
    np.testing.assert_allclose(np.load("v.npy"), model.encode(TEXTS), atol=1e-6)


def test_several_models(folder_of: Folders) -> None:
    models, recipes = ("tiny", str(folder_of("distilbert"))), ("mean", "cls")
    command = f"evaluate -d {PAIRS} -m {' '.join(models)}"
    printed = run(f"{command} tiny -r mean cls --as-is --json r.json").stdout
    stored = {(result.provenance["model"], result.provenance["recipe"]): result for result in load_results("r.json")}
    assert [*stored] == [(model, recipe) for model in models for recipe in recipes]
    for (model, recipe), result in stored.items():
        assert result.main_score == pytest.approx(evaluate(model, [recipe], [PAIRS])[recipe][0].main_score)
        texts = ("│", f"{Path(model).name} · {recipe} ", f"{result.main_score:.2f}")
        assert any(all(text in line for text in texts) for line in printed.splitlines())
    assert run(command).stdout == run(f"{command} --as-is").stdout


def test_a_report_of_files() -> None:
    """What evaluate and minimal-pairs write goes in, beside what is run now; one file comes out."""
    run(f"evaluate -m tiny -d {PAIRS} -r mean 'first-last | zscore' --json r.json")
    run("lab minimal-pairs evaluate -m tiny -r mean -d few.jsonl --json heros.json")
    completed = run("evaluate r.json heros.json --report new/report.html")
    assert (completed.stdout, completed.stderr) == ("", "Wrote new/report.html.\n")
    page = Path("new/report.html").read_text("utf-8")
    for result in load_results("r.json"):
        assert f"{result.main_score:.2f}".replace("-", "−") in page
    run(f"evaluate r.json r.json -m tiny -r cls -d {PAIRS} --report now.md")
    report = Path("now.md").read_text("utf-8")
    assert report.count("| mean |") == 4  # a file named twice is read once: scores, other scores, name and recipe
    assert all(f"| {recipe} |" in report for recipe in ("mean", "first-last \\| zscore", "cls")), report
