"""What a recipe learns is learned once, before the first part, and kept beside the parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import write_json
from essent._core.folders.names import STATE_FOLDER
from essent._core.folders.reading import read_json
from essent._core.types import TextsLike
from essent.bulk.cells import read_cells
from essent.bulk.parts import read_parts
from essent.bulk.settings import BulkSettings
from essent.bulk.units import Input, plan
from essent.errors import DataError, InputError, NotFittedError
from essent.static.encoder import StaticEncoder

FITTED = "_encoder"
ABOUT = "fit.json"
SAMPLED = 20  # units that a sample is taken from


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

    wanted = {
        "model": digest_of_backbone(encoder.module.backbone),
        "recipe": str(encoder.recipe),
        "prompt": [settings.prompt, settings.prompt_name],
        "texts": {"sample": sample, "column": settings.column, "sources": [one.source.print for one in inputs]},
    }
    chosen = None
    if texts is not None:
        chosen = list(texts)
        wanted["texts"] = {"given": len(chosen), "digest": _digest(chosen)}
    there = read_json(folder / FITTED / STATE_FOLDER / ABOUT)
    if there != wanted:
        if there is not None and read_parts(folder):
            changed = ", ".join(name for name in wanted if there.get(name) != wanted[name])
            raise DataError(
                f"{folder} holds parts of an encoder that was fitted otherwise: {changed} of the fit differ. Choose "
                "another folder, give what was given before, or begin anew with --force."
            )
        found = sample_texts(inputs, settings, sample) if chosen is None else chosen
        if not found:
            raise InputError(f"{encoder.recipe} learns from texts, and there are none to learn from.")
        encoder.fit(found, prompt=settings.prompt, prompt_name=settings.prompt_name, batch_size=settings.batch_size)
        encoder.write_folder(folder / FITTED, "stock", lambda place, _: _note(place, wanted))
    return Encoder(str(folder / FITTED), device=str(encoder.device))


def _note(place: Path, wanted: dict[str, Any]) -> None:
    write_json(place / STATE_FOLDER / ABOUT, wanted)


def _must_fit(encoder: Any, asked: bool) -> bool:
    if isinstance(encoder, StaticEncoder) or not hasattr(encoder, "recipe"):
        return False
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
    return asked


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def sample_texts(inputs: Sequence[Input], settings: BulkSettings, most: int) -> list[str]:
    """The first texts of some units that are spread over the sources; the same for the same sources.

    Of a file that is read from its beginning they are the first ones.
    """
    ranged = list(plan([one for one in inputs if one.ranges is not None], {}, settings.rows_per_part))
    chosen = (
        [ranged[place] for place in np.unique(np.linspace(0, len(ranged) - 1, SAMPLED).astype(int))] if ranged else []
    )
    for one in inputs:
        if one.ranges is None:
            chosen += [unit for unit in [next(plan([one], {}, settings.rows_per_part), None)] if unit is not None]
    share = -(-most // max(len(chosen), 1))
    found: list[str] = []
    for unit in chosen:
        here: list[str] = []
        for window in inputs[unit.source].windows(unit, settings):
            here += read_cells(window.table.column(settings.column), window.unread, window.not_text).chosen
            if len(here) >= share:
                break
        found += here[:share]
    return found[:most]
