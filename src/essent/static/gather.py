"""Average every token's states over a corpus, in one resumable pass for all layers.

texts ─ portions ─ batches by tokens ─ states h^(k) ─ index_add to (V,D) per layer ─ divided by the counts
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from essent._core import machine
from essent._core.display import duration, text_progress
from essent._core.texts import check_texts
from essent.encoder.module import digest_of_backbone
from essent.encoder.plan import Plan
from essent.errors import InputError, ModelError
from essent.model.backbone import Backbone
from essent.recipe.contexts import UNSEEN, Contexts
from essent.static.sums import PORTION, Checkpoint, HeldOut, Sums

AUTO, ALONE, STATIC, ZERO, MEAN = UNSEEN
FREE_TOKENS = 160_000  # always run: a vocabulary of 50,000 tokens (GPT-2, RoBERTa), each between two special tokens
SAMPLE_CHARACTERS = 4_000  # of the timed texts: about half a batch, as small ones take longer per token
SAMPLE_SECONDS = 0.5  # no larger sample is timed after one that takes so long
CHARACTERS = 4  # per token: texts are truncated, so that longer ones take no longer


class Gathered(NamedTuple):
    """Averages over contexts, the teacher's vectors (N,K) or None without a teacher, and the held-out texts."""

    contexts: Contexts
    vectors: np.ndarray | None
    held_out: HeldOut


def average_contexts(
    backbone: Backbone,
    texts: Sequence[str],
    plan: Plan | None = None,
    is_held_out: np.ndarray | None = None,
    *,
    layers: Sequence[int] | None = None,
    unseen: str = AUTO,
    state: Path | None = None,
    renew: bool = False,
    every: float = 60.0,
    batch_size: int = 32,
    progress: bool = False,
    note: Callable[[str], object] | None = None,
) -> Gathered:
    """Average the states of every token, special tokens included, over its occurrences in texts without a template.

    Args:
        backbone: the model.
        texts: the corpus; duplicates count as often as they occur.
        plan: the teacher, a recipe whose pooled vectors of the same texts are computed: in the same pass, or with one
            more pass per template.
        is_held_out: texts (N,) without which the averages are computed as well; None holds none out.
        layers: the layers to average, from 0…L; None averages all.
        unseen: vectors of tokens that the corpus lacks: `alone` (the model's state of the token between its special
            tokens), `static` (its row of the input table, shifted and scaled to the mean and spread of the averages),
            `zero`, `mean` (over all positions of all tokens), or `auto`: `alone` if it takes no more tokens than the
            texts, or than a vocabulary of 50,000 tokens; otherwise `static`.
        state: checkpoint file for resuming a killed run; None writes none.
        renew: start over if `state` belongs to another run or cannot be read, instead of raising an error.
        every: seconds of work that a kill may lose.
        batch_size: size of a batch: 32 holds as many tokens as 32 texts of 64 tokens.
        progress: show a bar, or lines if standard error is a file or pipe.
        note: called with a line about the estimated time (some texts are timed for it), the text at which a run
            resumes, and tokens that do not occur; None times no texts.

    Raises:
        InputError: no texts, a layer that the model lacks, or an unknown value of `unseen`.
        DataError: `state` belongs to another run (other texts, another model or other settings), without `renew`.
        ModelError: a static model, which has no states.
    """
    corpus = check_texts(texts)
    layers = _check_layers(backbone, corpus, layers, unseen)
    notify = note or (lambda message: None)
    held_out = np.zeros(len(corpus), dtype=bool) if is_held_out is None else is_held_out
    sums = Sums(backbone, plan, layers, corpus, held_out, batch_size)
    identity = {  # a checkpoint is resumed only by a run with the same values
        "texts": hashlib.sha256(json.dumps(corpus).encode()).hexdigest(),
        "model": digest_of_backbone(backbone),
        "settings": json.dumps(
            [layers, PORTION, batch_size, int(held_out.sum()), "" if plan is None else plan.recipe.digest()]
        ),
    }
    checkpoint = Checkpoint(state, identity, every)
    checkpoint.resume(sums, renew)
    backbone.eval()
    with torch.inference_mode():
        if sums.done:
            notify(f"Resuming after {sums.done:,} of {sums.total:,} texts.")
        if note is not None and sums.done < sums.total:
            note(_estimate(sums, unseen))
        with text_progress(sums.total, progress, sums.done, "Contexts") as advance:
            for count in sums.read_texts():
                checkpoint.after_batch(sums)
                advance(count)
        tokens = tokens_to_run(sums)
        rule = choose_rule(unseen, tokens, sums, notify)
        if rule == ALONE:
            with text_progress(len(tokens), progress, sums.tokens_alone, "Tokens", "token") as advance:
                for count in sums.read_alone(tokens):
                    checkpoint.after_batch(sums)
                    advance(count)
        checkpoint.write(sums)
        tables, averages = filled_tables(sums, tokens, rule)
    metadata = {
        "unseen": rule,
        "filled": int((sums.count[tokens] == 0).sum()),
        "tokens": int(sums.count.sum()),
    }
    vocabulary = backbone.vocabulary.digest
    contexts = Contexts(tables, sums.count, sums.document_frequency, len(corpus), backbone.last, vocabulary, metadata)
    return Gathered(contexts, sums.vectors, HeldOut(held_out, sums.held_out_tokens, averages))


