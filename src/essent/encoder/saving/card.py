"""The model card of a saved encoder: sentence-transformers' own, with the recipe and the line that loads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from essent.recipe.recipe import Recipe
from essent.recipe.sources.layers import format_mix

PLAIN = "[sentence-transformers](https://www.SBERT.net) model trained. "  # what ST says of a model that no trainer made
USAGE = re.compile(r"### Direct Usage \(Sentence Transformers\)\n(?P<whole>.*?)(?=<!--\n### Direct Usage)", re.DOTALL)


def amend_card(path: Path, recipe: Recipe, reason: str, chosen: Sequence[str] = ()) -> None:
    """Rewrite the README that sentence-transformers has written: what is computed, and how it is loaded.

    Args:
        path: the saved folder.
        reason: why plain sentence-transformers cannot load it, "" when it can.
        chosen: sentences that say how the recipe was chosen.
    """
    file = path / "README.md"
    if not file.is_file():
        return  # sentence-transformers has logged why
    card = file.read_text(encoding="utf-8")
    card = card.replace("tags:\n- sentence-transformers\n", "tags:\n- sentence-transformers\n- essent\n", 1)
    card = card.replace(PLAIN, "[sentence-transformers](https://www.SBERT.net) model. ", 1)
    card = card.replace("## Model Details\n", f"{_recipe_section(recipe)}\n{_history(chosen)}## Model Details\n", 1)
    card = USAGE.sub(lambda match: _usage(match["whole"], reason), card, count=1)
    file.write_text(card, encoding="utf-8")


def _recipe_section(recipe: Recipe) -> str:
    rows = {
        "template": recipe.template,
        "layers": format_mix(recipe.layers),
        "weights": " * ".join(recipe.weights),
        "reduce": recipe.reduce,
        "shaping": " | ".join(recipe.shaping) or None,
    }
    lines = [f"- **{name}:** `{value}`" for name, value in rows.items() if value is not None]
    return "\n".join(["## Recipe", "", f"`{recipe}`", "", *lines, ""])


def _history(chosen: Sequence[str]) -> str:
    return "\n".join(["## How it was chosen", "", *(f"- {line}" for line in chosen), "", ""]) if chosen else ""


def _usage(stock: str, reason: str) -> str:
    """sentence-transformers' own example where it loads the folder; essent's, with the reason, where it does not."""
    if not reason:
        return f"### Direct Usage (Sentence Transformers)\n{stock}With essent: `essent.Encoder(name_or_folder)`.\n\n"
    own = stock.replace("First install the Sentence Transformers library:", "First install essent:")
    own = own.replace("pip install -U sentence-transformers", 'pip install -U "essent[torch]"')
    own = own.replace("from sentence_transformers import SentenceTransformer", "from essent import Encoder")
    own = own.replace("SentenceTransformer(", "Encoder(")
    note = f"Plain sentence-transformers loads it only with `trust_remote_code=True`, because {reason}."
    return f"### Direct Usage (essent)\n{own}{note}\n\n"
