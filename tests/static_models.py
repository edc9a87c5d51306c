"""Tables of token vectors as models of sentence-transformers and model2vec."""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer


def table_of(tokenizer: Tokenizer, width: int = 12, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((tokenizer.get_vocab_size(), width)).astype(np.float32) + 0.3


def static_model(tokenizer: Tokenizer, *after: torch.nn.Module) -> SentenceTransformer:
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, table_of(tokenizer)), *after], device="cpu")


def save_model2vec(folder: Path, tokenizer: Tokenizer, arrays: dict[str, np.ndarray], **config: object) -> Path:
    """A folder as model2vec 0.10 writes it, less its modules.json."""
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(arrays, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": False, **config}))
    return folder
