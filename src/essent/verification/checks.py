"""All checks in their order: whoever writes one adds a line here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from essent._core.hub import reach_model
from essent._core.registry import did_you_mean
from essent._core.types import TextsLike
from essent.errors import InputError
from essent.verification.files import pooling, prompts, verification
from essent.verification.finding import Check, Diagnosis, Finding
from essent.verification.machine import float16, speed
from essent.verification.patient import Patient
from essent.verification.reading import capacity, truncation, unknown_tokens
from essent.verification.servers import servers
from essent.verification.space import anisotropy, dead_dimensions, dominating_dimensions, finite, length_bias, negation

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
