"""The name by which folders saved between 0.1.0 and the sixteen packages call `portable`."""

from essent.portable import load_folder

__all__ = ["load_folder"]
