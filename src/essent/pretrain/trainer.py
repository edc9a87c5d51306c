"""transformers' trainer for masked language models: logits at masked tokens only, no step on a broken loss.

Import this where training begins: it needs accelerate (the extra `train`).
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from tqdm import tqdm
from transformers import EvalPrediction, PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainingArguments

from essent.pretrain.model import MaskedHead
from essent.pretrain.settings import DECAY, SCHEDULES, Pretraining
from essent.train import left_over, on_device, writing_checkpoint
from essent.types import TrainingError

IGNORED = -100  # the label of a token that is not predicted
VALIDATIONS = 10  # in a run, when nobody says
LOGGED = 100  # losses in the curve of a run, about


def arguments_of(settings: Pretraining, steps: int, folder: Path, *, device: str, precision: str) -> TrainingArguments:
    """The settings in the trainer's terms."""
    validate = settings.validate_every or max(1, math.ceil(steps / VALIDATIONS))
    decay = {"num_decay_steps": max(1, round(DECAY * steps)), "decay_type": "1-sqrt"}
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=SCHEDULES[settings.schedule],
        lr_scheduler_kwargs=decay if settings.schedule == "warmup-stable-decay" else None,
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        gradient_accumulation_steps=settings.parts,
        seed=settings.seed,
        train_sampling_strategy="sequential",  # the data come in their order
        eval_strategy="steps",
        eval_steps=validate,
        save_strategy="steps",
        save_steps=settings.save_every or validate,
        save_total_limit=2,
        logging_steps=max(1, steps // LOGGED),
        logging_nan_inf_filter=False,  # training_step stops there
        label_names=["labels"],
        remove_unused_columns=False,
        report_to="none",
        log_level="error",
        disable_tqdm=True,  # its bar prints the log to standard output
        **on_device(device, precision),
    )
    if arguments.n_gpu > 1:  # one process on several GPUs; torchrun starts one for each
        arguments._n_gpu = 1
    arguments.per_device_train_batch_size = settings.sequences_at_once(arguments.world_size)
    arguments.per_device_eval_batch_size = arguments.per_device_train_batch_size
    return arguments


