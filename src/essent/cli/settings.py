"""Options out of classes and signatures: a field or an argument is an option, with its name, type, default and help.

The help stands in the docstring, below "Attributes:" or "Args:". What else an option has (a letter, a placeholder, a
callback that cuts at commas) is in its type: `Folder = Annotated[Path | None, typer.Option(metavar="DIR")]`.

    @with_help({"Texts": "held_out", "What it starts from": "config tokenizer"})
    @with_options(Pretraining, {"untied": "What it starts from", "": "Learning"})
    def pretrain(texts: …, held_out: opt.Files = None, *, settings: Pretraining, quiet: opt.Quiet = False) -> None: …
"""

from __future__ import annotations

import copy
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from typing import Annotated, Any

import typer

from essent.cli import several

LIST = re.compile(r"\n(?:Attributes|Args):\n")
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
        settings: a dataclass. Its docstring says below "Attributes:" what a field is, or its type does (`opt.Quiet`).
        panels: where a field of the docstring stands in the help, by its name; "" for all others.
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


def with_help(panels: Mapping[str, str] | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command's own options the help that its docstring has below "Args:".

    Args:
        panels: where they stand in the help, the names of a panel's options after one another.
    """
    place = {name: panel for panel, names in (panels or {}).items() for name in names.split()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature, helps = inspect.signature(command, eval_str=True), described(command)
        if unknown := place.keys() - helps.keys():
            raise ValueError(f"The docstring of {command.__name__} does not describe {', '.join(sorted(unknown))}.")
        own = [
            parameter.replace(annotation=_option(parameter.name, parameter.annotation, helps, place))
            if parameter.name in helps
            else parameter
            for parameter in signature.parameters.values()
        ]
        command.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        return command

    return decorate


def _parameters(
    settings: type, panels: Mapping[str, str], metavars: Mapping[str, str], preset: bool, environment: str | None
) -> Iterator[inspect.Parameter]:
    kinds, helps = typing.get_type_hints(settings, include_extras=True), described(settings)
    for field in fields(settings):
        kind, default = kinds[field.name], None if preset or field.default is MISSING else field.default
        if typing.get_origin(kind) is not Annotated:
            if kind is bool:
                default = bool(default)
            elif default is None:
                kind |= None
        if field.name in helps:
            kind = _option(field.name, kind, helps, panels, metavars, environment)
        yield inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _option(
    name: str,
    kind: Any,
    helps: Mapping[str, str],
    panels: Mapping[str, str],
    metavars: Mapping[str, str] | None = None,
    environment: str | None = None,
) -> Any:
    """The type with an option in it: the one that it has, or a plain one, with help and panel."""
    if typing.get_origin(kind) is Annotated:
        kind, option = typing.get_args(kind)
        option = copy.copy(option)
    else:
        words = str in (kind, *typing.get_args(kind))
        many = any(typing.get_origin(part) is list for part in (kind, *typing.get_args(kind)))
        option = typer.Option(
            f"--{name.replace('_', '-')}",
            metavar="NAME" if words else None,
            callback=several.names if many else None,
        )
    option.help, option.rich_help_panel = helps[name], panels.get(name, panels.get(""))
    option.metavar = (metavars or {}).get(name, option.metavar)
    if environment is not None:
        option.envvar = environment + name.upper()
    return Annotated[kind, option]


def described(documented: Any) -> dict[str, str]:
    """What a docstring says of each attribute or argument, as one sentence or more; names in a row share it."""
    found: dict[str, str] = {}
    names: list[str] = []
    _, *listed = LIST.split(inspect.getdoc(documented) or "", maxsplit=1)
    for line in "".join(listed).partition("\n\n")[0].split("\n"):
        if match := NAMES.match(line):
            names = match[1].split(", ")
            line = line[match.end() :]
        for name in names:
            found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return {name: _sentence(text.replace("`", "")) for name, text in found.items()}


def _sentence(text: str) -> str:
    """With a capital at its beginning, except where a symbol stands there."""
    return text[:1].upper() + text[1:] if text[:1].isascii() else text
