"""The model under test: files, token ids and vectors; and the checks of its vectors."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from essent._core.arguments import TextsLike
from essent._core.compat import prompt_of
from essent._core.folders.contents import is_essent_folder, is_exported_folder
from essent._core.folders.files import read_json
from essent._core.hub import folder_of, reach_model
from essent._core.texts import check_texts, encode_allowing_nonfinite
from essent.encoder.encoder import Encoder, open_as_it_is
from essent.encoder.save import LEGACY_FLAGS
from essent.engine.compiled import CompiledEncoder
from essent.engine.files import load
from essent.errors import InputError
from essent.recipe.tokens import fast_backend, read_ids, unknown_token
from essent.tasks.base import unit_rows
from essent.tasks.geometry import average_cosine
from essent.tasks.heros import comparisons, load_heros
from essent.tasks.sample import sample_minimal_pairs_path, sample_texts
from essent.verification.report import Problem

NO_LIMIT = 10**9  # tokenizers without a limit write 1e30
NO_TOKEN = -1  # the id of an unknown token that does not exist
MAX_TEXTS = 2000  # more texts change no figure enough to cross its threshold
ANISOTROPIC = 0.5  # average cosine: above it, two vectors share mostly what all vectors share
DEAD, DEAD_SHARE = 1e-3, 0.02  # shares: of the median deviation; of dimensions below (MiniLM: 3 of 384)
DOMINATING, FEW_DIMENSIONS = 0.2, 8  # share of the squared length; minimum number of dimensions
LENGTH, VARIED = 0.3, 0.25  # rank correlation; standard deviation of log lengths: below it, lengths hardly differ
RANDOM_PAIRS = 20_000
MIN_TEXTS = 20  # fewer texts may have something in common by chance
NEGATION = 0.5  # chance level of negation against synonym; the whole 95 % interval must lie above it
FOREIGN = 0.2  # unknown share of the tokens of the English minimal pairs: above it, they do not apply to the model


class ModelUnderTest:
    """A model and the texts for its checks. Ids and vectors are computed when they are first used.

    Args:
        name: a folder, or a name on the hub.
        texts: texts of the user; None: 320 English sentences of essent's own. The first 2,000 distinct texts are used.
        options: keyword arguments of SentenceTransformer.

    Attributes:
        root: the folder, or the hub model's folder in the cache.
        config, transformer_settings: contents of config.json and sentence_bert_config.json; {} without the file.
        modules: folder, class path and class name of each listed module; [] for a plain transformers model.
        pooling: configuration of the Pooling module, or None.
        pooling_mode: what sentence-transformers computes; mean if the folder does not declare it.
        card: the model card; "" without one.
        positions: number of position embeddings; None for relative positions, or if config.json does not declare it.
        encoder: an Encoder if a recipe describes the model, otherwise a graph or a SentenceTransformer.
        tokenizer: that of the library tokenizers; None for slow ones and those of words, whose tokens are not checked.
        unknown: id of the unknown token.
        max_tokens: maximum tokens per text, without special tokens and template; None without a limit.

    Raises:
        InputError: fewer than two distinct texts.
    """

    def __init__(self, name: str, texts: TextsLike | None, options: dict[str, Any]) -> None:
        self.name, self.options = name, reach_model(name, options)
        all_texts = sample_texts() if texts is None else check_texts(texts)
        self.texts = list(dict.fromkeys(all_texts))[:MAX_TEXTS]
        if len(self.texts) < 2:
            raise InputError(f"Only {len(self.texts)} distinct texts. Pass at least two.")
        self.root = folder_of(name, self.options)
        self.config: dict[str, Any] = read_json(self.root / "config.json") or {}
        self.transformer_settings: dict[str, Any] = read_json(self.root / "sentence_bert_config.json") or {}
        listed = read_json(self.root / "modules.json", list) or []
        self.modules = [(str(m["path"]), str(m["type"]), str(m["type"]).rpartition(".")[2]) for m in listed]
        folder = next((path for path, _, kind in self.modules if kind == "Pooling"), None)
        pooling: dict[str, Any] = {} if folder is None else read_json(self.root / folder / "config.json") or {}
        self.pooling = None if folder is None else pooling
        flagged = "+".join(mode for mode, flag in LEGACY_FLAGS.items() if pooling.get(flag))
        self.pooling_mode = str(pooling.get("pooling_mode") or flagged or "mean")
        card = self.root / "README.md"
        self.card = card.read_text("utf-8", errors="replace") if card.is_file() else ""
        positions = self.config.get("max_position_embeddings")
        absolute = self.config.get("position_embedding_type", "absolute") == "absolute"
        self.positions = positions if isinstance(positions, int) and positions > 0 and absolute else None
        padding = self.config.get("pad_token_id") if "roberta" in str(self.config.get("model_type")) else None
        if self.positions is not None and isinstance(padding, int):
            self.positions -= padding + 1  # RoBERTa's positions start after the padding id
        self.encoder: CompiledEncoder | SentenceTransformer = (
            load(name) if is_exported_folder(name) else open_as_it_is(name, self.options)
        )
        self.recipe = str(getattr(self.encoder, "recipe", "a model that no recipe describes"))
        tokenizer: Any
        if isinstance(self.encoder, CompiledEncoder):
            tokenizer, room = self.encoder.reading.backend, self.encoder.reading.frame.room
        elif isinstance(self.encoder, Encoder):
            tokenizer, room = self.encoder.tokenizer, self.encoder.module.plan.room
        else:
            tokenizer, room = self.encoder.tokenizer, None
        tokenizer = fast_backend(tokenizer) if hasattr(tokenizer, "backend_tokenizer") else tokenizer
        self.tokenizer: Tokenizer | None = tokenizer if isinstance(tokenizer, Tokenizer) else None
        self.max_tokens, self.unknown = None, NO_TOKEN
        if self.tokenizer is not None:
            token, limit = unknown_token(self.tokenizer), self.encoder.max_seq_length
            unknown = None if token is None else self.tokenizer.token_to_id(token)
            self.unknown = NO_TOKEN if unknown is None else unknown
            if limit is not None and limit < NO_LIMIT:
                special = self.tokenizer.num_special_tokens_to_add(False)
                self.max_tokens = room(int(limit)) if room else int(limit) - special

    @cached_property
    def ids(self) -> list[list[int]]:
        """Token ids of the texts with the default prompt: not truncated, without special tokens."""
        encoder = self.encoder
        prompt = encoder.prompt_text() if isinstance(encoder, CompiledEncoder) else prompt_of(encoder, None, None)
        return self.ids_of([prompt + text for text in self.texts])

    def ids_of(self, texts: list[str]) -> list[list[int]]:
        """Return token ids of texts: not truncated, without special tokens; empty without a fast tokenizer."""
        return [[] for _ in texts] if self.tokenizer is None else read_ids(self.tokenizer, texts)

    def unknown_share(self, ids: list[list[int]]) -> float:
        """Return the share of unknown tokens."""
        return sum(sequence.count(self.unknown) for sequence in ids) / max(sum(len(sequence) for sequence in ids), 1)

    @cached_property
    def vectors(self) -> np.ndarray:
        """The vectors of the texts (N,D), float64."""
        encode = partial(self.encoder.encode, self.texts, show_progress_bar=False)
        return np.asarray(encode_allowing_nonfinite(encode), np.float64)

    @cached_property
    def units(self) -> np.ndarray:
        """The vectors scaled to length 1 (N,D)."""
        return unit_rows(self.vectors)

    def command(self, command: str) -> str:
        """Replace MODEL in a command by this model, quoted for a shell."""
        return command.replace("MODEL", shlex.quote(self.name))

    def command_with(self, step: str) -> str:
        """Return the command that saves the model with another shaping step."""
        if is_exported_folder(self.name) or is_essent_folder(self.name, self.options):
            return f'Save it again from the original model, with "| {step}" at the end of the recipe'
        if not isinstance(self.encoder, Encoder):
            return f"Shape its vectors with {step!r} of essent.recipe.shaping (no recipe describes its modules)"
        recipe = f"{self.recipe.removesuffix('normalize').rstrip(' |')} | {step}"
        return self.command(f"essent save -m MODEL -r {shlex.quote(recipe)} --fit texts.txt -o fixed")


# -- checks of vectors ------------------------------------------------------------------------------------------------


def finite(model: ModelUnderTest) -> Iterator[Problem]:
    """A vector is infinite or undefined."""
    wrong = ~np.isfinite(model.vectors).all(axis=1)
    if wrong.any():
        yield Problem(
            f"{int(wrong.sum())} of {len(wrong)} texts have vectors with infinite or undefined numbers, the first is "
            f"{model.texts[int(np.argmax(wrong))]!r:.60}.",
            "Download the weights again; if the training diverged, repeat it with a lower learning rate.",
            figures={"texts": int(wrong.sum())},
        )


def anisotropy(model: ModelUnderTest) -> Iterator[Problem]:
    """The average cosine of unrelated texts is above 0.5."""
    typical = average_cosine(model.vectors)
    if len(model.texts) >= MIN_TEXTS and typical > ANISOTROPIC:
        yield Problem(
            f"The vectors share one direction: the average cosine of two unrelated texts is {typical:.2f}.",
            f"{model.command_with('centre')}; or only calibrate the similarity: essent save --calibrate FILE",
            figures={"average_cosine": typical},
        )


def dead_dimensions(model: ModelUnderTest) -> Iterator[Problem]:
    """More than 2 % of the dimensions are constant."""
    deviation = model.vectors.std(axis=0)
    dead = deviation <= DEAD * np.median(deviation)
    if len(model.texts) >= MIN_TEXTS and float(dead.mean()) > DEAD_SHARE:
        yield Problem(
            f"{int(dead.sum())} of {len(dead)} dimensions are constant: they carry no information.",
            f"{model.command_with(f'whiten:{len(dead) - int(dead.sum())}')}; check that the weights are complete",
            figures={"dead": int(dead.sum()), "dimensions": len(dead)},
        )


def dominating_dimension(model: ModelUnderTest) -> Iterator[Problem]:
    """One dimension has more than 20 % of the vectors' squared length."""
    shares = (model.units**2).mean(axis=0)
    wide = len(shares) >= FEW_DIMENSIONS and len(model.texts) >= MIN_TEXTS
    if wide and float(shares.max()) > DOMINATING:
        yield Problem(
            f"Dimension {int(shares.argmax())} of {len(shares)} has {100 * shares.max():.0f} % of the vectors' squared "
            "length: cosines mostly compare this one number.",
            model.command_with("zscore"),
            figures={"dimension": int(shares.argmax()), "share": float(shares.max())},
        )


