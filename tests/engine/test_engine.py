"""Compiled encoders give torch's vectors at every shape, whatever the neighbours, and come back from their folders.

The graph of most tests is the shared one of a single layer; `test_a_recipe_with_all_its_parts` converts one of its own.
"""

import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import BoW, Pooling
from tokenizers import Tokenizer

import essent
from essent import NAMED, Encoder
from essent._core.folders.files import write_digests
from essent.engine.compiled import CompiledEncoder, cosines
from essent.engine.files import load
from essent.engine.graph import graph_of
from essent.engine.runtime import OnnxRuntime, OpenVINORuntime, check_precision, openvino
from essent.errors import EngineError, InputError, ModelError, NotFittedError
from families import CORPUS, DECODERS, FAMILIES, MORE_DECODERS, Folders
from odd_texts import ODD
from samples import daily
from selection_samples import Shells
from static_models import static_model

ENGINES = {"openvino": 1e-5, "onnx": 1e-4}  # allowed differences
TEMPLATE = "template='This sentence : \"{text}\" means [MASK] .'"
WORDS = "the moon is a large flute and dogs run after it in every green field on monday".split()


def texts_of(count: int, longest: int, seed: int = 0) -> list[str]:
    """Texts of 0 to `longest` words."""
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, draw.integers(0, longest + 1))) for _ in range(count)]


@pytest.fixture(scope="module")
def encoder(bert: Path) -> Encoder:
    return Encoder(bert, "layers=1", device="cpu")


def assert_same(actual: np.ndarray, expected: np.ndarray, allowed: float = 1e-5) -> None:
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= allowed * max(1.0, np.linalg.norm(expected, axis=1).max())


def assert_compiles(model: SentenceTransformer, engine: str, texts: list[str], folder: Path) -> None:
    """Texts alone, and many in another order before and after saving, have the model's vectors."""
    compiled, expected = essent.compile(model, engine, threads=1), np.asarray(model.encode(texts))
    assert_same(np.stack([compiled.encode(text) for text in texts]), expected, ENGINES[engine])
    compiled.save(folder)
    for graph in (compiled, load(folder, threads=1)):
        assert_same(graph.encode(texts[::-1])[::-1], expected, ENGINES[engine])


# -- the same vectors -------------------------------------------------------------------------------------------------


@pytest.mark.slow  # a conversion each
@pytest.mark.parametrize("engine", ENGINES)
def test_a_recipe_with_all_its_parts(engine: str, bert: Path, tmp_path: Path) -> None:
    """A template, special tokens as text, and texts that are truncated on the left among them."""
    recipe = f"{TEMPLATE} layers=0+attention:2-out+2 weights=idf*ditto:1-2 | zscore | normalize"
    encoder = Encoder(bert, recipe).fit(texts_of(60, 12, seed=1))
    encoder.tokenizer.truncation_side = "left"
    assert_compiles(encoder, engine, [*ODD, *texts_of(40, 250)], tmp_path)


