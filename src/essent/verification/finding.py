"""What a check finds, what all of them found, and what a check is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from essent.verification.patient import Patient


NO_FAULT = {
    True: "✓ No fault found.",
    None: "✓ No fault found; verification was left out.",
    False: "✓ These checks find no fault; changed weights would go unnoticed: there is nothing to compare with, since "
    "essent did not save the folder.",
}


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or that could be better.

    Attributes:
        says: what is wrong, in words.
        mend: the command or the line that mends it.
        fault: whether vectors are wrong or bad by it; otherwise it is advice, about speed or about other servers.
        figures: plain numbers and words, for scripts.
        check: the name of the check that found it.
        cause: the check whose fault explains this one, and whose command comes first; "" for a fault of its own.
    """

    says: str
    mend: str
    fault: bool = True
    figures: dict[str, Any] = field(default_factory=dict)
    check: str = ""
    cause: str = ""


@dataclass(frozen=True)
class Check:
    """One thing to look at.

    Attributes:
        name: what findings, `skip` and `--skip` call it.
        look: looks at a model and gives what it finds; the first line of its docstring says what it looks for.
        reads_vectors: whether it needs vectors, which must be finite.
        explained_by: checks whose faults explain its own, the deepest cause first.
    """

    name: str
    look: Callable[[Patient], Iterator[Finding]]
    reads_vectors: bool = False
    explained_by: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """What it looks for, in a line."""
        return (self.look.__doc__ or "").strip().partition("\n")[0]


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found.

    Attributes:
        model, recipe: what was looked at, and what it computes.
        texts: how many texts it was looked at with; `own_texts` whether they are the user's.
        checks: names of the checks that were made.
        findings: faults first, what a fault explains right after it.
        compared: whether the vectors were compared with those that were saved. False: a folder that essent did not
            save has nothing to compare with. None: the check `verification` was left out.
    """

    model: str
    recipe: str
    texts: int
    own_texts: bool
    checks: tuple[str, ...]
    findings: tuple[Finding, ...]
    compared: bool | None

    @property
    def healthy(self) -> bool:
        """Whether there is no fault; advice does not count."""
        return not any(finding.fault for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "healthy": self.healthy}

    def in_words(self) -> Iterator[str]:
        """What was found and what mends it, line by line."""
        whose = "of yours" if self.own_texts else "of essent's own; --texts FILE looks at it with yours"
        yield f"{self.recipe}; {len(self.checks)} checks with {self.texts:,} texts {whose}"
        for finding in self.findings:
            if finding.cause:
                yield f"    may follow from it: {finding.check}: {finding.says}"
                continue
            yield f"{'✗' if finding.fault else '·'} {finding.check}: {finding.says}"
            yield f"    → {finding.mend}"
        if self.healthy:
            yield NO_FAULT[self.compared]
