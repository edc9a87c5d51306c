"""Check before loading that a folder, or a repository on the hub, runs no code and reads or downloads nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

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
from essent._core.folders.rules import (
    CONFIG,
    MODULE,
    MODULE_SETTINGS,
    MODULES,
    NULL,
    SENTENCE_TRANSFORMERS,
    SPECIAL_TOKENS,
    TOKENIZER,
    WITHOUT_WEIGHTS,
    Rule,
    is_stock_class,
)
from essent._core.hub import file_options, find_file, has_file
from essent._core.lazy import needs_torch
from essent.errors import DamagedError

ROUTERS = ("Router", "Asym")
# In folders with essent's code; essent does not run that code: it has the class itself.
OWN_CLASS = "essent_module.RecipeModule"
MOST_MODULES = 64
LEGACY_SETTINGS = tuple(
    f"sentence_{name}_config.json" for name in "roberta distilbert camembert albert xlm-roberta xlnet".split()
)
CONFIGS = (
    "config.json",
    *(f"{kind}_config.json" for kind in ("tokenizer", "processor", "preprocessor", "video_preprocessor")),
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
    _check_file(files, "config_sentence_transformers.json", Rule(SENTENCE_TRANSFORMERS))
    settings = []
    for folder, kind in _modules(files):
        if kind == "Transformer":
            file = _check_transformer(files, folder)
        else:
            file = _check_file(files, folder + MODULES[kind], MODULE_SETTINGS) if MODULES[kind] else None
        if file is not None:
            settings.append((kind, file))
        if kind == "WordEmbeddings":
            _check_tokenizer(files, folder, guarded=False)
        if kind not in WITHOUT_WEIGHTS:
            _check_weights(files, folder, kind)
    if files.has(ENCODER):
        for folder in (f"{STATE_FOLDER}/", f"{STATE_FOLDER}/tokenizer/"):
            _check_file(files, f"{folder}config.json", CONFIG)
            _check_tokenizer(files, folder, guarded=False)
    if files.has(GRAPH):
        _check_tokenizer(files, "", guarded=False)
    return settings


def _modules(files: Files) -> list[tuple[str, str]]:
    """Return folder ("" or "1_Pooling/") and class of each module; a plain model has a transformer in its root."""
    path = files.find("modules.json")
    listed = None if path is None else read_json(path, list)
    if path is None or listed is None:
        return [("", "Transformer")]
    if not 0 < len(listed) <= MOST_MODULES:
        raise DamagedError(f"{path} lists {len(listed)} modules; 1 to {MOST_MODULES} are allowed.")
    modules = []
    for number, module in enumerate(listed):
        if not isinstance(module, dict) or not {"path", "type"} <= module.keys():
            raise DamagedError(f"{path} is damaged: module {number} must be an object with path and type.")
        _check_keys(path, f"[{number}].", module, MODULE)
        own = module["type"] == OWN_CLASS and files.has(ENCODER)
        kind = "Transformer" if own else _stock_class(files, path, f"module {number}", module["type"])
        folder = _subfolder(path, f"module {number}", module["path"])
        modules.append((folder, kind))
        if kind in ROUTERS:
            modules += _routed(files, folder)
    return modules


def _routed(files: Files, router: str) -> list[tuple[str, str]]:
    """Return folder and class of each module of a router."""
    path = files.find(f"{router}{MODULES['Router']}") or files.find(f"{router}config.json")
    types = (read_json(path) or {}).get("types") if path is not None else None
    if path is None or not isinstance(types, dict) or not all(isinstance(kind, str) for kind in types.values()):
        raise DamagedError(
            f"{path or router + MODULES['Router']} is damaged: 'types' must be an object of class paths."
        )
    if len(types) > MOST_MODULES:
        raise DamagedError(f"{path} lists {len(types)} modules; at most {MOST_MODULES} are allowed.")
    modules = []
    for folder, kind in types.items():
        stock = _stock_class(files, path, f"{folder!r:.80}", kind)
        if stock in ROUTERS:
            raise DamagedError(f"{path}: {folder!r:.80} is a {stock} inside another one, which essent does not load.")
        modules.append((router + _subfolder(path, f"{folder!r:.80}", folder), stock))
    return modules


def _subfolder(path: Path, module: str, folder: str) -> str:
    """Return the folder of a module as the prefix of a path."""
    if not is_inside(folder):
        raise DamagedError(f"{path}: the path of {module}, {folder!r:.80}, is outside the model's folder.")
    return "" if folder in ("", ".") else f"{folder}/"


def _stock_class(files: Files, path: Path, module: str, kind: str) -> str:
    """Return the bare name of a module's class, and refuse all but sentence-transformers' modules for text."""
    if is_stock_class(kind, MODULES):
        return kind.rpartition(".")[2]
    unknown = (
        f"{path}: the type of {module}, {kind!r:.80}, is not one of sentence-transformers' modules for text "
        f"({', '.join(MODULES)})"
    )
    if kind.startswith("sentence_transformers."):
        raise DamagedError(f"{unknown}. {upgrade_or(files, 'essent does not load it.')}")
    raise DamagedError(f"{unknown}, and would run code. {_code_to_run(files, [kind])}")


def upgrade_or(files: Files, otherwise: str) -> str:
    """Return the advice for something that the installed sentence-transformers does not support.

    Args:
        otherwise: the advice if the folder was not written by a newer version.
    """
    with needs_torch("Reading this folder"):
        from packaging.version import parse
        from sentence_transformers import __version__ as installed  # imported here: static encoders do not need it

    path = files.find("config_sentence_transformers.json")
    versions = ((read_json(path) or {}) if path is not None else {}).get("__version__")
    written = versions.get("sentence_transformers") if isinstance(versions, dict) else None
    if written is not None and parse(str(written)) <= parse(installed):
        return otherwise
    return (
        f"It was written by a newer version of sentence-transformers ({written or 'unknown'}) than the installed "
        f"{installed}. Upgrade with: pip install -U sentence-transformers"
    )


# -- code -------------------------------------------------------------------------------------------------------------


def code_in(name: str, options: Mapping[str, Any]) -> str:
    """Describe the code that files of a rejected model would run."""
    files = Files(name, options)
    folders = dict.fromkeys(["", *(folder for folder, _ in _modules(files))])
    named: dict[str, list[str]] = {}
    for file in (folder + config for folder in folders for config in CONFIGS):
        path = files.find(file)
        classes = None if path is None else (read_json(path) or {}).get("auto_map")
        if isinstance(classes, dict):
            named[file] = [str(kind) for kind in _flat(classes.values()) if kind]
    has = f"{' and '.join(named)} {'have' if len(named) > 1 else 'has'}" if named else "its files have"
    return f"{has} the key 'auto_map', which would run code. {_code_to_run(files, _flat(named.values()))}"


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from value if isinstance(value, list) else [value]


def _code_to_run(files: Files, classes: Iterable[str]) -> str:
    """Describe the files that would run for class names: `modeling.Model`, `owner/repository--modeling.Model`."""
    code, missing = [], []
    for kind in dict.fromkeys(classes):
        repository, _, module = kind.rpartition("--")
        file = f"{module.rpartition('.')[0]}.py"
        if repository:
            code.append(f"{file} of the repository {repository!r:.80}")
        elif is_inside(file) and files.has(file):
            code.append(f"{file} of the model itself")
        else:
            missing.append(file)
    if not code and not missing:
        return "The files that essent reads do not name the code."
    if not code:
        return f"The code that it names, {' and '.join(dict.fromkeys(missing))}, is missing: download the whole folder."
    return (
        f"The code is {' and '.join(dict.fromkeys(code))}: read it, and if you trust it, run it with "
        "trust_remote_code=True (--trust-remote-code)."
    )


# -- files ------------------------------------------------------------------------------------------------------------


def _check_transformer(files: Files, folder: str) -> Path | None:
    """Check a transformer, and return the path of its settings."""
    names = (MODULES["Transformer"], *LEGACY_SETTINGS)  # sentence-transformers reads the first existing one
    settings = next((path for name in names if (path := _check_file(files, folder + name, MODULE_SETTINGS))), None)
    _check_file(files, f"{folder}config.json", CONFIG)
    _check_tokenizer(files, folder, guarded=True)
    if (adapter := files.find(f"{folder}adapter_config.json")) is not None:
        raise DamagedError(
            f"{adapter} makes this an adapter of another model, which essent does not load. Merge both with PEFT's "
            "merge_and_unload(), and save the result to a new folder."
        )
    return settings


def _check_tokenizer(files: Files, folder: str, *, guarded: bool) -> None:
    """Check a tokenizer's settings; if `guarded`, the library that reads them is told not to follow `auto_map`."""
    rule = TOKENIZER if guarded else Rule({**TOKENIZER.keys, "auto_map": NULL}, endings=TOKENIZER.endings)
    _check_file(files, f"{folder}tokenizer_config.json", rule)
    _check_file(files, f"{folder}special_tokens_map.json", SPECIAL_TOKENS)


