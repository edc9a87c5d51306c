"""Helpers independent of embeddings: checks of arguments and texts, atomic writes, registries, saved folders."""
