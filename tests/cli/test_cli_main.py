"""The command line as a whole: help without torch, errors in one line, versions, the list of recipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from cli_helpers import Run, commands

from essent import NAMED, TEMPLATES, Recipe, __version__, selection
from essent.cli import app
from essent.cli.main import _listed
from essent.cli.options import SPACES
from essent.cli.parts import in_source, parts, registered, shaping_steps
from essent.shaping import Centre, shapers
from essent.types import EssentError

COMMANDS = ("recipes", "encode", "evaluate", "save", "verify", "demo", "explain", "heros")
HEAVY = ("torch", "transformers", "sklearn", "scipy", "numpy", "pandas")


@pytest.mark.parametrize("command", COMMANDS)
def test_help(run: Run, command: str) -> None:
    assert "Usage: essent" in run(command, "--help").stdout
    assert f"│ {command} " in run("--help").stdout


def imported(lines: list[list[str]], modules: Iterable[str]) -> list[str]:
    """Which of some modules a process has imported that ran these commands."""
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from essent.cli import app\n"
        f"for line in {lines!r}:\n"
        "    assert CliRunner().invoke(app, line).exit_code == 0, line\n"
        f"print(*(name for name in {[*modules]!r} if name in sys.modules))\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_help_imports_no_heavy_library() -> None:
    assert imported([["--help"], *([*path.split()[1:], "--help"] for path, _ in commands())], HEAVY) == []


def test_a_command_imports_no_other_command(run: Run) -> None:
    modules = [f"essent.cli.{name}" for name in ("verify", "train", "search", "heros", "serve")]
    assert imported([["verify", "--help"]], modules) == ["essent.cli.verify"]
    assert "Did you mean 'search', 'serve'?" in run("serch", code=2).stderr


def test_version(run: Run) -> None:
    assert __version__ in run("--version").stdout


@pytest.mark.slow  # a process of its own, which imports everything
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
    listed = json.loads(run("recipes", "--json", "-").stdout)
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
            {
                k: v
                for k, v in json.loads(run("recipes", text, "--json", "-").stdout).items()
                if k not in ("text", "digest")
            }
        )
        == recipe
    )


def test_one_recipe_with_an_argument(run: Run) -> None:
    assert "ditto:HEAD" in run("recipes", "ditto").stdout
    assert "Did you mean" in run("recipes", "dito:1-1", code=2).stderr


# -- one vocabulary ----------------------------------------------------------------------------------------------------


def options() -> dict[str, set[tuple[str, ...]]]:
    """Every long option of every command, with the spellings that it has there."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for _, command in commands():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                found.setdefault(max(parameter.opts, key=len), set()).add(tuple(sorted(parameter.opts)))
    return found


def test_an_option_has_the_same_letter_in_every_command() -> None:
    assert {name for name, spellings in options().items() if len(spellings) > 1} == set()


def test_a_letter_is_one_option() -> None:
    letters: dict[str, set[str]] = {}
    for name, (spelling, *_) in options().items():
        for letter in {*spelling} - {name}:
            letters.setdefault(letter, set()).add(name)
    assert {letter: names for letter, names in letters.items() if len(names) > 1} == {}


def test_an_option_takes_the_same_kind_of_value_in_every_command() -> None:
    """Apart from one and several, a file and a folder to write, and which of the known names a command takes."""
    kinds: dict[str, set[str]] = {}
    for _, command in commands():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                kind = "flag" if parameter.is_flag else parameter.metavar or "value"
                kinds.setdefault(max(parameter.opts, key=len), set()).add(kind)
    one_of = {name: kind for name, kind in kinds.items() if len(kind) > 1}
    assert one_of == {
        "--model": {"NAME|DIR", "NAMES|DIRS", "[ROLE=]NAMES|DIRS"},
        "--recipe": {"RECIPE", "RECIPES"},
        "--column": {"NAME", "NAMES"},
        "--texts": {"FILES|-", "FILES|DIRS"},
        "--output": {"FILE", "DIR"},
        "--data": {"TASKS|FILES", "FILE|hub|hub:NAME"},
        "--precision": {
            "auto|float32|bfloat16",
            "float32|bfloat16",
            "float32|bfloat16|float16",
            "float32|bfloat16|int8",
        },
        "--format": {"openvino|onnx", "parquet|lance"},
    }


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("encode -r static-", ["static-remove-biases", "static-ditto:"]),
        ("evaluate --recipe mean,last-d", ["mean,last-ditto:"]),
        ("search --space h", ["heads"]),
        ("search -s ", ["heads", "layers", "weights", "shaping", "full"]),
    ],
)
def test_recipes_and_spaces_are_completed(line: str, completions: list[str]) -> None:
    words = ["essent", *line.split(" ")]
    settings = {"_ESSENT_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    code = "from essent.cli import app; app(prog_name='essent')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **settings})
    assert done.stdout.split() == completions, done.stderr


def test_spaces_are_those_of_the_search() -> None:
    assert set(SPACES) == set(selection.SPACES)


@pytest.mark.parametrize("width", [80, 100, 120, 150])
def test_no_word_of_the_lists_is_broken(run: Run, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = set(run("recipes").stdout.split())
    described = [text for members in parts().values() for part in members.values() for text in part]
    published = [text for row in NAMED.values() for text in (row.form, row.about, row.paper)]
    words = {word for text in (*described, *published) for word in text.split()}
    assert {word for word in words if not any(word in one for one in shown)} == set()


def test_parts_are_described_as_they_are_registered() -> None:
    assert in_source("essent.shaping") == registered(shapers)
    assert list(in_source("essent.shaping")) == list(shapers)


def test_steps_of_other_packages_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Centre):
        """Mine, first."""

        def __init__(self, share: float = 0.5) -> None:
            self.share = share

    point = SimpleNamespace(name="mine", load=lambda: Mine)
    monkeypatch.setattr("essent.cli.parts.offered", lambda group: [point] if group == "essent.shapers" else [])
    monkeypatch.setitem(shapers._parts, "mine", Mine)
    assert shaping_steps() == {**in_source("essent.shaping"), "mine": ("share=0.5", "Mine, first.")}


def test_the_list_of_commands_has_the_help_of_each_and_the_commands_still_run(capsys: Any) -> None:
    program: Any = typer.main.get_command(app)
    program.main(["--help"], standalone_mode=False)
    assert {name: _listed(name).help for name in program.commands} == {
        name: command.help for name, command in program.commands.items()
    }
    capsys.readouterr()
    program.main(["recipes", "mean"], standalone_mode=False)
    assert "mean" in capsys.readouterr().out


def test_the_list_of_recipes_imports_no_heavy_library() -> None:
    assert imported([["recipes"], ["recipes", "--json", "-"]], HEAVY) == []
