"""Runs of a few steps: the same seed, resumption, broken losses, full disks, and what is refused."""

from __future__ import annotations

import _thread
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from training_helpers import SMALL, TEXTS, training_record

from essent import Encoder, verify
from essent._core.atomic import _HOST
from essent.errors import DataError, EssentError, InputError, RecipeError, TrainingError, UnsupportedRecipeError
from essent.recipe.shaping.affine import Whiten
from essent.tasks.examples import Example
from essent.tasks.labels import LabelTask
from essent.tasks.pairs import PairTask
from essent.tasks.retrieval import RetrievalTask
from essent.training.checkpoints import check_checkpoint, last_checkpoint, remove_checkpoints
from essent.training.examples import as_examples
from essent.training.loss import make_collator, make_loss
from essent.training.run import train, warn
from essent.training.settings import resolve_settings


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(first: Path, second: Path) -> bool:
    first_weights, second_weights = weights(first), weights(second)
    return first_weights.keys() == second_weights.keys() and all(
        torch.equal(first_weights[name], second_weights[name]) for name in first_weights
    )


@pytest.fixture(scope="module")
def whole(folder_of: Callable[[str], Path], dev: PairTask, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps over two epochs without a break; every second one is validated."""
    output = tmp_path_factory.mktemp("whole")
    settings = {**SMALL, "max_steps": 6, "validate_every": 2}
    train(folder_of("bert"), TEXTS, output=output, validate=dev, **settings)
    return output


def test_best_checkpoint_loads(whole: Path, bert: Path, dev: PairTask) -> None:
    run = training_record(whole)
    scores = {row["step"]: row["eval_spearman"] for row in run["history"] if "eval_spearman" in row}
    assert sorted(scores) == [0, 2, 4, 6]
    assert run["best_score"] == max(score for step, score in scores.items() if step)
    assert same(whole, whole / "checkpoints" / f"checkpoint-{run['best_step']}")
    encoder = Encoder(str(whole))
    assert encoder.recipe.template == 'This sentence of "{text}" means [MASK] .'
    assert run["before"] == pytest.approx(dev.run(Encoder(bert, encoder.recipe)).main_score)
    assert dev.run(encoder).main_score == pytest.approx(run["best_score"])
    assert not np.allclose(encoder.encode(TEXTS[:2]), Encoder(bert, encoder.recipe).encode(TEXTS[:2]))
    assert set(verify(str(whole)).differences) == {"essent", "sentence-transformers"}
    plain = SentenceTransformer(str(whole)).encode(TEXTS)
    np.testing.assert_allclose(plain, encoder.encode(TEXTS), atol=1e-5)


def test_any_kind_of_judgement_validates(bert: Path, tmp_path: Path) -> None:
    """The best checkpoint by accuracy of a probe; the test part is not read."""
    parts = ("train", "train", "test")
    examples = tuple(Example((text,), str(n % 2), parts[n % 3]) for n, text in enumerate(TEXTS * 3))
    task = LabelTask("labels", examples, folds=3)
    train(bert, TEXTS, output=tmp_path / "run", validate=task, max_steps=4, validate_every=2, **SMALL)
    run = training_record(tmp_path / "run")
    scores = {row["step"]: row["eval_accuracy"] for row in run["history"] if "eval_accuracy" in row}
    assert sorted(scores) == [0, 2, 4]
    assert run["best_score"] == max(scores[2], scores[4])
    best = task.for_choice().run(Encoder(str(tmp_path / "run"))).main_score
    assert best == pytest.approx(run["best_score"], abs=100 / len(TEXTS))


def test_queries_are_validated_with_the_models_prompts(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    queries, corpus = ({f"{side}{n}": text for n, text in enumerate(TEXTS)} for side in "qd")
    task = RetrievalTask("r", queries, corpus, {f"q{n}": {f"d{(n + 3) % len(TEXTS)}": 1} for n in range(len(TEXTS))})
    shell = SentenceTransformer(str(folder_of("bert")), prompts={"query": "ask of it : ", "document": "a text : "})
    shell.save(str(tmp_path / "prompted"))
    train(
        tmp_path / "prompted", TEXTS, "simcse-unsup", output=tmp_path / "run", validate=task,
        max_steps=1, validate_every=1, **SMALL
    )  # fmt: skip
    run = training_record(tmp_path / "run")
    encoder = Encoder(str(tmp_path / "run"))
    assert encoder.prompts["query"] == "ask of it : "
    assert run["best_score"] == pytest.approx(task.run(encoder).main_score, abs=1e-4)
    plain = replace(task, query_prompt="", document_prompt="").run(encoder).main_score
    assert plain != pytest.approx(run["best_score"], abs=1e-4)


def test_resumed_after_a_stop_in_the_second_epoch(whole: Path, bert: Path, dev: PairTask, tmp_path: Path) -> None:
    """With four batches an epoch, checkpoint 4 ends the first one and 6 the run; a half-written one is passed over."""
    shutil.copytree(whole, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    (checkpoints / "checkpoint-6" / "trainer_state.json").write_text('{"epoch": 1.5, "best')
    settings = {**SMALL, "max_steps": 6, "validate_every": 2}
    train(bert, TEXTS, output=tmp_path / "run", validate=dev, resume=True, **settings)
    assert same(tmp_path / "run" / "checkpoints" / "checkpoint-6", whole / "checkpoints" / "checkpoint-6")
    with pytest.raises(DataError, match=r"learning_rate was 0\.001 and is 0\.01"):
        train(bert, TEXTS, output=tmp_path / "run", resume=True, **{**settings, "learning_rate": 1e-2}, validate=dev)
    with pytest.raises(DataError, match=r"resume=True\) goes on from there"):
        train(bert, TEXTS, output=tmp_path / "run", **settings)
    changed = SentenceTransformer(str(bert), device="cpu")
    with torch.no_grad():
        next(changed.parameters())[0, 0] += 1
    with pytest.raises(DataError, match=r"model was '.*' and is '"):
        train(changed, TEXTS, output=tmp_path / "run", resume=True, validate=dev, **settings)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("optimizer.pt", "missing"),
        ("rng_state.pth", "shorter"),
        ("projection_head.safetensors", "missing"),
        ("essent/files.json", "shorter"),
    ],
)
def test_a_checkpoint_without_all_of_its_files_is_passed_over(
    whole: Path, tmp_path: Path, name: str, damage: str
) -> None:
    """As a run leaves it that is killed while it writes or removes one; its state can be read."""
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(whole / "checkpoints", checkpoints)
    newest = last_checkpoint(checkpoints)
    assert newest is not None
    file = newest / name
    file.write_bytes(file.read_bytes()[:-1]) if damage == "shorter" else file.unlink()
    previous = last_checkpoint(checkpoints)
    assert previous is not None
    assert previous != newest


def test_partial_files_are_removed(whole: Path, tmp_path: Path) -> None:
    """A run that dies between the digests' rename and the last sync leaves the empty room they were written in."""
    checkpoint = tmp_path / "checkpoint-2"
    newest = last_checkpoint(whole / "checkpoints")
    assert newest is not None
    shutil.copytree(newest, checkpoint)
    process = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    partial = checkpoint / "essent" / f".files.json.{_HOST}-{int(process.stdout)}-0123abcd.partial"
    partial.mkdir()
    check_checkpoint(checkpoint)
    assert not partial.exists()


def test_changed_checkpoint_is_refused(
    whole: Path, bert: Path, dev: PairTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("essent._core.folders.digests.SMALL", 0)
    shutil.copytree(whole, tmp_path / "run")
    newest = last_checkpoint(tmp_path / "run" / "checkpoints")
    assert newest is not None
    content = bytearray((newest / "optimizer.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (newest / "optimizer.pt").write_bytes(content)
    settings = {**SMALL, "max_steps": 6, "validate_every": 2}
    with pytest.raises(DataError, match=rf"optimizer.pt has changed.*Remove .*{newest.name} to go on"):
        train(bert, TEXTS, output=tmp_path / "run", validate=dev, resume=True, **settings)


def test_output_folder_refusals(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}", "utf-8")
    monkeypatch.chdir(tmp_path)
    for folder, reason in ((".", "current folder"), ("other", "holds another model")):
        with pytest.raises(EssentError, match=reason):
            train(bert, TEXTS, output=folder, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_resume_in_a_moved_folder(whole: Path, bert: Path, dev: PairTask, tmp_path: Path) -> None:
    """The state names the best checkpoint by its path, which is not there any more."""
    shutil.copytree(whole, tmp_path / "run")
    for state in (tmp_path / "run" / "checkpoints").glob("*/trainer_state.json"):
        state.write_text(state.read_text("utf-8").replace(str(whole), "/gone"), "utf-8")
    settings = {**SMALL, "max_steps": 6, "validate_every": 2}
    train(bert, TEXTS, output=tmp_path / "run", validate=dev, resume=True, **settings)
    assert same(tmp_path / "run", whole)
    runs = (training_record(tmp_path / "run"), training_record(whole))
    assert runs[0]["steps"] == runs[1]["steps"] == 6  # and no step more
    scored = [[row for row in run["history"] if "eval_spearman" in row] for run in runs]
    assert scored[0] == scored[1]  # nothing was validated again


@pytest.mark.slow
def test_the_best_checkpoint_s_own_bias(bert: Path, dev: PairTask, tmp_path: Path) -> None:
    """The template's vectors that the last validation kept are not those of the checkpoint that is taken back."""
    data = list(zip(TEXTS, TEXTS[1:], TEXTS[2:], strict=False))
    settings = {**SMALL, "max_steps": 6, "validate_every": 2}
    for seed in range(
        6
    ):  # which step is best hangs on rounding, so on the number of threads: one run must have it early
        output = tmp_path / str(seed)
        encoder = train(bert, data, "promptbert-sup", output=output, validate=dev, **{**settings, "seed": seed})
        if training_record(output)["best_step"] < 6:
            break
    assert training_record(output)["best_step"] < 6
    assert verify(str(output)).passed
    np.testing.assert_allclose(Encoder(str(output)).encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)


def test_a_loaded_model_in_half_precision(bert: Path, tmp_path: Path) -> None:
    shell = SentenceTransformer(str(bert), device="cpu").half()
    train(shell, TEXTS, output=tmp_path, max_steps=1, **SMALL)
    assert {weight.dtype for weight in weights(tmp_path).values()} == {torch.float32}
    assert {weight.dtype for weight in shell.parameters()} == {torch.float16}


def test_warnings(folder_of: Callable[[str], Path], caplog: pytest.LogCaptureFixture) -> None:
    encoder = Encoder(str(folder_of("gpt2")), "mean")
    settings = resolve_settings("simcse-unsup", "roberta", {"recipe": "last-token"})
    warn(encoder, settings, as_examples(TEXTS))
    assert not caplog.records
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        setattr(encoder.module.backbone.model.config, name, 0.0)
    warn(encoder, settings, as_examples(TEXTS))
    assert "both views of a text are equal" in caplog.text
    caplog.clear()
    warn(encoder, resolve_settings("simcse-unsup", "roberta", {}), as_examples(list(zip(TEXTS, TEXTS, strict=True))))
    assert "recipe='last-token' does" in caplog.text


def test_ctrl_c_saves_a_checkpoint_and_the_run_goes_on(
    whole: Path, bert: Path, dev: PairTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the third step, between two validations; nothing that was learned is lost."""
    from essent.training.trainer import ContrastiveTrainer

    plain, before = ContrastiveTrainer.training_step, signal.getsignal(signal.SIGINT)

    def training_step(self: Any, *arguments: Any) -> torch.Tensor:
        if self.state.global_step == 2:
            _thread.interrupt_main(signal.SIGINT)
        return plain(self, *arguments)

    settings = {**SMALL, "max_steps": 6, "validate_every": 2}
    with monkeypatch.context() as patch:
        patch.setattr(ContrastiveTrainer, "training_step", training_step)
        with pytest.raises(KeyboardInterrupt, match=r"Stopped after step 3 of 6\. .*checkpoint-3\. .* --resume"):
            train(bert, TEXTS, output=tmp_path / "run", validate=dev, **settings)
    assert signal.getsignal(signal.SIGINT) is before
    assert not (tmp_path / "run" / "training.json").exists()
    notes: list[str] = []
    train(bert, TEXTS, output=tmp_path / "run", validate=dev, resume=True, note=notes.append, **settings)
    assert notes == [f"{tmp_path / 'run'}: going on after step 3 of 6."]
    assert same(tmp_path / "run", whole)


@pytest.mark.slow
def test_a_run_is_extended_and_never_shortened(bert: Path, dev: PairTask, tmp_path: Path) -> None:
    notes: list[str] = []
    resumed = {**SMALL, "output": tmp_path, "validate": dev, "validate_every": 2, "resume": True, "note": notes.append}
    train(bert, TEXTS, max_steps=2, **resumed)
    train(bert, TEXTS, max_steps=2, **resumed)
    train(bert, TEXTS, epochs=1.5, **resumed)  # of four batches each
    assert notes == [
        f"{tmp_path} has no checkpoint to resume from: the run begins at step 0.",
        f"{tmp_path}: all 2 steps are done. More of them (max_steps or epochs) would extend the run.",
        f"{tmp_path}: going on after step 2 of 6.",
    ]
    run = training_record(tmp_path)
    assert (run["steps"], run["extended_after_steps"], run["settings"]["epochs"]) == (6, [2], 1.5)
    assert [row["step"] for row in run["history"] if "eval_spearman" in row] == [0, 2, 4, 6]
    rates = {row["step"]: row["learning_rate"] for row in run["history"] if "learning_rate" in row}
    assert rates[4] == pytest.approx(SMALL["learning_rate"] * (1 - 4 / 6), rel=0.6)  # of the new length
    with pytest.raises(DataError, match="has 6 steps, and 3 would be fewer"):
        train(bert, TEXTS, max_steps=3, **resumed)


@pytest.mark.slow
def test_the_first_step_of_an_extended_run_learns(bert: Path, tmp_path: Path) -> None:
    """The optimizer of a finished run has come to the learning rate 0."""
    settings = {**SMALL, "output": tmp_path, "validate_every": 1}
    train(bert, TEXTS, max_steps=1, **settings)
    train(bert, TEXTS, max_steps=2, resume=True, **settings)
    assert not same(*(tmp_path / "checkpoints" / f"checkpoint-{step}" for step in (1, 2)))


@pytest.mark.parametrize(
    ("preset", "changes", "recipe"),
    [
        ("promptbert-sup", {}, "L-bias"),
        ("simcse-sup", {}, "cls"),
        ("simcse-unsup", {"recipe": "mean"}, "mean"),
        (
            "promptbert-unsup",
            {"objective": "same-template", "projection_head": "none", "precision": "bfloat16"},
            "weights=mask",
        ),
    ],
)
def test_presets(preset: str, changes: dict[str, Any], recipe: str, bert: Path, tmp_path: Path) -> None:
    supervised = preset.endswith("-sup")
    data = list(zip(TEXTS, TEXTS[1:], TEXTS[2:], strict=False)) if supervised else TEXTS
    shell = SentenceTransformer(str(bert), device="cpu")
    before = {name: weight.clone() for name, weight in shell.state_dict().items()}
    encoder = train(shell, data, preset, output=tmp_path, max_steps=2, **SMALL, **changes)
    assert all(torch.equal(before[name], weight) for name, weight in shell.state_dict().items())
    assert recipe in str(encoder.recipe)
    vectors = encoder.encode(TEXTS[:3])
    np.testing.assert_allclose(Encoder(str(tmp_path)).encode(TEXTS[:3]), vectors, atol=1e-6)
    assert training_record(tmp_path)["steps"] == 2
    if changes.get("precision") == "bfloat16":  # what was saved on the way is exact all the same
        assert verify(str(tmp_path / "checkpoints" / "checkpoint-2")).differences["essent"] < 1e-6


@pytest.mark.slow
def test_saved_projection_head(bert: Path, tmp_path: Path, dev: PairTask) -> None:
    encoder = train(
        bert, TEXTS, "simcse-unsup", output=tmp_path, max_steps=2, keep_projection_head=True, validate=dev, **SMALL
    )
    saved = SentenceTransformer(str(tmp_path))
    head = load_file(tmp_path / "checkpoints" / "checkpoint-2" / "projection_head.safetensors")
    expected = np.tanh(encoder.encode(TEXTS) @ head["dense.weight"].numpy().T + head["dense.bias"].numpy())
    np.testing.assert_allclose(saved.encode(TEXTS), expected, atol=1e-5)
    assert dev.run(saved).main_score == pytest.approx(training_record(tmp_path)["best_score"], abs=1e-3)
    with pytest.raises(RecipeError, match="Dense"):
        Encoder(str(tmp_path))
    before = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    settings = {**SMALL, "max_steps": 2, "keep_projection_head": True, "validate": dev}
    train(bert, TEXTS, "simcse-unsup", output=tmp_path, resume=True, **settings)  # there is nothing left to train
    again = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    changed = {str(name) for name in {*before, *again} if before.get(name) != again.get(name)}
    assert changed <= {"training.json", "essent/files.json"}  # the order of what was logged
    assert before.keys() == again.keys()
    with pytest.raises(RecipeError, match="'ditto:1-1' has none"):
        train(
            bert, TEXTS, "simcse-unsup", output=tmp_path / "x", keep_projection_head=True, recipe="ditto:1-1", **SMALL
        )
    with pytest.raises(RecipeError, match="no module that computes the head"):
        train(
            bert,
            TEXTS,
            output=tmp_path / "x",
            keep_projection_head=True,
            projection_head="prediction-transform",
            max_steps=2,
            **SMALL,
        )


def test_a_whitening_head_is_fitted_once_and_resumed(bert: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "projection_head": "whiten", "recipe": "mean", "validate_every": 2, "max_steps": 4}
    train(bert, TEXTS, "simcse-unsup", output=tmp_path / "whole", **settings)
    head = load_file(tmp_path / "whole" / "checkpoints" / "checkpoint-4" / "projection_head.safetensors")
    fitted = Whiten().fit(np.asarray(Encoder(str(bert), "mean").encode(TEXTS), np.float64))
    np.testing.assert_allclose(head["centre"].numpy(), fitted.mean_, atol=1e-5)
    ours, exact = head["matrix"].numpy(), fitted.matrix_  # whose columns may have other signs
    np.testing.assert_allclose(ours @ ours.T, exact @ exact.T, rtol=1e-2)
    whole = weights(tmp_path / "whole")
    train(bert, TEXTS, "simcse-unsup", output=tmp_path / "plain", **{**settings, "projection_head": "none"})
    plain = weights(tmp_path / "plain")
    assert any(not torch.equal(weight, plain[name]) for name, weight in whole.items())
    train(bert, TEXTS, "simcse-unsup", output=tmp_path / "broken", **settings)
    shutil.rmtree(tmp_path / "broken" / "checkpoints" / "checkpoint-4")
    train(bert, TEXTS, "simcse-unsup", output=tmp_path / "broken", resume=True, **settings)
    again = weights(tmp_path / "broken")
    assert all(torch.equal(weight, again[name]) for name, weight in whole.items())


def test_roberta_takes_its_own_templates(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    train(folder_of("roberta"), TEXTS, output=tmp_path, max_steps=1, **SMALL)
    assert training_record(tmp_path)["settings"]["templates"][0] == "This sentence : ' {text} ' means [MASK] ."


def test_loss_in_a_plain_trainer(bert: Path, tmp_path: Path) -> None:
    encoder = Encoder(str(bert), "mean")
    loss = make_loss(encoder, resolve_settings("promptbert-unsup", "bert", {}))
    before = [weight.clone() for weight in loss.parameters()]
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=8,
        max_steps=2,
        learning_rate=1e-3,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    trainer = SentenceTransformerTrainer(
        model=encoder,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict({"text": TEXTS}),
        loss=loss,
        data_collator=make_collator(encoder, loss),
    )
    assert trainer.train().global_step == 2
    moved = [not torch.equal(old, new) for old, new in zip(before, loss.parameters(), strict=True)]
    assert sum(moved) > len(moved) / 2  # all but the pooler and what no view reads


@pytest.mark.slow
def test_nonfinite_loss(bert: Path, tmp_path: Path, dev: PairTask) -> None:
    settings = {**SMALL, "max_steps": 4, "validate_every": 1}
    with pytest.raises(TrainingError, match=r"The loss of step 1 is nan.* no checkpoint yet.*learning rate"):
        train(spoiled(bert), TEXTS, output=tmp_path / "nan", **settings)
    with pytest.raises(TrainingError, match=r"(The loss of step|After step) \d.*1e\+30"):
        train(bert, TEXTS, output=tmp_path / "steep", **{**settings, "learning_rate": 1e30})
    assert not list((tmp_path / "steep" / "checkpoints").glob("checkpoint-[2-9]"))
    with pytest.raises(TrainingError, match=r"Step 0 cannot be validated: The vector of .* is not finite"):
        train(spoiled(bert), TEXTS, output=tmp_path / "validated", validate=dev, **settings)


def spoiled(model: Path) -> SentenceTransformer:
    """A model with one weight that is no number."""
    shell = SentenceTransformer(str(model), device="cpu")
    with torch.no_grad():
        next(p for n, p in shell.named_parameters() if "layer.2" in n and "output.dense.weight" in n)[0, 0] = torch.nan
    return shell


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Writing beyond `size` bytes fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.slow
def test_a_full_disk(bert: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "max_steps": 4, "validate_every": 2}
    train(bert, TEXTS, output=tmp_path, **{**settings, "max_steps": 2})
    good = weights(tmp_path / "checkpoints" / "checkpoint-2")
    for size in (20_000, 300_000):  # the model does not fit; the model does and the optimizer does not
        with (
            files_up_to(size),
            pytest.raises(TrainingError, match=r"step 4 cannot be written.*checkpoint-2\. Free some"),
        ):
            train(bert, TEXTS, output=tmp_path, resume=True, **settings)
        assert not (tmp_path / "checkpoints" / "checkpoint-4").exists()
    again = weights(tmp_path / "checkpoints" / "checkpoint-2")
    assert all(torch.equal(good[name], again[name]) for name in good)
    train(bert, TEXTS, output=tmp_path, resume=True, **settings)
    assert training_record(tmp_path)["steps"] == 4


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        ([], {}, "at least two different texts, got 0"),
        (["one sentence"], {}, "got 1: every text's negatives"),
        (["same", "same", " "], {}, "got 1"),
        ("a text", {}, "list of texts, pairs or triplets, not str"),
        (["a", None], {}, "Example 1 is 'None' .NoneType"),
        ([("a", "b"), ("a",)], {}, "Example 1 has 1 texts, the first one 2"),
        ([("a", "b"), ("a", "")], {}, "Example 1 has a blank text"),
        (TEXTS, {"batch_size": 256}, "batch_size=256 is larger than the 16 examples: take a batch_size of at most 16"),
        (TEXTS, {"batch_size": 1}, "take at least 2"),
        (TEXTS, {"device": "tpu"}, "device='tpu': on this machine training runs on .*'cpu'"),
        (TEXTS, {"precision": "float16"}, "'float16' needs a GPU"),
    ],
)
def test_refusals(data: Any, settings: dict[str, Any], message: str, bert: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        train(bert, data, output=tmp_path / "out", **{**SMALL, **settings})
    assert not (tmp_path / "out").exists()


def test_refusals_of_the_model_and_task(bert: Path, dev: PairTask, tmp_path: Path) -> None:
    flat = PairTask("flat", tuple(pair._replace(score=1.0) for pair in dev.pairs))
    with pytest.raises(InputError, match="All gold scores of 'flat' are equal"):
        train(bert, TEXTS, output=tmp_path / "out", validate=flat, **SMALL)
    with pytest.raises(RecipeError, match="counts tokens, which nothing does in training"):
        train(bert, TEXTS, "simcse-unsup", output=tmp_path / "out", recipe="first-last-tfidf", **SMALL)
    long = f'"{{text}}" means [MASK]{" and so on" * 120} .'
    with pytest.raises(UnsupportedRecipeError, match="tokens, and the model reads 256, text included"):
        train(bert, TEXTS, output=tmp_path / "out", objective="same-template", templates=long, **SMALL)
    assert not (tmp_path / "out").exists()


def test_output_is_a_file(bert: Path, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(DataError, match="is a file"):
        train(bert, TEXTS, output=tmp_path / "out", **SMALL)


def test_only_checkpoints_of_a_run_are_removed(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    (checkpoints / "checkpoint-5").mkdir(parents=True)
    with pytest.raises(DataError, match="is not essent's"):
        remove_checkpoints(checkpoints)
    (checkpoints / "run.json").write_text("{}")
    remove_checkpoints(checkpoints)
    assert tmp_path.is_dir()
    assert not checkpoints.exists()
    remove_checkpoints(checkpoints)  # there are none
