"""Texts without judgements, from lines and from columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from essent.errors import DataError
from essent.tasks.text_files import read_texts


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.csv"
    file.write_text("title,sentence1,sentence2\nt1,a,b\nt2,c,\n", encoding="utf-8")
    return file


def test_lines(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes("one\r\n\ntwo\u2028more\n".encode())
    assert read_texts(file) == ["one", "", "two\u2028more"]
    file.write_bytes(b"")
    with pytest.raises(DataError, match="has no texts"):
        read_texts(str(file))


def test_columns(rows: Path) -> None:
    assert read_texts(rows) == ["a", "b", "c", ""]  # both sentences of pairs
    assert read_texts(rows, "title") == ["t1", "t2"]
    assert read_texts(rows, ["title", "sentence2"]) == ["t1", "b", "t2", ""]
    with pytest.raises(DataError, match=r"no column .titel.\. Did you mean .title."):
        read_texts(rows, "titel")
    rows.write_text("title,body\nt1,a\n", encoding="utf-8")
    with pytest.raises(DataError, match="neither a column 'text' nor two with sentences"):
        read_texts(rows)
    rows.write_text("Text,body\nt1,a\n", encoding="utf-8")
    assert read_texts(rows) == ["t1"]
