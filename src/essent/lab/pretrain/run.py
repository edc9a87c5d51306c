"""Train masked language models, new or existing, with resumable runs; the output is a plain transformers folder.

The trainer is transformers' own, with logits of masked tokens only, and no step on gradients that are not finite.

Source: Devlin et al. 2019 (the objective); PromptBERT, App. A.2 and Table 12 (an output matrix tied to the static
embeddings, or not).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
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
from essent.lab.pretrain.model import (
    IGNORED,
    logits_at,
    mask,
    masked_once,
    new_model,
    open_model,
    open_tokenizer,
    pack,
    split_texts,
)
from essent.lab.pretrain.settings import SIZES, Pretraining
from essent.tasks.result import library_versions
from essent.training import checkpoints
from essent.training.device import find_device, on_device, quick_dropout

HISTORY = "training.json"
VALIDATION, LOG = 0.1, 0.01  # intervals, as shares of the run


def pretrain(
    texts: Sequence[str],
    output: str | Path,
    settings: Pretraining,
    *,
    model: str | None = None,
    resume: bool = False,
    force: bool = False,
    device: str | None = None,
    progress: bool = False,
    note: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> dict[str, Any]:
    """Train a masked language model on texts and save it as a transformers folder that includes `training.json`.

    Args:
        texts: texts to learn from; each different text is used once, and one in a hundred is held out.
        output: the folder to write. It contains the checkpoints until the run is finished.
        settings: the settings of the run.
        model: the hub name or folder of an existing model; a missing prediction head is initialized at random.
        resume: resume from the last complete checkpoint in `output`; on a CPU, the result is the same byte for byte.
        force: replace an existing model, and remove the checkpoints of an unfinished run.
        device: "cpu", "cuda" or another accelerator of this machine; by default the best available one.
        progress: show a progress bar.
        note: called with a line about each validation and other events.
        options: keyword arguments for transformers' from_pretrained (revision, token, trust_remote_code …).

    Returns:
        The content of `training.json`: "steps", "held_out_loss" (nats per masked token), "history" (the log of
        transformers' trainer), the settings and versions.

    Raises:
        InputError: unsuitable texts or settings, or an unavailable device.
        ModelError: the model is not a masked language model, or cannot be loaded.
        DataError: `output` contains another model or run.
        TrainingError: a loss that is not finite, or a folder that cannot be written; valid checkpoints remain.
        KeyboardInterrupt: the run was stopped, after a checkpoint; names the step.
        MissingDependencyError: the extra `train` is not installed.

    Example:
        >>> from essent.lab.pretrain import Pretraining, pretrain
        >>> texts = ["A man plays a flute.", "Two dogs run through a field.", "It rains.", "The shop is closed."]
        >>> settings = Pretraining(config="tiny", tokenizer="my-mlm", max_steps=1, batch_size=2, max_seq_length=16)
        >>> pretrain(texts, "tiny-bert", settings)["steps"]
        1
    """
    optional_import("accelerate", "train")
    device = find_device(device)
    precision = settings.precision or ("bfloat16" if has_bfloat16(device) else "float32")
    on_device(device, precision)  # raises if the device does not support the precision
    output, length = Path(output), settings.max_seq_length
    check_output(output, resume=resume, force=force)
    if model is None and not (settings.config and settings.tokenizer):
        raise InputError(
            f"Pass a model to train, or config ({', '.join(SIZES)} or a config.json) and tokenizer of a new one."
        )
    if model is not None and (settings.config or settings.tokenizer or settings.untied):
        raise InputError(f"config, tokenizer and untied are settings of a new model. Omit them to train {model!r}.")

    train_texts, held_out_texts = split_texts(texts, settings.seed)
    tokenizer = open_tokenizer(str(model or settings.tokenizer), options)
    torch.manual_seed(settings.seed)  # of new weights
    missing: list[str] = []
    if model is None:
        network = new_model(str(settings.config), tokenizer, untied=settings.untied)
    else:
        network, missing = open_model(model, options)
    if network.config.vocab_size < len(tokenizer):
        raise InputError(
            f"vocab_size={network.config.vocab_size} of the model: must be at least {len(tokenizer)}, the tokenizer's."
        )
    positions = getattr(network.config, "max_position_embeddings", length)
    if positions < length:
        raise InputError(f"max_seq_length={length}: must be at most {positions}, the model's number of positions.")
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
        "model": _without_folder(model),
        "settings": {
            **asdict(settings),
            "config": _without_folder(settings.config),
            "tokenizer": _without_folder(settings.tokenizer),
        },
        "texts": {"sha256": digest, "train": len(train_texts), "held_out": len(held_out_texts)},
    }
    resumed = checkpoints.start_or_resume(output, metadata, resume=resume, force=force)

    if missing:
        note(
            f"The model has no weights for its prediction head ({', '.join(missing)}): they are initialized at random."
        )
    arguments = _training_arguments(settings, output / checkpoints.CHECKPOINTS, device, precision)
    arguments.eval_on_start = resumed is None  # the interrupted run has already evaluated
    trainer = MaskedTrainer(
        network,
        arguments,
        masking,
        note,
        data_collator=default_data_collator,
        train_dataset=[{"input_ids": ids} for ids in sequences],
        eval_dataset=held_out_rows,
        processing_class=tokenizer,
    )
    if progress:
        trainer.add_callback(checkpoints.LossBar())
    checkpoints.train_or_resume(trainer, resumed, note if resume else None)
    state = trainer.state
    if not any("eval_loss" in row and row["step"] == state.global_step for row in state.log_history):
        trainer.evaluate()
    history = checkpoints.history_of(state)
    metadata |= {
        "precision": precision,
        "steps": state.global_step,
        "held_out_loss": next(row["eval_loss"] for row in reversed(history) if "eval_loss" in row),
        "history": history,
        "versions": library_versions(),
    }
    if trainer.is_world_process_zero():
        finish(output, trainer.accelerator.unwrap_model(trainer.model), tokenizer, metadata)
    return metadata


def _without_folder(name: str | None) -> str | None:
    """Return the last part of a path on this machine, or a name as it is."""
    return Path(name).name if name and Path(name).exists() else name


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
    resumable = resume and checkpoints.last_checkpoint(output / checkpoints.CHECKPOINTS) is not None
    if not (force or resumable) and any((output / name).exists() for name in ("config.json", "modules.json")):
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
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=settings.max_steps or -1,
        num_train_epochs=settings.epochs or 1,
        learning_rate=settings.learning_rate,
        warmup_steps=0.05,  # a share of the run
        weight_decay=0.01,  # as in BERT; transformers excludes biases and normalization layers
        seed=settings.seed,
        data_seed=settings.seed,
        eval_strategy="steps",
        eval_steps=VALIDATION,
        save_strategy="steps",
        save_steps=VALIDATION,
        save_total_limit=2,
        logging_steps=LOG,
        logging_nan_inf_filter=False,  # `training_step` stops the run
        prediction_loss_only=True,
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
        super().__init__(model, arguments, **parts)
        self.masking, self.note = masking, note
        self.remove_callback(PrinterCallback)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Compute the mean cross-entropy (nats) of masked tokens, without outputs."""
        if "labels" not in inputs:
            inputs = mask(inputs["input_ids"], self.masking)
        labels = inputs["labels"]
        chosen = labels != IGNORED  # (B,T)
        with logits_at(self.model, chosen):
            logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        logits = logits.reshape(-1, logits.shape[-1]).float()  # (M,V); a loss of bf16 logits has only two digits
        loss = functional.cross_entropy(logits, labels[chosen], reduction="sum") / chosen.sum().clamp(min=1)
        return (loss, {}) if return_outputs else loss

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
                f"{self.args.learning_rate:g} or precision='float32'."
            )
        return loss

    def log(self, logs: dict[str, float], *arguments: Any) -> None:
        """Log, and report the loss of a validation."""
        super().log(logs, *arguments)
        if "eval_loss" in logs and self.is_world_process_zero():
            self.note(f"Step {self.state.global_step} of {self.state.max_steps}: held-out loss {logs['eval_loss']:.3f}")

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with checkpoints.writing_checkpoint(self):
            super()._save_checkpoint(model, trial)
