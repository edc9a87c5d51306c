"""Whether a folder, or a repository on the hub, asks for no more than to be read; asked before any library opens it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from essent.folders.digests import check_digests, has_digests
from essent.folders.names import STATE_FOLDER, is_read
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
from essent.hub import file_options
from essent.types import DamagedError

OWN_CLASS = "essent_module.RecipeModule"  # of a folder that no stock modules compute; essent reads it by itself
MOST_MODULES = 64
LEGACY_SETTINGS = tuple(
    f"sentence_{name}_config.json" for name in "roberta distilbert camembert albert xlm-roberta xlnet".split()
)
TRUST = "If you trust where it comes from, trust_remote_code=True (--trust-remote-code) lets it"

Find = Callable[[str], Path | None]  # a file of the model by its name, "1_Pooling/config.json"; None without one


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
        _check(_finder_on_the_hub(name, file_options(options)), name)


def check_folder(root: Path) -> None:
    """The same for a folder, whose links and special files are looked at too.

    Raises:
        DamagedError: names the file, the key, what is allowed there, and what to do.
    """
    for folder in (root, root / STATE_FOLDER, root / STATE_FOLDER / "tokenizer"):
        _check_places(root, folder)

    def find(file: str) -> Path | None:
        path = root / file
        if path.parent != root:
            _check_places(root, path.parent)
        return path if path.is_file() else None

    _check(find, str(root))


def _finder_on_the_hub(name: str, hub: dict[str, Any]) -> Find:
    from sentence_transformers.util import load_file_path  # which loads torch: static encoders do without

    def find(file: str) -> Path | None:
        folder, _, last = file.rpartition("/")
        found = load_file_path(name, last, subfolder=folder, **hub)
        return None if found is None else Path(found)

    return find


# -- places -----------------------------------------------------------------------------------------------------------


def _check_places(root: Path, folder: Path) -> None:
    """Refuse links that leave the model, and what is neither a file nor a folder."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DamagedError(f"{folder} cannot be read: {error.strerror or error}.") from error
    inside = _real_places(root)
    if not any(folder.resolve().is_relative_to(place) for place in inside):
        raise DamagedError(f"{folder} is a link that leads out of the model's folder. Put the files themselves there.")
    for entry in entries:
        path = Path(entry.path)
        if not is_read(entry.name):
            continue
        if entry.is_symlink() and not any(path.resolve().is_relative_to(place) for place in inside):
            raise DamagedError(
                f"{path} is a link that leads out of the model's folder, to {os.readlink(path)!r}. Put the file itself "
                "there."
            )
        if not entry.is_dir() and path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise DamagedError(f"{path} is not a file that can be read, but a pipe or a device. Remove it.")


def _real_places(root: Path) -> tuple[Path, ...]:
    """Where files of the model may really lie: its folder; in the hub's cache also the store that it links to."""
    here = root.resolve()
    stored = next((parent.parent / "blobs" for parent in here.parents if parent.name == "snapshots"), None)
    return (here,) if stored is None else (here, stored)


def _inside(path: str) -> bool:
    parts = PurePosixPath(path.replace("\\", "/"))
    return not parts.is_absolute() and ".." not in parts.parts and ":" not in path and "\0" not in path


# -- contents ---------------------------------------------------------------------------------------------------------


def _check(find: Find, name: str) -> None:
    modules = _modules(find, name)
    _check_file(find, "config_sentence_transformers.json", Rule(SENTENCE_TRANSFORMERS, ANYTHING))
    for place, kind in modules:
        files = MODULES[kind]
        if kind == "Transformer":
            _check_transformer(find, place)
        elif files.settings:
            _check_file(find, place + files.settings, files.rule)
        if kind == "WordEmbeddings":
            _check_tokenizer(find, place, guarded=False)
        if files.weights:
            _check_weights(find, place, name, kind)
    for place in (f"{STATE_FOLDER}/", f"{STATE_FOLDER}/tokenizer/"):
        if find(f"{STATE_FOLDER}/encoder.json") is not None:
            _check_file(find, f"{place}config.json", CONFIG)
            _check_tokenizer(find, place, guarded=False)
    if find(f"{STATE_FOLDER}/engine.json") is not None:
        _check_tokenizer(find, "", guarded=False)


def _modules(find: Find, name: str) -> Iterator[tuple[str, str]]:
    """Folder ("" or "1_Pooling/") and class of each module; of a plain model the transformer in its root."""
    path = find("modules.json")
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
        if not _inside(place):
            raise DamagedError(f"{path}: the path of module {number}, {place!r:.80}, leads out of the model's folder.")
        own = kind == OWN_CLASS and find(f"{STATE_FOLDER}/encoder.json") is not None
        if not own and not is_stock_class(kind, tuple(MODULES)):
            raise DamagedError(
                f"{path}: the type of module {number}, {kind!r:.80}, is not one of sentence-transformers' modules for "
                f"text ({', '.join(MODULES)}), and would have code of {name!r} run. {TRUST} be loaded."
            )
        found.append((f"{place}/" if place not in ("", ".") else "", "Transformer" if own else kind.rpartition(".")[2]))
    return iter(found)


def _check_transformer(find: Find, place: str) -> None:
    for settings in (MODULES["Transformer"].settings, *LEGACY_SETTINGS):
        if _check_file(find, place + settings, MODULES["Transformer"].rule):
            break  # which is the one that sentence-transformers reads
    _check_file(find, f"{place}config.json", CONFIG)
    _check_tokenizer(find, place, guarded=True)
    if (adapter := find(f"{place}adapter_config.json")) is not None:
        raise DamagedError(
            f"{adapter} makes this an adapter of another model, which essent does not load. Merge the two first, with "
            "PEFT's merge_and_unload(), and save the result as a folder of its own."
        )


def _check_tokenizer(find: Find, place: str, *, guarded: bool) -> None:
    """Check a tokenizer's settings; `guarded`: the library that reads them is asked not to follow `auto_map`."""
    rule = TOKENIZER if guarded else Rule({**TOKENIZER.keys, "auto_map": NULL}, TOKENIZER.others, TOKENIZER.endings)
    _check_file(find, f"{place}tokenizer_config.json", rule)
    _check_file(find, f"{place}special_tokens_map.json", SPECIAL_TOKENS)


def _check_weights(find: Find, place: str, name: str, kind: str) -> None:
    """Refuse weights that are pickled, and lists of parts that lie elsewhere."""
    if find(f"{place}model.safetensors") is not None:
        return
    if (index := find(f"{place}model.safetensors.index.json")) is not None:
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
        if (pickled := find(place + file)) is not None:
            raise DamagedError(
                f"{pickled} holds pickled weights, which can run code when they are read; essent reads safetensors. "
                f"Convert them where that does no harm: {_conversion(name, kind)}"
            )


def _conversion(name: str, kind: str) -> str:
    return (
        'python -c "from sentence_transformers import SentenceTransformer as S; '
        f"S({name!r}).save('converted')\" writes a sentence encoder to the folder 'converted'"
        + (
            '; for a masked language model: python -c "import transformers as t; n = '
            f"{name!r}; t.AutoModelForMaskedLM.from_pretrained(n).save_pretrained('converted'); "
            "t.AutoTokenizer.from_pretrained(n).save_pretrained('converted')\"."
            if kind == "Transformer"
            else "."
        )
    )


def _check_file(find: Find, file: str, rule: Rule) -> bool:
    """Check the keys and values of a file; False where there is no such file."""
    path = find(file)
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
