"""Any number of texts to vectors, in parts that are written whole: a run can be killed at any time and gone on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.bulk.job import Job as Job
    from essent.bulk.models import Model as Model
    from essent.bulk.parts import Part
    from essent.bulk.parts import read_parts as read_parts
    from essent.bulk.rows import Rows as Rows
    from essent.bulk.rows import read_rows as read_rows
    from essent.bulk.run import BulkResult, Prepared, embed, prepare
    from essent.bulk.run import compute as compute
    from essent.bulk.settings import STATUSES as STATUSES
    from essent.bulk.settings import BulkSettings
    from essent.bulk.spec import ModelSpec
    from essent.bulk.units import Unit
    from essent.bulk.units import plan as plan
    from essent.bulk.work import do_unit
    from essent.bulk.work import do_units as do_units

_WHERE = {
    "BulkResult": "essent.bulk.run",
    "BulkSettings": "essent.bulk.settings",
    "Job": "essent.bulk.job",
    "Model": "essent.bulk.models",
    "ModelSpec": "essent.bulk.spec",
    "Part": "essent.bulk.parts",
    "Prepared": "essent.bulk.run",
    "STATUSES": "essent.bulk.settings",
    "Unit": "essent.bulk.units",
    "compute": "essent.bulk.run",
    "do_unit": "essent.bulk.work",
    "do_units": "essent.bulk.work",
    "embed": "essent.bulk.run",
    "plan": "essent.bulk.units",
    "prepare": "essent.bulk.run",
    "Rows": "essent.bulk.rows",
    "read_parts": "essent.bulk.parts",
    "read_rows": "essent.bulk.rows",
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
