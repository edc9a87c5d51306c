"""Reading rows and pairs: every format, and errors that name the file and line."""

import csv
from pathlib import Path

import pandas
import pytest

from essent.errors import DataError
from essent.tasks.data import located_rows, read_texts
from essent.tasks.examples import Pair, pairs_from_rows
from essent.tasks.locate import load_task

ROWS = [
    {"sentence1": 'She said "no", twice.', "sentence2": "Sie sagte nein. ü", "score": 4.5, "subset": "a"},
    *[{"sentence1": "", "sentence2": "one\u2028line", "score": 0.0, "subset": "b"}] * 2,
]
PAIRS = [Pair(**row) for row in ROWS]  # type: ignore[arg-type]


def read_pairs(path: Path) -> list[Pair]:
    return pairs_from_rows(located_rows(path))


@pytest.mark.parametrize(
    ("suffix", "method", "options"),
    [
        (".jsonl", "to_json", {"orient": "records", "lines": True, "force_ascii": False}),
        (".json", "to_json", {"orient": "records"}),
        (".csv", "to_csv", {"index": False}),
        (".tsv", "to_csv", {"index": False, "sep": "\t", "quoting": csv.QUOTE_NONE}),
        (".parquet", "to_parquet", {}),
    ],
)
def test_every_format_gives_the_same_pairs(tmp_path: Path, suffix: str, method: str, options: dict) -> None:
    """Also with a byte order mark, carriage returns and a blank line."""
    path = tmp_path / f"data{suffix}"
    getattr(pandas.DataFrame(ROWS), method)(path, **options)
    assert read_pairs(path) == PAIRS
    if suffix in (".jsonl", ".csv", ".tsv"):
        text = path.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") + b"\r\n"
        path.write_bytes(b"\xef\xbb\xbf" + text)
        assert read_pairs(path) == PAIRS


def test_two_sentences_in_one_column(tmp_path: Path) -> None:
    path = tmp_path / "str.csv"
    path.write_text('PairID,Text,Score\n1,"It rains.\nIt pours.",0.9\n')
    assert read_pairs(path) == [Pair("It rains.", "It pours.", 0.9)]


GOOD = {
    "pairs": '{"sentence1": "a", "sentence2": "b", "score": 1}',
    "duplicates": '{"sentence1": "a", "sentence2": "b", "label": 1}',
    "classification": '{"text": "a", "label": 1}',
}
BAD_LINES = r"""
pairs ~ {"sentence1": "a" ~ not JSON
pairs ~ [1, 2] ~ a row must be a JSON object or a text, not list
pairs ~ {"text": "a\nb\nc", "score": 1} ~ .*two sentences on two lines, not 3
pairs ~ {"sentence1": "a", "score": 1} ~ no column 'sentence2'
pairs ~ {"sentence1": "a", "sentence2": "b"} ~ no column 'score'
pairs ~ {"sentence1": "a", "sentence2": "b", "score": null} ~ 'score' must be a finite number, not None
pairs ~ {"sentence1": "a", "sentence2": "b", "score": true} ~ 'score' must be a finite number, not True
pairs ~ {"sentence1": 7, "sentence2": "b", "score": 1} ~ 'sentence1' must be a string, not int
pairs ~ {"sentence1": "\ud800", "sentence2": "b", "score": 1} ~ 'sentence1' contains half a surrogate
pairs ~ {"sentence1": "a", "sentence2": "b", "score": 1, "subset": "x"} ~ 'subset' must be given in every
pairs ~ {"sentence1": "a", "sentence2": "b", "score": 1, "subset": ""} ~ 'subset' must be a text or
duplicates ~ {"sentence1": "a", "sentence2": "b", "label": "maybe"} ~ 'label' must be 1 for duplicates or 0, not
classification ~ {"label": 1} ~ no column 'text'
classification ~ {"text": "a", "label": 0.5} ~ 'label' must be a text, .* or false, not 0.5
classification ~ {"text": "a", "label": 1, "split": "all"} ~ 'split' must be one of train
classification ~ {"text": "a", "label": 1, "split": "test"} ~ .* in every example, or None in all
classification ~ {"sentence1": "a", "sentence2": "b", "label": 1} ~ expected 1 texts as in the first example, not 2
"""


