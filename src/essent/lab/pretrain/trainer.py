"""transformers' trainer for masked language models: logits at masked tokens only, no step on broken gradients.

Import this where training begins: it needs accelerate (the extra `train`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from tqdm import tqdm
from transformers import EvalPrediction, PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainingArguments

from essent.errors import TrainingError
from essent.lab.pretrain.data import IGNORED, mask
from essent.lab.pretrain.model import logits_at
from essent.lab.pretrain.settings import Pretraining
from essent.training.checkpoints import left_over, writing_checkpoint
from essent.training.device import on_device, quick_dropout

VALIDATION, LOG = 0.1, 0.01  # how often, by default, in shares of the run


def arguments_of(settings: Pretraining, folder: Path, *, device: str, precision: str) -> TrainingArguments:
    """The settings as transformers' training arguments; checkpoints are written below `folder`."""
    often = settings.validate_every or VALIDATION
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=settings.max_steps or -1,
        num_train_epochs=settings.epochs or 1,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup,
        weight_decay=0.01,  # BERT's; transformers leaves out biases and normalisations
        seed=settings.seed,
        data_seed=settings.seed,
        eval_strategy="steps",
        eval_steps=often,
        save_strategy="steps",
        save_steps=often,
        save_total_limit=2,
        logging_steps=LOG,
        logging_nan_inf_filter=False,  # `FiniteGradients` stops there
        label_names=["labels"],
        remove_unused_columns=False,
        report_to="none",
        log_level="error",
        disable_tqdm=True,  # its bar prints the log to standard output
        **on_device(device, precision),
    )
    if arguments.n_gpu > 1:  # one process on several GPUs would multiply the batch; torchrun starts one for each
        arguments._n_gpu = 1
    arguments.per_device_train_batch_size = max(1, settings.batch_size // arguments.world_size)
    arguments.per_device_eval_batch_size = arguments.per_device_train_batch_size
    return arguments


def masked_scores(evaluated: EvalPrediction) -> dict[str, float]:
    """Mean loss (nats) over the masked tokens, and the share of them whose most probable token is the right one."""
    predictions: Any = evaluated.predictions
    losses, hits = predictions
    count = int(np.count_nonzero(evaluated.label_ids != IGNORED))
    return {"masked_loss": float(losses.sum(dtype="float64")) / count, "masked_accuracy": float(hits.sum()) / count}


class MaskedTrainer(Trainer):
    """transformers' trainer, with masks that are drawn at each step and logits of the masked tokens alone.

    Args:
        masking: from `masking_of`. Its masks come from torch's random numbers, whose state is in every checkpoint, so
            that a resumed run has the masks of one without a break. Rows that have labels keep their masks.
        parts: keyword arguments of transformers' trainer.
    """

    def __init__(self, model: Any, arguments: TrainingArguments, masking: Any, **parts: Any) -> None:
        super().__init__(model, arguments, compute_metrics=masked_scores, **parts)
        self.masking = masking
        self.remove_callback(PrinterCallback)
        self.add_callback(FiniteGradients)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Mean cross-entropy (nats) of the masked tokens; as outputs the losses and hits (B,T), 0 at other tokens."""
        if "labels" not in inputs:
            inputs = mask(inputs, self.masking)
        labels = inputs["labels"]
        chosen = labels != IGNORED  # (B,T)
        with logits_at(self.model, chosen):
            logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        logits = logits.reshape(-1, logits.shape[-1]).float()  # (M,V); a loss of bf16 logits has two digits
        losses = functional.cross_entropy(logits, labels[chosen], reduction="none")
        loss = losses.sum() / max(1, len(losses))
        if not return_outputs:
            return loss
        whole = torch.zeros(2, *labels.shape, device=labels.device)
        whole[:, chosen] = torch.stack([losses, (logits.argmax(dim=-1) == labels[chosen]).float()])
        return loss, {"losses": whole[0], "hits": whole[1]}

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """One step of transformers' own, with quick dropout on a CPU."""
        with quick_dropout(self.args.device.type, model):
            return super().training_step(model, inputs, num_items_in_batch)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with writing_checkpoint(self):
            super()._save_checkpoint(model, trial)


class FiniteGradients(TrainerCallback):
    """Stops before a step whose loss or gradients are infinite or not a number: it would ruin the weights."""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Gradients have been clipped: a norm that was not finite has left NaN in them."""
        gradients = [weight.grad for weight in kwargs["model"].parameters() if weight.grad is not None]
        if not torch.isfinite(torch.nn.utils.get_total_norm(gradients)):
            raise TrainingError(
                f"Step {state.global_step + 1}: the loss or its gradients are not finite. "
                f"{left_over(Path(str(args.output_dir)))} A lower learning rate (it is {args.learning_rate:g}), a "
                "longer warmup or precision='float32' may help."
            )


class Bar(ProgressCallback):
    """transformers' progress bar, with the last loss beside it instead of the whole log on standard output."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Show the last loss."""
        if self.training_bar is not None and "loss" in logs:
            self.training_bar.set_postfix(loss=f"{logs['loss']:.3f}")


class Notes(TrainerCallback):
    """Calls `note` with a line about each validation."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.note = note

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Say the held-out loss and accuracy."""
        if state.is_world_process_zero:
            with tqdm.external_write_mode():
                self.note(
                    f"Step {state.global_step} of {state.max_steps}: held-out loss {metrics['eval_masked_loss']:.3f}, "
                    f"accuracy {metrics['eval_masked_accuracy']:.3f}"
                )
