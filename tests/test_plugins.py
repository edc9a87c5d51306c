"""Parts of other packages, as they are installed: wrong entry points, and a package that is gone at loading."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

import essent
from command_line import environment
from essent import Encoder
from essent.errors import MissingDependencyError

SOURCE = """
import numpy as np
from dataclasses import dataclass
from essent.recipe.weighting import ByToken, weightings

@dataclass(frozen=True)
class RSqrt(ByToken):
    \"\"\"One over the square root of the id.\"\"\"

    def table(self, vocabulary, stats):
        return 1 / np.sqrt(1.0 + np.arange(len(vocabulary)))
"""


def install(site: Path, package: str, entry: str, source: str = SOURCE) -> Path:
    """A distribution with one module of its name, as an installer leaves it."""
    information = site / f"{package}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[essent.weightings]\n{entry}\n")
    (site / f"{package}.py").write_text(source)
    return site


def run(code: str, site: Path, *arguments: object) -> str:
    """What a process prints that finds the packages of `site` installed."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(
        command,
        env=environment(PYTHONPATH=os.pathsep.join([str(site), *filter(None, sys.path)])),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


USE = """
from essent.recipe import Recipe
from essent.errors import EssentError
for name in ("uniform", "idf", "module", "decorated", "absent", "failing", "right"):
    try:
        print("has", Recipe.parse(f"weights={name}"))
    except EssentError as error:
        print(name, type(error).__name__, error)
"""
WRONG = {  # package: entry point, source of the package, reason that is given, whether there is a part of the name
    "one": ("module = one", SOURCE, "TypeError: <module", False),
    "two": (
        "decorated = two",
        SOURCE.replace("@data", "@weightings.register('decorated')\n@data"),
        "TypeError: <module",
        True,
    ),
    "three": ("absent = three:Other", SOURCE, "AttributeError: module 'three' has no attribute 'Other'", False),
    "four": ("failing = four:RSqrt", "import nowhere", "ModuleNotFoundError: No module named 'nowhere'", False),
    "five": ("idf = five:RSqrt", SOURCE, "ValueError: The token weighting name 'idf' is taken by Idf", True),
}


def test_a_wrong_entry_point_is_named_and_ignored(tmp_path: Path) -> None:
    for package, (entry, source, *_) in WRONG.items():
        install(tmp_path, package, entry, source)
    printed = run(USE, install(tmp_path, "six", "right = six:RSqrt"))
    for entry, _, reason, exists in WRONG.values():
        name, _, value = entry.partition(" = ")
        message = f"The entry point of the token weighting {name!r}, {value!r}, fails and is ignored: {reason}"
        assert message in printed
        assert (f"has weights={name}\n" in printed) == exists
        assert (f"{name} UnknownNameError Unknown token weighting" in printed) != exists
    assert printed.count("fails and is ignored") == len(WRONG)
    assert "has mean\n" in printed
    assert "has weights=right\n" in printed


SAVE = """
import sys
import essent
from command_line import environment
from essent import Encoder
model, stock, own = sys.argv[1:]
Encoder(model, "weights=rsqrt", device="cpu").save(stock)
Encoder(model, "ditto:2-3 weights=rsqrt*ditto:2-3", device="cpu").save(own)
for folder in (stock, own):
    essent.verify(folder)
print("loaded")
"""


@pytest.mark.slow
def test_a_saved_encoder_names_its_package(bert: Path, tmp_path: Path) -> None:
    site = install(tmp_path / "site", "myparts", "rsqrt = myparts:RSqrt")
    stock, own = tmp_path / "stock", tmp_path / "own"
    printed = run(SAVE, site, bert, stock, own)
    assert printed.count("loading needs the package 'myparts', which contains the token weighting 'rsqrt'") == 2
    assert "loaded" in printed
    SentenceTransformer(str(stock))  # stock modules need no package
    loaders = [(loader, folder) for folder in (stock, own) for loader in (Encoder, essent.verify)]
    for loader, folder in [*loaders, (lambda name: SentenceTransformer(name, trust_remote_code=True), own)]:
        with pytest.raises(MissingDependencyError, match="needs the token weighting 'rsqrt' of the package 'myparts'"):
            loader(str(folder))
