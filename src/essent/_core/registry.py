"""Registries of recipe parts by name: "idf", "ditto:1-10", "abtt:2"; one registry per kind of part.

A spec is `name` or `name:argument[,argument…]`, with arguments positional or `key=value`; numbers are converted.
Other packages add parts through the entry-point groups `essent.weightings`, `essent.shapers`, `essent.tables` and
`essent.reductions`.
"""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from essent.errors import RecipeError, UnknownNameError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

logger = logging.getLogger(__name__)
T = TypeVar("T")
Argument = int | float | str
# cached: reading a signature takes longer than the rest of a spec, and a search has thousands of specs
signature_of: Callable[[Any], inspect.Signature] = cache(inspect.signature)


def did_you_mean(name: str, known: list[str]) -> str:
    """Return a sentence with the nearest known names, or with all of them if none is near."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(repr(n) for n in near)}?"
    return f"Known: {', '.join(sorted(known))}."


def parse_argument(text: str) -> Argument:
    """Convert a number: "2" -> 2, "1e-3" -> 0.001, "1-10" -> "1-10"."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def split_spec(spec: str) -> tuple[str, list[Argument], dict[str, Argument]]:
    """Split "name:a,b,key=c" into its name, positional and keyword arguments."""
    name, colon, arguments = spec.strip().partition(":")
    positional: list[Argument] = []
    keyword: dict[str, Argument] = {}
    if colon and not arguments.strip():
        raise RecipeError(f"{spec!r} ends in ':' without an argument. Write {name!r} alone, or add an argument.")
    for piece in filter(None, (p.strip() for p in arguments.split(","))):
        key, equals, value = piece.partition("=")
        if equals:
            keyword[key.strip()] = parse_argument(value.strip())
        elif keyword:
            raise RecipeError(
                f"{spec!r}: the positional argument {piece!r} follows a key=value argument. Put it before."
            )
        else:
            positional.append(parse_argument(piece))
    return name.strip(), positional, keyword


@cache  # it reads a file of every installed package
def _all_offered() -> Any:
    from importlib.metadata import entry_points  # late: a graph, which parses no recipe, starts without it

    return entry_points()


def offered(group: str) -> EntryPoints:
    """Return the entry points of other packages in a group."""
    points: EntryPoints = _all_offered().select(group=group)
    return points


class Registry(Generic[T]):
    """Parts of one kind by name, with did-you-mean errors.

    Args:
        kind: the kind of part in messages, e.g. "token weighting".
        group: the entry-point group for parts of this kind in other packages.
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._parts: dict[str, type[T]] = {}
        self._plugins_loaded = False

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Return a class decorator that registers a part as `name`.

        Raises:
            ValueError: the name is taken.
        """

        def add(part: type[T]) -> type[T]:
            if name in self._parts and self._parts[name] is not part:
                raise ValueError(f"The {self.kind} name {name!r} is taken by {self._parts[name].__qualname__}.")
            self._parts[name] = part
            part.name = name  # type: ignore[attr-defined]
            return part

        return add

    def _load_plugins(self) -> None:
        if self._plugins_loaded:
            return
        self._plugins_loaded = True
        for point in offered(self.group):
            try:
                part = point.load()
                if not isinstance(part, type):
                    raise TypeError(f"{part} is not a class")
                self.register(point.name)(part)
            except Exception as error:  # the import of another package raises any class
                logger.warning(
                    "The entry point of the %s %r, %r, fails and is ignored: %s: %s",
                    self.kind, point.name, point.value, type(error).__name__, error,
                )  # fmt: skip

    def __iter__(self) -> Iterator[str]:
        self._load_plugins()
        return iter(sorted(self._parts))

    def __contains__(self, name: object) -> bool:
        self._load_plugins()
        return name in self._parts

    def __getitem__(self, name: str) -> type[T]:
        self._load_plugins()
        try:
            return self._parts[name]
        except KeyError:
            raise UnknownNameError(f"Unknown {self.kind} {name!r}. {did_you_mean(name, list(self))}") from None

    def package_of(self, name: str) -> str | None:
        """Return the package that contains a part; None for essent's own."""
        package = self[name].__module__.partition(".")[0]
        return None if package == "essent" else package

    def create(self, spec: str) -> T:
        """Build the part that `spec` names, e.g. "abtt:2".

        Raises:
            UnknownNameError: an unknown name.
            RecipeError: wrong arguments; the message shows the signature.
        """
        name, positional, keyword = split_spec(spec)
        part = self[name]
        signature = signature_of(part)
        try:
            signature.bind(*positional, **keyword)
        except TypeError as error:
            parameters = ", ".join(str(p) for p in signature.parameters.values()) or "none"
            raise RecipeError(f"{self.kind} {spec!r}: {error}. Arguments of {name!r}: {parameters}.") from None
        return part(*positional, **keyword)


def format_spec(name: str, values: dict[str, Any], defaults: dict[str, Any]) -> str:
    """Return the shortest spec from which `create` builds the same part, without defaults."""
    changed = {key: value for key, value in values.items() if value != defaults.get(key)}
    if not changed:
        return name
    keys = list(values)
    first = len(changed)
    if list(changed) == keys[:first]:  # the first arguments of the signature are written without their names
        return f"{name}:{','.join(str(v) for v in changed.values())}"
    return f"{name}:{','.join(f'{k}={v}' for k, v in changed.items())}"
