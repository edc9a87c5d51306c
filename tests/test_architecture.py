"""The walls: imports go downwards and through doors, heavy libraries are imported late, files stay small."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import essent

ROOT = Path(essent.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
HOUSE = ROOT.parents[1]


def part_of(path: Path) -> str:
    """The module or package directly below essent that a file belongs to."""
    parts = path.relative_to(ROOT).parts
    return (parts[1] if parts[0] == "lab" else parts[0]).removesuffix(".py")


def imports_of(path: Path) -> list[ast.ImportFrom]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.ImportFrom)]


def test_imports_go_downwards() -> None:
    """By the contracts in pyproject.toml; in a process of its own, as import-linter changes the logging of this one."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], cwd=HOUSE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_imports_name_the_defining_file() -> None:
    """A package's `__init__` is for users; inside, "go to definition" takes one step, and no import is relative."""
    through_packages = []
    for path in FILES:
        for node in imports_of(path) if path != ROOT / "__init__.py" else ():
            assert node.level == 0, f"{path}: relative import"
            package = ROOT.parent.joinpath(*f"{node.module}".split("."))
            if f"{node.module}".startswith("essent.") and package.is_dir():
                names = [a.name for a in node.names if not list(package.glob(f"{a.name}*"))]
                through_packages += [f"{path.relative_to(ROOT)}: {node.module}.{name}" for name in names]
    assert not through_packages


def test_plans_and_estimates_read_the_injected_clock() -> None:
    planning = [path for path in FILES if part_of(path) == "improvement" or path.parts[-2:] == ("selection", "run.py")]
    imported = {
        alias.name for path in planning for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Import) for alias in node.names
    }  # fmt: skip
    assert "math" in imported
    assert "time" not in imported


def test_a_single_function_counts_cores() -> None:
    """Another one would forget the CPU quota of a container; a pool without a size counts by itself."""
    counters = ("cpu_count", "sched_getaffinity", "ThreadPoolExecutor()", "ProcessPoolExecutor()", "Pool()")
    for path in (path for path in FILES if path.name != "machine.py"):
        assert not [name for name in counters if name in path.read_text(encoding="utf-8")], path


def test_files_are_small_and_documented() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400, path
        assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"


def test_only_the_model_package_knows_transformers_models() -> None:
    """Others may take its tokenizers and configurations; encoders are loaded and run in this package alone."""
    knowing = {part_of(path) for path in FILES if "PreTrainedModel" in path.read_text(encoding="utf-8")}
    assert knowing == {"model", "_core"}


@pytest.mark.parametrize(
    "statement",
    [
        "import essent",
        "import essent.recipe",
        "import essent.tasks",
        "import essent.recipe.tokens",
        "import essent.static; assert essent.static.StaticEncoder is essent.StaticEncoder",
        "essent.StaticEncoder.load(sys.argv[1]).encode(['dogs', 'a man'])",
    ],
)
def test_torch_is_imported_late(statement: str, static_folder: Path) -> None:
    heavy = "torch transformers sentence_transformers sklearn scipy pandas datasets matplotlib zuko".split()
    code = f"import essent, sys\n{statement}\nprint([name for name in {heavy!r} if name in sys.modules])"
    command = [sys.executable, "-c", code, str(static_folder)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_the_public_names() -> None:
    assert set(essent.__all__) == set(dir(essent))
    for name in essent.__all__:
        assert getattr(essent, name) is not None
    with pytest.raises(AttributeError, match="encoder_of_dreams"):
        essent.encoder_of_dreams  # noqa: B018
