"""What goes to standard output and standard error: `--json -` alone in the one, `--verbose` in the other."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from cli_helpers import Run

from essent import demo
from essent.tasks import load_results


@pytest.mark.parametrize(
    ("line", "key", "table"),
    [
        ("evaluate -m MODEL -r mean -d PAIRS", "results", "my-pairs"),
        ("search -m MODEL -d PAIRS -s layers", "trials", "spearman"),
        ("search-templates -m MODEL -d PAIRS --grammar GRAMMAR", "template", "Best template: "),
        ("heros evaluate -m MODEL -d HEROS -q", "results", "In words:"),
        ("explain mask -m MODEL dogs", "rows", "dogs"),
        ("recipes", "recipes", "Published recipes"),
    ],
)
def test_json_on_standard_output(
    run: Run, tiny: str, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, key: str, table: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grammar.yaml").write_text("template: '{text} {relation} [MASK] .'\nrelation: [is, means]\n", "utf-8")
    names = {"MODEL": tiny, "PAIRS": pairs, "GRAMMAR": "grammar.yaml", "HEROS": demo.minimal_pairs_path()}
    done = run(*(names.get(word, word) for word in line.split()), "--json", "-")
    assert key in json.loads(done.stdout)
    assert table in done.stderr
    assert not Path("-").exists()


def test_results_on_standard_output_are_those_of_the_file(run: Run, tiny: str, pairs: Path, tmp_path: Path) -> None:
    printed = run("evaluate", "-m", tiny, "-r", "mean", "-d", pairs, "--json", "-", "-q").stdout
    (tmp_path / "printed.json").write_text(printed, "utf-8")
    run("evaluate", "-m", tiny, "-r", "mean", "-d", pairs, "--json", tmp_path / "file.json", "-q")
    of_both = [[r.metrics for r in load_results(tmp_path / name)] for name in ("printed.json", "file.json")]
    assert of_both[0] == of_both[1]


@pytest.mark.parametrize("verbose", [True, False])
def test_verbose_shows_what_libraries_report(
    run: Run, tiny: str, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verbose: bool
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    level = logging.root.level
    logging.root.setLevel(logging.WARNING)
    options = ["--verbose"] if verbose else []
    done = run("encode", "-m", tiny, "-r", "mean", "-t", lines, "-o", tmp_path / "v.npy", *options)
    logging.root.setLevel(level)
    assert ("sentence_transformers.base.model: No device provided" in done.stderr) is verbose
