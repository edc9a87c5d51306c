"""Check before loading that a folder, or a repository on the hub, runs no code and reads or downloads nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from essent._core.folders import rules
from essent._core.folders.files import (
    ENCODER,
    GRAPH,
    STATE_FOLDER,
    check_digests,
    check_places,
    has_digests,
    is_inside,
    read_json,
)
from essent._core.folders.rules import MODULES, Rule, is_stock_class
from essent._core.hub import file_options, find_file, has_file
from essent.errors import DamagedError

ROUTERS, STOCK = ("Router", "Asym"), "sentence_transformers."
# In folders with essent's code; essent does not run that code: it has the class itself.
OWN_CLASS = "essent_module.RecipeModule"
MOST_MODULES = 64
TRUST = "Read this code, and if you trust it, run it with trust_remote_code=True (--trust-remote-code)."
UPGRADE = "If a newer sentence-transformers wrote it: pip install -U sentence-transformers. Otherwise, remove it."
LEGACY_SETTINGS = tuple(
    f"sentence_{name}_config.json" for name in "roberta distilbert camembert albert xlm-roberta xlnet".split()
)


class Files:
    """The files of a folder, or of a repository on the hub, by name, such as "1_Pooling/config.json"."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name, self.hub = name, file_options(options)
        self.root = Path(name) if Path(name).is_dir() else None

    def find(self, file: str) -> Path | None:
        """Return the path of a file, which is downloaded, or None if there is no such file."""
        if self.root is None:
            return find_file(self.name, file, self.hub)
        path = self.root / file
        if path.parent != self.root:
            check_places(self.root, path.parent)
        return path if path.is_file() else None

    def has(self, file: str) -> bool:
        """Whether there is such a file; nothing is downloaded."""
        return has_file(self.name, file, self.hub) if self.root is None else self.find(file) is not None


def check_model(name: str, options: Mapping[str, Any]) -> list[tuple[str, Path]]:
    """Raise an error for a model whose files would run code, or read anything outside the model.

    Args:
        name: a folder, or a name on the hub; only its settings files are downloaded here.
        options: SentenceTransformer's; with a true `trust_remote_code` nothing is checked.

    Returns:
        The class of each module that has settings, and the path of these settings.

    Raises:
        DamagedError: names the file, the key, the allowed values, and the fix.
    """
    if options.get("trust_remote_code"):
        return []
    root = Path(name)
    if not root.is_dir():
        return _check(Files(name, options))
    settings = check_folder(root)
    if has_digests(root):
        check_digests(root, whole=False)
    return settings


def check_folder(root: Path) -> list[tuple[str, Path]]:
    """Check a folder like `check_model`, and its links and special files.

    Raises:
        DamagedError: names the file, the key, the allowed values, and the fix.
    """
    check_places(root)
    return _check(Files(str(root), {}))


# -- contents ---------------------------------------------------------------------------------------------------------


def _check(files: Files) -> list[tuple[str, Path]]:
    _check_file(files, "config_sentence_transformers.json", Rule(rules.SENTENCE_TRANSFORMERS))
    settings = []
    for folder, kind in _modules(files):
        if kind == "Transformer":
            file = _check_transformer(files, folder)
        else:
            file = _check_file(files, folder + MODULES[kind], rules.MODULE_SETTINGS) if MODULES[kind] else None
        if file is not None:
            settings.append((kind, file))
        if kind == "WordEmbeddings":
            _check_tokenizer(files, folder, guarded=False)
        if kind not in rules.WITHOUT_WEIGHTS:
            _check_weights(files, folder)
    if files.has(ENCODER):
        for folder in (f"{STATE_FOLDER}/", f"{STATE_FOLDER}/tokenizer/"):
            _check_file(files, f"{folder}config.json", rules.CONFIG)
            _check_tokenizer(files, folder, guarded=False)
    if files.has(GRAPH):
        _check_tokenizer(files, "", guarded=False)
    return settings


def _modules(files: Files) -> list[tuple[str, str]]:
    """Return folder ("" or "1_Pooling/") and class of each module; a plain model has a transformer in its root."""
    path = files.find("modules.json")
    listed = read_json(path, list)
    if path is None or listed is None:
        return [("", "Transformer")]
    whole = all(isinstance(module, dict) and {"path", "type"} <= module.keys() for module in listed)
    if not whole or not 0 < len(listed) <= MOST_MODULES:
        raise DamagedError(f"{path} is damaged: it must list 1 to {MOST_MODULES} objects with path and type.")
    modules = []
    for number, module in enumerate(listed):
        _check_keys(path, f"[{number}].", module, rules.MODULE)
        own = module["type"] == OWN_CLASS and files.has(ENCODER)
        folder, kind = _module(files, path, module["path"], f"{STOCK}Transformer" if own else module["type"])
        modules.append((folder, kind))
        if kind in ROUTERS:
            modules += _routed(files, folder)
    return modules


