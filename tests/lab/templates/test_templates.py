"""Templates of a grammar, and templates from T5: the scores of evaluate; the most probable common fillings."""

import copy
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedTokenizerFast, T5ForConditionalGeneration

from essent.errors import DataError, InputError, ModelError, UnknownNameError, UnsupportedRecipeError
from essent.lab.templates.search import (
    DEFINITIONS,
    FORMS,
    PROMPT_BERT,
    Definition,
    Generator,
    find_grammar,
    generate_templates,
    search_templates,
    sentence,
    template_of,
)
from essent.selection.space import Grammar
from families import Folders
from near_ties import one_by_one
from selection_samples import TASK, Shells

GRAMMAR = Grammar(
    '{prefix} "{text}" {relation} [MASK] .', {"relation": ("is", "means", ""), "prefix": ("This sentence :", "")}
)


def test_all_templates_match_single_encoders(shell: SentenceTransformer) -> None:
    board = search_templates(shell, TASK, GRAMMAR.templates(), baselines=("mean",))
    assert board.provenance["passes"] == len(board.trials) == 7  # 3 relations with 2 prefixes, the baseline
    assert board.provenance["space"] == "templates"
    recipes = [f"template='{template}' weights=mask" for template in GRAMMAR.templates()]
    for recipe, single in one_by_one(shell, recipes, TASK).items():
        assert board.find(recipe).scores["spearman"] == single.expected(recipe)


def test_weights_and_layers_and_a_model_without_mask(shell_of: Shells) -> None:
    board = search_templates(shell_of("gpt2"), TASK, ["In one word {text}"], weights="last", layers="L-1+L")
    assert board.find("template='In one word {text}' weights=last layers=L-1+L").scores
    with pytest.raises(UnsupportedRecipeError, match="no mask token"):
        search_templates(shell_of("gpt2"), TASK)


def test_templates_that_do_not_fit_the_model_are_excluded(shell_of: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    # with all of them a tiny vocabulary splits everything
    monkeypatch.setattr("essent.model.template.STAND_INS", ("a",))
    glued, fine = "xyz{text}q [MASK]", "{text} : [MASK] ."
    long = "{text} means [MASK]" + " and so on" * 90  # no room for a text
    board = search_templates(shell_of("bert"), TASK, [glued, fine, long], baselines=["mean"])
    assert {trial.recipe.template for trial in board.trials} == {fine, None}
    assert any("2 recipes of the space 'templates' were excluded" in note for note in board.notes)
    with pytest.raises(UnsupportedRecipeError):
        search_templates(shell_of("bert"), TASK, [glued])
    with pytest.raises(InputError, match="must be a list of templates"):
        search_templates(shell_of("bert"), TASK, [])


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


@pytest.fixture(scope="module")
def generator(t5: str) -> Generator:
    return Generator(t5, device="cpu")


def test_longer_fillings_and_parts_in_memory(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [FORMS[0][0].format(word=pair.word, definition=sentence(pair.definition)) for pair in PAIRS]
    whole = generator.fillings(inputs, 200, longest=4)  # a random T5 seldom writes a sentinel
    monkeypatch.setattr("essent.lab.templates.search.SCORES", 20_000)
    parts = generator.fillings(inputs, 200, longest=4)
    assert [(f.first, f.second) for f in parts] == [(f.first, f.second) for f in whole]
    of_two_tokens = [filling for filling in whole if len(filling.first) + len(filling.second) == 2]
    assert of_two_tokens
    start, middle, end = generator.sentinels
    model = copy.deepcopy(generator.model).double()
    for first, second, log_likelihood in [whole[0], *of_two_tokens][:4]:
        ids, total = torch.tensor([[start, *first, middle, *second, end]]), 0.0
        for text in inputs:  # by teacher forcing, one pair at a time; the first token is given
            with torch.no_grad():
                logits = model(**generator.tokenizer([text], return_tensors="pt"), labels=ids).logits
            total += float(logits.log_softmax(dim=-1).gather(2, ids[..., None])[0, 1:].sum())
        assert log_likelihood == pytest.approx(total / len(inputs), abs=1e-4)


def test_fillings_become_templates(generator: Generator) -> None:
    expected = {
        (0, " is called a", "."): "{text} is called a [MASK].",
        (0, "  means ,", "  ."): "{text} means , [MASK] .",
        (1, "Also called", "."): "Also called [MASK]. {text}",
        (0, " {text}", "."): None,
        (0, " is [MASK] or", "."): None,
        (0, " is", ". . ."): None,
        (1, "is \ufffd", "."): None,
    }
    assert {key: template_of(FORMS[key[0]][1], *key[1:]) for key in expected} == expected
    assert generator.text(generator.tokenizer("is a ball", add_special_tokens=False).input_ids) == " is a ball"


def test_definitions_do_not_contain_their_words() -> None:
    assert len({pair.word for pair in DEFINITIONS if pair.word not in pair.definition.split()}) == 50


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