@pytest.mark.parametrize("case", BAD_LINES.strip().splitlines())
def test_malformed_lines_name_file_and_line(tmp_path: Path, case: str) -> None:
    kind, line, message = case.split(" ~ ")
    path = tmp_path / "bad.jsonl"
    path.write_text(f"{GOOD[kind]}\n\n{line}\n{GOOD[kind]}\n")
    with pytest.raises(DataError, match=f"bad.jsonl, line 3: {message}"):
        load_task(f"{kind}:{path}")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "bad.csv",
            'sentence1,sentence2,score\n"a\nb",c,1\n\na,b\n',
            "bad.csv, line 5: 2 fields, but the header has 3",
        ),
        ("bad.csv", 'sentence1,sentence2,score\na,b,1\n"open,c,1\n', "bad.csv, line 3: unexpected end of data"),
        ("bad.csv", "text\na\rb\n", "bad.csv, line 2: new-line character seen in unquoted field"),
        ("bad.json", "[1,\n2", "bad.json, line 2: not JSON"),
        ("bad.json", "[" * 100_000, "bad.json: cannot read this JSON .*recursion"),
        ("bad.parquet", "no", "bad.parquet: cannot read this Parquet file"),
        ("empty.jsonl", "", "empty.jsonl has no rows"),
        ("blank.tsv", "\n\n", "blank.tsv has no rows"),
    ],
)
def test_malformed_files(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_bytes(content.encode())
    with pytest.raises(DataError, match=message):
        read_pairs(tmp_path / name)


LONG = "ab " * 60_000


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("texts.json", '["a, b", "c; d"]', ["a, b", "c; d"]),
        ("texts.jsonl", '"a, b"\n"c; d"\n', ["a, b", "c; d"]),
        ("semicolons.csv", 'text;n\na, b;1\n"c; d";2\n', ["a, b", "c; d"]),
        ("tabs.csv", "text\tn\na, b\t1\nc; d\t2\n", ["a, b", "c; d"]),
        ("commas.csv", 'text,n\n"a, b",1\nc; d,2\n', ["a, b", "c; d"]),
        ("carriage-returns.csv", 'text,score\r\n"a\rb",1\r\n"a\r\nb",2\r\n', ["a\rb", "a\r\nb"]),
        ("long.csv", f"text\n{LONG}\nb\n", [LONG, "b"]),
        ("long.tsv", f"text\n{LONG}\nb\n", [LONG, "b"]),
        ("empty-cells.tsv", "\ntext\tn\n\n\t\na\t1\n", ["", "a"]),
        ("blank-lines.csv", '\ntext\na\n\n""\nb\n\n', ["a", "", "b"]),
    ],
)
def test_texts_and_separators(tmp_path: Path, name: str, content: str, texts: list[str]) -> None:
    (tmp_path / name).write_bytes(content.encode())
    assert [row.values["text"] for row in located_rows(tmp_path / name)] == texts


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There are no files in"):
        located_rows(tmp_path / "sts12.jsonl")
    with pytest.raises(DataError, match="is a folder"):
        located_rows(tmp_path)


# -- texts without labels ---------------------------------------------------------------------------------------------


def test_texts_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes("one\r\n\ntwo\u2028more\n".encode())
    assert read_texts(file) == ["one", "", "two\u2028more"]
    for content, message in ((b"", "has no texts"), (b"a\n\xfc\n", r"lines.txt, line 2: not UTF-8")):
        file.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_texts(str(file))


def test_texts_of_columns(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("title,sentence1,sentence2\nt1,a,b\nt2,c,\n", encoding="utf-8")
    assert read_texts(rows) == ["a", "b", "c", ""]  # both sentences of pairs
    assert read_texts(rows, "title") == ["t1", "t2"]
    assert read_texts(rows, ["title", "sentence2"]) == ["t1", "b", "t2", ""]
    with pytest.raises(DataError, match=r"line 2: no column 'titel' .*--column.*Columns: 'title'"):
        read_texts(rows, "titel")
    rows.write_text("title,body\nt1,a\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"no column 'sentence1' .*or a column text; choose another with --column"):
        read_texts(rows)
    rows.write_text("Text,body\nt1,a\n", encoding="utf-8")
    assert read_texts(rows) == ["t1"]
