"""Word vectors from files (GloVe, word2vec, fastText) as static models."""

from essent.model.word_vectors.files import WordVectors, is_word_vectors, read_word_vectors
from essent.model.word_vectors.model import word_model

__all__ = ["WordVectors", "is_word_vectors", "read_word_vectors", "word_model"]