def _routed(files: Files, router: str) -> list[tuple[str, str]]:
    """Return folder and class of each module of a router."""
    path = files.find(f"{router}{MODULES['Router']}") or files.find(f"{router}config.json")
    types: Any = (read_json(path) or {}).get("types")
    if path is None or not rules.mapping(rules.TEXT).allows(types) or len(types) > MOST_MODULES:
        file = path or router + MODULES["Router"]
        raise DamagedError(f"{file} is damaged: 'types' must be an object of at most {MOST_MODULES} class paths.")
    modules = [_module(files, path, folder, kind) for folder, kind in types.items()]
    if any(kind in ROUTERS for _, kind in modules):
        raise DamagedError(f"{path} has a router inside another one, which essent does not load.")
    return [(router + folder, kind) for folder, kind in modules]


def _module(files: Files, path: Path, folder: str, kind: str) -> tuple[str, str]:
    """Return folder and bare class of a module, and refuse all but sentence-transformers' modules for text."""
    if not is_inside(folder):
        raise DamagedError(f"{path}: the path of a module, {folder!r:.80}, is outside the model's folder.")
    if is_stock_class(kind, MODULES):
        return "" if folder in ("", ".") else f"{folder}/", kind.rpartition(".")[2]
    unknown = (
        f"{path}: the type of the module {folder!r:.80}, {kind!r:.80}, is not one of sentence-transformers' modules "
        f"for text ({', '.join(MODULES)})"
    )
    if kind.startswith(STOCK):
        raise DamagedError(f"{unknown}. {UPGRADE}")
    raise DamagedError(f"{unknown}, and would run code. {TRUST}")


# -- files ------------------------------------------------------------------------------------------------------------


def _check_transformer(files: Files, folder: str) -> Path | None:
    """Check a transformer, and return the path of its settings."""
    names = (MODULES["Transformer"], *LEGACY_SETTINGS)  # sentence-transformers reads the first existing one
    checked = (_check_file(files, folder + name, rules.MODULE_SETTINGS) for name in names)
    settings = next(filter(None, checked), None)
    _check_file(files, f"{folder}config.json", rules.CONFIG)
    _check_tokenizer(files, folder, guarded=True)
    if (adapter := files.find(f"{folder}adapter_config.json")) is not None:
        raise DamagedError(
            f"{adapter} makes this an adapter of another model. Merge both with PEFT's merge_and_unload()."
        )
    return settings


def _check_tokenizer(files: Files, folder: str, *, guarded: bool) -> None:
    """Check a tokenizer's settings; if `guarded`, the library that reads them is told not to follow `auto_map`."""
    rule = rules.TOKENIZER
    if not guarded:
        rule = Rule({**rule.keys, "auto_map": rules.NULL}, endings=rule.endings)
    _check_file(files, f"{folder}tokenizer_config.json", rule)
    _check_file(files, f"{folder}special_tokens_map.json", rules.SPECIAL_TOKENS)


def _check_weights(files: Files, folder: str) -> None:
    """Raise an error for pickled weights, and for lists of parts outside the folder."""
    if files.has(f"{folder}model.safetensors"):
        return
    if (index := files.find(f"{folder}model.safetensors.index.json")) is not None:
        parts = (read_json(index) or {}).get("weight_map")
        names = parts.values() if isinstance(parts, dict) else [parts]
        if wrong := [name for name in names if not rules.WEIGHTS.allows(name)]:
            raise DamagedError(f"{index}: weight_map names {wrong[0]!r:.80}, not {rules.WEIGHTS.expected}.")
        return
    for file in ("pytorch_model.bin", "pytorch_model.bin.index.json"):
        if files.has(folder + file):
            raise DamagedError(
                f"{files.name}/{folder}{file} holds pickled weights, which can run code when they are loaded. Save the "
                "model as safetensors, with sentence-transformers or transformers in an isolated environment."
            )


def _check_file(files: Files, file: str, rule: Rule) -> Path | None:
    """Check the keys and values of a file, and return its path; None if there is no such file."""
    path = files.find(file)
    content = read_json(path)
    if path is None or content is None:
        return None
    _check_keys(path, "", content, rule)
    return path


def _check_keys(path: Path, before: str, content: Mapping[str, Any], rule: Rule) -> None:
    """Raise an error for values that are not allowed for their key."""
    for key, value in content.items():
        kind = rule.kind_of(key)
        if isinstance(kind, Rule):
            if not isinstance(value, dict):
                raise DamagedError(f"{path}: {before + key!r:.100} must be an object, not {value!r:.60}.")
            _check_keys(path, f"{before}{key}.", value, kind)
        elif not kind.allows(value):
            raise DamagedError(f"{path}: {before + key!r:.100} must be {kind.expected}, not {value!r:.60}.")
        elif rule.deep and key not in rule.keys:  # configurations of parts have the same keys as the whole
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, dict):
                    _check_keys(path, f"{before}{key}.", inner, rule)
