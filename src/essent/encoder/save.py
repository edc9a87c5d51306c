"""Save an Encoder as a folder: standard sentence-transformers modules if they compute the same, and golden vectors.

config.json, model.safetensors, tokenizer…, 1_Pooling/ …   standard modules, or
essent_module.py, code/                                     the recipe's own module and essent's code for it
essent/encoder.json        the recipe, the golden texts, versions
essent/state.safetensors   token counts, learned shaping, golden vectors
essent/files.json          length and SHA-256 of every file
essent/tokenizer/          the model's own tokenizer, if the saved one contains a template
"""

from __future__ import annotations

import copy
import inspect
import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.numpy import save_file
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, WordEmbeddings
from torch import nn
from transformers import PreTrainedTokenizerBase

from essent._core.atomic import replacing_folder
from essent._core.compat import config_of, write_stock_card
from essent._core.folders.contents import ABOUT, ARRAYS, FORMAT, check_layout
from essent._core.folders.files import ENCODER, STATE_FOLDER, check_replaceable, files_to_keep, write_digests
from essent._core.registry import Registry
from essent.encoder.module import RecipeModule
from essent.encoder.stock_modules import (
    NoStockModulesError,
    framed_tokenizer,
    is_trivial,
    stock_modules,
    write_table,
)
from essent.errors import RecipeError
from essent.recipe.layers import token_tables
from essent.recipe.pooling import reductions
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.base import shapers
from essent.recipe.weighting.base import weightings
from essent.version import __version__

if TYPE_CHECKING:
    from essent.encoder.encoder import Encoder

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
LEGACY_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
# The parts of this package that the recipe's module needs on machines without essent.
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
CARD_TITLE = "## How it was made"  # a section of every model card that essent writes
PLAIN = "[sentence-transformers](https://www.SBERT.net) model trained. "  # written if there was no trainer
USAGE = re.compile(r"### Direct Usage \(Sentence Transformers\)\n.*?(?=<!--\n### Direct Usage)", re.DOTALL)
OWN_USAGE = """### Direct Usage (essent)

```bash
pip install -U "essent[torch]"
```

```python
from essent import Encoder

encoder = Encoder("name or folder of this model")
```

Plain sentence-transformers loads it only with `trust_remote_code=True`, because {reason}.

"""


def write_folder(self: Encoder, path: Path, layout: str, finish: Callable[[Path, str], object] | None = None) -> str:
    """Write an encoder's folder, and return why plain sentence-transformers cannot load it ("" if it can).

    The folder is written atomically. Files in it that are not part of an older encoder remain.

    Args:
        layout: see `Encoder.save`.
        finish: called with the temporary folder and that reason before the folder appears, to write further files.

    Raises:
        RecipeError: an unknown layout, the legacy layout for a recipe that standard modules cannot compute, or further
            modules after the recipe's.
        NotFittedError: `fit` has not been called.
        ModelError: the path is a file, or a folder with another model.
    """
    from essent.tasks.calibration import write_calibration  # imported here: it is not shipped with saved folders

    if len(self) > 1:
        raise RecipeError(
            f"save cannot write the {len(self) - 1} module(s) after the recipe ({self[1]!r} …). Add the step to "
            "the recipe's shaping, or append the modules after loading."
        )
    module = self.module
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
                f"The recipe {str(module.recipe)!r} has no legacy layout: {reason}. Save it with layout='stock', and "
                "load it with essent."
            ) from None
    # plain sentence-transformers cannot pool an empty text of a tokenizer without special tokens
    texts = [text for text, ids in zip(GOLDEN_TEXTS, module.ids(GOLDEN_TEXTS), strict=False) if ids]  # of one frame
    golden = self.encode(texts, show_progress_bar=False)
    # essent 0.1 listed no digests; libraries do not read these of its files
    older = {"code", "essent_module.py", *(entry.name for entry in path.glob("[0-9]_*"))}
    retained, card = files_to_keep(path, ENCODER, older), path / "README.md"
    if card.is_file() and CARD_TITLE in card.read_text(encoding="utf-8", errors="replace"):
        retained.remove(card.name)
    with replacing_folder(path, retained) as folder:
        if reason:
            write_own(module, folder)
        else:
            _write_stock(module, modules, folder, layout == "legacy")
        _write_json(folder / "config_sentence_transformers.json", config_of(self), sort_keys=True)
        write_state(module, folder / STATE_FOLDER, texts, golden, reason, type(modules[0]) if modules else None)
        if finish is not None:
            finish(folder, reason)
        if card.name in retained:  # no model card, but the user's own file
            (folder / card.name).unlink(missing_ok=True)
        if self.calibration is not None:
            write_calibration(self.calibration, folder)
        write_digests(folder)
    return reason


