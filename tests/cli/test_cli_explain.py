"""`essent lab explain` and `essent lab templates`: files, tables, refusals, resume."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import error, run
from essent.lab.explain.predictions import mask_predictions
from essent.selection.evaluation import evaluate


def test_mask(tiny: str, lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "predictions.json"
    done = run("lab", "explain", "mask", "-m", tiny, "dogs", "a [red] cat", "--top", 3, "--denoised", "--json", out)
    predictions = mask_predictions(tiny, ["dogs", "a [red] cat"], top=3, denoised=True)
    assert json.loads(out.read_text("utf-8")) == json.loads(json.dumps({"model": tiny, **predictions.to_dict()}))
    assert "after template denoising" in done.stdout
    assert "a [red] cat" in done.stdout
    run("lab", "explain", "mask", "-m", tiny, "-t", lines, "--template", "T1")


def test_bias(tiny: str, lines: Path, pairs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bias"
    done = run("lab", "explain", "bias", "-m", tiny, "--texts", lines, "--data", pairs, "-o", folder)
    assert sorted(path.name for path in folder.iterdir()) == ["bias.json", "bias.png", "bias.svg", "bias.txt"]
    values = json.loads((folder / "bias.json").read_text("utf-8"))
    scores = evaluate(tiny, ["static", "mean"], [str(pairs)])
    for row in values["sentences"]:
        assert list(row["spearman"].values()) == [pytest.approx(scores[row["recipe"]][0].main_score)]
    assert "average cosine" in done.stdout
    assert "average cosine" in (folder / "bias.txt").read_text("utf-8")
    assert "not empty" in error("lab", "explain", "bias", "-m", tiny, "-o", folder)
    run("lab", "explain", "bias", "-m", tiny, "-o", folder, "--force", "-q")


def test_generated_templates(tiny: str, pairs: Path, t5: str, tmp_path: Path) -> None:
    words = tmp_path / "words.csv"
    words.write_text("word,definition\nmoon,a ball far from the earth\ndog,it runs and plays\n", "utf-8")
    out, work = tmp_path / "out.json", tmp_path / "work"
    start = ["lab", "templates", "-m", tiny, "-d", pairs, "--method", "generate", "--t5", t5, "--work", work]
    start += ["--longest", 2]
    run(*start, "--definitions", words, "--candidates", 300, "--json", out)
    values = json.loads(out.read_text("utf-8"))
    templates = [row["template"] for row in values["generated"]]
    assert "{text} [MASK]" in templates
    assert values["template"] in templates
    assert {t["recipe"] for t in values["trials"]} >= {"mean"}
    generated = (work / "generated.json").read_text("utf-8")
    run(*start, "--definitions", words, "--candidates", 300, "--json", out, "--force", "-q")
    assert json.loads(out.read_text("utf-8"))["provenance"]["encoded"] == 0
    assert (work / "generated.json").read_text("utf-8") == generated
    assert "another T5 or from other pairs" in error(*start, "--candidates", 300)
