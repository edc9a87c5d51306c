"""What a report says: every number of the results stands in it, under the right name, with its interval."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from report_helpers import MODELS, board, everything, heads_board, heros, named, scored

from essent.errors import InputError
from essent.recipe.recipe import Recipe
from essent.report.gather import MAX_TRIALS, gather
from essent.report.parts import Bars, Curves, Heat, Number, Row, Section, Table, axis_of, names_of, shown
from essent.report.write import markdown_report
from essent.selection.leaderboard import Leaderboard, Trial
from essent.tasks.comparison import Scored
from essent.tasks.heros import CHANGED, KEPT, comparisons
from essent.tasks.result import Result
from selection_samples import labels


def section_of(*results: Result, searches=()) -> Section:
    return gather(results, searches).sections[0]


def only(section: Section, kind: type, title: str = ""):
    (block,) = (block for block in section.blocks if isinstance(block, kind) and title in block.title)
    return block


# -- one main score ---------------------------------------------------------------------------------------------------


def test_scores_side_by_side() -> None:
    """A missing task leaves a gap and no mean, an undefined score a dash and no bar; subsets are in a second table."""
    report = gather(
        [
            scored(70.0, "cr", low=68.0, high=73.0, news=61.0), scored(60.0, "mr"), scored(-0.001, "cr", recipe="cls"),
            scored(None, "cr", recipe="max"), scored(-1.234, "mr", recipe="max"), scored(71.0, "cr", recipe="static"),
            scored(50.0, "mr", recipe="static"),
        ]
    )  # fmt: skip
    lines = markdown_report(report).splitlines()
    for line in """
