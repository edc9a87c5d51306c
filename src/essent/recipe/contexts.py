"""Context-averaged token vectors: the hidden states of each token, averaged over its occurrences in a corpus.

Avg_t^(k) = 1/n_t · Σ_{occurrences of t} h^(k), for every layer k (Stankevičius 3.2.3).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from essent._core.atomic import recover, replacing_folder
from essent._core.folders.files import STATE_FOLDER, check_digests, check_places, has_digests, read_json, write_digests
from essent.errors import DataError, ModelError
from essent.recipe.types import CorpusStats

FORMAT = 1
ENTRIES = {"texts": int, "last": int, "vocabulary": str, "about": dict}
ABOUT, ARRAYS = "contexts.json", "contexts.safetensors"
UNSEEN = ("auto", "alone", "static", "zero", "mean")


@dataclass(frozen=True, eq=False)
class Contexts:
    """Averaged states and counts of every token of a vocabulary.

    Attributes:
        tables: layer -> (V,D) float32; the rule `unseen` defines the rows of tokens that are not in the corpus.
        count, document_frequency: numbers of occurrences, and of texts with the token: (V,) int64.
        texts: number of texts.
        last: the model's last layer L.
        vocabulary: digest of the tokens (`Vocabulary.digest`); a model must have the same to use the tables.
        about: metadata for readers: model, corpus, rule for unseen tokens.
    """

    tables: dict[int, np.ndarray]
    count: np.ndarray
    document_frequency: np.ndarray
    texts: int
    last: int
    vocabulary: str
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def stats(self) -> CorpusStats:
        """Counts in the form that weightings read."""
        return CorpusStats(self.texts, self.document_frequency, self.count)

    @property
    def seen(self) -> np.ndarray:
        """Whether each token occurs in the corpus: (V,) bool."""
        observed: np.ndarray = self.count > 0
        return observed

    def table(self, layer: int) -> np.ndarray:
        """Return the table of a layer (V,D).

        Raises:
            DataError: the layer was not averaged.
        """
        if layer not in self.tables:
            raise _lacking(layer, self.tables, self.last)
        return self.tables[layer]

    def save(self, folder: str | Path) -> None:
        """Write contexts.safetensors and contexts.json atomically; other files in the folder are retained.

        Raises:
            DataError: the path is a file or a model's folder, or cannot be replaced.
        """
        path = Path(folder)
        if any((path / STATE_FOLDER / name).is_file() for name in ("encoder.json", "engine.json")):
            raise DataError(f"{path} contains a model. Choose another folder for context-averaged tables.")
        own = (ABOUT, ARRAYS, STATE_FOLDER)
        foreign = [entry.name for entry in path.iterdir() if entry.name not in own] if path.is_dir() else []
        arrays = {f"layer.{layer}": np.ascontiguousarray(table) for layer, table in self.tables.items()}
        metadata = {"format": FORMAT, "texts": self.texts, "last": self.last, "vocabulary": self.vocabulary}
        text = json.dumps({**metadata, "about": self.about}, ensure_ascii=False, indent=2)
        with replacing_folder(path, foreign) as whole:
            save_file({**arrays, "count": self.count, "document_frequency": self.document_frequency}, whole / ARRAYS)
            (whole / ABOUT).write_text(text, encoding="utf-8")
            write_digests(whole)

    @classmethod
    def load(cls, folder: str | Path, layers: set[int] | None = None) -> Contexts:
        """Read a folder that `save` wrote.

        Args:
            layers: layers to read; None reads all.

        Raises:
            DataError: the folder is of another kind, is damaged, or lacks one of the layers.
        """
        metadata = read_about(folder, whole=True)
        try:
            with safe_open(Path(folder) / ARRAYS, framework="numpy") as file:
                names = {int(key[6:]): key for key in file.keys() if key.startswith("layer.")}  # noqa: SIM118  no dictionary
                for layer in sorted((layers or set()) - set(names)):
                    raise _lacking(layer, names, metadata["last"])
                tables = {layer: file.get_tensor(names[layer]) for layer in sorted(names if layers is None else layers)}
                counts = {key: file.get_tensor(key) for key in ("count", "document_frequency")}
        except DataError:
            raise
        except (OSError, ValueError, SafetensorError) as error:
            raise DataError(f"The context-averaged tables in {str(folder)!r} are damaged: {error!r}") from error
        return cls(tables, **counts, **{key: metadata[key] for key in ENTRIES})


def _lacking(layer: int, stored_layers: Iterable[int], last: int) -> DataError:
    return DataError(
        f"Layer {layer} was not averaged. Averaged layers: {', '.join(map(str, sorted(stored_layers)))} (L = {last})."
    )


def read_about(folder: str | Path, whole: bool = False) -> dict[str, Any]:
    """Read contexts.json and check the digests of the folder; `whole` includes those of large files.

    Raises:
        DataError: the file is missing, damaged, of another format, or has changed since it was saved.
    """
    path = Path(folder) / ABOUT
    recover(folder)
    try:
        check_places(Path(folder), also=(ABOUT, ARRAYS))
        metadata: dict[str, Any] | None = read_json(path)
        if metadata is not None and has_digests(Path(folder)):
            check_digests(Path(folder), whole=whole)
    except ModelError as error:
        raise DataError(str(error)) from error
    if metadata is None:
        raise DataError(
            f"{str(folder)!r} has no {ABOUT}. Run `essent distill --contexts FOLDER` to make context-averaged tables."
        )
    if metadata.get("format") != FORMAT:
        raise DataError(f"{path} has format {metadata.get('format')!r}; this version of essent reads format {FORMAT}.")
    for key, kind in ENTRIES.items():
        if not isinstance(metadata.get(key), kind):
            raise DataError(f"{path} is damaged: {key!r} must be {kind.__name__}, not {metadata.get(key)!r:.60}.")
    return metadata
