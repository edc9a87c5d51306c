"""`check`: whether a model is what was saved, is healthy, and is what a server serves; its report. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from essent._core.folders.contents import is_essent_folder, is_exported_folder
from essent._core.lazy import check_torch
from essent._core.types import TextsLike
from essent.errors import InputError, MissingDependencyError
from essent.verification.golden import Verification, check_address, compare_with_server, verify


@dataclass(frozen=True)
class Problem:
    """Something that is wrong, or that could be better.

    Attributes:
        message: what is wrong.
        fix: the command or the line that fixes it.
        fault: whether vectors are wrong or bad by it; otherwise it is advice, about speed or about other servers.
        figures: plain numbers and words, for scripts.
        check: the name of the check that reports it.
        cause: the check whose fault explains this one, and whose command comes first; "" for a fault of its own.
    """

    message: str
    fix: str
    fault: bool = True
    figures: dict[str, Any] = field(default_factory=dict)
    check: str = ""
    cause: str = ""


@dataclass(frozen=True)
class Report:
    """The outcome of `check`.

    Attributes:
        model: the folder or name.
        verification: the comparison with what was saved; None for a folder that essent did not save.
        server: address, number of texts, lowest cosine and largest difference of the comparison with a server, or None.
        recipe: what the model computes.
        texts: the number of texts that the health checks read; `own_texts` whether they are the user's.
        checks: names of the health checks that were made.
        problems: faults first, what a fault explains right after it.
        left_out: why no health checks were made, where torch is missing.
    """

    model: str
    verification: Verification | None = None
    server: dict[str, Any] | None = None
    recipe: str = ""
    texts: int = 0
    own_texts: bool = False
    checks: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    left_out: str = ""

    @property
    def healthy(self) -> bool:
        """Whether there is no fault; advice does not count."""
        return not any(problem.fault for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `verified` says whether the vectors were compared with those that were saved."""
        plain = asdict(self)
        verified = bool(plain.pop("verification"))
        return {**plain, "verified": verified, "healthy": self.healthy}

    def summary(self) -> Iterator[str]:
        """What was compared, each problem and its fix, line by line."""
        if self.verification is not None:
            yield f"{self.model}: {self.verification.recipe}"
            yield from self.verification.summary()
        if self.server is not None:
            yield (
                "✓ {url} gives the model's vectors for {texts} texts: lowest cosine {lowest_cosine:.6f}, largest "
                "difference {largest_difference:.1e}".format(**self.server)
            )
        if not self.checks:
            return
        yield self.model
        origin = "of yours" if self.own_texts else "of essent's own; --texts FILE looks at it with yours"
        yield f"{self.recipe}; {len(self.checks)} checks with {self.texts:,} texts {origin}"
        for problem in self.problems:
            if problem.cause:
                yield f"    may follow from it: {problem.check}: {problem.message}"
                continue
            yield f"{'✗' if problem.fault else '·'} {problem.check}: {problem.message}"
            yield f"    → {problem.fix}"
        if self.healthy and self.verification is not None:
            yield "✓ No fault found."
        elif self.healthy:
            yield (
                "✓ These checks find no fault; changed weights would go unnoticed: there is nothing to compare with, "
                "since essent did not save the folder."
            )


def check(
    model: str,
    texts: TextsLike | None = None,
    *,
    against: str | None = None,
    skip: Sequence[str] = (),
    files_only: bool = False,
    **options: Any,
) -> Report:
    """Check a model: whether it is what was saved, is healthy, and is what a server serves.

    A folder that essent saved is compared with its digests and golden vectors first, see `verify`. The health checks
    follow, or, with `against`, the comparison with a server. Without torch a saved folder has no health checks.

    Args:
        model: a folder (essent's, sentence-transformers', transformers', a graph), or a name on the hub.
        texts: like those that will be encoded; the first 2,000 different ones are read. None: 320 English sentences of
            essent's own.
        against: address of a server with OpenAI's `/v1/embeddings`, see `compare_with_server`.
        skip: names of health checks to leave out.
        files_only: compare the files with their digests, and load nothing from the folder.
        options: SentenceTransformer's (device, revision, trust_remote_code …).

    Raises:
        InputError: fewer than two different texts, a check that does not exist, or an address that is none.
        ModelError: the model cannot be loaded, or the server cannot be reached.
        VerificationError: the folder is not what was saved, or the server gives other vectors.
        MissingDependencyError: torch is not installed, and essent did not save the folder.
    """
    if against is not None:
        check_address(against)
        if files_only:
            raise InputError("files_only loads nothing, and against compares vectors: leave one of them out.")
    saved = is_exported_folder(model) or is_essent_folder(model, {})
    verification = verify(model, untrusted=files_only) if saved or files_only else None
    if files_only:
        return Report(model, verification)
    if against is not None:
        return Report(model, verification, compare_with_server(model, against, **options))
    try:
        check_torch("Checking the health of a model")
    except MissingDependencyError as error:
        if not saved:
            raise
        return Report(model, verification, left_out=f"The health checks are left out. {error}")
    from essent.verification.checks import find_problems
    from essent.verification.model_under_test import ModelUnderTest

    tested = ModelUnderTest(model, texts, options)
    checks, problems = find_problems(tested, skip)
    return Report(
        model,
        verification,
        recipe=tested.recipe,
        texts=len(tested.texts),
        own_texts=texts is not None,
        checks=checks,
        problems=problems,
    )
