"""What a release needs: one version everywhere, and README lines that the release check can run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import check_readme
from essent import __version__

ROOT = Path(__file__).parents[1]


def test_citation_and_changelog_name_the_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["version"] == __version__
    assert re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[0] == __version__


def test_the_wheel_takes_the_place_of_the_published_version() -> None:
    wheel = ROOT / "essent.whl"
    line = check_readme.with_wheel('pip install "essent[data,demo]"', wheel)
    assert line == f'pip install "essent[data,demo] @ {wheel.as_uri()}" --quiet --constraint constraints.txt'
    assert f'"essent @ {wheel.as_uri()}"' in check_readme.with_wheel("pip install essent", wheel)
    with pytest.raises(AssertionError, match="installs no essent"):
        check_readme.with_wheel("pip install sentence-transformers", wheel)


def test_the_readme_installs_essent() -> None:
    lines = [line for block in check_readme.blocks("README.md", "bash") for line in block.splitlines()]
    assert any(line.startswith("pip install") for line in lines)
    assert check_readme.runnable(lines)


def test_servers_of_the_readme_stop() -> None:
    assert check_readme.runnable(["make demo", "essent serve m=x"]) == [
        "timeout --preserve-status 30 essent serve --port 0 m=x"
    ]
