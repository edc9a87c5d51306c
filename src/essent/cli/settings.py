"""Options out of dataclasses: a field is an option, with the field's name, type and default.

A command takes such an object as a keyword argument, `settings` or another, and gets its options by `@with_options`:

    @with_options(Pretraining, {"untied": "What it starts from", "": "Learning"})
    def pretrain(texts: …, *, settings: Pretraining, quiet: opt.Quiet = False) -> None: …
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from typing import Annotated, Any

import typer

NAMES = re.compile(r"^    (\w+(?:, \w+)*): ")  # of a line in the docstring's list of attributes


def with_options(
    settings: type,
    panels: Mapping[str, str] | None = None,
    *,
    into: str = "settings",
    metavars: Mapping[str, str] | None = None,
    by_hand: Sequence[str] = (),
    preset: bool = False,
    environment: str | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put options of a settings class in the place of a command's argument.

    Args:
        settings: a dataclass. Its fields are options of their own (`opt.Quiet`), or its docstring says below
            "Attributes:" what each one is.
        panels: where an option of the second kind stands in the help, by its field; "" for all others.
        into: the command's argument.
        metavars: what stands for an option's value in the help, by its field; for words NAME by default.
        by_hand: fields that are no options, or options of the command itself.
        preset: every default is none, as something else decides; the command gets a dict of the values that were given.
        environment: what the names of environment variables begin with that may stand for the options; None: none may.
    """
    made = [
        parameter
        for parameter in _parameters(settings, panels or {}, metavars or {}, preset, environment)
        if parameter.name not in by_hand
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            values = {parameter.name: given.pop(parameter.name) for parameter in made}
            chosen = {name: value for name, value in values.items() if value is not None and value is not False}
            command(**given, **{into: chosen if preset else settings(**values)})

        signature = inspect.signature(command, eval_str=True)
        own = list(signature.parameters.values())
        place = [parameter.name for parameter in own].index(into)
        run.__signature__ = signature.replace(parameters=own[:place] + made + own[place + 1 :])  # type: ignore[attr-defined]
        return run

    return decorate


def _parameters(
    settings: type, panels: Mapping[str, str], metavars: Mapping[str, str], preset: bool, environment: str | None
) -> Iterator[inspect.Parameter]:
    kinds, helps = typing.get_type_hints(settings, include_extras=True), described(settings)
    for field in fields(settings):
        kind, default = kinds[field.name], None if preset or field.default is MISSING else field.default
        if typing.get_origin(kind) is not Annotated:
            words = str in (kind, *typing.get_args(kind))
            if kind is bool:
                default = bool(default)
            elif default is None:
                kind |= None
            option = typer.Option(
                f"--{field.name.replace('_', '-')}",
                metavar=metavars.get(field.name, "NAME" if words else None),
                help=helps[field.name],
                rich_help_panel=panels.get(field.name, panels.get("")),
                envvar=None if environment is None else environment + field.name.upper(),
            )
            kind = Annotated[kind, option]
        yield inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def described(settings: type) -> dict[str, str]:
    """What the docstring of a class says of each attribute, as one sentence or more; names in a row share it."""
    found: dict[str, str] = {}
    names: list[str] = []
    _, _, listed = (inspect.getdoc(settings) or "").partition("\nAttributes:\n")
    for line in listed.partition("\n\n")[0].split("\n"):
        if match := NAMES.match(line):
            names = match[1].split(", ")
            line = line[match.end() :]
        for name in names:
            found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return {name: _sentence(text.replace("`", "")) for name, text in found.items()}


def _sentence(text: str) -> str:
    """With a capital at its beginning, except where a symbol stands there."""
    return text[:1].upper() + text[1:] if text[:1].isascii() else text
