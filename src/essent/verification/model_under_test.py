"""The inputs of the health checks: a model's files, texts, token ids and vectors, each computed once, when needed."""

from __future__ import annotations

import shlex
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules.tokenizer import WordTokenizer

from essent._core.compat import prompt_of
from essent._core.folders.contents import is_essent_folder, is_exported_folder
from essent._core.folders.files import read_json
from essent._core.hub import reach_model
from essent._core.texts import check_texts, encode_allowing_nonfinite
from essent._core.types import TextsLike
from essent.encoder.encoder import Encoder, open_as_it_is
from essent.encoder.saving.load import folder_of
from essent.engine.compiled import CompiledEncoder
from essent.engine.files import load
from essent.errors import InputError
from essent.tasks.base import unit_rows
from essent.tasks.heros import HerosTask, load_heros
from essent.tasks.locate import load_pairs
from essent.tasks.sample import sample_minimal_pairs_path, sample_pairs_path

NO_LIMIT = 10**9  # tokenizers without a limit write 1e30
MAX_TEXTS = 2000  # more texts change no figure enough to cross its threshold


class ModelUnderTest:
    """A model and the texts for its checks.

    Args:
        name: a folder, or a name on the hub.
        texts: texts of the user; None: 320 English sentences of essent's own. The first 2,000 distinct texts are used.
        options: keyword arguments of SentenceTransformer.

    Raises:
        InputError: fewer than two distinct texts.
    """

    def __init__(self, name: str, texts: TextsLike | None, options: dict[str, Any]) -> None:
        self.name, self.options = name, reach_model(name, options)
        all_texts = load_pairs(sample_pairs_path()).texts() if texts is None else check_texts(texts)
        self.texts = list(dict.fromkeys(all_texts))[:MAX_TEXTS]
        if len(self.texts) < 2:
            raise InputError(f"Only {len(self.texts)} distinct texts. Pass at least two.")

    # -- files --------------------------------------------------------------------------------------------------------

    @cached_property
    def root(self) -> Path:
        """The model's folder, or its folder in the hub's cache."""
        return folder_of(self.name, self.options)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The contents of config.json; {} without one."""
        return dict(read_json(self.root / "config.json") or {})

    @cached_property
    def transformer_settings(self) -> dict[str, Any]:
        """The contents of sentence_bert_config.json; {} without one."""
        return dict(read_json(self.root / "sentence_bert_config.json") or {})

    @cached_property
    def modules(self) -> list[tuple[str, str, str]]:
        """Folder, class path and class name of each listed module; [] for a plain transformers model."""
        listed = read_json(self.root / "modules.json", list) or []
        return [(str(m["path"]), str(m["type"]), str(m["type"]).rpartition(".")[2]) for m in listed]

    @cached_property
    def pooling(self) -> dict[str, Any] | None:
        """The configuration of the Pooling module; None without such a module."""
        folder = next((path for path, _, kind in self.modules if kind == "Pooling"), None)
        return None if folder is None else dict(read_json(self.root / folder / "config.json") or {})

    @cached_property
    def card(self) -> str:
        """The model card; "" without one."""
        file = self.root / "README.md"
        return file.read_text("utf-8", errors="replace") if file.is_file() else ""

    # -- the model ----------------------------------------------------------------------------------------------------

    @cached_property
    def encoder(self) -> SentenceTransformer:
        """The loaded model: an Encoder if a recipe describes it, otherwise a graph or a SentenceTransformer."""
        if is_exported_folder(self.name):
            return load(self.name)
        return open_as_it_is(self.name, self.options)

    @property
    def recipe(self) -> str:
        """The recipe of the model, as text."""
        return str(getattr(self.encoder, "recipe", "a model that no recipe describes"))

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer: transformers' or, for tables of token vectors, that of the library tokenizers."""
        if isinstance(self.encoder, Encoder):
            return self.encoder.module.backbone.tokenizer
        if isinstance(self.encoder, CompiledEncoder):
            return self.encoder.engine_module.reader
        return getattr(self.encoder.tokenizer, "tokenizer", self.encoder.tokenizer)  # of WordEmbeddings

    @cached_property
    def ids(self) -> list[list[int]]:
        """Token ids of the texts with the default prompt: not truncated, without special tokens."""
        before = prompt_of(self.encoder, None, None)
        return self.ids_of([before + text for text in self.texts])

    def ids_of(self, texts: list[str]) -> list[list[int]]:
        """Return token ids of texts: not truncated, without special tokens."""
        if hasattr(self.tokenizer, "encode_batch"):
            return [encoding.ids for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False)]
        if isinstance(self.tokenizer, WordTokenizer):
            return [self.tokenizer.tokenize(text) for text in texts]
        encodings = self.tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)
        return [list(ids) for ids in encodings["input_ids"]]

    @cached_property
    def unknown(self) -> int | None:
        """The id of the unknown token; None if the tokenizer has none."""
        return getattr(self.tokenizer, "unk_token_id", None)

    @cached_property
    def room(self) -> int | None:
        """The maximum number of tokens per text, without special tokens and template; None without a limit."""
        limit = self.encoder.max_seq_length
        if limit is None or limit > NO_LIMIT:
            return None
        if isinstance(self.encoder, Encoder):
            frame = self.encoder.module.plan.frame
            return int(limit) - len(frame.before) - len(frame.after)
        special = getattr(self.tokenizer, "num_special_tokens_to_add", lambda: 0)
        return int(limit) - int(special())

    @cached_property
    def vectors(self) -> np.ndarray:
        """The vectors of the texts (N,D), float64."""
        encode = partial(self.encoder.encode, self.texts, show_progress_bar=False)
        return np.asarray(encode_allowing_nonfinite(encode), np.float64)

    @cached_property
    def units(self) -> np.ndarray:
        """The vectors scaled to length 1 (N,D)."""
        return unit_rows(self.vectors)

    @cached_property
    def minimal_pairs(self) -> HerosTask:
        """essent's own sentences, each with a synonym, a typo, a negation and other changes."""
        return load_heros(sample_minimal_pairs_path())

    def command(self, words: str) -> str:
        """Replace MODEL in a command by this model, quoted for a shell."""
        return words.replace("MODEL", shlex.quote(self.name))

    def command_with(self, step: str) -> str:
        """Return the command that saves the model with another shaping step."""
        if is_exported_folder(self.name) or is_essent_folder(self.name, self.options):
            return f'Save it again from the original model, with "| {step}" at the end of the recipe'
        if not isinstance(self.encoder, Encoder):
            return f"Shape its vectors with {step!r} of essent.recipe.shaping (no recipe describes its modules)"
        recipe = self.recipe.removesuffix("normalize").rstrip(" |")
        quoted = shlex.quote(f"{recipe} | {step}")
        return f"essent save -m {shlex.quote(self.name)} -r {quoted} --fit texts.txt -o fixed"
