"""Templates from T5: the beam finds the most probable common fillings, sentinels become {text} and [MASK]."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedTokenizerFast, T5ForConditionalGeneration

from essent.errors import DataError, InputError, ModelError, UnsupportedRecipeError
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
from essent.lab.templates.search import search_candidates
from near_ties import one_by_one
from selection_samples import TASK

Shells = Callable[[str], SentenceTransformer]
PAIRS = (Definition("moon", "a ball far from the earth"), Definition("dog", "it runs and plays"))
INPUTS = [FORMS["definition first"][0].format(word=p.word, definition=sentence(p.definition)) for p in PAIRS]


@pytest.fixture(scope="module")
def generator(t5: str) -> Generator:
    return Generator(t5, device="cpu")


def log_likelihood(generator: Generator, first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """Mean over the pairs of Σ log p by teacher forcing, in float64, one pair at a time."""
    ids = [generator.sentinels[0], *first, generator.sentinels[1], *second, generator.sentinels[2]]
    model = generator.model.double()
    total = 0.0
    for text in INPUTS:
        read = generator.tokenizer([text], return_tensors="pt")
        with torch.no_grad():
            logits = model(
                input_ids=read.input_ids, attention_mask=read.attention_mask, labels=torch.tensor([ids])
            ).logits
        shares = logits[0].log_softmax(dim=-1)
        # the first is given
        total += sum(float(shares[position, token]) for position, token in enumerate(ids) if position)
    generator.model.float()
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


def test_templates_are_valid_and_distinct(generator: Generator, t5: str) -> None:
    # with more beams than tokens the empty filling is always found, however seldom a random T5 writes a sentinel
    generated = generate_templates(generator, PAIRS, candidates=400, longest=3)
    assert generated == generate_templates(t5, PAIRS, candidates=400, longest=3)
    templates = [candidate.template for candidate in generated]
    assert "{text} [MASK]" in templates
    assert len(templates) <= 400
    assert len(set(templates)) == len(templates)
    for template in templates:
        assert template.count("{text}") == template.count("[MASK]") == 1
        assert "extra_id" not in template
    assert [candidate.log_likelihood for candidate in generated] == sorted(
        (candidate.log_likelihood for candidate in generated), reverse=True
    )


@pytest.mark.parametrize(
    ("form", "first", "second", "template"),
    [
        ("definition first", " is called a", ".", "{text} is called a [MASK]."),
        ("definition first", " (", ")", "{text} ( [MASK])"),
        ("definition first", "", "", "{text} [MASK]"),
        ("definition first", "  means ,", "  .", "{text} means , [MASK] ."),
        ("word first", "Also called", ".", "Also called [MASK]. {text}"),
        ("word first", "", ":", "[MASK]: {text}"),
        ("definition first", " {text}", ".", None),
        ("definition first", " is [MASK] or", ".", None),
        ("definition first", " <extra_id_7>", ".", None),
        ("definition first", " is", ". . .", None),
        ("word first", "....", ".", None),
        ("word first", "is \ufffd", ".", None),
    ],
)
def test_fillings_become_templates(form: str, first: str, second: str, template: str | None) -> None:
    assert template_of(FORMS[form][1], first, second) == template


def test_written_fillings_keep_their_spaces(generator: Generator) -> None:
    ids = generator.tokenizer("is a ball", add_special_tokens=False).input_ids
    assert generator.text(ids) == " is a ball"
    assert generator.text([]) == ""


def test_sentences() -> None:
    assert sentence("a sour fruit") == "A sour fruit."
    assert sentence(" Who? ") == "Who?"


# -- word-definition pairs ---------------------------------------------------------------------------------------------


def test_packaged_definitions() -> None:
    assert len(DEFINITIONS) == len({pair.word for pair in DEFINITIONS}) == 50
    for word, definition in DEFINITIONS:
        assert word not in definition.split()
        assert definition[-1].isalpha()


def test_pairs_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    path.write_text("word,definition\n moon ,a ball\n", "utf-8")
    assert read_definitions(path) == (Definition("moon", "a ball"),)
    path.write_text("word,meaning\nmoon,a ball\n", "utf-8")
    with pytest.raises(DataError, match="no column 'definition'"):
        read_definitions(path)
    path.write_text("word,definition\nmoon, \n", "utf-8")
    with pytest.raises(DataError, match=r"words\.csv.*2.*'definition' must be a text that is not empty"):
        read_definitions(path)
    path.write_text("word,definition\n", "utf-8")
    with pytest.raises(DataError):
        read_definitions(path)
    with pytest.raises(DataError):
        read_definitions(tmp_path / "none.csv")


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_generator_refusals(tmp_path: Path, t5: str, bert: Path, folder_of: Callable[[str], Path]) -> None:
    with pytest.raises(ModelError, match="Cannot load the model"):
        Generator(str(tmp_path))
    with pytest.raises(ModelError, match="is not a sequence-to-sequence model"):
        Generator(str(bert))
    PreTrainedTokenizerFast.from_pretrained(folder_of("t5")).save_pretrained(tmp_path / "plain")
    T5ForConditionalGeneration.from_pretrained(t5).save_pretrained(tmp_path / "plain")
    with pytest.raises(ModelError, match="the tokenizer has no sentinel <extra_id_0>"):
        Generator(str(tmp_path / "plain"))
    with pytest.raises(InputError, match="got none"):
        generate_templates(t5, [])
    with pytest.raises(InputError, match="at least 2"):
        generate_templates(t5, PAIRS, candidates=1)


def test_generated_templates_are_ranked_by_their_scores(shell_of: Shells, tmp_path: Path) -> None:
    candidates = [
        Candidate("{text} is called [MASK].", -3.0),
        Candidate("Also called [MASK]. {text}", -1.0),
        Candidate("{text} means [MASK] .", -9.0),
    ]
    work = tmp_path / "work"
    ranking = search_candidates(shell_of("bert"), TASK, candidates, work=work, layers="topk:9")
    assert ranking.candidates == tuple(candidates)
    assert ranking.left_out == ()
    scores = {}
    for candidate in candidates:
        recipe = f"template='{candidate.template}' layers=topk:9 weights=mask"
        (alone,) = one_by_one(shell_of("bert"), [recipe], TASK).values()
        scores[candidate.template] = ranking.board.find(recipe).scores["spearman"]
        assert scores[candidate.template] == alone.expected(recipe)
    assert scores[ranking.template] == max(scores.values())
    again = search_candidates(shell_of("bert"), TASK, candidates, work=work, layers="topk:9")
    assert again.board.provenance["encoded"] == 0
    assert [t.recipe for t in again.board.trials] == [t.recipe for t in ranking.board.trials]
    with pytest.raises(UnsupportedRecipeError, match="no mask token"):
        search_candidates(shell_of("gpt2"), TASK, candidates)
    with pytest.raises(InputError, match="None of 0"):
        search_candidates(shell_of("bert"), TASK, [])


def test_unusable_templates_are_skipped(shell_of: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "essent.model.template.STAND_INS", ("a",)
    )  # with all of them a tiny vocabulary splits everything
    glued, fine = Candidate("xyz{text}q [MASK]", -1.0), Candidate("{text} : [MASK] .", -2.0)
    long = Candidate("{text} means [MASK]" + " and so on" * 90, -3.0)  # no room for a text
    ranking = search_candidates(shell_of("bert"), TASK, [glued, fine, long])
    assert ranking.left_out == (glued.template, long.template)
    assert ranking.template == fine.template
    with pytest.raises(InputError, match="None of 1 generated"):
        search_candidates(shell_of("bert"), TASK, [glued])