def _check_layers(backbone: Backbone, texts: list[str], layers: Sequence[int] | None, unseen: str) -> list[int]:
    """Check model, texts and settings, and return the layers in order."""
    if backbone.only_static:
        raise ModelError("A static model has no contextual states to average. Use a transformer.")
    if not texts:
        raise InputError("There are no texts to average over.")
    if unseen not in UNSEEN:
        raise InputError(f"unseen={unseen!r}: must be one of {', '.join(UNSEEN)}.")
    width = int(backbone.static_table.shape[1])
    if unseen == STATIC and width != backbone.dimensions:
        raise InputError(
            f"unseen='static': the model's input table has {width} dimensions, but its states {backbone.dimensions}. "
            "Use alone, zero or mean."
        )
    chosen = sorted(set(range(backbone.last + 1) if layers is None else layers))
    if wrong := [layer for layer in chosen if layer not in range(backbone.last + 1)]:
        raise InputError(f"Layer {wrong[0]!r} does not exist: the model has layers 0 to {backbone.last}.")
    if not chosen:
        raise InputError("layers=[] contains no layer. Omit layers= to average all.")
    return chosen


def _estimate(sums: Sums, unseen: str) -> str:
    """Return a line with the estimated time, from timing texts whose length is close to the mean.

    Their sums are discarded, so that the result does not depend on the sample.
    """
    limit = np.inf if sums.backbone.max_seq_length is None else CHARACTERS * sums.backbone.max_seq_length
    lengths = np.minimum([len(text) for text in sums.texts], limit)  # (N,)
    by_distance = np.argsort(np.abs(lengths - lengths.mean()), kind="stable")
    size = math.ceil(SAMPLE_CHARACTERS / max(lengths.mean(), 1))
    for number, sample_size in enumerate((1, size, 4 * size, 16 * size)):  # the first time includes one-time setup
        texts, layers = [sums.texts[index] for index in by_distance[:sample_size]], list(sums.tables)[-1:]
        sample = Sums(sums.backbone, sums.plan, layers, texts, np.zeros(len(texts), dtype=bool), sums.batch_size)
        began, seconds, plain = machine.elapsed(), 0.0, 0.0  # of all passes, of the one without a template
        for _ in sample.read_texts():
            seconds = machine.elapsed() - began
            plain = seconds if sample.done <= len(texts) else plain
        if number and (seconds >= SAMPLE_SECONDS or sample_size >= len(sums.texts)):
            break
    remaining, passes = sums.total - sums.done, f" in {len(sums.frames)} passes" if len(sums.frames) > 1 else ""
    line = f"Estimated time: {duration(seconds / sample.total * remaining)} for {remaining:,} texts{passes}"
    tokens, sample_tokens = len(sums.count) * (len(sums.frame) + 1), int(sample.count.sum())  # of all rows: at most
    if runs_alone(unseen, tokens, sample_tokens / len(texts) * len(sums.texts)):
        line += f", at most {duration(plain * tokens / max(sample_tokens, 1))} for tokens that are in none"
    return f"{line}, then the fit."


# -- tokens that the corpus lacks -------------------------------------------------------------------------------------


