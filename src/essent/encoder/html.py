"""An encoder as a notebook shows it: its recipe, model and sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from essent._core.notebook import html_block, html_lines, html_pairs, html_title
from essent.encoder.pipeline.module import RecipeModule

if TYPE_CHECKING:
    from essent.encoder.encoder import Encoder


def encoder_html(encoder: Encoder) -> str:
    """The encoder as HTML; one whose modules were changed by hand as its plain text."""
    first = encoder[0]
    if not isinstance(first, RecipeModule):
        return html_block(html_lines(repr(encoder).splitlines()))
    after = [repr(module) for module in list(encoder)[1:]]
    about = {
        "recipe": str(encoder.recipe),
        "model": f"{first.backbone.family}, {first.backbone.last} layers",
        "dimensions": str(encoder.get_embedding_dimension()),
        "most tokens of a text": str(encoder.max_seq_length or "no limit"),
        "device": str(encoder.device),
    }
    return html_block(
        html_title("Encoder"),
        html_pairs(about | ({"then": ", ".join(after)} if after else {})),
    )
