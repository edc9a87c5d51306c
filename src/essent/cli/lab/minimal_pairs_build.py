"""`essent lab minimal-pairs build`, `check`, `sheet` and `fit`: minimal pairs from your own sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from essent._core.atomic import write_json
from essent._core.lazy import check_torch, optional_import
from essent.cli import options as opt
from essent.cli.console import is_quiet, show_lines, show_note, silence_libraries, wants_progress
from essent.cli.files import check_output, write_json_file
from essent.cli.texts import listed, read_files
from essent.errors import DataError, MissingDependencyError, VerificationError

if TYPE_CHECKING:
    from essent.lab.minimal_pairs.resources import Resources
    from essent.lab.minimal_pairs.rows import PairRow, Quality, Tokenize

SAMPLE = 2  # pairs per subset
MAX_PROBLEMS = 20  # printed
COLUMNS = {"rouge1": "R1", "rouge2": "R2", "rougeL": "RL", "levenshtein": "Lev", "length": "Len"}


def build(
    *,
    texts: opt.Texts,
    output: opt.Output,
    originals: Annotated[opt.Count, Parameter(alias="-n")] = 1000,
    look_at: opt.Count = 20,
    seed: int = 0,
    model: Annotated[str | None, Parameter(alias="-m")] = None,
    wordnet: opt.Folder = None,
    parser: str | None = None,
    confidence: opt.Folder = None,
    json_file: opt.Json = None,
    column: opt.Column = "text",
    batch_size: opt.BatchSize = 64,
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
        look_at: With WordNet and --model: sentences examined per original; the most confident ones are written.
        seed: Seed of the sampled sentences and the random changes.
        model: A masked language model such as bert-large-uncased, for Synonym, Antonym and Random MLM.
        wordnet: NLTK's data folder with WordNet. Default: NLTK's own search path.
        parser: A spaCy pipeline with a parser. Default: en_core_web_sm; en_core_web_trf is more accurate.
        confidence: File of coefficients from essent lab minimal-pairs fit. Default: essent's own.
        json_file: Also write why sentences were excluded, and the overlaps, as JSON; - is standard output.
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
        batch_size: Sentences per batch.
    """
    from tqdm import tqdm

    check_torch("essent lab minimal-pairs")
    from essent.lab.minimal_pairs.resources import Confidence
    from essent.lab.minimal_pairs.rows import as_dict, words_and_marks, write_rows
    from essent.lab.minimal_pairs.run import build as build_pairs

    check_output(output, run.force, (".jsonl",))
    check_output(json_file, run.force)
    optional_import("lemminflect", "heros")
    sentences = read_files(texts, column)
    silence_libraries()
    coefficients = Confidence.load(*([] if confidence is None else [confidence]))
    resources = replace(_resources(parser, wordnet, model, batch_size, run), confidence=coefficients)
    unit = "words and marks"
    tokenize: Tokenize = words_and_marks
    if resources.model is not None:
        unit, tokenize = f"tokens of {model}", resources.model.tokens  # as in the paper
    with tqdm(desc="sentences", unit="", disable=not wants_progress()) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        rows, quality = build_pairs(sentences, resources, originals, seed, look_at, show)
    if not rows:
        reasons = Counter({reason: number for part in quality.fallen.values() for reason, number in part.items()})
        frequent = ", ".join(f"{reason} ({number})" for reason, number in reasons.most_common(4))
        raise DataError(f"{listed(texts)}: no sentence is suitable. The most frequent reasons: {frequent}.")
    write_rows(rows, output)
    quality_report = {**as_dict(quality, rows, tokenize), "unit": unit}
    write_json_file(json_file, partial(write_json, value=quality_report))
    if not is_quiet():
        _print(rows, quality, unit, tokenize, json_file)
        if quality.originals < originals:
            show_note(f"Built {quality.originals} of {originals} originals: no more sentences are suitable.")


def check(
    file: Annotated[Path, Parameter(name="FILE")],
    /,
    *,
    parser: str | None = None,
) -> None:
    """Find faulty pairs.

    Reports pairs that are equal, differ in more than the rule of their subset allows, or look ungrammatical, according
    to a parser. Read the reported pairs; other pairs may still be wrong. Exit code 1 if a pair is reported.

    ```console
    $ essent lab minimal-pairs check pairs.jsonl
    ```

    Args:
        file: A file of minimal pairs, in a format that evaluate reads.
        parser: A spaCy pipeline with a parser. Default: en_core_web_sm.
    """
    check_torch("essent lab minimal-pairs")
    from essent.lab.minimal_pairs.check import check_rows
    from essent.lab.minimal_pairs.parsing import Parser
    from essent.tasks.heros import load_heros

    pairs = load_heros(file).pairs
    problems = check_rows(pairs, Parser(parser), _misspellings())
    for problem in problems[:MAX_PROBLEMS]:
        pair = problem.pair
        show_lines([f"pair {problem.number}, {pair.subset}: {problem.problem}\n  {pair.original}\n  {pair.changed}"])
    if len(problems) > MAX_PROBLEMS:
        show_note(f"… and {len(problems) - MAX_PROBLEMS} more problems.")
    if problems:
        raise VerificationError(f"{len(problems)} of {len(pairs)} pairs break the rule of their subset.")
    show_lines([f"{len(pairs)} pairs; all follow the rule of their subset."])


