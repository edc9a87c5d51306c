"""Rows of tokens that a corpus lacks: the rules, and the choice by the number of tokens to run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from essent.recipe.sources.contexts import UNSEEN
from essent.static.sums import Sums

AUTO, ALONE, STATIC, ZERO, MEAN = UNSEEN
FREE_TOKENS = 160_000  # always run: a vocabulary of 50,000 tokens (GPT-2, RoBERTa), each between two special tokens


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
