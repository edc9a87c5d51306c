"""A table over some of its tasks, for whoever has data for some: means over these beside the paper's over the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from essent.lab.reproduce.tables import Block, Cell, Published, Table, tables

OF_ALL_TASKS = ("tasks", "seeds", "most_seeds")  # settings in which a mean and its single figures may differ


def only_tasks(table: Table, wanted: Callable[[str], bool]) -> Table:
    """The table with each mean taken over the tasks that are wanted; cells that have none of them go.

    What the paper prints becomes the mean of what it prints, in any of its tables, for these tasks one by one; where it
    does not, the figure over all tasks stays and is marked (`Published.over_all`), as it cannot be compared.
    """
    single = _single_figures(table.paper)
    blocks = []
    for block in table.blocks:
        rows = {name: tuple(_only(cell, wanted, single) for cell in cells) for name, cells in block.rows.items()}
        kept = {name: tuple(cell for cell in cells if cell is not None) for name, cells in rows.items()}
        blocks.append(Block(block.title, {name: cells for name, cells in kept.items() if cells}))
    return replace(table, blocks=tuple(block for block in blocks if block.rows))


def _only(cell: Cell, wanted: Callable[[str], bool], single: Mapping[tuple[str, str, str], float]) -> Cell | None:
    tasks = list(cell.settings.get("tasks", ()))
    kept = [name for name in tasks if wanted(name)]
    if kept == tasks:  # also where a corpus is measured, and no task
        return cell
    if not kept:
        return None
    published = cell.published
    if published is not None:
        printed = [single.get((*_identity(cell), name), math.nan) for name in kept]
        mean = round(math.fsum(printed) / len(kept), 2)
        published = Published(published.value, over_all=len(tasks)) if math.isnan(mean) else Published(mean)
    return replace(cell, published=published, settings={**cell.settings, "tasks": kept})


def _single_figures(paper: str) -> dict[tuple[str, str, str], float]:
    """What a paper prints for one task: by row, settings and task."""
    return {
        (*_identity(cell), cell.settings["tasks"][0]): cell.published.value
        for table in tables().values()
        if table.paper == paper
        for cell in table.cells()
        if cell.published is not None and len(cell.settings.get("tasks", ())) == 1
    }


def _identity(cell: Cell) -> tuple[str, str]:
    """What a mean and the figures that it is taken of have in common."""
    return cell.row, repr(sorted((key, value) for key, value in cell.settings.items() if key not in OF_ALL_TASKS))
