"""All checks in their order (whoever writes one adds a line), and those of reading, arithmetic and other servers.

What servers make of a folder is by their own sources: text-embeddings-inference (TEI) 1.9 reads 1_Pooling/config.json
by its boolean keys (cls, mean, last token) and nothing else of the modules; without that file it takes CLS for every
BERT. vLLM looks for modules of sentence_transformers.models by their full class path, and for the first key of the
pooling's file that is true. Neither runs a Dense module or a table of token vectors.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from essent._core.arithmetic import has_bfloat16
from essent._core.cores import cores
from essent._core.hub import reach_model
from essent._core.registry import did_you_mean
from essent._core.texts import encoded_anyway
from essent._core.types import TextsLike
from essent.encoder.encoder import Encoder
from essent.engine.compiled import CompiledEncoder
from essent.errors import InputError
from essent.tasks.base import unit_rows
from essent.verification.files import mode_of, pooling, prompts, verification
from essent.verification.finding import Check, Diagnosis, Finding
from essent.verification.patient import Patient
from essent.verification.space import anisotropy, dead_dimensions, dominating_dimensions, finite, length_bias, negation

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


SERVED = ("Transformer", "Pooling", "Normalize")
SERVED_MODES = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
LEGACY = "sentence_transformers.models."
AGAIN = "essent save -m MODEL --format legacy -o for-servers, or serve it as it is: essent serve MODEL"


def servers(patient: Patient) -> Iterator[Finding]:
    """TEI or vLLM would refuse the folder, or compute other vectors from it."""
    if not (patient.root / "modules.json").is_file() and not (patient.root / "config.json").is_file():
        return
    for says, mend in _found(patient):
        yield Finding(says, patient.command(mend), fault=False)


def _found(patient: Patient) -> Iterator[tuple[str, str]]:
    """What is wrong for servers, and what mends it."""
    if others := [kind for _, _, kind in patient.modules if kind not in SERVED]:
        yield (
            f"TEI and vLLM do not run the module {' and '.join(others)}: they refuse it, or give other vectors.",
            "essent serve MODEL",
        )
        return
    files = ("tokenizer.json", "config.json")
    missing = [name for name in files if not (patient.root / name).is_file()]
    if not list(patient.root.glob("model*.safetensors")):
        missing.append("model.safetensors")
    if missing:
        yield f"{' and '.join(missing)} is missing, without which TEI does not start.", AGAIN
    mode = mode_of(patient)
    yield from _pooling(patient, mode)
    settings = patient.transformer_settings
    if settings and not isinstance(settings.get("max_seq_length"), int):
        yield (
            "sentence_bert_config.json has no max_seq_length, which TEI does not read.",
            f'Write "max_seq_length": {patient.encoder.max_seq_length or 512} into sentence_bert_config.json.',
        )
    if patient.modules and patient.modules[-1][2] != "Normalize":
        yield (
            "The vectors have any length, and TEI scales them to length 1 unless a request says otherwise.",
            'Ask with "normalize": false, or compare by the cosine alone.',
        )


def _pooling(patient: Patient, mode: str) -> Iterator[tuple[str, str]]:
    bert = "bert" in str(patient.config.get("model_type")).lower()
    if not (patient.root / "1_Pooling" / "config.json").is_file():
        if mode != "cls" or not bert:
            does = "computes the CLS token instead, without a word" if bert else "does not start"
            yield f"There is no 1_Pooling/config.json: TEI {does}; what is computed here is {mode} pooling.", AGAIN
        return
    found = patient.pooling or {}
    if mode not in SERVED_MODES:
        yield f"TEI and vLLM do not compute {mode} pooling.", "essent serve MODEL"
    elif not any(key.startswith("pooling_mode_") for key in found):
        yield (
            "1_Pooling/config.json has the key pooling_mode alone: TEI, which reads the older keys, does not start.",
            AGAIN,
        )
    elif (first := next((key for key, value in found.items() if value is True), "")) != SERVED_MODES[mode]:
        yield f"vLLM takes the first key of 1_Pooling/config.json that is true, {first}, for the pooling.", AGAIN
    if other := [path for _, path, kind in patient.modules if kind in SERVED[1:] and path != f"{LEGACY}{kind}"]:
        yield (
            f"vLLM knows modules as {LEGACY}…, and not as {other[0]}: it would leave out the pooling's settings.",
            AGAIN,
        )


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


CHANGED = ("verification",)
WRONG_VECTORS = ("verification", "pooling")  # they are not the model's, and what they show may follow from that
CHECKS = (
    Check("verification", verification),
    Check("capacity", capacity),
    Check("truncation", truncation),
    Check("unknown-tokens", unknown_tokens, explained_by=CHANGED),
    Check("prompts", prompts),
    Check("pooling", pooling, explained_by=CHANGED),
    Check("finite", finite, explained_by=CHANGED),
    # the shaping that mends a dominating dimension or a bias of length subtracts the mean too
    Check("anisotropy", anisotropy, True, (*WRONG_VECTORS, "dominating-dimension", "length-bias")),
    Check("dead-dimensions", dead_dimensions, True, WRONG_VECTORS),
    Check("dominating-dimension", dominating_dimensions, True, WRONG_VECTORS),
    Check("length-bias", length_bias, True, (*WRONG_VECTORS, "dominating-dimension")),
    Check("negation", negation, True, WRONG_VECTORS),
    Check("float16", float16, True, CHANGED),
    Check("speed", speed),
    Check("servers", servers),
)


def diagnose(model: str, texts: TextsLike | None = None, *, skip: Sequence[str] = (), **options: Any) -> Diagnosis:
    """What is wrong with an encoder or its folder, in words, each with what mends it.

    Args:
        model: a folder (essent's, sentence-transformers', transformers', a graph), or a name on the hub.
        texts: like those that will be encoded; the first 2,000 different ones are looked at. None: 320 English
            sentences of essent's own.
        skip: names of checks that are left out.
        options: SentenceTransformer's (device, revision, trust_remote_code …).

    Raises:
        InputError: fewer than two different texts, or a check that does not exist.
        ModelError: the model cannot be loaded; a damaged folder is refused before anything is looked at.
    """
    names = [check.name for check in CHECKS]
    if unknown := [name for name in skip if name not in names]:
        raise InputError(f"There is no check {unknown[0]!r}. {did_you_mean(unknown[0], names)}")
    patient = Patient(str(model), texts, reach_model(str(model), options))
    made: list[str] = []
    findings: list[Finding] = []
    broken = False
    for check in CHECKS:
        if check.name in skip or (check.reads_vectors and broken):
            continue
        found = [replace(finding, check=check.name) for finding in check.look(patient)]
        broken = broken or (check.name == "finite" and bool(found))
        made.append(check.name)
        findings += found
    compared = patient.saved if "verification" in made else None
    return Diagnosis(
        str(model), patient.recipe, len(patient.texts), patient.own_texts, tuple(made), _by_cause(findings), compared
    )


def _by_cause(findings: list[Finding]) -> tuple[Finding, ...]:
    """Faults first, each followed by the faults that it explains, which lose their own commands."""
    rank = {check.name: number for number, check in enumerate(CHECKS)}
    faults = {finding.check for finding in findings if finding.fault}
    explained = []
    for finding in findings:
        causes = CHECKS[rank[finding.check]].explained_by if finding.fault else ()
        if cause := next((name for name in causes if name in faults), ""):
            finding = replace(finding, cause=cause, mend=f"Mend what {cause} says, and look again.")
        explained.append(finding)
    explained.sort(key=lambda finding: (not finding.fault, rank[finding.cause or finding.check], bool(finding.cause)))
    return tuple(explained)
