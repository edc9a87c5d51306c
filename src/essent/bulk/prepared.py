"""Fits and graphs, which are computed once, before the first part, and stored beside the parts."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import write_json
from essent._core.folders.contents import is_exported_folder
from essent._core.folders.files import STATE_FOLDER, read_json
from essent._core.machine import FLOAT32
from essent._core.types import TextsLike
from essent.bulk.batches import read_texts
from essent.bulk.models import Model, open_encoder, ready
from essent.bulk.parts import OTHERWISE, read_parts
from essent.bulk.settings import OK, BulkSettings, ModelSpec
from essent.bulk.units import Input, plan
from essent.errors import DataError, InputError, NotFittedError
from essent.static.encoder import StaticEncoder

FITTED, GRAPH = "_encoder", "_graph"  # folders in the output
FIT_FILE = "fit.json"
SAMPLED = 20  # units that a sample is taken from


def prepare_model(
    spec: ModelSpec,
    settings: BulkSettings,
    folder: Path,
    inputs: Sequence[Input],
    fit: TextsLike | None,
    fit_sample: int,
    note: Callable[[str], object],
) -> tuple[ModelSpec, Model]:
    """The model, fitted and as a graph where that is wanted; and the spec that another process loads it by."""
    encoder = open_encoder(spec, settings)
    saved = fitted(encoder, settings, folder, inputs, fit, fit_sample)
    if saved is not None:
        encoder, spec = saved, without_model(spec, folder / FITTED)
    if spec.choice.makes_graph and not hasattr(encoder, "engine_module"):
        graph = as_graph(encoder, spec, folder / GRAPH, settings, note)
        return without_model(spec, folder / GRAPH), graph
    return spec, ready(encoder, settings)


def fitted(
    encoder: Any,
    settings: BulkSettings,
    folder: Path,
    inputs: Sequence[Input],
    texts: TextsLike | None,
    sample: int,
) -> Any:
    """The encoder as it was fitted and saved in the folder; None where it learns nothing, or has learned it.

    Raises:
        DataError: the folder holds parts of a fit on other texts.
    """
    if not _must_fit(encoder, texts is not None):
        return None
    from essent.encoder.encoder import Encoder
    from essent.encoder.pipeline.digests import digest_of_backbone

    chosen = None if texts is None else list(texts)
    if chosen is None:
        prints = [source_input.source.print for source_input in inputs]
        learned_from: dict[str, Any] = {"sample": sample, "column": settings.column, "sources": prints}
    else:
        digest = hashlib.sha256(json.dumps(chosen).encode()).hexdigest()
        learned_from = {"given": len(chosen), "digest": digest}
    identity = {
        "model": digest_of_backbone(encoder.module.backbone),
        "recipe": str(encoder.recipe),
        "prompt": [settings.prompt, settings.prompt_name],
        "texts": learned_from,
    }
    saved = read_json(folder / FITTED / STATE_FOLDER / FIT_FILE)
    if saved != identity:
        if saved is not None and read_parts(folder):
            changed = ", ".join(name for name in identity if saved.get(name) != identity[name])
            raise DataError(
                f"{folder} holds parts of an encoder that was fitted otherwise: {changed} of the fit differ. "
                f"{OTHERWISE}"
            )
        chosen = sample_texts(inputs, settings, sample) if chosen is None else chosen
        if not chosen:
            raise InputError(f"{encoder.recipe} learns from texts, and there are none to learn from.")
        encoder.fit(chosen, prompt=settings.prompt, prompt_name=settings.prompt_name, batch_size=settings.batch_size)
        encoder.write_folder(
            folder / FITTED, "stock", lambda path, _: write_json(path / STATE_FOLDER / FIT_FILE, identity)
        )
    return Encoder(str(folder / FITTED), device=str(encoder.device))


def _must_fit(encoder: Any, requested: bool) -> bool:
    if isinstance(encoder, StaticEncoder) or not hasattr(encoder, "recipe"):
        return False  # and imports no torch
    from essent.encoder.encoder import Encoder

    if not isinstance(encoder, Encoder):
        return False
    module = encoder.module
    if not (module.plan.reads_stats or module.chain.needs_fit):
        return False
    try:
        module.require_fit()
    except NotFittedError:
        return True
    return requested


def sample_texts(inputs: Sequence[Input], settings: BulkSettings, most: int) -> list[str]:
    """Return the first texts of units spread over the sources; deterministic for the same sources.

    Of a file that is read from its beginning they are the first ones.
    """
    ranged = list(plan([entry for entry in inputs if entry.ranges is not None], {}, settings.rows_per_part))
    indices = np.unique(np.linspace(0, len(ranged) - 1, SAMPLED).astype(int)) if ranged else ()
    units = [ranged[index] for index in indices]
    for source_input in inputs:
        if source_input.ranges is None:
            units += islice(plan([source_input], {}, settings.rows_per_part), 1)
    share = -(-most // max(len(units), 1))
    texts: list[str] = []
    for unit in units:
        of_unit: list[str] = []
        for table, unread, not_text in inputs[unit.source].read(unit, settings):
            cells, codes = read_texts(table.column(settings.column), unread, not_text)
            of_unit += [text for text, code in zip(cells, codes, strict=True) if text is not None and code == OK]
            if len(of_unit) >= share:
                break
        texts += of_unit[:share]
    return texts[:most]


def as_graph(
    encoder: Any, spec: ModelSpec, folder: Path, settings: BulkSettings, note: Callable[[str], object]
) -> Model:
    """A graph of an Encoder or a sentence-transformers model, kept in a folder; one of another model is made again.

    Raises:
        EngineError: the model does not convert. MissingDependencyError: the engine's library is not installed.
    """
    from essent.engine.compiled import compile
    from essent.engine.files import load
    from essent.engine.runtime import runtime_of

    metadata = ready(encoder, settings).metadata
    engine, precision = spec.engine, spec.choice.graph_precision
    kind = engine if precision == FLOAT32 else f"{engine} {precision}"
    source = {"engine": kind, **{name: metadata[name] for name in ("model", "recipe", "fit", "max_seq_length")}}
    graph_file = folder.with_suffix(".json")
    if read_json(graph_file) != source or not folder.is_dir():
        runtime_of(engine, precision)
        graph_file.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        note(f"Making a graph of the model for {kind}; it is kept in {folder} for later runs.")
        compile(encoder, engine, precision=precision).save(str(folder))
        write_json(graph_file, source)
    graph = ready(load(folder, threads=spec.threads), settings)
    graph.metadata |= {"made_from": source}
    return graph


def without_model(spec: ModelSpec, folder: Path) -> ModelSpec:
    """The spec for a folder in which a fitted encoder or a graph was saved; of the options a graph takes none."""
    takes = () if is_exported_folder(str(folder)) else ("device",)
    options = {name: value for name, value in spec.options.items() if name in takes}
    return replace(spec, model=str(folder), recipe=None, learns=False, options=options)
