"""`essent evaluate`: the table, the JSON file, where it learns from, and refusals."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pandas
import pytest
from cli_helpers import Run
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from essent import evaluate
from essent.tasks import load_results


def test_table_and_json(run: Run, tiny: str, pairs: Path, tmp_path: Path) -> None:
    recipes = ("mean", "first-last | zscore", 'template="{text} [MASK]" weights=mask')
    given = [part for recipe in recipes for part in ("-r", recipe)]
    output = tmp_path / "results.json"
    result = run("evaluate", "-m", tiny, *given, "-d", pairs, "--json", output)
    wanted = evaluate(tiny, recipes, [str(pairs)])
    stored = load_results(output)
    for recipe, (expected,) in wanted.items():
        assert recipe in result.stdout
        assert f"{expected.main_score:.2f}" in result.stdout
        (found,) = [r for r in stored if r.provenance["recipe"] == recipe]
        for metric, scores in expected.metrics.items():
            assert found.metrics[metric] == pytest.approx(scores)
    assert "my-pairs" in result.stdout
    assert "avg" not in result.stdout  # of one task
    assert "Compared with mean on my-pairs: difference of spearman" in result.stdout
    for comparison in wanted.comparisons():
        assert comparison.in_words() in result.stdout
    assert "[MASK]" in result.stdout
    assert "--force" in run("evaluate", "-m", tiny, "-d", pairs, "--json", output, code=2).stderr


def test_the_mean_of_tasks_is_compared_and_tasks_of_other_scores_one_by_one(
    run: Run, tiny: str, pairs: Path, tmp_path: Path
) -> None:
    again, labelled = tmp_path / "again.jsonl", tmp_path / "classes.jsonl"
    shutil.copy(pairs, again)
    words = ["red", "dog", "moon", "flute", "man", "ball"]
    rows = [{"text": f"{words[n % 6]} {words[n % 5]} {words[n % 4]}", "label": n % 2} for n in range(60)]
    labelled.write_text("".join(json.dumps(row) + "\n" for row in rows))
    alike = run("evaluate", "-m", tiny, "-r", "mean,cls", "-d", pairs, "-d", again, "-q").stdout
    assert "avg" in alike
    assert "Compared with mean on average over my-pairs, again" in alike
    noted = run("evaluate", "-m", tiny, "-r", "mean,cls", "-d", pairs, "-d", labelled, "--shots", "2,4")
    mixed = noted.stdout
    how = "classes: logistic regression by 10-fold cross-validation, its strength chosen inside each fold."
    assert " ".join(noted.stderr.split()).count(how) == 1
    assert "Compared with mean on my-pairs: difference of spearman" in mixed
    assert "Compared with mean on classes: difference of accuracy" in mixed
    assert "Accuracy ×100 with N labels a class: classes" in mixed
    alone = run("evaluate", "-m", tiny, "-r", "mean", "-d", pairs, "-q").stdout
    assert "Compared" not in alone


def test_shots_that_cannot_be(run: Run, tiny: str, pairs: Path) -> None:
    for given, message in (
        ("8,few", "--shots takes whole numbers such as 8,16,64"),
        ("0", "numbers of labels a class"),
        ("8", "accuracy with few labels is a score of labelled texts"),
    ):
        refused = run("evaluate", "-m", "no-such-model", "-d", pairs, "--shots", given, code=2).stderr
        assert message in " ".join(refused.split())


def test_defaults_metric_and_folder(run: Run, tiny: str, pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "sts").mkdir()
    os.replace(pairs, tmp_path / "sts" / "stsb.jsonl")
    result = run("evaluate", "-m", tiny, "--data", "stsb", "--data-folder", tmp_path, "--metric", "pearson", "-q")
    assert "Pearson" in result.stdout
    assert "static-remove-biases" in result.stdout
    assert result.stderr == ""


def test_the_model_as_it_is(run: Run, tiny: str, pairs: Path, tmp_path: Path) -> None:
    transformer = Transformer(tiny)
    size = transformer.get_embedding_dimension()
    SentenceTransformer(modules=[transformer, Pooling(size), Dense(size, 8)]).save(str(tmp_path / "dense"))
    ((expected,),) = evaluate(str(tmp_path / "dense"), [], [str(pairs)]).values()
    alone = run("evaluate", "-m", tmp_path / "dense", "-d", pairs, "--as-is", "-q").stdout
    both = run("evaluate", "-m", tmp_path / "dense", "-d", pairs, "--as-is", "-r", "cls", "-q").stdout
    refused = run("evaluate", "-m", tmp_path / "dense", "-d", pairs, "--as-is", "--fit", pairs, code=2).stderr
    assert "--as-is runs no recipe" in " ".join(refused.split())
    for shown in (alone, both):
        assert f"{expected.main_score:.2f}" in shown
    assert ("cls" in alone, "cls" in both) == (False, True)


def test_other_texts(run: Run, tiny: str, pairs: Path, lines: Path, tmp_path: Path) -> None:
    texts = lines.read_text().splitlines()
    for name, options, keywords in (
        ("fit", ("--fit", lines), {"fit_texts": texts}),
        ("frequencies", ("--frequencies", lines), {"frequency_texts": texts}),
    ):
        output = tmp_path / f"{name}.json"
        run("evaluate", "-m", tiny, "-r", "weights=idf | zscore", "-d", pairs, *options, "--json", output)
        (wanted,) = evaluate(tiny, ["weights=idf | zscore"], [str(pairs)], **keywords).values()
        (found,) = load_results(output)
        assert found.main_score == pytest.approx(wanted[0].main_score)
        assert "other texts" in (found.provenance["fitted_on"], found.provenance["frequencies_from"])


def test_refusals(run: Run, tiny: str, pairs: Path, tmp_path: Path) -> None:
    def refuse(*options: object) -> str:
        return run("evaluate", "-m", tiny, *options, code=2).stderr

    assert "pearson" in refuse("-d", pairs, "--metric", "kendall")
    assert "stsb" in refuse("-d", "stsbb", "--data-folder", tmp_path)
    assert "does not exist" in refuse("-d", "stsb", "--data-folder", tmp_path / "none")
    assert "',' holds no value" in refuse("-d", ",")
    assert "Did you mean" in refuse("-d", pairs, "-r", "first-lats")
    assert "no head 9-1" in refuse("-d", pairs, "-r", "ditto:9-1")
    bad = tmp_path / "bad.csv"
    bad.write_text("sentence1,sentence2,score\na,b,1\na,b,much\n")
    assert "bad.csv, line 3" in refuse("-d", bad)
    damaged = tmp_path / "damaged"
    shutil.copytree(tiny, damaged)
    (damaged / "modules.json").write_text('[{"idx": 0')
    assert "modules.json is damaged" in run("evaluate", "-m", damaged, "-d", pairs, code=1).stderr


@pytest.mark.slow
def test_labelled_files_run_as_they_are_and_refusals_name_what_runs(run: Run, tiny: str, tmp_path: Path) -> None:
    words = ["red", "dog", "moon", "flute", "man", "ball"]
    rows = [
        {"text": f"{words[n % 6]} {words[n % 5]} {words[n % 4]} {words[n % 3]} {n}", "label": n % 2 == 0}
        for n in range(60)
    ]
    booleans = tmp_path / "trec60.csv"
    pandas.DataFrame(rows).to_csv(booleans, index=False)
    assert "trec60" in run("evaluate", "-m", tiny, "-r", "mean", "-d", booleans, "-q").stdout
    assert "accuracy" in run("search", "-m", tiny, "--data", booleans, "--space", "layers", "-q").stdout
    assert evaluate(tiny, ["mean"], [pandas.DataFrame(rows)])["mean"][0].main == ("accuracy", "all")
    more = tmp_path / "more.csv"
    more.write_bytes(booleans.read_bytes())
    both = ("--validate", f"{booleans},{more}")  # several are ranked together, which only scored pairs can be
    refused = run("distill", "-m", "none", "-t", booleans, "-o", tmp_path / "o", *both, code=2).stderr
    assert "holds classification, and only scored pairs will do here" in " ".join(refused.split())
    plain = tmp_path / "lines.txt"
    plain.write_text("\n".join(row["text"] for row in rows))  # type: ignore[misc]
    hint = " ".join(run("search", "-m", "no-such-model", "--data", plain, code=2).stderr.split())
    assert "Texts without labels are for --texts" in hint
    assert "mean" in run("search", "-m", tiny, "--texts", plain, "--space", "layers", "-q").stdout
