"""sentence-transformers' trainer for encoders: complete checkpoints that include the head, no step on a NaN loss.

Import this only when training starts: it needs accelerate and datasets (the extra `train`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from transformers import PrinterCallback

from essent._core.display import can_show_bar
from essent.encoder.encoder import Encoder
from essent.errors import InputError, NotFiniteError, TrainingError
from essent.tasks.base import LabeledTask
from essent.training.checkpoints import (
    LossBar,
    check_checkpoint,
    checkpoint_note,
    is_whole,
    writing_checkpoint,
)
from essent.training.device import on_device, quick_dropout
from essent.training.examples import Examples
from essent.training.loss import ContrastiveLoss, ShuffledBatches, ViewCollator
from essent.training.parameters import adapter_weights, merged
from essent.training.settings import Settings

HEAD_FILE, ADAPTER_FILE = "projection_head.safetensors", "lora.safetensors"
UNDEFINED = -100.0  # replaces an undefined correlation: the lowest score ×100


def make_trainer(
    encoder: Encoder,
    loss: ContrastiveLoss,
    examples: Examples,
    settings: Settings,
    checkpoints: Path,
    collator: ViewCollator,
    task: LabeledTask | None = None,
    *,
    progress: bool = False,
) -> ContrastiveTrainer:
    """Create the trainer of a run without starting it; `task` chooses the best of its `checkpoints`."""
    validates = task is not None
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(checkpoints),
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        seed=settings.seed,
        save_strategy="steps",
        save_steps=settings.validate_every,
        save_total_limit=2,  # the last and the best
        logging_steps=min(settings.validate_every, 50),
        report_to="none",
        disable_tqdm=True,  # LossBar is the bar
        **on_device(encoder.device.type, settings.precision),
        batch_sampler=ShuffledBatches,
        eval_strategy="steps" if validates else "no",
        eval_steps=settings.validate_every,
        eval_on_start=validates,
        load_best_model_at_end=validates,
        greater_is_better=True,
        metric_for_best_model=None if task is None else task.score_names[0],
    )
    if arguments.n_gpu > 1:  # one process on several GPUs would multiply the batch; torchrun starts one per GPU
        arguments._n_gpu = 1
    trainer = ContrastiveTrainer(
        encoder,
        loss=loss,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict(examples.columns()),
        evaluator=None if task is None else TaskScore(task),
        data_collator=collator,
    )
    trainer.remove_callback(PrinterCallback)  # prints to standard output
    if progress and can_show_bar():
        trainer.add_callback(LossBar())
    return trainer


class TaskScore(BaseEvaluator):
    """Evaluator that returns the main score ×100 of a task: Spearman's correlation, accuracy ….

    Args:
        task: labels of any kind.
    """

    def __init__(self, task: LabeledTask) -> None:
        super().__init__()
        self.task = task
        self.primary_metric = task.score_names[0]
        self.greater_is_better = True

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the score with its name, {"spearman": …}; an undefined score (all vectors equal) becomes the lowest.

        Raises:
            TrainingError: vectors that are not finite; names the step.
        """
        try:
            with exact_forward(model):
                score = self.task.run(model).main_score
        except InputError as error:  # a vector that is not finite
            note = checkpoint_note(Path(output_path).parent) if output_path else ""
            raise TrainingError(f"Validation at step {steps} failed: {error} {note}") from error
        metrics = {str(self.primary_metric): score if score == score else UNDEFINED}
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)  # type: ignore[arg-type]
        return metrics


@contextlib.contextmanager
def exact_forward(model: Any) -> Iterator[None]:
    """Use the model's own forward pass in this block: for mixed precision, accelerate replaces it with a 16-bit one."""
    wrapped = {name: vars(model).pop(name) for name in ("forward", "_original_forward") if name in vars(model)}
    try:
        yield
    finally:
        vars(model).update(wrapped)


