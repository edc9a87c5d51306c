"""What users write against the public names is typed: README's examples pass a type checker."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_examples_of_the_readme_pass_mypy(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    code = "\n".join(blocks)
    (tmp_path / "examples.py").write_text(code, "utf-8")
    wrong = "\n\nimport essent\nessent.Encoder(1.5)\nessent.evaluate('m', ['mean'], [1.5])\n"
    (tmp_path / "wrong.py").write_text(wrong, "utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-incremental"]
    done = subprocess.run([*command, str(tmp_path / "examples.py")], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout
    done = subprocess.run([*command, str(tmp_path / "wrong.py")], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.count("[arg-type]") + done.stdout.count("[list-item]") >= 2, done.stdout
