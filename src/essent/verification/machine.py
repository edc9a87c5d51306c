"""Numbers and this machine: what half precision does to the model, and what makes it slower than it needs to be."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch

from essent._core.arithmetic import has_bfloat16
from essent._core.cores import cores
from essent._core.texts import encoded_anyway
from essent.encoder.encoder import Encoder
from essent.engine.compiled import CompiledEncoder
from essent.tasks.base import unit_rows
from essent.verification.finding import Finding
from essent.verification.patient import Patient

LARGEST = float(torch.finfo(torch.float16).max)  # 65,504
SAME = 0.99  # cosine with float32: below, half precision has lost more than its own rounding
TRIED = 8  # texts
SLOW = ("float64", "float16")  # on a CPU


def float16(patient: Patient) -> Iterator[Finding]:
    """In float16 a weight or a state is infinite, or the vectors are others."""
    if isinstance(patient.encoder, CompiledEncoder):
        return
    weights = [p.detach() for p in patient.encoder.parameters() if p.is_floating_point()]
    largest = max((float(p.abs().max()) for p in weights if p.numel()), default=0.0)
    mend = (
        "Keep it in float32, or in bfloat16, which has float32's range: essent save --format openvino --precision "
        "bfloat16."
    )
    if largest > LARGEST:
        yield Finding(
            f"A weight of {largest:,.0f} is infinite in float16, which ends at {LARGEST:,.0f}.",
            mend,
            figures={"largest": largest},
        )
        return
    texts = sorted(patient.texts, key=len)[-TRIED:]
    exact = np.asarray(patient.encoder.encode(texts, show_progress_bar=False), np.float64)
    try:
        half = copy.deepcopy(patient.encoder).half()
        found = np.asarray(encoded_anyway(partial(half.encode, texts, show_progress_bar=False)), np.float64)
    except (RuntimeError, NotImplementedError):
        return  # an operation that this device does not have in float16: nobody runs it so here
    if not np.isfinite(found).all():
        yield Finding("In float16 hidden states overflow: the vectors are infinite or undefined.", mend)
    elif (lowest := _lowest_cosine(exact, found)) < SAME:
        yield Finding(
            f"In float16 the vectors are others: their cosine with those in float32 is down to {lowest:.3f}.",
            mend,
            figures={"lowest_cosine": lowest},
        )


def _lowest_cosine(exact: np.ndarray, found: np.ndarray) -> float:
    """The lowest cosine of the rows of two arrays (N,D); rows that are zero in both are the same."""
    same = ~exact.any(axis=1) & ~found.any(axis=1)
    cosines = np.einsum("nd,nd->n", unit_rows(exact), unit_rows(found))
    return float(np.where(same, 1.0, cosines).min())


def speed(patient: Patient) -> Iterator[Finding]:
    """It is slower than it needs to be on this machine: number format, threads, engine."""
    encoder = patient.encoder
    if encoder.device.type != "cpu" or isinstance(encoder, CompiledEncoder):
        return
    stored = str(patient.config.get("dtype") or patient.config.get("torch_dtype") or "float32")
    if stored in SLOW or (stored == "bfloat16" and not has_bfloat16("cpu")):
        yield Finding(
            f"config.json says {stored}, in which plain sentence-transformers computes more slowly on this CPU than in "
            "float32; essent reads the weights as float32.",
            'Write "dtype": "float32" into config.json, or SentenceTransformer(…, model_kwargs={"dtype": "float32"}).',
            fault=False,
            figures={"dtype": stored},
        )
    threads, available = torch.get_num_threads(), cores()
    if threads < available:
        yield Finding(
            f"torch computes with {threads} of {available} cores.",
            f"Unset OMP_NUM_THREADS, or torch.set_num_threads({available}).",
            fault=False,
            figures={"threads": threads, "cores": available},
        )
    runs = not isinstance(encoder, Encoder) or encoder.module.plan.required.depth is not None
    if runs and find_spec("openvino") is not None:
        yield Finding(
            "It runs in torch; OpenVINO is installed, and is faster on a CPU, most of all for single texts.",
            patient.command(
                "essent save -m MODEL --format openvino -o graph --compare texts.txt, which measures how much"
                + ("; this CPU has bfloat16: --precision bfloat16" if has_bfloat16("cpu") else "")
            ),
            fault=False,
        )
