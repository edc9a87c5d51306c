"""A WordNet of a few words, and a tiny masked language model that knows the words of the tests."""

import re
from collections.abc import Iterator
from pathlib import Path

import nltk.data
import pytest
import torch
from minimal_pairs_data import SENTENCES, SYNSETS, write_wordnet
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from essent.lab.minimal_pairs import words as choosing
from essent.lab.minimal_pairs.parsing import Parser, inflect
from essent.lab.minimal_pairs.resources import MaskedModel, WordNet

FILLERS = "green strange nice famous empty eat eats ate eating see sees saw watch watched make made call called cold"


@pytest.fixture(scope="session")
def wordnet_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wordnet(tmp_path_factory.mktemp("wordnet"))


@pytest.fixture(scope="session")
def masked_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT with random weights whose vocabulary is whole words."""
    folder = tmp_path_factory.mktemp("masked")
    words = set(re.findall(r"\w+|[^\w\s]", " ".join(SENTENCES).lower())) | set(FILLERS.split())
    for part, spelled, _, _ in SYNSETS.values():
        for word in spelled.replace("(p)", "").split():
            forms = ("VB", "VBZ", "VBD", "VBG", "VBN") if part == "verb" else ("JJ",)
            words |= {inflect(word, form) or word for form in forms}
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s", *sorted(words)]
    tokenizer = BertTokenizer({word: number for number, word in enumerate(names)}, model_max_length=64)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
    config = BertConfig(vocab_size=len(names), **sizes, max_position_embeddings=64, initializer_range=0.2)
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model(masked_folder: Path) -> MaskedModel:
    return MaskedModel(str(masked_folder), device="cpu")


@pytest.fixture(scope="session")
def parser() -> Parser:
    return Parser()


@pytest.fixture(scope="session")
def wordnet(wordnet_folder: Path) -> Iterator[WordNet]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nltk.data, "path", [str(wordnet_folder)])
        yield WordNet()


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with random weights finds nothing alike."""
    for name in ("SURE", "BETWEEN"):
        monkeypatch.setattr(choosing, name, -99.0)
    for name in ("RELATED", "FILLER_GAP"):
        monkeypatch.setattr(choosing, name, 99.0)
