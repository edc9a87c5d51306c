"""`essent lab`: minimal pairs, published tables, masked predictions and biases, templates, pretraining."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoModel, AutoTokenizer

from command_line import error, read_json, run, write_pairs, write_rows
from essent import Encoder
from essent.lab.explain.pair import explain_pair
from essent.lab.explain.predictions import mask_predictions
from essent.lab.templates.search import DEFINITIONS, generate_templates
from essent.tasks.heros import load_heros, verdict
from essent.tasks.result import load_results

# -- minimal pairs -----------------------------------------------------------------------------------------------------


def test_minimal_pairs(tiny: str, few: Path, tmp_path: Path) -> None:
    recipes, task, output = ("mean", "weights=idf"), load_heros(few), tmp_path / "new" / "heros.json"
    command = ("lab", "minimal-pairs", "evaluate", "-m", tiny, "-d", few)
    completed = run(*command, "-r", *recipes, "--json", output)
    for recipe, row in zip(recipes, load_results(output), strict=True):
        assert (row.provenance["model"], row.provenance["recipe"]) == (tiny, recipe)
        expected = task.run(Encoder(tiny, recipe, device="cpu").fit(task.texts()).encode)
        assert row.metrics["similarity"] == pytest.approx(expected.metrics["similarity"], abs=1e-4)
        scores = (f"{similarity:.2f}" for similarity in expected.metrics["similarity"].values())
        for text in (recipe, verdict(expected)[0], *scores):
            assert text in completed.stdout
    assert "by name, one row per pair" in completed.stderr


def test_single_original_has_cosines(tiny: str, tmp_path: Path) -> None:
    """A similarity needs the cosine of two different originals: a note says so, and the cosine is shown."""
    row = {"original": "The cat sat.", "converted": "The cat did not sit.", "subset": "Negation (Main)"}
    data, output, page = write_rows(tmp_path / "one.jsonl", [row]), tmp_path / "heros.json", tmp_path / "heros.html"
    command = ("lab", "minimal-pairs", "evaluate", "-m", tiny, "-d", data)
    completed = run(*command, "--json", output, "--report", page)
    cosine = load_results(output)[0].subsets["Negation (Main)"]["cosine"]
    assert f"{cosine:.2f}" in completed.stdout
    assert "nan" not in completed.stdout
    assert "mean cosine of different originals." in " ".join(completed.stderr.split())
    assert "Cosines" in page.read_text()


# -- reproduce ---------------------------------------------------------------------------------------------------------


def test_a_table(tiny: str, tmp_path: Path) -> None:
    for name in ("sts12", "sts13"):
        write_pairs(tmp_path / "sts" / f"{name}.jsonl")
    options = ("-m", tiny, "--data-folder", tmp_path, "--only-rows")
    rows = ("BERT static*", "BERT last avg.", "BERT-whitening")
    table = run("lab", "reproduce", "ditto-6", *options, *rows, "--only-columns", "STS12")
    assert "STS12" in table.stdout
    assert "SICK-R" not in table.stdout
    assert "42.38" in table.stdout
    assert "not on this model" in table.stderr
    table = run("lab", "reproduce", "ditto-1", *options, "BERT static avg.", "--only-tasks", "sts12", "sts13")
    assert " of 7" in table.stdout
    assert "Not run" not in table.stderr
    tables = run("lab", "reproduce").stdout
    assert "ditto-6" in tables
    assert "heros-1" in tables


# -- explain and templates ---------------------------------------------------------------------------------------------


def test_explain_a_pair(tiny: str, tmp_path: Path) -> None:
    picture, words = tmp_path / "pair.png", ("The cat sat.", "The dog [sat].")
    done = run("lab", "explain", *words, "-m", tiny, "-r", "mean", "-o", picture)
    pair = explain_pair(tiny, *words, "mean", device="cpu")
    assert done.stdout.startswith(f"cosine {pair.cosine:.2f}\n")
    assert all(token in done.stdout for tokens in pair.tokens for token, _ in tokens)
    assert all(note in done.stderr for note in pair.notes)
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_mask(tiny: str, tmp_path: Path) -> None:
    out, texts = tmp_path / "predictions.json", ["dogs", "a [red] cat"]
    printed = run("lab", "explain", "mask", "-m", tiny, *texts, "--top", 3, "--denoised", "--json", out).stdout
    predictions = mask_predictions(tiny, texts, top=3, denoised=True)
    assert read_json(out) == json.loads(json.dumps({"model": tiny, **predictions.to_dict()}))
    assert "after template denoising" in printed
    assert "a [red] cat" in printed


def test_bias(tiny: str, lines: Path, tmp_path: Path) -> None:
    picture = tmp_path / "bias.svg"
    printed = run("lab", "explain", "bias", "-m", tiny, "--texts", lines, "-o", picture).stdout
    assert "<svg" in picture.read_text("utf-8")
    assert "average cosine" in printed
    assert "input word embeddings" in printed


def test_generated_templates(tiny: str, pairs: Path, t5: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    # with more beams than tokens the empty filling is always found, however seldom a random T5 writes a sentinel
    monkeypatch.setitem(generate_templates.__kwdefaults__, "longest", 2)
    monkeypatch.setattr(generate_templates, "__defaults__", (DEFINITIONS[:2],))
    run("lab", "templates", "-m", tiny, "-d", pairs, "--t5", t5, "--candidates", 300, "--json", out)
    values = read_json(out)
    templates = [row["template"] for row in values["generated"]]
    likelihoods = [row["log_likelihood"] for row in values["generated"]]
    assert "{text} [MASK]" in templates
    assert len(set(templates)) == len(templates) <= 300
    assert likelihoods == sorted(likelihoods, reverse=True)
    assert values["template"] in templates
    assert "mean" in {trial["recipe"] for trial in values["trials"]}


# -- pretrain ----------------------------------------------------------------------------------------------------------


def test_pretrain(many: Path, lines: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tmp_path / "encoder"
    for part in (AutoModel, AutoTokenizer):
        part.from_pretrained(tiny).save_pretrained(encoder)
    small = ("--max-steps", 1, "--batch-size", 4, "--max-seq-length", 16, "--device", "cpu")
    command = ("lab", "pretrain", "-m", encoder, *small, "-t", many, lines, "-o")
    completed = run(*command, tmp_path / "model")
    assert completed.stdout == ""
    assert "no weights for its prediction head (cls.predictions.bias" in completed.stderr
    assert "Step 1 of 1: held-out loss" in completed.stderr
    texts = read_json(tmp_path / "model" / "training.json")["texts"]
    assert texts["train"] + texts["held_out"] == 63
    assert "already contains a model" in error(*command, tmp_path / "model")
    monkeypatch.setenv("RANK", "1")  # a second process of torchrun says nothing
    assert run(*command, tmp_path / "second").stderr == ""