def _check_weights(files: Files, folder: str, kind: str) -> None:
    """Raise an error for pickled weights, and for lists of parts outside the folder."""
    if files.has(f"{folder}model.safetensors"):
        return
    if (index := files.find(f"{folder}model.safetensors.index.json")) is not None:
        parts = (read_json(index) or {}).get("weight_map")
        if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
            raise DamagedError(f"{index} is damaged: weight_map must be an object of file names.")
        for part in sorted(set(parts.values())):
            if set("/\\") & set(part) or not part.endswith(".safetensors"):
                raise DamagedError(
                    f"{index}: weight_map names {part!r:.80}, which is not a safetensors file in the folder itself."
                )
        return
    for file in ("pytorch_model.bin", "pytorch_model.bin.index.json"):
        if files.has(folder + file):
            raise DamagedError(
                f"{files.name}/{folder}{file} holds pickled weights, which can run code when they are loaded; essent "
                f"loads only safetensors. Convert them in an isolated environment: {_conversion(files.name, kind)}"
            )


def _conversion(name: str, kind: str) -> str:
    """Return commands to paste into a shell; the folder's name is quoted so that it cannot inject a command."""
    whole = f"from sentence_transformers import SentenceTransformer as S; S({name!r}).save('converted')"
    command = f"python -c {shlex.quote(whole)} writes a sentence encoder to the folder 'converted'"
    if kind != "Transformer":
        return f"{command}."
    masked = (
        f"import transformers as t; n = {name!r}; t.AutoModelForMaskedLM.from_pretrained(n).save_pretrained("
        "'converted'); t.AutoTokenizer.from_pretrained(n).save_pretrained('converted')"
    )
    return f"{command}; for a masked language model: python -c {shlex.quote(masked)} does the same."


def _check_file(files: Files, file: str, rule: Rule) -> Path | None:
    """Check the keys and values of a file, and return its path; None if there is no such file."""
    path = files.find(file)
    content = None if path is None else read_json(path)
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
            raise DamagedError(
                f"{path}: {before + key!r:.100} must be {kind.expected}, not {value!r:.60}. Correct or remove it."
            )
        elif rule.deep and key not in rule.keys:  # configurations of parts have the same keys as the whole
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, dict):
                    _check_keys(path, f"{before}{key}.", inner, rule)