def sheet(
    file: Annotated[Path, Parameter(name="FILE")],
    /,
    *,
    output: opt.Output,
    count: opt.Count = 100,
    seed: int = 0,
    force: Annotated[bool, Parameter(alias="-f", group=opt.OUTPUTS)] = False,
) -> None:
    """Write an annotation sheet.

    It contains random pairs of each subset, and an empty column "good" for 1 or 0.

    ```console
    $ essent lab minimal-pairs sheet pairs.jsonl --output sheet.csv
    ```

    Args:
        file: A file of minimal pairs, in a format that evaluate reads.
        output: A .csv file to fill in.
        count: Number of random pairs per subset.
        seed: Seed of the sample.
        force: Replace existing output.
    """
    check_torch("essent lab minimal-pairs")
    from essent.lab.minimal_pairs.check import RULES, write_sheet
    from essent.tasks.heros import load_heros

    check_output(output, force, (".csv",))
    rows = write_sheet(load_heros(file).pairs, output, count, seed)
    show_lines([f"{output}: {rows} pairs. In the column good, write 1 for pairs that follow their rule, 0 for others:"])
    show_lines(f"  {subset}: {rule}" for subset, rule in RULES.items())


def fit(
    sheets: Annotated[list[Path], Parameter(name="SHEETS")],
    /,
    *,
    output: opt.Output,
    model: Annotated[str, Parameter(alias="-m")],
    wordnet: opt.Folder = None,
    parser: str | None = None,
    run: opt.Run = opt.Run(),
) -> None:
    """Fit the confidence in synonyms and antonyms to annotations.

    The features come from the model and WordNet. The file contains a digest of the annotations. Refit for a different
    masked language model or after adding annotations. essent's own annotations are in
    src/essent/lab/minimal_pairs/data/judgements.tsv.

    ```console
    $ essent lab minimal-pairs fit sheet.csv --output confidence.json --model bert-large-uncased
    ```

    Args:
        sheets: Annotation sheets that are filled in.
        output: A .json file of coefficients, for build --confidence.
        model: A masked language model such as bert-large-uncased.
        wordnet: NLTK's data folder with WordNet. Default: NLTK's own search path.
        parser: A spaCy pipeline with a parser. Default: en_core_web_sm.
    """
    check_torch("essent lab minimal-pairs")
    from essent.lab.minimal_pairs.check import fit_sheets

    check_output(output, run.force, (".json",))
    resources = _resources(parser, wordnet, model, 64, run)
    fitted, unused = fit_sheets(sheets, resources)
    fitted.save(output)
    for relation, area in fitted.fitted_on["held-out area"].items():
        number = fitted.fitted_on["judgements"][relation]
        show_lines([f"{relation}: {number} annotations, held-out AUC {area:.2f}"])
    if unused:
        show_note(f"{unused} annotations are ignored: WordNet lacks their words there, or they are now excluded.")


def _print(rows: Sequence[PairRow], quality: Quality, unit: str, tokenize: Tokenize, json_file: Path | None) -> None:
    from essent.lab.minimal_pairs.rows import overlaps, sample

    lines = [f"{quality.seen} sentences examined. Left after each filter, with the reasons for the others:"]
    for name, count in quality.left.items():
        reasons = (f", {reason} {number}" for reason, number in quality.fallen[name].items())
        lines.append(f"  {name}: {count}{''.join(reasons)}")
    lines.append(f"Overlap (Lev and Len in {unit}; the paper counts tokens of bert-base-uncased):")
    for name, values in overlaps(rows, tokenize).items():
        figures = (f"{label} {values[c]:.{2 if c == 'levenshtein' else 1}f}" for c, label in COLUMNS.items())
        lines.append(f"  {name}: {', '.join(figures)}")
    if quality.good:
        shares = " and ".join(f"{share:.0%} of the {relation}s" for relation, share in quality.good.items())
        lines.append(f"The regression estimates that {shares} are good. A smaller -n raises this.")
    lines.append("Examples of each subset:")
    for subset, examples in sample(rows, SAMPLE).items():
        lines += [subset, *(f"  {row.original}\n  {row.converted}" for row in examples)]
    show_lines(lines, json_file)


def _misspellings() -> dict[str, tuple[str, ...]]:
    """Return codespell's misspellings, or none and print a note."""
    from essent.lab.minimal_pairs.resources import misspellings

    try:
        return misspellings()
    except MissingDependencyError as error:
        show_note(f"Without codespell, typos are random edits of one letter. {error}")
        return {}


def _resources(
    parser: str | None, wordnet_folder: Path | None, mlm: str | None, batch_size: int, run: opt.Run
) -> Resources:
    """Load the resources of the pairs, cheap ones first."""
    from essent.lab.minimal_pairs.parsing import Parser
    from essent.lab.minimal_pairs.resources import MaskedModel, Resources, WordNet

    pipeline, wordnet, model = Parser(parser), None, None
    try:
        wordnet = WordNet(wordnet_folder)
    except DataError as error:
        if wordnet_folder is not None:  # set by the user
            raise
        show_note(f"Without WordNet, the subsets Synonym, Antonym and Random MLM are skipped. {error}")
    misspellings = _misspellings()
    if mlm is None:
        show_note("Without --model, the subsets Synonym, Antonym and Random MLM are skipped.")
    elif wordnet is not None:
        model = MaskedModel(mlm, run.device, batch_size, **run.hub_options)
    return Resources(pipeline, wordnet, model, misspellings)
