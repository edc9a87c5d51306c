"""Token maps: principal components, frequency, sub-words and case of the tokens; anisotropy as the papers count."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from essent import Encoder
from essent.errors import DataError, InputError
from essent.lab.explain.bias import between_groups, token_bias, token_map
from essent.lab.explain.picture import draw_bias
from essent.tasks.examples import Pair
from essent.tasks.pairs import PairTask
from families import CORPUS

CASED = ["Alpha", "beta", "Gamma", "##ing", "##Ed", "[CLS]", "", "[unused7]", "delta", "eps"]


class Words:
    """What `token_map` reads of a vocabulary."""

    tokens = CASED
    special_ids = frozenset({5})

    def is_subword(self, token: str) -> bool:
        return token.startswith("##")

    def text(self, token: str) -> str:
        return token.removeprefix("##")


def test_a_map_by_hand() -> None:
    table = np.random.default_rng(0).normal(size=(10, 6))
    counts = np.array([5, 0, 2, 9, 1, 50, 0, 0, 3, 0])
    vocabulary_map = token_map("t", table, Words(), counts)  # type: ignore[arg-type]
    word_ids = [0, 1, 2, 3, 4, 8, 9]  # neither special, nor empty, nor unused
    assert vocabulary_map.tokens == tuple(CASED[i] for i in word_ids)
    np.testing.assert_allclose(vocabulary_map.frequency, np.log1p(counts[word_ids]))
    assert vocabulary_map.counted
    assert vocabulary_map.subword.tolist() == [False, False, False, True, True, False, False]
    # a sub-word has no case here
    assert vocabulary_map.upper.tolist() == [True, False, True, False, False, False, False]
    assert vocabulary_map.cased
    expected = PCA(2, svd_solver="full").fit(table[word_ids])
    np.testing.assert_allclose(np.abs(vocabulary_map.points), np.abs(expected.transform(table[word_ids])), atol=1e-9)
    np.testing.assert_allclose(list(vocabulary_map.shares.values())[:2], expected.explained_variance_ratio_)
    assert list(vocabulary_map.shares)[2:] == ["frequency", "sub-word", "case"]
    rows = [row / np.linalg.norm(row) for row in table[word_ids]]
    cosines = [float(a @ b) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j]
    assert vocabulary_map.cosine == pytest.approx(np.mean(cosines))
    without = token_map("t", table, Words(), None)  # type: ignore[arg-type]
    assert without.frequency.tolist() == [-i for i in word_ids]
    assert not without.counted


def test_variance_between_groups() -> None:
    rows = np.array([[0.0, 1.0], [0.0, 1.0], [2.0, 5.0], [2.0, 5.0]])
    assert between_groups(rows, np.array([0, 0, 1, 1])) == pytest.approx(1)
    assert between_groups(rows, np.array([0, 1, 0, 1])) == pytest.approx(0)
    assert between_groups(rows, np.zeros(4)) == pytest.approx(0)
    assert math.isnan(between_groups(np.ones((4, 2)), np.array([0, 1, 0, 1])))


def test_too_few_tokens() -> None:
    with pytest.raises(InputError, match="shows nothing"):
        token_map("t", np.ones((10, 1)), Words(), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_reports_of_models(family: str, folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    model = str(folder_of(family))
    pairs = PairTask("mine", tuple(Pair(a, b, float(n)) for n, (a, b) in enumerate(pairwise(CORPUS[:8]))))
    report = token_bias(model, CORPUS[:8], tasks=[pairs])
    (embedding_map,) = report.maps
    module = Encoder(model, "mean").module
    counts = module.plan.count(CORPUS[:8], module.backbone).count
    names = Encoder(model, "mean").module.backbone.vocabulary.tokens
    most_frequent = int(np.argmax(embedding_map.frequency))
    assert embedding_map.frequency[most_frequent] == pytest.approx(
        math.log1p(counts[names.index(embedding_map.tokens[most_frequent])])
    )
    assert report.texts == 8
    for row in report.sentences:
        vectors = Encoder(model, row.recipe).encode(CORPUS[:8]).astype(np.float64)
        units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        assert row.cosine == pytest.approx(float((units @ units.T).mean()), abs=1e-6)  # each pair with itself too
        assert row.spearman == {"mine": pytest.approx(pairs.run(Encoder(model, row.recipe)).main_score, abs=1e-6)}
    values = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert len(values["tables"][0]["tokens"]) == len(embedding_map.tokens)
    assert [table.title for table in report.tables()] == ["Tokens", "Sentences (Table 1)"]
    draw_bias(report, tmp_path / "bias.png")
    assert (tmp_path / "bias.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_corpus_the_vocabulary_tells(bert: Path, tmp_path: Path) -> None:
    report = token_bias(str(bert))
    assert report.sentences == ()
    assert (np.diff(report.maps[0].frequency) < 0).all()
    assert [table.title for table in report.tables()] == ["Tokens"]
    draw_bias(report, tmp_path / "bias.png")


def test_untied_output_matrix(bert: Path, tmp_path: Path) -> None:
    """PromptBERT A.2, Figure 2: what is not tied to the word embeddings."""
    config = AutoConfig.from_pretrained(bert, tie_word_embeddings=False)
    AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path / "untied")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bert / name, tmp_path / "untied" / name)
    report = token_bias(str(tmp_path / "untied"), CORPUS[:4])
    first, second = report.maps
    assert (first.name, second.name) == ("input word embeddings", "output matrix")
    assert first.tokens == second.tokens
    assert second.cosine != first.cosine
    draw_bias(report, tmp_path / "bias.png")


def test_a_head_in_the_configuration_alone_is_none(bert: Path, tmp_path: Path) -> None:
    """As with ELECTRA's discriminators, which were pretrained with another head."""
    AutoModel.from_pretrained(bert).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(bert / name, tmp_path / name)
    assert [embedding_map.name for embedding_map in token_bias(str(tmp_path)).maps] == ["input word embeddings"]


def test_bad_input(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="The corpus has no texts"):
        token_bias(str(bert), [])
    with pytest.raises(InputError, match="Expected a list of texts"):
        token_bias(str(bert), "one text")
    with pytest.raises((DataError, InputError)):
        token_bias(str(bert), tasks=[str(tmp_path / "none.jsonl")])