class ContrastiveTrainer(SentenceTransformerTrainer):
    """The trainer of `essent.training`, for an Encoder with a `ContrastiveLoss`."""

    model: Any  # the encoder
    loss: Any  # a ContrastiveLoss
    last_loss = math.nan

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Record the run for the model card, without widgets of random training texts and the bar of computing them."""
        card = self.model.model_card_data
        card.set_widget_examples = lambda dataset: None
        super().add_model_card_callback(default_args_dict)
        del card.set_widget_examples

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """Run one step; the weights do not change if the loss is not finite.

        Raises:
            TrainingError: the loss is not finite; names the step and the last valid checkpoint.
        """
        with quick_dropout(self.args.device.type, model):
            loss = super().training_step(model, inputs, num_items_in_batch)
        self.last_loss = float(loss)
        if not math.isfinite(self.last_loss):
            reason = f"The loss of step {self.state.global_step + 1} is {self.last_loss}."
            raise self._broken(reason, Path(str(self.args.output_dir)))
        return loss

    def _broken(self, reason: str, checkpoints: Path) -> TrainingError:
        return TrainingError(
            f"{reason} {checkpoint_note(checkpoints)} Try a learning rate below {self.args.learning_rate:g}, or "
            "precision='float32'."
        )

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with writing_checkpoint(self):
            super()._save_checkpoint(model, trial)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Save the encoder as a folder that Encoder loads, and the head next to it.

        Saving draws random numbers. Their state is restored, so an extra checkpoint (after Ctrl-C) changes no dropout.
        """
        folder = Path(str(output_dir or self.args.output_dir))
        after = f"After step {self.state.global_step}"
        for name, weight in self.loss.named_parameters():
            if not torch.isfinite(weight).all():
                raise self._broken(f"{after} the weights {name} are not finite.", folder.parent)
        head = {key: value.contiguous() for key, value in self.loss.projection_head.state_dict().items()}
        adapters = adapter_weights(self.model.module.backbone.model)

        def finish(directory: Path, reason: str) -> None:
            save_file(head, directory / HEAD_FILE)
            if adapters:
                save_file(adapters, directory / ADAPTER_FILE)

        try:
            with exact_forward(self.model), torch.random.fork_rng(devices=()), merged(self.model):
                self.model.write_folder(folder, "stock", finish)
        except NotFiniteError as error:  # finite but huge weights give such vectors
            raise self._broken(f"{after} no vector is finite: {error}", folder.parent) from error

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Load the weights of the encoder, or its adapters, and the head that `_save` wrote."""
        path = Path(resume_from_checkpoint)
        check_checkpoint(path)
        backbone, adapters = self.model.module.backbone, path / ADAPTER_FILE
        if adapters.is_file():  # the model's other weights did not change
            backbone.model.load_state_dict(load_file(adapters), strict=False)
        else:
            backbone.model.load_state_dict(Encoder(str(path), device="cpu").module.backbone.model.state_dict())
        backbone.forget_states()  # the last validation cached those of the earlier weights
        self.loss.projection_head.load_state_dict(load_file(path / HEAD_FILE))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load the optimizer, and set the learning rate for the current length of the run, which may be extended.

        The optimizer of a finished run has the learning rate 0.
        """
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self.optimizer is not None:
            schedule: Any = getattr(self.lr_scheduler, "scheduler", self.lr_scheduler)  # accelerate wraps it
            rates = zip(self.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True)
            for group, base, factor in rates:
                group["lr"] = base * factor(schedule.last_epoch)

    def _load_best_model(self) -> None:
        """Load the best checkpoint of a finished run, by its step: the path in the state is outdated after a move."""
        if self.state.global_step >= self.state.max_steps:
            best = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.best_global_step}"
            if not is_whole(best):
                raise TrainingError(f"The best checkpoint {best} is missing or damaged. Start over (force=True).")
            self._load_from_checkpoint(str(best))
