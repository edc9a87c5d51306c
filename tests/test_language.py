"""British spelling with -ize in pages, docstrings and comments; names in code follow the libraries that they extend."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from test_docs import PAGES, ROOT

FILES = sorted((ROOT / "src" / "essent").rglob("*.py"))
AMERICAN = r"\w*(?:color|behavior|center|label(?=ed|ing)|neighbor|favor(?!ite)|model(?=ed|ing)|cancel(?=ed))\w*"
STEMS = "normal|token|optim|initial|serial|recogn|organ|quant|minim|maxim|standard|summar|general|real|util"
WITH_S = rf"(?:{STEMS})is(?:e|ed|es|er|ers|ing|ation)\b"
WRONG = re.compile(rf"\b(?:{AMERICAN}|(?:un|re)?{WITH_S})", re.IGNORECASE)
CODE = re.compile(r"^```.*?^```|^ {4,}\S.*$|`[^`\n]*`|\]\([^)]*\)|\bhttps?://\S+", re.MULTILINE | re.DOTALL)


def prose_of(file: Path) -> Iterator[str]:
    """Docstrings, without their examples, and comments of a Python file."""
    source = file.read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
            yield re.sub(r"^ *(?:>>>|\.\.\.) .*$|`[^`]*`", "", text, flags=re.MULTILINE)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string and "type:" not in token.string:
            yield re.sub(r"`[^`]*`", "", token.string)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages(page: Path) -> None:
    assert WRONG.findall(CODE.sub("", page.read_text("utf-8"))) == []


def test_docstrings_and_comments() -> None:
    wrong = {file.relative_to(ROOT).as_posix(): WRONG.findall(" ".join(prose_of(file))) for file in FILES}
    assert {file: words for file, words in wrong.items() if words} == {}