def test_numbers_lengths_neighbours_and_order_change_nothing(
    encoder: Encoder, compiled: CompiledEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer_and_longer = [" ".join((WORDS * 17)[:length]) for length in range(0, 300, 14)]
    for texts in (texts_of(2, 3), texts_of(100, 6), [*ODD, *longer_and_longer]):
        expected = encoder.encode(texts)
        assert_same(np.stack([compiled.encode(text) for text in texts]), expected)
        assert_same(compiled.encode(texts[::-1])[::-1], expected)
    monkeypatch.setattr("essent.engine.compiled.WINDOW", 16)
    assert_same(compiled.encode(texts, batch_size=2), expected)


def test_tensors_binary_vectors_and_refusals(encoder: Encoder, compiled: CompiledEncoder, tmp_path: Path) -> None:
    """What static encoders, which share `encode`, are not tested with."""
    texts = texts_of(5, 9)
    tensor = compiled.encode(iter(texts), convert_to_tensor=True)
    assert compiled.similarity(tensor, tensor).shape == (5, 5)
    bits = compiled.encode(texts, precision="binary")
    np.testing.assert_array_equal(bits, encoder.encode(texts, precision="binary"), strict=True)
    for arguments, message in (
        ({"output_value": "token_embeddings"}, "only sentence vectors"),
        ({"device": "cuda"}, "device='cuda': a CompiledEncoder runs on the CPU"),
    ):
        with pytest.raises(InputError, match=message):
            compiled.encode(["a"], **arguments)
    with pytest.raises(InputError, match="every text must be a str"):
        compiled.encode(["a", 3])
    with pytest.raises(EngineError, match="cannot be saved: call Comp"):
        compiled.as_sentence_transformer().save(tmp_path / "x")
    assert not (tmp_path / "x").exists()


# -- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_comes_back(encoder: Encoder, bert: Path, compiled: CompiledEncoder, tmp_path: Path) -> None:
    texts = texts_of(20, 20, seed=9)
    compiled.save(tmp_path / "copy")
    loaded = essent.load(tmp_path / "copy", threads=1)
    loaded.save(tmp_path / "copy")  # onto itself
    for model in (loaded, load(tmp_path / "copy", threads=1)):
        assert (type(model), model.recipe) == (CompiledEncoder, compiled.recipe)
        assert_same(model.encode(texts), compiled.encode(texts), 1e-6)
    encoder.save(str(tmp_path / "encoder"), create_model_card=False)
    assert isinstance(essent.load(tmp_path / "encoder"), Encoder)
    with pytest.raises(ModelError, match="not saved by essent"):
        load(bert)
    with pytest.raises(EngineError, match="threads=0: must be a whole number"):
        load(tmp_path / "copy", threads=0)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("essent/golden.safetensors", rb".(?=.{9}\Z)", b"@", "torch's vectors"),
        ("essent/golden.safetensors", rb"\A.*\Z", b"xx", "damaged"),
        ("model.xml", rb"\A.*\Z", b"no graph", "cannot read"),
        ("essent/engine.json", rb"\A.*\Z", b"[]", "expected a dict"),
        ("essent/engine.json", b'"format": 2', b'"format": 99', "format 99"),
        ("essent/engine.json", b"openvino", b"tensorrt", "tensorrt"),
        ("essent/engine.json", b'"dimensions": 32', b'"dimensions": 31', "31"),
    ],
)
def test_a_damaged_folder_is_refused(
    graph_folder: Path, tmp_path: Path, file: str, old: bytes, new: bytes, message: str
) -> None:
    folder = Path(shutil.copytree(graph_folder, tmp_path / "damaged"))
    (path := folder / file).write_bytes(re.sub(old, new, path.read_bytes(), count=1, flags=re.DOTALL))
    with pytest.raises(ModelError, match=f"has changed since it was saved|{message}"):
        load(folder, threads=1)
    write_digests(folder)  # as if it had been saved so
    with pytest.raises((ModelError, EngineError), match=message):
        load(folder, threads=1)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_what_does_not_compile(encoder: Encoder, bert: Path, shell: SentenceTransformer) -> None:
    for arguments, message in (
        ({"engine": "tensorrt"}, "must be one of openvino, onnx"),
        ({"precision": "f16"}, "float32, bfloat16, int8"),
        ({"engine": "onnx", "precision": "int8"}, "onnx runs in float32"),
    ):
        with pytest.raises(EngineError, match=message):
            essent.compile(encoder, **arguments)
    path, stock, modules = str(bert), partial(SentenceTransformer, device="cpu"), list(shell)
    with pytest.raises(InputError, match="not str"):
        essent.compile(path)
    with pytest.raises(NotFittedError, match="fit"):
        essent.compile(Encoder(path, "mean | zscore"))
    for model, message in (
        (stock(path, model_kwargs={"dtype": torch.bfloat16}), r"bfloat16.*float32"),
        (stock(path).to("meta"), "on the CPU, not on meta"),
        (Encoder(path, "prompt-topk"), "runs the masked-LM head only at masks"),
        (Encoder(path, "prompt-denoised"), "template denoising runs the model a second time"),
        (Encoder(shell, "layers=1 | quantile:5").fit(CORPUS), "step 'quantile:5' cannot be converted"),
        (stock(modules=[*modules, torch.nn.Identity()]), "followed by any of Dense"),
        (stock(modules=modules[:1]), "models of a Transformer and a Pooling"),
        (stock(modules=[modules[0], Pooling(32, "mean_sqrt_len_tokens")]), "which no recipe describes"),
        (stock(modules=[modules[0], Pooling(32, "mean", include_prompt=False)]), "which no recipe describes"),
        (stock(modules=[BoW(["a"]), Pooling(1)]), "starts with BoW"),
    ):
        with pytest.raises(EngineError, match=message):
            essent.compile(model)


