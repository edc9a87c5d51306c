"""What an improvement bought: scores with intervals, what each step gained, which result is the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from essent._core.atomic import write_json
from essent.tasks.result import library_versions, plain

if TYPE_CHECKING:
    from essent.encoder.encoder import Encoder

FORMAT = "essent-improvement/1"
ABOUT = "improvement.json"
KEEPS = 0.85  # of the encoder's score, that a static table must keep to be the answer for speed or size


@dataclass(frozen=True)
class Gain:
    """What a step gained.

    Attributes:
        step: its name.
        by: what it did.
        difference, low, high: points over the best before it, with the 95 % interval; of training over the best before.
        kept: whether its result is used from here on.
        seconds: what it took.
        note: what else is to be known.
    """

    step: str
    by: str
    difference: float
    low: float
    high: float
    kept: bool
    seconds: float
    note: str = ""

    def in_words(self) -> str:
        """The points and what brought them: "+19.8 [18.2, 21.0] by whitening"."""
        figures = f"{self.difference:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"
        shown = figures if self.low > 0 or self.high < 0 else f"no difference shown ({figures})"
        return f"{shown} by {self.by}{'' if self.kept else ', not kept'}"


@dataclass(frozen=True)
class Result:
    """One of the things that came out.

    Attributes:
        name: encoder, static or graph, or what was only measured.
        score, low, high: on the yardstick, ×100.
        test: on the tests, with its interval; None without tests.
        agreement: Spearman ×100 with the encoder's similarities on held-out texts.
        texts_per_second, bytes: None for what was only measured.
        dimensions: of a vector.
    """

    name: str
    score: float
    low: float
    high: float
    test: tuple[float, float, float] | None = None
    agreement: float | None = None
    texts_per_second: float | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Improved:
    """What came of an improvement.

    Attributes:
        folder: DIR, with `encoder`, perhaps `static` and `graph`, `report.html` and `improvement.json`.
        answer: the name of the result that serves the goal.
        why: of that choice, in a sentence.
        by: what everything was measured by.
        by_labels: whether judgements were read.
        gains: what the steps gained, in their order.
        results: what came out and what was measured besides, the encoder first.
        before: the score of the model as it was given, with its interval.
        notes: sentences that a reader needs.
        about: model, data, settings, seeds, versions.
    """

    folder: Path
    answer: str
    why: str
    by: str
    by_labels: bool
    gains: tuple[Gain, ...]
    results: tuple[Result, ...]
    before: tuple[float, float, float]
    notes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        first = self.results[0]
        return (
            f"Improved({self.before[0]:.2f} -> {first.score:.2f} by {self.by}, answer {self.answer!r}, {self.folder})"
        )

    def encoder(self, **options: Any) -> Encoder:
        """The encoder that was saved."""
        from essent.encoder.encoder import Encoder

        return Encoder(str(self.folder / "encoder"), **options)

    def in_words(self) -> Iterator[str]:
        """What was gained, step by step, and the answer."""
        first = self.results[0]
        yield (
            f"{first.score:.1f} [{first.low:.1f}, {first.high:.1f}] instead of {self.before[0]:.1f} "
            f"[{self.before[1]:.1f}, {self.before[2]:.1f}] by {self.by}."
        )
        if not self.by_labels:
            yield "These points are agreement with the recipes that teach, not a correlation with judgements."
        yield from (gain.in_words() + "." for gain in self.gains)
        if not any(gain.kept for gain in self.gains):
            yield "Nothing was shown to be better than the model as given: only its speed and size are worth changing."
        yield f"{self.why} It is in {self.folder / self.answer}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        values = {
            "format": FORMAT,
            "answer": self.answer,
            "why": self.why,
            "by": self.by,
            "by_labels": self.by_labels,
            "before": self.before,
            "gains": [vars(gain) for gain in self.gains],
            "results": [vars(result) for result in self.results],
            "notes": self.notes,
            "about": {**self.about, "versions": library_versions()},
        }
        return dict(plain(values))

    def to_json(self, path: str | Path) -> None:
        """Write everything to a file."""
        write_json(path, self.to_dict(), indent=1)


def answer_of(goal: str, results: Mapping[str, Result]) -> tuple[str, str]:
    """Which result serves a goal, and why. What is measured by the clock decides nothing."""
    encoder, static, graph = (results.get(name) for name in ("encoder", "static", "graph"))
    assert encoder is not None  # noqa: S101
    if goal == "quality":
        also = " The graph gives the same vectors, faster." if graph is not None else ""
        return "encoder", f"For quality the answer is the encoder.{also}"
    share = 0.0 if static is None or encoder.score <= 0 else static.score / encoder.score
    if static is not None and share >= KEEPS:
        return "static", f"For {goal} the answer is the static table: it keeps {100 * share:.0f} % of the score."
    lost = (
        "there is no static table"
        if static is None
        else f"the static table keeps {100 * share:.0f} % of the score only"
    )
    if goal == "speed" and graph is not None:
        return "graph", f"For speed the answer is the graph: {lost}."
    return "encoder", f"For {goal} the answer is the encoder: {lost}."
