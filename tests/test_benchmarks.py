"""The table of `make bench`: what counts as a regression."""

import ast
import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize(
    ("rounds", "regression"),
    [
        ([2.0, 2.1, 2.2], False),
        ([1.85, 1.9, 1.95], False),  # 5 % lower
        ([1.6, 1.7, 1.8], True),  # every round is lower, and the median by 15 %
        ([1.6, 1.7, 2.1], False),  # within the spread
    ],
)
def test_regressions(rounds: list[float], regression: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from run_all import table

    lines, regressions = table({"encode": rounds, "new": [1.0]}, {"encode": 2.0})
    assert bool(regressions) == regression
    assert ("REGRESSION" in lines[2]) == regression
    assert lines[3] == "| new | 1.00 | 1.00 to 1.00 | – | – |"


def test_benchmarks_of_the_table_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from run_all import COMMANDS

    assert all((BENCHMARKS / f"{name}.py").is_file() for name in COMMANDS)


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_what_a_benchmark_imports_from_essent_exists(path: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    own = [(node.module, name.name) for node in imports if str(node.module).startswith("essent") for name in node.names]
    assert not [name for name in own if not hasattr(importlib.import_module(str(name[0])), name[1])]
