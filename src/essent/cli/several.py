"""Options that are given more than once: those that take several values collect them, any other one is refused.

An option takes several values when its type is a list. They are repeated (`-r mean -r cls`) or separated by commas
(`-r mean,cls`), in every command. Free text (`--template`) is only repeated: its commas are its own.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from typer.core import TyperCommand

from essent.types import EssentError, InputError

T = TypeVar("T")
N = TypeVar("N", int, float)
QUOTED_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|,')


class Command(TyperCommand):
    """A command that refuses an option given twice where it takes one value; of two, click silently keeps the last.

    The help of an option says when it takes several.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        parameters: list[Any] = [parameter for parameter in self.params if _takes_several(parameter)]
        for parameter in parameters:
            how = "repeat it, or use commas" if parameter.callback else "repeat it"
            parameter.help = f"{parameter.help} Several: {how}."

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, once with every option collecting its values to see which come twice."""
        args = self._with_defaults(list(args))
        if not ctx.resilient_parsing:  # which completes half a line
            self._refuse_repeated(ctx, list(args))
        return super().parse_args(ctx, args)

    def _with_defaults(self, args: list[str]) -> list[str]:
        """Give an option whose metavar says that its value may be left out the value auto, where none follows it."""
        names = {name for parameter in self.params for name in parameter.opts if str(parameter.metavar).startswith("[")}
        ends = args.index("--") if "--" in args else len(args)
        for place in range(ends - 1, -1, -1):
            if args[place] in names and (place + 1 == len(args) or args[place + 1].startswith("-")):
                args.insert(place + 1, "auto")
        return args

    def _refuse_repeated(self, ctx: Any, args: list[str]) -> None:
        collecting = copy.copy(self)
        collecting.params = [_collecting(parameter) for parameter in self.params]
        given, _, _ = collecting.make_parser(ctx).parse_args(args)
        if given.get("help"):
            return
        several = [_shown(parameter) for parameter in self.params if _takes_several(parameter)]
        for parameter in self.params:
            values = given.get(parameter.name or "")
            if _takes_one(parameter) and values is not None and len(values) > 1:
                others = f" Options of {ctx.command_path} that take several: {', '.join(several)}." if several else ""
                raise InputError(
                    f"{_shown(parameter)} takes one value and was given {len(values)}: "
                    f"{', '.join(repr(str(value)) for value in values)}.{others}"
                )


def _takes_several(parameter: Any) -> bool:
    return parameter.param_type_name == "option" and bool(parameter.multiple)


def _takes_one(parameter: Any) -> bool:
    """Whether a parameter is an option with one value; a flag has none, and given twice it says the same."""
    flag = getattr(parameter, "is_flag", False) or getattr(parameter, "count", False)
    return parameter.param_type_name == "option" and not flag and not parameter.multiple


def _collecting(parameter: Any) -> Any:
    if not _takes_one(parameter):
        return parameter
    changed = copy.copy(parameter)
    changed.multiple = True
    return changed


def _shown(parameter: Any) -> str:
    """The longest spelling of an option, `--model`."""
    return str(max(parameter.opts, key=len))


# -- values at commas: callbacks of options whose type is a list -------------------------------------------------------


def names(given: list[str] | None) -> list[str] | None:
    """Plain names and patterns."""
    return _each(_at_commas, given)


def numbers(option: str, given: list[str] | None, kind: type[N]) -> list[N]:
    """The numbers of an option, of a kind.

    Raises:
        InputError: one of them is none.
    """
    try:
        return [kind(number) for number in given or ()]
    except ValueError:
        whole = "whole numbers such as 8,16,64" if kind is int else "numbers"
        raise InputError(f"{option} takes {whole}, not {', '.join(given or ())}.") from None


def files(given: list[Path] | None) -> list[Path] | None:
    """Files and folders; one with a comma in its name stays whole."""
    return _each(lambda item: [item] if item.exists() else [Path(part) for part in _at_commas(str(item))], given)


def models(given: list[str] | None) -> list[str] | None:
    """Names on the hub and folders, perhaps after ROLE=; each different one once, as a second would give the same."""
    return _distinct(_each(lambda item: [item] if _exists(item.rpartition("=")[2]) else _at_commas(item), given))


def criteria(given: list[str] | None) -> list[str] | None:
    """Criteria of a search with their arguments; each different one once."""

    def known(text: str) -> bool:
        from essent.selection import criteria as registered
        from essent.tasks import SCORE_NAMES

        return text in SCORE_NAMES or _works(registered.create, text)

    return _distinct(_each(lambda item: _specs(item, known), given))


def tasks(given: list[str] | None) -> list[str] | None:
    """Tasks, groups, which become their tasks, and files, also as kind:FILE; each different one once."""
    if not given:
        return given
    from essent.tasks import CLASSIFICATION12, CLUSTERING6, STS7, TRANSFER7

    groups = {"sts7": STS7, "transfer7": TRANSFER7, "classification12": CLASSIFICATION12, "clustering6": CLUSTERING6}
    found = _each(lambda item: [item] if _is_one_file(item) else _at_commas(item), given)
    return _distinct(_each(lambda name: list(groups.get(name.lower(), (name,))), found))


def recipes(given: list[str] | None) -> list[str] | None:
    """Recipes; commas in quotes belong to a template, those of arguments (`quantile:1000,10000`) to their recipe."""
    from essent.recipe import Recipe

    return _each(lambda item: _specs(item, lambda text: _works(Recipe.parse, text)), given)


def _each(split: Callable[[T], list[T]], given: list[T] | None) -> list[T] | None:
    """The values that each item splits into.

    Raises:
        InputError: commas with nothing between them.
    """
    if not given:
        return given
    if not (found := [part for item in given for part in split(item)]):
        raise InputError(f"{', '.join(repr(str(item)) for item in given)} holds no value; commas separate several.")
    return found


def _distinct(given: list[str] | None) -> list[str] | None:
    return list(dict.fromkeys(given)) if given else given


def _specs(item: str, known: Callable[[str], bool]) -> list[str]:
    """Cut at commas outside quotes, except before an argument.

    An argument is no name by itself, and makes one with what stands before it.
    """
    cuts = [found.start() for found in QUOTED_OR_COMMA.finditer(item) if found[0] == ","]
    if not cuts:
        return [item]
    whole: list[str] = []
    for start, end in zip([-1, *cuts], [*cuts, len(item)], strict=True):
        part = item[start + 1 : end].strip()
        if whole and part and not known(part) and known(f"{whole[-1]},{part}"):
            whole[-1] += f",{part}"
        elif part:
            whole.append(part)
    return whole


def _works(read: Callable[[str], Any], text: str) -> bool:
    try:
        read(text)
    except EssentError:
        return False
    return True


def _at_commas(item: str) -> list[str]:
    return [part.strip() for part in item.split(",") if part.strip()]


def _exists(name: str) -> bool:
    return bool(name) and Path(name).exists()


def _is_one_file(item: str) -> bool:
    kind, _, rest = item.partition(":")
    return Path(item).is_file() or ("," not in kind and Path(rest).is_file())