def packages_of(recipe: Recipe) -> dict[str, str]:
    """Return the parts of a recipe from other packages, each with its package."""
    registries: list[tuple[Registry[Any], Iterable[str]]] = [
        (token_tables, [source for source, _ in recipe.layers]),
        (weightings, recipe.weights),
        (reductions, [recipe.reduce]),
        (shapers, recipe.shaping),
    ]
    named = [(registry, spec.partition(":")[0]) for registry, specs in registries for spec in specs]
    packages = {f"{of.kind} {name!r}": of.package_of(name) for of, name in named if name in of}
    return {part: package for part, package in packages.items() if package is not None}


def _write_json(path: Path, content: Any, **options: Any) -> None:
    path.write_text(json.dumps(content, indent=2, **options), encoding="utf-8")


# -- the model --------------------------------------------------------------------------------------------------------


def _write_stock(module: RecipeModule, modules: list[nn.Module], path: Path, legacy: bool) -> None:
    """Write standard modules: transformer or StaticEmbedding in the root (WordEmbeddings in 0_…), others numbered."""
    entries: list[tuple[str, type]] = []
    if isinstance(modules[0], StaticEmbedding):
        write_table(module, modules[0].embedding.weight.detach().numpy(), len(modules) > 1, path)
        entries.append(("", StaticEmbedding))
        modules = modules[1:]
    elif not module.plan.is_static:
        layers_returned = any(type(stock).__name__ == "WeightedLayerPooling" for stock in modules)
        tokenizer = framed_tokenizer(module.backbone.tokenizer, module.plan.frame)
        _write_transformer(module, tokenizer, path, layers_returned)
        entries.append(("", Transformer))
    for stock in modules:
        folder = path / f"{len(entries)}_{type(stock).__name__}"
        folder.mkdir()
        stock.save(str(folder))  # type: ignore[operator]
        if legacy and isinstance(stock, Pooling):  # with the keys of sentence-transformers 2, which servers parse
            flags = {flag: mode == stock.pooling_mode for mode, flag in LEGACY_FLAGS.items()}
            dimensions = {"word_embedding_dimension": stock.embedding_dimension}
            _write_json(folder / "config.json", {**dimensions, **flags, "include_prompt": True})
        entries.append((folder.name, type(stock)))
    listed = [
        {
            "idx": index,
            "name": str(index),
            "path": name,
            "type": f"{'sentence_transformers.models' if legacy else kind.__module__}.{kind.__name__}",
        }
        for index, (name, kind) in enumerate(entries)
    ]
    _write_json(path / "modules.json", listed)


def _write_transformer(
    module: RecipeModule, tokenizer: PreTrainedTokenizerBase, path: Path, layers_returned: bool = False
) -> None:
    """Write the truncated transformer, with its masked-LM head if the recipe reads it, and a tokenizer to the root."""
    model, head = module.backbone.model, module.backbone.mlm_head
    whole = head.whole(model) if head is not None and module.plan.reads_mlm_head else model
    whole.save_pretrained(path)
    tokenizer.save_pretrained(path)
    settings: dict[str, Any] = {"max_seq_length": module.backbone.max_seq_length, "do_lower_case": False}
    if "add_pooling_layer" in inspect.signature(type(model).__init__).parameters:
        settings["model_kwargs"] = {"add_pooling_layer": False}
    if layers_returned:
        settings["config_kwargs"] = {"output_hidden_states": True}
    _write_json(path / "sentence_bert_config.json", settings)


