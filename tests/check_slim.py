"""What an installation without extras can do: run by `make check-slim` with the Python of one, and nothing mocked.

It has neither pytest nor torch, so the static folder is written by hand, as model2vec writes it.
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

import essent
from essent._core.lazy import IN_TORCH

INSTALL = 'pip install "essent[torch]"'
WORDS = "[UNK] a man dogs bark plays the flute".split()


def main() -> None:
    """Check, and print sizes and times."""
    site = Path(essent.__file__).parents[1]
    assert "site-packages" in site.parts, f"{site}: install the wheel"
    present = [name for name in IN_TORCH if importlib.util.find_spec(name)]
    assert not present, f"{present} are installed: this is no slim environment"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_static(folder / "static")
        (folder / "texts.txt").write_text("a man plays the flute\ndogs bark\n", "utf-8")
        start = time.perf_counter()
        run(folder, 0, "encode", "texts.txt", "-m", "static", "-o", "vectors.npy")
        seconds = time.perf_counter() - start
        expected = essent.StaticEncoder.load(folder / "static").encode(["a man plays the flute", "dogs bark"])
        np.testing.assert_array_equal(np.load(folder / "vectors.npy"), expected)
        for arguments in (["--help"], ["recipes"], ["recipes", "ditto:1-10"], ["evaluate", "--help"]):
            run(folder, 0, *arguments)
        for arguments in (
            ["evaluate", "-m", "bert-base-uncased"],
            ["encode", "texts.txt", "-m", "other", "-o", "x.npy"],
        ):
            assert INSTALL in run(folder, 2, *arguments)
    code = "import essent; essent.Encoder"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert INSTALL in done.stderr.splitlines()[-1], done.stderr
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    print(f"OK: {size / 1e6:.0f} MB in {site}; essent encode took {seconds:.1f} s")


def run(folder: Path, expected: int, *arguments: str) -> str:
    """Run the command line, which must end with this code and show no traceback; its standard error."""
    command = [str(Path(sys.executable).with_name("essent")), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8", input="")
    assert done.returncode == expected, f"{arguments}: {done.returncode}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr


def write_static(folder: Path) -> None:
    """Four numbers a word."""
    folder.mkdir()
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    rows = np.random.default_rng(0).standard_normal((len(WORDS), 4)).astype(np.float32)
    save_file({"embeddings": rows}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}), "utf-8")


if __name__ == "__main__":
    main()
