"""What an improvement reports: first what its results are worth, and the page with all figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent.improvement.plan import SHARES
from essent.report.parts import Number, Record, Report, Section, record_table, short_paths
from essent.report.write import write_arranged
from essent.selection.topics import CRITERIA, MIN_LEAD, SIMILARITY, TOPICS, USES, described, uses_of
from essent.selection.verdict import TEACHER_CASES, TOPICS_CASES
from essent.tasks.base import LabeledTask
from essent.tasks.result import library_versions, short_name

if TYPE_CHECKING:
    from essent.improvement.results import Improved
    from essent.improvement.run import Run

FULL = 0.75  # share of the budget below which it is said why more was not used
SLACK = 1.15  # of a suggested budget, for steps that take longer
MEGABYTE = 1e6
SETTINGS = ("model", "texts", "data", "test", "budget", "goal", "use", "seed", "recipe", "seconds")  # on the page
RESULTS = (
    "Scores ×100 with their 95 % interval. Agreement: Spearman ×100 between the similarities of random pairs of "
    "held-out texts. Speeds were measured on this machine, on texts of mixed length."
)
GAINS = "Points gained over the best encoder before the step, paired, with their 95 % interval."


# -- before a run -----------------------------------------------------------------------------------------------------


def purpose(tasks: Sequence[LabeledTask], use: str | None, retained: str) -> str:
    """Return what an improvement will optimize, in one line.

    Args:
        retained: see `Run`.
    """
    if retained:
        return f"Without labels, the model's own pooling is retained for {described(use or SIMILARITY)}: {retained}."
    if tasks:
        return f"Optimizes {uses_of(tasks)}, by the labels of {' and '.join(task.name for task in tasks)}."
    optimizes = (
        f"Optimizes {described(use or SIMILARITY)}, by the criterion {CRITERIA[use or SIMILARITY]}, without labels."
    )
    others = ", ".join(name for name in USES[:-1] if name != (use or SIMILARITY))
    unknown = f" It is not known whether this helps {others} or {USES[-1]}; for these, use --for or --data."
    return optimizes + ("" if use else unknown)


# -- after a run ------------------------------------------------------------------------------------------------------


def overview_of(run: Run, encoder: str, answer: str) -> tuple[str, ...]:
    """Return what was optimized, what it gained, what that is worth, what was not tried; at most eight lines.

    Args:
        encoder: name of the saved encoder.
        answer: the sentence about the answer.
    """
    if retained := run.settings["retained"]:
        unchanged = f"Optimized: nothing. The model's own pooling {run.plan['own']} is retained: {retained}."
        return (unchanged, *_not_tried(run), *_unused(run), answer)
    if run.metric.by_agreement:
        return (*_worth_by_topics(run), *_not_tried(run), *_unused(run), answer)
    own = run.plan["own"]
    before, after = run.metric.score(own), run.metric.score(encoder)
    figures = "{:+.1f} [{:+.1f}, {:+.1f}]".format(*run.metric.difference(encoder, own))
    gain = f"{figures} points, {after:.1f} instead of {before:.1f}"
    if after == before or run.choice == own:
        gain = f"none ({figures}): no step was significantly better than the model as it is"
    worth = _worth_by_labels(run, encoder, gain) if run.metric.by_labels else _worth_by_criterion(run, gain)
    return (*worth, *_not_tried(run), *_unused(run), answer)


def _worth_by_topics(run: Run) -> Iterator[str]:
    use, own, lead = run.settings["use"], run.plan["own"], run.searched["lead"]
    yield f"Optimized: {use}, without labels, by the criterion {TOPICS} (the mean of the ranks by six measures)."
    if run.choice == own:
        yield f"Gain: none. No recipe of the space that was searched led the model's own pooling {own} by {MIN_LEAD}."
        return
    if lead is None:
        yield f"Gain on held-out texts: not measured, they are too few. The choice led {own} on the other texts."
    else:
        yield f"Gain by this criterion, on {len(run.inputs.held_out)} held-out texts: a lead of {lead:+.2f} over {own}."
    yield f"Worth by labels: {TOPICS_CASES[use][0].lower()}{TOPICS_CASES[use][1:]}."
    yield "Groups that are not topics, such as sentiment, can be worse than before."


def _worth_by_labels(run: Run, encoder: str, gain: str) -> Iterator[str]:
    metric = run.metric
    yield f"Optimized on your labels: {metric.by}, which measures {uses_of(run.inputs.tasks)}."
    yield f"Gain on these labels: {gain}. All choices were made on them, so this is optimistic."
    if metric.tests:
        before, after = (metric.with_interval(name, test=True) for name in (run.plan["own"], encoder))
        scores = "{:.1f} [{:.1f}, {:.1f}] instead of {:.1f} [{:.1f}, {:.1f}]".format(*after, *before)
        yield f"On the test ({metric.test_name}), which no choice has read: {scores}."
    else:
        yield "Worth on other data: unknown. Pass other labels with --test, which no choice reads."


def _worth_by_criterion(run: Run, gain: str) -> Iterator[str]:
    use, metric = run.settings["use"], run.metric
    yield f"Optimized: {described(use)}, without labels, by the criterion {CRITERIA[use]}."
    yield (
        f"Gain by this criterion, on pairs of {metric.paired_texts}: {gain}. The criterion compares encoders; it does "
        "not measure how good they are."
    )
    named = run.settings["named_use"]
    gains = [f"{other} {TEACHER_CASES[other]}" for other in ((use,) if named else USES)]
    yield f"Worth by labels over mean, in measured cases of such choices of a recipe: {'; '.join(gains)}."
    if not named and run.choice.startswith("trained"):
        yield "Training on their texts lowered classes by 1.5 and 8.7 points in two measured cases."


def _not_tried(run: Run) -> Iterator[str]:
    if run.skipped:
        yield f"Not tried: {'; '.join(f'{step} ({why})' for step, why in run.skipped.items())}."


def _unused(run: Run) -> Iterator[str]:
    """Yield the share of the budget that was used, and what a larger one would add, or that nothing is left to do."""
    spent, budget = run.spent, run.settings["seconds"]
    used = f"{spent:.0f} of {budget:.0f} s" if budget < 120 else f"{spent / 60:.1f} of {budget / 60:.1f} minutes"
    used += f", {spent - budget:.1f} s more than the budget" if spent > budget else ""
    if missing := run.missing:
        needed = spent + sum(seconds for _, seconds in missing.values())
        shared = sum(SHARES[name] for name in ("search", "trials", "train"))
        needed = max(needed, missing["search"][1] * shared / SHARES["search"] if "search" in missing else 0.0)
        rest = " What is left is too short for more." if spent < FULL * budget else ""
        added = "; ".join(text for text, _ in missing.values())
        yield f"Used: {used}.{rest} A budget of about {suggested(SLACK * needed)} would add: {added}."
        return
    reasons = list(run.complete)
    if "training" in run.skipped and not run.metric.by_agreement:
        reasons.append("without training, a search of all recipes, a static table and a graph are all there is")
    yield f"Used: {used}. Nothing is left to do{': ' if reasons else ''}{'; '.join(reasons)}."


def suggested(seconds: float) -> str:
    """Return a budget of at least so many seconds, such as "17m" or "13h"."""
    minutes = math.ceil(seconds / 60)
    return f"{minutes}m" if minutes <= 120 else f"{math.ceil(seconds / 3600)}h"


# -- the page ---------------------------------------------------------------------------------------------------------


def write_page(improved: Improved, path: Path) -> None:
    """Write the report: quality, speed and size, the gain and duration of each step, and the settings."""
    metadata, by = improved.metadata, improved.by
    before_on_test = {"on the test": Number(*scores)} if (scores := metadata["before_on_test"]) else {}
    rows: list[Record] = [{"result": "as it is", by: Number(*improved.before), **before_on_test}]
    for output in improved.results:
        on_test = {"on the test": Number(*output.test)} if output.test else {}
        row: dict[str, Any] = {"result": output.name, by: Number(output.score, output.low, output.high), **on_test}
        row |= {"agrees with the encoder": output.agreement, "texts per second": output.texts_per_second}
        rows.append({**row, "MB": None if output.bytes is None else output.bytes / MEGABYTE})
    results = record_table("Results", rows, RESULTS, decimals=1)
    rows = []
    for gain in improved.gains:
        points, retained = Number(gain.difference, gain.low, gain.high), "yes" if gain.kept else "no"
        row = {"step": gain.step, "what it did": gain.by, "retained": retained, "points": points}
        rows.append({**row, "seconds": gain.seconds})
    gains = [record_table("Steps", rows, GAINS, decimals=1)] if rows else []
    rows = [{"step": name, "seconds": values["seconds"]} for name, values in metadata["steps"].items()]
    gains.append(record_table("Time", rows, f"Of a budget of {metadata['budget']}.", decimals=0, folded=True))
    values = {name: ", ".join(text) if isinstance(text := metadata[name], list) else str(text) for name in SETTINGS}
    rows = [{"name": name, "value": short_paths(text)} for name, text in {**values, **library_versions()}.items()]
    sections = (
        Section("Quality, speed and size", [results], notes=improved.notes),
        Section("Gain of each step", gains),
        Section("Settings and versions", [record_table("Settings", rows)]),
    )
    title = f"{short_name(str(metadata['model']))}, improved"
    caption = f"{metadata['texts'].partition(',')[0]}, budget {metadata['budget']}, measured by {by}."
    write_arranged(Report(title, sections, caption, tuple(map(short_paths, improved.overview))), path)