def write_own(module: RecipeModule, path: Path) -> None:
    """Write the recipe as essent's own module, with the code that runs it."""
    path.mkdir(parents=True, exist_ok=True)
    _write_transformer(module, module.backbone.tokenizer, path)
    (path / "essent_module.py").write_text(MODULE_FILE, encoding="utf-8")
    _write_json(path / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": "essent_module.RecipeModule"}])
    package, code = Path(__file__).parents[1], path / "code" / "essent"
    code.mkdir(parents=True, exist_ok=True)
    without_caches = shutil.ignore_patterns("__pycache__")
    for name in SHIPPED:
        if (package / name).is_file():
            shutil.copy(package / name, code / name)
        else:
            shutil.copytree(package / name, code / name, ignore=without_caches, dirs_exist_ok=True)
    # `Encoder` itself needs packages that are not copied
    (code / "encoder" / "__init__.py").write_text("")
    (code / "__init__.py").write_text("from essent.version import __version__\n")  # no names of missing packages


def write_state(
    module: RecipeModule, folder: Path, texts: list[str], golden: np.ndarray, reason: str, first: type | None
) -> None:
    """Write the state that modules do not contain; `first` is the class of the first one after the transformer."""
    folder.mkdir(parents=True, exist_ok=True)
    backbone, plan, stats = module.backbone, module.plan, module.stats
    arrays: dict[str, np.ndarray] = {"golden": np.ascontiguousarray(golden, dtype=np.float32)}
    if stats is not None:
        arrays |= {"stats.document_frequency": stats.document_frequency, "stats.count": stats.count}
    if first is not WordEmbeddings:  # it contains the rows itself
        carried = plan.carried().values()
        arrays |= {f"table.{index}": rows.detach().float().cpu().numpy() for index, rows in enumerate(carried)}
    if first is StaticEmbedding:
        if not is_trivial(module):  # the saved rows are folded; the recipe reads the original ones
            arrays["rows"] = backbone.static_table.detach().float().cpu().numpy()[:-1]
        with torch.inference_mode():  # StaticEmbedding returns zeros; essent.static.StaticEncoder reads this vector
            arrays["empty"] = module(module.pad([[]]))["sentence_embedding"][0].float().cpu().numpy()
    arrays |= {f"chain.{key}": np.ascontiguousarray(value) for key, value in module.chain.state().items()}
    save_file(arrays, folder / ARRAYS)
    if any(frame.plain_text for frame in plan.frames) or plan.is_static:
        backbone.tokenizer.save_pretrained(folder / "tokenizer")
    if plan.is_static:
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
        "texts_counted": None if stats is None else stats.texts,
        "portable": not reason,
        "reason": reason,
        "golden_texts": texts,
        "table": ("bare" if is_trivial(module) else "folded") if first is StaticEmbedding else None,
        **({"provenance": module.provenance} if module.provenance else {}),
    }
    _write_json(folder / ABOUT, metadata, ensure_ascii=False)


# -- the model card ---------------------------------------------------------------------------------------------------


def write_card(
    self: Encoder, folder: Path, reason: str, *, name: str | None = None, datasets: list[str] | None = None
) -> None:
    """Write sentence-transformers' model card, with how the encoder was made first, and how to load it if that differs.

    Args:
        reason: why plain sentence-transformers cannot load the folder; "" if it can.
    """
    write_stock_card(self, str(folder), name, datasets)
    file = folder / "README.md"
    if not file.is_file():
        return  # sentence-transformers has logged why
    history = ["### How it was chosen", "", *(f"- {line}" for line in self.chosen), ""] if self.chosen else []
    section = [CARD_TITLE, "", f"Recipe: `{self.recipe}`", "", *history, "## Model Details\n"]
    card = file.read_text(encoding="utf-8")
    card = card.replace("tags:\n- sentence-transformers\n", "tags:\n- sentence-transformers\n- essent\n", 1)
    card = card.replace(PLAIN, "[sentence-transformers](https://www.SBERT.net) model. ", 1)
    card = card.replace("## Model Details\n", "\n".join(section), 1)
    if reason:
        card = USAGE.sub(lambda _: OWN_USAGE.format(reason=reason), card, count=1)
    file.write_text(card, encoding="utf-8")
