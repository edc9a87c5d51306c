"""The command line as a whole: help without torch, errors in one line, versions, the list of recipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from cli_helpers import Run

from essent import NAMED, TEMPLATES, Recipe, __version__
from essent.types import EssentError

COMMANDS = ("recipes", "encode", "evaluate", "save", "verify", "demo")


@pytest.mark.parametrize("command", COMMANDS)
def test_help(run: Run, command: str) -> None:
    assert "Usage: essent" in run(command, "--help").stdout
    assert command in run("--help").stdout


def test_help_imports_no_heavy_library() -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from essent.cli import app\n"
        "for name in ([], ['recipes'], ['encode'], ['evaluate'], ['demo']):\n"
        "    assert CliRunner().invoke(app, [*name, '--help']).exit_code == 0\n"
        "print([m for m in ('torch', 'transformers', 'sklearn', 'scipy', 'numpy', 'pandas') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version(run: Run) -> None:
    assert __version__ in run("--version").stdout


@pytest.mark.parametrize(
    "settings",
    [
        {"PYTHONIOENCODING": "cp1252"},
        pytest.param({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}, marks=pytest.mark.slow),
    ],
)
def test_output_of_a_code_page_that_lacks_letters(settings: dict[str, str]) -> None:
    """A pipe of Windows: UTF-8, which essent reads, unless the user has named an encoding."""
    names = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
    code = "import sys; from essent.cli import app; sys.argv[0] = 'essent'; app()"
    for arguments, shown in (["--help"], "e(s) = g("), (["recipes", "ditto:1-10"], "ω"), (["recipes", "dito"], "ditto"):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            env={**names, "PYTHONUTF8": "0", **settings},
        )
        assert b"Traceback" not in done.stderr, done.stderr
        written = (done.stdout + done.stderr).decode(settings.get("PYTHONIOENCODING", "utf-8"))
        assert (shown if "PYTHONIOENCODING" not in settings else shown.replace("ω", "?")) in written


def test_debug_keeps_the_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(run("--debug", "recipes", "maen", code=1).exception, EssentError)
    monkeypatch.setenv("ESSENT_DEBUG", "1")
    assert isinstance(run("recipes", "maen", code=1).exception, EssentError)


def test_system_errors_are_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied", "secret.txt")

    monkeypatch.setattr("essent.cli.recipes._show_all", fail)
    assert run("recipes", code=2).stderr == "Error: secret.txt: Permission denied.\n"


def test_recipes_lists_everything(run: Run) -> None:
    shown = run("recipes").stdout
    for row in NAMED.values():
        assert f"{row.name}:HEAD" in shown if row.argument == "head" else row.name in shown
        assert row.paper in shown
    for text in (*TEMPLATES.values(), "zscore", "idf", "power", "random"):
        assert text in shown


def test_recipes_as_json(run: Run) -> None:
    listed = json.loads(run("recipes", "--json").stdout)
    assert [row["name"] for row in listed["recipes"]] == list(NAMED)
    assert all(Recipe.parse(row["example"]) for row in listed["recipes"])
    assert listed["templates"] == TEMPLATES
    assert listed["shaping"]["abtt"]["arguments"] == "d=2"
    assert all(
        part["about"] for kind in ("weights", "reduce", "shaping", "token tables") for part in listed[kind].values()
    )


@pytest.mark.parametrize(
    "text", ["ditto:1-10 | zscore", "t4-idf-quantile", 'template="[MASK] [red] {text}" weights=mask']
)
def test_one_recipe(run: Run, text: str) -> None:
    recipe = Recipe.parse(text)
    shown = run("recipes", text).stdout
    for part in (str(recipe), recipe.to_json(), recipe.to_yaml().rstrip(), recipe.digest()):
        assert part in shown
    assert (
        Recipe.from_dict(
            {k: v for k, v in json.loads(run("recipes", text, "--json").stdout).items() if k not in ("text", "digest")}
        )
        == recipe
    )


def test_one_recipe_with_an_argument(run: Run) -> None:
    assert "ditto:HEAD" in run("recipes", "ditto").stdout
    assert "Did you mean" in run("recipes", "dito:1-1", code=2).stderr