- Accuracy ×100: mean has 65.00 on average over 2 tasks, the highest of 2 rows (2 more without a score on every task).
| model and recipe | cr | mr | avg |
| :-- | --: | --: | --: |
| mean | 70.00 (68.00 to 73.00) | 60.00 | 65.00 |
| cls | 0.00 | – | – |
| max | – | −1.23 | – |
With 95 % intervals.
| model and recipe | task | n | accuracy, news |
| mean | cr | 10 | 61.00 |
""".strip().splitlines():
        assert line in lines
    assert only(report.sections[0], Bars).rows == [(Row("mean"), Number(65.0)), (Row("static"), Number(60.5))]
    undefined = [scored(70.0, low=math.nan, high=73.0)] * 2  # a repeated result counts once
    assert only(section_of(*undefined), Table, "Scores").rows == [("models/tiny", Number(70.0))]
    assert not any(isinstance(block, Bars) for block in section_of(scored(None)).blocks)
    with pytest.raises(InputError, match="models/tiny has two different results on stsb"):
        gather([scored(70.0), scored(71.0)])


# -- the verdict ------------------------------------------------------------------------------------------------------


def test_verdict_on_the_highest_row() -> None:
    close = [scored(70.0, low=68.0, high=73.0), scored(69.0, recipe="cls", low=66.0, high=72.0)]
    sentence = "cls is worse than mean by -1.00 [-1.50, -0.50], p ≤ 0.002."
    assert gather(close, paired=[sentence]).verdict == [
        sentence,  # paired comparisons come first
        "Accuracy ×100: mean has 70.00 (68.00 to 73.00) on stsb, the highest of 2 rows.",
    ]
    assert gather([scored(70.0)]).verdict == ["Accuracy ×100: models/tiny has 70.00 on stsb."]
    assert gather([scored(None)]).verdict == []
    spring, autumn = (r.with_provenance(sha256=name) for r, name in zip(close, ("spring", "autumn"), strict=True))
    report = gather([spring, autumn])
    assert "Results on different data of the same name cannot be compared: stsb." in report.sections[0].notes
    assert report.verdict == []


def test_verdicts_of_searches_and_minimal_pairs() -> None:
    results = [named(heros(seed), model) for seed, model in enumerate(MODELS)]
    decided = replace(board(), verdict="ditto:1-2 is kept.", held_out=board().comparisons)
    report = gather(results, [decided, board()])
    minimal_pairs, kept, compared = report.verdict
    pattern = (
        r"HEROS: .* ranks a negation above a synonym for \d+ \(\d+ to \d+\) % of the originals, the lowest of 2 rows\."
    )
    assert re.fullmatch(pattern, minimal_pairs)
    search = "Search on stsb.dev (layers): models/tiny: ditto:1-2 is"
    assert kept == f"{search} kept."
    assert compared.startswith(f"{search} better than mean by +10.50")
    assert any(n.startswith("On pairs held out of the choice: ditto:1-2 is better") for n in report.sections[1].notes)


def test_no_folder_of_the_maker_is_on_the_page() -> None:
    model, data = "/home/me/secret/models/tiny", "/home/me/secret/data/pairs.csv"
    result = scored(70.0, model=model).with_provenance(source=data)
    result = replace(result, notes=(f"Read {data} and ~/secret/my/pairs.csv, and/or others.",))
    leaderboard = replace(board(), notes=(f"From {data}.",), provenance={"model": model, "data": data})
    report = gather([result], [leaderboard])
    assert "secret" not in repr(report)
    assert report.sections[0].notes == ["stsb: Read data/pairs.csv and my/pairs.csv, and/or others."]
    twice = [replace(scored(70.0, recipe=recipe), notes=("Cut.",)) for recipe in ("mean", "cls")]
    assert section_of(*twice).notes == ["stsb: Cut."]


def test_labels() -> None:
    for keys, expected in (
        ("/a/b/c/d mean, hub/e mean, /a/b/c/d cls", ["c/d · mean", "hub/e · mean", "c/d · cls"]),
        ("/x/a/b r, /y/a/b r", ["/x/a/b", "/y/a/b"]),
        (r"C:\models\my\m r", ["my/m"]),
    ):
        names = names_of((model, recipe) for model, recipe in map(str.split, keys.split(", ")))
        assert [row.label for row in names.rows.values()] == expected


# -- minimal pairs ----------------------------------------------------------------------------------------------------


def test_heros() -> None:
    results = [named(heros(seed), model) for seed, model in enumerate(MODELS)]
    section = section_of(*results)
    assert section.title == "HEROS"
    heat, similarities = only(section, Heat), only(section, Table, "Similarities")
    result = results[1]
    assert heat.columns == [*KEPT, *CHANGED]
    assert heat.rows[1] == (MODELS[1], [result.metrics["similarity"][subset] for subset in heat.columns])
    numbers = [Number(scores["similarity"], scores["low"], scores["high"]) for scores in result.subsets.values()]
    assert similarities.rows[1] == (MODELS[1], *numbers, Number(result.metrics["baseline"]["all"]))
    assert [column.name for column in similarities.columns[1:]] == [*result.subsets, "baseline"]
    ranked = only(section, Table, "Ranked above a synonym, % of the originals")
    first = comparisons(results[0])[0]
    assert ranked.columns[1].name == first.above
    assert ranked.rows[0][1] == Number(100 * first.share, 100 * first.low, 100 * first.high)
    assert only(section, Bars).rows[0][1] == ranked.rows[0][1]
    few = replace(heros(), metrics={**heros().metrics, "similarity": {}}, provenance={"comparisons": []})
    assert [(type(block), block.title) for block in section_of(few).blocks] == [(Table, "Cosines")]


# -- leaderboards -----------------------------------------------------------------------------------------------------


def test_a_leaderboard() -> None:
    section = section_of(searches=[board()])
    assert section.title == "Search on stsb.dev (layers): models/tiny"
    assert only(section, Bars).rows[0] == (Row("1. ditto:1-2", 1), Number(80.0, 75.25, 84.5))
    heads = only(section, Heat)
    assert [[shown(v, 1) for v in values] for _, values in heads.rows] == [["–", "80.0"], ["76.5", "73.0"]]
    curves = only(section, Curves)
    assert curves.positions == ["static", "0", "1", "2", "L"]
    assert {name: [shown(value, 1) for value in values] for name, values in curves.series} == {
        "one layer": ["66.0", "62.5", "59.0", "55.5", "69.5"],
        "mean with layer 0": ["–", "–", "52.0", "48.5", "–"],
    }
    assert only(section, Table, "sickr").rows[0] == ("ditto:1-2", Number(70.0, 65.5, 74.5))
    assert section.notes[0].startswith("ditto:1-2 is better than mean by +10.50")
    assert section.notes[-1] == "A note."


def test_names_of_scores_and_units() -> None:
    metrics = ("ndcg@10", "f1_macro", "v_measure")
    results = [Result("t", {metric: {"all": 60.0}}, {}, 9, main=(metric, "all")) for metric in metrics]
    titles = [section.title for section in gather(results).sections]
    assert titles == ["nDCG@10 ×100", "Macro-F1 ×100", "V-measure ×100", "Provenance"]
    trials = (Trial(Recipe.parse("mean"), {"f1_macro": 60.0}, (59.0, 61.0)),)
    check = replace(board().checks[0], score="ndcg@10")
    judged = (Scored(labels(), "f1_macro", [], np.empty((0, 0))),)
    searched = Leaderboard("f1_macro", trials, checks=(check,), held_out=board().comparisons, judgements=judged)
    section = section_of(searches=[searched])
    assert section.caption.endswith("ranked by Macro-F1 ×100.")
    assert only(section, Bars).caption == "Lines: 95 % intervals, bootstrap over texts."
    assert only(section, Table, "sickr").columns[1].name == "nDCG@10 ×100"
    assert any(note.startswith("On texts held out of the choice: ") for note in section.notes)


def test_a_large_leaderboard_is_cut_and_keeps_the_baselines() -> None:
    recipes = only(section_of(searches=[heads_board()]), Table)
    assert len(recipes.rows) == MAX_TRIALS + 1
    assert recipes.rows[-1][:2] == ("mean (baseline)", Number(145))
    assert recipes.caption == "The first 50 of 145 recipes, and the baselines."
    for scoreless in ((Trial(Recipe.parse("mean"), {"spearman": math.nan}),), ()):
        section = section_of(searches=[Leaderboard("spearman", scoreless)])
        assert [type(block) for block in section.blocks] == [Table]


# -- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[5.0], [], [1e-9, 2e-9], [-40.0, 60.0]])
def test_axes_hold_their_values_between_round_ticks(values: list[float]) -> None:
    axis = axis_of(values)
    assert all(axis.low - 1e-12 <= value <= axis.high + 1e-12 for value in values)
    assert 2 <= len(axis.ticks) <= 7
    assert np.ptp(np.diff(axis.ticks)) < 1e-6 * (axis.high - axis.low)
    assert len({shown(tick, axis.decimals) for tick in axis.ticks}) == len(axis.ticks), "every tick reads differently"


def test_everything_together() -> None:
    results, boards = everything()
    own = Result("speed", {"seconds": {"all": 1.25, "worst": 2.5}}, {}, 3, main=None)
    clusters = Result("tweet", {"accuracy": {"mean": 55.0, "std": 1.0}}, {}, 9, main=("accuracy", "mean"))
    report = gather([*results, own, clusters], boards)
    assert [s.title for s in report.sections] == [
        "Spearman ×100", "HEROS", "geometry.stsb", "Accuracy ×100", "speed", "Accuracy ×100, mean",
        "Search on stsb.dev (layers): models/tiny", "Provenance",
    ]  # fmt: skip
    speed = only(report.sections[4], Table)
    assert [column.name for column in speed.columns] == ["model and recipe", "task", "n", "seconds", "seconds, worst"]
    assert speed.rows == [("a model · as it is", "speed", Number(3), Number(1.25), Number(2.5))]
