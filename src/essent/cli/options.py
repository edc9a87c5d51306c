"""Options that several commands share: one name, one letter and one meaning in every command.

An option that takes several values takes them after one another or repeated: `-r mean cls`, `-r mean -r cls`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import CycloptsError, Group, Parameter
from cyclopts.validators import Number

from essent.errors import InputError

INPUTS = Group("Inputs", sort_key=1)
OUTPUTS = Group("Outputs", sort_key=2)
RUN = Group("Run", sort_key=3)
ALWAYS = Group("Every command", sort_key=9)


def _check_stream(_: Any, words: Any) -> None:
    """Refuse unknown options where a leading hyphen is allowed."""
    for word in map(str, words if isinstance(words, list) else [words]):
        if word.startswith("-") and word != "-":
            raise CycloptsError(msg=f"Unknown option: {word}. A file of that name is ./{word}.")


def changes(options: Any) -> dict[str, Any]:
    """The options of a class that differ from their defaults, by name."""
    values = ((part.name, getattr(options, part.name), part.default) for part in fields(options))
    return {name: value for name, value, default in values if value != default}


def refuse(options: Mapping[str, Any], reason: str) -> None:
    """Refuse options that do not go with others.

    Raises:
        InputError: the first of them that has a value, and why not.
    """
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} {reason}")


Stream = Parameter(allow_leading_hyphen=True, validator=_check_stream)  # "-" is standard input or output


Model: TypeAlias = Annotated[str, Parameter(alias="-m")]
Models: TypeAlias = Annotated[list[str], Parameter(alias="-m")]
AnyModels: TypeAlias = Annotated[list[str] | None, Parameter(alias="-m")]
Recipe: TypeAlias = Annotated[str | None, Parameter(alias="-r")]
Recipes: TypeAlias = Annotated[list[str] | None, Parameter(alias="-r")]
Texts: TypeAlias = Annotated[list[Path], Parameter(alias="-t")]
AnyTexts: TypeAlias = Annotated[list[Path] | None, Parameter(alias="-t")]
Data: TypeAlias = Annotated[list[str] | None, Parameter(alias="-d")]
Labels: TypeAlias = Annotated[list[str] | None, Parameter(group=INPUTS)]
Folder: TypeAlias = Annotated[Path | None, Parameter(group=INPUTS)]
Column: TypeAlias = Annotated[str, Parameter(group=INPUTS)]
Fit: TypeAlias = Annotated[list[Path] | None, Parameter(group=INPUTS)]
Output: TypeAlias = Annotated[Path, Parameter(alias="-o")]
Json: TypeAlias = Annotated[Path | None, Stream, Parameter(name="--json", group=OUTPUTS)]
Report: TypeAlias = Annotated[Path | None, Parameter(group=OUTPUTS)]
Count: TypeAlias = Annotated[int, Parameter(validator=Number(gte=1))]
BatchSize: TypeAlias = Annotated[int, Parameter(validator=Number(gte=1), group=RUN)]
MaxSeqLength: TypeAlias = Annotated[int | None, Parameter(validator=Number(gte=1), group=RUN)]
Engine: TypeAlias = Annotated[Literal["auto", "torch", "openvino", "onnx"], Parameter(group=RUN)]
Precision: TypeAlias = Annotated[Literal["auto", "float32", "bfloat16"], Parameter(group=RUN)]


@Parameter(name="*")
@dataclass(frozen=True)
class Run:
    """How a command runs a model, and what it says meanwhile."""

    device: Annotated[str | None, Parameter(group=RUN)] = None
    """cpu, cuda, cuda:1, mps … The best available device by default."""
    trust_remote_code: Annotated[bool, Parameter(group=RUN)] = False
    """Run Python code from the model's folder."""
    force: Annotated[bool, Parameter(alias="-f", group=OUTPUTS)] = False
    """Replace existing output."""

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments for Encoder and evaluate: those that were given."""
        return self.hub_options if self.device is None else {"device": self.device, **self.hub_options}

    @property
    def hub_options(self) -> dict[str, Any]:
        """Keyword arguments for loading, without the device."""
        return {"trust_remote_code": True} if self.trust_remote_code else {}
