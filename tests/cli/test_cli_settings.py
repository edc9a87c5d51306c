"""Options out of settings: a command has every field with its type, default and help, and passes its value on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Any

import pytest
import typer
from cli_helpers import Run, commands
from typer.testing import CliRunner

from essent.cli.settings import described, with_help, with_options
from essent.lab.pretrain import Pretraining
from essent.lab.pretrain.settings import PRECISIONS
from essent.selection import Settings as Search
from essent.static import Choice, TableSettings
from essent.train import OBJECTIVES, Settings, projection_heads
from essent.train.settings import PRECISIONS as TRAINED_IN


def options_of(path: str) -> dict[str, Any]:
    return {parameter.name: parameter for parameter in dict(commands())[path].params}


def test_every_setting_of_pretraining_is_an_option() -> None:
    options, helps = options_of("essent pretrain"), described(Pretraining)
    assert list(helps) == [field.name for field in fields(Pretraining)]
    for field in fields(Pretraining):
        assert options[field.name].default == field.default
        assert options[field.name].help == helps[field.name]


@pytest.mark.parametrize("settings", [Choice, TableSettings])
def test_every_setting_of_a_static_encoder_is_an_option(settings: type) -> None:
    options, helps = options_of("essent distill"), described(settings)
    assert list(helps) == [field.name for field in fields(settings)]
    for field in fields(settings):
        assert options[field.name].default == field.default
        assert options[field.name].help == helps[field.name]


@pytest.mark.parametrize("path", ["essent search", "essent search-templates"])
def test_searches_have_the_defaults_of_their_settings(path: str) -> None:
    options = options_of(path)
    for name in ("top", "memory", "seed", "batch_size"):
        assert options[name].default == getattr(Search(), name)


def test_every_setting_of_training_is_an_option_that_a_preset_decides() -> None:
    options, helps = options_of("essent train"), described(Settings)
    for name in {field.name for field in fields(Settings)} - {"templates", "recipe"}:
        assert not options[name].default
        assert options[name].help == helps[name]
    assert helps["temperature"] == "τ of the loss."


@pytest.mark.parametrize(
    ("path", "option", "names"),
    [
        ("essent train", "objective", OBJECTIVES),
        ("essent train", "projection_head", projection_heads),
        ("essent train", "precision", TRAINED_IN),
        ("essent pretrain", "precision", PRECISIONS),
    ],
)
def test_help_lists_every_name(path: str, option: str, names: Iterable[str]) -> None:
    help_ = options_of(path)[option].help
    assert [name for name in names if name not in help_] == []


@dataclass(frozen=True)
class Toy:
    """A run.

    Attributes:
        share: of `it`, in
            two lines.
        count: how many.
        whole: all of it.
        by_hand: elsewhere.
    """

    share: float = 0.5
    count: int | None = None
    whole: bool = False
    by_hand: str = "x"


@pytest.mark.parametrize(
    ("preset", "given", "expected"),
    [
        (False, {}, {"share": 0.5, "count": None, "whole": False}),
        (False, {"share": 0.0, "whole": True}, {"share": 0.0, "count": None, "whole": True}),
        (True, {}, {}),
        (True, {"share": 0.0, "count": 0}, {"share": 0.0, "count": 0}),
    ],
)
def test_values_of_a_command(preset: bool, given: dict[str, Any], expected: dict[str, Any]) -> None:
    got: dict[str, Any] = {}

    @with_options(Toy, {}, by_hand=["by_hand"], preset=preset)
    def command(output: str, *, settings: Any, by_hand: str = "y") -> None:
        got.update(settings if preset else {name: getattr(settings, name) for name in expected})

    app = typer.Typer()
    app.command()(command)
    words = [
        word for name, value in given.items() for word in ([f"--{name}"] + ([] if value is True else [str(value)]))
    ]
    assert CliRunner().invoke(app, ["out", *words]).exit_code == 0
    assert got == expected
    assert "Of it, in two lines." in CliRunner().invoke(app, ["--help"]).stdout


def test_a_wrong_value_names_the_setting(run: Run, tmp_path: Any) -> None:
    (tmp_path / "t.txt").write_text("a\nb\n", "utf-8")
    arguments = ("pretrain", "-t", tmp_path / "t.txt", "-o", tmp_path / "m", "--config", "tiny", "--max-steps", 1)
    error = run(*arguments, "--mask-probability", 0, code=2).stderr
    assert error == "Error: mask_probability=0.0; it must be a number between 0 and 1.\n"


def test_every_option_and_argument_has_help() -> None:
    lacking = [
        (path, parameter.name) for path, command in commands() for parameter in command.params if not parameter.help
    ]
    assert lacking == []


Name = Annotated[str | None, typer.Option("--name", "-n", metavar="WORD")]


def test_help_from_the_docstring_of_a_command() -> None:
    @with_help({"Panel": "name"})
    def command(name: Name = None, twice: bool = False) -> None:
        """Say a name.

        Args:
            name: the name
                of somebody.
            twice: say it `twice`.
        """
        typer.echo(f"{name} {twice}")

    app = typer.Typer()
    app.command()(command)
    assert CliRunner().invoke(app, ["-n", "Ann", "--twice"]).stdout == "Ann True\n"
    shown = CliRunner().invoke(app, ["--help"]).stdout
    for text in ("Panel", "WORD", "The name of somebody.", "Say it twice."):
        assert text in shown
    assert "no-twice" not in shown
    with pytest.raises(ValueError, match="nmae"):
        with_help({"Panel": "nmae"})(command)
