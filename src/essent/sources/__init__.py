"""What is pooled: layers and their mix, static rows, tables by token, token averages over contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent.lazy import lazy_door

if TYPE_CHECKING:
    from essent.sources.contexts import UNSEEN, Contexts
    from essent.sources.layers import (
        LAYER,
        AverageTable,
        Mix,
        Source,
        check_source,
        checked_mix,
        format_mix,
        parse_mix,
        reads_mlm_head,
        resolve,
        token_tables,
    )

__all__ = [
    "LAYER",
    "UNSEEN",
    "AverageTable",
    "Contexts",
    "Mix",
    "Source",
    "check_source",
    "checked_mix",
    "format_mix",
    "parse_mix",
    "reads_mlm_head",
    "resolve",
    "token_tables",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        "AverageTable": "essent.sources.layers",
        "Contexts": "essent.sources.contexts",
        "LAYER": "essent.sources.layers",
        "Mix": "essent.sources.layers",
        "Source": "essent.sources.layers",
        "UNSEEN": "essent.sources.contexts",
        "check_source": "essent.sources.layers",
        "checked_mix": "essent.sources.layers",
        "format_mix": "essent.sources.layers",
        "parse_mix": "essent.sources.layers",
        "reads_mlm_head": "essent.sources.layers",
        "resolve": "essent.sources.layers",
        "token_tables": "essent.sources.layers",
    },
)
