"""`check` and its report: comparison with the saved state, problems, a server. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from essent._core.arguments import TextsLike
from essent._core.folders.contents import is_essent_folder, is_exported_folder
from essent._core.lazy import check_torch
from essent.errors import InputError, MissingDependencyError
from essent.verification.golden import Verification, check_address, compare_with_server, verify

FLOAT32_DIFFERENCE = 1e-4  # of an entry: larger ones are not rounding of float32


@dataclass(frozen=True)
class Problem:
    """A problem of a model, with its fix.

    Attributes:
        message: the problem.
        fix: the command or line of code that fixes it.
        figures: the measured numbers, for scripts.
        check: name of the check that reports it.

    Example:
        >>> from essent import check
        >>> texts = ["A short text.", "A long text. " * 300]
        >>> report = check("sentence-transformers/all-MiniLM-L6-v2", texts)
        >>> problem = report.problems[0]
        >>> problem.check, problem.figures["cut"]
        ('truncation', 0.5)
        >>> print(problem.message)
        50.0 % of the texts are truncated; the model reads ... % of all tokens. The limit is ...
    """

    message: str
    fix: str
    figures: dict[str, Any] = field(default_factory=dict)
    check: str = ""


@dataclass(frozen=True)
class Report:
    """The result of `check`.

    Attributes:
        model: the folder or name.
        verification: the comparison with its saved state; None for a folder that essent did not save.
        server: address, number of texts, lowest cosine and largest difference of the comparison with a server, or None.
        recipe: the recipe of the model.
        texts: number of texts that the health checks read.
        own_texts: whether these are the user's texts.
        checks: names of the health checks that ran.
        problems: in the order of the checks; the last one may cause others, which are then not looked for.
        left_out: why no health checks ran (torch is not installed); otherwise "".

    Example:
        >>> from essent import check
        >>> texts = ["A man plays a flute.", "Two dogs run."]
        >>> report = check("sentence-transformers/all-MiniLM-L6-v2", texts)
        >>> report.healthy, report.texts, "truncation" in report.checks
        (True, 2, True)
        >>> list(report.summary())[1]
        'mean | normalize; 7 checks on 2 texts'
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
        """Whether there is no problem."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; `verified` is True if the folder was compared with its saved state."""
        plain = asdict(self)
        verified = bool(plain.pop("verification"))
        return {**plain, "verified": verified, "healthy": self.healthy}

    def summary(self) -> Iterator[str]:
        """Yield the lines of a summary: the comparisons, then each problem and its fix."""
        if self.verification is not None:
            yield f"{self.model}: {self.verification.recipe}"
            yield from self.verification.summary()
        if self.server is not None:
            equal = self.server["largest_difference"] <= FLOAT32_DIFFERENCE
            vectors = "✓ {url} returns the model's vectors" if equal else "· {url} returns vectors close to the model's"
            figures = "lowest cosine {lowest_cosine:.6f}, largest difference {largest_difference:.1e}"
            yield f"{vectors} for {{texts}} texts: {figures}".format(**self.server)
            if not equal:
                yield "    → Servers that compute in 16 bits do so. One that computes in float32 has other weights."
        if not self.checks:
            return
        yield self.model
        origin = "texts" if self.own_texts else "built-in texts (--texts FILE uses yours)"
        yield f"{self.recipe}; {len(self.checks)} checks on {self.texts:,} {origin}"
        for problem in self.problems:
            yield f"✗ {problem.check}: {problem.message}"
            yield f"    → {problem.fix}"
        if self.healthy and self.verification is not None:
            yield "✓ No problems found."
        elif self.healthy:
            yield (
                "✓ No problems found. Changed weights would go unnoticed: essent did not save this folder, so it has "
                "no golden vectors to compare with."
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
    """Find problems of a model, with the command that fixes each.

    A folder that essent saved is first compared with its digests and golden vectors, see `verify`. The health checks
    follow, or, with `against`, the comparison with a server. Without torch, the health checks are skipped.

    Args:
        model: a folder (essent's, sentence-transformers', transformers', a graph), or a name on the hub.
        texts: texts like those that will be encoded; the first 2,000 distinct texts are read. None: 320 English
            sentences of essent's own.
        against: address of a server with OpenAI's `/v1/embeddings`, see `compare_with_server`.
        skip: names of health checks to skip.
        files_only: compare the files with their digests, and load nothing from the folder.
        options: keyword arguments of SentenceTransformer (device, revision, trust_remote_code …).

    Raises:
        InputError: fewer than two distinct texts, an unknown check, or not an http(s) address.
        ModelError: the model cannot be loaded, or the server cannot be reached.
        VerificationError: the folder differs from what was saved, or the server returns other vectors.
        MissingDependencyError: torch is not installed, and essent did not save the folder.

    Example:
        >>> from essent import check
        >>> texts = ["A man plays a flute.", "Two dogs run."]
        >>> report = check("sentence-transformers/all-MiniLM-L6-v2", texts)
        >>> report.healthy, report.problems
        (True, ())
    """
    if against is not None:
        check_address(against)
        if files_only:
            raise InputError("files_only loads nothing, but against compares vectors: omit one of them.")
    # before the folder is loaded: that takes longer than to find a server down
    server = None if against is None else compare_with_server(model, against, **options)
    saved = is_exported_folder(model) or is_essent_folder(model, {})
    verification = verify(model, untrusted=files_only) if saved or files_only else None
    if files_only or server is not None:
        return Report(model, verification, server)
    try:
        check_torch("Checking the health of a model")
    except MissingDependencyError as error:
        if not saved:
            raise
        return Report(model, verification, left_out=f"The health checks were skipped. {error}")
    from essent.verification.checks import find_problems

    return replace(find_problems(model, texts, skip, options), verification=verification)
