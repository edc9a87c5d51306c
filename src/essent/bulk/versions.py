"""Versions of the libraries that vectors depend on, for the parts' footers."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from essent.version import __version__

LIBRARIES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "numpy",
    "pyarrow",
    "openvino",
    "onnxruntime",
)


def library_versions() -> dict[str, str]:
    """Those of essent and of the libraries that are installed."""
    found = {"essent": __version__}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
