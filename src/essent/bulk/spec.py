"""Which model encodes, how it is loaded and what runs it: plain values that can be sent to another process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from essent._core.arguments import check_model
from essent.engine.choice import EngineChoice
from essent.errors import ModelError


@dataclass(frozen=True)
class ModelSpec:
    """Which model, and how it is loaded; can be sent to another process.

    Attributes:
        model: a folder, a name on the hub, or something loaded: an Encoder, a graph, a StaticEncoder, a
            SentenceTransformer.
        recipe: of an Encoder; None: what the folder says.
        engine: auto takes what the folder is; torch; openvino or onnx, which make a graph of a model.
        precision: what is computed in: auto, float32, bfloat16.
        learns: whether texts are given that a recipe learns from, which only an Encoder does.
        options: device, revision, trust_remote_code, for an Encoder.
        threads: of the process.
    """

    model: Any
    recipe: str | None = None
    engine: str = "auto"
    precision: str = "auto"
    learns: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    threads: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.model, (str, bytes)) or not hasattr(self.model, "encode"):
            check_model(self.model)
        object.__setattr__(self, "precision", self.choice.precision)
        if self.recipe is not None:
            from essent.recipe.recipe import Recipe

            object.__setattr__(self, "recipe", str(Recipe.parse(self.recipe)))  # before the slow imports

    @property
    def choice(self) -> EngineChoice:
        """What runs it, and what it computes in."""
        return EngineChoice(self.engine, self.precision)

    @property
    def name(self) -> str:
        """The model for messages."""
        return str(self.model) if isinstance(self.model, (str, Path)) else type(self.model).__name__

    def check_exists(self) -> None:
        """Refuse a folder that is not there, before anything is read for it."""
        if isinstance(self.model, Path) and not self.model.exists():
            raise ModelError(f"There is no folder {str(self.model)!r}.")
