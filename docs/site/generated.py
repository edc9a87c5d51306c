"""Pages that are made from the code: the reference of names, commands and recipe parts, and the root's own pages."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from links import ROOT_PAGES, moved

ROOT = Path(__file__).parents[2]
# doors that users call, in the order of a first use
USERS = tuple(
    f"essent{door and '.'}{door}"
    for door in (
        " encoder recipe recipe.weighting recipe.shaping recipe.pooling recipe.types tasks tasks.sample "
        "tasks.calibration selection selection.mteb improvement report static model.word_vectors engine bulk training "
        "verification errors "
        "lab.explain lab.minimal_pairs lab.pretrain lab.reproduce lab.templates"
    ).split(" ")
)
# packages that only other packages of essent use: ARCHITECTURE.md describes them; `essent serve` is the server's door
INSIDE = {f"essent.{name}" for name in "_core cli portable saving model serving".split()}


def make_all(app: Any) -> None:
    """Sphinx's event: before the pages are looked for."""
    place = Path(app.srcdir) / "_generated"
    read = [*(ROOT / "src").rglob("*.py"), *Path(__file__).parent.glob("*.py"), *(ROOT / name for name in ROOT_PAGES)]
    stamp = place / "made"
    if stamp.is_file() and stamp.stat().st_mtime > max(file.stat().st_mtime for file in read):
        return  # without importing torch: a page that was edited is built in seconds
    pages = {
        **project_pages(),
        "reference/cli.md": command_page(),
        **api_pages(),
        "reference/parts.md": parts_page(),
    }
    for name, text in pages.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_file() or file.read_text("utf-8") != text:  # an unchanged page is not built again
            file.write_text(text, "utf-8")
    for file in [*place.rglob("*.md"), *place.rglob("*.rst")]:
        if file.relative_to(place).as_posix() not in pages:
            file.unlink()
    stamp.touch()


def project_pages() -> dict[str, str]:
    """Architecture, contributing, changelog."""
    return {f"project/{name}.md": moved((ROOT / file).read_text("utf-8")) for file, name in ROOT_PAGES.items()}


# -- commands ---------------------------------------------------------------------------------------------------------


def command_page() -> str:
    """Every command of `essent`, by cyclopts' own documentation of it."""
    from cyclopts.docs import generate_markdown_docs

    from essent.cli.app import app

    lab = app["lab"]
    for group in (lab, lab["minimal-pairs"], lab["explain"]):  # the generator does not inherit it, as a run does
        group.default_parameter = app.default_parameter
    with patch.object(sys, "argv", ["essent"]):  # lines of usage have the name of the running program, python -m sphinx
        page = generate_markdown_docs(app, generate_toc=False, exclude_commands=["--install-completion"])
    page = page.replace("**Commands**", f"{app.help_epilogue}\n**Commands**", 1)  # exit codes, which it leaves out
    return page.replace("# essent", "# The command line", 1)


# -- names ------------------------------------------------------------------------------------------------------------


def api_pages() -> dict[str, str]:
    """One page a door: every name of its `__all__`."""
    names = sorted(set(doors()), key=lambda name: (USERS.index(name) if name in USERS else len(USERS), name))
    found = {name: importlib.import_module(name) for name in names}
    homes: dict[int, str] = {}
    for name in [*names[1:], names[0]]:  # a name of `essent` itself is described where it is from
        for public in public_names(found[name]):
            homes.setdefault(id(getattr(found[name], public)), name)
    pages = {f"reference/api/{name}.rst": door_page(name, module, homes) for name, module in found.items()}
    users = "\n   ".join(name for name in USERS if name in found)
    inner = "\n   ".join(sorted(set(found) - set(USERS)))
    index = (
        f"Names in Python\n===============\n\nEvery public name, by the package that it is imported from.\n\n"
        f"What users call\n---------------\n\n.. toctree::\n   :maxdepth: 1\n\n   {users}\n\n"
        f"The parts inside\n----------------\n\nFor those who extend essent.\n\n"
        f".. toctree::\n   :maxdepth: 1\n\n   {inner}\n"
    )
    return {"reference/api/index.rst": index, **pages}


def doors() -> Iterator[str]:
    """Packages and modules of essent with an `__all__`; files inside packages are their own affair."""
    import essent
    from essent import lab

    yield "essent"
    modules = [*pkgutil.iter_modules(essent.__path__, "essent."), *pkgutil.iter_modules(lab.__path__, "essent.lab.")]
    for module in modules:
        if module.name in (*INSIDE, "essent.lab"):
            continue
        if module.ispkg or module.name in USERS or hasattr(importlib.import_module(module.name), "__all__"):
            yield module.name
    yield from (name for name in USERS if name.count(".") == 2 and not name.startswith("essent.lab."))


def door_page(name: str, module: Any, homes: dict[int, str]) -> str:
    """The page of one door; `homes` has for every object the door where it is described."""
    lines = [name, "=" * len(name), "", f".. automodule:: {name}", "   :no-members:", ""]
    for public in public_names(module):
        value = getattr(module, public)
        lines.extend([*entry(name, public, value, homes[id(value)]), ""])
    return "\n".join(lines) + "\n"


