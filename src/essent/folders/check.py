"""Whether a folder, or a repository on the hub, asks for no more than to be read; asked before any library opens it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from essent.folders.digests import check_digests, has_digests
from essent.folders.names import ENCODER, GRAPH, STATE_FOLDER
from essent.folders.places import check_places, is_inside
from essent.folders.reading import read_json
from essent.folders.rules import (
    ANYTHING,
    CONFIG,
    MODULE,
    MODULES,
    NULL,
    SENTENCE_TRANSFORMERS,
    SPECIAL_TOKENS,
    TOKENIZER,
    Kind,
    Rule,
    is_stock_class,
)
from essent.hub import file_options, has_file
from essent.lazy import needs_torch
from essent.types import DamagedError

OWN_CLASS = "essent_module.RecipeModule"  # of a folder that no stock modules compute; essent reads it by itself
MOST_MODULES = 64
LEGACY_SETTINGS = tuple(
    f"sentence_{name}_config.json" for name in "roberta distilbert camembert albert xlm-roberta xlnet".split()
)
TRUST = "If you trust where it comes from, trust_remote_code=True (--trust-remote-code) lets it"


class Files(Protocol):
    """The files of a model, each by its name: "1_Pooling/config.json"."""

    def find(self, file: str) -> Path | None:
        """Where the file lies; None where the model has none of this name."""

    def has(self, file: str) -> bool:
        """Whether the model has it; nothing is fetched, weights least of all."""


class Folder:
    """The files of a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, file: str) -> Path | None:
        """The path of a file, or None where there is none."""
        path = self.root / file
        if path.parent != self.root:
            check_places(self.root, path.parent)
        return path if path.is_file() else None

    def has(self, file: str) -> bool:
        """Whether there is such a file."""
        return self.find(file) is not None


class Repository:
    """The files of a repository on the hub, or what the cache has of it."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name, self.hub = name, file_options(options)

    def find(self, file: str) -> Path | None:
        """The path of a file, or None where there is none."""
        with needs_torch(f"Reading {self.name!r}"):
            from sentence_transformers.util import load_file_path  # late: static encoders do without

        folder, _, last = file.rpartition("/")
        found = load_file_path(self.name, last, subfolder=folder, **self.hub)
        return None if found is None else Path(found)

    def has(self, file: str) -> bool:
        """Whether there is such a file."""
        return has_file(self.name, file, self.hub)


def check_model(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a model whose files would have code run, or anything read that is not its own.

    Args:
        name: a folder, or a name on the hub, of which only the files of settings are fetched here.
        options: SentenceTransformer's; with a true `trust_remote_code` nothing is checked.

    Raises:
        DamagedError: names the file, the key, what is allowed there, and what to do.
    """
    if options.get("trust_remote_code"):
        return
    root = Path(name)
    if root.is_dir():
        check_folder(root)
        if has_digests(root):
            check_digests(root, whole=False)
    else:
        _check(Repository(name, options), name)


def check_folder(root: Path) -> None:
    """The same for a folder, whose links and special files are looked at too.

    Raises:
        DamagedError: names the file, the key, what is allowed there, and what to do.
    """
    check_places(root)
    _check(Folder(root), str(root))


# -- contents ---------------------------------------------------------------------------------------------------------


def _check(files: Files, name: str) -> None:
    modules = _modules(files, name)
    _check_file(files, "config_sentence_transformers.json", Rule(SENTENCE_TRANSFORMERS, ANYTHING))
    for place, kind in modules:
        of_kind = MODULES[kind]
        if kind == "Transformer":
            _check_transformer(files, place)
        elif of_kind.settings:
            _check_file(files, place + of_kind.settings, of_kind.rule)
        if kind == "WordEmbeddings":
            _check_tokenizer(files, place, guarded=False)
        if of_kind.weights:
            _check_weights(files, place, name, kind)
    if files.has(ENCODER):
        for place in (f"{STATE_FOLDER}/", f"{STATE_FOLDER}/tokenizer/"):
            _check_file(files, f"{place}config.json", CONFIG)
            _check_tokenizer(files, place, guarded=False)
    if files.has(GRAPH):
        _check_tokenizer(files, "", guarded=False)


def _modules(files: Files, name: str) -> Iterator[tuple[str, str]]:
    """Folder ("" or "1_Pooling/") and class of each module; of a plain model the transformer in its root."""
    path = files.find("modules.json")
    listed = None if path is None else read_json(path, list)
    if path is None or listed is None:
        return iter([("", "Transformer")])
    if not 0 < len(listed) <= MOST_MODULES:
        raise DamagedError(f"{path}: lists {len(listed)} modules; 1 to {MOST_MODULES} are allowed.")
    found = []
    for number, module in enumerate(listed):
        if not isinstance(module, dict) or not {"path", "type"} <= module.keys():
            raise DamagedError(f"{path} is damaged: module {number} must be an object with path and type.")
        _check_keys(path, f"[{number}].", module, MODULE)
        kind, place = module["type"], module["path"]
        if not is_inside(place):
            raise DamagedError(f"{path}: the path of module {number}, {place!r:.80}, leads out of the model's folder.")
        own = kind == OWN_CLASS and files.has(ENCODER)
        if not own and not is_stock_class(kind, tuple(MODULES)):
            raise DamagedError(
                f"{path}: the type of module {number}, {kind!r:.80}, is not one of sentence-transformers' modules for "
                f"text ({', '.join(MODULES)}), and would have code of {name!r} run. {TRUST} be loaded."
            )
        found.append((f"{place}/" if place not in ("", ".") else "", "Transformer" if own else kind.rpartition(".")[2]))
    return iter(found)


