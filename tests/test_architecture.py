"""The walls: imports go downwards only, heavy libraries are imported late, files stay small."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import essent

ROOT = Path(essent.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# Modules and folders directly below essent, by layer: a module imports only from its own layer and from lower ones.
LAYERS = {
    0: "types atomic registry hub folders contexts",
    1: "saved named layers mlm_head recipe pool tokens by_word template weights backbone rows denoise plan shaping "
    "data tasks heros word_vectors",
    2: "bags module passes cache",
    # encoder and portable are a pair
    3: "loading folding lowering folder portable card encoder verification estimator evaluation selection explain "
    "engine reproduce report mteb static train",
    4: "cli demo",
}
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names.split()}
UPWARDS = {("module", "portable")}  # a module that a trainer saves on its own; imported when that happens


def imports(path: Path) -> set[str]:
    """Names of the modules directly below essent that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names = [f"essent.{a.name}" for a in node.names] if node.module == "essent" else [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("essent.")}
    return {name for name in found if (ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file()}


def part_of(path: Path) -> str:
    """The module or folder directly below essent that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_every_module_has_its_layer() -> None:
    assert {part_of(path) for path in FILES} - {"__init__"} == set(LAYER_OF)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downwards(path: Path) -> None:
    here = part_of(path)
    if here == "__init__":  # the public names
        return
    above = {name for name in imports(path) if LAYER_OF[name] > LAYER_OF[here] and (here, name) not in UPWARDS}
    assert not above, f"{here} (layer {LAYER_OF[here]}) imports {above}"


@pytest.mark.parametrize("path", [p for p in FILES if part_of(p) in ("data", "tasks")], ids=lambda p: p.name)
def test_tasks_and_data_never_see_an_encoder(path: Path) -> None:
    assert imports(path) <= {"types", "atomic", "registry", "hub", "data", "tasks"}
    if part_of(path) == "data":
        assert imports(path) <= {"types", "registry", "hub"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_small_and_say_what_they_do(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 350
    assert ast.get_docstring(ast.parse(text)), "a file begins with a docstring"


def test_only_the_backbone_and_loading_know_transformers_models() -> None:
    """Others may take its tokenizers and configurations; encoders are loaded and run in these files alone."""
    knowing = {part_of(path) for path in FILES if "PreTrainedModel" in path.read_text(encoding="utf-8")}
    assert knowing <= {"backbone", "rows", "loading", "mlm_head"}


@pytest.mark.parametrize(
    "statement",
    [
        "import essent",
        "import essent.recipe, essent.named",
        "import essent.tasks, essent.data",
        "import essent.tokens, essent.by_word",
        "import essent.static; essent.static.StaticEncoder",
    ],
)
def test_torch_is_imported_late(statement: str) -> None:
    heavy = ["torch", "transformers", "sentence_transformers", "datasets", "matplotlib", "zuko"]
    code = f"{statement}\nimport sys\nprint([name for name in {heavy!r} if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_the_public_names() -> None:
    assert set(essent.__all__) == set(dir(essent))
    for name in essent.__all__:
        assert getattr(essent, name) is not None
    with pytest.raises(AttributeError, match="it has NAMED"):
        essent.encoder_of_dreams  # noqa: B018