def loss_at_masks(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    """Cross-entropy of the masked tokens of (B,T), their mean over the whole step."""
    chosen = labels != IGNORED
    targets = labels[chosen]  # (M,)
    total = functional.cross_entropy(_logits_at(outputs, chosen), targets, reduction="sum")
    count = targets.numel() if num_items_in_batch is None else num_items_in_batch
    return total / torch.as_tensor(count, device=total.device).clamp(min=1)


def _logits_at(outputs: Any, chosen: torch.Tensor) -> torch.Tensor:
    """Logits of the chosen tokens (M,V), whether the model computed them alone or for all (B,T)."""
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    whole = logits.shape[:-1] == chosen.shape and int(chosen.sum()) != chosen.numel()
    found = logits[chosen] if whole else logits.reshape(-1, logits.shape[-1])
    return found if found.dtype == torch.float64 else found.float()  # a loss of bf16 logits has two digits


def masked_accuracy(evaluated: EvalPrediction) -> dict[str, float]:
    """Mean loss (nats) over the masked tokens, and the share of them whose most probable token is the right one."""
    found: Any = evaluated.predictions
    labels: Any = evaluated.label_ids
    losses, hits = found
    count = int((labels != IGNORED).sum())
    if count == 0:
        return {"loss": math.nan, "accuracy": math.nan}
    return {"loss": float(losses.sum(dtype="float64")) / count, "accuracy": float(hits.sum()) / count}


class MaskedTrainer(Trainer):
    """transformers' trainer, with logits where something is predicted only, if the model allows (`MaskedHead`)."""

    def __init__(self, model: Any, arguments: TrainingArguments, mlm_head: MaskedHead | None, **parts: Any) -> None:
        super().__init__(model, arguments, compute_loss_func=loss_at_masks, compute_metrics=masked_accuracy, **parts)
        self.mlm_head = mlm_head
        self.remove_callback(PrinterCallback)
        self.remove_callback(ProgressCallback)
        self.add_callback(FiniteGradients)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """transformers' own, with the head at the masked tokens."""
        with self._at(inputs["labels"]):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """One step; the weights are not touched when its loss is no number.

        Raises:
            TrainingError: names the step and the last good checkpoint.
        """
        loss = super().training_step(model, inputs, num_items_in_batch)
        if not torch.isfinite(loss):
            raise broken(self.args, self.state.global_step + 1, f"loss is {float(loss)}")
        return loss

    def prediction_step(  # type: ignore[override]  # a pair of tensors, as the trainer's own does
        self, model: Any, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[None, tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
        """Losses and hits (B,T), 0 where nothing is predicted: what has to be kept is small, not a row of V a token."""
        inputs = self._prepare_inputs(inputs)
        labels = inputs.pop("labels")
        chosen = labels != IGNORED
        losses = torch.zeros(labels.shape, device=labels.device)
        hits = torch.zeros_like(losses)
        with torch.no_grad(), self._at(labels), self.compute_loss_context_manager():
            logits = _logits_at(model(**inputs), chosen)  # (M,V)
            losses[chosen] = functional.cross_entropy(logits, labels[chosen], reduction="none")
            hits[chosen] = (logits.argmax(dim=-1) == labels[chosen]).float()
        return None, (losses, hits), labels

    def _at(self, labels: torch.Tensor) -> contextlib.AbstractContextManager[None]:
        chosen = (labels != IGNORED).to(self.args.device)
        return contextlib.nullcontext() if self.mlm_head is None else self.mlm_head.at(chosen)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with writing_checkpoint(self):
            super()._save_checkpoint(model, trial)


def broken(arguments: TrainingArguments, step: int, what: str) -> TrainingError:
    """The error of a step that must not be made."""
    return TrainingError(
        f"Step {step}: the {what}. {left_over(Path(str(arguments.output_dir)))} A lower learning rate (it is "
        f"{arguments.learning_rate:g}), a longer warmup or precision='float32' may help."
    )


# -- callbacks --------------------------------------------------------------------------------------------------------


class FiniteGradients(TrainerCallback):
    """Stops before a step with gradients that are no numbers: its checkpoint would be no good."""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Gradients have been clipped; a norm that is not finite left NaN in them."""
        gradients = [weight.grad for weight in kwargs["model"].parameters() if weight.grad is not None]
        if not torch.isfinite(torch.nn.utils.get_total_norm(gradients)):
            raise broken(args, state.global_step + 1, "gradients are no numbers")


class HeadFirst(TrainerCallback):
    """Holds the encoder as it is while the prediction head learns its first steps.

    Args:
        steps: how many; below 1 a share of all.
    """

    def __init__(self, steps: float) -> None:
        self.steps = steps

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Which weights learn depends on the number of the step alone, so that a run can be resumed anywhere."""
        last = self.steps if self.steps >= 1 else math.ceil(self.steps * state.max_steps)
        model = kwargs["model"]
        getattr(model, model.base_model_prefix).requires_grad_(state.global_step >= last)


class Progress(TrainerCallback):
    """A bar on standard error with the last loss and accuracy, and one note a validation."""

    def __init__(self, show: bool, note: Callable[[str], None], tokens: int) -> None:
        self.show, self.note, self.tokens = show, note, tokens
        self.bar: Any = None
        self.began, self.first = time.monotonic(), 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the bar where the run stands."""
        self.began, self.first = time.monotonic(), state.global_step
        self.bar = tqdm(
            total=state.max_steps, initial=state.global_step, unit="step", disable=not self.show, dynamic_ncols=True
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """One step on."""
        self.bar.update(state.global_step - self.bar.n)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """The last loss beside the bar."""
        if logs and "loss" in logs:
            self.bar.set_postfix(loss=f"{logs['loss']:.3f}")

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Held-out loss and accuracy, and the speed so far."""
        if metrics is None or not state.is_world_process_zero:
            return
        done = state.global_step - self.first
        speed = f", {done * self.tokens / (time.monotonic() - self.began):,.0f} tokens/s" if done else ""
        with tqdm.external_write_mode():
            self.note(
                f"Step {state.global_step} of {state.max_steps}: held-out loss {metrics['eval_loss']:.3f}, accuracy "
                f"{metrics['eval_accuracy']:.3f}{speed}"
            )

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the bar."""
        self.bar.close()


class Stopwatch(TrainerCallback):
    """Seconds of each step; the first ones are slower."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start."""
        self._began = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop."""
        self.seconds.append(time.monotonic() - self._began)

    @property
    def typical(self) -> float:
        """The median, without the first two."""
        return statistics.median(self.seconds[2:])
