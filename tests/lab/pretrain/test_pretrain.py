"""Masked-language-model runs: they learn, they are the same again, they go on where they stopped, they stop in time."""

import math
import re
import shutil
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertTokenizer, PreTrainedModel

from command_line import read_json
from essent._core.atomic import PARTIAL
from essent._core.machine import has_bfloat16
from essent.errors import DataError, InputError, TrainingError
from essent.lab.pretrain.model import split_texts
from essent.lab.pretrain.run import MaskedTrainer, pretrain
from essent.lab.pretrain.settings import Pretraining

TEXTS = [
    f"The {adjective} {animal} {verb} the {noun}."
    for adjective, animal, verb, noun in product(
        ("red", "old", "small", "happy"), ("dog", "cat", "horse"), ("sees", "likes"), ("house", "river", "moon", "tree")
    )
]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Pretraining:
    """Eight steps, six of which are an epoch, each with a checkpoint."""
    folder = tmp_path_factory.mktemp("config")
    config = """{"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 32}"""
    (folder / "tiny.json").write_text(config, "utf-8")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] .".split() + sorted(set(re.findall(r"\w+", " ".join(TEXTS).lower())))
    BertTokenizer({word: number for number, word in enumerate(words)}).save_pretrained(folder)
    steps = {"max_steps": 8, "batch_size": 16, "max_seq_length": 16, "learning_rate": 5e-3}
    return Pretraining(str(folder / "tiny.json"), str(folder), **steps, precision="float32")


