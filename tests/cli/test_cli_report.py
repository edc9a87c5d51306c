"""`essent report`: what the other commands write goes in, one file comes out; wrong input leaves none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli_helpers import Run

from essent.demo import minimal_pairs_path


@pytest.fixture
def files(run: Run, tiny: str, pairs: Path, tmp_path: Path) -> list[Path]:
    """Real results of a tiny model: scores of pairs, minimal pairs and a search."""
    few = tmp_path / "few.jsonl"
    few.write_text("".join(minimal_pairs_path().read_text("utf-8").splitlines(keepends=True)[:36]), "utf-8")
    names = [tmp_path / f"{name}.json" for name in ("pairs", "heros", "search")]
    run("evaluate", "-m", tiny, "-d", pairs, "-r", "mean", "-r", "first-last | zscore", "--json", names[0])
    run("heros", "evaluate", "-m", tiny, "-r", "mean", "-d", few, "--json", names[1])
    run("search", "-m", tiny, "--data", pairs, "--space", "layers", "--json", names[2])
    return names


def test_results_and_a_leaderboard_together(run: Run, files: list[Path], tmp_path: Path) -> None:
    scores = [result["metrics"]["spearman"]["all"] for result in json.loads(files[0].read_text("utf-8"))["results"]]
    best = json.loads(files[2].read_text("utf-8"))["best"]
    for suffix in (".html", ".md", ".png"):
        output = tmp_path / "new" / f"report{suffix}"
        shown = run("report", *files, "-o", output, "--title", "Mine <b>")
        assert f"Wrote {output}" in shown.stderr.replace("\n", "")
        assert not shown.stdout
        if suffix == ".png":
            assert output.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
            continue
        text = output.read_text("utf-8")
        assert all(f"{score:.2f}".replace("-", "−") in text for score in scores)
        assert best in text
        assert "Mine &lt;b&gt;" in text
        assert "Similarity after one small change" in text
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["report.html", "report.md", "report.png"]
    once = run("report", files[0], files[0], "-o", tmp_path / "once.md", "-q")
    assert not once.stderr
    assert "(2)" not in (tmp_path / "once.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Cannot read the results"),
        ("{", "is not a JSON file"),
        ("[]", "neither a file of results nor a leaderboard: its format is None"),
        ('{"format": "essent-results/9"}', "its format is 'essent-results/9', expected 'essent-results/1'"),
        ('{"format": "essent-results/1", "results": [{}]}', "Not a result of essent"),
        ('{"format": "essent-results/1", "results": []}', "at least one result"),
        ('{"format": "essent-leaderboard/1"}', "is not a leaderboard: KeyError: 'criterion'"),
        (
            '{"format": "essent-leaderboard/1", "criterion": "c", "trials": [{"recipe": "mean", "scores": {}}]}',
            "no score by 'c'",
        ),
        (
            '{"format": "essent-leaderboard/1", "criterion": "c", "trials": [{"recipe": "maen", "scores": {"c": 1}}]}',
            "mean",
        ),
        (
            '{"format": "essent-leaderboard/1", "criterion": "c", "trials": [{"recipe": "cls", "scores": {"c": ""}}]}',
            "'' is no number",
        ),
        ('{"format": "essent-leaderboard/1", "criterion": "c", "trials": 3}', "is not a leaderboard"),
    ],
)
def test_wrong_files(run: Run, tmp_path: Path, content: str | None, message: str) -> None:
    path, output = tmp_path / "r.json", tmp_path / "out.html"
    if content is not None:
        path.write_text(content, "utf-8")
    shown = run("report", path, "-o", output, code=2).stderr.replace("\n", " ")
    assert message in shown
    assert "Traceback" not in shown
    assert not output.exists()


def test_wrong_outputs(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    run("report", "-o", tmp_path / "out.html", code=2)  # no files
    run("report", path, code=2)  # no output
    assert "suffix" in run("report", path, "-o", tmp_path / "out.pdf", code=2).stderr
    (tmp_path / "old.html").write_text("mine", "utf-8")
    assert "--force" in run("report", path, "-o", tmp_path / "old.html", code=2).stderr
    assert "Cannot read" in run("report", path, "-o", tmp_path / "old.html", "--force", code=2).stderr
    assert (tmp_path / "old.html").read_text("utf-8") == "mine"


def test_binary_and_nested_files(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    for content in (b"\xff\xfe\x00", b"[" * 100_000):
        path.write_bytes(content)
        assert "is not a JSON file" in run("report", path, "-o", tmp_path / "o.md", code=2).stderr.replace("\n", " ")


def test_a_missing_library(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "essent[report]" in run("report", tmp_path / "r.json", "-o", tmp_path / "o.html", code=2).stderr
