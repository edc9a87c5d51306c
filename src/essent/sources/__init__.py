"""What is pooled: layers and their mix, static rows, tables by token, token averages over contexts."""

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
