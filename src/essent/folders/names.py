"""Names of files in a model's folder."""

from __future__ import annotations

from fnmatch import fnmatch

STATE_FOLDER = "essent"  # what essent itself writes into a folder
# Files that libraries look for in a model's folder. Others may lie there: nobody opens them.
READ = (
    "*config*.json",
    "modules.json",
    "*.safetensors",
    "*.index.json",
    "pytorch_model*",
    "adapter_*",
    "model.bin",
    "*.model",
    "*.tiktoken",
    "*token*.json",
    "vocab*",
    "merges.txt",
    "*.py",
    "*.jinja",
    "chat_template*",
    "model.xml",
    "*.onnx*",
)


def is_read(name: str) -> bool:
    """Whether libraries look for a file of this name in a model's folder."""
    return any(fnmatch(name, pattern) for pattern in READ)
