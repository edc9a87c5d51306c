"""What the steps of an improvement share: what was given, the plan, the model, and what has been measured so far."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from essent.encoder.encoder import Encoder
from essent.improvement.given import Given
from essent.improvement.journal import Journal
from essent.improvement.plan import announced
from essent.improvement.settings import Settings
from essent.improvement.yardstick import Evidence, Scores, Yardstick
from essent.model.capabilities import ModelCapabilities


@dataclass(frozen=True)
class Choice:
    """An encoder that a step has found.

    Attributes:
        name: of its evidence.
        recipe: what it computes.
        trained: the folder of its trained model; None: the model that came in.
    """

    name: str
    recipe: str
    trained: Path | None = None


@dataclass
class Context:
    """What the steps read, and what they found.

    Attributes:
        opened: the model that came in, as sentence-transformers has it; it does not change.
        found: the evidence of every encoder that was measured, by its name.
        seconds: of every finished step.
        choice: the best so far.
        progress: whether loops show how far they are.
    """

    opened: SentenceTransformer
    given: Given
    settings: Settings
    yardstick: Yardstick
    journal: Journal
    plan: Mapping[str, Any]
    progress: bool
    note: Callable[[str], None]
    found: dict[str, Evidence] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    choice: Choice = field(default_factory=lambda: Choice("", ""))

    def shell(self, trained: Path | None = None) -> SentenceTransformer:
        """The model as sentence-transformers has it, with the weights of a training where one is named."""
        found = copy.deepcopy(self.opened)
        if trained is not None:
            saved = Encoder(str(trained), device="cpu").module.backbone.model
            first: Any = found[0]
            first.model.load_state_dict(saved.state_dict(), strict=False)  # heads that no recipe reads were dropped
        return found

    def encoder(self, recipe: str, trained: Path | None = None, fit: Sequence[str] = ()) -> Encoder:
        """A recipe on the model, fitted on texts where it learns something; by default on those of the plan."""
        texts = list(fit) or list(self.given.texts[: self.plan["fitted"]])
        return Encoder(self.shell(trained), recipe).fit(texts, batch_size=self.settings.batch_size)

    def scores(self, more: Mapping[str, Evidence] | None = None) -> Scores:
        """Scores of everything that was measured."""
        return self.yardstick.scores({**self.found, **(more or {})})

    @property
    def capabilities(self) -> ModelCapabilities:
        """What the model offers to recipes."""
        return ModelCapabilities(**self.plan["capabilities"])

    @property
    def plain(self) -> str:
        """The recipe that every gain is counted from."""
        return "static" if self.capabilities.only_static else "mean"

    @property
    def remaining(self) -> float:
        """Seconds of the budget that finished steps have left."""
        return self.settings.seconds - self.journal.spent

    @property
    def pace(self) -> float:
        """Seconds that the finished steps took for each second that was planned."""
        planned = {name: seconds for name, _, seconds in announced(self.plan) if name in self.seconds}
        return sum(self.seconds[name] for name in planned) / sum(planned.values())

    def planned_after(self, step: str) -> float:
        """Seconds that were planned for the steps behind this one."""
        names = [name for name, _, _ in announced(self.plan)]
        return sum(seconds for _, _, seconds in announced(self.plan)[names.index(step) + 1 :])
