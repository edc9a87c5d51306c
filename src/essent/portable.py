"""What folders of version 0.1 import when plain sentence-transformers loads them; later ones import `essent.saving`."""

from essent.saving.load import load_folder

__all__ = ["load_folder"]
