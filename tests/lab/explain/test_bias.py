"""Token maps: principal components, frequency, sub-words and case of the tokens."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertTokenizer

from essent.errors import InputError
from essent.lab.explain.bias import draw_bias, token_bias, token_map
from essent.recipe.tokens import Vocabulary
from families import CORPUS, Folders

CASED = ["Alpha", "beta", "Gamma", "##ing", "##Ed", "[CLS]", "", "[unused7]", "delta", "eps"]


def test_a_map_by_hand() -> None:
    table = np.random.default_rng(0).normal(size=(10, 6))
    counts = np.array([5, 0, 2, 9, 1, 50, 0, 0, 3, 0])
    vocabulary = Vocabulary(BertTokenizer({token: n for n, token in enumerate([*CASED, "[UNK]"]) if token}), 10)
    vocabulary_map = token_map("t", table, vocabulary, counts)
    word_ids = [0, 1, 2, 3, 4, 8, 9]  # neither special, nor empty, nor unused
    rows = table[word_ids]
    assert vocabulary_map.tokens == tuple(CASED[i] for i in word_ids)
    np.testing.assert_allclose(vocabulary_map.frequency, np.log1p(counts[word_ids]))
    assert np.flatnonzero(vocabulary_map.subword).tolist() == [3, 4]
    assert np.flatnonzero(vocabulary_map.upper).tolist() == [0, 2]  # a sub-word has no case here
    expected = PCA(2, svd_solver="full").fit(rows)
    np.testing.assert_allclose(np.abs(vocabulary_map.points), np.abs(expected.transform(rows)), atol=1e-9)
    np.testing.assert_allclose(list(vocabulary_map.shares.values()), expected.explained_variance_ratio_)
    assert vocabulary_map.cosine == pytest.approx(1 - pdist(rows, "cosine").mean())
    with pytest.raises(InputError, match="7 tokens in 1 dimensions"):
        token_map("t", np.ones((10, 1)), vocabulary, None)


def test_reports_of_models(folder_of: Folders, tmp_path: Path) -> None:
    model, texts = str(folder_of("roberta")), CORPUS[:8]
    report = token_bias(model, texts)
    (embedding_map,) = report.maps
    tokenizer = AutoTokenizer.from_pretrained(model)
    counts = Counter(token for text in texts for token in tokenizer.tokenize(text))
    expected = np.log1p([counts[token] for token in embedding_map.tokens])
    np.testing.assert_allclose(embedding_map.frequency, expected)
    cased = replace(embedding_map, upper=~embedding_map.subword)
    draw_bias(replace(report, maps=(cased, embedding_map)), tmp_path / "bias.png")
    assert (tmp_path / "bias.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="The corpus has no texts"):
        token_bias(model, [])


def test_untied_output_matrix_without_a_corpus(bert: Path, tmp_path: Path) -> None:
    """PromptBERT A.2, Figure 2: what is not tied to the word embeddings; the vocabulary's order is the frequency."""
    config = AutoConfig.from_pretrained(bert, tie_word_embeddings=False)
    AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path)
    report = token_bias(str(tmp_path))
    first, second = report.maps
    assert (first.name, second.name) == ("input word embeddings", "output matrix")
    assert second.cosine != first.cosine
    assert (np.diff(first.frequency) < 0).all()
    for part in (AutoModel, AutoTokenizer, AutoConfig):  # the configuration names a head that has no weights
        part.from_pretrained(bert).save_pretrained(tmp_path / "encoder")
    assert [table.name for table in token_bias(str(tmp_path / "encoder")).maps] == ["input word embeddings"]
