"""Masked language modelling, from scratch or continued: texts in, a plain transformers folder out.

Source: Devlin et al. 2019 (the objective); PromptBERT, App. A.2 and Table 12 (an output matrix tied to the static
embeddings, or not).
"""

from __future__ import annotations

import copy
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from essent.pretrain.folder import RunFolder
from essent.pretrain.settings import Pretraining
from essent.pretrain.start import Prepared, Start, prepare
from essent.tasks import library_versions
from essent.train import find_device, has_bf16, where_it_goes_on
from essent.types import InputError, optional_import

PILOT = 8  # steps that a run of so many minutes is planned by
SHARE = 0.95  # of the minutes for steps, the rest for validation and checkpoints


@dataclass(frozen=True)
class Pretrained:
    """What came of a run; `loss` (nats) and `accuracy` are of the masked tokens of the held-out texts.

    `curve` has rows with step, loss and learning_rate, and rows with step, held_out_loss and held_out_accuracy.
    """

    folder: Path
    steps: int
    tokens: int
    loss: float
    accuracy: float
    tokens_per_second: float
    curve: tuple[dict[str, float], ...]


@dataclass(frozen=True)
class Show:
    """How a run shows itself: a bar, and a function that is called with a line about each validation."""

    progress: bool = False
    note: Callable[[str], None] = lambda line: None


def pretrain(
    texts: Sequence[str],
    output: str | Path,
    start: Start,
    settings: Pretraining,
    *,
    held_out: Sequence[str] | None = None,
    resume: bool = False,
    force: bool = False,
    device: str | None = None,
    show: Show | None = None,
) -> Pretrained:
    """Train a masked language model on texts; save it as a transformers folder with `training.json` about the run.

    Args:
        texts: to learn from; of equal texts one.
        output: the folder to write. Checkpoints stand below it until the run is done.
        start: the model, or what a new one is like.
        settings: of the run.
        held_out: texts to measure on; by default one in a hundred of `texts`.
        resume: go on from the last whole checkpoint in `output`; on a CPU the same bytes come out as without a break.
        force: replace a model that is there, and drop the checkpoints of an unfinished run.
        device: "cpu", "cuda" or another accelerator of this machine, or None for the best there is.

    Raises:
        InputError: texts or settings that cannot be trained on, or a device that is not there.
        ModelError: no masked language model there.
        DataError: `output` holds something else.
        TrainingError: a loss that is no number, or a folder that cannot be written; the last good checkpoint stays.
        KeyboardInterrupt: it was stopped, after a checkpoint; says at which step.
        MissingDependencyError: without the extra `train`.
    """
    optional_import("accelerate", "train")
    kind = find_device(device)
    folder = RunFolder(Path(output), resume=resume, force=force)
    prepared = prepare(texts, held_out, start, settings)
    return _Run(folder, prepared, settings, kind, show or Show()).go()


