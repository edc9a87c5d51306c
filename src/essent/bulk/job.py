"""What every unit of a run needs, wherever it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from essent.bulk.models import Model, open_encoder, ready
from essent.bulk.settings import BulkSettings
from essent.bulk.spec import ModelSpec
from essent.bulk.units import Input

AHEAD = 3  # windows that are read before they are encoded, and encoded before they are written


@dataclass(frozen=True)
class Job:
    """Everything that a unit needs, and nothing that is open: it can be sent to another process or machine.

    Attributes:
        spec: the model.
        settings: what is computed.
        inputs: the sources.
        folder: where the parts are written.
        schema: Arrow's, of the parts.
        run: what all parts share, for their footers.
        versions: of libraries, for the footers.
        ahead: windows in memory before and behind the model.
    """

    spec: ModelSpec
    settings: BulkSettings
    inputs: Sequence[Input]
    folder: Path
    schema: Any
    run: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    ahead: int = AHEAD

    def open_model(self) -> Model:
        """Load the model, as every process does once."""
        return ready(open_encoder(self.spec, self.settings), self.settings)
