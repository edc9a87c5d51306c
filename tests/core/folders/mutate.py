"""What happens to files: a byte flips, the end is lost, a file goes, or is another folder's, or nested or huge JSON."""

import json
import random
import shutil
from pathlib import Path

NESTED = "[" * 100_000 + "]" * 100_000
KINDS = ("flip", "flip", "flip", "truncate", "delete", "swap", "nested", "value", "value", "add")
ADDED = ("added_tokens.json", "adapter_config.json", "pytorch_model.bin", "vocab.txt")
WRONG_VALUES = (None, -1, 10**30, 10**400, 1.5, "other", "", [], {}, [None], {"x": 1}, True)


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def mutate(folder: Path, donor: Path, chance: random.Random) -> str:
    """Change one file of a folder; says which and how.

    Args:
        donor: a folder of the same kind with other weights, whose file may take the place.
    """
    path, kind = chance.choice(files_of(folder)), chance.choice(KINDS)
    description = f"{path.relative_to(folder)}: {kind}"
    if kind == "value" and path.suffix != ".json":
        kind = "flip"
    if kind in ("flip", "truncate"):
        content = bytearray(path.read_bytes())
        position = chance.randrange(len(content))
        if kind == "flip":
            content[position] ^= 1 << chance.randrange(8)
        path.write_bytes(content if kind == "flip" else content[:position])
        return f"{description} at byte {position}"
    if kind == "delete":
        path.unlink()
    elif kind == "swap":
        candidates = [file for file in files_of(donor) if file.name == path.name] or files_of(donor)
        shutil.copy(chance.choice(candidates), path)
    elif kind == "nested":
        path.write_text(NESTED)
    elif kind == "add":
        shutil.copy(path, path.with_name(chance.choice(ADDED)))
    else:
        content = inside = json.loads(path.read_text())
        while isinstance(inside, (dict, list)) and inside:
            outer, key = inside, chance.choice(list(inside) if isinstance(inside, dict) else list(range(len(inside))))
            inside = outer[key]
            if chance.random() < 0.3:
                break
        if content:
            outer[key] = chance.choice(WRONG_VALUES)
            path.write_text(json.dumps(content))
    return description
