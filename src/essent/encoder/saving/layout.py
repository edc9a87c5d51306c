"""The files of a saved Encoder: in the layout that sentence-transformers reads, and in essent's own."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from torch import nn
from transformers import PreTrainedTokenizerBase

from essent.encoder.saving.static_table import write_table
from essent.encoder.saving.stock_modules import is_static

if TYPE_CHECKING:
    from essent.encoder.pipeline.module import RecipeModule

LEGACY_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
# What the recipe's module needs of this package, in the folder for machines without essent.
SHIPPED = "version.py errors.py portable.py _core recipe model encoder".split()
MODULE_FILE = '''"""Loads the recipe beside this file: with the installed essent, or with the code in `code`."""

import importlib
import sys

from sentence_transformers.util import load_dir_path

try:
    import essent
except ImportError:
    essent = None


class RecipeModule:
    @classmethod
    def load(cls, model_name_or_path, subfolder="", **options):
        hub = {k: options.get(k) for k in ("token", "cache_folder", "revision", "local_files_only")}
        if essent is None:
            sys.path.append(load_dir_path(model_name_or_path, subfolder="code", **hub))
        # by name: transformers would refuse this file where the import statement cannot be resolved in advance
        portable = importlib.import_module("essent.portable")
        return portable.load_folder(model_name_or_path, options)[0]
'''


def write_stock(
    module: RecipeModule, modules: list[nn.Module], tokenizer: PreTrainedTokenizerBase, path: Path, *, legacy: bool
) -> None:
    """Write stock modules: transformer or StaticEmbedding in the root (WordEmbeddings in 0_…), the rest numbered."""
    entries: list[dict[str, Any]] = []
    if isinstance(modules[0], StaticEmbedding):
        unit = len(modules) > 1
        write_table(module, modules[0].embedding.weight.detach().numpy(), unit, path)
        entries.append({"path": "", "class": StaticEmbedding})
        modules = modules[1:]
    elif not is_static(module):
        layers_returned = any(type(m).__name__ == "WeightedLayerPooling" for m in modules)
        write_transformer(module, tokenizer, path, layers_returned)
        entries.append({"path": "", "class": Transformer})
    for stock in modules:
        folder = f"{len(entries)}_{type(stock).__name__}"
        shutil.rmtree(path / folder, ignore_errors=True)
        (path / folder).mkdir(parents=True)
        stock.save(str(path / folder))  # type: ignore[operator]
        if legacy:
            _make_legacy(stock, path / folder)
        entries.append({"path": folder, "class": type(stock)})
    listed = [
        {"idx": index, "name": str(index), "path": entry["path"], "type": _class_path(entry["class"], legacy)}
        for index, entry in enumerate(entries)
    ]
    (path / "modules.json").write_text(json.dumps(listed, indent=2), encoding="utf-8")


def _class_path(kind: type, legacy: bool) -> str:
    return f"sentence_transformers.models.{kind.__name__}" if legacy else f"{kind.__module__}.{kind.__name__}"


def _make_legacy(stock: nn.Module, folder: Path) -> None:
    """Rewrite a module's configuration with the keys of sentence-transformers 2, which servers parse."""
    if not isinstance(stock, Pooling):
        return
    flags: dict[str, Any] = {"word_embedding_dimension": stock.embedding_dimension}
    flags |= {flag: mode == stock.pooling_mode for mode, flag in LEGACY_FLAGS.items()}
    flags["include_prompt"] = True
    (folder / "config.json").write_text(json.dumps(flags, indent=2), encoding="utf-8")


def write_transformer(
    module: RecipeModule, tokenizer: PreTrainedTokenizerBase, path: Path, layers_returned: bool = False
) -> None:
    """Write the cut transformer, with its masked-LM head if the recipe reads it, and a tokenizer to the root."""
    model, head = module.backbone.model, module.backbone.mlm_head
    whole = head.whole(model) if head is not None and module.plan.reads_mlm_head else model
    whole.save_pretrained(path)
    tokenizer.save_pretrained(path)
    settings: dict[str, Any] = {"max_seq_length": module.backbone.max_seq_length, "do_lower_case": False}
    if "add_pooling_layer" in inspect.signature(type(model).__init__).parameters:
        settings["model_kwargs"] = {"add_pooling_layer": False}
    if layers_returned:
        settings["config_kwargs"] = {"output_hidden_states": True}
    (path / "sentence_bert_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")


def write_own(module: RecipeModule, path: Path) -> None:
    """Write the recipe as a module of its own, with the code that runs it."""
    path.mkdir(parents=True, exist_ok=True)
    write_transformer(module, module.backbone.tokenizer, path)
    (path / "essent_module.py").write_text(MODULE_FILE, encoding="utf-8")
    listed = [{"idx": 0, "name": "0", "path": "", "type": "essent_module.RecipeModule"}]
    (path / "modules.json").write_text(json.dumps(listed, indent=2), encoding="utf-8")
    package = Path(__file__).parents[2]
    code = path / "code" / "essent"
    code.mkdir(parents=True, exist_ok=True)
    for name in SHIPPED:
        if (package / name).is_file():
            shutil.copy(package / name, code / name)
        else:
            without_caches = shutil.ignore_patterns("__pycache__")
            shutil.copytree(package / name, code / name, ignore=without_caches, dirs_exist_ok=True)
    # `Encoder` itself needs packages that stay behind
    (code / "encoder" / "__init__.py").write_text("")
    (code / "__init__.py").write_text("from essent.version import __version__\n")  # no names of packages left behind
