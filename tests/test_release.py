"""A release has one version everywhere; `make release` tries the rest."""

import re
from pathlib import Path

import yaml

from essent import __version__

ROOT = Path(__file__).parents[1]


def test_citation_and_changelog_name_the_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["version"] == __version__
    assert re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[0] == __version__
