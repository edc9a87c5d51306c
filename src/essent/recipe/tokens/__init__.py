"""Texts to ids: the vocabulary, the frame of a template, batches by tokens, counts, the cache of words."""
