"""The resources of `essent heros build`, `check` and `fit`: what there is, and a note for what there is not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from essent.cli.console import show_note

if TYPE_CHECKING:
    from essent.lab.minimal_pairs import Resources

PARSER = typer.Option(
    "--parser",
    metavar="PIPELINE",
    help="A spaCy pipeline with a parser. Default: en_core_web_sm; en_core_web_trf is surer.",
)
WORDNET = typer.Option("--wordnet", metavar="DIR", help="NLTK's data folder with WordNet. Default: where NLTK looks.")
MASKED_MODEL = typer.Option(
    "--model",
    "-m",
    metavar="NAME|DIR",
    help="A masked language model such as bert-large-uncased, for Synonym, Antonym and Random MLM.",
)


def common_misspellings() -> dict[str, tuple[str, ...]]:
    """codespell's, or none with a note."""
    from essent.lab.minimal_pairs import misspellings
    from essent.types import MissingDependencyError

    try:
        return misspellings()
    except MissingDependencyError as error:
        show_note(f"Typos are single slips of a finger only. {error}")
        return {}


def resources_of(
    parser: str | None,
    folder: Path | None,
    mlm: str | None,
    device: str | None,
    batch_size: int,
    options: Mapping[str, Any],
) -> Resources:
    """What pairs are built from; cheap things first."""
    from essent.lab.minimal_pairs import English, MaskedModel, Parser, Resources, WordNet
    from essent.types import DataError

    parse, wordnet = Parser(English(), parser), None
    try:
        wordnet = WordNet(folder)
    except DataError as error:
        if folder is not None:  # asked for by name
            raise
        show_note(f"Without WordNet the subsets Synonym, Antonym and Random MLM are left out. {error}")
    known_typos = common_misspellings()
    if mlm is None:
        show_note("Without --model the subsets Synonym, Antonym and Random MLM are left out.")
    model = MaskedModel(mlm, device, batch_size, **options) if mlm is not None and wordnet is not None else None
    return Resources(parse, wordnet, model, known_typos)
