"""`essent evaluate`: the table, the JSON file, the report, where it learns from, and refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from command_line import error, run, write_pairs, write_rows
from essent import evaluate
from essent.tasks.result import load_results
from families import Folders


def test_table_and_json(tiny: str, pairs: Path, tmp_path: Path) -> None:
    recipes = ("mean", "first-last | zscore", 'template="{text} [MASK]" weights=mask')
    output = tmp_path / "results.json"
    table = run("evaluate", "-m", tiny, "-r", *recipes, "-d", pairs, "--json", output).stdout
    by_recipe = evaluate(tiny, recipes, [str(pairs)])
    stored = {result.provenance["recipe"]: result for result in load_results(output)}
    for recipe, (expected,) in by_recipe.items():
        assert recipe in table
        assert f"{expected.main_score:.2f}" in table
        for metric, scores in expected.metrics.items():
            assert stored[recipe].metrics[metric] == pytest.approx(scores)
    assert "my-pairs" in table
    assert "avg" not in table  # of one task
    assert "Compared with mean on my-pairs: difference of spearman" in table
    assert all(comparison.summary() in table for comparison in by_recipe.comparisons())


def test_comparisons_of_mixed_tasks(tiny: str, pairs: Path, tmp_path: Path) -> None:
    words = ["red", "dog", "moon", "flute", "man", "ball"]
    rows = ({"text": f"{words[n % 6]} {words[n % 5]} {words[n % 4]}", "label": n % 2} for n in range(60))
    labelled = write_rows(tmp_path / "classes.jsonl", rows)
    paths = (pairs, labelled, f"geometry:{pairs}")
    mixed = run("evaluate", "-m", tiny, "-r", "mean", "cls", "-d", *paths)
    assert "anisotropy" in mixed.stdout
    how = "classes: logistic regression by 10-fold cross-validation, its strength chosen inside each fold."
    assert " ".join(mixed.stderr.split()).count(how) == 1
    assert "Compared with mean on my-pairs: difference of spearman" in mixed.stdout
    assert "Compared with mean on classes: difference of accuracy" in mixed.stdout


def test_columns_with_other_names(tiny: str, pairs: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in pairs.read_text("utf-8").splitlines()]
    names = {"sentence1": "First", "sentence2": "second", "score": "Rating"}
    own = write_rows(tmp_path / "mine.jsonl", ({names[key]: value for key, value in row.items()} for row in rows))
    columns = ("--columns", "sentence1=First,sentence2=second", "score=rating")
    output = tmp_path / "results.json"
    run("evaluate", "-m", tiny, "-r", "mean", "-d", own, *columns, "--json", output)
    (expected,) = evaluate(tiny, ["mean"], [str(pairs)])["mean"]
    (stored,) = load_results(output)
    assert stored.main_score == pytest.approx(expected.main_score)
    assert stored.provenance["sha256"] == expected.provenance["sha256"]
    test = write_pairs(tmp_path / "test.jsonl", 1)
    refused = error("search", "-m", tiny, "--data", own, "--space", "layers", *columns, "--test", test)
    assert "test.jsonl, line 1: no column 'First' for 'sentence1'" in refused


def test_the_model_as_it_is(tiny: str, pairs: Path, tmp_path: Path) -> None:
    dense = str(tmp_path / "dense")
    SentenceTransformer(modules=[Transformer(tiny), Pooling(32), Dense(32, 8)]).save(dense)
    ((expected,),) = evaluate(dense, [], [str(pairs)]).values()
    command = ("evaluate", "-m", dense, "-d", pairs, "--as-is", "-q")
    for recipes in ((), ("-r", "cls")):
        table = run(*command, *recipes).stdout
        assert f"{expected.main_score:.2f}" in table
        assert ("cls" in table, "Compared" in table) == (bool(recipes), bool(recipes))


def test_several_models(tiny: str, folder_of: Folders, pairs: Path, tmp_path: Path) -> None:
    output, models, recipes = tmp_path / "results.json", (tiny, str(folder_of("distilbert"))), ("mean", "cls")
    command = ("evaluate", "-m", *models, tiny, "-r", *recipes, "-d", pairs, "--as-is", "--json", output)
    completed = run(*command)
    stored = {(result.provenance["model"], result.provenance["recipe"]): result for result in load_results(output)}
    assert [*stored] == [(model, recipe) for model in models for recipe in recipes]
    for (model, recipe), result in stored.items():
        assert result.main_score == pytest.approx(evaluate(model, [recipe], [str(pairs)])[recipe][0].main_score)
        label = f"{Path(model).name} · {recipe}"
        row = next(line for line in completed.stdout.splitlines() if line.startswith("│") and f"{label} " in line)
        assert f"{result.main_score:.2f}" in row
    assert (
        run("evaluate", "-m", *models, "-d", pairs).stdout
        == run("evaluate", "-m", *models, "-d", pairs, "--as-is").stdout
    )


def test_a_damaged_model_is_exit_code_1(tiny: str, pairs: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "damaged")
    (tmp_path / "damaged" / "modules.json").write_text('[{"idx": 0')
    assert "modules.json is damaged" in error("evaluate", "-m", tmp_path / "damaged", "-d", pairs, code=1)


def test_fit_texts(tiny: str, pairs: Path, lines: Path, tmp_path: Path) -> None:
    output, recipe = tmp_path / "fit.json", "weights=idf | zscore"
    run("evaluate", "-m", tiny, "-r", recipe, "-d", pairs, "--fit", lines, "--json", output)
    texts = lines.read_text().splitlines()
    (expected,) = evaluate(tiny, [recipe], [str(pairs)], fit_texts=texts, frequency_texts=texts).values()
    (stored,) = load_results(output)
    assert stored.main_score == pytest.approx(expected[0].main_score)
    assert stored.provenance["fitted_on"] == stored.provenance["frequencies_from"] == "other texts"


# -- reports -----------------------------------------------------------------------------------------------------------


def test_a_report_of_files(tiny: str, pairs: Path, few: Path, tmp_path: Path) -> None:
    """What evaluate and minimal-pairs write goes in, beside what is run now; one file comes out."""
    files = [tmp_path / f"{name}.json" for name in ("pairs", "heros")]
    run("evaluate", "-m", tiny, "-d", pairs, "-r", "mean", "first-last | zscore", "--json", files[0])
    run("lab", "minimal-pairs", "evaluate", "-m", tiny, "-r", "mean", "-d", few, "--json", files[1])
    expected = [f"{result.main_score:.2f}".replace("-", "−") for result in load_results(files[0])]
    for suffix in (".html", ".md", ".png"):
        output = tmp_path / "new" / f"report{suffix}"
        completed = run("evaluate", *files, "--report", output)
        assert (completed.stdout, completed.stderr) == ("", f"Wrote {output}.\n")
        if suffix == ".png":
            assert output.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        else:
            assert [text for text in expected if text not in output.read_text("utf-8")] == []
    run("evaluate", files[0], files[0], "-m", tiny, "-r", "cls", "-d", pairs, "--report", tmp_path / "now.md")
    report = (tmp_path / "now.md").read_text("utf-8")
    assert report.count("| mean |") == 4  # a file named twice is read once: scores, other scores, name and recipe
    assert all(f"| {recipe} |" in report for recipe in ("mean", "first-last \\| zscore", "cls")), report


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 100_000, "is not a JSON file"),
        ('{"format": "essent-results/9"}', "its format is 'essent-results/9'. Expected 'essent-results/1'"),
        ('{"format": "essent-leaderboard/1"}', "is not a file of results: its format is 'essent-leaderboard/1'"),
    ],
)
def test_invalid_result_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    assert message in error("evaluate", path, "--report", tmp_path / "out.html")
