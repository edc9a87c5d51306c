"""The name by which folders that were saved before 0.2 call `portable`."""

from essent.portable import load_folder

__all__ = ["load_folder"]
