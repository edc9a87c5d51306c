"""Try the README with a wheel in an empty environment, as a stranger would: `make release` runs it.

python tests/check_readme.py WHEEL ENVIRONMENT

The README's `pip install` lines install the wheel with their extras, in the versions of constraints.txt. Its Python
examples then run as one program and its commands as one shell script, in a folder with the example files of
docs/start.md. This file needs the standard library only. The tests compare the outputs (`tests/test_docs.py`).
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
SERVE_SECONDS = 30  # then the server is told to stop, and must end with 0


def main() -> None:
    """Install, run, and print how long both took."""
    wheel, environment = (Path(argument).resolve() for argument in sys.argv[1:])
    commands = [line for block in blocks("README.md", "bash") for line in block.splitlines()]
    start = time.perf_counter()
    venv.create(environment, with_pip=True, clear=True)
    for line in commands:
        if line.startswith("pip install"):
            run(environment, ROOT, "bash", "-c", with_wheel(line, wheel))
    installed = time.perf_counter()
    (write_example_files,) = [block for block in blocks("docs/start.md", "python") if "minimal-pairs.jsonl" in block]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        version = run(environment, folder, "python", "-m", "essent", "--version").strip()
        assert version.split() == wheel.name.split("-")[:2], f"{wheel.name}: python -m essent --version: {version}"
        run(environment, folder, "python", "-c", write_example_files)
        run(environment, folder, "python", "-c", "\n".join(blocks("README.md", "python")))
        run(environment, folder, "bash", "-euxc", "\n".join(runnable(commands)))
    print(f"README: {installed - start:.0f} s to install, {time.perf_counter() - installed:.0f} s to run everything")


def blocks(page: str | Path, language: str) -> list[str]:
    """The examples of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


def with_wheel(line: str, wheel: Path) -> str:
    """A line `pip install "essent[extra]"` that installs the wheel in the place of the published version."""
    changed = re.sub(r'"?\bessent(\[[^]]*\])?"?(?=\s|$)', rf'"essent\1 @ {wheel.as_uri()}"', line)
    assert changed != line, f"{line}: installs no essent"
    return f"{changed} --quiet --constraint constraints.txt"


def runnable(commands: list[str]) -> list[str]:
    """The commands without those of a checkout and of pip; a server stops after some seconds."""
    lines = [line for line in commands if not line.startswith(("make ", "pip install", "#"))]
    stopped = f"timeout --preserve-status {SERVE_SECONDS} essent serve --port 0 "
    return [line.replace("essent serve ", stopped) for line in lines]


def run(environment: Path, folder: Path, *command: str) -> str:
    """Standard output of a command, which must succeed; `python`, `pip` and `essent` are those of the environment."""
    path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    variables |= {"PATH": path, "VIRTUAL_ENV": str(environment)}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}exit code {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
