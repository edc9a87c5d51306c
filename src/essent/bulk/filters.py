"""`where`: which rows are kept, as a condition on the columns that is read and never run.

lang == "en" and year >= 2020        comparisons: == != < <= > >=, joined by and, or, not, with parentheses
source in ("wiki", "news")           one of several values; also: not in
title is not None                    there is a value; is None
meta.lang == "en"                    a field of a column of structures
column("my column") > 3              a column whose name is no single word
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from essent.bulk.places import EXTRA
from essent.types import DataError, InputError, optional_import

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
EXAMPLE = 'Write it like: lang == "en" and year >= 2020, source in ("wiki", "news"), title is not None.'


def parse_filter(text: str) -> tuple[Any, set[str]]:
    """Arrow's expression of a condition, and the columns that it reads.

    Raises:
        InputError: something that is no condition on columns; shows the part at fault.
    """
    arrow = optional_import("pyarrow.compute", EXTRA)
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(f"where={text!r} cannot be read ({error}). {EXAMPLE}") from None
    names: set[str] = set()
    return _Reader(text, arrow, names).condition(tree.body), names


class _Reader:
    def __init__(self, text: str, arrow: Any, names: set[str]) -> None:
        self.text, self.arrow, self.names = text, arrow, names

    def condition(self, node: ast.expr) -> Any:
        """And, or, not, or a comparison."""
        if isinstance(node, ast.BoolOp):
            join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            found = self.condition(node.values[0])
            for value in node.values[1:]:
                found = join(found, self.condition(value))
            return found
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self.condition(node.operand)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._comparison(node, node.ops[0], node.comparators[0])
        if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
            return self._column(node)  # of true and false
        raise self._error(node)

    def _comparison(self, node: ast.Compare, kind: ast.cmpop, right: ast.expr) -> Any:
        left = self._column(node.left)
        if isinstance(kind, (ast.Is, ast.IsNot)):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise self._error(node)
            return left.is_null() if isinstance(kind, ast.Is) else left.is_valid()
        if isinstance(kind, (ast.In, ast.NotIn)):
            if not isinstance(right, (ast.Tuple, ast.List, ast.Set)):
                raise self._error(node)
            found = left.isin([self._value(item) for item in right.elts])
            return found if isinstance(kind, ast.In) else ~found
        value = self._column(right) if isinstance(right, (ast.Name, ast.Attribute, ast.Call)) else self._value(right)
        return COMPARISONS[type(kind)](left, value)

    def _column(self, node: ast.expr) -> Any:
        path: list[str] = []
        inner = node
        while isinstance(inner, ast.Attribute):
            path.insert(0, inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            path.insert(0, inner.id)
        elif (
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Name)
            and inner.func.id == "column"
            and len(inner.args) == 1
            and isinstance(inner.args[0], ast.Constant)
        ):
            path.insert(0, str(inner.args[0].value))
        else:
            raise self._error(node)
        self.names.add(path[0])
        return self.arrow.field(*path)

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._value(node.operand)
            if isinstance(value, (int, float)):
                return -value
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, bool)):
            return node.value
        raise self._error(node)

    def _error(self, node: ast.expr) -> InputError:
        part = ast.get_source_segment(self.text.strip(), node) or self.text
        return InputError(f"where={self.text!r}: {part!r} is no condition on columns. {EXAMPLE}")


def check_filter(text: str, address: str, fields: list[Any]) -> None:
    """Try a condition on a file's columns.

    Raises:
        DataError: a column that the file lacks, or of a type that the condition does not fit.
    """
    arrow = optional_import("pyarrow", EXTRA)
    expression, names = parse_filter(text)
    known = {item.name: item for item in fields}
    missing = sorted(names - known.keys())
    if missing:
        raise DataError(f"{address}: where={text!r} asks for the column {missing[0]!r}; it has {', '.join(known)}.")
    try:
        arrow.schema(fields).empty_table().filter(expression)
    except arrow.ArrowException as error:
        kinds = ", ".join(f"{name} is {known[name].type}" for name in sorted(names))
        said = str(error).strip().splitlines()[0]
        raise DataError(f"{address}: where={text!r} does not fit the columns: {kinds} ({said}).") from error