@pytest.fixture(scope="module")
def whole(settings: Pretraining, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from beginning to end."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    train(folder, settings)
    return folder


def train(*arguments, **options):
    return pretrain(TEXTS, *arguments, device="cpu", **options)


def weights_of(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


# -- what comes out ---------------------------------------------------------------------------------------------------


def test_it_learns(settings: Pretraining, tmp_path: Path) -> None:
    notes: list[str] = []
    result = train(tmp_path / "model", replace(settings, max_steps=62, learning_rate=2e-2), note=notes.append)
    losses = {row["step"]: row["eval_loss"] for row in result["history"] if "eval_loss" in row}
    assert list(losses) == [*range(0, 57, 7), 62]  # the last step is measured
    rows = len(AutoTokenizer.from_pretrained(tmp_path / "model"))
    assert losses[0] == pytest.approx(math.log(rows), abs=0.1)  # nothing is known: all tokens are alike
    assert result["held_out_loss"] == losses[62] < losses[0] - 1
    assert len(notes) == len(losses)
    assert "Step 62 of 62: held-out loss" in notes[-1]


def test_the_folder_is_plain_transformers(settings: Pretraining, whole: Path) -> None:
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "training.json"}
    assert {path.name for path in whole.iterdir()} == names
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(whole), AutoTokenizer.from_pretrained(whole)
    assert model.dtype == torch.float32
    assert torch.isfinite(model(**tokenizer("The red [MASK] likes the moon.", return_tensors="pt")).logits).all()
    record = read_json(whole / "training.json")
    paths = {"config": "tiny.json", "tokenizer": Path(settings.tokenizer).name}  # without the machine's folders
    assert record["settings"] == {**asdict(settings), **paths}
    assert record["texts"]["train"] + record["texts"]["held_out"] == len(TEXTS)
    rates = [row["learning_rate"] for row in record["history"] if "loss" in row]
    assert rates == pytest.approx([0] + [5e-3 * (1 - i / 7) for i in range(7)])  # 5 % of 8 steps are one: it rises


def test_a_saved_model_goes_on(whole: Path, tmp_path: Path) -> None:
    sizes = {"max_steps": 2, "batch_size": 16, "max_seq_length": 16}
    with pytest.raises(InputError, match="untied are settings of a new model"):
        train(tmp_path / "on", Pretraining(**sizes, untied=True), model=str(whole))
    train(tmp_path / "on", Pretraining(**sizes), model=str(whole), progress=True)
    record = read_json(tmp_path / "on" / "training.json")
    assert record["model"] == "model"
    train_texts, held_out = split_texts(TEXTS, 0)
    texts = "\0".join([*train_texts, "", *held_out])
    assert record["texts"]["sha256"] == sha256(texts.encode()).hexdigest()
    assert record["precision"] == ("bfloat16" if has_bfloat16("cpu") else "float32")


# -- stopping and going on --------------------------------------------------------------------------------------------


def test_killed_and_resumed_is_the_same(
    whole: Path, settings: Pretraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, plain = tmp_path / "model", MaskedTrainer.training_step

    def training_step(self, *arguments, **options):
        """The machine goes down in the middle of a step, as the trainer counts them."""
        if self.state.global_step + 1 == 7:
            raise RuntimeError("down")
        return plain(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(MaskedTrainer, "training_step", training_step)
        with pytest.raises(RuntimeError, match="down"):
            train(folder, settings)
    half = folder / "checkpoints" / "checkpoint-7"  # killed while a checkpoint was written
    half.mkdir()
    (half / "trainer_state.json").write_text('{"global_step": 7', "utf-8")
    with pytest.raises(DataError, match=r"contains an earlier run, with the checkpoint .*checkpoint-6\. --resume"):
        train(folder, settings)
    with pytest.raises(DataError, match=r"with another model, other data or other settings: seed was 0 and is 1"):
        train(folder, replace(settings, seed=1), resume=True)
    notes: list[str] = []
    torch.manual_seed(99)
    outcome = train(folder, settings, resume=True, note=notes.append)
    assert notes[0] == f"{folder}: resuming after step 6 of 8."
    assert weights_of(folder) == weights_of(whole)
    assert not (folder / "checkpoints").exists()
    assert [row["step"] for row in outcome["history"] if "eval_loss" in row] == [*range(9)]


def test_nonfinite_gradients(settings: Pretraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = MaskedTrainer.compute_loss

    def broken(self, model, inputs, *arguments, **options):
        loss = plain(self, model, inputs, *arguments, **options)
        if "labels" in inputs:  # a validation
            return loss
        zero = (0 * sum(weight.sum() for weight in model.parameters())).sqrt()  # 0, and its slope is infinite
        return loss if self.state.global_step + 1 < 6 else loss + zero

    monkeypatch.setattr(MaskedTrainer, "compute_loss", broken)
    with pytest.raises(TrainingError, match=r"Step 6: .* are not finite.*checkpoint-5.*Try a learning rate below"):
        train(tmp_path / "model", settings)
    weights = load_file(tmp_path / "model" / "checkpoints" / "checkpoint-5" / "model.safetensors")
    assert all(torch.isfinite(weight).all() for weight in weights.values())
    assert not (tmp_path / "model" / "config.json").exists()


@pytest.mark.slow
def test_full_disk_when_saving(
    whole: Path, settings: Pretraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = PreTrainedModel.save_pretrained

    def save(self, path, **options) -> None:
        if Path(path).name.endswith(PARTIAL):
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        plain(self, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(PreTrainedModel, "save_pretrained", save)
        with pytest.raises(TrainingError, match=r"(?s)No space left.*checkpoint-8"):
            train(tmp_path / "model", settings)
    assert not (tmp_path / "model" / "config.json").exists()
    train(tmp_path / "model", settings, resume=True)  # nothing is left but to save
    assert weights_of(tmp_path / "model") == weights_of(whole)


def test_only_force_replaces_a_model_and_nothing_else(whole: Path, settings: Pretraining, tmp_path: Path) -> None:
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "modules.json").write_text("[]", "utf-8")
    with pytest.raises(DataError, match="already contains a model"):
        train(tmp_path / "encoder", settings)
    folder = tmp_path / "model"
    shutil.copytree(whole, folder)
    (folder / "notes").mkdir()
    for name in ("spiece.model", "notes.md", "notes/today.txt"):
        (folder / name).write_text("mine", "utf-8")
    with pytest.raises(DataError, match="already contains a model and no unfinished run to resume"):
        train(folder, settings, resume=True)
    assert weights_of(folder) == weights_of(whole)
    train(folder, replace(settings, max_steps=1), force=True)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert names == {path.name for path in whole.iterdir()} | {"notes.md", "notes", "notes/today.txt"}
    assert weights_of(folder) != weights_of(whole)


# -- bad input, before any model is loaded ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "changes", "message"),
    [
        (["One.", "One.", " "], {}, "Cannot train on 1 different texts"),
        (["One.", "Two."], {}, "batch_size=16: must be at most 1, the number of sequences of 16 tokens"),
        (TEXTS, {"max_seq_length": 33}, "max_seq_length=33: must be at most 32"),
        (TEXTS, {"config": None}, "Pass a model to train, or config"),
        (TEXTS, {"epochs": 1}, "Got both"),
        (TEXTS, {"max_steps": None, "epochs": math.nan}, "epochs=nan: must be a number above 0"),
        (TEXTS, {"mask_probability": 1.5}, "above 0 and below 1"),
        (TEXTS, {"precision": "f16"}, "precision='f16'; allowed: float32, bfloat16"),
    ],
)
def test_refusals(texts, changes, message: str, settings: Pretraining, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        pretrain(texts, tmp_path / "model", replace(settings, **changes), device="cpu")
    assert not (tmp_path / "model").exists()
