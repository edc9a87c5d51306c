"""What was built goes on: into `essent lab minimal-pairs evaluate`, the report, MTEB, and a data set."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import mteb
import pytest
from heros_sentences import SENTENCES

from command_line import run
from essent import Encoder
from essent.lab.minimal_pairs.build import PairRow, Resources, build, write_rows
from essent.lab.minimal_pairs.check import misspellings
from essent.lab.minimal_pairs.parsing import Parser
from essent.selection.mteb.results import read_mteb_results
from essent.selection.mteb.tasks import to_mteb
from essent.tasks.heros_files import load_heros


@pytest.fixture(scope="module")
def rows(parser: Parser) -> list[PairRow]:
    return build(SENTENCES, Resources(parser, misspellings=misspellings()))[0]


@pytest.fixture
def built(rows: list[PairRow], tmp_path: Path) -> Path:
    write_rows(rows, tmp_path / "built.jsonl")
    return tmp_path / "built.jsonl"


def test_evaluate_and_report(
    built: Path, rows: list[PairRow], folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    scores, report = tmp_path / "scores.json", tmp_path / "report.md"
    run("lab", "minimal-pairs", "evaluate", "-m", folder_of("bert"), "-r", "mean", "--data", built, "--json", scores)
    run("evaluate", scores, "--report", report)
    (told,) = json.loads(scores.read_text("utf-8"))["results"]
    assert {name: one["n"] for name, one in told["subsets"].items()} == Counter(row.subset for row in rows)
    text = report.read_text("utf-8")
    assert "Similarity after one small change" in text
    assert all(f"{value:.2f}" in text for value in told["metrics"]["similarity"].values())


@pytest.mark.filterwarnings("ignore:The fill_missing parameter is deprecated:DeprecationWarning")  # mteb's own
@pytest.mark.filterwarnings("ignore:The `get_sentence_embedding_dimension` method has been renamed:FutureWarning")
def test_a_task_of_mteb(built: Path, folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    encoder, task = Encoder(str(folder_of("bert")), "mean", device="cpu"), load_heros(built)
    cache = mteb.ResultCache(tmp_path / "mteb")
    (found,) = mteb.evaluate(
        encoder, [to_mteb(task)], cache=cache, co2_tracker=False, show_progress_bar=False
    ).task_results
    own = task.run(encoder)
    shares = own.metrics["ranked_above"].values()
    assert found.task_name == "essent.built"
    assert found.get_score() == pytest.approx(1 - sum(shares) / len(shares), abs=1e-6)
    (read,) = read_mteb_results(tmp_path / "mteb")
    assert read.metrics["similarity"] == pytest.approx(own.metrics["similarity"], abs=1e-5)


def test_a_data_set(built: Path, rows: list[PairRow], tmp_path: Path) -> None:
    """`datasets` reads a folder with the file as it reads the hub, where `hf upload` puts it."""
    folder = tmp_path / "my-pairs"
    folder.mkdir()
    (folder / "train.jsonl").write_bytes(built.read_bytes())
    task = load_heros(f"hub:{folder}")
    assert [(pair.original, pair.changed, pair.subset) for pair in task.pairs] == [
        (row.original, row.converted, row.subset) for row in rows
    ]
    assert (task.name, task.source["source"]) == ("my-pairs", f"hub:{folder}")
