"""Times prompts of a decoder against its plain mean and against a plain transformers loop, interleaved in one run.

python benchmarks/decoders.py --model DIR --pairs stsb.dev.jsonl --texts 256 --rounds 5
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from essent import Encoder, compile
from essent.recipe.named import TEMPLATES
from measured import Ratio, Watch

RECIPES = ("mean", "one-word", "prompteol", "prompteol-example", "knowledge", "about")
SCRIPT = "transformers: PromptEOL's loop"


def script(folder: str, batch_size: int) -> Callable[[list[str]], object]:
    """Return PromptEOL's evaluation loop: left padding, all hidden states and logits, batches in the given order."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side, tokenizer.pad_token_id = "left", tokenizer.pad_token_id or 0
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.no_grad()
    def encode(texts: list[str]) -> torch.Tensor:
        vectors = []
        for start in range(0, len(texts), batch_size):
            filled = [TEMPLATES["prompteol"].replace("{text}", text) for text in texts[start : start + batch_size]]
            batch = tokenizer(filled, return_tensors="pt", padding=True)
            vectors.append(model(**batch, output_hidden_states=True).hidden_states[-1][:, -1])
        return torch.cat(vectors)

    return encode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--pairs", required=True, type=Path)
    parser.add_argument("--recipes", nargs="+", default=RECIPES, help="the first must be mean")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--engine", default="torch", choices=("torch", "openvino", "onnx"))
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.pairs.read_text("utf-8").splitlines()]
    texts = list(dict.fromkeys(row[key] for row in rows for key in ("sentence1", "sentence2")))[: options.texts]
    encoders: dict[str, Callable[[list[str]], object]] = {}
    for recipe in options.recipes:
        encoder = Encoder(options.model, recipe)
        model = encoder if options.engine == "torch" else compile(encoder, options.engine)
        encoders[recipe] = partial(model.encode, batch_size=options.batch_size)
    encoders[SCRIPT] = script(options.model, options.batch_size)
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    with Watch() as watch:
        for round_number in range(options.rounds + 1):  # the first warms up
            for name, encode in encoders.items():
                start = time.perf_counter()
                encode(texts)
                if round_number:
                    seconds[name].append(time.perf_counter() - start)
    print(f"{len(texts)} texts, {torch.get_num_threads()} threads; {watch}")
    for name, times in seconds.items():
        print(
            f"{name:32} time / mean's {Ratio(times, seconds['mean'])}; script's / own {Ratio(seconds[SCRIPT], times)}"
        )


if __name__ == "__main__":
    main()