def test_bf16_needs_hardware_support(graph_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no bfloat16 arithmetic"):
        check_precision("bfloat16", ["FP32", "INT8"])
    folder = Path(shutil.copytree(graph_folder, tmp_path / "bf16"))
    path = folder / "essent/engine.json"
    path.write_text(path.read_text().replace("float32", "bfloat16"))
    write_digests(folder)
    if "BF16" not in openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        with pytest.raises(EngineError, match="no bfloat16 arithmetic"):
            load(folder)
    else:
        texts = texts_of(20, 20)
        assert cosines(load(folder).encode(texts), load(graph_folder).encode(texts)).min() > 0.99


def test_unrunnable_graphs_are_refused(graph_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(runtime: OpenVINORuntime, ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
        raise RuntimeError("Exception from src/core.cpp:117:\ncould not create a primitive descriptor")

    monkeypatch.setattr(OpenVINORuntime, "one", fail)
    with pytest.raises(EngineError, match=r"does not run: could not create a primitive descriptor$"):
        load(graph_folder)


# -- other models, other engines --------------------------------------------------------------------------------------


@pytest.mark.slow  # OpenVINO is tested daily
def test_a_sentence_transformers_model_with_more_modules_in_onnx(shell_of: Shells, tmp_path: Path) -> None:
    torch.manual_seed(0)
    modules = [*list(shell_of("roberta"))[:2], Dense(32, 12), Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "find: "})
    assert_compiles(model, "onnx", [*CORPUS[:8], "", "the moon " * 20], tmp_path)
    vectors, expected = (each.encode(CORPUS, prompt_name="query") for each in (load(tmp_path), model))
    assert_same(vectors, expected, 1e-4)
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(EngineError, match="cannot read"):
        OnnxRuntime(tmp_path, "float32").one(np.zeros((1, 1), np.int64), np.ones((1, 1), np.int64))


# -- int8 -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # a conversion of its own
def test_int8_reports_its_loss(encoder: Encoder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = texts_of(50, 20, seed=13)
    compiled = essent.compile(encoder, "openvino", precision="int8", threads=1)
    assert "Spearman of the similarities" in caplog.text
    assert compiled.loss is not None
    assert compiled.loss.texts == 320
    assert 0.9 < compiled.loss.lowest_cosine <= compiled.loss.mean_cosine < 1.0
    assert cosines(encoder.encode(texts), compiled.encode(texts)).min() > 0.9
    compiled.save(str(tmp_path))
    again = load(tmp_path, threads=1)
    assert again.loss == compiled.loss
    assert np.array_equal(again.encode(texts[:20]), compiled.encode(texts[:20]))


# -- families ---------------------------------------------------------------------------------------------------------


DECODER_TEXTS = [*CORPUS[:8], 'He said "no".', "", "the moon " * 20]  # lengths differ by more than a sliding window
EVERY_STATE = "template=knowledge layers=0+2+L weights=position"
SUFFIXLESS = "template='The topic of this sentence: {text}' weights=last"  # an empty text has no token after the prefix


@pytest.mark.parametrize("family", daily([*DECODERS, *MORE_DECODERS], "gpt2", "mistral"))
def test_the_prefix_of_a_prompt_is_constant(family: str, folder_of: Folders) -> None:
    """By torch, as the exported graph computes: every layer and token, also with the fewest tokens of a row."""
    for recipe in ("prompteol", EVERY_STATE, SUFFIXLESS):
        encoder = Encoder(folder_of(family), recipe)
        graph, widths = graph_of(encoder), []
        backbone = encoder.module.backbone
        for texts in (DECODER_TEXTS, DECODER_TEXTS[::-3], ["", ""], ["a"]):
            expected = encoder.encode(texts)
            ids, attention_mask = graph.pad(encoder.module.ids(texts))
            embeddings = backbone.model.get_input_embeddings()
            hook = embeddings.register_forward_hook(lambda *call, widths=widths: widths.append(call[2].shape[1]))
            with graph.for_export():
                assert_same(graph(ids, attention_mask).numpy(), expected)
                ids[:, : len(graph.prefix)] = 0  # not read
                assert_same(graph(ids, attention_mask).numpy(), expected)
            hook.remove()
            assert widths[-1] == ids.shape[1] - len(graph.prefix)


PROMPTS = ["knowledge | centre", EVERY_STATE, SUFFIXLESS]
DECODER_GRAPHS = [("mistral", "openvino", "mean")]  # sliding windows with only padding
for number, family in enumerate([*DECODERS, *MORE_DECODERS]):
    DECODER_GRAPHS += [(family, "openvino", PROMPTS[number % 3]), (family, "onnx", PROMPTS[(number + 1) % 3])]


@pytest.mark.slow  # a conversion each
@pytest.mark.parametrize(("family", "engine", "recipe"), DECODER_GRAPHS)
def test_prompts_of_decoders(family: str, engine: str, recipe: str, folder_of: Folders, tmp_path: Path) -> None:
    """Filled templates, and rows with a common prefix, longer and shorter than a sliding window."""
    assert_compiles(Encoder(folder_of(family), recipe).fit(DECODER_TEXTS), engine, DECODER_TEXTS, tmp_path)


@pytest.mark.slow  # a conversion each; BERT is the model of every other test here
@pytest.mark.parametrize("family", FAMILIES)
def test_families(shell_of: Shells, family: str, tmp_path: Path) -> None:
    encoder = Encoder(shell_of(family), "layers=1 weights=ditto:1-3")
    assert_compiles(encoder, "openvino", [*CORPUS[:8], "a", "the moon " * 40], tmp_path)


@pytest.mark.slow  # a conversion each
def test_tables_of_token_vectors(wordpiece: Tokenizer, tmp_path: Path) -> None:
    """Static encoders: no layer at all, no special tokens, a text without tokens is a vector of zeros."""
    static, texts = static_model(wordpiece), [*CORPUS, "", "the moon " * 300]
    assert_compiles(static, "openvino", texts, tmp_path)
    assert_compiles(Encoder(static, "static weights=sif | zscore").fit(CORPUS), "onnx", texts, tmp_path)


PUBLISHED = [
    f"{name}:2-1" if row.argument else name
    for name, row in NAMED.items()
    # refused: above, and in tests/model/test_decoders.py
    if "topk" not in row.text and name not in ("metaeol", "t4-idf-quantile", "prompt-denoised")
]


@pytest.mark.parametrize(
    "recipe",
    [
        "layers=random:8,1 reduce=dct:2",
        "static weights=sif | abtt:2 | normalize",
        f"{TEMPLATE} layers=0.5*1+2*L weights=mask | zscore",
        *daily(PUBLISHED, "ditto:2-1", "whitening", "flow"),
    ],
)
def test_recipes_as_graphs(shell: SentenceTransformer, recipe: str) -> None:
    """What is converted is what the Encoder computes, by torch; conversions are tested above."""
    corpus = sorted({text for text in texts_of(300, 30, seed=11) if len(text) > 20})  # no ties: torch itself has noise
    encoder = Encoder(shell, recipe).fit(corpus)
    texts, graph = texts_of(20, 30, seed=12), graph_of(encoder)
    tokens = encoder.module.pad(encoder.module.ids(texts))
    with graph.for_export():
        vectors = graph(tokens["input_ids"], tokens["attention_mask"])
    assert_same(vectors.numpy(), encoder.encode(texts), 2e-5)
