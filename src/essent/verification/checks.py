"""The health checks of a model on texts: its tokens, its prompts and pooling, its vectors.

A check is a generator of problems, listed in CHECKS; the first line of its docstring states when it
reports a problem.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from essent._core.arguments import TextsLike
from essent._core.compat import prompt_of
from essent._core.folders.contents import is_essent_folder, is_exported_folder
from essent._core.folders.files import read_json
from essent._core.hub import folder_of, reach_model
from essent._core.registry import did_you_mean
from essent._core.texts import check_texts, encode_allowing_nonfinite
from essent.encoder.encoder import Encoder, open_as_it_is
from essent.encoder.save import LEGACY_FLAGS
from essent.engine.compiled import CompiledEncoder
from essent.engine.files import load
from essent.errors import InputError
from essent.recipe.tokens import fast_backend, read_ids, unknown_token
from essent.tasks.base import unit_rows
from essent.tasks.geometry import average_cosine
from essent.tasks.sample import sample_texts
from essent.verification.report import Problem, Report

NO_LIMIT = 10**9  # tokenizers without a limit write 1e30
MAX_TEXTS = 2000  # more texts change no figure enough to cross its threshold


class ModelUnderTest:
    """A model and the texts for its checks. Ids and vectors are computed when they are first used.

    Args:
        name: a folder, or a name on the hub.
        texts: texts of the user; None: 320 English sentences of essent's own. The first 2,000 distinct texts are used.
        options: keyword arguments of SentenceTransformer.

    Attributes:
        root: the folder, or the hub model's folder in the cache.
        kinds: class name of each listed module; [] for a plain transformers model.
        pooling: configuration of the Pooling module, or None.
        card: the model card; "" without one.
        encoder: an Encoder if a recipe describes the model, otherwise a graph or a SentenceTransformer.
        tokenizer: that of the library tokenizers; None for slow ones and those of words, whose tokens are not checked.
        max_tokens: maximum tokens per text, without special tokens and template; None without a limit.

    Raises:
        InputError: fewer than two distinct texts.
    """

    def __init__(self, name: str, texts: TextsLike | None, options: dict[str, Any]) -> None:
        self.name, self.options = name, reach_model(name, options)
        all_texts = sample_texts() if texts is None else check_texts(texts)
        self.texts = list(dict.fromkeys(all_texts))[:MAX_TEXTS]
        if len(self.texts) < 2:
            raise InputError(f"Only {len(self.texts)} distinct texts. Pass at least two.")
        self.root = folder_of(name, self.options)
        listed = read_json(self.root / "modules.json", list) or []
        self.kinds = [str(module["type"]).rpartition(".")[2] for module in listed]
        folder = next(
            (module["path"] for module, kind in zip(listed, self.kinds, strict=True) if kind == "Pooling"), ""
        )
        self.pooling: dict[str, Any] | None = read_json(self.root / folder / "config.json") if folder else None
        card = self.root / "README.md"
        self.card = card.read_text("utf-8", errors="replace") if card.is_file() else ""
        self.encoder: CompiledEncoder | SentenceTransformer = (
            load(name) if is_exported_folder(name) else open_as_it_is(name, self.options)
        )
        self.recipe = str(getattr(self.encoder, "recipe", "a model that no recipe describes"))
        tokenizer: Any
        if isinstance(self.encoder, CompiledEncoder):
            tokenizer, room = self.encoder.reading.backend, self.encoder.reading.frame.room
        elif isinstance(self.encoder, Encoder):
            tokenizer, room = self.encoder.tokenizer, self.encoder.module.plan.room
        else:
            tokenizer, room = self.encoder.tokenizer, None
        tokenizer = fast_backend(tokenizer) if hasattr(tokenizer, "backend_tokenizer") else tokenizer
        self.tokenizer: Tokenizer | None = tokenizer if isinstance(tokenizer, Tokenizer) else None
        self.max_tokens, limit = None, self.encoder.max_seq_length
        if self.tokenizer is not None and limit is not None and limit < NO_LIMIT:
            special = self.tokenizer.num_special_tokens_to_add(False)
            self.max_tokens = room(int(limit)) if room else int(limit) - special

    @cached_property
    def ids(self) -> list[list[int]]:
        """Token ids of the texts with the default prompt: not truncated, no special tokens; [] without a tokenizer."""
        encoder = self.encoder
        prompt = encoder.prompt_text() if isinstance(encoder, CompiledEncoder) else prompt_of(encoder, None, None)
        return [] if self.tokenizer is None else read_ids(self.tokenizer, [prompt + text for text in self.texts])

    @cached_property
    def vectors(self) -> np.ndarray:
        """The vectors of the texts (N,D), float64."""
        encode = partial(self.encoder.encode, self.texts, show_progress_bar=False)
        return np.asarray(encode_allowing_nonfinite(encode), np.float64)

    def with_step(self, step: str) -> str:
        """Return the command that saves the model with another shaping step."""
        if not isinstance(self.encoder, Encoder):
            return f"Shape its vectors with {step!r} of essent.recipe.shaping."
        source = "ORIGINAL" if is_essent_folder(self.name, self.options) else shlex.quote(self.name)
        recipe = f"{self.recipe.removesuffix('normalize').rstrip(' |')} | {step}"
        return f"essent save -m {source} -r {shlex.quote(recipe)} --fit texts.txt -o fixed"


# -- tokens -----------------------------------------------------------------------------------------------------------

CUT = 0.01  # share of truncated texts: a rare long text does not affect the others
UNKNOWN = 0.02  # share of unknown tokens: below it, rare names and symbols; above it, a language or script


def truncation(model: ModelUnderTest) -> Iterator[Problem]:
    """More than 1 % of the texts are longer than the model's limit."""
    limit = model.max_tokens
    lengths = np.array([len(ids) for ids in model.ids])
    if limit is None or (share := float((lengths > limit).mean())) <= CUT:
        return
    longest, read = int(lengths.max()), 100 * np.minimum(lengths, limit).sum() / lengths.sum()
    yield Problem(
        f"{100 * share:.1f} % of the texts are truncated; the model reads {read:.0f} % of all tokens. The limit is "
        f"{limit} tokens per text, the longest text has {longest}.",
        "Raise encoder.max_seq_length, at most to max_position_embeddings of config.json; or split long texts: "
        "essent encode … -o FOLDER --chunk tokens:256",
        {"cut": share, "room": limit, "longest": longest},
    )


