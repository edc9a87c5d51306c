"""Any number of texts to vectors, in parts that are written whole: a run can be killed at any time and gone on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.lazy import lazy_door

if TYPE_CHECKING:
    from essent.bulk.parts import Part
    from essent.bulk.run import BulkResult, Prepared, embed, prepare
    from essent.bulk.settings import BulkSettings
    from essent.bulk.spec import ModelSpec
    from essent.bulk.units import Unit
    from essent.bulk.work import do_unit

_WHERE = {
    "BulkResult": "essent.bulk.run",
    "BulkSettings": "essent.bulk.settings",
    "ModelSpec": "essent.bulk.spec",
    "Part": "essent.bulk.parts",
    "Prepared": "essent.bulk.run",
    "Unit": "essent.bulk.units",
    "do_unit": "essent.bulk.work",
    "embed": "essent.bulk.run",
    "prepare": "essent.bulk.run",
}

__all__ = [
    "BulkResult",
    "BulkSettings",
    "ModelSpec",
    "Part",
    "Prepared",
    "Unit",
    "do_unit",
    "embed",
    "prepare",
]

__getattr__, __dir__ = lazy_door(__name__, _WHERE)
