"""Options given more than once: in every command collected or refused, never dropped without a word."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from cli_helpers import TEXTS, Run, commands

from essent import Encoder, evaluate
from essent.cli import several
from essent.selection import search
from essent.tasks import PairTask, load_pairs, load_results
from essent.types import InputError
from families import build_family

FREE_TEXT = {("essent train", "template")}  # a comma is a part of what they say


def takes_a_value(parameter: Any) -> bool:
    return parameter.param_type_name == "option" and not parameter.is_flag


OPTIONS = [
    pytest.param(path, command, parameter, id=f"{path} {max(parameter.opts, key=len)}")
    for path, command in commands()
    for parameter in command.params
    if takes_a_value(parameter)
]


def parse(path: str, command: Any, *given: str) -> dict[str, Any]:
    """What a command gets from a line: the given words, and a word for all else that it needs."""
    for parameter in command.params:
        if parameter.required and not any(name in given for name in parameter.opts):
            given = (*given, "x") if parameter.param_type_name == "argument" else (*given, parameter.opts[0], "x")
    with command.make_context(path, list(given)) as context:
        return dict(context.params)


def values_of(path: str, command: Any, parameter: Any) -> list[str]:
    """Two different values that an option accepts: names, numbers, or ways of search-templates."""
    for values in (["1001", "1002"], ["greedy", "generate"]):
        with contextlib.suppress(typer.BadParameter):
            parse(path, command, parameter.opts[0], values[0])
            return values
    raise AssertionError(f"{path}: no value for {parameter.opts}")


@pytest.mark.parametrize(("path", "command", "parameter"), OPTIONS)
def test_an_option_given_twice_counts_twice_or_is_refused(path: str, command: Any, parameter: Any) -> None:
    first, second = values_of(path, command, parameter)
    option, *_, longest = sorted(parameter.opts, key=len) * 2
    line = (option, first, longest, second)  # -m A --model B, too
    if parameter.multiple:
        assert list(map(str, parse(path, command, *line)[parameter.name])) == [first, second]
        return
    with pytest.raises(InputError) as refused:
        parse(path, command, *line)
    assert str(refused.value).startswith(f"{longest} takes one value and was given 2: '{first}', '{second}'.")
    for other in command.params:
        if takes_a_value(other) and other.multiple:
            assert max(other.opts, key=len) in str(refused.value)
    assert parse(path, command, option, first)[parameter.name] is not None


@pytest.mark.parametrize(("path", "command", "parameter"), [p for p in OPTIONS if p.values[2].multiple])
def test_commas_do_what_repeating_does(path: str, command: Any, parameter: Any) -> None:
    found = parse(path, command, parameter.opts[0], "mean, cls")[parameter.name]
    free = (path, parameter.name) in FREE_TEXT
    assert list(map(str, found)) == (["mean, cls"] if free else ["mean", "cls"])
    assert f"Several: {'repeat it.' if free else 'repeat it, or use commas.'}" in parameter.help


def test_flags_and_help_may_be_repeated(run: Run) -> None:
    path, command = next((path, command) for path, command in commands() if path == "essent encode")
    assert parse(path, command, "-q", "--quiet")["quiet"] is True
    assert "Usage" in run("encode", "-o", "a", "-o", "b", "--help").stdout


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (("--ray", "-q"), "auto"),
        (("--ray",), "auto"),
        (("--ray", "head:6379"), "head:6379"),
        (("--ray=local",), "local"),
        (("-q",), None),
        (("--", "--ray"), None),  # the name of a file
    ],
)
def test_a_value_that_may_be_left_out(line: tuple[str, ...], value: str | None) -> None:
    path, command = next((path, command) for path, command in commands() if path == "essent embed")
    with command.make_context(path, ["a.txt", "-m", "x", "-o", "y", *line]) as context:
        assert context.params["ray"] == value


def test_refused_on_the_command_line(run: Run, tmp_path: Path) -> None:
    error = run("search", "-m", "nowhere", "--data", "a.csv", "--space", "heads", "-s", "layers", code=2).stderr
    assert error == (
        "Error: --space takes one value and was given 2: 'heads', 'layers'. Options of essent search that take "
        "several: --data, --weight, --texts, --criterion, --baseline, --test.\n"
    )
    error = run("heros", "check", "x.jsonl", "--quiet", code=2).stderr  # no such file: nothing was refused before
    assert "x.jsonl" in error
    error = run("demo", "-o", "a.png", "-o", "b.png", code=2).stderr
    assert error == "Error: --output takes one value and was given 2: 'a.png', 'b.png'.\n"


# -- where commas stand for themselves ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["mean,cls"], ["mean", "cls"]),
        (["mean | whiten:8 , ditto:1-2 | zscore"], ["mean | whiten:8", "ditto:1-2 | zscore"]),
        (['template="One, {text}, two" weights=mask'], ['template="One, {text}, two" weights=mask']),
        (["template='One, {text}' weights=mask,mean"], ["template='One, {text}' weights=mask", "mean"]),
        (["mean,static | quantile:1000,10000,0,cls"], ["mean", "static | quantile:1000,10000,0", "cls"]),
        (["layers=random:300,seed=7 weights=idf,cls"], ["layers=random:300,seed=7 weights=idf", "cls"]),
        (["mean,clss"], ["mean", "clss"]),  # an error, which names the part
        (["it's"], ["it's"]),
        (["mean,"], ["mean"]),
        ([""], [""]),
    ],
)
def test_recipes_at_commas(given: list[str], expected: list[str]) -> None:
    assert several.recipes(given) == expected


def test_criteria_at_commas() -> None:
    assert several.criteria(["spearman,perturbed:0.3,400,idf:spearman"]) == [
        "spearman",
        "perturbed:0.3,400",
        "idf:spearman",
    ]
    assert several.criteria(["halves", "consensus,halve"]) == ["halves", "consensus", "halve"]


def test_names_with_commas_that_exist_stay_whole(tmp_path: Path) -> None:
    folder, file = tmp_path / "a,b", tmp_path / "c,d.csv"
    folder.mkdir()
    file.touch()
    assert several.files([file, Path("e,f")]) == [file, Path("e"), Path("f")]
    assert several.models([str(folder), f"static={folder}", "x,y", "x"]) == [
        str(folder), f"static={folder}", "x", "y"
    ]  # fmt: skip
    assert several.tasks([str(file), f"classification:{file}", "stsb,sts12"]) == [
        str(file), f"classification:{file}", "stsb", "sts12"
    ]  # fmt: skip
    assert several.tasks(["stsb", "sts7"]) == ["stsb", "sts12", "sts13", "sts14", "sts15", "sts16", "sickr"]
    with pytest.raises(InputError, match="',' holds no value; commas separate several"):
        several.names([","])
    assert several.names(None) is None


# -- what commands make of several values ------------------------------------------------------------------------------


@pytest.fixture
def other(tmp_path: Path) -> str:
    return str(build_family("distilbert", tmp_path / "other"))


@pytest.fixture
def more_pairs(tmp_path: Path) -> Path:
    path = tmp_path / "more.csv"
    rows = [("A red ball.", "The dogs run.", 0.1), ("She drinks tea.", "She drinks coffee.", 0.9), ("A", "B", 0.5)]
    path.write_text("sentence1,sentence2,score\n" + "".join(f"{a},{b},{s}\n" for a, b, s in rows), "utf-8")
    return path


def test_evaluate_several_models(run: Run, tiny: str, other: str, pairs: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    shown = run("evaluate", "-m", tiny, "-m", other, "-r", "mean,cls", "-d", pairs, "--as-is", "--json", output)
    stored = load_results(output)
    assert [(r.provenance["model"], r.provenance["recipe"]) for r in stored] == [
        (model, recipe) for model in (tiny, other) for recipe in ("mean", "cls")
    ]
    for result in stored:
        model, recipe = result.provenance["model"], result.provenance["recipe"]
        assert result.main_score == pytest.approx(evaluate(model, [recipe], [str(pairs)])[recipe][0].main_score)
        row = next(line for line in shown.stdout.splitlines() if f"{Path(model).name} · {recipe} " in line)
        assert f"{result.main_score:.2f}" in row
    assert f"{tiny}:" in shown.stderr
    alone = run("evaluate", "-m", f"{tiny},{tiny}", "-r", "mean", "-d", pairs, "-q").stdout
    assert "·" not in alone


def test_a_wrong_model_among_several_is_refused_before_the_first_runs(run: Run, tiny: str, pairs: Path) -> None:
    result = run("evaluate", "-m", tiny, "-m", "./nowhere", "-r", "mean", "-d", pairs, code=2)
    assert "There is no model folder './nowhere'" in result.stderr
    assert "my-pairs" not in result.stderr


def test_search_on_several_files_and_tested_on_several(
    run: Run, tiny: str, pairs: Path, more_pairs: Path, tmp_path: Path
) -> None:
    output, tasks = tmp_path / "board.json", [load_pairs(pairs), load_pairs(more_pairs)]
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    for path, count in ((one, 4), (two, 5)):
        rows = (f"The {path.stem} dog sees {n} cats.,It saw {n * n} of them.,{n % 3}" for n in range(count))
        path.write_text("\n".join(["sentence1,sentence2,score", *rows]) + "\n", "utf-8")
    shown = run(
        *("search", "-m", tiny, "--data", pairs, "--data", more_pairs, "--space", "layers", "--json", output),
        *("--test", one, "--test", two),
    )
    values = json.loads(output.read_text("utf-8"))
    board = search(tiny, tasks, "layers")
    assert [row["recipe"] for row in values["trials"]] == [str(trial.recipe) for trial in board.trials]
    assert values["provenance"]["data"] == "my-pairs + more"
    assert values["provenance"]["units"] == 7
    assert set(values["trials"][0]["scores"]) == {"mean rank", "my-pairs", "more"}
    assert [check["task"] for check in values["checks"]] == ["one", "two"]
    for name, count in (("one", 4), ("two", 5)):
        assert f"{name}, spearman of {count} pairs" in " ".join(shown.stdout.split())
    assert "mean of the ranks" in shown.stderr
    quiet = run("search", "-m", tiny, "-d", f"{pairs},{more_pairs}", "-s", "layers", "-q", "--weight", "3,1")
    assert "mean of the ranks" not in quiet.stderr
    assert "2 weights" in run("search", "-m", tiny, "-d", pairs, "--weight", "3,1", code=2).stderr
    assert "not x" in run("search", "-m", tiny, "-d", pairs, "--weight", "x", code=2).stderr


def test_joined_pairs_keep_their_tasks(pairs: Path, more_pairs: Path) -> None:
    first, second = load_pairs(pairs), load_pairs(more_pairs)
    joined = PairTask.joined([first, second])
    assert [pair.sentence1 for pair in joined.pairs] == [p.sentence1 for task in (first, second) for p in task.pairs]
    cosines = np.linspace(0, 1, 7)
    result = joined.score(cosines)
    for task, part in ((first, cosines[:4]), (second, cosines[4:])):
        assert result.subsets[task.name]["spearman"] == pytest.approx(task.score(part).main_score)
    assert set(PairTask.joined([first, first]).score([*cosines, 0.5]).subsets) == {"my-pairs (1)", "my-pairs (2)"}


def test_texts_of_several_files_in_their_order(run: Run, tiny: str, lines: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text('{"text": "Two cats."}\n{"text": "One bird."}\n', "utf-8")
    recipe = "mean | zscore"
    encoder = Encoder(tiny, recipe).fit([*TEXTS, "Two cats.", "One bird."])
    fitted = ("--fit", lines, "--fit", more)
    result = run("encode", "-m", tiny, "-r", recipe, "-t", more, "-t", lines, *fitted, "-o", tmp_path / "v.npy")
    wanted = encoder.encode(["Two cats.", "One bird.", *TEXTS])
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), wanted, atol=1e-6)
    assert f"is fitted on {lines}, {more}." in result.stderr
    run("encode", "-m", tiny, "-r", "mean", "-t", more, "-t", "-", "-o", tmp_path / "w.npy", stdin=b"A\nB\n")
    wanted = Encoder(tiny, "mean").encode(["Two cats.", "One bird.", "A", "B"])
    np.testing.assert_allclose(np.load(tmp_path / "w.npy"), wanted, atol=1e-6)
    error = run("encode", "-m", tiny, "-t", "-", "-t", "-", "-o", tmp_path / "x.npy", code=2, stdin=b"A\n").stderr
    assert "Standard input (-) can be read once only." in error
    error = run("encode", "-m", tiny, "-r", "mean", "-r", "cls", "-t", lines, "-o", tmp_path / "x.npy", code=2).stderr
    assert "--recipe takes one value and was given 2: 'mean', 'cls'" in error


def test_training_on_several_files(
    run: Run, tiny: str, lines: Path, pairs: Path, more_pairs: Path, tmp_path: Path
) -> None:
    more = tmp_path / "more.txt"
    more.write_text("Two cats.\nOne bird.\nThree fish.\n", "utf-8")
    output = tmp_path / "model"
    arguments = ("--texts", lines, "--texts", more, "--validate", f"{pairs},{more_pairs}", "-o", output)
    shown = run(
        "train", "-m", tiny, *arguments, "--test", pairs, "--test", more_pairs, "--batch-size", 2, "--max-steps", 1
    )
    assert "1 steps on 6 examples" in shown.stderr  # one of the seven is empty
    assert "my-pairs + more: " in shown.stdout
    assert shown.stdout.count("\nmy-pairs: ") == shown.stdout.count("\nmore: ") == 1


def test_patterns_and_names_repeated(run: Run, tmp_path: Path) -> None:
    error = run("reproduce", "ditto-6", "--only-rows", "nothing", "--only-rows", "nobody", code=2).stderr
    assert "Nothing is called 'nothing,nobody' here" in error
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tb\nOne cat.\tOne dog.\n", "utf-8")
    for order in (("--order", "Original,Synonym,Typo"), ("--order", "Original", "--order", "Synonym,Typo")):
        assert "3" in run("heros", "evaluate", "-m", "nowhere", "-d", path, *order, code=2).stderr
