"""What a masked-language-model run starts from, read and checked before any weights are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from essent.pretrain.data import Packed, Texts, pack, split_texts
from essent.pretrain.frames import in_frames
from essent.pretrain.model import fit_config, open_tokenizer, read_config
from essent.pretrain.settings import Pretraining
from essent.types import InputError


@dataclass(frozen=True)
class Start:
    """A model to go on with, or the configuration of a new one and its tokenizer.

    Attributes:
        model: a hub name or folder; a prediction head that it lacks is made new.
        config: a size of BERT ("tiny", "mini", "small", "medium", "base") or a config.json.
        tokenizer: of a new model: a hub name or folder, or "train" (as None) for one trained on the texts.
        vocabulary: tokens of a trained tokenizer, at most.
        cased: a trained tokenizer tells capitals apart.
        options: keyword arguments for transformers' from_pretrained (revision, token, trust_remote_code …).
    """

    model: str | None = None
    config: str | None = None
    tokenizer: str | None = None
    vocabulary: int = 30_522
    cased: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.vocabulary, bool) or not isinstance(self.vocabulary, int) or self.vocabulary < 1:
            raise InputError(f"vocabulary={self.vocabulary!r}; it must be a whole number, 1 or more.")

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values; of a path on this machine its last part."""
        named = {name: getattr(self, name) for name in ("model", "config", "tokenizer")}
        short = {name: Path(value).name if value and Path(value).exists() else value for name, value in named.items()}
        return {**short, "vocabulary": self.vocabulary, "cased": self.cased}


@dataclass(frozen=True)
class Prepared:
    """Everything that a run needs besides the weights."""

    start: Start
    config: Any
    tokenizer: Any
    texts: Texts
    train: Packed
    held_out: Packed

    def about(self, settings: Pretraining) -> dict[str, Any]:
        """What the run is made of, as JSON values."""
        return {
            "start": self.start.to_dict(),
            "settings": settings.to_dict(),
            "texts": {
                "sha256": self.texts.digest(),
                "train": len(self.texts.train),
                "held_out": len(self.texts.held_out),
            },
            "sequences": {
                "train": len(self.train),
                "held_out": len(self.held_out),
                "tokens": self.train.tokens,
                "filled": round(self.train.tokens / self.train.ids.size, 4),
            },
        }


def prepare(texts: Sequence[str], held_out: Sequence[str] | None, start: Start, settings: Pretraining) -> Prepared:
    """Split, tokenise and pack the texts, and read the configuration.

    Raises:
        InputError: texts or settings that cannot be trained on.
        ModelError: nothing to load there, or no masked language model.
    """
    if settings.head_first and start.model is None:
        raise InputError("head_first= is for a model to go on with: of a new one nothing is worth keeping.")
    split = split_texts(texts, held_out, settings.seed)
    if settings.frames:
        split = replace(split, train=tuple(in_frames(split.train, settings.frames, settings.seed)))
    options = dict(start.options)
    config = read_config(start.model, start.config, options)
    tokenizer = open_tokenizer(
        start.model, start.tokenizer, split.train, options, size=start.vocabulary, cased=start.cased
    )
    fit_config(config, tokenizer, settings.max_seq_length, new=start.model is None, untied=settings.untied)
    shape: dict[str, Any] = {"words": settings.whole_words, "seed": settings.seed}
    train = pack(tokenizer, split.train, settings.max_seq_length, settings.packing, **shape)
    measured = pack(tokenizer, split.held_out, settings.max_seq_length, **shape)
    if train.tokens < settings.max_seq_length:
        raise InputError(
            f"The texts have {train.tokens} tokens, special ones counted, which is less than one sequence of "
            f"max_seq_length={settings.max_seq_length}. Give more texts, or a smaller max_seq_length."
        )
    if len(train) < settings.sequences_per_step:
        raise InputError(
            f"tokens_per_step={settings.tokens_per_step} is more than there is: the texts fill {len(train)} sequences "
            f"of {settings.max_seq_length} tokens. Take tokens_per_step={len(train) * settings.max_seq_length} at "
            "most, or more texts."
        )
    if not len(measured):
        raise InputError("The held-out texts have no tokens.")
    return Prepared(start, config, tokenizer, split, train, measured)
