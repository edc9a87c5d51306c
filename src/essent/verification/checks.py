"""The health checks of texts, folders and vectors.

A check is a generator of problems, listed in CHECKS; the first line of its docstring states when it
reports a problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from essent._core.arguments import TextsLike
from essent._core.registry import did_you_mean
from essent.encoder.save import LEGACY_FLAGS
from essent.errors import InputError
from essent.verification.report import Problem, Report
from essent.verification.vectors import (
    ModelUnderTest,
    anisotropy,
    dead_dimensions,
    dominating_dimension,
    finite,
    length_bias,
    negation,
)

# -- texts ------------------------------------------------------------------------------------------------------------

CUT = 0.01  # share of truncated texts: a rare long text does not affect the others
UNKNOWN = 0.02  # share of unknown tokens: below it, rare names and symbols; above it, a language or script


def truncation(model: ModelUnderTest) -> Iterator[Problem]:
    """More than 1 % of the texts are longer than the model's limit."""
    limit = model.max_tokens
    if limit is None:
        return
    lengths = np.array([len(ids) for ids in model.ids])
    share, longest = float((lengths > limit).mean()), int(lengths.max())
    if share > CUT:
        max_seq_length = model.encoder.max_seq_length or 0
        fix = model.command(
            "essent encode … -o FOLDER --chunk tokens:256, which splits long texts into chunks with one vector each"
        )
        if model.positions is not None and model.positions > max_seq_length:
            required = min(model.positions, longest + max_seq_length - limit)
            fix = f"encoder.max_seq_length = {required}  # the model has {model.positions} positions"
        read = 100 * np.minimum(lengths, limit).sum() / lengths.sum()
        yield Problem(
            f"{100 * share:.1f} % of the texts are truncated; the model reads {read:.0f} % of all tokens. The limit is "
            f"{limit} tokens per text, the longest text has {longest}.",
            fix,
            figures={"cut": share, "room": limit, "longest": longest},
        )


def unknown_tokens(model: ModelUnderTest) -> Iterator[Problem]:
    """More than 2 % of the tokens are unknown to the tokenizer."""
    share = model.unknown_share(model.ids)
    if share > UNKNOWN:
        yield Problem(
            f"{100 * share:.1f} % of the tokens are unknown to the tokenizer, so the model cannot distinguish them.",
            "Use a model of the language and script of the texts, or a byte-level model; check that the tokenizer's "
            "files belong to the weights.",
            figures={"unknown": share},
        )


def capacity(model: ModelUnderTest) -> Iterator[Problem]:
    """The folder allows more tokens than the model has positions."""
    declared, positions = model.transformer_settings.get("max_seq_length"), model.positions
    if isinstance(declared, int) and positions is not None and declared > positions:
        yield Problem(
            f"sentence_bert_config.json allows {declared} tokens, but the model has only {positions} positions: plain "
            "sentence-transformers fails on longer texts.",
            f'Set "max_seq_length": {positions} in sentence_bert_config.json.',
            figures={"declared": declared, "positions": positions},
        )


# -- the folder -------------------------------------------------------------------------------------------------------

# Families trained with a prompt before every text (according to their model cards), by a part of their names.
TRAINED_WITH = {
    r"\be5\b": {"query": "query: ", "passage": "passage: "},
    r"\bnomic-embed": {"query": "search_query: ", "document": "search_document: "},
}
DOCUMENT_PROMPTS = {"document", "passage", "corpus"}
# In a card: "query: how much protein should a female eat"
IN_CARD = re.compile(r"""["'`](query: |passage: |search_query: |search_document: )""")
FLAG = re.compile(r"'?(pooling_mode_\w+)'?: True")
MODE = re.compile(r"'pooling_mode': '(\w+)'")
PHRASE = re.compile(r"\b(mean|cls|max|last[- ]?token)[- ]pool", re.IGNORECASE)


def prompts(model: ModelUnderTest) -> Iterator[Problem]:
    """Prompts that the model was trained with are missing from the folder, or are not used by default."""
    saved = {name: text for name, text in model.encoder.prompts.items() if text}
    names = f"{model.root.name} {model.name} {model.config.get('_name_or_path', '')}"
    expected = next((family for part, family in TRAINED_WITH.items() if re.search(part, names, re.IGNORECASE)), {})
    expected = expected or {prompt.strip(": "): prompt for prompt in sorted(set(IN_CARD.findall(model.card)))}
    missing = [text for text in expected.values() if not any(text.strip() in prompt for prompt in saved.values())]
    if missing:
        yield Problem(
            f"According to its name or card, the model was trained with the prompts "
            f"{' and '.join(map(repr, expected.values()))}; config_sentence_transformers.json lacks "
            f"{' and '.join(map(repr, missing))}.",
            f'model.prompts = {expected}; model.default_prompt_name = "{next(iter(expected))}"; model.save(…)',
            figures={"missing": missing},
        )
    elif "query" in saved and saved.keys() & DOCUMENT_PROMPTS and model.encoder.default_prompt_name is None:
        yield Problem(
            f"The model has prompts for queries and documents ({', '.join(map(repr, saved.values()))}), but `encode` "
            "uses none of them by default.",
            "Use encode_query and encode_document, or encode(…, prompt_name=…); or set default_prompt_name in "
            "config_sentence_transformers.json.",
            figures={"prompts": saved},
        )


