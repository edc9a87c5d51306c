"""Greedy template search, and templates from T5: the scores of evaluate; the most probable common fillings."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedTokenizerFast, T5ForConditionalGeneration

from essent.errors import DataError, InputError, ModelError, UnknownNameError, UnsupportedRecipeError
from essent.lab.templates.generate import (
    DEFINITIONS,
    FORMS,
    Candidate,
    Definition,
    Generator,
    generate_templates,
    read_definitions,
    sentence,
    template_of,
)
from essent.lab.templates.search import PROMPT_BERT, find_grammar, search_candidates, search_templates
from essent.selection.space import Grammar
from essent.tasks.examples import Pair
from essent.tasks.pairs import PairTask
from families import Folders
from near_ties import one_by_one
from selection_samples import TASK, Shells, planted

RELATIONS = Grammar('"{text}" {relation} [MASK] .', {"relation": ("is", "means")})
TEST_TASK = PairTask("other", tuple(Pair(pair.sentence1, f"{pair.sentence2} too", pair.score) for pair in TASK.pairs))
GRAMMAR = Grammar(
    '{prefix} "{text}" {relation} [MASK] .', {"relation": ("is", "means", ""), "prefix": ("This sentence :", "")}
)


def test_greedy_steps_match_single_encoders(shell: SentenceTransformer) -> None:
    greedy = search_templates(shell, TASK, GRAMMAR, baselines=("mean",), top=1)  # every step sees all its templates
    assert greedy.board.provenance["passes"] == len(greedy.board.trials) == 5  # 3 relations, a prefix, the baseline
    assert all(trial.interval is not None for trial in greedy.board.trials)
    assert [step.slot for step in greedy.steps] == ["relation", "prefix"]
    chosen = GRAMMAR.first()
    for step in greedy.steps:
        scores = {}
        for choice in GRAMMAR.choices[step.slot]:
            template = GRAMMAR.fill({**chosen, step.slot: choice})
            recipe = f"template='{template}' weights=mask"
            (alone,) = one_by_one(shell, [recipe], TASK).values()
            assert step.scores[template] == alone.expected(recipe)
            scores[choice] = step.scores[template]
        chosen[step.slot] = max(scores, key=lambda choice: scores[choice])
        assert step.chosen == chosen[step.slot]
    assert greedy.template == GRAMMAR.fill(chosen)
    assert greedy.board.leader.template == greedy.template


@pytest.mark.parametrize("criterion", [(), pytest.param("teacher", marks=pytest.mark.slow)])
def test_best_baseline_beats_weak_templates(shell: SentenceTransformer, criterion: Any) -> None:
    every = ("mean", "cls", "layers=1")
    data: Any = planted(shell, "layers=1")
    if criterion:  # the vectors of one token, [MASK], are more alike than means
        data = [(pair.sentence1, pair.sentence2) for pair in TASK.pairs]
    board = search_templates(shell, data, RELATIONS, baselines=every, criterion=criterion).board
    assert board.trials[0].recipe.template is None
    assert board.leader.template
    assert board.kept == str(board.best) in every
    assert f"{board.kept} is retained" in board.verdict or f"{board.kept}, which is retained" in board.verdict
    if not criterion:
        assert {comparison.first for comparison in board.comparisons} == {str(board.leader)}
        assert {comparison.second for comparison in board.comparisons} == set(every)


def test_better_template_is_chosen(shell: SentenceTransformer) -> None:
    template = '"{text}" means [MASK] .'
    task = planted(shell, f"template='{template}' weights=mask")
    board = search_templates(shell, task, RELATIONS).board
    assert board.best.template == template
    assert board.kept is None
    turned = tuple(Pair(pair.sentence2, f"{pair.sentence1} too", 0.0) for pair in TASK.pairs)
    mean_task = planted(shell, "mean", pairs=turned)
    veto = search_templates(shell, task, RELATIONS, test=[mean_task]).board
    assert veto.leader == board.leader
    assert str(veto.best) == "mean"
    with pytest.raises(InputError, match="all of its 63 pairs"):
        search_templates(shell, TASK, RELATIONS, test=[TASK])


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
        ("template: '{text} {a}'\na: x", "a list of choices for each of its slots, got {'a': 'x'}"),
        ("[", "grammar.yaml"),
    ):
        path.write_text(content, "utf-8")
        with pytest.raises(DataError, match=message):
            find_grammar(path)
    with pytest.raises(UnknownNameError, match="promptbert"):
        find_grammar("prompt-bert")


# -- templates from T5 ------------------------------------------------------------------------------------------------


PAIRS = (Definition("moon", "a ball far from the earth"), Definition("dog", "it runs and plays"))
INPUTS = [FORMS["definition first"][0].format(word=p.word, definition=sentence(p.definition)) for p in PAIRS]


@pytest.fixture(scope="module")
def generator(t5: str) -> Generator:
    return Generator(t5, device="cpu")


def log_likelihood(generator: Generator, first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """Mean over the pairs of Σ log p by teacher forcing, in float64, one pair at a time; the first token is given."""
    start, middle, end = generator.sentinels
    ids = torch.tensor([[start, *first, middle, *second, end]])
    model, total = copy.deepcopy(generator.model).double(), 0.0
    for text in INPUTS:
        read = generator.tokenizer([text], return_tensors="pt")
        with torch.no_grad():
            logits = model(input_ids=read.input_ids, attention_mask=read.attention_mask, labels=ids).logits
        total += float(logits.log_softmax(dim=-1).gather(2, ids[..., None])[0, 1:].sum())
    return total / len(INPUTS)


def test_longer_fillings_and_parts_in_memory(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = generator.fillings(INPUTS, 200, longest=4)  # a random T5 seldom writes a sentinel
    assert any(len(filling.first) + len(filling.second) == 2 for filling in whole)
    monkeypatch.setattr("essent.lab.templates.generate.SCORES", 20_000)
    parts = generator.fillings(INPUTS, 200, longest=4)
    assert [(f.first, f.second) for f in parts] == [(f.first, f.second) for f in whole]
    for filling in [whole[0], *(f for f in whole if len(f.first) + len(f.second) == 2)][:4]:
        expected = log_likelihood(generator, filling.first, filling.second)
        assert filling.log_likelihood == pytest.approx(expected, abs=1e-4)


def test_templates_are_valid_and_distinct(generator: Generator, t5: str, tmp_path: Path) -> None:
    # with more beams than tokens the empty filling is always found, however seldom a random T5 writes a sentinel
    generated = generate_templates(generator, PAIRS, candidates=400, longest=3, keep=tmp_path / "kept.json")
    assert generated == generate_templates(t5, PAIRS, candidates=400, longest=3, keep=tmp_path / "kept.json")
    with pytest.raises(DataError, match="templates of another T5"):
        generate_templates(t5, PAIRS, candidates=40, keep=tmp_path / "kept.json")
    templates, likelihoods = zip(*generated, strict=True)
    assert "{text} [MASK]" in templates
    assert len(set(templates)) == len(templates) <= 400
    assert list(likelihoods) == sorted(likelihoods, reverse=True)


def test_fillings_become_templates(generator: Generator) -> None:
    expected = {
        ("definition first", " is called a", "."): "{text} is called a [MASK].",
        ("definition first", "  means ,", "  ."): "{text} means , [MASK] .",
        ("word first", "Also called", "."): "Also called [MASK]. {text}",
        ("definition first", " {text}", "."): None,
        ("definition first", " is [MASK] or", "."): None,
        ("definition first", " is", ". . ."): None,
        ("word first", "is \ufffd", "."): None,
    }
    assert {key: template_of(FORMS[key[0]][1], *key[1:]) for key in expected} == expected
    assert generator.text(generator.tokenizer("is a ball", add_special_tokens=False).input_ids) == " is a ball"


def test_definitions(tmp_path: Path) -> None:
    assert len({pair.word for pair in DEFINITIONS if pair.word not in pair.definition.split()}) == 50
    path = tmp_path / "words.csv"
    path.write_text("word,definition\n moon ,a ball\n", "utf-8")
    assert read_definitions(path) == (Definition("moon", "a ball"),)
    for content, message in (
        ("word,meaning\nmoon,a ball\n", r"words\.csv.*2.*no column 'definition'.*Columns: 'word', 'meaning'"),
        ("word,definition\nmoon, \n", r"words\.csv.*2.*'word' and 'definition' must not be blank, got .*'moon'"),
    ):
        path.write_text(content, "utf-8")
        with pytest.raises(DataError, match=message):
            read_definitions(path)


def test_generator_refusals(tmp_path: Path, t5: str, bert: Path, folder_of: Folders) -> None:
    with pytest.raises(ModelError, match="is not a sequence-to-sequence model"):
        Generator(str(bert))
    PreTrainedTokenizerFast.from_pretrained(folder_of("t5")).save_pretrained(tmp_path / "plain")
    T5ForConditionalGeneration.from_pretrained(t5).save_pretrained(tmp_path / "plain")
    with pytest.raises(ModelError, match="the tokenizer has no sentinel <extra_id_0>"):
        Generator(str(tmp_path / "plain"))
    with pytest.raises(InputError, match="pairs is empty"):
        generate_templates(t5, [])
    with pytest.raises(InputError, match="at least 2"):
        generate_templates(t5, PAIRS, candidates=1)


def test_generated_templates_are_ranked_by_their_scores(shell: SentenceTransformer, tmp_path: Path) -> None:
    names = ("{text} is called [MASK].", "Also called [MASK]. {text}", "{text} means [MASK] .")
    candidates = [Candidate(name, -float(number)) for number, name in enumerate(names)]
    ranking, repeated = (search_candidates(shell, TASK, candidates, work=tmp_path, layers="topk:9") for _ in range(2))
    assert (ranking.candidates, ranking.left_out) == (tuple(candidates), ())
    scores = {
        name: ranking.board.find(f"template='{name}' layers=topk:9 weights=mask").scores["spearman"] for name in names
    }
    assert scores[ranking.template] == max(scores.values())
    assert repeated.board.provenance["encoded"] == 0
    assert [t.recipe for t in repeated.board.trials] == [t.recipe for t in ranking.board.trials]


def test_unusable_templates_are_skipped(shell_of: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    # with all of them a tiny vocabulary splits everything
    monkeypatch.setattr("essent.model.template.STAND_INS", ("a",))
    glued, fine = Candidate("xyz{text}q [MASK]", -1.0), Candidate("{text} : [MASK] .", -2.0)
    long = Candidate("{text} means [MASK]" + " and so on" * 90, -3.0)  # no room for a text
    ranking = search_candidates(shell_of("bert"), TASK, [glued, fine, long])
    assert ranking.left_out == (glued.template, long.template)
    assert ranking.template == fine.template
    with pytest.raises(InputError, match="None of the 1 generated"):
        search_candidates(shell_of("bert"), TASK, [glued])
    with pytest.raises(UnsupportedRecipeError, match="no mask token"):
        search_candidates(shell_of("gpt2"), TASK, [fine])
