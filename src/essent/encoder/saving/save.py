"""An Encoder as a folder: stock sentence-transformers modules wherever they compute the same, and golden vectors.

config.json, model.safetensors, tokenizer…, 1_Pooling/ …   the stock model, or
essent_module.py, code/                                     the recipe's own module and essent's code for it
essent/encoder.json        the recipe, the golden texts, versions
essent/state.safetensors   token counts, learned shaping, golden vectors
essent/files.json          length and SHA-256 of every file
essent/tokenizer/          the model's own tokenizer, where the stock one carries a template
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, WordEmbeddings

from essent._core.atomic import replacing_folder
from essent._core.folders.contents import ABOUT, ARRAYS, FORMAT, check_layout
from essent._core.folders.digests import write_digests
from essent._core.folders.names import ENCODER, STATE_FOLDER
from essent._core.folders.places import check_replaceable, names_to_keep
from essent._core.registry import Registry
from essent.encoder.pipeline.module import RecipeModule
from essent.encoder.saving.layout import write_own, write_stock
from essent.encoder.saving.static_table import is_trivial
from essent.encoder.saving.stock_modules import NoStockModulesError, framed_tokenizer, is_static, stock_modules
from essent.errors import RecipeError
from essent.recipe.pooling import reductions
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.base import shapers
from essent.recipe.sources.layers import token_tables
from essent.recipe.weighting.base import weightings
from essent.version import __version__

GOLDEN_TEXTS = (
    "A man is playing a large flute.",
    "How far is the moon from the earth",
    "Prices fell by 3.5% on Monday, didn't they?",
    "Ünïcödé, 你好 and “curly quotes”!",
    "the",
    "",
    "In the quiet town by the river, where nothing much had happened for years, the old baker opened his shop "
    "earlier than usual that morning and waited for the first customers to arrive.",
)


def save_folder(
    module: RecipeModule,
    path: Path,
    layout: str,
    *,
    encode: Callable[[list[str]], np.ndarray],
    settings: dict[str, Any],
    finish: Callable[[Path, str], None] | None = None,
) -> str:
    """Write an encoder; returns why plain sentence-transformers cannot load it, "" when it can.

    The folder appears when all of it is written. What lay in it beside an older encoder stays.

    Args:
        module: what the encoder computes.
        layout: see `Encoder.save`.
        encode: gives the vectors (N,K) of texts, as the encoder does.
        settings: what config_sentence_transformers.json is to say.
        finish: writes what else belongs to the folder, before it appears: gets the place to write to, and that reason.

    Raises:
        RecipeError: an unknown layout, or the legacy one for a recipe that has no stock modules.
        NotFittedError: `fit` must come first.
        ModelError: the place is a file, or holds another model.
    """
    check_layout(layout)
    module.require_fit()
    check_replaceable(path, ENCODER)
    reason = ""
    try:
        modules = stock_modules(module)
    except NoStockModulesError as error:
        reason, modules = str(error), []
        if layout == "legacy":
            raise RecipeError(
                f"The recipe {str(module.recipe)!r} has no legacy layout: {reason}. Save it with layout='stock', which "
                "loads with essent."
            ) from None
    # an empty text for a tokenizer without special tokens has nothing that plain sentence-transformers could pool
    texts = [text for text, ids in zip(GOLDEN_TEXTS, module.ids(GOLDEN_TEXTS), strict=True) if ids]
    golden = encode(texts)
    with replacing_folder(path, names_to_keep(path, ENCODER, _older_names(path))) as folder:
        if reason:
            write_own(module, folder)
        else:
            tokenizer = framed_tokenizer(module.backbone.tokenizer, module.plan.frame)
            write_stock(module, modules, tokenizer, folder, legacy=layout == "legacy")
        config = json.dumps(settings, indent=2, sort_keys=True)
        (folder / "config_sentence_transformers.json").write_text(config, encoding="utf-8")
        _write_state(module, folder / STATE_FOLDER, texts, golden, reason, type(modules[0]) if modules else None)
        if finish is not None:
            finish(folder, reason)
        write_digests(folder)
    return reason


def packages_of(recipe: Recipe) -> dict[str, str]:
    """The parts of a recipe that are not essent's own, each with the package that brings it."""
    registries: list[tuple[Registry[Any], Iterable[str]]] = [
        (token_tables, [source for source, _ in recipe.layers]),
        (weightings, recipe.weights),
        (reductions, [recipe.reduce]),
        (shapers, recipe.shaping),
    ]
    named = [(registry, spec.partition(":")[0]) for registry, specs in registries for spec in specs]
    packages = {f"{of.kind} {name!r}": of.package_of(name) for of, name in named if name in of}
    return {part: package for part, package in packages.items() if package is not None}


