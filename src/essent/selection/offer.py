"""Whether an evaluation would gain by bfloat16, and what its score would lose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from essent._core.arithmetic import has_bfloat16
from essent._core.folders.contents import is_essent_folder, is_exported_folder
from essent._core.types import ModelLike
from essent.encoder.encoder import Encoder
from essent.engine.choice import Offer, offer_bfloat16
from essent.recipe.recipe import Recipe
from essent.tasks.base import LabeledTask, Task

MANY = 2000  # texts


def offer_for(model: ModelLike, recipe: Recipe | str, task: Task, options: dict[str, Any]) -> Offer | None:
    """What bfloat16 would give a recipe, less its shaping, tried on a part of a task of pairs; None: not worth it.

    Not tried for recipes that count tokens, for other tasks, and for fewer than 2,000 texts.
    """
    if not isinstance(task, LabeledTask) or task.compared() is None or not isinstance(model, (str, Path)):
        return None
    if len(task.texts()) < MANY or not has_bfloat16("cpu"):
        return None
    if is_exported_folder(str(model)) or is_essent_folder(str(model), {}):
        return None
    encoder = Encoder(model, replace(Recipe.parse(recipe), shaping=()), **options)
    return None if encoder.module.plan.reads_stats else offer_bfloat16(encoder, task.texts(), task)
