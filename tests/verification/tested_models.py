"""A small healthy model, made so: every word a random vector, one layer that hardly changes them, mean pooling."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from essent.tasks.heros import load_heros
from essent.tasks.locate import load_pairs
from essent.tasks.sample import sample_minimal_pairs_path, sample_pairs_path

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CARD = """---
library_name: sentence-transformers
---
# healthy

SentenceTransformer(
  (0): Transformer({'max_seq_length': 64, 'do_lower_case': False}) with Transformer model: BertModel
  (1): Pooling({'word_embedding_dimension': 96, 'pooling_mode_cls_token': False, 'pooling_mode_mean_tokens': True})
  (2): Normalize()
)
"""


def tokenizer_of_words() -> PreTrainedTokenizerFast:
    """Every word of the demonstration's sentences is a token."""
    texts = [*load_pairs(sample_pairs_path()).texts(), *load_heros(sample_minimal_pairs_path()).texts()]
    cut, lower = pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer(lowercase=True)
    words = sorted({word for text in texts for word, _ in cut.pre_tokenize_str(lower.normalize_str(text))})
    ids = {word: token_id for token_id, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=SPECIAL[1]))
    tokenizer.normalizer, tokenizer.pre_tokenizer = lower, cut
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), "utf-8")


def change(path: Path, **values: object) -> None:
    """Set keys of a file of settings; None takes a key out."""
    content = {**json.loads(path.read_text("utf-8")), **values}
    write_json(path, {key: value for key, value in content.items() if value is not None})


def healthy(folder: Path) -> Path:
    """Save the model as sentence-transformers 2 does."""
    torch.manual_seed(0)
    tokenizer = tokenizer_of_words()
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=96, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=64,
    )  # fmt: skip
    model = BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.normal_()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(kinds.items())
    ]
    write_json(folder / "modules.json", listed)
    flags = {"cls_token": False, "mean_tokens": True, "max_tokens": False}
    pooling = {"word_embedding_dimension": 96, **{f"pooling_mode_{name}": on for name, on in flags.items()}}
    write_json(folder / "1_Pooling" / "config.json", pooling)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": False})
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
    (folder / "2_Normalize").mkdir()
    (folder / "README.md").write_text(CARD, "utf-8")
    return folder
