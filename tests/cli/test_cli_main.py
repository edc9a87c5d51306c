"""The command line as a whole: help, options, errors in one line, standard output and standard error."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import Argument

from command_line import PROGRAM, commands, run
from essent import __version__
from essent.cli.app import app
from essent.errors import EssentError
from essent.tasks.sample import sample_minimal_pairs_path

HEAVY = ("torch", "transformers", "sklearn", "scipy", "numpy", "pandas")
LIGHT = [["--help"], ["--version"], ["recipes"], ["recipes", "--json", "-"], ["recipes", "mean"]]


def options() -> Iterator[tuple[str, Argument]]:
    """Every option and argument, with the words of its command."""
    for path, command in commands():
        assembled = command.assemble_argument_collection(default_parameter=app.default_parameter, parse_docstring=True)
        for argument in assembled:
            if argument.name != "*":  # a class of options
                yield path, argument


# -- help --------------------------------------------------------------------------------------------------------------


def test_light_commands_import_no_heavy_library() -> None:
    code = (
        "import json, sys\n"
        "from essent.cli import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    assert main(words) == 0, words\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    lines = [*LIGHT, *([*path.split()[1:], "--help"] for path, _ in commands())]
    done = subprocess.run([sys.executable, "-c", code, json.dumps(lines)], capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[]"), done.stderr


def test_help_and_version() -> None:
    listed = run("--help").stdout
    for path, _ in commands():
        assert path.split()[1] in listed
    help_text = run("encode", "-o", "a", "-o", "b", "--help").stdout
    assert help_text.startswith("Usage: essent encode --model STR --output PATH")
    assert "cut -f2 table.tsv | essent encode" in " ".join(help_text.split())
    assert run("--version").stdout == f"essent {__version__}\n"


def test_every_command_and_option_has_help() -> None:
    assert [path for path, command in commands() if not command.help] == []
    assert [(path, argument.name) for path, argument in options() if not argument.parameter.help] == []


def test_an_option_has_the_same_letter_everywhere() -> None:
    letters: dict[str, set[tuple[str, ...]]] = {}
    for _, argument in options():
        if argument.name.startswith("--"):
            letters.setdefault(argument.name, set()).add(argument.names[1:])
    assert {name: spellings for name, spellings in letters.items() if len(spellings) > 1} == {}
    used = [letter for spellings in letters.values() for names in spellings for letter in names]
    assert len(set(used)) == len(used)  # a letter is one option


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_system_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "secret.txt")

    monkeypatch.setattr("essent.cli.recipes._show_all", fail)
    assert run("recipes", code=2).stderr == "Error: secret.txt: Permission denied.\n"


def test_debug_shows_tracebacks_and_library_logs(
    tiny: str, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESSENT_DEBUG", "1")
    with pytest.raises(EssentError, match="maen"):
        run("recipes", "maen")
    monkeypatch.delenv("ESSENT_DEBUG")
    level = logging.root.level
    for debug in (False, True):
        monkeypatch.setattr(logging.root, "handlers", [])
        logging.root.setLevel(logging.WARNING)
        options = ("-m", tiny, "-r", "mean", "-o", tmp_path / "v.npy", "--force")
        done = run(*["--debug"] * debug, "encode", lines, *options)
        assert ("sentence_transformers.base.model: No device provided" in done.stderr) is debug
    logging.root.setLevel(level)


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "key", "table"),
    [
        ("evaluate -m MODEL -r mean -d PAIRS", "results", "my-pairs"),
        ("search -m MODEL -d PAIRS -s layers", "trials", "spearman"),
        ("lab templates -m MODEL -d PAIRS --grammar GRAMMAR", "template", "Best template: "),
        ("lab minimal-pairs evaluate -m MODEL -d HEROS -q", "results", "Comparisons:"),
        ("lab explain mask -m MODEL dogs", "rows", "dogs"),
        ("recipes", "recipes", "Published recipes"),
    ],
)
def test_json_on_standard_output(
    tiny: str, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, key: str, table: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grammar.yaml").write_text("template: '{text} {relation} [MASK] .'\nrelation: [is, means]\n", "utf-8")
    names = {"MODEL": tiny, "PAIRS": pairs, "GRAMMAR": "grammar.yaml", "HEROS": sample_minimal_pairs_path()}
    done = run(*(names.get(word, word) for word in line.split()), "--json", "-")
    assert key in json.loads(done.stdout)
    assert table in done.stderr
    assert not Path("-").exists()


def test_broken_pipe() -> None:
    with subprocess.Popen(
        [*PROGRAM, "recipes", "--json", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        errors = process.communicate()[1]
    assert b"Traceback" not in errors
    assert b"Exception ignored" not in errors
    assert process.returncode == 1


@pytest.mark.slow  # a process of its own, which imports everything
def test_legacy_output_encodings() -> None:
    """A pipe of Windows: UTF-8, whatever the locale is."""
    names = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONIO", "LC_", "LANG"))}
    environment = {**names, "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    for arguments, expected in (
        (["--help"], "e(s) = g("),
        (["recipes", "ditto:1-10"], "ω"),
        (["recipes", "dito"], "ditto"),
    ):
        done = subprocess.run([*PROGRAM, *arguments], capture_output=True, env=environment)
        assert b"Traceback" not in done.stderr, done.stderr
        assert expected in (done.stdout + done.stderr).decode("utf-8")
