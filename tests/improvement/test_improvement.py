"""`essent improve` end to end on tiny models: what comes out, breaks, budgets, what is refused before a model loads."""

import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from improvement_helpers import digests, duplicates, make_small, make_texts, make_topic_texts
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

import essent
from command_line import read_json, run, write_rows
from essent._core import machine
from essent.errors import DataError, EssentError, InputError, UnknownNameError
from essent.improvement import budget, plan, steps
from essent.improvement.metric import read_inputs
from essent.improvement.results import Improved
from essent.improvement.run import Run
from essent.selection.leaderboard import Leaderboard
from essent.tasks.pairs import PairTask

TEXTS = make_texts(90)
CPU = {"device": "cpu"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of few trials, few steps and few recipes, and no graph."""
    make_small(monkeypatch.setattr)


@pytest.fixture(scope="module")
def improved(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Improved:
    """An improvement by judgements, with a test, for the size."""
    folder = tmp_path_factory.mktemp("improved") / "judged"
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch.setattr, trials=1)
        return essent.improve(
            str(bert), TEXTS, duplicates(60), output=folder, test=duplicates(30, 7), goal="size", options=CPU
        )


def test_by_judgements(improved: Improved) -> None:
    """The encoder is better than the model as it was given, and loads everywhere with what it promises."""
    encoder, static = (next(part for part in improved.results if part.name == name) for name in ("encoder", "static"))
    assert improved.by_labels
    assert encoder.score > improved.before[0] + 5
    assert encoder.low <= encoder.score <= encoder.high
    assert encoder.test is not None
    assert improved.answer == "static"
    assert (static.bytes or 0) < (encoder.bytes or 0) * 2
    saved = improved.encoder(device="cpu")
    vectors = saved.encode(TEXTS[:5])
    plain = SentenceTransformer(str(improved.folder / "encoder"), device="cpu")
    assert np.allclose(vectors, plain.encode(TEXTS[:5]), atol=1e-5)
    assert saved.calibration is not None
    assert saved.calibration.probability is not None  # the judgements are duplicates
    assert essent.StaticEncoder.load(str(improved.folder / "static")).encode(TEXTS[:2]).shape[0] == 2
    assert "### How it was chosen" in (improved.folder / "encoder" / "README.md").read_text("utf-8")
    essent.verify(str(improved.folder / "encoder"))
    optimized, gain, test, *_, answer = improved.overview
    assert optimized.startswith("Optimized on your labels: ")
    assert f"points, {encoder.score:.1f} instead of {improved.before[0]:.1f}. All choices were made on them" in gain
    assert test.startswith("On the test (")
    assert f"{encoder.test[0]:.1f}" in test
    assert answer == f"{improved.why} It is in {improved.folder / 'static'}."
    assert len(improved.overview) <= 8
    metadata = read_json(improved.folder / "improvement.json")
    assert metadata["gains"][0]["step"] == "search"
    assert {"encoder", "static"} <= {result["name"] for result in metadata["results"]}
    page = (improved.folder / "report.html").read_text("utf-8")
    for part in ("Optimized on your labels", "Quality, speed and size", "Gain of each step", "on the test"):
        assert part in page
    assert not list((improved.folder / ".work").rglob("*.safetensors"))  # the models of the steps


def test_the_same_command_computes_nothing_and_another_is_refused(
    improved: Improved, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch.setattr, trials=1)
    original = Run.step

    def refuse(run: Run, folder: Path, planned: Any) -> Any:
        raise AssertionError(folder)

    monkeypatch.setattr(Run, "step", lambda self, name, compute, planned: original(self, name, refuse, planned))
    before = digests(improved.folder, "encoder", "static")
    arguments = {"data": duplicates(60), "output": improved.folder, "test": duplicates(30, 7), "options": CPU}
    assert essent.improve(str(bert), TEXTS, goal="size", **arguments).results == improved.results
    assert digests(improved.folder, "encoder", "static") == before
    with pytest.raises(DataError, match=r"goal was 'size' and is 'speed'; seed was 0 and is 1"):
        essent.improve(str(bert), TEXTS, goal="speed", seed=1, **arguments)
    with pytest.raises(DataError, match=r"use was 'similarity' and is 'clusters'"):
        essent.improve(str(bert), TEXTS, goal="size", use="clusters", **arguments)


@pytest.mark.slow  # seconds, for the reference recipes
def test_for_retrieval_teacher_chooses_and_nothing_is_trained(bert: Path, small: None, tmp_path: Path) -> None:
    lines: list[str] = []
    output = tmp_path / "out"
    improvement = essent.improve(
        str(bert), TEXTS, output=output, use="retrieval", budget="1s", options=CPU, note=lines.append
    )
    assert lines[0] == "Optimizes retrieval, by the criterion teacher, without labels."
    assert [name for name in improvement.metadata["steps"] if name.startswith("search")]
    assert not [name for name in improvement.metadata["steps"] if name.startswith(("trials", "train"))]
    optimized, gain, worth, untried, *_ = improvement.overview
    assert optimized == "Optimized: retrieval, without labels, by the criterion teacher."
    assert "it does not measure how good they are" in gain
    assert "on queries made from pairs" in worth
    assert "no criterion without labels shows whether training helps this use" in untried


@pytest.mark.slow  # k-means for every recipe
@pytest.mark.parametrize(("texts", "held_out"), [(90, "not measured, they are too few"), (520, "52 held-out texts")])
def test_for_clusters_a_search_chooses(
    texts: int, held_out: str, bert: Path, small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe that leads by `topics` is saved."""
    arguments: dict[str, Any] = {"use": "clusters", "options": CPU, "budget": "10m"}
    lines: list[str] = []
    original, best = steps.search_recipes, "static | normalize"

    def search(*arguments: Any, **settings: Any) -> Leaderboard:
        """Rank the recipe first."""
        board = original(*arguments, **settings)
        return replace(board, trials=tuple(sorted(board.trials, key=lambda t: str(t.recipe) != best)), kept=None)

    monkeypatch.setattr(steps, "MIN_LEAD", -1.0)
    monkeypatch.setattr(steps, "search_recipes", search)
    improvement = essent.improve(
        str(bert), make_topic_texts(texts), output=tmp_path / "out", note=lines.append, force=True, **arguments
    )
    done = improvement.metadata["steps"]
    assert lines[0] == "Optimizes clusters, by the criterion topics, without labels."
    assert not [name for name in done if name.startswith(("trials", "train"))]
    assert str(improvement.encoder(device="cpu").recipe) == done["search"]["name"] == best
    assert improvement.results[0].score == pytest.approx(100)
    optimized, gain, worth, harm, untried, *_ = improvement.overview
    assert optimized.startswith("Optimized: clusters, without labels, by the criterion topics")
    assert held_out in gain
    assert "the accuracy of k-means rose by" in worth
    assert "sentiment" in harm
    assert "no criterion without labels shows whether training helps this use" in untried


def test_for_clusters_the_model_stays_as_it_is_without_a_lead(
    bert: Path, small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "MIN_LEAD", 2.0)
    unchanged = essent.improve(
        str(bert), make_topic_texts(90), output=tmp_path / "out", use="clusters", budget="1s", options=CPU
    )
    assert np.isnan(unchanged.results[0].low)  # agreement has no interval
    assert str(unchanged.encoder(device="cpu").recipe) == "mean"
    assert unchanged.overview[1].startswith("Gain: none.")
    assert not any(line.startswith("Worth") for line in unchanged.overview)  # nothing was chosen
    journal = (tmp_path / "out" / ".work" / "journal.json").read_bytes()
    with pytest.raises(EssentError, match="Cannot load"):
        essent.improve(str(tmp_path), TEXTS, output=tmp_path / "out", options=CPU, force=True)
    assert (tmp_path / "out" / ".work" / "journal.json").read_bytes() == journal


@pytest.mark.parametrize(
    ("use", "reason"),
    [("classes", "no criterion without labels is safe for classes"), (None, "the model was trained for sentences")],
)
def test_without_a_safe_criterion_nothing_is_searched(
    use: str | None, reason: str, bert: Path, small: None, tmp_path: Path
) -> None:
    own = SentenceTransformer(modules=[Transformer(str(bert)), Pooling(32, "cls")], device="cpu")
    own.save(str(tmp_path / "own"))
    lines: list[str] = []
    arguments: dict[str, Any] = {"use": use, "goal": "size", "budget": "10m", "options": CPU, "note": lines.append}
    unchanged = essent.improve(str(tmp_path / "own"), make_topic_texts(90), output=tmp_path / "out", **arguments)
    assert f"retained for {'classes' if use else 'the similarity of sentences'}: {reason}" in lines[0]
    assert list(unchanged.metadata["steps"]) == ["encoder", "static"]
    assert str(unchanged.encoder(device="cpu").recipe) == "cls"
    assert unchanged.results[0].score == pytest.approx(100)  # agreement with the model as it is
    assert unchanged.overview[0].startswith(f"Optimized: nothing. The model's own pooling cls is retained: {reason}")
    assert unchanged.overview[1].endswith("Nothing is left to do.")


@pytest.mark.slow  # half a minute: trials, training and two searches, judged by pairs that are made
def test_without_labels(bert: Path, small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps run but trials, whose gain is chance here; training that does not gain is not kept; steps add up."""
    monkeypatch.setattr(budget, "TRIALS", (1,))
    improvement = essent.improve(str(bert), TEXTS, output=tmp_path / "out", keep_all=True, options=CPU)
    assert not improvement.by_labels
    assert [gain.step for gain in improvement.gains] == ["search", "train"]
    total_gain = sum(gain.difference for gain in improvement.gains if gain.kept)
    assert improvement.results[0].score == pytest.approx(improvement.before[0] + total_gain, abs=1.5)
    assert any("in measured cases of such choices: similarity +" in note for note in improvement.notes)
    done = improvement.metadata["steps"]
    steps_done = done["train"]["steps"]
    model = tmp_path / "out" / ".work" / f"model-{steps_done}"
    assert read_json(model / "training.json")["best_step"] is None  # the last one
    prefix = f"trained for {steps_done} steps"
    assert {f"{prefix}: mean", f"{prefix}: {done['search']['name']}"} <= {*done["train"]["measured"]}
    optimized, gain, worth, *_ = improvement.overview
    assert optimized == "Optimized: the similarity of sentences, without labels, by the criterion teacher."
    assert "it does not measure how good they are" in gain
    assert "clusters" in worth
    assert "retrieval +1.7 points of nDCG@10" in worth


@pytest.mark.slow  # some seconds
def test_nothing_gained_keeps_the_recipe(bert: Path, small: None, tmp_path: Path) -> None:
    """Judgements at random: the model's own recipe stays, and it is not trained."""
    order = np.random.default_rng(0).permutation(80)
    noise = PairTask.from_rows([(TEXTS[n], TEXTS[(7 * n + 1) % 80], float(order[n])) for n in range(80)], "noise")
    improvement = essent.improve(str(bert), TEXTS, noise, output=tmp_path / "out", options=CPU)
    assert improvement.metadata["recipe"] == "mean"
    assert not any(gain.kept for gain in improvement.gains)
    assert improvement.results[0].score == pytest.approx(improvement.before[0], abs=1e-3)
    assert any("no step was significantly better than the model as it is" in line for line in improvement.overview)
    assert any("not trained: no recipe gains" in note for note in improvement.notes)


def test_a_spent_budget_gives_an_encoder(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock by which whatever is timed takes a second, a budget of two is spent before the search; no labels."""
    earlier = tmp_path / "out" / "static"
    earlier.mkdir(parents=True)
    monkeypatch.setattr(machine, "elapsed", itertools.count().__next__)
    improvement = essent.improve(str(bert), TEXTS, output=tmp_path / "out", budget="2s", options=CPU, force=True)
    assert not improvement.by_labels
    assert not [name for name in improvement.metadata["steps"] if name.startswith(("timing", "trials", "train"))]
    assert [part.name for part in improvement.results] == ["encoder"]
    assert improvement.encoder(device="cpu").encode(["A text."]).shape[0] == 1
    assert any("No static was made: it would take about" in note for note in improvement.notes)
    assert any("more than the budget" in note for note in improvement.notes)
    assert f"Left from an earlier run: {earlier}." in improvement.notes


@pytest.mark.slow  # processes of their own
@pytest.mark.parametrize(
    ("step", "pairs"),
    [
        ("train", 0),
        ("trials/trial-*/checkpoints/checkpoint-8", 60),  # a trial that goes on after the first comparison
    ],
)
def test_killed_and_resumed(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, pairs: int) -> None:
    """Killed in a step or between two, and resumed: the same bytes as without the break, from the same plan."""
    make_small(monkeypatch.setattr, trials=1 if step == "train" else 2)
    script = Path(__file__).parent / "killed_improvement.py"
    command = [sys.executable, script, str(bert), tmp_path / "killed", step, str(pairs)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    journal = Path(".work", "journal.json")
    entries = read_json(tmp_path / "killed" / journal)
    (tmp_path / "whole" / ".work").mkdir(parents=True)
    planned = {name: entries[name] for name in ("identity", "plan")}
    (tmp_path / "whole" / journal).write_text(json.dumps(planned), "utf-8")
    data = duplicates(pairs) if pairs else ()
    for name in ("killed", "whole"):
        essent.improve(str(bert), TEXTS, data, output=tmp_path / name, budget="30m", goal="speed", options=CPU)
    resumed, expected = (digests(tmp_path / name, "encoder", "static") for name in ("killed", "whole"))
    assert resumed == expected
    assert len(resumed) > 10


@pytest.mark.slow  # a conversion takes seconds
def test_the_graph_gives_the_encoders_vectors(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = plan.ENGINES
    make_small(monkeypatch.setattr)
    monkeypatch.setattr(plan, "ENGINES", engines)
    improvement = essent.improve(str(bert), TEXTS, duplicates(60), output=tmp_path / "out", options=CPU)
    encoder, graph = improvement.encoder(device="cpu"), essent.load(str(tmp_path / "out" / "graph"))
    assert np.allclose(encoder.encode(TEXTS[:9]), graph.encode(TEXTS[:9]), atol=1e-4)
    assert graph.calibration == encoder.calibration is not None
    (compiled,) = [result for result in improvement.results if result.name == "graph"]
    assert compiled.agreement == pytest.approx(100, abs=0.01)


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command(bert: Path, small: None, tmp_path: Path) -> None:
    """Its options arrive; the plan and the notes go to standard error, the results to standard output."""
    output, texts = tmp_path / "out", write_rows(tmp_path / "texts.jsonl", ({"body": text} for text in TEXTS))
    rows = [{"sentence1": a, "sentence2": b, "label": int(alike)} for a, b, alike in duplicates(40).pairs]
    pairs = write_rows(tmp_path / "alike.jsonl", rows)
    command = f"improve -m {bert} --texts {texts} --column body -d {pairs} -o {output} --device cpu".split()
    printed = run(*command, "--goal", "size", "--budget", "1s", "--for", "classes")
    settings = read_json(output / "improvement.json")["about"]
    assert (settings["goal"], settings["budget"]) == ("size", "1s")
    assert "a budget of 1s" in printed.stderr
    assert "measure similarity, not classes. The labels decide" in printed.stderr
    assert printed.stdout.startswith("Optimized on your labels: ")
    assert f"It is in {output}" in printed.stdout
    other = run(*command, "--goal", "speed", "--for", "classes", "--budget", "1s", code=2)
    assert "goal was 'size' and is 'speed'" in other.stderr


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"texts": ["one", "one", "two"]}, InputError, "Too few texts: 2 different ones outside of the tests"),
        ({"texts": "corpus.txt"}, InputError, "Expected a list of texts"),
        ({"goal": "qualty"}, UnknownNameError, "quality"),
        ({"use": "cluster"}, UnknownNameError, "clusters"),
        ({"budget": "30"}, InputError, "budget='30': must be a number of seconds"),
        ({"budget": "0s"}, InputError, "must be a number of seconds"),
        ({"seed": -1}, InputError, "seed=-1"),
        ({"data": "no-such-task"}, EssentError, "no-such-task"),
        ({"data": [duplicates(20), duplicates(20)]}, InputError, "have the name 'alike'"),
        ({"data": duplicates(20), "test": duplicates(20)}, InputError, "is not independent"),
    ],
)
def test_refused_before_a_model_is_loaded(changes: dict, kind: type, message: str, tmp_path: Path) -> None:
    arguments = {"texts": TEXTS, "output": tmp_path / "out", **changes}
    with pytest.raises(kind, match=re.escape(message)):
        essent.improve("no/such-model", **arguments)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", "utf-8")
    for output, message in ((tmp_path, "contains other files"), (tmp_path / "thesis.txt", "is a file")):
        with pytest.raises(DataError, match=message):
            essent.improve("no/such-model", TEXTS, output=output)


def test_texts_of_the_test_are_not_learned_from() -> None:
    test = PairTask.from_rows([(TEXTS[0].upper(), "else", 1.0), ("other", TEXTS[1] + " ", 2.0)], "test")
    inputs = read_inputs(TEXTS, (), test, None, 0)
    assert sorted([*inputs.texts, *inputs.held_out]) == sorted(TEXTS[2:])
    assert len(inputs.held_out) == 9
    assert inputs.notes == ("2 of the 90 texts are also in the tests and are excluded.",)


def test_training_texts_of_a_test_may_be_learned_from(tmp_path: Path) -> None:
    rows = [{"body": text, "topic": number % 2} for number, text in enumerate(TEXTS)]
    parts = {"train": rows[10:], "test": rows[:10]}
    files = [write_rows(tmp_path / f"questions.{part}.jsonl", contents) for part, contents in parts.items()]
    columns = {"text": "body", "label": "topic"}
    inputs = read_inputs(TEXTS, *files, None, 0, columns)
    assert [task.kind for task in (*inputs.tasks, *inputs.tests)] == ["classification"] * 2
    assert {*inputs.texts, *inputs.held_out} == {*TEXTS[10:]}
    with pytest.raises(InputError, match="columns are those of labelled data or tests"):
        read_inputs(TEXTS, (), (), None, 0, columns)
