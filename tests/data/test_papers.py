"""Transcribed figures against the papers' text: `make check-data DATA=DIR PAPERS=DIR`. Never part of `make test`."""

import os
import re
from itertools import groupby
from pathlib import Path

import pytest

from essent.lab.reproduce.published import Cell, tables

pytestmark = pytest.mark.data
FILES = {
    "ditto": "ditto.txt",
    "promptbert": "promptbert.txt",
    "stankevicius": "extracting-sentence-embeddings.txt",
    "heros": "heros.txt",
}


@pytest.fixture(scope="module")
def papers() -> dict[str, str]:
    if not os.environ.get("ESSENT_PAPERS"):
        pytest.skip("no ESSENT_PAPERS")
    folder = Path(os.environ["ESSENT_PAPERS"])
    return {paper: (folder / file).read_text(encoding="utf-8") for paper, file in FILES.items()}


def rows_of(name: str) -> list[tuple[str, list[Cell]]]:
    rows = groupby(tables()[name].cells(), key=lambda cell: (cell.block, cell.row))
    return [(row, list(cells)) for (_, row), cells in rows]


def printed(cells: list[Cell]) -> str:
    """A row as a pattern: its figures in order, with anything but digits between them."""
    parts = []
    for cell in cells:
        if cell.published is not None:
            value = f"{cell.published.value:.4f}".rstrip("0")
            whole, _, decimals = value.partition(".")
            parts.append(rf"{whole}\.{decimals or ''}0*")
            if cell.published.spread is not None:
                parts.append(re.escape(f"±{cell.published.spread:.2f}"))
    return r"[^\d\n]{0,8}".join(parts)


@pytest.mark.parametrize("name", list(tables()))
def test_every_row_stands_in_the_paper(papers: dict[str, str], name: str) -> None:
    """Those of an appendix in their own table."""
    paper, _, table = name.partition("-")
    text = papers[paper]
    if table.startswith("A"):
        own = text[text.index(f"Table {table}. ") :]
        text = own.partition(f"Table A{int(table[1:]) + 1}. ")[0][:12_000]
    for row, cells in rows_of(name):
        assert re.search(printed(cells), text), (row, printed(cells))
