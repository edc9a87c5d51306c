"""What users write against the public names is typed: README's examples pass a type checker."""

import subprocess
import sys
from pathlib import Path

import pytest

from check_readme import ROOT, blocks


@pytest.mark.slow
def test_examples_of_the_readme_pass_mypy(tmp_path: Path) -> None:
    assert (tmp_path / "examples.py").write_text("\n".join(blocks("README.md", "python")), "utf-8")
    wrong = "\n\nimport essent\nessent.Encoder(1.5)\nessent.evaluate('m', ['mean'], [1.5])\n"
    (tmp_path / "wrong.py").write_text(wrong, "utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-incremental"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, cwd=ROOT)
    assert "examples.py" not in done.stdout, done.stdout
    assert done.stdout.count("[arg-type]") + done.stdout.count("[list-item]") >= 2, done.stdout
