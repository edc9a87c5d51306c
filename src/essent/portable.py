"""The entry point that saved folders import when plain sentence-transformers loads them."""

from essent.encoder.load import load_folder

__all__ = ["load_folder"]
