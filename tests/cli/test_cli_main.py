"""The command line as a whole: help, options, errors in one line, standard output and standard error."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import Argument

from command_line import PROGRAM, commands, environment, run
from essent import __version__
from essent.cli.app import app
from essent.errors import EssentError

HEAVY = ("torch", "transformers", "sklearn", "scipy", "numpy", "pandas")
LIGHT = ("--help", "--version", "recipes", "recipes --json -", "recipes mean")


def options() -> Iterator[tuple[str, Argument]]:
    """Every option and argument, with the words of its command."""
    for path, command in commands():
        assembled = command.assemble_argument_collection(default_parameter=app.default_parameter, parse_docstring=True)
        yield from ((path, argument) for argument in assembled if argument.name != "*")  # a class of options


# -- help --------------------------------------------------------------------------------------------------------------


def test_light_commands_import_no_heavy_library() -> None:
    code = (
        "import json, sys\n"
        "from essent.cli import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    assert main(words) == 0, words\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    lines = [line.split() for line in (*LIGHT, *(f"{path} --help".removeprefix("essent ") for path, _ in commands()))]
    done = subprocess.run([sys.executable, "-c", code, json.dumps(lines)], capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[]"), done.stderr


def test_help_and_version() -> None:
    listed = run("--help").stdout
    assert all(path.split()[1] in listed for path, _ in commands())
    help_text = run("encode -o a -o b --help").stdout
    assert help_text.startswith("Usage: essent encode --model STR --output PATH")
    assert "cut -f2 table.tsv | essent encode" in " ".join(help_text.split())
    assert run("--version").stdout == f"essent {__version__}\n"


def test_every_command_and_option_has_help() -> None:
    assert [path for path, command in commands() if not command.help] == []
    assert [(path, argument.name) for path, argument in options() if not argument.parameter.help] == []


def test_an_option_has_the_same_letter_everywhere() -> None:
    spellings = {argument.names for _, argument in options() if argument.name.startswith("--")}
    assert len({name for name, *_ in spellings}) == len(spellings)
    letters = [letter for _, *letters in spellings for letter in letters]
    assert len(set(letters)) == len(letters)  # a letter is one option


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_system_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "secret.txt")

    monkeypatch.setattr("essent.cli.recipes._show_all", fail)
    assert run("recipes", code=2).stderr == "Error: secret.txt: Permission denied.\n"


def test_debug_shows_tracebacks_and_library_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESSENT_DEBUG", "1")
    with pytest.raises(EssentError, match="maen"):
        run("recipes maen")
    monkeypatch.delenv("ESSENT_DEBUG")
    level = logging.root.level
    for option in ("", "--debug"):
        monkeypatch.setattr(logging.root, "handlers", [])
        logging.root.setLevel(logging.WARNING)
        log = run(f"{option} encode texts.txt -m tiny -o v.npy --force").stderr
        assert ("sentence_transformers.base.model: No device provided" in log) is bool(option)
    logging.root.setLevel(level)


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "key", "table"),
    [
        ("evaluate -m tiny -r mean -d my-pairs.jsonl", "results", "my-pairs"),
        ("search -m tiny -d my-pairs.jsonl -s layers", "trials", "spearman"),
        ("lab templates -m tiny -d my-pairs.jsonl --grammar grammar.yaml", "template", "Best template: "),
        ("lab minimal-pairs evaluate -m tiny -d few.jsonl -q", "results", "Comparisons:"),
        ("lab explain mask -m tiny dogs", "rows", "dogs"),
        ("recipes", "recipes", "Published recipes"),
    ],
)
def test_json_on_standard_output(line: str, key: str, table: str) -> None:
    Path("grammar.yaml").write_text("template: '{text} {relation} [MASK] .'\nrelation: [is, means]\n", "utf-8")
    done = run(f"{line} --json -")
    assert key in json.loads(done.stdout)
    assert table in done.stderr
    assert not Path("-").exists()


def test_broken_pipe() -> None:
    command = [*PROGRAM, "recipes", "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        errors = process.communicate()[1]
    assert b"Traceback" not in errors
    assert b"Exception ignored" not in errors
    assert process.returncode == 1


@pytest.mark.slow  # a process of its own, which imports everything
def test_legacy_output_encodings() -> None:
    """A pipe of Windows: UTF-8, whatever the locale is."""
    legacy = environment(PYTHONUTF8="0", LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="")
    for arguments, expected in (
        (["--help"], "e(s) = g("),
        (["recipes", "ditto:1-10"], "ω"),
        (["recipes", "dito"], "ditto"),
    ):
        done = subprocess.run([*PROGRAM, *arguments], capture_output=True, env=legacy)
        assert b"Traceback" not in done.stderr, done.stderr
        assert expected in (done.stdout + done.stderr).decode("utf-8")
