"""What may stand for a word: WordNet's offers, the model's probabilities and states, the quality of a replacement."""

import hashlib
import json
import re
from itertools import permutations
from pathlib import Path
from typing import Any

import nltk.data
import numpy as np
import pytest
from minimal_pairs_data import SENTENCES, write_wordnet
from scipy.special import expit
from transformers import AutoModelForMaskedLM

from essent.errors import DataError, ModelError
from essent.lab.minimal_pairs import resources
from essent.lab.minimal_pairs.parsing import DATA, Parser, read_table
from essent.lab.minimal_pairs.resources import Evidence, MaskedModel, Query, WordNet, spelled
from essent.lab.minimal_pairs.words import substitutes
from families import Folders

# -- WordNet ----------------------------------------------------------------------------------------------------------


def test_senses_and_relatives(wordnet: WordNet) -> None:
    ((uses, sense),) = wordnet.senses("boost", "verb")
    assert (uses, spelled(sense)) == (4, "boost")
    # NLTK finds bounds twice: as it is, and as a form of bound, in one synset
    assert [uses for uses, _ in wordnet.senses("bounds", "noun")] == [2]
    assert wordnet.count("buy", "verb") == 30
    assert {"happy", "glad", "unhappy", "sad", "happiness"} <= wordnet.relatives("happy")


def test_wordnet_is_searched_where_nltk_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "empty")])
    with pytest.raises(DataError, match=r"empty.*python -m nltk\.downloader wordnet"):
        WordNet()
    incomplete = write_wordnet(tmp_path / "incomplete")
    (incomplete / "corpora" / "wordnet" / "lexnames").unlink()
    monkeypatch.setattr(nltk.data, "path", [str(incomplete)])
    with pytest.raises(DataError, match=r"no complete WordNet.*lexnames"):
        WordNet()


def test_substitutes_avoid_words_of_the_sentence(wordnet: WordNet, parser: Parser) -> None:
    # not "started the car and had to start it"
    docs = parser(["She stopped the old car.", "She stopped the car and had to start it again."])
    words = [[candidate.word for candidate in substitutes(doc[1], wordnet)] for doc in docs]
    assert words == [["halted", "started"], []]


# -- the masked language model, against a slow pass for each word -----------------------------------------------------


def queries_for(*words: str) -> list[Query]:
    """One word of each sentence."""
    spans = [list(re.finditer(r"\w+", text))[n % 7].span() for n, text in enumerate(SENTENCES)]
    return [Query(text, *span, words) for text, span in zip(SENTENCES, spans, strict=True)]


@pytest.fixture
def slow(masked_folder: Path) -> Any:
    """The same model in float64."""
    return AutoModelForMaskedLM.from_pretrained(masked_folder).double().requires_grad_(False).eval()


def test_slots_match_single_passes(model: MaskedModel, slow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = queries_for("green", "blorp")
    monkeypatch.setattr(resources, "BATCH", 5)
    for (text, start, end, _), (candidates, fillers) in zip(queries, model.mask_scores(queries), strict=True):
        ids = model.tokenizer(text[:start] + "[MASK]" + text[end:], return_tensors="pt")
        row = slow(**ids).logits[0, ids["input_ids"][0].tolist().index(4)].log_softmax(-1)
        expected = {word: float(row[model.tokenizer.vocab[word]]) for word in ("green", *fillers)}
        assert candidates == {"green": pytest.approx(expected["green"], abs=1e-5), "blorp": -np.inf}
        assert fillers == pytest.approx({filler: expected[filler] for filler in fillers}, abs=1e-5)
        assert list(fillers.values()) == sorted(fillers.values(), reverse=True)
        assert not {"##s", "[PAD]", ".", "("} & set(fillers)


def test_similarities_are_cosines_of_states(model: MaskedModel, slow: Any) -> None:
    def state(text: str, start: int) -> np.ndarray:
        ids = model.tokenizer(text, return_tensors="pt")
        hidden = slow(**ids, output_hidden_states=True).hidden_states[2][0]
        vector = hidden[ids.char_to_token(start)].numpy()
        return vector / np.linalg.norm(vector)

    vectors = [state(row["sentence"], row["sentence"].index(row["word"])) for row in read_table("probes.tsv")]
    base = np.mean([first @ second for first, second in permutations(vectors, 2)])
    queries = queries_for("green", "buy")
    for (text, start, end, words), similarities in zip(queries, model.similarities(queries), strict=True):
        cosines = {word: state(text, start) @ state(text[:start] + word + text[end:], start) for word in words}
        expected = {word: (cosine - base) / (1 - base) for word, cosine in cosines.items()}
        assert similarities == pytest.approx(expected, abs=1e-5)


def test_masked_model_refusals(folder_of: Folders, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        MaskedModel(str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match="mask"):
        MaskedModel(str(folder_of("gpt2")))


# -- quality of a replacement -----------------------------------------------------------------------------------------


def test_probability_of_a_good_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = {"constant": 1.0, "similarity": 2.0, "probability": 0.5, "prefix": 3.0}
    monkeypatch.setattr(resources, "coefficients", lambda: {"synonym": weights})
    evidence = Evidence(similarity=0.5, prior=-1.0, probability=-4.0, prefix=True)
    assert resources.probability("synonym", evidence) == pytest.approx(expit(1.0 + 1.0 - 2.0 + 3.0))


def test_coefficients_are_of_the_judgements() -> None:
    """Refit after a change: python benchmarks/minimal_pairs.py …"""
    fitted_on = json.loads((DATA / "coefficients.json").read_text("utf-8"))["fitted_on"]
    judgements = Path(__file__).parents[3] / "benchmarks" / "judgements.tsv"
    assert fitted_on["sha256"] == hashlib.sha256(judgements.read_bytes()).hexdigest()
    assert min(fitted_on["held-out area"].values()) > 0.7
