"""Masked-language-model pre-training: what logits at the masked tokens only save, and PromptBERT's Table 12 in small.

python benchmarks/pretrain.py speed --texts FILE --model DIR [--bf16]
python benchmarks/pretrain.py tied --texts FILE --tokenizer DIR --config mini --steps 1000 --data DIR [--tasks sts13]

`speed` times steps of one batch both ways in turn, forward, backward and AdamW: tokens a second of CPU time, so that a
busy machine does not matter much. `tied` trains two models from nothing, equal but for their output matrix, and scores
the mean of static token embeddings on pairs: the tied model's, the untied model's, the untied model's output matrix.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch.nn import functional
from transformers import AutoModelForMaskedLM, AutoTokenizer, DataCollatorForLanguageModeling
from transformers.utils import logging

from essent import evaluate
from essent.lab.pretrain.model import IGNORED, logits_at, mask, open_model, open_tokenizer, pack
from essent.lab.pretrain.run import pretrain
from essent.lab.pretrain.settings import Pretraining


def speed(options: argparse.Namespace, texts: list[str]) -> None:
    settings = Pretraining(max_steps=1, batch_size=options.batch_size)
    tokenizer = open_tokenizer(options.model, {})
    sequences = pack(tokenizer, texts, settings.max_seq_length)
    print(f"{len(sequences)} sequences, {torch.get_num_threads()} threads")
    model, _ = open_model(options.model, {})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-9, fused=True)
    masking = DataCollatorForLanguageModeling(tokenizer, mlm_probability=settings.mask_probability)
    batch = mask(torch.from_numpy(sequences[: options.batch_size]), masking)
    labels = batch.pop("labels")
    chosen, tokens = labels != IGNORED, labels.numel()
    found: dict[str, list[float]] = {}
    for _ in range(options.repeat):
        for way in ("every token", "masked tokens"):
            began = time.process_time()
            with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
                if way == "masked tokens":
                    with logits_at(model, chosen):
                        loss = functional.cross_entropy(model(**batch).logits[0], labels[chosen])
                else:
                    loss = model(**batch, labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.setdefault(way, []).append(time.process_time() - began)
            print(f"logits of {way}: {found[way][-1]:.2f} s", flush=True)
    typical = {way: statistics.median(seconds) for way, seconds in found.items()}
    for way, seconds in typical.items():
        print(f"logits of {way}: {tokens / seconds:,.0f} tokens a CPU second")
    print(f"{typical['every token'] / typical['masked tokens']:.2f} x")


def tied(options: argparse.Namespace, texts: list[str]) -> None:
    folder = Path(options.output or tempfile.mkdtemp())
    settings = {"max_steps": options.steps, "batch_size": options.batch_size, "learning_rate": 1e-3}
    settings |= {"config": options.config, "tokenizer": options.tokenizer}
    for name, untied in (("tied", False), ("untied", True)):
        result = pretrain(texts, folder / name, Pretraining(**settings, untied=untied), note=print, force=True)
        print(f"{name}: {result['held_out_loss']:.3f}", flush=True)
    model = AutoModelForMaskedLM.from_pretrained(folder / "untied")
    model.get_input_embeddings().weight.data.copy_(model.get_output_embeddings().weight.data)
    model.save_pretrained(folder / "head")
    AutoTokenizer.from_pretrained(folder / "untied").save_pretrained(folder / "head")
    for name, about in (
        ("head", "MLM head of untying model (paper 43.33)"),
        ("untied", "Static token embeddings of untying model (paper 49.41)"),
        ("tied", "Static token embeddings of tying model (paper 45.68)"),
    ):
        (results,) = evaluate(str(folder / name), ["static"], options.tasks.split(","), data=options.data).values()
        print(about, *(f"{result.task} {result.main_score:.2f}" for result in results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "tied"))
    parser.add_argument("--texts", required=True, help="one text a line")
    parser.add_argument("--model", help="a folder, for speed")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--config", default="mini")
    parser.add_argument("--tokenizer", help="a name or folder, for tied")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--data", help="a folder with sts/NAME.jsonl")
    parser.add_argument("--tasks", default="stsb.dev")
    parser.add_argument("--output", help="keeps the models")
    options = parser.parse_args()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    texts = Path(options.texts).read_text("utf-8").splitlines()
    {"speed": speed, "tied": tied}[options.what](options, texts)


if __name__ == "__main__":
    main()
