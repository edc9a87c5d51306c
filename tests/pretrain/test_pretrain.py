"""Masked-language-model runs: they learn, they are the same again, they go on where they stopped, they stop in time."""

from __future__ import annotations

import _thread
import json
import math
import shutil
import signal
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

from essent.atomic import PARTIAL
from essent.pretrain import trainer as mlm_trainer
from essent.pretrain.run import Show, Start, pretrain
from essent.pretrain.settings import Pretraining
from essent.train.device import has_bf16
from essent.types import DataError, InputError, TrainingError

TEXTS = [
    f"The {one} {two} {three} the {four}."
    for one, two, three, four in product(
        ("red", "old", "small", "happy"), ("dog", "cat", "horse"), ("sees", "likes"), ("house", "river", "moon", "tree")
    )
]
TINY = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
SETTINGS = Pretraining(
    max_steps=8,
    tokens_per_step=128,
    max_seq_length=16,
    learning_rate=5e-3,
    validate_every=4,
    seed=0,
    precision="float32",
)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    path = tmp_path_factory.mktemp("config") / "tiny.json"
    path.write_text(json.dumps(TINY), "utf-8")
    return Start(config=str(path), vocabulary=80)


@pytest.fixture(scope="module")
def whole(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from beginning to end."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    pretrain(TEXTS, folder, start, SETTINGS, device="cpu")
    return folder


def weights_of(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


# -- what comes out ---------------------------------------------------------------------------------------------------


def test_it_learns(start: Start, tmp_path: Path) -> None:
    notes: list[str] = []
    settings = replace(SETTINGS, max_steps=60, learning_rate=2e-2, validate_every=30, tokens_per_step=256)
    result = pretrain(TEXTS, tmp_path / "model", start, settings, device="cpu", show=Show(note=notes.append))
    held_out = [row["held_out_loss"] for row in result.curve if "held_out_loss" in row]
    assert len(held_out) == 3
    rows = len(AutoTokenizer.from_pretrained(result.folder))
    assert held_out[0] == pytest.approx(math.log(rows), abs=0.1)  # nothing is known: all tokens are alike
    assert held_out[-1] < held_out[0] - 1
    assert result.accuracy > 0.2  # by chance 1 / rows
    assert len(notes) == 3
    assert "Step 60 of 60: held-out loss" in notes[-1]


def test_the_folder_is_plain_transformers(whole: Path) -> None:
    assert {path.name for path in whole.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training.json",
    }
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(whole), AutoTokenizer.from_pretrained(whole)
    assert {weight.dtype for weight in load_file(whole / "model.safetensors").values()} == {torch.float32}
    ids = tokenizer("The red [MASK] likes the moon.", return_tensors="pt")
    assert torch.isfinite(model(**ids).logits).all()


def test_training_json(whole: Path, start: Start) -> None:
    about = json.loads((whole / "training.json").read_text("utf-8"))
    assert about["steps"] == 8
    assert about["settings"] == SETTINGS.to_dict()
    assert about["start"]["config"] == "tiny.json"  # without the machine's path
    assert about["texts"]["train"] + about["texts"]["held_out"] == len(TEXTS)
    assert about["sequences"]["filled"] == pytest.approx(
        about["sequences"]["tokens"] / about["sequences"]["train"] / 16, abs=1e-4
    )
    assert [row["step"] for row in about["curve"] if "held_out_loss" in row] == [0, 4, 8]
    rates = [row["learning_rate"] for row in about["curve"] if "loss" in row]
    assert rates == pytest.approx(
        [0] + [5e-3 * (1 - i / 7) for i in range(7)]
    )  # 5 % of 8 steps are one, in which it rises
    assert {"essent", "torch", "transformers"} <= set(about["versions"])
    assert about["new_weights"] == "all"
    assert "nan" not in json.dumps(about).lower()


def test_same_seed_same_bytes(whole: Path, start: Start, tmp_path: Path) -> None:
    torch.manual_seed(99)
    pretrain(TEXTS, tmp_path / "again", start, SETTINGS, device="cpu")
    assert weights_of(tmp_path / "again") == weights_of(whole)
    pretrain(TEXTS, tmp_path / "other", start, replace(SETTINGS, seed=1), device="cpu")
    assert weights_of(tmp_path / "other") != weights_of(whole)


@pytest.mark.parametrize("packing", ["whole", "stream"])
def test_a_saved_model_goes_on_untied(packing: str, whole: Path, tmp_path: Path) -> None:
    settings = replace(
        SETTINGS, max_steps=2, untied=True, whole_words=packing == "whole", packing=packing, precision=None
    )
    pretrain(TEXTS, tmp_path / "on", Start(model=str(whole)), settings, device="cpu")
    about = json.loads((tmp_path / "on" / "training.json").read_text("utf-8"))
    assert about["new_weights"] == []
    assert about["precision"] == ("bfloat16" if has_bf16("cpu") else "float32")
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "on")
    assert not torch.equal(model.get_output_embeddings().weight, model.get_input_embeddings().weight)


@pytest.mark.slow
def test_minutes_become_steps(start: Start, tmp_path: Path) -> None:
    notes: list[str] = []
    settings = replace(SETTINGS, max_steps=None, minutes=0.002)
    result = pretrain(TEXTS, tmp_path / "model", start, settings, device="cpu", show=Show(note=notes.append))
    assert result.steps >= 1
    assert f"{result.steps} steps in 0.002 minutes" in notes[0]


def test_epochs_become_steps(start: Start, tmp_path: Path) -> None:
    result = pretrain(TEXTS, tmp_path / "model", start, replace(SETTINGS, max_steps=None, epochs=0.5), device="cpu")
    sequences = json.loads((tmp_path / "model" / "training.json").read_text("utf-8"))["sequences"]["train"]
    assert result.steps == math.ceil(0.5 * sequences / 8)
    assert result.tokens == result.steps * 128
    uneven = replace(SETTINGS, max_steps=None, epochs=1, parts=3)  # 8 sequences in 3 parts are 6
    result = pretrain(TEXTS, tmp_path / "uneven", start, uneven, device="cpu")
    assert result.steps == math.ceil(sequences / 6)


def test_a_step_in_parts_is_one_step(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two halves of a batch, one after the other, move the weights as both at once: the mean is over the whole step."""
    seen = []
    plain = mlm_trainer.MaskedTrainer.compute_loss

    def keep(self, model, inputs, *arguments, **options):
        seen.append({key: value.clone() for key, value in inputs.items()})
        return plain(self, model, inputs, *arguments, **options)

    monkeypatch.setattr(mlm_trainer.MaskedTrainer, "compute_loss", keep)
    config = {**TINY, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    begin = Start(config=str(tmp_path / "config.json"), vocabulary=80)
    none = replace(SETTINGS, max_steps=1, learning_rate=1e-12, warmup=0)
    pretrain(TEXTS, tmp_path / "before", begin, none, device="cpu")
    seen.clear()
    settings = replace(SETTINGS, max_steps=1, parts=2, warmup=0, weight_decay=0.0)
    pretrain(TEXTS, tmp_path / "after", begin, settings, device="cpu")
    assert [len(inputs["labels"]) for inputs in seen] == [4, 4]

    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "before").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0)
    labels = torch.cat([inputs["labels"] for inputs in seen])
    masks = [inputs.get("attention_mask", torch.ones_like(inputs["labels"])) for inputs in seen]
    model(torch.cat([i["input_ids"] for i in seen]), attention_mask=torch.cat(masks), labels=labels).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    after = AutoModelForMaskedLM.from_pretrained(tmp_path / "after").state_dict()
    for name, weight in model.state_dict().items():
        assert torch.allclose(weight, after[name], atol=1e-5), name


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("linear", lambda t: 1 - t / 8),
        ("cosine", lambda t: (1 + math.cos(math.pi * t / 8)) / 2),
        ("constant", lambda t: 1.0),
        ("warmup-stable-decay", lambda t: 1.0 if t < 8 else 1 - math.sqrt((t - 8) / 2)),
    ],
)
def test_schedules(schedule: str, expected, tmp_path: Path) -> None:
    from transformers.optimization import get_scheduler

    steps = 12 if schedule == "warmup-stable-decay" else 10
    settings = replace(SETTINGS, max_steps=steps, warmup=2, schedule=schedule)
    arguments = mlm_trainer.arguments_of(settings, steps, tmp_path, device="cpu", precision="float32")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = get_scheduler(
        arguments.lr_scheduler_type,
        optimizer,
        arguments.get_warmup_steps(steps),
        steps,
        arguments.lr_scheduler_kwargs,
    )
    rates = []
    for _ in range(steps):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert rates[:2] == pytest.approx([0, 0.5])
    assert rates[2:] == pytest.approx([expected(t) for t in range(steps - 2)], abs=1e-6)


# -- stopping and going on --------------------------------------------------------------------------------------------


class DownError(RuntimeError):
    """The machine goes down."""


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, what) -> None:
    """Do something in the middle of a step, as the trainer counts them."""
    plain = mlm_trainer.MaskedTrainer.training_step

    def training_step(self, *arguments, **options):
        if self.state.global_step + 1 == step:
            what()
        return plain(self, *arguments, **options)

    monkeypatch.setattr(mlm_trainer.MaskedTrainer, "training_step", training_step)


@pytest.mark.slow  # killed and resumed is tested daily
def test_interrupted_and_resumed_is_the_same(
    whole: Path, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    before = signal.getsignal(signal.SIGINT)  # processes of a parallel test run ignore it
    with monkeypatch.context() as patch:
        at_step(patch, 3, lambda: _thread.interrupt_main(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt, match=r"Stopped after step 3 of 8\. .* --resume goes on from there"):
            pretrain(TEXTS, tmp_path / "model", start, SETTINGS, device="cpu")
    assert signal.getsignal(signal.SIGINT) is before
    assert [path.name for path in (tmp_path / "model" / "checkpoints").glob("checkpoint-*")] == ["checkpoint-3"]
    with pytest.raises(DataError, match=r"unfinished run, the last checkpoint is checkpoint-3. Resume it"):
        pretrain(TEXTS, tmp_path / "model", start, SETTINGS, device="cpu")
    with pytest.raises(DataError, match="cannot be resumed with other texts or settings: seed was 0 and is 1"):
        pretrain(TEXTS, tmp_path / "model", start, replace(SETTINGS, seed=1), device="cpu", resume=True)
    with pytest.raises(DataError, match=r"texts\.train was"):
        pretrain(TEXTS[5:], tmp_path / "model", start, SETTINGS, device="cpu", resume=True)
    show = Show(note=notes.append)
    result = pretrain(TEXTS, tmp_path / "model", start, SETTINGS, device="cpu", resume=True, show=show)
    assert notes[0] == f"{tmp_path / 'model'}: going on after step 3 of 8."
    assert weights_of(tmp_path / "model") == weights_of(whole)
    assert [row["step"] for row in result.curve if "held_out_loss" in row] == [0, 4, 8]
    assert [row["step"] for row in result.curve if "loss" in row] == list(range(1, 9))


def test_killed_and_resumed_is_the_same(
    whole: Path, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die() -> None:
        raise DownError

    folder = tmp_path / "model"
    with monkeypatch.context() as patch:
        at_step(patch, 7, die)
        with pytest.raises(DownError):
            pretrain(TEXTS, folder, start, SETTINGS, device="cpu")
    half = folder / "checkpoints" / "checkpoint-6"  # killed while a checkpoint was written
    half.mkdir()
    (half / "trainer_state.json").write_text('{"global_step": 6', "utf-8")
    pretrain(TEXTS, folder, start, SETTINGS, device="cpu", resume=True)
    assert weights_of(folder) == weights_of(whole)
    assert not (folder / "checkpoints").exists()


@pytest.mark.slow  # a whole pre-training
def test_the_head_learns_first(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, settings = (
        Start(model=str(whole)),
        replace(SETTINGS, max_steps=4, head_first=2, validate_every=2, save_every=1),
    )
    with monkeypatch.context() as patch:
        at_step(patch, 2, lambda: _thread.interrupt_main(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            pretrain(TEXTS, tmp_path / "on", begin, settings, device="cpu")
    before = load_file(whole / "model.safetensors")
    after = load_file(tmp_path / "on" / "checkpoints" / "checkpoint-2" / "model.safetensors")
    moved = {name.startswith("bert.") for name in before if not torch.equal(before[name], after[name])}
    assert moved == {False}
    pretrain(TEXTS, tmp_path / "on", begin, settings, device="cpu", resume=True)
    pretrain(TEXTS, tmp_path / "at once", begin, replace(settings, head_first=0.5), device="cpu")  # half of 4 steps
    assert weights_of(tmp_path / "on") == weights_of(tmp_path / "at once")
    after = load_file(tmp_path / "on" / "model.safetensors")
    assert {name.startswith("bert.") for name in before if not torch.equal(before[name], after[name])} == {True, False}


def test_a_warmup_longer_than_the_run(start: Start, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="warmup=8 steps of a run of 8"):
        pretrain(TEXTS, tmp_path / "model", start, replace(SETTINGS, warmup=8), device="cpu")
    assert not (tmp_path / "model").exists()


def test_no_head_first_for_a_new_model(start: Start, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="head_first= is for a model to go on with"):
        pretrain(TEXTS, tmp_path / "model", start, replace(SETTINGS, head_first=2), device="cpu")


def test_resume_of_nothing_begins(whole: Path, start: Start, tmp_path: Path) -> None:
    notes: list[str] = []
    show = Show(note=notes.append)
    pretrain(TEXTS, tmp_path / "model", start, SETTINGS, device="cpu", resume=True, show=show)
    assert "no checkpoint to resume from: the run begins at step 0" in notes[0]
    assert weights_of(tmp_path / "model") == weights_of(whole)


@pytest.mark.parametrize("where", ["loss", "gradients"])
def test_numbers_that_are_none(where: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = mlm_trainer.MaskedTrainer.compute_loss

    def broken(self, model, inputs, *arguments, **options):
        loss = plain(self, model, inputs, *arguments, **options)
        if self.state.global_step + 1 < 6:
            return loss
        if where == "loss":
            return loss * math.inf
        return loss + (0 * sum(weight.sum() for weight in model.parameters())).sqrt()  # 0, and its slope is infinite

    monkeypatch.setattr(mlm_trainer.MaskedTrainer, "compute_loss", broken)
    with pytest.raises(TrainingError, match=f"Step 6: the {where} .*checkpoint-4.*A lower learning rate"):
        pretrain(TEXTS, tmp_path / "model", start, SETTINGS, device="cpu")
    kept = load_file(tmp_path / "model" / "checkpoints" / "checkpoint-4" / "model.safetensors")
    assert all(torch.isfinite(weight).all() for weight in kept.values())
    assert not (tmp_path / "model" / "config.json").exists()


def test_a_full_disk(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.save

    def save(values, path, *arguments, **options) -> None:
        if "checkpoint-8" in str(path):
            raise OSError(28, "No space left on device")
        plain(values, path, *arguments, **options)

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(TrainingError, match=r"checkpoint of step 8 cannot be written.*No space left.*checkpoint-4"):
        pretrain(TEXTS, tmp_path / "model", start, SETTINGS, device="cpu")
    assert not (tmp_path / "model" / "checkpoints" / "checkpoint-8").exists()


@pytest.mark.slow
def test_a_disk_that_is_full_in_the_end(
    whole: Path, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import PreTrainedModel

    plain = PreTrainedModel.save_pretrained

    def save(self, path, **options) -> None:
        if Path(path).name.endswith(PARTIAL):
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        plain(self, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(PreTrainedModel, "save_pretrained", save)
        with pytest.raises(TrainingError, match=r"trained and cannot be written.*No space left.*checkpoint-8"):
            pretrain(TEXTS, tmp_path / "model", start, SETTINGS, device="cpu")
    assert not (tmp_path / "model" / "config.json").exists()
    pretrain(TEXTS, tmp_path / "model", start, SETTINGS, device="cpu", resume=True)  # nothing is left but to save
    assert weights_of(tmp_path / "model") == weights_of(whole)


def test_what_is_no_part_of_a_model_stays_and_an_older_model_goes(whole: Path, start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(whole, folder)
    (folder / "notes").mkdir()
    for name in ("spiece.model", "notes.md", "notes/today.txt"):
        (folder / name).write_text("mine", "utf-8")
    pretrain(TEXTS, folder, start, SETTINGS, device="cpu", force=True)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert names == {path.name for path in whole.iterdir()} | {"notes.md", "notes", "notes/today.txt"}
    assert weights_of(folder) == weights_of(whole)


def test_a_place_that_cannot_be_replaced_is_refused_first(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="current folder"):
        pretrain(TEXTS, ".", start, SETTINGS, device="cpu")
    assert not list(tmp_path.iterdir())


def test_a_model_is_not_written_over(whole: Path, start: Start, tmp_path: Path) -> None:
    before = weights_of(whole)
    with pytest.raises(DataError, match="holds a model already"):
        pretrain(TEXTS, whole, start, SETTINGS, device="cpu")
    with pytest.raises(DataError, match="no unfinished run to resume"):
        pretrain(TEXTS, whole, start, SETTINGS, device="cpu", resume=True)
    assert weights_of(whole) == before
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "modules.json").write_text("[]", "utf-8")
    with pytest.raises(DataError, match=r"sentence-transformers model \(modules\.json\)"):
        pretrain(TEXTS, tmp_path / "encoder", start, SETTINGS, device="cpu", force=True)
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(DataError, match="is a file"):
        pretrain(TEXTS, tmp_path / "file", start, SETTINGS, device="cpu")


# -- bad input, before any model is loaded ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "changes", "said"),
    [
        ([], {}, "at least two"),
        (["One sentence."], {}, "at least two"),
        (["One.", "Two."], {}, "The texts have . tokens, special ones counted, which is less than one sequence"),
        (TEXTS[:20], {"tokens_per_step": 4096}, "tokens_per_step=4096 is more than there is"),
        (TEXTS, {"max_seq_length": 33, "tokens_per_step": 64}, "max_seq_length=33: the model has positions for 32"),
    ],
)
def test_texts_that_do_not_do(texts, changes, said: str, start: Start, tmp_path: Path, monkeypatch) -> None:
    def fail(*arguments, **options):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("essent.pretrain.model.open_model", fail)
    with pytest.raises(InputError, match=said):
        pretrain(texts, tmp_path / "model", start, replace(SETTINGS, **changes), device="cpu")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": 1}, "steps and epochs was given"),
        ({"max_steps": None}, "none was given"),
        ({"max_steps": 0}, "max_steps=0; it must be a number above 0"),
        ({"max_steps": "8"}, "max_steps='8'; it must be a number above 0"),
        ({"max_steps": 2.5}, r"max_steps=2\.5; it must be a whole number"),
        ({"max_seq_length": None}, "max_seq_length=None; it must be a whole number"),
        ({"validate_every": 0}, "validate_every=0"),
        ({"learning_rate": True}, "learning_rate=True"),
        ({"max_steps": None, "minutes": math.nan}, "minutes=nan"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0"),
        ({"mask_probability": 1.0}, "between 0 and 1"),
        ({"mask_probability": "0.15"}, "between 0 and 1"),
        ({"warmup": -1}, "warmup=-1"),
        ({"head_first": -0.5}, "head_first=-0.5"),
        ({"parts": 0}, "parts=0"),
        ({"parts": 9}, "parts=9 of a step with 8 sequences .* take 8 at most"),
        ({"seed": -1}, "seed=-1"),
        ({"schedule": "cosinus"}, "Did you mean 'cosine'"),
        ({"packing": "tight"}, "packing='tight' is unknown"),
        ({"precision": "f16"}, "precision='f16' is unknown"),
        ({"tokens_per_step": 8}, "less than one sequence"),
    ],
)
def test_settings_that_are_not_allowed(changes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        replace(SETTINGS, **changes)


def test_a_vocabulary_that_is_none() -> None:
    with pytest.raises(InputError, match="vocabulary='80'; it must be a whole number"):
        Start(config="tiny", vocabulary="80")  # type: ignore[arg-type]
