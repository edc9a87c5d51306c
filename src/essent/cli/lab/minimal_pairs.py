"""`essent lab minimal-pairs`: similarity of sentences and their copies with one small change; build pairs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from essent._core.lazy import optional_import
from essent.cli import options as opt
from essent.cli.console import is_quiet, prepare_torch, results, show_lines, show_note, wants_progress
from essent.cli.files import check_output, check_report, listed, read_files, write_json_file, write_page
from essent.errors import DataError
from essent.recipe.recipe import Recipe

if TYPE_CHECKING:
    from rich.table import Table

    from essent.tasks.result import Result

COMMAND = "essent lab minimal-pairs"


def evaluate(
    *,
    model: opt.Models,
    data: Annotated[str, Parameter(alias="-d")] = "hub",
    recipe: opt.Recipes = None,
    json_file: opt.Json = None,
    report: opt.Report = None,
    batch_size: opt.BatchSize = 32,
    precision: opt.Precision = "auto",
    run: opt.Run = opt.Run(),
) -> None:
    """Compare models on minimal pairs (HEROS).

    The changes are synonyms, typos, antonyms, random words and negations (Chiang et al. 2023). Similarity is 1 for the
    same sentence and 0 for any other: (cos − b) / (1 − b), where b is the mean cosine of the first half of the
    originals with the second. The second line of a row is the 95 % bootstrap interval.

    A file has one row per original with a column per change, or one row per pair with the columns original, converted
    and subset.

    ```console
    $ essent lab minimal-pairs evaluate -m all-MiniLM-L6-v2 bert-base-uncased --report heros.png
    $ essent lab minimal-pairs evaluate -m ./my-model -r mean "first-last | zscore" --data heros.tsv --json heros.json
    ```

    Args:
        model: Models on the hub, or folders. With several, each row names its model.
        data: A file of minimal pairs; hub for dcml0714/Heros, hub:NAME for another data set of the hub.
        recipe: Recipes, one row each; parts that learn are fitted on the pairs. Default: each model's own pooling.
        json_file: Also write the results with their provenance as JSON; - is standard output.
        report: Also write a page (.html, .md) or a picture (.png).
        batch_size: Texts of about 64 tokens per batch.
        precision: Arithmetic; auto is float32 on CPUs, bfloat16 needs hardware support.
    """
    check_output(json_file, run.force)
    check_report(report, run.force)
    for text in recipe or []:  # unknown recipes are refused before data are read
        Recipe.parse(text)
    prepare_torch(COMMAND)
    from essent.selection.evaluation import evaluate as run_evaluation
    from essent.tasks.heros import load_heros, verdict
    from essent.tasks.result import save_results

    task = load_heros(data)
    scores = run_evaluation(
        model,
        recipe or [],
        [task],
        batch_size=batch_size,
        precision=precision,
        progress=wants_progress(),
        **run.options,
    )
    results_by_label = {label: result for label, (result,) in scores.items()}
    write_json_file(json_file, partial(save_results, results_by_label.values()))
    if report is not None:
        write_page(list(results_by_label.values()), report)
    console = results(json_file)
    console.print(similarity_table(results_by_label))
    console.print("Synonym and typo preserve the meaning, the others change it. Comparisons:")
    for label, result in results_by_label.items():
        cosine = result.metrics["baseline"].get("all")
        base = "" if cosine is None else f" (mean cosine of different originals: {cosine:.2f})"
        show_lines([f"{label}{base}", *(f"  {sentence}" for sentence in verdict(result))], json_file)
    show_note(f"Read the columns {task.source['columns_read']}.")
    for note in scores.notes():
        show_note(note)


def similarity_table(results_by_label: Mapping[str, Result]) -> Table:
    """Return a table with one row per model and recipe: similarity and interval of each subset."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from essent.tasks.heros import CHANGED, KEPT

    present = [s for s in (*KEPT, *CHANGED) if any(s in result.subsets for result in results_by_label.values())]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)  # fits into 80 columns
    table.add_column("", overflow="fold", min_width=min(16, max(map(len, results_by_label))))
    for subset in present:
        table.add_column(Text(subset.replace(" ", "\n", 1)), justify="right", no_wrap=True)
    for label, result in results_by_label.items():
        table.add_row(Text(label), *(_cell(result.subsets.get(subset)) for subset in present))
    return table


def _cell(scores: dict[str, float] | None) -> Any:
    from rich.text import Text

    if scores is None:
        return Text("–")
    score = scores.get("similarity", scores["cosine"])
    interval = f"{scores['low']:.2f}–{scores['high']:.2f}" if "low" in scores else ""  # a note explains what is missing
    return Text.assemble(f"{score:.2f}", "\n", (interval if "similarity" in scores else "cosine", "dim"))


# -- minimal pairs from your own sentences -----------------------------------------------------------------------------


def build(
    *,
    texts: opt.Texts,
    output: opt.Output,
    originals: Annotated[opt.Count, Parameter(alias="-n")] = 1000,
    seed: int = 0,
    model: Annotated[str | None, Parameter(alias="-m")] = None,
    column: opt.Column = "text",
    run: opt.Run = opt.Run(),
) -> None:
    """Build HEROS-style minimal pairs from your own sentences.

    As in Chiang et al. 2023, section 2: a parser selects declarative sentences and one verb or adjective in
    each. Six changes are made: synonym, antonym, random word, typo, negation of the main verb and of the word. The
    first three need WordNet and a masked language model; without them, a note is printed and the other subsets are
    built.

    ```console
    $ essent lab minimal-pairs build --texts reviews.txt --output pairs.jsonl --model bert-large-uncased
    $ essent lab minimal-pairs evaluate -m all-MiniLM-L6-v2 --data pairs.jsonl
    ```

    Args:
        texts: Texts of one or more sentences each.
        output: A .jsonl file, one minimal pair per line.
        originals: Number of original sentences.
        seed: Seed of the sampled sentences and the random changes.
        model: A masked language model such as bert-large-uncased, for Synonym, Antonym and Random MLM.
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
    """
    prepare_torch(COMMAND)
    from essent.lab.minimal_pairs.resources import MaskedModel, WordNet
    from essent.lab.minimal_pairs.run import build as build_pairs
    from essent.lab.minimal_pairs.run import write_pairs

    check_output(output, run.force, (".jsonl",))
    optional_import("spacy", "heros")
    sentences = read_files(texts, column)
    wordnet, masked = None, None
    try:
        wordnet = WordNet()
    except DataError as error:
        show_note(f"Without WordNet, the subsets Synonym, Antonym and Random MLM are skipped. {error}")
    if model is None:
        show_note("Without --model, the subsets Synonym, Antonym and Random MLM are skipped.")
    elif wordnet is not None:
        masked = MaskedModel(model, run.device, **run.hub_options)
    pairs, quality = build_pairs(sentences, wordnet, masked, originals, seed, wants_progress())
    reasons = [f"{reason}: {number}" for reason, number in quality.fallen.items()]
    if not pairs:
        raise DataError(f"{listed(texts)}: no sentence is suitable. The reasons: {', '.join(reasons[:4])}.")
    write_pairs(pairs, output)
    if not is_quiet():
        show_lines([f"{quality.seen} sentences examined, {quality.originals} originals built. Excluded sentences:"])
        show_lines([f"  {reason}" for reason in reasons])
        if quality.good:
            shares = " and ".join(f"{share:.0%} of the {relation}s" for relation, share in quality.good.items())
            show_lines([f"The regression estimates that {shares} are good. A smaller -n raises this."])
        if quality.originals < originals:
            show_note(f"Built {quality.originals} of {originals} originals: no more sentences are suitable.")
