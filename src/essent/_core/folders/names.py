"""Names of files in a model's folder."""

from __future__ import annotations

from fnmatch import fnmatch

STATE_FOLDER = "essent"  # the subfolder of essent's own files
ENCODER, GRAPH = f"{STATE_FOLDER}/encoder.json", f"{STATE_FOLDER}/engine.json"  # the metadata of each kind of folder
# Files that transformers and sentence-transformers look for in the folder of a model for text, and engines beside their
# graph. Vectors can depend on them. Other files are never opened.
READ = (
    "config.json",
    "generation_config.json",
    "*processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "bpe.codes",
    "tekken.json",
    "*.model",  # of sentencepiece and tiktoken: transformers uses the first one
    "model*.safetensors",
    "model.safetensors.index.json",
    "pytorch_model*.bin",
    "pytorch_model.bin.index.json",
    "adapter_config.json",
    "adapter_model.*",
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_*_config.json",
    "wordembedding_config.json",
    "*tokenizer_config.json",
    "cnn_config.json",
    "lstm_config.json",
    "router_config.json",
    "model.xml",
    "model.bin",
    "model.onnx",
    "model.onnx.data",
)


def is_read(name: str) -> bool:
    """Whether libraries look for a file of this name in a model's folder."""
    return any(fnmatch(name, pattern) for pattern in READ)
