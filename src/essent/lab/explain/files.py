"""A report of token embeddings as files."""

from __future__ import annotations

from pathlib import Path

from essent._core.atomic import replacing_file, write_json
from essent.lab.explain.bias import BiasReport
from essent.lab.explain.picture import draw_bias

BIAS_FILES = ("bias.png", "bias.svg", "bias.json", "bias.txt")


def write_bias(found: BiasReport, folder: str | Path) -> None:
    """Write the picture (PNG, SVG), the numbers and the tables into a folder, under the names of `BIAS_FILES`."""
    from rich.console import Console

    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for name in BIAS_FILES[:2]:
        draw_bias(found, place / name)
    write_json(place / "bias.json", found.to_dict(), indent=None)
    with replacing_file(place / "bias.txt") as temporary, temporary.open("w", encoding="utf-8") as file:
        console = Console(file=file, width=120)
        for table in found.tables():
            console.print(table)
