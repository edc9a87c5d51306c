"""Files of word vectors (GloVe, word2vec, fastText) as models."""

from essent.model.word_vectors.files import WordVectors, read_word_vectors
from essent.model.word_vectors.model import word_model

__all__ = ["WordVectors", "read_word_vectors", "word_model"]
