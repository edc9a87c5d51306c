"""Tiny random models of every family, built in the test run: real architectures, real tokenizers, no download."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

Folders = Callable[[str], Path]  # families to folders of tiny models
CORPUS = [
    "A man is playing a large flute.",
    "Two dogs run through the green field, chasing a red ball.",
    "The stock market fell sharply on Monday after the announcement.",
    "She doesn't like cold coffee; however, she drinks it every morning!",
    "How far is the moon from the earth?",
    "Unbelievably, the kitten climbed all the way up the old oak tree and stayed there.",
    "This sentence from the dictionary means something and is about a synonym for another sentence.",
    'This sentence : "a word" means one thing .',
] * 4
WIDE = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
}
GROUPED = {**WIDE, "num_key_value_heads": 2}
FAMILIES: dict[str, tuple[str, dict]] = {
    "bert": ("wordpiece", WIDE),
    "roberta": ("bytes", {**WIDE, "max_position_embeddings": 258}),
    "electra": ("wordpiece", {**WIDE, "embedding_size": 24}),
    "distilbert": (
        "wordpiece",
        {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 256},
    ),
    "albert": ("metaspace", {**WIDE, "embedding_size": 16}),
    "xlm-roberta": ("metaspace", {**WIDE, "max_position_embeddings": 258}),
    "mpnet": ("wordpiece", {**WIDE, "max_position_embeddings": 258}),
    "deberta-v2": (
        "metaspace",
        {**WIDE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False},
    ),
    "modernbert": ("bytes", {**WIDE, "local_attention": 8, "global_attn_every_n_layers": 2}),
    "t5": ("metaspace", {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 3, "num_heads": 4}),
    "gpt2": ("bytes-decoder", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 256}),
    "llama": ("metaspace-decoder", GROUPED),
    "qwen3": ("bytes-decoder", {**GROUPED, "head_dim": 8}),
}
MORE_DECODERS: dict[str, tuple[str, dict]] = {  # for the tests of prompts only
    "opt": ("bytes-decoder", {**WIDE, "ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.2}),
    "mistral": ("metaspace-decoder", {**GROUPED, "sliding_window": 8, "max_position_embeddings": 512}),
    "gemma3_text": ("metaspace-decoder", {**GROUPED, "head_dim": 8, "sliding_window": 8, "sliding_window_pattern": 2}),
}
NO_CACHE: dict[str, tuple[str, dict]] = {  # generators whose keys and values of first tokens cannot be reused
    "bert-generation": ("bytes-decoder", WIDE),
    "lfm2": ("bytes-decoder", {**GROUPED, "layer_types": ["conv", "full_attention", "conv"]}),
}
DECODERS = ("gpt2", "llama", "qwen3")
WITHOUT_MASK = (*DECODERS, "t5")
RELATIVE = ("t5", "deberta-v2")  # no denoising: it shifts position ids
MASKED = tuple(family for family in FAMILIES if family not in WITHOUT_MASK)  # saved with their masked-LM head


SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]


def build_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """Train a small real tokenizer of the kind on the corpus above: in every process the same one.

    The trainers number pieces, break ties and add up in the order of a hash table, which differs from process to
    process. Left to that, every run of the tests would have other random models, and a failure would not come back.
    """
    kind, _, decoder = kind.partition("-")
    specials = SPECIALS[kind == "wordpiece"]
    cls, pad, sep, unk, mask = specials
    options = {"special_tokens": specials, "show_progress": False}
    if kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token=unk))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        letters = sorted(set("".join(CORPUS).lower()) - {" "})
        options["special_tokens"] = [*specials, *(f"##{letter}" for letter in letters if letter.isalpha())]
        trainer = trainers.WordPieceTrainer(vocab_size=400, initial_alphabet=letters, **options)
    elif kind == "bytes":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, **options)
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=250, unk_token=unk, **options)
    tokenizer.train_from_iterator(CORPUS, trainer)
    if kind == "wordpiece":  # "##a" is an ordinary piece, and no special token
        tokenizer = _with_model(tokenizer, models.WordPiece(tokenizer.get_vocab(), unk_token=unk), specials)
    elif kind == "metaspace":
        learned = json.loads(tokenizer.to_str())["model"]["vocab"][len(specials) :]
        pieces = sorted(((piece, round(score, 3)) for piece, score in learned), key=lambda row: (-row[1], row[0]))
        vocabulary = [*((name, 0.0) for name in specials), *pieces]
        tokenizer = _with_model(tokenizer, models.Unigram(vocabulary, unk_id=specials.index(unk)), specials)
    if not decoder or kind == "metaspace":  # Llama: a text begins with <s>
        form = f"{cls} $A" if decoder else f"{cls} $A {sep}"
        ids = [(token, tokenizer.token_to_id(token)) for token in (cls, sep) if token in form]
        tokenizer.post_processor = processors.TemplateProcessing(single=form, special_tokens=ids)
    names = {"bos_token": cls, "eos_token": sep}
    if not decoder:
        names = {"cls_token": cls, "sep_token": sep, "pad_token": pad, "mask_token": mask}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=unk, **names)


def _with_model(trained: Tokenizer, model: models.Model, specials: list[str]) -> Tokenizer:
    """The same normalizer, pre-tokenizer and decoder around another vocabulary."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    tokenizer.decoder = trained.decoder
    tokenizer.add_special_tokens(specials)
    return tokenizer