def _older_names(path: Path) -> set[str]:
    """What essent 0.1 wrote into a folder, which listed no digests, beside what libraries read."""
    return {"code", "essent_module.py", *(entry.name for entry in path.glob("[0-9]_*"))}


class SavableModule(RecipeModule):
    """A recipe's module that trainers, which save module by module, can save too: without golden vectors."""

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write the module in essent's own layout."""
        save_module(self, output_path)


def save_module(module: RecipeModule, path: str) -> None:
    """Write one module without golden vectors."""
    write_own(module, Path(path))
    _write_state(module, Path(path) / STATE_FOLDER, [], np.zeros((0, 1), np.float32), "saved by a trainer")


def _write_state(
    module: RecipeModule, folder: Path, texts: list[str], golden: np.ndarray, reason: str, first: type | None = None
) -> None:
    """Write what the modules do not say; `first` is the class of the first one after the transformer."""
    folder.mkdir(parents=True, exist_ok=True)
    backbone = module.backbone
    arrays: dict[str, np.ndarray] = {"golden": np.ascontiguousarray(golden, dtype=np.float32)}
    if module.stats is not None:
        arrays["stats.document_frequency"] = module.stats.document_frequency
        arrays["stats.count"] = module.stats.count
    if first is not WordEmbeddings:  # which holds the rows
        carried = module.plan.carried().values()
        arrays |= {f"table.{index}": rows.detach().float().cpu().numpy() for index, rows in enumerate(carried)}
    if first is StaticEmbedding and not is_trivial(module):  # folded rows; the recipe reads its own
        arrays["rows"] = backbone.static_table.detach().float().cpu().numpy()[:-1]
    if first is StaticEmbedding:  # which knows zeros alone: essent.static.StaticEncoder reads it
        with torch.inference_mode():
            arrays["empty"] = module(module.pad([[]]))["sentence_embedding"][0].float().cpu().numpy()
    state = module.chain.state() if module.chain.needs_fit else {}
    arrays |= {f"chain.{key}": np.ascontiguousarray(value) for key, value in state.items()}
    save_file(arrays, folder / ARRAYS)
    if module.plan.frame.plain_text or is_static(module):
        backbone.tokenizer.save_pretrained(folder / "tokenizer")
    if is_static(module):
        config = copy.deepcopy(backbone.model.config)
        config.num_hidden_layers = 1  # some families' configurations must list one layer
        config.save_pretrained(folder)
    metadata = {
        "format": FORMAT,
        "essent": __version__,
        "recipe": module.recipe.to_dict(),
        "text": str(module.recipe),
        "digest": module.recipe.digest(),
        "packages": packages_of(module.recipe),
        "layers": backbone.last,
        "max_length": backbone.max_seq_length,
        "texts_counted": module.stats.texts if module.stats is not None else None,
        "portable": not reason,
        "reason": reason,
        "golden_texts": texts,
        "table": ("bare" if is_trivial(module) else "folded") if first is StaticEmbedding else None,
    }
    (folder / ABOUT).write_text(json.dumps(metadata, ensure_ascii=False, indent=2), encoding="utf-8")
