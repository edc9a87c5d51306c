"""`essent evaluate`: the table, the JSON file, the report and where it learns from."""

from __future__ import annotations

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from command_line import TEXTS, run, write_rows
from essent import evaluate
from essent.tasks.result import load_results
from families import Folders


def test_table_and_json(tiny: str, pairs: Path, lines: Path, tmp_path: Path) -> None:
    recipes = ("mean", "weights=idf | zscore", 'template="{text} [MASK]" weights=mask')
    output = tmp_path / "results.json"
    table = run("evaluate", "-m", tiny, "-r", *recipes, "-d", pairs, "--fit", lines, "--json", output).stdout
    by_recipe = evaluate(tiny, recipes, [str(pairs)], fit_texts=TEXTS, frequency_texts=TEXTS)
    stored = {result.provenance["recipe"]: result for result in load_results(output)}
    for recipe, (expected,) in by_recipe.items():
        assert recipe in table
        assert f"{expected.main_score:.2f}" in table
        for metric, scores in expected.metrics.items():
            assert stored[recipe].metrics[metric] == pytest.approx(scores)
    learnt = stored["weights=idf | zscore"].provenance
    assert learnt["fitted_on"] == learnt["frequencies_from"] == "other texts"
    assert "my-pairs" in table
    assert "avg" not in table  # of one task
    assert "Compared with mean on my-pairs: difference of spearman" in table
    assert all(comparison.summary() in table for comparison in by_recipe.comparisons())


def test_comparisons_of_mixed_tasks(tiny: str, pairs: Path, tmp_path: Path) -> None:
    words = ["red", "dog", "moon", "flute", "man", "ball"]
    rows = ({"text": f"{words[n % 6]} {words[n % 5]} {words[n % 4]}", "label": n % 2} for n in range(60))
    labelled = write_rows(tmp_path / "classes.jsonl", rows)
    mixed = run("evaluate", "-m", tiny, "-r", "mean", "cls", "-d", pairs, labelled, f"geometry:{pairs}")
    how = "classes: logistic regression by 10-fold cross-validation, its strength chosen inside each fold."
    assert " ".join(mixed.stderr.split()).count(how) == 1
    for text in ("anisotropy", "on my-pairs: difference of spearman", "on classes: difference of accuracy"):
        assert text in mixed.stdout


def test_columns_with_other_names(tiny: str, pairs: Path, tmp_path: Path) -> None:
    own, output, content = tmp_path / "own.jsonl", tmp_path / "results.json", pairs.read_text("utf-8")
    for name, column in (("sentence1", "First"), ("sentence2", "second"), ("score", "Rating")):
        content = content.replace(f'"{name}"', f'"{column}"')
    own.write_text(content, "utf-8")
    columns = ("sentence1=First,sentence2=second", "score=rating")
    run("evaluate", "-m", tiny, "-r", "mean", "-d", own, "--columns", *columns, "--json", output)
    (expected,) = evaluate(tiny, ["mean"], [str(pairs)])["mean"]
    (stored,) = load_results(output)
    assert stored.main_score == pytest.approx(expected.main_score)
    assert stored.provenance["sha256"] == expected.provenance["sha256"]


def test_the_model_as_it_is(tiny: str, pairs: Path, tmp_path: Path) -> None:
    dense = str(tmp_path / "dense")
    SentenceTransformer(modules=[Transformer(tiny), Pooling(32), Dense(32, 8)]).save(dense)
    ((expected,),) = evaluate(dense, [], [str(pairs)]).values()
    for recipes in ((), ("-r", "cls")):
        table = run("evaluate", "-m", dense, "-d", pairs, "--as-is", "-q", *recipes).stdout
        assert f"{expected.main_score:.2f}" in table
        assert ("cls" in table, "Compared" in table) == (bool(recipes), bool(recipes))


def test_several_models(tiny: str, folder_of: Folders, pairs: Path, tmp_path: Path) -> None:
    output, models, recipes = tmp_path / "results.json", (tiny, str(folder_of("distilbert"))), ("mean", "cls")
    command = ("evaluate", "-d", pairs, "-m", *models)
    printed = run(*command, tiny, "-r", *recipes, "--as-is", "--json", output).stdout
    stored = {(result.provenance["model"], result.provenance["recipe"]): result for result in load_results(output)}
    assert [*stored] == [(model, recipe) for model in models for recipe in recipes]
    for (model, recipe), result in stored.items():
        assert result.main_score == pytest.approx(evaluate(model, [recipe], [str(pairs)])[recipe][0].main_score)
        texts = ("│", f"{Path(model).name} · {recipe} ", f"{result.main_score:.2f}")
        assert any(all(text in line for text in texts) for line in printed.splitlines())
    assert run(*command).stdout == run(*command, "--as-is").stdout


def test_a_report_of_files(tiny: str, pairs: Path, few: Path, tmp_path: Path) -> None:
    """What evaluate and minimal-pairs write goes in, beside what is run now; one file comes out."""
    files, output = [tmp_path / f"{name}.json" for name in ("pairs", "heros")], tmp_path / "new" / "report.html"
    run("evaluate", "-m", tiny, "-d", pairs, "-r", "mean", "first-last | zscore", "--json", files[0])
    run("lab", "minimal-pairs", "evaluate", "-m", tiny, "-r", "mean", "-d", few, "--json", files[1])
    completed = run("evaluate", *files, "--report", output)
    assert (completed.stdout, completed.stderr) == ("", f"Wrote {output}.\n")
    for result in load_results(files[0]):
        assert f"{result.main_score:.2f}".replace("-", "−") in output.read_text("utf-8")
    run("evaluate", files[0], files[0], "-m", tiny, "-r", "cls", "-d", pairs, "--report", tmp_path / "now.md")
    report = (tmp_path / "now.md").read_text("utf-8")
    assert report.count("| mean |") == 4  # a file named twice is read once: scores, other scores, name and recipe
    assert all(f"| {recipe} |" in report for recipe in ("mean", "first-last \\| zscore", "cls")), report