def build_family(family: str, folder: Path, seed: int = 0) -> Path:
    """Save a tiny random model of the family with its tokenizer, and its masked-LM head; returns the folder."""
    kind, settings = {**FAMILIES, **MORE_DECODERS, **NO_CACHE}[family]
    tokenizer = build_tokenizer(kind)
    settings = {**settings, "vocab_size": len(tokenizer) + 3}  # real models pad their tables
    for name in ("cls", "sep", "bos", "eos", "pad", "mask"):
        index = getattr(tokenizer, f"{name}_token_id")
        if index is not None:
            settings[f"{name}_token_id"] = index
    config = CONFIG_MAPPING[family](**settings)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = T5EncoderModel(config) if family == "t5" else AutoModel.from_config(config)
        add_noise(model.parameters(), 0.05)
        if family in MASKED:
            model = with_mlm_head(model)
    return save(model, tokenizer, folder)


def add_noise(parameters: Iterable[torch.nn.Parameter], scale: float) -> None:
    """Change biases and norms too, so that nothing is trivially zero or one."""
    for parameter in parameters:
        parameter.data.add_(scale * torch.randn_like(parameter))


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def with_mlm_head(base: PreTrainedModel) -> PreTrainedModel:
    """A masked language model around the transformer, pooler and all, its head random too."""
    model = AutoModelForMaskedLM.from_config(base.config)
    tied = base.get_input_embeddings().weight
    prefix = f"{model.base_model_prefix}."
    add_noise((parameter for name, parameter in model.named_parameters() if not name.startswith(prefix)), 0.05)
    setattr(model, model.base_model_prefix, base)
    model.tie_weights()
    assert model.get_output_embeddings().weight is tied
    return model


def build_generator(folder: Path) -> Path:
    """Save a tiny random T5 that writes, with ten sentinels, their ids falling as in the real one."""
    tokenizer = build_tokenizer("metaspace")
    tokenizer.add_special_tokens({"additional_special_tokens": [f"<extra_id_{n}>" for n in reversed(range(10))]})
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    config = T5Config(vocab_size=len(tokenizer) + 3, eos_token_id=tokenizer.sep_token_id, **sizes)
    config.pad_token_id = config.decoder_start_token_id = tokenizer.pad_token_id
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = T5ForConditionalGeneration(config)
        add_noise(model.parameters(), 0.3)
    return save(model, tokenizer, folder)
