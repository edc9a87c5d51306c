"""Options that several commands share: one name, one letter and one meaning in every command.

An option with several values accepts them in a row or repeated: `-r mean cls`, `-r mean -r cls`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import CycloptsError, Group, Parameter
from cyclopts.validators import Number

from essent.errors import InputError
from essent.tasks.examples import ROLES, check_roles

INPUTS = Group("Inputs", sort_key=1)
OUTPUTS = Group("Outputs", sort_key=2)
RUN = Group("Run", sort_key=3)
ALWAYS = Group("Every command", sort_key=9)


def _check_stream(_: Any, words: Any) -> None:
    """Raise an error for unknown options of arguments that allow a leading hyphen."""
    for word in map(str, words if isinstance(words, list) else [words]):
        if word.startswith("-") and word != "-":
            raise CycloptsError(msg=f"Unknown option: {word}. Write ./{word} for a file of this name.")


def changes(options: Any) -> dict[str, Any]:
    """Return the options that differ from their defaults, by name."""
    return {
        option.name: getattr(options, option.name)
        for option in fields(options)
        if getattr(options, option.name) != option.default
    }


def refuse(options: Mapping[str, Any], reason: str) -> None:
    """Raise an error if one of these options is used.

    Raises:
        InputError: the first option that is not None, followed by the reason.
    """
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} {reason}")


def parse_columns(items: Sequence[str] | None) -> dict[str, str]:
    """Parse "text=body,label=category" to columns by role.

    Raises:
        InputError: an item without "=", an unknown role, or a role twice.
    """
    columns: dict[str, str] = {}
    for item in ",".join(items or ()).split(",") if items else ():
        role, equals, name = (part.strip() for part in item.partition("="))
        if not equals:
            raise InputError(f"--columns {item!r}: must be ROLE=COLUMN, such as text=body. Roles: {', '.join(ROLES)}.")
        if role in columns:
            raise InputError(f"--columns names two columns for {role!r}: {columns[role]!r} and {name!r}.")
        columns[role] = name
    check_roles(columns)
    return columns


Stream = Parameter(allow_leading_hyphen=True, validator=_check_stream)  # "-" is standard input or output


Model = Annotated[str, Parameter(alias="-m")]
Models = Annotated[list[str], Parameter(alias="-m")]
AnyModels = Annotated[list[str] | None, Parameter(alias="-m")]
Recipe = Annotated[str | None, Parameter(alias="-r")]
Recipes = Annotated[list[str] | None, Parameter(alias="-r")]
Texts = Annotated[list[Path], Parameter(alias="-t")]
Use = Annotated[Literal["similarity", "clusters", "classes", "retrieval"] | None, Parameter("--for")]
AnyTexts = Annotated[list[Path] | None, Parameter(alias="-t")]
Data = Annotated[list[str] | None, Parameter(alias="-d")]
Labels = Annotated[list[str] | None, Parameter(group=INPUTS)]
Folder = Annotated[Path | None, Parameter(group=INPUTS)]
Column = Annotated[str, Parameter(group=INPUTS)]
COLUMNS_HELP = f"Columns of labelled files, as ROLE=COLUMN: text=body,label=category. Roles: {', '.join(ROLES)}."
Columns = Annotated[list[str] | None, Parameter(group=INPUTS, help=COLUMNS_HELP)]
Fit = Annotated[list[Path] | None, Parameter(group=INPUTS)]
Output = Annotated[Path, Parameter(alias="-o")]
Json = Annotated[Path | None, Stream, Parameter(name="--json", group=OUTPUTS)]
Report = Annotated[Path | None, Parameter(group=OUTPUTS)]
Count = Annotated[int, Parameter(validator=Number(gte=1))]
BatchSize = Annotated[int, Parameter(validator=Number(gte=1), group=RUN)]
Precision = Annotated[Literal["auto", "float32", "bfloat16"], Parameter(group=RUN)]


@Parameter(name="*")
@dataclass(frozen=True)
class Run:
    """How a command runs a model and treats existing output."""

    device: Annotated[str | None, Parameter(group=RUN)] = None
    """cpu, cuda, cuda:1, mps … Default: a GPU if there is one, otherwise cpu."""
    trust_remote_code: Annotated[bool, Parameter(group=RUN)] = False
    """Run Python code that the model's repository or folder contains."""
    force: Annotated[bool, Parameter(alias="-f", group=OUTPUTS)] = False
    """Replace existing output."""

    @property
    def options(self) -> dict[str, Any]:
        """Return the keyword arguments for Encoder and evaluate that were set."""
        return self.hub_options if self.device is None else {"device": self.device, **self.hub_options}

    @property
    def hub_options(self) -> dict[str, Any]:
        """Return the keyword arguments for loading, without the device."""
        return {"trust_remote_code": True} if self.trust_remote_code else {}