def length_bias(model: ModelUnderTest) -> Iterator[Problem]:
    """The cosine of random pairs correlates by more than 0.3 with the similarity of their lengths."""
    lengths = np.log(np.maximum([len(ids) for ids in model.ids], 1))
    if len(lengths) < MIN_TEXTS or float(lengths.std()) < VARIED:
        return
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, len(lengths), (2, RANDOM_PAIRS))
    first, second = first[first != second], second[first != second]
    pair_cosines = np.einsum("nd,nd->n", model.units[first], model.units[second])
    correlation = float(spearmanr(pair_cosines, -np.abs(lengths[first] - lengths[second])).statistic)
    if correlation > LENGTH:
        yield Problem(
            "Texts of similar length have similar vectors: the cosine of random pairs correlates with the similarity "
            f"of their lengths (rank correlation {correlation:.2f}).",
            f"{model.command_with('abtt:2')}; or compare texts of similar length (essent encode --chunk)",
            figures={"correlation": correlation},
        )


def negation(model: ModelUnderTest) -> Iterator[Problem]:
    """A negated sentence ranks above the sentence with a synonym in significantly more than half of the cases."""
    task = load_heros(sample_minimal_pairs_path())
    if model.unknown_share(model.ids_of(list(task.originals))) > FOREIGN:
        return
    scores = task.run(lambda texts: model.encoder.encode(texts, show_progress_bar=False))
    wins = next((c for c in comparisons(scores) if (c.above, c.below) == ("a negation", "a synonym")), None)
    if wins is not None and wins.low > NEGATION:
        yield Problem(
            f"Insensitive to negation: {wins.sentence()}",
            model.command(
                "essent train -m MODEL with negations as hard negatives (essent lab minimal-pairs build makes them "
                "from your sentences), or rerank the best pairs with a cross-encoder"
            ),
            figures={"share": wins.share, "low": wins.low, "high": wins.high},
        )
