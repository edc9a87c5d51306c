"""Train masked language models, new or existing, with resumable runs; the output is a plain transformers folder.

The trainer is transformers' own, with logits of masked tokens only, and no step on gradients that are not finite.

Source: Devlin et al. 2019 (the objective); PromptBERT, App. A.2 and Table 12 (an output matrix tied to the static
embeddings, or not).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from tqdm import tqdm
from transformers import (
    DataCollatorForLanguageModeling,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

from essent._core.atomic import remove_leftovers, replacing_folder, require_replaceable
from essent._core.folders.files import is_read
from essent._core.lazy import optional_import
from essent._core.machine import has_bfloat16
from essent.errors import DataError, InputError, TrainingError
from essent.lab.pretrain.data import IGNORED, in_frames, mask, masked_once, pack, split_texts
from essent.lab.pretrain.model import fit_config, logits_at, open_model, open_tokenizer, read_config
from essent.lab.pretrain.settings import Pretraining, Start
from essent.tasks.result import library_versions
from essent.training import checkpoints
from essent.training.device import find_device, on_device, quick_dropout

HISTORY = "training.json"
VALIDATION, LOG = 0.1, 0.01  # default intervals, as shares of the run


@dataclass(frozen=True)
class Pretrained:
    """The result of a run.

    Attributes:
        folder, steps: the folder of the model, and the number of steps.
        loss, accuracy: loss (nats) and accuracy on the masked tokens of the held-out texts.
        history: the log of transformers' trainer: rows with `step` and either `loss` and `learning_rate`, or
            `eval_masked_loss` and `eval_masked_accuracy`.

    Example:
        >>> from essent.lab.pretrain import Pretraining, Start, pretrain
        >>> texts = ["A man plays a flute.", "Two dogs run through a field.", "It rains.", "The shop is closed."]
        >>> outcome = pretrain(texts, "further", Start("my-mlm"), Pretraining(max_steps=1, batch_size=1))
        >>> outcome.folder.name, outcome.steps, [row["step"] for row in outcome.history if "eval_masked_loss" in row]
        ('further', 1, [0, 1])
    """

    folder: Path
    steps: int
    loss: float
    accuracy: float
    history: tuple[dict[str, float], ...]


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
    progress: bool = False,
    note: Callable[[str], None] = lambda line: None,
) -> Pretrained:
    """Train a masked language model on texts and save it as a transformers folder that includes `training.json`.

    Args:
        texts: texts to learn from; each different text is used once.
        output: the folder to write. It contains the checkpoints until the run is finished.
        start: the existing model, or the configuration of a new one.
        settings: the settings of the run.
        held_out: texts to measure on; by default one in a hundred of `texts`.
        resume: resume from the last complete checkpoint in `output`; on a CPU, the result is the same byte for byte.
        force: replace an existing model, and remove the checkpoints of an unfinished run.
        device: "cpu", "cuda" or another accelerator of this machine; by default the best available one.
        progress: show a progress bar.
        note: called with a line about each validation and other events.

    Raises:
        InputError: unsuitable texts or settings, or an unavailable device.
        ModelError: the model is not a masked language model, or cannot be loaded.
        DataError: `output` contains another model or run.
        TrainingError: a loss that is not finite, or a folder that cannot be written; valid checkpoints remain.
        KeyboardInterrupt: the run was stopped, after a checkpoint; names the step.
        MissingDependencyError: the extra `train` is not installed.

    Example:
        >>> from essent.lab.pretrain import Pretraining, Start, pretrain
        >>> texts = ["A man plays a flute.", "Two dogs run through a field.", "It rains.", "The shop is closed."]
        >>> settings = Pretraining(max_steps=1, batch_size=2, max_seq_length=16)
        >>> pretrain(texts, "tiny-bert", Start(config="tiny", vocabulary=100), settings).steps
        1
    """
    for name in ("accelerate", "datasets"):
        optional_import(name, "train")
    device = find_device(device)
    precision = settings.precision or ("bfloat16" if has_bfloat16(device) else "float32")
    on_device(device, precision)  # raises if the device does not support the precision
    output = Path(output)
    check_output(output, resume=resume, force=force)

    train_texts, held_out_texts = split_texts(texts, held_out, settings.seed)
    if settings.frames:
        train_texts = in_frames(train_texts, settings.frames, settings.seed)
    config = read_config(start)
    tokenizer = open_tokenizer(start, train_texts)
    length = settings.max_seq_length
    fit_config(config, tokenizer, length, new=start.model is None, untied=settings.untied)
    sequences = pack(tokenizer, train_texts, length)
    if len(sequences) < settings.batch_size:
        raise InputError(
            f"batch_size={settings.batch_size}: must be at most {len(sequences)}, the number of sequences of {length} "
            "tokens that the texts fill. Use a smaller batch, shorter sequences or more texts."
        )
    masking = DataCollatorForLanguageModeling(tokenizer, mlm_probability=settings.mask_probability)
    held_out_rows = masked_once(pack(tokenizer, held_out_texts, length), masking, settings.seed)
    digest = sha256("\0".join([*train_texts, "", *held_out_texts]).encode("utf-8", "surrogatepass")).hexdigest()
    metadata: dict[str, Any] = {
        "start": start.to_dict(),
        "settings": asdict(settings),
        "texts": {"sha256": digest, "train": len(train_texts), "held_out": len(held_out_texts)},
    }
    resumed = checkpoints.start_or_resume(output, metadata, resume=resume, force=force)

    model, new_weights = open_model(start, config, untied=settings.untied, seed=settings.seed)
    if new_weights and start.model is not None:
        names = ", ".join(new_weights)
        note(f"The model has no weights for its prediction head ({names}): they are initialized at random.")
    arguments = _training_arguments(settings, output / checkpoints.CHECKPOINTS, device, precision)
    arguments.eval_on_start = resumed is None  # the interrupted run has already evaluated
    trainer = MaskedTrainer(
        model,
        arguments,
        masking,
        note,
        data_collator=default_data_collator,
        train_dataset=sequences,
        eval_dataset=held_out_rows,
        processing_class=tokenizer,
    )
    if progress:
        trainer.add_callback(checkpoints.LossBar())
    checkpoints.train_or_resume(trainer, resumed, note if resume else None)
    outcome = _outcome(trainer, output)
    metadata |= {
        "new_weights": "all" if start.model is None else new_weights,
        "precision": precision,
        "steps": outcome.steps,
        "held_out_loss": outcome.loss,
        "held_out_accuracy": outcome.accuracy,
        "history": outcome.history,
        "versions": library_versions(),
    }
    if trainer.is_world_process_zero():
        finish(output, trainer.accelerator.unwrap_model(trainer.model), tokenizer, metadata)
    return outcome


def _outcome(trainer: Any, folder: Path) -> Pretrained:
    """Return the scores of the last step; validate it first if necessary."""
    state = trainer.state
    if not any("eval_masked_loss" in row and row["step"] == state.global_step for row in state.log_history):
        trainer.evaluate()
    history = tuple(row for row in checkpoints.history_of(state) if "loss" in row or "eval_masked_loss" in row)
    last = next(row for row in reversed(history) if "eval_masked_loss" in row)
    return Pretrained(folder, state.global_step, last["eval_masked_loss"], last["eval_masked_accuracy"], history)


# -- the output folder ------------------------------------------------------------------------------------------------


def check_output(output: Path, *, resume: bool, force: bool) -> None:
    """Check the output folder before anything is read.

    Raises:
        DataError: the folder contains a model or a run that must not be replaced.
    """
    require_replaceable(output)
    remove_leftovers(output)
    if not (resume or force):
        checkpoints.check_unfinished(output)
    if (output / "modules.json").exists():
        raise DataError(
            f"{output} contains a sentence-transformers model (modules.json), whose files would mix with the new "
            "model's. Choose another folder."
        )
    resumable = resume and checkpoints.last_checkpoint(output / checkpoints.CHECKPOINTS) is not None
    if not (force or resumable) and (output / "config.json").exists():
        finished = "already contains a model" + (" and no unfinished run to resume" if resume else "")
        raise DataError(f"{output} {finished}. Use force=True (--force) to replace it.")


def finish(output: Path, model: Any, tokenizer: Any, metadata: Mapping[str, Any]) -> None:
    """Save model, tokenizer and `training.json`, and remove an older model and the checkpoints, in one step.

    Files that libraries do not read as part of a model remain.

    Raises:
        TrainingError: the files cannot be written; the checkpoints remain.
    """
    foreign_names = {entry.name for entry in output.iterdir() if not is_read(entry.name)}
    others = sorted(foreign_names - {checkpoints.CHECKPOINTS, HISTORY})
    with checkpoints.writing_result(output), replacing_folder(output, others) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        (temporary / HISTORY).write_text(json.dumps(metadata, ensure_ascii=False, indent=2), encoding="utf-8")


# -- the trainer ------------------------------------------------------------------------------------------------------


def _training_arguments(settings: Pretraining, folder: Path, device: str, precision: str) -> TrainingArguments:
    """Convert the settings to transformers' training arguments, with checkpoints in `folder`."""
    interval = settings.validate_every or VALIDATION
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=settings.max_steps or -1,
        num_train_epochs=settings.epochs or 1,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup,
        weight_decay=0.01,  # as in BERT; transformers excludes biases and normalization layers
        seed=settings.seed,
        data_seed=settings.seed,
        eval_strategy="steps",
        eval_steps=interval,
        save_strategy="steps",
        save_steps=interval,
        save_total_limit=2,
        logging_steps=LOG,
        logging_nan_inf_filter=False,  # `training_step` stops the run
        label_names=["labels"],
        remove_unused_columns=False,
        report_to="none",
        log_level="error",
        disable_tqdm=True,  # its bar prints the log to standard output
        **on_device(device, precision),
    )
    if arguments.n_gpu > 1:  # one process on several GPUs would multiply the batch; torchrun starts one per GPU
        arguments._n_gpu = 1
    arguments.per_device_train_batch_size = max(1, settings.batch_size // arguments.world_size)
    arguments.per_device_eval_batch_size = arguments.per_device_train_batch_size
    return arguments


def masked_scores(evaluated: Any) -> dict[str, float]:
    """Compute the mean loss (nats) over the masked tokens, and the share of them that are predicted correctly."""
    losses, hits = evaluated.predictions
    count = int(np.count_nonzero(evaluated.label_ids != IGNORED))
    return {"masked_loss": float(losses.sum(dtype="float64")) / count, "masked_accuracy": float(hits.sum()) / count}


class MaskedTrainer(Trainer):
    """transformers' trainer, with masks drawn at each step and logits of the masked tokens only.

    Args:
        masking: transformers' collator. Its masks come from torch's random numbers, whose state is in every
            checkpoint, so a resumed run has the same masks as an uninterrupted one. Rows with labels retain theirs.
        note: called with a line about each validation.
    """

    def __init__(
        self, model: Any, arguments: TrainingArguments, masking: Any, note: Callable[[str], None], **parts: Any
    ) -> None:
        super().__init__(model, arguments, compute_metrics=masked_scores, **parts)
        self.masking, self.note = masking, note
        self.remove_callback(PrinterCallback)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Compute the mean cross-entropy (nats) of masked tokens; outputs are losses and hits (B,T), 0 elsewhere."""
        if "labels" not in inputs:
            inputs = mask(inputs, self.masking)
        labels = inputs["labels"]
        chosen = labels != IGNORED  # (B,T)
        with logits_at(self.model, chosen):
            logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        logits = logits.reshape(-1, logits.shape[-1]).float()  # (M,V); a loss of bf16 logits has only two digits
        losses = functional.cross_entropy(logits, labels[chosen], reduction="none")
        loss = losses.sum() / max(1, len(losses))
        if not return_outputs:
            return loss
        outputs = torch.zeros(2, *labels.shape, device=labels.device)  # (2,B,T)
        outputs[:, chosen] = torch.stack([losses, (logits.argmax(dim=-1) == labels[chosen]).float()])
        return loss, {"losses": outputs[0], "hits": outputs[1]}

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """Compute the gradients of one step, with quick dropout on a CPU.

        Raises:
            TrainingError: the loss or the gradients are infinite or NaN, which would ruin the weights.
        """
        with quick_dropout(self.args.device.type, model):
            loss = super().training_step(model, inputs, num_items_in_batch)
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        if not torch.isfinite(torch.nn.utils.get_total_norm(gradients)):
            raise TrainingError(
                f"Step {self.state.global_step + 1}: the loss or its gradients are not finite. "
                f"{checkpoints.checkpoint_note(Path(str(self.args.output_dir)))} Try a learning rate below "
                f"{self.args.learning_rate:g}, a longer warmup or precision='float32'."
            )
        return loss

    def evaluate(self, *arguments: Any, **parts: Any) -> dict[str, float]:
        """Validate, and report loss and accuracy."""
        metrics = super().evaluate(*arguments, **parts)
        if self.is_world_process_zero():
            with tqdm.external_write_mode():
                self.note(
                    f"Step {self.state.global_step} of {self.state.max_steps}: held-out loss "
                    f"{metrics['eval_masked_loss']:.3f}, accuracy {metrics['eval_masked_accuracy']:.3f}"
                )
        return metrics

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with checkpoints.writing_checkpoint(self):
            super()._save_checkpoint(model, trial)
