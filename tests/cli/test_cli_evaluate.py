"""`essent evaluate`: the table, the JSON file, the report, where it learns from, and refusals."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from command_line import run
from essent import evaluate
from essent.tasks.result import load_results
from essent.tasks.sample import sample_minimal_pairs_path


def test_table_and_json(tiny: str, pairs: Path, tmp_path: Path) -> None:
    recipes = ("mean", "first-last | zscore", 'template="{text} [MASK]" weights=mask')
    output = tmp_path / "results.json"
    result = run("evaluate", "-m", tiny, "-r", *recipes, "-d", pairs, "--json", output)
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
    tiny: str, pairs: Path, tmp_path: Path
) -> None:
    again, labelled = tmp_path / "again.jsonl", tmp_path / "classes.jsonl"
    shutil.copy(pairs, again)
    words = ["red", "dog", "moon", "flute", "man", "ball"]
    rows = [{"text": f"{words[n % 6]} {words[n % 5]} {words[n % 4]}", "label": n % 2} for n in range(60)]
    labelled.write_text("".join(json.dumps(row) + "\n" for row in rows))
    alike = run("evaluate", "-m", tiny, "-r", "mean", "-r", "cls", "-d", pairs, again, "-q").stdout
    assert "avg" in alike
    assert "Compared with mean on average over my-pairs, again" in alike
    noted = run("evaluate", "-m", tiny, "-r", "mean", "cls", "-d", pairs, labelled, "--shots", 2, 4)
    mixed = noted.stdout
    how = "classes: logistic regression by 10-fold cross-validation, its strength chosen inside each fold."
    assert " ".join(noted.stderr.split()).count(how) == 1
    assert "Compared with mean on my-pairs: difference of spearman" in mixed
    assert "Compared with mean on classes: difference of accuracy" in mixed
    assert "Accuracy ×100 with N labels a class: classes" in mixed
    alone = run("evaluate", "-m", tiny, "-r", "mean", "-d", pairs, "-q").stdout
    assert "Compared" not in alone


def test_defaults_metric_and_folder(tiny: str, pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "sts").mkdir()
    os.replace(pairs, tmp_path / "sts" / "stsb.jsonl")
    result = run("evaluate", "-m", tiny, "--data", "stsb", "--data-folder", tmp_path, "--metric", "pearson", "-q")
    assert "Pearson" in result.stdout
    assert "static-remove-biases" in result.stdout
    assert result.stderr == ""


def test_the_model_as_it_is(tiny: str, pairs: Path, tmp_path: Path) -> None:
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


def test_several_models(tiny: str, folder_of: Callable[[str], Path], pairs: Path, tmp_path: Path) -> None:
    output, other = tmp_path / "results.json", str(folder_of("distilbert"))
    command = ("evaluate", "-m", tiny, other, "-r", "mean", "cls", "-d", pairs, "--as-is", "--json", output)
    shown = run(*command)
    assert [(result.provenance["model"], result.provenance["recipe"]) for result in load_results(output)] == [
        (model, recipe) for model in (tiny, other) for recipe in ("mean", "cls")
    ]
    for model in (tiny, other):
        for recipe, (expected,) in evaluate(model, ["mean", "cls"], [str(pairs)]).items():
            row = next(line for line in shown.stdout.splitlines() if f"{Path(model).name} · {recipe} " in line)
            assert f"{expected.main_score:.2f}" in row
    assert f"{tiny}:" in shown.stderr
    assert "·" not in run("evaluate", "-m", tiny, tiny, "-r", "mean", "-d", pairs, "-q").stdout
    refused = run("evaluate", "-m", tiny, "./nowhere", "-r", "mean", "-d", pairs, code=2).stderr
    assert refused.startswith("Error: There is no model folder './nowhere'")  # before the first runs


def test_other_texts(tiny: str, pairs: Path, lines: Path, tmp_path: Path) -> None:
    output = tmp_path / "fit.json"
    run("evaluate", "-m", tiny, "-r", "weights=idf | zscore", "-d", pairs, "--fit", lines, "--json", output)
    texts = lines.read_text().splitlines()
    learned = {"fit_texts": texts, "frequency_texts": texts}
    (wanted,) = evaluate(tiny, ["weights=idf | zscore"], [str(pairs)], **learned).values()
    (stored,) = load_results(output)
    assert stored.main_score == pytest.approx(wanted[0].main_score)
    assert stored.provenance["fitted_on"] == stored.provenance["frequencies_from"] == "other texts"


def test_refusals(tiny: str, pairs: Path, tmp_path: Path) -> None:
    def refuse(*options: object, model: object = tiny) -> str:
        return run("evaluate", "-m", model, *options, code=2).stderr

    assert "pearson" in refuse("-d", pairs, "--metric", "kendall", model="nowhere")
    assert "stsb" in refuse("-d", "stsbb", "--data-folder", tmp_path, model="nowhere")
    assert "does not exist" in refuse("-d", "stsb", "--data-folder", tmp_path / "none")
    assert "Did you mean" in refuse("-d", pairs, "-r", "first-lats")
    assert "no head 9-1" in refuse("-d", pairs, "-r", "ditto:9-1")
    assert "numbers of labels a class" in refuse("-d", pairs, "--shots", 0, model="nowhere")
    assert "accuracy with few labels is a score of labelled texts" in refuse("-d", pairs, "--shots", 8, model="nowhere")
    bad = tmp_path / "bad.csv"
    bad.write_text("sentence1,sentence2,score\na,b,1\na,b,much\n")
    assert "bad.csv, line 3" in refuse("-d", bad)
    damaged = tmp_path / "damaged"
    shutil.copytree(tiny, damaged)
    (damaged / "modules.json").write_text('[{"idx": 0')
    assert "modules.json is damaged" in run("evaluate", "-m", damaged, "-d", pairs, code=1).stderr


@pytest.mark.slow
def test_labelled_files_run_as_they_are_and_refusals_name_what_runs(tiny: str, tmp_path: Path) -> None:
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
    both = ("--validate", booleans, more)  # several are ranked together, which only scored pairs can be
    refused = run("distill", "-m", "none", "-t", booleans, "-o", tmp_path / "o", *both, code=2).stderr
    assert "holds classification, and only scored pairs will do here" in " ".join(refused.split())
    plain = tmp_path / "lines.txt"
    plain.write_text("\n".join(row["text"] for row in rows))  # type: ignore[misc]
    hint = " ".join(run("search", "-m", "no-such-model", "--data", plain, code=2).stderr.split())
    assert "Texts without labels are for --texts" in hint
    assert "mean" in run("search", "-m", tiny, "--texts", plain, "--space", "layers", "-q").stdout


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
        shown = run("evaluate", *files, "--report", output)
        assert (shown.stdout, shown.stderr) == ("", f"Wrote {output}.\n")
        if suffix == ".png":
            assert output.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
            continue
        text = output.read_text("utf-8")
        assert all(f"{score:.2f}".replace("-", "−") in text for score in scores)
        assert best in text
        assert "Similarity after one small change" in text
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["report.html", "report.md", "report.png"]
    assert "--force" in run("evaluate", *files, "--report", output, code=2).stderr
    run("evaluate", files[0], files[0], "--report", tmp_path / "once.md")
    assert "(2)" not in (tmp_path / "once.md").read_text("utf-8")
    run("evaluate", files[0], "-m", tiny, "-r", "cls", "-d", pairs, "--report", tmp_path / "now.md", "-q")
    now = (tmp_path / "now.md").read_text("utf-8")
    assert all(f"| {recipe} |" in now for recipe in ("mean", "first-last \\| zscore", "cls")), now


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Cannot read the results"),
        (b"{", "is not a JSON file"),
        (b"\xff\xfe\x00", "is not a JSON file"),
        (b"[" * 100_000, "is not a JSON file"),
        (b"[]", "neither a file of results nor a leaderboard: its format is None"),
        (b'{"format": "essent-results/9"}', "its format is 'essent-results/9', expected 'essent-results/1'"),
        (b'{"format": "essent-results/1", "results": [{}]}', "Not a result of essent"),
        (b'{"format": "essent-leaderboard/1"}', "is not a leaderboard: KeyError: 'criterion'"),
        (b'{"format": "essent-leaderboard/1", "criterion": "c", "trials": 3}', "is not a leaderboard"),
        (b'TRIAL {"recipe": "mean", "scores": {}}', "no score by 'c'"),
        (b'TRIAL {"recipe": "maen", "scores": {"c": 1}}', "mean"),
        (b'TRIAL {"recipe": "cls", "scores": {"c": ""}}', "'' is no number"),
    ],
)
def test_files_that_are_no_results(tmp_path: Path, content: bytes | None, message: str) -> None:
    path, output = tmp_path / "r.json", tmp_path / "out.html"
    if content is not None:
        start, sign, trial = content.partition(b"TRIAL ")
        leaderboard = b'{"format": "essent-leaderboard/1", "criterion": "c", "trials": [' + trial + b"]}"
        path.write_bytes(leaderboard if sign else start)
    assert message in run("evaluate", path, "--report", output, code=2).stderr
    assert not output.exists()


def test_reports_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object) -> str:
        return run("evaluate", *words, code=2).stderr

    path = tmp_path / "r.json"
    assert "Give a model" in refuse("--report", tmp_path / "o.html")
    assert "add --report FILE" in refuse(path, "-m", "nowhere")
    assert "is none. Known: .html" in refuse(path, "--report", tmp_path / "out")
    path.write_text('{"format": "essent-results/1", "results": []}', "utf-8")
    assert "Give a model" in refuse(path, "--report", tmp_path / "o.html", "-r", "mean")
    assert "at least one result" in refuse(path, "--report", tmp_path / "o.html")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "essent[report]" in refuse(path, "--report", tmp_path / "o.html")