def unknown_tokens(model: ModelUnderTest) -> Iterator[Problem]:
    """More than 2 % of the tokens are unknown to the tokenizer."""
    token = None if model.tokenizer is None else unknown_token(model.tokenizer)
    if model.tokenizer is None or token is None:
        return
    ids = np.array([token_id for text_ids in model.ids for token_id in text_ids])
    share = float((ids == model.tokenizer.token_to_id(token)).mean()) if len(ids) else 0.0
    if share > UNKNOWN:
        yield Problem(
            f"{100 * share:.1f} % of the tokens are unknown to the tokenizer, so the model cannot distinguish them.",
            "Use a model of the language and script of the texts, or a byte-level model; check that the tokenizer's "
            "files belong to the weights.",
            {"unknown": share},
        )


# -- the folder -------------------------------------------------------------------------------------------------------

DOCUMENT_PROMPTS = {"document", "passage", "corpus"}
# In a card: "query: how much protein should a female eat"
IN_CARD = re.compile(r"""["'`](query: |passage: |search_query: |search_document: )""")
FLAG = re.compile(r"'?(pooling_mode_\w+)'?: True")
MODE = re.compile(r"'pooling_mode': '(\w+)'")
PHRASE = re.compile(r"\b(mean|cls|max|last[- ]?token)[- ]pool", re.IGNORECASE)


def prompts(model: ModelUnderTest) -> Iterator[Problem]:
    """Prompts of the model card are missing from the folder, or its prompts are not used by default."""
    saved = {name: text for name, text in model.encoder.prompts.items() if text}
    expected = {prompt.strip(": "): prompt for prompt in sorted(set(IN_CARD.findall(model.card)))}
    missing = [text for text in expected.values() if not any(text.strip() in prompt for prompt in saved.values())]
    if missing:
        yield Problem(
            f"According to its card, the model was trained with the prompts {', '.join(map(repr, expected.values()))}; "
            f"config_sentence_transformers.json lacks {' and '.join(map(repr, missing))}.",
            f'model.prompts = {expected}; model.default_prompt_name = "{next(iter(expected))}"; model.save(…)',
            {"missing": missing},
        )
    elif "query" in saved and saved.keys() & DOCUMENT_PROMPTS and model.encoder.default_prompt_name is None:
        yield Problem(
            f"The model has prompts for queries and documents ({', '.join(map(repr, saved.values()))}), but `encode` "
            "uses none of them by default.",
            "Use encode_query and encode_document, or encode(…, prompt_name=…); or set default_prompt_name in "
            "config_sentence_transformers.json.",
            {"prompts": saved},
        )


