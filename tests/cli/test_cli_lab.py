"""`essent lab`: minimal pairs, published tables, masked predictions and biases, templates, pretraining."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import error, read_json, run, write_pairs, write_rows
from essent import Encoder
from essent.lab.explain.pair import explain_pair
from essent.lab.explain.predictions import mask_predictions
from essent.lab.templates.search import DEFINITIONS, generate_templates
from essent.tasks.heros import load_heros, verdict
from essent.tasks.result import load_results

# -- minimal pairs -----------------------------------------------------------------------------------------------------


COMMAND = ("lab", "minimal-pairs", "evaluate")


def test_recipes(tiny: str, few: Path, tmp_path: Path) -> None:
    recipes = ("mean", "weights=idf")
    output, picture = tmp_path / "new" / "heros.json", tmp_path / "heros.png"
    completed = run(*COMMAND, "-m", tiny, "-r", *recipes, "-d", few, "--json", output, "--report", picture)
    task = load_heros(few)
    stored = load_results(output)
    assert [(row.provenance["model"], row.provenance["recipe"]) for row in stored] == [(tiny, name) for name in recipes]
    for recipe, row in zip(recipes, stored, strict=True):
        expected = task.run(Encoder(tiny, recipe, device="cpu").fit(task.texts()).encode)
        assert row.metrics["similarity"] == pytest.approx(expected.metrics["similarity"], abs=1e-4)
        scores = (f"{similarity:.2f}" for similarity in expected.metrics["similarity"].values())
        for text in (recipe, verdict(expected)[0], *scores):
            assert text in completed.stdout
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "by name, one row per pair" in completed.stderr


def test_single_original_has_cosines(tiny: str, tmp_path: Path) -> None:
    """A similarity needs the cosine of two different originals: a note says so, and the cosine is shown."""
    row = {"original": "The cat sat.", "converted": "The cat did not sit.", "subset": "Negation (Main)"}
    output, page = tmp_path / "heros.json", tmp_path / "heros.html"
    data = write_rows(tmp_path / "one.jsonl", [row])
    completed = run(*COMMAND, "-m", tiny, "-r", "mean", "-d", data, "--json", output, "--report", page)
    cosine = load_results(output)[0].subsets["Negation (Main)"]["cosine"]
    assert f"{cosine:.2f}" in completed.stdout
    assert "nan" not in completed.stdout
    assert "mean cosine of different originals." in " ".join(completed.stderr.split())
    assert "Cosines" in page.read_text()


# -- reproduce ---------------------------------------------------------------------------------------------------------


def test_a_table(bert: Path, tmp_path: Path) -> None:
    for name in ("sts12", "sts13"):
        write_pairs(tmp_path / "sts" / f"{name}.jsonl")
    result = run(
        "lab", "reproduce", "ditto-6", "-m", str(bert), "--data-folder", str(tmp_path), "--only-columns", "STS12",
        "--only-rows", "BERT static*", "BERT last avg.", "BERT-whitening",
    )  # fmt: skip
    assert "STS12" in result.stdout
    assert "SICK-R" not in result.stdout
    assert "42.38" in result.stdout
    assert "not on this model" in result.stderr
    chosen = ("--only-rows", "BERT static avg.", "--only-tasks", "sts12", "sts13")
    result = run("lab", "reproduce", "ditto-1", "-m", bert, "--data-folder", tmp_path, *chosen)
    assert " of 7" in result.stdout
    assert "Not run" not in result.stderr
    assert all(name in run("lab", "reproduce").stdout for name in ("ditto-6", "heros-1"))


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
    out = tmp_path / "predictions.json"
    done = run("lab", "explain", "mask", "-m", tiny, "dogs", "a [red] cat", "--top", 3, "--denoised", "--json", out)
    predictions = mask_predictions(tiny, ["dogs", "a [red] cat"], top=3, denoised=True)
    assert read_json(out) == json.loads(json.dumps({"model": tiny, **predictions.to_dict()}))
    assert "after template denoising" in done.stdout
    assert "a [red] cat" in done.stdout


def test_bias(tiny: str, lines: Path, tmp_path: Path) -> None:
    done = run("lab", "explain", "bias", "-m", tiny, "--texts", lines, "-o", tmp_path / "bias.png")
    assert (tmp_path / "bias.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "average cosine" in done.stdout
    assert "input word embeddings" in done.stdout


def test_generated_templates(tiny: str, pairs: Path, t5: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    # with more beams than tokens the empty filling is always found, however seldom a random T5 writes a sentinel
    defaults = generate_templates.__kwdefaults__
    monkeypatch.setattr(generate_templates, "__kwdefaults__", {**defaults, "longest": 2})
    monkeypatch.setattr(generate_templates, "__defaults__", (DEFINITIONS[:2],))
    run("lab", "templates", "-m", tiny, "-d", pairs, "--t5", t5, "--candidates", 300, "--json", out)
    values = read_json(out)
    templates, likelihoods = zip(
        *((row["template"], row["log_likelihood"]) for row in values["generated"]), strict=True
    )
    assert "{text} [MASK]" in templates
    assert len(set(templates)) == len(templates) <= 300
    assert list(likelihoods) == sorted(likelihoods, reverse=True)
    assert values["template"] in templates
    assert {t["recipe"] for t in values["trials"]} >= {"mean"}


# -- pretrain ----------------------------------------------------------------------------------------------------------


SMALL = ("--max-steps", 1, "--batch-size", 4, "--max-seq-length", 16, "--device", "cpu")


def test_pretrain(many: Path, lines: Path, tiny: str, tmp_path: Path) -> None:
    command = ("lab", "pretrain", "-m", tiny, "-o", tmp_path / "model", *SMALL, "-t", many)
    completed = run(*command, lines)
    assert completed.stdout == ""
    assert "Step 1 of 1: held-out loss" in completed.stderr
    texts = read_json(tmp_path / "model" / "training.json")["texts"]
    assert texts["train"] + texts["held_out"] == 63
    assert "already contains a model" in error(*command)


@pytest.mark.slow
def test_missing_head_is_reported(many: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModel, AutoTokenizer

    for part in (AutoModel, AutoTokenizer):
        part.from_pretrained(tiny).save_pretrained(tmp_path / "encoder")
    command = ("lab", "pretrain", "-t", many, "-m", tmp_path / "encoder", *SMALL)
    assert "no weights for its prediction head (cls.predictions.bias" in run(*command, "-o", tmp_path / "a").stderr
    monkeypatch.setenv("RANK", "1")  # a second process of torchrun says nothing
    assert run(*command, "-o", tmp_path / "b").stderr == ""
