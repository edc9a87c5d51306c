"""`essent lab`: minimal pairs, published tables, masked predictions and biases, templates, pretraining."""

import json
from pathlib import Path

import pytest
from transformers import AutoModel, AutoTokenizer

from command_line import read_json, run, write_pairs, write_rows
from essent import Encoder
from essent.lab.explain.pair import explain_pair
from essent.lab.explain.predictions import mask_predictions
from essent.lab.templates.search import DEFINITIONS, generate_templates
from essent.tasks.heros import load_heros, verdict
from essent.tasks.result import load_results


def test_minimal_pairs() -> None:
    recipes, task = ("mean", "weights=idf"), load_heros("few.jsonl")
    completed = run("lab minimal-pairs evaluate -m tiny -d few.jsonl -r mean weights=idf --json new/heros.json")
    for recipe, row in zip(recipes, load_results("new/heros.json"), strict=True):
        assert (row.provenance["model"], row.provenance["recipe"]) == ("tiny", recipe)
        expected = task.run(Encoder("tiny", recipe, device="cpu").fit(task.texts()).encode)
        assert row.metrics["similarity"] == pytest.approx(expected.metrics["similarity"], abs=1e-4)
        scores = (f"{similarity:.2f}" for similarity in expected.metrics["similarity"].values())
        for text in (recipe, verdict(expected)[0], *scores):
            assert text in completed.stdout
    assert "by name, one row per pair" in completed.stderr


def test_single_original_has_cosines() -> None:
    """A similarity needs the cosine of two different originals: a note says so, and the cosine is shown."""
    row = {"original": "The cat sat.", "converted": "The cat did not sit.", "subset": "Negation (Main)"}
    write_rows(Path("single.jsonl"), [row])
    completed = run("lab minimal-pairs evaluate -m tiny -d single.jsonl --json heros.json --report heros.html")
    cosine = load_results("heros.json")[0].subsets["Negation (Main)"]["cosine"]
    assert f"{cosine:.2f}" in completed.stdout
    assert "nan" not in completed.stdout
    assert "mean cosine of different originals." in " ".join(completed.stderr.split())
    assert "Cosines" in Path("heros.html").read_text()


def test_a_table() -> None:
    for name in ("sts12", "sts13"):
        write_pairs(Path("sts", f"{name}.jsonl"))
    command = "lab reproduce -m tiny --data-folder . --only-rows"
    table = run(f"{command} 'BERT static*' 'BERT last avg.' BERT-whitening --only-columns STS12 -- ditto-6")
    assert "STS12" in table.stdout
    assert "SICK-R" not in table.stdout
    assert "42.38" in table.stdout
    assert "not on this model" in table.stderr
    table = run(f"{command} 'BERT static avg.' --only-tasks sts12 sts13 -- ditto-1")
    assert " of 7" in table.stdout
    assert "Not run" not in table.stderr
    tables = run("lab reproduce").stdout
    assert "ditto-6" in tables
    assert "heros-1" in tables


# -- explain and templates ---------------------------------------------------------------------------------------------


def test_explain_a_pair() -> None:
    done = run("lab explain 'The cat sat.' 'The dog [sat].' -m tiny -r mean -o pair.png")
    pair = explain_pair("tiny", "The cat sat.", "The dog [sat].", "mean", device="cpu")
    assert done.stdout.startswith(f"cosine {pair.cosine:.2f}\n")
    assert all(token in done.stdout for tokens in pair.tokens for token, _ in tokens)
    assert all(note in done.stderr for note in pair.notes)
    assert Path("pair.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_mask() -> None:
    printed = run("lab explain mask -m tiny dogs 'a [red] cat' --top 3 --denoised --json out.json").stdout
    predictions = mask_predictions("tiny", ["dogs", "a [red] cat"], top=3, denoised=True)
    assert read_json(Path("out.json")) == json.loads(json.dumps({"model": "tiny", **predictions.to_dict()}))
    assert "after template denoising" in printed
    assert "a [red] cat" in printed


def test_bias() -> None:
    printed = run("lab explain bias -m tiny --texts texts.txt -o bias.svg").stdout
    assert "<svg" in Path("bias.svg").read_text("utf-8")
    assert "average cosine" in printed
    assert "input word embeddings" in printed


def test_generated_templates(t5: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # with more beams than tokens the empty filling is always found, however seldom a random T5 writes a sentinel
    monkeypatch.setitem(generate_templates.__kwdefaults__, "longest", 2)
    monkeypatch.setattr(generate_templates, "__defaults__", (DEFINITIONS[:2],))
    values = json.loads(run(f"lab templates -m tiny -d my-pairs.jsonl --t5 {t5} --candidates 300 --json -").stdout)
    templates = [row["template"] for row in values["generated"]]
    likelihoods = [row["log_likelihood"] for row in values["generated"]]
    assert "{text} [MASK]" in templates
    assert len(set(templates)) == len(templates) <= 300
    assert likelihoods == sorted(likelihoods, reverse=True)
    assert values["template"] in templates
    assert "mean" in {trial["recipe"] for trial in values["trials"]}


# -- pretrain ----------------------------------------------------------------------------------------------------------


def test_pretrain(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (AutoModel, AutoTokenizer):
        part.from_pretrained("tiny").save_pretrained("encoder")
    small = "--max-steps 1 --batch-size 4 --max-seq-length 16 --device cpu"
    command = f"lab pretrain -m encoder {small} -t many.txt texts.txt -o"
    completed = run(f"{command} model")
    assert completed.stdout == ""
    assert "no weights for its prediction head (cls.predictions.bias" in completed.stderr
    assert "Step 1 of 1: held-out loss" in completed.stderr
    texts = read_json(Path("model/training.json"))["texts"]
    assert texts["train"] + texts["held_out"] == 63
    monkeypatch.setenv("RANK", "1")  # a second process of torchrun says nothing
    assert run(f"{command} second").stderr == ""