def pooling(model: ModelUnderTest) -> Iterator[Problem]:
    """The folder of the pooling is not listed, or the pooling differs from the model card."""
    if model.pooling is None and (model.root / "1_Pooling" / "config.json").is_file():
        yield Problem(
            "The folder 1_Pooling exists, but modules.json does not list it: its pooling is not applied.",
            "Download modules.json again from the model's source.",
        )
        return
    if model.pooling is None and model.kinds:
        return  # a table of token vectors, or a recipe's own module
    settings = model.pooling or {}
    flagged = "+".join(mode for mode, flag in LEGACY_FLAGS.items() if settings.get(flag))
    computed, declared = str(settings.get("pooling_mode") or flagged or "mean"), _modes_of_card(model.card)
    if declared and computed not in declared:
        yield Problem(
            f"The folder uses {computed} pooling, but the model card describes {' or '.join(sorted(declared))}.",
            f"If the card is right, replace the pooling_mode keys in the config.json of the Pooling module by "
            f'"pooling_mode": "{min(declared)}".',
            {"computed": computed, "card": sorted(declared)},
        )


def _modes_of_card(card: str) -> set[str]:
    """Return the pooling modes in the card: those of the printed modules, otherwise those in its text and code."""
    flags = FLAG.findall(card)
    printed = {mode for mode, flag in LEGACY_FLAGS.items() if flag in flags} | set(MODE.findall(card))
    return printed or {re.sub("[- ]", "", phrase.lower()) for phrase in PHRASE.findall(card)}


# -- vectors ----------------------------------------------------------------------------------------------------------

ANISOTROPIC = 0.5  # average cosine: above it, two vectors share mostly what all vectors share
DOMINATING, FEW_DIMENSIONS = 0.2, 8  # share of the squared length; minimum number of dimensions
MIN_TEXTS = 20  # fewer texts may have something in common by chance


def finite(model: ModelUnderTest) -> Iterator[Problem]:
    """A vector is infinite or undefined."""
    wrong = ~np.isfinite(model.vectors).all(axis=1)
    if wrong.any():
        yield Problem(
            f"{int(wrong.sum())} of {len(wrong)} texts have vectors with infinite or undefined numbers, the first is "
            f"{model.texts[int(np.argmax(wrong))]!r:.60}.",
            "Download the weights again; if the training diverged, repeat it with a lower learning rate.",
            {"texts": int(wrong.sum())},
        )


def dominating_dimension(model: ModelUnderTest) -> Iterator[Problem]:
    """One dimension has more than 20 % of the vectors' squared length."""
    shares = (unit_rows(model.vectors) ** 2).mean(axis=0)
    wide = len(shares) >= FEW_DIMENSIONS and len(model.texts) >= MIN_TEXTS
    if wide and float(shares.max()) > DOMINATING:
        yield Problem(
            f"Dimension {int(shares.argmax())} of {len(shares)} has {100 * shares.max():.0f} % of the vectors' squared "
            "length: cosines mostly compare this one number.",
            model.with_step("zscore"),
            {"dimension": int(shares.argmax()), "share": float(shares.max())},
        )


def anisotropy(model: ModelUnderTest) -> Iterator[Problem]:
    """The average cosine of unrelated texts is above 0.5."""
    typical = average_cosine(model.vectors)
    if len(model.texts) >= MIN_TEXTS and typical > ANISOTROPIC:
        yield Problem(
            f"The vectors share one direction: the average cosine of two unrelated texts is {typical:.2f}.",
            f"{model.with_step('centre')}; or only calibrate the similarity: essent save --calibrate FILE",
            {"average_cosine": typical},
        )


# -- all of them -------------------------------------------------------------------------------------------------------

CHECKS: dict[str, Callable[[ModelUnderTest], Iterator[Problem]]] = {
    check.__name__.replace("_", "-"): check
    for check in (truncation, unknown_tokens, prompts, pooling, finite, dominating_dimension, anisotropy)
}
FIRST = ("pooling", "finite", "dominating-dimension")  # their problems cause those of the checks after them


def find_problems(name: str, texts: TextsLike | None, skip: Sequence[str], options: dict[str, Any]) -> Report:
    """Run the checks of a model, up to the first whose problem causes others.

    Raises:
        InputError: a check that does not exist.
    """
    if unknown := [check for check in skip if check not in CHECKS]:
        raise InputError(f"Unknown check {unknown[0]!r}. {did_you_mean(unknown[0], list(CHECKS))}")
    model = ModelUnderTest(name, texts, options)
    problems: list[Problem] = []
    checks: list[str] = []
    for check in (check for check in CHECKS if check not in skip):
        checks.append(check)
        problems += [replace(problem, check=check) for problem in CHECKS[check](model)]
        if problems and problems[-1].check == check and check in FIRST:
            break
    return Report(
        name, None, recipe=model.recipe, texts=len(model.texts), own_texts=texts is not None, checks=tuple(checks),
        problems=tuple(problems),
    )  # fmt: skip