def public_names(module: Any) -> Iterable[str]:
    """What the door names, what `essent` itself has first; or, without `__all__`, what the file defines."""
    if hasattr(module, "__all__"):
        import essent

        names = sorted(module.__all__, key=lambda name: name not in essent.__all__)
        return [name for name in names if not inspect.ismodule(getattr(module, name)) and name != "__version__"]
    return [
        n for n, v in vars(module).items() if not n.startswith("_") and getattr(v, "__module__", "") == module.__name__
    ]


def entry(door: str, name: str, value: Any, home: str) -> list[str]:
    """The directive of one name, or where it is described."""
    if home != door and callable(value):
        return [f"* :py:obj:`{door}.{name} <{home}.{name}>`: {summary(value)}"]
    if inspect.isclass(value):
        members = [] if issubclass(value, tuple) else ["   :members:"]  # a named tuple's are in its signature
        return [f".. autoclass:: {door}.{name}", *members, "   :show-inheritance:"]
    if inspect.isroutine(value):
        return [f".. autofunction:: {door}.{name}"]
    return [f".. py:data:: {door}.{name}", "", f"   {described(value)}"]


def summary(value: Any) -> str:
    """The first line of a docstring."""
    from docstrings import escaped

    return escaped((inspect.getdoc(value) or "").partition("\n")[0]) if callable(value) else described(value)


def described(value: Any) -> str:
    """A constant in words: itself where it is short."""
    kind, text = type(value).__name__, repr(value)
    if len(text) < 100 and "`" not in text and " at 0x" not in text:
        return f"``{kind}``: ``{text}``"
    keys = (
        [str(key) for key in value if isinstance(key, str)]
        if isinstance(value, (dict, tuple, list, set, frozenset))
        else []
    )
    if keys and max(map(len, keys)) < 40:
        return f"``{kind}`` of {len(keys)}: {', '.join(f'``{key}``' for key in keys)}"
    return f"``{kind}``" + (f" of {len(value)}" if hasattr(value, "__len__") else "")


# -- recipe parts -----------------------------------------------------------------------------------------------------


def parts_page() -> str:
    """What the registries know, each with its arguments and its docstring, and a recipe that uses it."""
    from essent.recipe.layers import token_tables
    from essent.recipe.named import NAMED, TEMPLATES
    from essent.recipe.pooling import reductions
    from essent.recipe.shaping.base import shapers
    from essent.recipe.weighting.base import weightings

    kinds = (
        ("Token weights ω, field `weights`", weightings, "layers=0+L weights={}"),
        ("Reductions Σ, field `reduce`", reductions, "layers=L reduce={}"),
        ("Shaping g, `| step`", shapers, "mean | {}"),
        ("Tables of vectors by token, field `layers`", token_tables, "layers={}"),
    )
    lines = [
        "# Recipe parts",
        "",
        "Made from the registries that read recipes. [Recipes](../../recipes.md) explains the equation and the text.",
        "",
    ]
    for title, registry, text in kinds:
        lines.extend([f"## {title}", ""])
        for name in registry:
            lines.extend(_part(name, registry, text))
    lines.extend(["## Templates", "", "| name | template |", "|---|---|"])
    lines.extend(f"| `{name}` | `{text}` |" for name, text in TEMPLATES.items())
    lines.extend(["", "## Named recipes", "", "| recipe | in fields | what it does | source |", "|---|---|---|---|"])
    for row in NAMED.values():
        spelled = f"{row.name}:{row.argument.upper()}" if row.argument else row.name
        fields = (row.text.format(row.argument.upper()) if row.argument else row.text).replace("|", "\\|")
        lines.append(f"| `{spelled}` | `{fields}` | {row.about} | {row.paper}, {row.section} |")
    return "\n".join(lines) + "\n"


EXAMPLES = {"ditto": "ditto:1-10", "avg": "avg:FOLDER"}


def _part(name: str, registry: Any, text: str) -> list[str]:
    part = registry._parts[name]
    parameters = [p for p in inspect.signature(part).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    arguments = ", ".join(p.name if p.default in (p.empty, "") else f"{p.name} = {p.default}" for p in parameters)
    about = re.sub(r"([*<>\[\]])", r"\\\1", _outside_code(inspect.getdoc(part) or ""))
    example = text.format(EXAMPLES.get(name, name))
    return [
        f"### `{name}`",
        "",
        f"Arguments: {arguments}." if arguments else "No arguments.",
        "",
        about,
        "",
        f"Example: `{example}`",
        "",
    ]


def _outside_code(text: str) -> str:
    """The part of a docstring before its first section or example."""
    return re.split(r"^(?:Args|Attributes|Raises|Returns|Example):|\n\n {4}", text, flags=re.MULTILINE)[0].strip()


def setup(app: Any) -> dict[str, bool]:
    """Listen."""
    app.connect("builder-inited", make_all)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
