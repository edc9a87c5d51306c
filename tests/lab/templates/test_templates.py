"""Greedy template search: slot by slot, no template twice, the same scores as evaluate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

from essent.errors import DataError, InputError, UnknownNameError, UnsupportedRecipeError
from essent.lab.templates.search import PROMPT_BERT, find_grammar, search_templates
from essent.selection.space import Grammar
from essent.tasks.examples import Pair
from essent.tasks.pairs import PairTask
from near_ties import one_by_one
from selection_samples import TASK, planted

RELATIONS = Grammar('"{text}" {relation} [MASK] .', {"relation": ("is", "means")})
Shells = Callable[[str], SentenceTransformer]
TEST_TASK = PairTask("other", tuple(Pair(pair.sentence1, f"{pair.sentence2} too", pair.score) for pair in TASK.pairs))
GRAMMAR = Grammar(
    '{prefix} "{text}" {relation} [MASK] .', {"relation": ("is", "means", ""), "prefix": ("This sentence :", "")}
)


def test_greedy_steps_match_single_encoders(shell_of: Shells) -> None:
    greedy = search_templates(shell_of("bert"), TASK, GRAMMAR, top=1)  # every step sees all of its templates
    assert [step.slot for step in greedy.steps] == ["relation", "prefix"]
    chosen = GRAMMAR.first()
    for step in greedy.steps:
        scores = {}
        for choice in GRAMMAR.choices[step.slot]:
            template = GRAMMAR.fill({**chosen, step.slot: choice})
            recipe = f"template='{template}' weights=mask"
            (alone,) = one_by_one(shell_of("bert"), [recipe], TASK).values()
            assert step.scores[template] == alone.expected(recipe)
            scores[choice] = step.scores[template]
        chosen[step.slot] = max(scores, key=lambda choice: scores[choice])
        assert step.chosen == chosen[step.slot]
    assert greedy.template == GRAMMAR.fill(chosen)
    assert greedy.board.leader.template == greedy.template


@pytest.mark.parametrize("criterion", [(), "teacher"])
def test_best_baseline_beats_weak_templates(shell_of: Shells, criterion: Any) -> None:
    every = ("mean", "first-last", "cls", "static", "layers=1", "layers=2")
    data: Any = planted(shell_of("bert"), "layers=1")
    if criterion:  # the vectors of one token, [MASK], are more alike than means
        data = [(pair.sentence1, pair.sentence2) for pair in TASK.pairs]
    board = search_templates(shell_of("bert"), data, RELATIONS, baselines=every, criterion=criterion).board
    assert board.trials[0].recipe.template is None
    assert board.leader.template
    assert board.kept == str(board.best) in every
    assert f"{board.kept} is retained" in board.verdict or f"{board.kept}, which is retained" in board.verdict
    if not criterion:
        assert {comparison.first for comparison in board.comparisons} == {str(board.leader)}
        assert {comparison.second for comparison in board.comparisons} == set(every)


def test_better_template_is_chosen(shell_of: Shells) -> None:
    template = '"{text}" means [MASK] .'
    data = planted(shell_of("bert"), f"template='{template}' weights=mask")
    board = search_templates(shell_of("bert"), data, RELATIONS).board
    assert board.best.template == template
    assert board.kept is None
    turned = tuple(Pair(pair.sentence2, f"{pair.sentence1} too", 0.0) for pair in TASK.pairs)
    mean_task = planted(shell_of("bert"), "mean", pairs=turned)
    veto = search_templates(shell_of("bert"), data, RELATIONS, test=[mean_task]).board
    assert veto.leader == board.leader
    assert str(veto.best) == "mean"
    with pytest.raises(InputError, match="all of its 63 pairs"):
        search_templates(shell_of("bert"), TASK, RELATIONS, test=[TASK])


def test_no_template_runs_twice_and_the_baselines_run_once(shell_of: Shells) -> None:
    board = search_templates(shell_of("bert"), TASK, GRAMMAR, baselines=("mean",)).board
    assert len(board.trials) == 3 + 1 + 1  # three relations, one more prefix, the baseline
    assert board.provenance["passes"] == 5
    assert all(trial.interval is not None for trial in board.trials)


def test_weights_layers_test_task_and_refusals(shell_of: Shells) -> None:
    grammar = Grammar('{relation} "{text}"', {"relation": ("Of", "In one word of")})
    greedy = search_templates(shell_of("gpt2"), TASK, grammar, weights="last", layers="L-1+L", test=[TEST_TASK])
    recipe = next(t.recipe for t in greedy.board.trials if t.recipe.template is not None)
    assert recipe.weights == ("last",)
    assert greedy.board.checks[0].task == "other"
    with pytest.raises(UnsupportedRecipeError, match="no mask token"):
        search_templates(shell_of("gpt2"), TASK)
    with pytest.raises(InputError, match="no slots"):
        search_templates(shell_of("bert"), TASK, Grammar("{text} [MASK]", {}))


def test_grammars_by_name_and_from_files(tmp_path: Path) -> None:
    assert find_grammar("promptbert") is PROMPT_BERT
    templates = PROMPT_BERT.templates()  # of Table 4
    assert {"{text} [MASK] .", "{text} means [MASK] .", 'This sentence : "{text}" means [MASK] .'} <= set(templates)
    assert len(templates) == 20
    path = tmp_path / "grammar.yaml"
    path.write_text("template: '{a} \"{text}\" [MASK]'\na: [This, null, 3]\n", "utf-8")
    assert find_grammar(path).templates() == ['This "{text}" [MASK]', '"{text}" [MASK]', '3 "{text}" [MASK]']
    for content, message in (
        ("a: [x]", "expected `template`"),
        ("template: '{text} {a}'\na: x", "must be a list"),
        ("[", "grammar.yaml"),
    ):
        path.write_text(content, "utf-8")
        with pytest.raises(DataError, match=message):
            find_grammar(path)
    with pytest.raises(UnknownNameError, match="promptbert"):
        find_grammar("prompt-bert")
