"""Reproduce the papers' tables: run published tables again, and compare the figures.

For a table with a model for each of its roles:

    >>> import rich
    >>> from essent.lab.reproduce import find_table, render, run_table
    >>> rich.print(render(run_table(find_table("ditto-6"), {"bert": "bert-base-uncased"}, data="my-data")))
"""

from essent._core.lazy import needs_torch

with needs_torch(__name__):
    from essent.lab.reproduce.results import Measured, Reproduction, render, summary
    from essent.lab.reproduce.run import run_table
    from essent.lab.reproduce.tables import Cell, Published, Table, find_table, tables

__all__ = [
    "Cell",
    "Measured",
    "Published",
    "Reproduction",
    "Table",
    "find_table",
    "render",
    "run_table",
    "summary",
    "tables",
]
