"""Saved folders of every kind, and the errors that they raise after a change."""

from collections.abc import Callable
from pathlib import Path

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Router, StaticEmbedding

import essent
from essent import Encoder
from essent.errors import EssentError
from families import CORPUS

RECIPES = {"own": "ditto:2-3 weights=idf", "rows": "static weights=idf", "table": "static | centre"}


def save_kind(kind: str, model: Path, folder: Path) -> None:
    """Save a model as a folder of this kind."""
    source = folder.with_name(f"{folder.name}-source") if kind == "table" else model
    modules = {
        "stages": lambda: [Transformer(str(model)), Pooling(32), Dense(32, 8)],
        "router": lambda: [Router({"query": [Transformer(str(model)), Pooling(32)]}, default_route="query")],
        "table": lambda: [StaticEmbedding(Encoder(model).tokenizer.backend_tokenizer, embedding_dim=8)],
    }
    if kind in modules:
        target = source if kind == "table" else folder
        SentenceTransformer(modules=modules[kind](), device="cpu").save(str(target))
    if kind in ("openvino", "onnx"):
        essent.compile(Encoder(model, "layers=1", device="cpu"), kind).save(str(folder))
    elif kind not in ("stages", "router"):
        encoder = Encoder(source, RECIPES.get(kind, "mean | zscore"), device="cpu").fit(CORPUS)
        encoder.save(str(folder), layout="legacy" if kind == "legacy" else "stock")


def error_of(action: Callable[[], object]) -> str:
    """The error of essent that an action raises, "" where it succeeds."""
    try:
        action()
    except EssentError as error:
        return str(error)
    return ""