def pooling(model: ModelUnderTest) -> Iterator[Problem]:
    """The pooling differs from the model card, or does not match the model."""
    if model.pooling is None and (model.root / "1_Pooling" / "config.json").is_file():
        yield Problem(
            "The folder 1_Pooling exists, but modules.json does not list it: its pooling is not applied.",
            "Download modules.json again from the model's source.",
        )
        return
    settings, size = model.pooling or {}, model.config.get("hidden_size")
    width = settings.get("embedding_dimension", settings.get("word_embedding_dimension"))
    if isinstance(width, int) and isinstance(size, int) and width != size and len(model.modules) > 1:
        yield Problem(
            f"The Pooling module expects vectors of {width} dimensions; the model's have {size}.",
            "Download the folder of the Pooling module again from the model's source.",
            figures={"pooling": width, "model": size},
        )
        return
    if model.modules and model.pooling is None:
        return  # no pooled transformer: a table of token vectors, or a recipe's own module
    computed, declared = model.pooling_mode, _modes_of_card(model.card)
    if declared and computed not in declared:
        yield Problem(
            f"The folder uses {computed} pooling, but the model card describes {' or '.join(sorted(declared))}.",
            f"If the card is right, replace the pooling_mode keys in the config.json of the Pooling module by "
            f'"pooling_mode": "{min(declared)}".',
            figures={"computed": computed, "card": sorted(declared)},
        )


def _modes_of_card(card: str) -> set[str]:
    """Return the pooling modes in the card: those of the printed modules, otherwise those in its text and code."""
    flags = FLAG.findall(card)
    printed = {mode for mode, flag in LEGACY_FLAGS.items() if flag in flags} | set(MODE.findall(card))
    return printed or {re.sub("[- ]", "", phrase.lower()) for phrase in PHRASE.findall(card)}


# -- all of them -------------------------------------------------------------------------------------------------------

CHECKS: dict[str, Callable[[ModelUnderTest], Iterator[Problem]]] = {
    check.__name__.replace("_", "-"): check
    for check in (
        capacity, truncation, unknown_tokens, prompts, pooling, finite, anisotropy, dead_dimensions,
        dominating_dimension, length_bias, negation,
    )
}  # fmt: skip
# Checks whose problems explain problems of other checks, the deepest cause first. Wrong pooling changes all vectors;
# the shaping that fixes a dominating dimension or a length bias also subtracts the mean.
CAUSES = {
    "anisotropy": ("pooling", "dominating-dimension", "length-bias"),
    "dead-dimensions": ("pooling",),
    "dominating-dimension": ("pooling",),
    "length-bias": ("pooling", "dominating-dimension"),
    "negation": ("pooling",),
}


def find_problems(name: str, texts: TextsLike | None, skip: Sequence[str], options: dict[str, Any]) -> Report:
    """Run the checks of a model; report each problem, followed by those that it explains.

    Raises:
        InputError: a check that does not exist.
    """
    if unknown := [check for check in skip if check not in CHECKS]:
        raise InputError(f"Unknown check {unknown[0]!r}. {did_you_mean(unknown[0], list(CHECKS))}")
    model = ModelUnderTest(name, texts, options)
    problems: list[Problem] = []
    checks = [check for check in CHECKS if check not in skip]
    for check in list(checks):
        if check in CAUSES and any(problem.check == "finite" for problem in problems):
            checks.remove(check)
        else:
            problems += [replace(problem, check=check) for problem in CHECKS[check](model)]
    reported = {problem.check for problem in problems}
    for index, problem in enumerate(problems):
        cause = next((check for check in CAUSES.get(problem.check, ()) if check in reported), "")
        if cause:
            problems[index] = replace(problem, cause=cause, fix=f"Fix {cause} and check again.")
    rank = list(CHECKS).index
    problems.sort(key=lambda problem: (rank(problem.cause or problem.check), bool(problem.cause)))
    return Report(
        name, None, recipe=model.recipe, texts=len(model.texts), own_texts=texts is not None, checks=tuple(checks),
        problems=tuple(problems),
    )  # fmt: skip
