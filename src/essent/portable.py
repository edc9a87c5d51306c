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
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.numpy import save_file
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, WordEmbeddings
from sentence_transformers.util import load_dir_path
from transformers import AutoConfig, AutoModel, AutoTokenizer

import essent
from essent.atomic import replacing_folder
from essent.backbone import Backbone
from essent.folder import write_own, write_stock
from essent.folders import (
    ENCODER,
    STATE_FOLDER,
    check_digests,
    check_folder,
    check_replaceable,
    damage_named,
    guarded,
    has_digests,
    names_to_keep,
    read_arrays,
    read_json,
    write_digests,
)
from essent.folding import is_trivial, read_table
from essent.hub import file_options
from essent.layers import reads_head, token_tables
from essent.lowering import CannotLowerError, framed_tokenizer, is_static, stock_modules
from essent.mlm_head import MaskedLMHead, load_masked
from essent.module import RecipeModule
from essent.recipe import Recipe
from essent.rows import rows_backbone  # also: AutoModel knows its model then
from essent.saved import (
    ABOUT,
    ARRAYS,
    FORMAT,
    check_layout,
    read_about,
    read_settings,
)
from essent.shaping import Chain
from essent.tokens import dropped_ids
from essent.types import CorpusStats, DamagedError, RecipeError

if TYPE_CHECKING:
    from essent.encoder import Encoder

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


# -- save -------------------------------------------------------------------------------------------------------------


def save_folder(encoder: Encoder, path: Path, layout: str, finish: Callable[[Path, str], None] | None = None) -> str:
    """Write the encoder; returns why plain sentence-transformers cannot load it, "" when it can.

    The folder appears when all of it is written. What lay in it beside an older encoder stays.

    Args:
        finish: writes what else belongs to the folder, before it appears: gets the place to write to, and that reason.

    Raises:
        RecipeError: an unknown layout, or the legacy one for a recipe that has no stock modules.
        NotFittedError: `fit` must come first.
        ModelError: the place is a file, or holds another model.
    """
    check_layout(layout)
    module = encoder.module
    if len(encoder) > 1:
        raise RecipeError(
            f"This Encoder has {len(encoder) - 1} module(s) after its recipe ({encoder[1]!r} …); save writes only the "
            "recipe. Put the step into the recipe's shaping, or save SentenceTransformer(modules=list(encoder))."
        )
    module.require_fit()
    check_replaceable(path, ENCODER)
    reason = ""
    try:
        modules = stock_modules(module)
    except CannotLowerError as error:
        reason, modules = str(error), []
        if layout == "legacy":
            raise RecipeError(
                f"The recipe {str(module.recipe)!r} has no legacy layout: {reason}. Save it with layout='stock', which "
                "loads with essent."
            ) from None
    # an empty text for a tokenizer without special tokens has nothing that plain sentence-transformers could pool
    texts = [text for text, ids in zip(GOLDEN_TEXTS, module.ids(GOLDEN_TEXTS), strict=True) if ids]
    golden = encoder.encode(texts, show_progress_bar=False)
    with replacing_folder(path, names_to_keep(path, ENCODER, _older_names(path))) as folder:
        if reason:
            write_own(module, folder)
        else:
            tokenizer = framed_tokenizer(module.backbone.tokenizer, module.plan.frame)
            write_stock(module, modules, tokenizer, folder, legacy=layout == "legacy")
        config = json.dumps(encoder._get_model_config(), indent=2, sort_keys=True)
        (folder / "config_sentence_transformers.json").write_text(config, encoding="utf-8")
        _write_state(module, folder / STATE_FOLDER, texts, golden, reason, type(modules[0]) if modules else None)
        if finish is not None:
            finish(folder, reason)
        write_digests(folder)
    return reason


def _older_names(path: Path) -> set[str]:
    """What essent 0.1 wrote into a folder, which listed no digests, beside what libraries read."""
    return {"code", "essent_module.py", *(entry.name for entry in path.glob("[0-9]_*"))}


def save_module(module: RecipeModule, path: str) -> None:
    """Write one module without golden vectors, for trainers that save module by module."""
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
        arrays |= {f"table.{place}": rows.detach().float().cpu().numpy() for place, rows in enumerate(carried)}
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
    about = {
        "format": FORMAT,
        "essent": essent.__version__,
        "recipe": module.recipe.to_dict(),
        "text": str(module.recipe),
        "digest": module.recipe.digest(),
        "layers": backbone.last,
        "max_length": backbone.max_length,
        "texts_counted": module.stats.texts if module.stats is not None else None,
        "portable": not reason,
        "reason": reason,
        "golden_texts": texts,
        "table": ("bare" if is_trivial(module) else "folded") if first is StaticEmbedding else None,
    }
    (folder / ABOUT).write_text(json.dumps(about, ensure_ascii=False, indent=2), encoding="utf-8")


# -- load -------------------------------------------------------------------------------------------------------------


