"""`essent check`: problems of a model, and its comparison with the saved state or with a server."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from cyclopts import Parameter

from essent._core.atomic import write_json
from essent.cli import options as opt
from essent.cli.console import is_quiet, is_stream, show_lines, show_note, silence_libraries
from essent.cli.files import check_output, read_files, write_json_file

PROBLEMS = 3  # exit code: neither a damaged folder (1) nor wrong input (2)


def check(
    model: Annotated[str, Parameter(name="MODEL")],
    /,
    *,
    texts: opt.AnyTexts = None,
    column: opt.Column = "text",
    skip: list[str] | None = None,
    files_only: bool = False,
    against: str | None = None,
    json_file: opt.Json = None,
    run: opt.Run = opt.Run(),
) -> int | None:
    """Find problems of a model, with the command that fixes each.

    If essent saved the folder, its files are first compared with their SHA-256 digests, and the vectors of a few texts
    with those stored when it was saved (golden vectors), in every way of loading it. A difference above 1e-5 gives exit
    code 1.

    The health checks then cover the texts (truncation, unknown tokens), the folder (prompts, pooling) and the vectors
    (infinite numbers, a dominating dimension, average cosine). Problems give exit code 3.

    ```console
    $ essent check ./my-encoder
    $ essent check all-MiniLM-L6-v2 --texts texts.txt
    $ essent check ./my-encoder --against http://127.0.0.1:8080
    $ essent check ./untrusted --files-only
    ```

    Args:
        model: A model on the hub, a folder, or an exported graph.
        texts: Texts like those that you will encode. Default: 320 English sentences of essent's own.
        column: Column with the texts, in .jsonl, .csv, .tsv and .parquet files.
        skip: Checks to skip, by their names in the output.
        files_only: Compare the files with their digests, and load nothing (for untrusted folders).
        against: Compare the vectors with those of a server with OpenAI's /v1/embeddings at this address, instead of
            running the health checks.
        json_file: Also write the problems as JSON; - is standard output.
    """
    health_options = {"--texts": texts, "--skip": skip, "--json": json_file}
    if files_only:
        opt.refuse({**health_options, "--against": against}, "cannot be combined with --files-only.")
    if against is not None:
        opt.refuse(health_options, "is for the health checks, which --against replaces. Omit one of them.")
    check_output(json_file, run.force)
    sample = None if texts is None else read_files(texts, column)
    from essent.verification.report import check as check_model

    silence_libraries()
    report = check_model(model, sample, against=against, skip=skip or (), files_only=files_only, **run.options)
    write_json_file(json_file, partial(write_json, value=report.to_dict(), indent=1))
    if not is_quiet() and not is_stream(json_file):
        show_lines(report.summary())
    if report.left_out:
        show_note(report.left_out)
    return None if report.healthy else PROBLEMS
