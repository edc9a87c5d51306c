"""Runs of `essent.encode` on a Ray cluster that a command line cannot ask for.

python ray_runs.py CASE ADDRESS MODEL     prints what was done with a.txt, or what is wrong
"""

import sys
from dataclasses import replace
from pathlib import Path

import fsspec

import essent
from essent.bulk import ray_cluster


def main(case: str, address: str, model: str) -> None:
    source = "a.txt"
    if case == "unseen source":  # in the memory of a node there is no such file
        fsspec.filesystem("memory").pipe_file("/a.txt", b"one\ntwo\n")
        source = "memory://a.txt"
    elif case == "unseen output":
        sendable = ray_cluster.sendable  # as where the nodes have another folder of this name
        ray_cluster.sendable = lambda job: replace(sendable(job), folder=Path("elsewhere").absolute())
    try:
        run = essent.encode(source, model, "out", ray=address, rows_per_part=20, workers=7)
    except essent.EssentError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print(f"{run.rows} rows, {run.resumed} resumed")


if __name__ == "__main__":
    main(*sys.argv[1:])
