"""Whether two more measures without labels choose recipes for clusters: stability under dropout, and low perplexity.

    python benchmarks/dropout.py --model DIR --data texts.jsonl … [--texts 400]

An encoder encodes each text twice with dropout; the measures are the agreement of the two clusterings (`clusters`) and
of the two neighbourhoods (`neighbours`). For a decoder, `topics` is also computed on the half of the texts that the
model finds most probable per token. Printed per data set: the accuracy of k-means by `mean` and by the best recipe,
and for `topics` and each measure, alone and as one more measure of `topics`, the points that its first recipe gains
over `mean`, and the rank correlation with the accuracy. Recipes that read no layer of the transformer are left out,
since dropout does not change them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.metrics import adjusted_rand_score
from torch import nn
from torch.nn.functional import cross_entropy, dropout
from transformers import AutoModelForCausalLM, AutoTokenizer

from essent.encoder.plan import Plan, chain_of, count_frames, pool_texts
from essent.model.backbone import Backbone
from essent.model.capabilities import capabilities_of
from essent.model.loading import load, read_capabilities
from essent.recipe.recipe import Recipe
from essent.selection.label_free import mean_rank
from essent.selection.space import REFERENCE
from essent.selection.topics import CLUSTER_COUNTS, NEIGHBOURS, Topics
from essent.tasks.base import unit_rows
from essent.tasks.clusters import ClusterTask, cluster
from uses import FIXED, FIXED_PROMPTS, draw_examples

RATE = 0.1  # of dropout, as in training BERT


def perplexities(folder: str, texts: list[str]) -> np.ndarray:
    """Return the mean negative log-probability per token (N,) by a causal model."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    losses = []
    with torch.inference_mode():
        for text in texts:
            ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)["input_ids"]  # (1,T)
            losses.append(float(cross_entropy(model(ids).logits[0, :-1], ids[0, 1:])))
    return np.array(losses)


def agreement(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return the adjusted Rand index of the clusterings of two vectors (N,D) per text, and the share of neighbours."""
    clusterings = [[cluster(v, count, (0,), 1)[0] for count in CLUSTER_COUNTS] for v in (first, second)]
    near = []
    for vectors in (first, second):
        cosines = unit_rows(vectors) @ unit_rows(vectors).T
        np.fill_diagonal(cosines, -np.inf)
        near.append(cosines >= np.sort(cosines, axis=1)[:, -NEIGHBOURS, None])
    index = np.mean([adjusted_rand_score(*labels) for labels in zip(*clusterings, strict=True)])
    return float(index), float((near[0] & near[1]).sum() / near[0].sum())


def case(folder: str, backbone: Backbone, recipes: list[Recipe], path: Path, count: int) -> None:
    """Print the rows of a model and data set."""
    plans = [plan for recipe in recipes if not (plan := Plan(recipe, backbone)).is_static]
    names = [str(plan.recipe) for plan in plans]
    examples = draw_examples(path, count)
    texts = [example.texts[0] for example in examples]
    task = ClusterTask(path.stem, examples, seeds=(0, 1, 2), starts=3)
    rows = {"topics": np.arange(len(texts))}  # the measured texts
    if capabilities_of(backbone).causal:
        losses = perplexities(folder, texts)
        rows["topics, probable"] = np.flatnonzero(losses <= np.median(losses))
    criteria = {name: Topics.of([texts[row] for row in chosen], 0) for name, chosen in rows.items()}
    halves = [half for criterion in criteria.values() for pair in criterion.halves for half in pair]
    stats = count_frames(backbone, plans, texts)
    passes = [pool_texts(backbone, plans, [*texts, *halves], stats)]
    modules = [module for module in backbone.modules() if isinstance(module, nn.Dropout)]
    if modules:
        active = [module.register_forward_hook(lambda *call: dropout(call[2], RATE)) for module in modules]
        for seed in (1, 2):
            torch.manual_seed(seed)
            passes.append(pool_texts(backbone, plans, texts, stats))
        for hook in active:
            hook.remove()
    accuracies, stable = [], []
    measures: dict[str, list[np.ndarray]] = {name: [] for name in criteria}
    for plan, pooled, *noisy in zip(plans, *passes, strict=True):
        chain = chain_of(plan.recipe, plan.width, backbone).fit(pooled[: len(texts)])
        vectors, *ends = np.split(
            chain.transform(pooled), np.cumsum([len(texts), *(2 * len(c.halves) for c in criteria.values())])[:-1]
        )
        accuracies.append(task.scores(task.evidence(vectors, range(len(texts)))[None], "accuracy")[0])
        for (name, criterion), pairs in zip(criteria.items(), ends, strict=True):
            measures[name].append(criterion.measure(vectors[rows[name]][criterion.rows], pairs[::2], pairs[1::2]))
        if noisy:
            stable.append(agreement(*map(chain.transform, noisy)))
    gains = np.array(accuracies) - accuracies[names.index("mean")]
    ranks = {name: mean_rank(list(np.array(values).T)) for name, values in measures.items()}
    for name, values in zip(("clusters", "neighbours"), np.array(stable).T, strict=False):
        ranks |= {name: values, f"topics, {name}": mean_rank([*np.array(measures["topics"]).T, values])}
    print(f"\n{folder}, {path.stem}: {len(plans)} recipes, mean {accuracies[names.index('mean')]:.1f}, ", end="")
    print(f"best {max(accuracies):.1f}")
    for name, values in ranks.items():
        correlation = spearmanr(values, gains, nan_policy="omit").statistic
        print(f"{name:20s} {gains[np.nanargmax(values)]:+6.1f}  rank correlation {correlation:.2f}", flush=True)


def main() -> None:
    """Print the rows of every data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", nargs="+", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=400, help="of each file")
    options = parser.parse_args()
    capabilities = read_capabilities(options.model, {})
    listed = (*map(str, REFERENCE.expand(capabilities)[0]), *FIXED, *FIXED_PROMPTS * capabilities.causal)
    recipes = list(dict.fromkeys(map(Recipe.parse, listed)))
    backbone = load(options.model, recipes, {"device": "cpu"}).backbone
    for path in options.data:
        case(options.model, backbone, recipes, path, options.texts)


if __name__ == "__main__":
    main()
