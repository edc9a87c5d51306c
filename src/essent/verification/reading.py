"""How a model reads texts: what is cut off, unknown, or beyond what it can hold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from essent.verification.finding import Finding
from essent.verification.patient import Patient

CUT = 0.01  # of the texts: what the end of a rare long text says is lost without harm to the others
UNKNOWN = 0.02  # of the tokens: a name or a sign now and then, and not a language or a script


def truncation(patient: Patient) -> Iterator[Finding]:
    """More than 1 % of the texts are longer than what the model reads of a text."""
    if patient.room is None:
        return
    lengths = np.array([len(ids) for ids in patient.ids])
    share, lost = float((lengths > patient.room).mean()), int(np.maximum(lengths - patient.room, 0).sum())
    if share > CUT:
        yield Finding(
            f"It cuts {100 * share:.1f} % of the texts, and reads {100 * (1 - lost / lengths.sum()):.0f} % of their "
            f"tokens: a text may have {patient.room}, the longest has {lengths.max()}.",
            _longer(patient, int(lengths.max())),
            figures={"cut": share, "room": patient.room, "longest": int(lengths.max())},
        )


def _longer(patient: Patient, longest: int) -> str:
    positions = positions_of(patient)
    limit = patient.encoder.max_seq_length or 0
    wanted = longest + limit - (patient.room or 0)
    if positions is not None and positions > limit:
        return f"encoder.max_seq_length = {min(positions, wanted)}  # the model has {positions} positions"
    return patient.command(
        "essent encode … -o FOLDER --chunk tokens:256, which gives every piece of a long text a vector of its own"
    )


def unknown_tokens(patient: Patient) -> Iterator[Finding]:
    """More than 2 % of the tokens of the texts are unknown to the tokenizer."""
    if patient.unknown is None:
        return
    flat = np.concatenate([np.asarray(ids, np.int64) for ids in patient.ids])
    share = float((flat == patient.unknown).mean()) if len(flat) else 0.0
    if share > UNKNOWN:
        yield Finding(
            f"{100 * share:.1f} % of the tokens of the texts are unknown to the tokenizer and look all alike.",
            "Take a model of the language and script of the texts, or one that reads bytes; look whether the "
            "tokenizer's files belong to the weights.",
            figures={"unknown": share},
        )


def capacity(patient: Patient) -> Iterator[Finding]:
    """The folder promises longer texts than the model has positions for."""
    declared, positions = patient.transformer_settings.get("max_seq_length"), positions_of(patient)
    if isinstance(declared, int) and positions is not None and declared > positions:
        yield Finding(
            f"sentence_bert_config.json allows {declared} tokens, and the model has {positions} positions: plain "
            "sentence-transformers fails on longer texts.",
            f'Write "max_seq_length": {positions} into sentence_bert_config.json.',
            figures={"declared": declared, "positions": positions},
        )


def positions_of(patient: Patient) -> int | None:
    """How many positions the model has a vector for; None where it counts distances, or the file does not say it."""
    found = patient.config.get("max_position_embeddings")
    if (
        not isinstance(found, int)
        or found < 1
        or patient.config.get("position_embedding_type", "absolute") != "absolute"
    ):
        return None
    first = patient.config.get("pad_token_id") if "roberta" in str(patient.config.get("model_type")) else None
    return found - (int(first) + 1 if isinstance(first, int) else 0)  # RoBERTa counts from the id of the padding on
