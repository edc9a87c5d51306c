"""The recipes of a first look at a model."""

from __future__ import annotations

from pathlib import Path

from essent._core.folders.contents import is_essent_folder, is_exported_folder
from essent.model.token_rows import is_static

# What every model runs and papers compare with; no attention head, no [MASK].
DEFAULT_RECIPES = (
    "cls",
    "mean",
    "last2",
    "first-last",
    "static",
    "static-remove-biases",
    "first-last | zscore",
    "first-last-idf-zscore",
)
STATIC_RECIPES = (
    "static",
    "static weights=remove",
    "static weights=idf",
    "static weights=sif | abtt:1",
    "static | zscore",
    "static weights=idf | zscore",
)


def default_recipes(model: str | Path) -> list[str]:
    """A first look at a model; none for what essent saved or exported, which `evaluate` then scores unchanged."""
    name = str(model)
    if is_exported_folder(name) or is_essent_folder(name, {}):
        return []
    here = Path(name).exists()  # a name on the hub is asked for when it is loaded, with its options
    return list(STATIC_RECIPES if here and (Path(name).is_file() or is_static(name, {})) else DEFAULT_RECIPES)
