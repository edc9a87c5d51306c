"""Collections at the start of a server: read before a model is loaded, then encoded; vectors that exist are checked.

Vectors that `essent encode` wrote are those of a model if it gives them again: a digest of weights would tell torch
from a graph of the same model, and would not see a recipe that one of them ran wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from essent._core.progress import text_progress
from essent.errors import DataError, EngineError, InputError, VerificationError
from essent.serving.collection import SMALLEST, TEXT_PROMPTS, Collection, Index
from essent.serving.errors import RequestError
from essent.serving.model import Model
from essent.serving.prepared import named
from essent.serving.service import Service
from essent.serving.settings import Settings
from essent.tasks.text_files import read_texts

if TYPE_CHECKING:
    from essent.bulk.parts import Rows

TOGETHER = 256  # texts that are encoded as one request, a power of 4
CHECKED = 16  # rows of a folder that a model must give again
FURTHEST = 1e-3  # 1 - cosine of such a row; FURTHEST_ROUGH where the engine or the folder has fewer bits
FURTHEST_ROUGH = 2e-2


@dataclass(frozen=True)
class Given:
    """A collection as its files have it.

    Attributes:
        name: what requests call it.
        source: the file or folder.
        places, texts: see `Collection`.
        rows: what `essent encode` wrote; None for texts that have no vectors yet.
    """

    name: str
    source: str
    places: np.ndarray
    texts: list[str]
    rows: Rows | None = None


def read_collections(settings: Settings) -> list[Given]:
    """What `--texts` names.

    Raises:
        InputError: two of one name, or too many texts.
        DataError: a file or folder that cannot be read or has no texts.
    """
    pairs = [(*named(str(given)), str(given)) for given in settings.texts or ()]
    names = [Path(name).stem if given == source and Path(source).is_file() else name for name, source, given in pairs]
    if len(set(names)) < len(names):
        raise InputError(f"Give collections different names, NAME=FILE; got {', '.join(names)}.")
    return [_read(name, Path(source), settings) for name, (_, source, _) in zip(names, pairs, strict=True)]


def _read(name: str, path: Path, settings: Settings) -> Given:
    if path.is_dir():
        from essent.bulk.parts import read_rows

        rows = read_rows(path, settings.max_texts)
        return Given(name, str(path), rows.places, rows.texts, rows)
    texts = read_texts(path, settings.column)
    places = np.flatnonzero([bool(text.strip()) for text in texts])
    if not len(places):
        raise DataError(f"{path} has no texts.")
    if len(places) > settings.max_texts:
        raise InputError(
            f"{path} has {len(places):,} texts, and a collection has at most {settings.max_texts:,}. Raise "
            "--max-texts, or embed them once with `essent encode` and give that folder."
        )
    return Given(name, str(path), places, [texts[place] for place in places])


async def open_collections(
    service: Service, given: Sequence[Given], note: Callable[[str], None], progress: bool
) -> dict[str, Collection]:
    """The collections with vectors by every model; those of a folder by the models that give them.

    Raises:
        VerificationError: no model gives the vectors of a folder.
        EngineError: the engine fails, or a text is too long for what the server allows in a request.
    """
    found = {}
    for each in given:
        try:
            indexes = await (_encoded(service, each, note, progress) if each.rows is None else _checked(service, each))
        except RequestError as error:
            raise EngineError(f"{each.source} cannot be encoded: {error.message}") from error
        found[each.name] = Collection(each.name, each.places, each.texts, indexes)
        size = sum(index.unit.nbytes for index in indexes.values()) / 1e6
        note(f"{each.name}: {len(each.texts):,} texts for {', '.join(indexes)}, {size:,.0f} MB.")
    return found


async def _encoded(service: Service, given: Given, note: Callable[[str], None], progress: bool) -> dict[str, Index]:
    indexes = {}
    for model in service.models.values():
        prompt_name = _text_prompt(model)
        how = f" with its prompt {prompt_name!r}" if prompt_name and model.prompt(prompt_name) else ""
        note(f"{given.name}: {len(given.texts):,} texts are encoded by {model.name}{how}.")
        vectors, cut, start, together = np.empty((len(given.texts), model.about.dimensions), np.float32), 0, 0, TOGETHER
        with text_progress(len(given.texts), progress) as done:
            while start < len(given.texts):
                some = given.texts[start : start + together]
                try:
                    found = await service.embed(model, some, prompt_name=prompt_name, truncate=True)
                except RequestError:  # more tokens, or more time, than a request may have
                    if together == 1:
                        raise
                    together //= 4
                    continue
                vectors[start : start + len(some)] = found.vectors
                start, cut = start + len(some), cut + len(found.truncated)
                done(len(some))
        if cut:
            note(
                f"{given.name}: {cut:,} texts are longer than {model.name} reads; their vectors are of their beginning."
            )
        indexes[model.name] = Index(vectors)
    return indexes


def _text_prompt(model: Model) -> str | None:
    """The first of the prompts for texts that says something: sentence-transformers adds an empty `document` to all."""
    known = [name for name in TEXT_PROMPTS if name in model.about.prompts]
    return next((name for name in known if model.about.prompts[name]), known[0] if known else None)


async def _checked(service: Service, given: Given) -> dict[str, Index]:
    """The vectors of a folder, for the models that give some of them again."""
    rows, indexes, refused = given.rows, {}, []
    assert rows is not None  # noqa: S101
    for model in service.models.values():
        if why := await _difference(service, model, rows):
            refused.append(f"{model.name} {why}")
        else:
            indexes[model.name] = Index(rows.vectors)
    if not indexes:
        run = rows.run
        raise VerificationError(
            f"{given.source} has vectors of another model (recipe {run['recipe']!r}, engine {run['engine']}): "
            f"{'; '.join(refused)}. Serve the model that they were made with, or embed the texts again."
        )
    return indexes


async def _difference(service: Service, model: Model, rows: Rows) -> str:
    """How a model's vectors differ from those of the rows; nothing where they do not."""
    width = rows.vectors.shape[1]
    if width != model.about.dimensions:
        return f"has {model.about.dimensions} dimensions, not {width}"
    sure = np.flatnonzero(rows.whole)
    if not len(sure):
        return "cannot be compared, as no row has the vector of its whole text alone"
    chosen = sure[np.unique(np.linspace(0, len(sure) - 1, CHECKED).astype(np.int64))]
    texts = [rows.run["prompt"] + rows.texts[row] for row in chosen]
    again = (await service.embed(model, texts, prompt="", truncate=True)).vectors
    there = rows.vectors[chosen]
    lengths = np.linalg.norm(again, axis=1) * np.linalg.norm(there, axis=1)
    furthest = float((1 - np.einsum("nk,nk->n", again, there) / np.maximum(lengths, SMALLEST)).max())
    rough = rows.run["dtype"] == "int8" or model.about.precision not in ("float32", "float64")
    if furthest <= (FURTHEST_ROUGH if rough else FURTHEST):
        return ""
    return f"gives vectors that are off by {furthest:.2g} (1 - cosine) on {len(chosen)} of its texts"
