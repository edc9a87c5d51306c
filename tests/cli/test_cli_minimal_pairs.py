"""`essent lab minimal-pairs evaluate`: table, verdict, JSON and picture agree with the task; what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import run
from essent import Encoder
from essent.tasks.heros import load_heros, verdict
from essent.tasks.sample import sample_minimal_pairs_path

COMMAND = ("lab", "minimal-pairs", "evaluate")


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Six of the demo's originals."""
    path = tmp_path / "few.jsonl"
    path.write_text("".join(sample_minimal_pairs_path().read_text("utf-8").splitlines(keepends=True)[:36]), "utf-8")
    return path


def test_recipes(tiny: str, few: Path, tmp_path: Path) -> None:
    recipes = ("mean", "first-last | zscore", "weights=idf")
    output, picture = tmp_path / "new" / "heros.json", tmp_path / "heros.png"
    completed = run(*COMMAND, "-m", tiny, "-r", *recipes, "-d", few, "--json", output, "--report", picture)
    task = load_heros(few)
    stored = json.loads(output.read_text("utf-8"))["results"]
    assert [row["provenance"]["recipe"] for row in stored] == list(recipes)
    for recipe, row in zip(recipes, stored, strict=True):
        expected = task.run(Encoder(tiny, recipe, device="cpu").fit(task.texts()).encode)
        for subset, scores in expected.subsets.items():
            assert row["subsets"][subset] == pytest.approx(scores, abs=1e-4)
            assert f"{scores['similarity']:.2f}" in completed.stdout
        assert recipe in completed.stdout
        assert verdict(expected)[0] in completed.stdout
        assert row["provenance"]["model"] == tiny
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "Columns read by name, one row a pair" in completed.stderr


def test_single_original_has_no_similarity(tiny: str, tmp_path: Path) -> None:
    """It is counted from the cosine of two different originals: a note says so, and no figure is shown."""
    pairs = tmp_path / "one.jsonl"
    pairs.write_text('{"original": "The cat sat.", "changed": "The cat did not sit.", "subset": "Negation (Main)"}\n')
    completed = run("lab", "minimal-pairs", "evaluate", "-m", tiny, "-r", "mean", "-d", pairs)
    assert "nan" not in completed.stdout
    assert "all pairs have one original. Give pairs of two or more." in " ".join(completed.stderr.split())


def test_models_as_they_are(tiny: str, few: Path, tmp_path: Path) -> None:
    """A plain model, a saved Encoder, and a model with a layer that no recipe describes."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer

    task, saved, dense = load_heros(few), tmp_path / "saved", tmp_path / "dense"
    encoder = Encoder(tiny, "first-last | zscore", device="cpu").fit(task.texts())
    encoder.save(str(saved))
    body = Transformer(tiny)
    trained = SentenceTransformer(modules=[body, Pooling(32, "mean"), Dense(32, 8)], device="cpu")
    trained.save(str(dense))
    output = tmp_path / "heros.json"
    completed = run(*COMMAND, "-m", tiny, saved, dense, "-d", few, "--json", output, "-q")
    assert completed.stderr == ""
    plain = SentenceTransformer(tiny, device="cpu")
    for row, model in zip(json.loads(output.read_text("utf-8"))["results"], (plain, encoder, trained), strict=True):
        expected = task.run(model.encode)
        assert row["metrics"]["similarity"] == pytest.approx(expected.metrics["similarity"], abs=1e-4)
    for name in (saved, dense):
        assert f"{name.parent.name}/{name.name}" in completed.stdout