def _check_transformer(files: Files, place: str) -> None:
    for settings in (MODULES["Transformer"].settings, *LEGACY_SETTINGS):
        if _check_file(files, place + settings, MODULES["Transformer"].rule):
            break  # which is the one that sentence-transformers reads
    _check_file(files, f"{place}config.json", CONFIG)
    _check_tokenizer(files, place, guarded=True)
    if (adapter := files.find(f"{place}adapter_config.json")) is not None:
        raise DamagedError(
            f"{adapter} makes this an adapter of another model, which essent does not load. Merge the two first, with "
            "PEFT's merge_and_unload(), and save the result as a folder of its own."
        )


def _check_tokenizer(files: Files, place: str, *, guarded: bool) -> None:
    """Check a tokenizer's settings; `guarded`: the library that reads them is asked not to follow `auto_map`."""
    rule = TOKENIZER if guarded else Rule({**TOKENIZER.keys, "auto_map": NULL}, TOKENIZER.others, TOKENIZER.endings)
    _check_file(files, f"{place}tokenizer_config.json", rule)
    _check_file(files, f"{place}special_tokens_map.json", SPECIAL_TOKENS)


def _check_weights(files: Files, place: str, name: str, kind: str) -> None:
    """Refuse weights that are pickled, and lists of parts that lie elsewhere."""
    if files.has(f"{place}model.safetensors"):
        return
    if (index := files.find(f"{place}model.safetensors.index.json")) is not None:
        parts = (read_json(index) or {}).get("weight_map")
        if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
            raise DamagedError(f"{index} is damaged: weight_map must be an object of file names.")
        for part in sorted(set(parts.values())):
            if set("/\\") & set(part) or not part.endswith(".safetensors"):
                raise DamagedError(
                    f"{index}: weight_map names {part!r:.80}, which is not a safetensors file of the folder itself."
                )
        return
    for file in ("pytorch_model.bin", "pytorch_model.bin.index.json"):
        if files.has(place + file):
            raise DamagedError(
                f"{name}/{place}{file} holds pickled weights, which can run code when they are read; essent reads "
                f"safetensors. Convert them where that does no harm: {_conversion(name, kind)}"
            )


def _conversion(name: str, kind: str) -> str:
    """Commands to paste into a shell; whoever named the folder must not have written a part of them."""
    whole = f"from sentence_transformers import SentenceTransformer as S; S({name!r}).save('converted')"
    said = f"python -c {shlex.quote(whole)} writes a sentence encoder to the folder 'converted'"
    if kind != "Transformer":
        return f"{said}."
    masked = (
        f"import transformers as t; n = {name!r}; t.AutoModelForMaskedLM.from_pretrained(n).save_pretrained("
        "'converted'); t.AutoTokenizer.from_pretrained(n).save_pretrained('converted')"
    )
    return f"{said}; for a masked language model: python -c {shlex.quote(masked)} does the same."


def _check_file(files: Files, file: str, rule: Rule) -> bool:
    """Check the keys and values of a file; False where there is no such file."""
    path = files.find(file)
    content = None if path is None else read_json(path)
    if path is None or content is None:
        return False
    _check_keys(path, "", content, rule)
    if rule is CONFIG:
        _check_nested(path, "", content)
    return True


def _check_keys(path: Path, before: str, content: Mapping[str, Any], rule: Rule) -> None:
    """Refuse unknown keys, and values that a key may not have."""
    for key, value in content.items():
        kind = rule.kind_of(key)
        if kind is None:
            known = ", ".join(rule.keys) or "none"
            raise DamagedError(
                f"{path}: the key {before + key!r:.100} is not one that essent reads there (known: {known}). "
                f"Remove it. {TRUST} pass."
            )
        if isinstance(kind, Rule):
            if not isinstance(value, dict):
                raise DamagedError(f"{path}: {before + key!r:.100} must be an object, not {value!r:.60}.")
            _check_keys(path, f"{before}{key}.", value, kind)
        elif not kind.allows(value):
            raise DamagedError(
                f"{path}: {before + key!r:.100} must be {kind.expected}, not {value!r:.60}. Correct or remove it."
            )


def _check_nested(path: Path, before: str, content: Mapping[str, Any]) -> None:
    """Refuse what steers a model wherever it stands: configurations of parts hold the same keys as the whole."""
    for key, value in content.items():
        if isinstance(value, dict) and CONFIG.keys.get(key) is None:
            kinds: dict[str, Kind | Rule] = {inner: kind for inner, kind in CONFIG.keys.items() if inner in value}
            _check_keys(path, f"{before}{key}.", {inner: value[inner] for inner in kinds}, Rule(kinds))
            _check_nested(path, f"{before}{key}.", value)
