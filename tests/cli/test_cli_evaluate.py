"""`essent evaluate`: the table, the JSON file, the report, where it learns from, and refusals."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from command_line import error, run, write_rows
from essent import evaluate
from essent.tasks.result import load_results
from essent.tasks.sample import sample_minimal_pairs_path


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
    assert "--force" in error("evaluate", "-m", tiny, "-d", pairs, "--json", output)


def test_comparisons_of_mixed_tasks(tiny: str, pairs: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.jsonl"
    shutil.copy(pairs, again)
    words = ["red", "dog", "moon", "flute", "man", "ball"]
    rows = ({"text": f"{words[n % 6]} {words[n % 5]} {words[n % 4]}", "label": n % 2} for n in range(60))
    labelled = write_rows(tmp_path / "classes.jsonl", rows)
    alike = run("evaluate", "-m", tiny, "-r", "mean", "-r", "cls", "-d", pairs, again, "-q").stdout
    assert "avg" in alike
    assert "Compared with mean on average over my-pairs, again" in alike
    mixed = run("evaluate", "-m", tiny, "-r", "mean", "cls", "-d", pairs, labelled, "--shots", 2, 4)
    how = "classes: logistic regression by 10-fold cross-validation, its strength chosen inside each fold."
    assert " ".join(mixed.stderr.split()).count(how) == 1
    assert "Compared with mean on my-pairs: difference of spearman" in mixed.stdout
    assert "Compared with mean on classes: difference of accuracy" in mixed.stdout
    assert "Accuracy@2 ×100" in mixed.stdout


def test_default_recipes_and_a_task_of_a_folder(tiny: str, pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "sts").mkdir()
    os.replace(pairs, tmp_path / "sts" / "stsb.jsonl")
    completed = run("evaluate", "-m", tiny, "--data", "stsb", "--data-folder", tmp_path, "-q")
    assert "static-remove-biases" in completed.stdout
    assert completed.stderr == ""


def test_the_model_as_it_is(tiny: str, pairs: Path, tmp_path: Path) -> None:
    dense, transformer = str(tmp_path / "dense"), Transformer(tiny)
    SentenceTransformer(modules=[transformer, Pooling(32), Dense(32, 8)]).save(dense)
    ((expected,),) = evaluate(dense, [], [str(pairs)]).values()
    command = ("evaluate", "-m", dense, "-d", pairs, "--as-is")
    alone, both = run(*command, "-q").stdout, run(*command, "-r", "cls", "-q").stdout
    assert "--as-is runs no recipe" in error(*command, "--fit", pairs)
    assert all(f"{expected.main_score:.2f}" in table for table in (alone, both))
    assert ("cls" in alone, "cls" in both) == (False, True)
    assert "Compared" not in alone


def test_several_models(tiny: str, folder_of: Callable[[str], Path], pairs: Path, tmp_path: Path) -> None:
    output, distilbert = tmp_path / "results.json", str(folder_of("distilbert"))
    completed = run(
        "evaluate", "-m", tiny, distilbert, tiny, "-r", "mean", "cls", "-d", pairs, "--as-is", "--json", output
    )
    assert [(result.provenance["model"], result.provenance["recipe"]) for result in load_results(output)] == [
        (model, recipe) for model in (tiny, distilbert) for recipe in ("mean", "cls")
    ]
    for model in (tiny, distilbert):
        for recipe, (expected,) in evaluate(model, ["mean", "cls"], [str(pairs)]).items():
            row = next(line for line in completed.stdout.splitlines() if f"{Path(model).name} · {recipe} " in line)
            assert f"{expected.main_score:.2f}" in row
    assert f"{tiny}:" in completed.stderr
    refused = error("evaluate", "-m", tiny, "./nowhere", "-r", "mean", "-d", pairs)
    assert refused.startswith("Error: There is no model folder './nowhere'")  # before the first runs


def test_fit_texts(tiny: str, pairs: Path, lines: Path, tmp_path: Path) -> None:
    output, recipe = tmp_path / "fit.json", "weights=idf | zscore"
    run("evaluate", "-m", tiny, "-r", recipe, "-d", pairs, "--fit", lines, "--json", output)
    texts = lines.read_text().splitlines()
    (expected,) = evaluate(tiny, [recipe], [str(pairs)], fit_texts=texts, frequency_texts=texts).values()
    (stored,) = load_results(output)
    assert stored.main_score == pytest.approx(expected[0].main_score)
    assert stored.provenance["fitted_on"] == stored.provenance["frequencies_from"] == "other texts"


def test_refusals(tiny: str, pairs: Path, tmp_path: Path) -> None:
    bad, damaged = tmp_path / "bad.csv", tmp_path / "damaged"
    bad.write_text("sentence1,sentence2,score\na,b,1\na,b,much\n")
    shutil.copytree(tiny, damaged)
    (damaged / "modules.json").write_text('[{"idx": 0')
    for model, options, message in (
        ("nowhere", ("-d", "stsbb"), "stsb"),
        (tiny, ("-d", "stsb", "--data-folder", tmp_path / "none"), "does not exist"),
        (tiny, ("-d", pairs, "-r", "first-lats"), "Did you mean"),
        (tiny, ("-d", pairs, "-r", "ditto:9-1"), "no head 9-1"),
        ("nowhere", ("-d", pairs, "--shots", 0), "numbers of labels a class"),
        ("nowhere", ("-d", pairs, "--shots", 8), "accuracy with few labels is a score of labelled texts"),
        (tiny, ("-d", bad), "bad.csv, line 3"),
    ):
        assert message in error("evaluate", "-m", model, *options)
    assert "modules.json is damaged" in error("evaluate", "-m", damaged, "-d", pairs, code=1)


@pytest.mark.slow
def test_labelled_files(tiny: str, tmp_path: Path) -> None:
    words = ["red", "dog", "moon", "flute", "man", "ball"]
    texts = [f"{words[n % 6]} {words[n % 5]} {words[n % 4]} {words[n % 3]} {n}" for n in range(60)]
    booleans, more, plain = (tmp_path / name for name in ("trec60.csv", "more.csv", "lines.txt"))
    rows = "".join(f"{text},{n % 2 == 0}\n" for n, text in enumerate(texts))
    for path in (booleans, more):
        path.write_text("text,label\n" + rows)
    plain.write_text("\n".join(texts))
    assert "trec60" in run("evaluate", "-m", tiny, "-r", "mean", "-d", booleans).stdout
    assert "accuracy" in run("search", "-m", tiny, "--data", booleans, "--space", "layers").stdout
    both = ("--validate", booleans, more)  # several are ranked together, which only scored pairs can be
    refused = error("distill", "-m", "none", "-t", booleans, "-o", tmp_path / "o", *both)
    assert "holds classification, and only scored pairs will do here" in refused
    assert "Texts without labels are for --texts" in error("search", "-m", "no-such-model", "--data", plain)


# -- reports -----------------------------------------------------------------------------------------------------------


def test_a_report_of_results_and_a_leaderboard(tiny: str, pairs: Path, tmp_path: Path) -> None:
    """What evaluate, minimal-pairs and search write goes in, beside what is run now; one file comes out."""
    few = tmp_path / "few.jsonl"
    few.write_text("".join(sample_minimal_pairs_path().read_text("utf-8").splitlines(keepends=True)[:36]), "utf-8")
    files = [tmp_path / f"{name}.json" for name in ("pairs", "heros", "search")]
    run("evaluate", "-m", tiny, "-d", pairs, "-r", "mean", "first-last | zscore", "--json", files[0])
    run("lab", "minimal-pairs", "evaluate", "-m", tiny, "-r", "mean", "-d", few, "--json", files[1])
    run("search", "-m", tiny, "--data", pairs, "--space", "layers", "--json", files[2])
    scores = [result.main_score for result in load_results(files[0])]
    best = json.loads(files[2].read_text("utf-8"))["best"]
    for suffix in (".html", ".md", ".png"):
        output = tmp_path / "new" / f"report{suffix}"
        completed = run("evaluate", *files, "--report", output)
        assert (completed.stdout, completed.stderr) == ("", f"Wrote {output}.\n")
        if suffix == ".png":
            assert output.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
            continue
        text = output.read_text("utf-8")
        assert all(f"{score:.2f}".replace("-", "−") in text for score in scores)
        assert best in text
        assert "Similarity after one small change" in text
    assert "--force" in error("evaluate", *files, "--report", output)
    run("evaluate", files[0], files[0], "-m", tiny, "-r", "cls", "-d", pairs, "--report", tmp_path / "now.md")
    report = (tmp_path / "now.md").read_text("utf-8")
    assert "(2)" not in report  # a file named twice is read once
    assert all(f"| {recipe} |" in report for recipe in ("mean", "first-last \\| zscore", "cls")), report


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "is not a JSON file"),
        (b"[]", "neither a file of results nor a leaderboard: its format is None"),
        (b'{"format": "essent-results/9"}', "its format is 'essent-results/9', expected 'essent-results/1'"),
        (b'{"format": "essent-results/1", "results": [{}]}', "Not a result of essent"),
        (b'{"format": "essent-leaderboard/1"}', "is not a leaderboard: KeyError: 'criterion'"),
        (
            b'{"format": "essent-leaderboard/1", "criterion": "c", "trials": [{"recipe": "mean", "scores": {}}]}',
            "no score by 'c'",
        ),
        (b'{"format": "essent-results/1", "results": []}', "at least one result"),
    ],
)
def test_invalid_result_files(tmp_path: Path, content: bytes, message: str) -> None:
    path, output = tmp_path / "r.json", tmp_path / "out.html"
    path.write_bytes(content)
    assert message in error("evaluate", path, "--report", output)
    assert not output.exists()


def test_report_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_rows(tmp_path / "r.json", [{"format": "essent-results/1", "results": []}])
    assert "Give a model" in error("evaluate", "--report", tmp_path / "o.html")
    assert "add --report FILE" in error("evaluate", path, "-m", "nowhere")
    assert "is none. Known: .html" in error("evaluate", path, "--report", tmp_path / "out")
    assert "Give a model" in error("evaluate", path, "--report", tmp_path / "o.html", "-r", "mean")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "essent[report]" in error("evaluate", path, "--report", tmp_path / "o.html")
