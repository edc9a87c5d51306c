"""Runs of a few steps: the same seed, resumption, broken losses, full disks, and what is refused."""

import _thread
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from training_helpers import SMALL, TEXTS, TRIPLETS

from essent import Encoder, verify
from essent._core.folders.files import read_json
from essent.errors import (
    DataError,
    EssentError,
    InputError,
    MissingDependencyError,
    RecipeError,
    TrainingError,
    UnsupportedRecipeError,
)
from essent.training.device import on_device
from essent.training.examples import as_examples
from essent.training.loss import make_collator, make_loss
from essent.training.run import train, warn
from essent.training.settings import resolve_settings
from families import Folders
from selection_samples import TASK


def same(first: Path, second: Path) -> bool:
    return (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


Train = Callable[..., Encoder]
STEPS = {**SMALL, "max_steps": 6, "validate_every": 2}  # four batches an epoch


@pytest.fixture(scope="module")
def whole(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps over two epochs without a break; every second one is validated."""
    output = tmp_path_factory.mktemp("whole")
    train(bert, TEXTS, output=output, validate=TASK, **STEPS)
    return output


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of that run."""
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def again(bert: Path, tmp_path: Path) -> Train:
    """The same training, in the folder of the copy."""
    return partial(train, bert, TEXTS, output=tmp_path / "run", validate=TASK, **STEPS)


def test_best_checkpoint_loads(whole: Path, bert: Path) -> None:
    run, encoder = read_json(whole / "training.json"), Encoder(str(whole))
    scores = {row["step"]: row["eval_spearman"] for row in run["history"] if "eval_spearman" in row}
    assert sorted(scores) == [0, 2, 4, 6]
    assert run["best_score"] == max(score for step, score in scores.items() if step)
    assert same(whole, whole / "checkpoints" / f"checkpoint-{run['best_step']}")
    assert encoder.recipe.template == 'This sentence of "{text}" means [MASK] .'
    before = Encoder(bert, encoder.recipe)
    assert run["before"] == pytest.approx(TASK.run(before).main_score)
    assert TASK.run(encoder).main_score == pytest.approx(run["best_score"])
    assert not np.allclose(encoder.encode(TEXTS[:2]), before.encode(TEXTS[:2]))
    assert set(verify(str(whole)).differences) == {"essent", "sentence-transformers"}


def test_a_moved_run_is_resumed(whole: Path, run: Path, again: Train) -> None:
    """The state names the best checkpoint by its path, which is not there any more.

    Checkpoint 4 ends the first epoch and 6 the run; a half-written one is passed over.
    """
    for state in (run / "checkpoints").glob("*/trainer_state.json"):
        state.write_text(state.read_text("utf-8").replace(str(whole), "/gone"), "utf-8")
    again(resume=True)
    assert same(run, whole)
    history = read_json(whole / "training.json")["history"]
    assert read_json(run / "training.json")["history"] == history  # nothing was trained or validated again
    (run / "checkpoints" / "checkpoint-6" / "trainer_state.json").write_text('{"epoch": 1.5, "best')
    again(resume=True)
    assert same(run / "checkpoints" / "checkpoint-6", whole / "checkpoints" / "checkpoint-6")
    assert read_json(run / "training.json")["history"] == history


def test_another_model_or_a_changed_checkpoint_is_not_resumed(
    run: Path, bert: Path, again: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = SentenceTransformer(str(bert), device="cpu")
    with torch.no_grad():
        next(changed.parameters())[0, 0] += 1
    with pytest.raises(DataError, match=r"model was '.*' and is '"):
        train(changed, TEXTS, output=run, resume=True, validate=TASK, **STEPS)
    monkeypatch.setattr("essent._core.folders.files.SMALL", 0)
    optimizer = run / "checkpoints" / "checkpoint-6" / "optimizer.pt"
    content = bytearray(optimizer.read_bytes())
    content[len(content) // 2] ^= 1
    optimizer.write_bytes(content)
    with pytest.raises(DataError, match=r"optimizer.pt has changed since it was saved") as caught:
        again(resume=True)
    assert str(caught.value).endswith(f"Remove {optimizer.parent} to resume from the checkpoint before it.")
    assert "save the model again" not in str(caught.value)


def test_output_folder_refusals(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}", "utf-8")
    (tmp_path / "foreign" / "checkpoints" / "checkpoint-5").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for folder, reason in ((".", "current folder"), ("other", "holds another model")):
        with pytest.raises(EssentError, match=reason):
            train(bert, TEXTS, output=folder, **SMALL)
    with pytest.raises(DataError, match="was not written by essent"):
        train(bert, TEXTS, output="foreign", force=True, **SMALL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foreign", "other"]


@pytest.mark.slow
def test_the_best_checkpoint_s_own_bias(bert: Path, tmp_path: Path) -> None:
    """The template's vectors that the last validation kept are not those of the checkpoint that is taken back."""
    for seed in range(6):  # which step is best hangs on rounding and the number of threads: one run must have it early
        output = tmp_path / str(seed)
        encoder = train(bert, TRIPLETS, "promptbert-sup", output=output, validate=TASK, **STEPS, seed=seed)
        best_step = read_json(output / "training.json")["best_step"]
        if best_step < 6:
            break
    assert best_step < 6
    assert verify(str(output)).passed
    np.testing.assert_allclose(Encoder(str(output)).encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)


def test_a_model_without_dropout_is_logged(folder_of: Folders, caplog: pytest.LogCaptureFixture) -> None:
    encoder = Encoder(str(folder_of("gpt2")), "mean")
    settings = resolve_settings("simcse-unsup", "roberta", {"recipe": "last-token"})
    warn(encoder, settings, as_examples(TEXTS))
    assert not caplog.records
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        setattr(encoder.module.backbone.model.config, name, 0.0)
    warn(encoder, settings, as_examples(TEXTS))
    warn(encoder, settings, as_examples(list(zip(TEXTS, TEXTS, strict=True))))
    (message,) = caplog.messages
    assert "both views of a text are equal" in message


def test_ctrl_c_saves_a_checkpoint_and_the_run_goes_on(
    whole: Path, again: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the third step, between two validations; nothing that was learned is lost."""
    from essent.training.trainer import ContrastiveTrainer

    plain, before = ContrastiveTrainer.training_step, signal.getsignal(signal.SIGINT)

    def training_step(self: Any, *arguments: Any) -> torch.Tensor:
        if self.state.global_step == 2:
            _thread.interrupt_main(signal.SIGINT)
        return plain(self, *arguments)

    monkeypatch.setattr(ContrastiveTrainer, "training_step", training_step)
    with pytest.raises(KeyboardInterrupt, match=r"Stopped after step 3 of 6\. .*checkpoint-3\. .* --resume"):
        again()
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is before
    assert not (tmp_path / "run" / "training.json").exists()
    again(resume=True)
    assert same(tmp_path / "run", whole)


@pytest.mark.slow
def test_a_run_is_extended_and_never_shortened(again: Train, tmp_path: Path) -> None:
    """The optimizer of a finished run has come to the learning rate 0; the next step learns all the same."""
    notes: list[str] = []
    extend = partial(again, resume=True, note=notes.append, validate_every=1)
    for steps in (1, 1, 2):
        extend(max_steps=steps)
    assert not same(*(tmp_path / "run" / "checkpoints" / f"checkpoint-{step}" for step in (1, 2)))
    extend(max_steps=None, epochs=1.5)  # of four batches each
    expected = ("the run starts at step 0", "all 1 steps are done", "after step 1 of 2", "after step 2 of 6")
    for line, words in zip(notes, expected, strict=True):
        assert words in line
    run = read_json(tmp_path / "run" / "training.json")
    assert (run["steps"], run["settings"]["epochs"]) == (6, 1.5)
    assert [row["step"] for row in run["history"] if "eval_spearman" in row] == [*range(7)]
    rates = {row["step"]: row["learning_rate"] for row in run["history"] if "learning_rate" in row}
    assert rates[4] == pytest.approx(SMALL["learning_rate"] * (1 - 3 / 6))  # of the new length
    with pytest.raises(DataError, match="from 6 to 3 steps"):
        extend(max_steps=3)


@pytest.mark.parametrize(
    ("preset", "changes", "recipe"),
    [
        ("promptbert-sup", {}, "L-bias"),
        (
            "promptbert-unsup",
            {"objective": "same-template", "projection_head": "none", "precision": "bfloat16"},
            "weights=mask",
        ),
    ],
)
def test_presets_on_a_loaded_model_in_half_precision(
    preset: str, changes: dict[str, Any], recipe: str, bert: Path, tmp_path: Path
) -> None:
    shell = SentenceTransformer(str(bert), device="cpu").half()
    before = {name: weight.clone() for name, weight in shell.state_dict().items()}
    encoder = train(shell, TRIPLETS, preset, output=tmp_path, max_steps=2, **SMALL, **changes)
    assert all(torch.equal(before[name], weight) for name, weight in shell.state_dict().items())
    assert {weight.dtype for weight in load_file(tmp_path / "model.safetensors").values()} == {torch.float32}
    assert recipe in str(encoder.recipe)
    np.testing.assert_allclose(Encoder(str(tmp_path)).encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)
    assert verify(str(tmp_path / "checkpoints" / "checkpoint-2")).differences["essent"] < 1e-6  # exact in bfloat16 too


def test_loss_in_a_plain_trainer(bert: Path, tmp_path: Path) -> None:
    encoder = Encoder(str(bert), "mean")
    loss = make_loss(encoder, resolve_settings("promptbert-unsup", "bert", {}))
    before = [weight.clone() for weight in loss.parameters()]
    options = {"max_steps": 2, "save_strategy": "no", "report_to": "none", **on_device("cpu", "float32")}
    trainer = SentenceTransformerTrainer(
        encoder,
        SentenceTransformerTrainingArguments(str(tmp_path), **options),
        datasets.Dataset.from_dict({"text": TEXTS}),
        loss=loss,
        data_collator=make_collator(encoder, loss),
    )
    assert trainer.train().global_step == 2
    moved = [not torch.equal(old, new) for old, new in zip(before, loss.parameters(), strict=True)]
    assert sum(moved) > len(moved) / 2  # all but the pooler and what no view reads


@pytest.mark.slow
def test_nonfinite_loss(bert: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "max_steps": 4, "validate_every": 1}
    shell = SentenceTransformer(str(bert), device="cpu")
    with torch.no_grad():
        next(p for n, p in shell.named_parameters() if "layer.2" in n and "output.dense.weight" in n)[0, 0] = torch.nan
    with pytest.raises(TrainingError, match=r"The loss of step 1 is nan.* no checkpoint yet.*learning rate"):
        train(shell, TEXTS, output=tmp_path / "nan", **settings)
    with pytest.raises(TrainingError, match=r"Validation at step 0 failed: The vector of .* is not finite"):
        train(shell, TEXTS, output=tmp_path / "validated", validate=TASK, **settings)
    with pytest.raises(TrainingError, match=r"(The loss of step|After step) \d.*1e\+30"):
        train(bert, TEXTS, output=tmp_path / "steep", **{**settings, "learning_rate": 1e30})
    assert not list((tmp_path / "steep" / "checkpoints").glob("checkpoint-[2-9]"))


@pytest.mark.slow
def test_a_full_disk(again: Train, tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoints" / "checkpoint-2"
    again(max_steps=2)
    shutil.copytree(checkpoint, tmp_path / "good")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (20_000, 300_000):  # the model does not fit; the model does and the optimizer does not
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))  # Python ignores the signal of a longer file
        try:
            with pytest.raises(TrainingError, match=r"Cannot write the checkpoint of step 4.*checkpoint-2\. Free some"):
                again(max_steps=4, resume=True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert not checkpoint.with_name("checkpoint-4").exists()
    assert same(checkpoint, tmp_path / "good")
    again(max_steps=4, resume=True)
    assert read_json(tmp_path / "run" / "training.json")["steps"] == 4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["same", "same", " "], "at least two different texts, got 1"),
        ("a text", "list of texts, pairs or triplets, got str"),
        (["a", None], "Example 1 is 'None' .NoneType"),
        ([("a", "b"), ("a",)], "Example 1 is .*All examples must be texts, or all pairs"),
        ([("a", "b"), ("a", "")], "Example 1 is .* that are not blank"),
        ([(), ()], "Example 0 is "),
    ],
)
def test_refused_data(data: Any, message: str, bert: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        train(bert, data, output=tmp_path / "out", **SMALL)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("preset", "changes", "error", "message"),
    [
        ("simcse-unsup", {"batch_size": 256}, InputError, "batch_size=256: must be between 2 and 16"),
        ("simcse-unsup", {"device": "tpu"}, InputError, "device='tpu': must be .*'cpu'"),
        ("simcse-unsup", {"recipe": "first-last-tfidf"}, RecipeError, "its weights need token counts"),
        (
            "promptbert-unsup",
            {"objective": "same-template", "templates": f'"{{text}}" means [MASK]{" and so on" * 120} .'},
            UnsupportedRecipeError,
            "tokens, and the model reads at most 256, text included",
        ),
        ("promptbert-unsup", {"lora": 4}, MissingDependencyError, r'pip install "essent\[lora\]"'),
        ("optiprompt", {"lora": 4}, InputError, "lora=4: the preset 'optiprompt' freezes the model"),
        ("optiprompt", {"objective": "different-templates"}, InputError, "one at a time, got 2"),
        ("optiprompt", {"templates": ["{text}[MASK]"]}, UnsupportedRecipeError, "no words"),
    ],
)
def test_refused_settings(
    preset: str,
    changes: dict[str, Any],
    error: type[EssentError],
    message: str,
    bert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(error, match=message):
        train(bert, TEXTS, preset, output=tmp_path / "out", **{**SMALL, **changes})
    assert not (tmp_path / "out").exists()


def test_a_free_template_needs_a_mask_token(folder_of: Folders, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedRecipeError, match="no mask token"):
        train(folder_of("gpt2"), TEXTS, "optiprompt", output=tmp_path / "out", **SMALL)


# -- progress ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terminal", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_bar_with_the_loss_on_a_terminal_only(
    terminal: bool, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither a line of dictionaries nor a bar of another library comes with it."""
    monkeypatch.setattr("essent.training.trainer.can_show_bar", lambda: terminal)
    train(bert, TEXTS, "simcse-unsup", output=tmp_path / "run", max_steps=3, validate_every=1, progress=True, **SMALL)
    captured = capfd.readouterr()
    assert ("3/3" in captured.err and "loss=" in captured.err) == terminal
    shown = captured.err + captured.out
    assert not any(part in shown for part in ("{", "widget", "Writing")), shown