def load_folder(name: str, options: dict[str, Any]) -> tuple[RecipeModule, dict[str, Any]]:
    """Read what `save_folder` wrote: the module, and settings for SentenceTransformer's __init__.

    Raises:
        ModelError: files are missing or unreadable, or a newer essent wrote them.
    """
    root = folder_of(name, options)
    with damage_named(name):
        if not options.get("trust_remote_code"):
            check_folder(root)
        if has_digests(root):
            check_digests(root, whole=False)
        about, arrays = read_about(root / STATE_FOLDER / ABOUT), read_arrays(root / STATE_FOLDER / ARRAYS)
        recipe = _recipe(root, about)
        backbone = _read_backbone(root, about, recipe, arrays, options)
        stats = _counts(root, about, arrays, len(backbone.vocabulary))
        state = {key.removeprefix("chain."): value for key, value in arrays.items() if key.startswith("chain.")}
        chain = Chain.from_state(recipe.shaping, state) if state else None
        module = RecipeModule(backbone, recipe, stats, chain, _carried(recipe, backbone, arrays))
        module.max_seq_length = about["max_length"]
        return module, _read_settings(root)


def _counts(root: Path, about: dict[str, Any], arrays: dict[str, np.ndarray], tokens: int) -> CorpusStats | None:
    """The token counts that were fitted, where the recipe reads any."""
    if about["texts_counted"] is None:
        return None
    counts = [arrays[f"stats.{name}"] for name in ("document_frequency", "count")]
    if any(found.shape != (tokens,) or found.dtype != np.int64 for found in counts):
        raise DamagedError(
            f"{root / STATE_FOLDER / ARRAYS} does not belong to the model beside it: its counts have the shape "
            f"{counts[0].shape}, and the model has {tokens} tokens."
        )
    return CorpusStats(about["texts_counted"], *counts)


def folder_of(name: str, options: dict[str, Any]) -> Path:
    """The folder itself, or that of the hub's cache."""
    return Path(name if Path(name).is_dir() else str(load_dir_path(name, subfolder="", **file_options(options))))


def _carried(recipe: Recipe, backbone: Backbone, arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Rows of the tables that the folder holds, by their source."""
    sources = [name for name, _ in recipe.layers if name.partition(":")[0] in token_tables]
    sources = [name for name in sources if token_tables.create(name).carried]
    rows = {
        place: torch.from_numpy(arrays[key]) for place in range(len(sources)) if (key := f"table.{place}") in arrays
    }
    return {name: rows.get(place, backbone.static_table.detach()) for place, name in enumerate(sources)}


def _read_settings(root: Path) -> dict[str, Any]:
    config = read_settings(root)
    prompts = {key: value for key, value in (config.get("prompts") or {}).items() if value is not None}
    return {
        "prompts": prompts or None,
        "default_prompt_name": config.get("default_prompt_name"),
        "similarity_fn_name": config.get("similarity_fn_name"),
        "truncate_dim": config.get("truncate_dim"),
        "device": None,
    }


def _recipe(root: Path, about: dict[str, Any]) -> Recipe:
    try:
        return Recipe.from_dict(about["recipe"])
    except RecipeError as error:
        raise DamagedError(f"{root / STATE_FOLDER / ABOUT} is damaged: 'recipe': {error}") from error


def _read_backbone(
    root: Path, about: dict[str, Any], recipe: Recipe, arrays: dict[str, np.ndarray], options: dict[str, Any]
) -> Backbone:
    own, trust = root / STATE_FOLDER / "tokenizer", {"trust_remote_code": bool(options.get("trust_remote_code"))}
    tokenizer = AutoTokenizer.from_pretrained(own if own.is_dir() else root, **trust)
    first = (read_json(root / "modules.json", list) or [{}])[0]
    kind = str(first.get("type", "")).rpartition(".")[2]
    if kind == "StaticEmbedding":
        rows = arrays["rows"] if "rows" in arrays else read_table(root)
        made = rows_backbone(rows, tokenizer, dropped=dropped_ids(tokenizer), max_length=about["max_length"])
        made.model.config.stored = (read_json(root / "config.json") or {})["embedding_dtype"]
        return made
    if kind == "WordEmbeddings":  # static: only the rows are there; the rest of the model is never run
        config = AutoConfig.from_pretrained(root / STATE_FOLDER, **trust)
        words = WordEmbeddings.load(str(root / str(first["path"])))
        table = torch.nn.Embedding.from_pretrained(words.emb_layer.weight.detach())
        with torch.device("meta"):
            model = AutoModel.from_config(config, **trust)
        model = torch.nn.Module.to_empty(model, device="cpu")
        model.set_input_embeddings(table)
        return Backbone(model.eval(), tokenizer, about["max_length"], about["layers"])
    given, settings = dict(options.get("model_kwargs") or {}), dict(options.get("config_kwargs") or {})
    if reads_head(recipe.layers):
        whole: Any = load_masked(str(root), **{**trust, **settings, **given})
        backbone = Backbone(whole.base_model, tokenizer, about["max_length"], about["layers"])
        backbone.mlm_head = MaskedLMHead(whole)
        return backbone
    transformer = Transformer(
        str(root),
        model_kwargs={**guarded(trust, weights=True), **_without_pooler(root), **given},
        processor_kwargs=dict(trust),
        config_kwargs={**trust, **settings},
    )
    return Backbone(transformer.model, tokenizer, about["max_length"], about["layers"])


def _without_pooler(root: Path) -> dict[str, Any]:
    """The one setting of the model that a saved folder has: whether a pooler, which no recipe reads, is built."""
    settings = (read_json(root / "sentence_bert_config.json") or {}).get("model_kwargs") or {}
    return {key: settings[key] for key in ("add_pooling_layer",) if key in settings}