def tokens_to_run(sums: Sums) -> np.ndarray:
    """Return the tokens (n,) that lack an average: those in no text, then those in held-out texts only."""
    has_name = np.array([bool(name) for name in sums.backbone.vocabulary.tokens])  # tables may have more rows
    held_out_only = (sums.count > 0) & (sums.count == sums.held_out_count)
    return np.concatenate([np.flatnonzero((sums.count == 0) & has_name), np.flatnonzero(held_out_only)])


def runs_alone(unseen: str, tokens: float, text_tokens: float) -> bool:
    """Return whether the missing tokens run: `auto` allows as many tokens as those of the texts, or FREE_TOKENS.

    The choice depends on numbers of tokens only, so that the table is the same on every machine.
    """
    return unseen == ALONE or (unseen == AUTO and tokens <= max(text_tokens, FREE_TOKENS))


def choose_rule(unseen: str, tokens: np.ndarray, sums: Sums, note: Callable[[str], object]) -> str:
    """Return the rule for the rows of tokens (n,), with a note; instead of `auto`, the rule that it stands for."""
    missing = int((sums.count[tokens] == 0).sum())
    cost, text_tokens = len(tokens) * (len(sums.frame) + 1), int(sums.count.sum())
    if runs_alone(unseen, cost, text_tokens):
        if missing:
            note(f"Running the model on {missing:,} single tokens that do not occur in the texts.")
        return ALONE
    if unseen != AUTO:
        return unseen
    rule = STATIC if sums.backbone.static_table.shape[1] == sums.backbone.dimensions else MEAN
    rows = {STATIC: "their input rows, shifted and scaled", MEAN: "the mean over all positions"}[rule]
    note(
        f"{missing:,} tokens do not occur in the texts. To run the model on each takes {cost:,} tokens, more than the "
        f"{text_tokens:,} of the texts: their rows are {rows}. unseen=alone runs them."
    )
    return rule


def filled_tables(sums: Sums, tokens: np.ndarray, rule: str) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Divide the sums by the counts, and fill the rows of `tokens_to_run`.

    Returns:
        Per layer, the averages of all texts (V,D), and those without the held-out texts, for their tokens (U,D).
    """
    held_out = sums.held_out_tokens
    other_count = sums.count[held_out] - sums.held_out_count[held_out]
    is_unseen = sums.count[tokens] == 0
    held_out_only = np.searchsorted(held_out, tokens[~is_unseen])
    tables, averages = {}, {}
    for layer, table in sums.tables.items():
        tables[layer] = _divided(table, sums.count)
        averages[layer] = _divided(table[held_out] - sums.held_out_tables[layer], other_count)
        if rule == ALONE:
            rows = sums.alone[layer]
        elif rule == STATIC:
            rows = _matched(sums.backbone.static_table, tokens, tables[layer], sums.count > 0)
        else:
            total = table.sum(dim=0) / max(int(sums.count.sum()), 1)
            row = np.zeros(table.shape[1], np.float32) if rule == ZERO else total.float().cpu().numpy()
            rows = np.repeat(row[None], len(tokens), axis=0)
        tables[layer][tokens[is_unseen]] = rows[is_unseen]
        averages[layer][held_out_only] = rows[~is_unseen]
    return tables, averages


def _divided(sums: torch.Tensor, count: np.ndarray) -> np.ndarray:
    """Divide rows (V,D) by counts (V,), as float32; a row without occurrences stays zero."""
    divisor = torch.from_numpy(np.maximum(count, 1)).to(sums.device)
    quotient: np.ndarray = (sums / divisor[:, None]).float().cpu().numpy()
    return quotient


def _matched(static_table: torch.Tensor, tokens: np.ndarray, averages: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Return the input rows of tokens (n,D), shifted and scaled to the averages of the observed tokens.

    The scale is the ratio of the mean distances from the mean. An input row is several times shorter than a state:
    unscaled, it would hardly change a text's mean.
    """
    rows = static_table.detach().float().cpu().numpy()
    rows_mean, averages_mean = rows[observed].mean(axis=0), averages[observed].mean(axis=0)
    spread = np.linalg.norm(rows[observed] - rows_mean, axis=1).mean()
    scale = np.linalg.norm(averages[observed] - averages_mean, axis=1).mean() / spread if spread > 0 else 0.0
    matched: np.ndarray = (rows[tokens] - rows_mean) * np.float32(scale) + averages_mean
    return matched