class _Run:
    """The parts of one run, in the order in which they are made; `about` becomes training.json."""

    def __init__(self, folder: RunFolder, prepared: Prepared, settings: Pretraining, device: str, show: Show) -> None:
        self.folder, self.prepared, self.settings = folder, prepared, settings
        self.device, self.show = device, show
        self.about = prepared.about(settings)
        self.precision = settings.precision or ("bfloat16" if has_bf16(device) else "float32")

    def go(self) -> Pretrained:
        """Load or build the model, train it, save it."""
        from essent.pretrain.model import MaskedHead, open_model

        planned, start = self.folder.settled(self.about), self.prepared.start
        model, new = open_model(
            start.model,
            self.prepared.config,
            dict(start.options),
            untied=self.settings.untied,
            seed=self.settings.seed,
        )
        self.about["new_weights"] = "all" if start.model is None else new
        if new and start.model is not None:
            self.show.note(
                f"The model has no weights for its prediction head ({', '.join(new)}): they begin at random."
            )
        steps = planned or self._steps(model)
        if self.settings.warmup >= max(1, steps):
            raise InputError(
                f"warmup={self.settings.warmup:g} steps of a run of {steps}: the learning rate would never reach its "
                "height. Give fewer, or a share below 1."
            )
        self.folder.begin(self.about, steps)
        head = MaskedHead(model)
        try:
            alone = head.agrees(torch.from_numpy(self.prepared.train.ids[:2]).long())
            if not alone:
                self.show.note("This model's head cannot run on the masked tokens alone; it runs on all of them.")
            return self._train(model, head if alone else None, steps)
        finally:
            head.close()

    def _steps(self, model: Any) -> int:
        """How many steps the run has."""
        settings = self.settings
        if settings.max_steps is not None:
            return settings.max_steps
        if settings.epochs is not None:
            processes = int(os.environ.get("WORLD_SIZE", "1"))
            per_step = settings.sequences_at_once(processes) * settings.parts * processes
            return max(1, math.ceil(settings.epochs * len(self.prepared.train) / per_step))
        return self._steps_in(float(settings.minutes or 0), model)

    def _steps_in(self, minutes: float, model: Any) -> int:
        """Time a few steps of a copy of the model."""
        from essent.pretrain.model import MaskedHead
        from essent.pretrain.trainer import Stopwatch

        watch, trial = Stopwatch(), copy.deepcopy(model)
        with tempfile.TemporaryDirectory() as folder:
            trainer = self._trainer(trial, MaskedHead(trial), PILOT, Path(folder), measured=False)
            if trainer.args.world_size > 1:
                raise InputError("minutes= is for a run of one process; give steps or epochs.")
            trainer.add_callback(watch)
            trainer.train()
        steps = max(1, int(60 * SHARE * minutes / watch.typical))
        self.show.note(f"{watch.typical:.2f} s a step: {steps} steps in {minutes:g} minutes.")
        return steps

    def _trainer(self, model: Any, head: Any, steps: int, folder: Path, *, measured: bool = True) -> Any:
        from essent.pretrain.data import HeldOut, Masking, RunOrder
        from essent.pretrain.trainer import MaskedTrainer, arguments_of

        settings, prepared = self.settings, self.prepared
        arguments = arguments_of(settings, steps, folder, device=self.device, precision=self.precision)
        if measured:
            arguments.eval_on_start = self.folder.resumed is None
        else:
            arguments.eval_strategy = arguments.save_strategy = "no"
        sequences = arguments.per_device_train_batch_size * settings.parts * max(1, arguments.world_size)
        masking = Masking(
            prepared.tokenizer, settings.mask_probability, whole_words=settings.whole_words, seed=settings.seed
        )
        self.about |= {
            "tokens_per_step": sequences * settings.max_seq_length,
            "precision": self.precision,
            "device": arguments.device.type,
            "processes": arguments.world_size,
        }
        return MaskedTrainer(
            model,
            arguments,
            head,
            data_collator=masking,
            train_dataset=RunOrder(prepared.train, steps * sequences, settings.seed),
            eval_dataset=HeldOut(prepared.held_out) if measured else None,
            processing_class=prepared.tokenizer,
        )

    def _train(self, model: Any, head: Any, steps: int) -> Pretrained:
        from essent.pretrain.trainer import HeadFirst, Progress
        from essent.train import StopGently, stopped

        trainer = self._trainer(model, head, steps, self.folder.checkpoints)
        per_step = self.about["tokens_per_step"]
        stop, shown = StopGently(), Progress(self.show.progress, self.show.note, per_step)
        trainer.add_callback(stop)
        trainer.add_callback(shown)
        if self.settings.head_first:
            trainer.add_callback(HeadFirst(self.settings.head_first))
        resumed = self.folder.resumed
        if self.folder.resume:
            self.show.note(where_it_goes_on(self.folder.output, resumed, steps))
        begun = time.monotonic()
        with stop.listening():
            trainer.train(resume_from_checkpoint=None if resumed is None else str(resumed))
        seconds, done = max(time.monotonic() - begun, 1e-9), trainer.state.global_step
        if done < steps:
            raise stopped(trainer.state, self.folder.checkpoints)
        curve = curve_of(trainer.state.log_history)
        last = next(row for row in reversed(curve) if "held_out_loss" in row)
        speed = (done - shown.first) * per_step / seconds
        self.about |= {
            "steps": done,
            "held_out_loss": last["held_out_loss"],
            "held_out_accuracy": last["held_out_accuracy"],
            "seconds": round(seconds, 1),
            "tokens_per_second": round(speed),
            "curve": curve,
            "versions": library_versions(),
        }
        if trainer.is_world_process_zero():
            self.folder.finish(trainer.accelerator.unwrap_model(trainer.model), self.prepared.tokenizer, self.about)
        loss, accuracy = last["held_out_loss"], last["held_out_accuracy"]
        return Pretrained(self.folder.output, done, done * per_step, loss, accuracy, speed, tuple(curve))


def curve_of(history: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """The trainer's log as rows of the curve, one a step and kind (a resumed run may log a step twice)."""
    rows: dict[tuple[float, str], dict[str, float]] = {}
    for entry in history:
        step = entry["step"]
        if "eval_loss" in entry:
            found = {"held_out_loss": entry["eval_loss"], "held_out_accuracy": entry["eval_accuracy"]}
            rows[step, "held out"] = {"step": step, **found}
        elif "loss" in entry:
            rows[step, "loss"] = {"step": step, "loss": entry["loss"], "learning_rate": entry["learning_rate"]}
    return list(rows.values())
