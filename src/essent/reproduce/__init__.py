"""The papers' tables: published figures as data, run again, side by side.

One table with a model for each of its roles:

    import rich
    from essent.reproduce import find_table, run_table
    from essent.reproduce.show import render

    done = run_table(find_table("ditto-6"), {"bert": "bert-base-uncased"}, data="my-data")
    rich.print(render(done))
"""

from essent.lazy import needs_torch

with needs_torch(__name__):
    from essent.reproduce.parts import only_tasks as only_tasks
    from essent.reproduce.run import Measured, Reproduction, run_table
    from essent.reproduce.show import render, summary
    from essent.reproduce.show import settings_of as settings_of
    from essent.reproduce.show import to_dict as to_dict
    from essent.reproduce.tables import Cell, Published, Table, find_table, tables

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
