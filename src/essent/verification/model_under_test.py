"""What the health checks read: a model's files, texts, and their ids and vectors; each is read once, when asked for."""

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
from essent._core.folders.reading import read_json
from essent._core.hub import reach_model
from essent._core.texts import check_texts, encoded_anyway
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

NO_LIMIT = 10**9  # tokenizers write 1e30 where there is none
MAX_TEXTS = 2000  # of the user's: more of them change no figure here by as much as its threshold allows


class ModelUnderTest:
    """A model, and the texts that it is looked at with.

    Args:
        name: a folder, or a name on the hub.
        texts: of the user; None: 320 sentences of the demonstration. The first 2,000 different ones are taken.
        options: SentenceTransformer's.

    Raises:
        InputError: fewer than two different texts.
    """

    def __init__(self, name: str, texts: TextsLike | None, options: dict[str, Any]) -> None:
        self.name, self.options = name, reach_model(name, options)
        all_texts = load_pairs(sample_pairs_path()).texts() if texts is None else check_texts(texts)
        self.texts = list(dict.fromkeys(all_texts))[:MAX_TEXTS]
        if len(self.texts) < 2:
            raise InputError(
                f"{len(self.texts)} different texts are too few to look at a model with; give two or more."
            )

    # -- files --------------------------------------------------------------------------------------------------------

    @cached_property
    def root(self) -> Path:
        """The model's folder, or that of the hub's cache."""
        return folder_of(self.name, self.options)

    @cached_property
    def config(self) -> dict[str, Any]:
        """What config.json says; {} without one."""
        return dict(read_json(self.root / "config.json") or {})

    @cached_property
    def transformer_settings(self) -> dict[str, Any]:
        """What sentence_bert_config.json says; {} without one."""
        return dict(read_json(self.root / "sentence_bert_config.json") or {})

    @cached_property
    def modules(self) -> list[tuple[str, str, str]]:
        """The path, class path and bare class of each listed module; [] for a plain model of transformers."""
        listed = read_json(self.root / "modules.json", list) or []
        return [(str(m["path"]), str(m["type"]), str(m["type"]).rpartition(".")[2]) for m in listed]

    @cached_property
    def pooling(self) -> dict[str, Any] | None:
        """What the Pooling module's file says; None without such a module."""
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
        """The model: an Encoder wherever a recipe describes it, a graph, or what sentence-transformers makes of it."""
        if is_exported_folder(self.name):
            return load(self.name)
        return open_as_it_is(self.name, self.options)

    @property
    def recipe(self) -> str:
        """What it computes, as a recipe where there is one."""
        return str(getattr(self.encoder, "recipe", "a model that no recipe describes"))

    @cached_property
    def tokenizer(self) -> Any:
        """Its tokenizer: transformers' or, for tables of token vectors, that of tokenizers."""
        if isinstance(self.encoder, Encoder):
            return self.encoder.module.backbone.tokenizer
        if isinstance(self.encoder, CompiledEncoder):
            return self.encoder.engine_module.reader
        return getattr(self.encoder.tokenizer, "tokenizer", self.encoder.tokenizer)  # of WordEmbeddings

    @cached_property
    def ids(self) -> list[list[int]]:
        """Ids of all words of the texts, uncut, after the default prompt; without special tokens."""
        before = prompt_of(self.encoder, None, None)
        return self.ids_of([before + text for text in self.texts])

    def ids_of(self, texts: list[str]) -> list[list[int]]:
        """Ids of texts, uncut and without special tokens."""
        if hasattr(self.tokenizer, "encode_batch"):
            return [encoding.ids for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False)]
        if isinstance(self.tokenizer, WordTokenizer):
            return [self.tokenizer.tokenize(text) for text in texts]
        encodings = self.tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)
        return [list(ids) for ids in encodings["input_ids"]]

    @cached_property
    def unknown(self) -> int | None:
        """The id that stands for what the tokenizer does not know; None where it knows everything."""
        return getattr(self.tokenizer, "unk_token_id", None)

    @cached_property
    def room(self) -> int | None:
        """The most tokens of a text's own that are read; None without a limit."""
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
        """The texts' vectors (N,D) float64."""
        encode = partial(self.encoder.encode, self.texts, show_progress_bar=False)
        return np.asarray(encoded_anyway(encode), np.float64)

    @cached_property
    def units(self) -> np.ndarray:
        """The vectors scaled to length 1 (N,D)."""
        return unit_rows(self.vectors)

    @cached_property
    def minimal_pairs(self) -> HerosTask:
        """Sentences of the demonstration beside the same with a synonym, a typo, a negation and other changes."""
        return load_heros(sample_minimal_pairs_path())

    def command(self, words: str) -> str:
        """A command with this model in the place of MODEL, to be pasted into a shell."""
        return words.replace("MODEL", shlex.quote(self.name))

    def command_with(self, step: str) -> str:
        """The command that saves the model with one more step of shaping."""
        if is_exported_folder(self.name) or is_essent_folder(self.name, self.options):
            return f'save it again from the model that it was made of, with "| {step}" at the end of its recipe'
        if not isinstance(self.encoder, Encoder):
            return f"shape its vectors with {step!r} of essent.recipe.shaping: no recipe has its modules"
        recipe = self.recipe.removesuffix("normalize").rstrip(" |")
        quoted = shlex.quote(f"{recipe} | {step}")
        return f"essent save -m {shlex.quote(self.name)} -r {quoted} --fit texts.txt -o fixed"
