"""Small helpers that know nothing of embeddings: errors, texts as users give them, whole files, registries, folders."""
