"""The former name of `portable`, which folders saved by early versions import."""

from essent.portable import load_folder

__all__ = ["load_folder"]
