"""A SentenceTransformer that runs a graph, for libraries that accept nothing else."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.base.modules.input_module import InputModule

from essent._core.types import NamesItsModel
from essent.encoder.calibrated import CalibratedTransformer
from essent.engine.compiled import CompiledEncoder
from essent.errors import EngineError


class GraphModule(InputModule):
    """A module that tokenizes texts and runs a compiled encoder's graph."""

    modalities: list[Any] = ["text"]  # noqa: RUF012  (the base class declares it so)

    def __init__(self, encoder: CompiledEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.tokenizer = encoder.reading.backend

    def preprocess(self, inputs: Any, prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return ids and attention mask (B,T) of texts."""
        ids, attention_mask = self.encoder.batch(self.encoder.ids([(prompt or "") + text for text in inputs]))
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(attention_mask)}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add the vectors (B,K), `sentence_embedding`, to ids and attention mask."""
        ids, attention_mask = (features[name].cpu().numpy() for name in ("input_ids", "attention_mask"))
        return {**features, "sentence_embedding": torch.from_numpy(self.encoder.runtime.one(ids, attention_mask))}

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of a vector."""
        return self.encoder.width

    @property
    def max_seq_length(self) -> int | None:
        """The maximum length in tokens; None without a limit."""
        return self.encoder.max_seq_length

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Raise: `CompiledEncoder.save` writes the graph."""
        raise EngineError("A SentenceTransformer of a graph cannot be saved: call CompiledEncoder.save.")


class GraphTransformer(CalibratedTransformer, metaclass=NamesItsModel):
    """A SentenceTransformer on the CPU with graph, prompts, similarity and calibration of a compiled encoder."""

    def __init__(self, encoder: CompiledEncoder) -> None:
        module = GraphModule(encoder)
        super().__init__(modules=[module], device="cpu", **encoder.settings)
        self.calibration = encoder.calibration

    def save(self, path: str, *args: Any, **kwargs: Any) -> None:
        """Raise before anything is written: `CompiledEncoder.save` writes the graph.

        Raises:
            EngineError: always.
        """
        raise EngineError("A SentenceTransformer of a graph cannot be saved: call CompiledEncoder.save.")

    save_pretrained = save
