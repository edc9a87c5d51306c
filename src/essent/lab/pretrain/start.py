"""What a masked-language-model run starts from, read and checked before any weights are read; its texts in frames.

A frame says what a sentence is about, so that the model learns to answer prompts: `The text " Two dogs run on a beach "
is about beach .` There are no labels and no pairs: the fillings are rare words of the sentence itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from essent.errors import InputError
from essent.lab.pretrain.data import masked_once, masking_of, pack, split_texts
from essent.lab.pretrain.model import fit_config, open_tokenizer, read_config
from essent.lab.pretrain.settings import Pretraining

if TYPE_CHECKING:
    from datasets import Dataset


FRAMES = (  # none is a template of PromptBERT, so that those remain a test
    'The text " {text} " is about {first} .',
    '" {text} " is about {first} and {second} .',
    '" {text} " : {first} , {second} .',
    'This text : " {text} " says {first} .',
    'What " {text} " tells is {first} .',
)
SHORTEST, LONGEST = 4, 22  # words of a sentence that leaves room for its frame
LEAST = 4  # texts that a filling occurs in; rarer ones are names and misspellings
RAREST = 3  # words of a sentence that can be fillings
LETTERS = re.compile(r"[^\W\d_]{3,}")


def in_frames(texts: Sequence[str], share: float, seed: int = 0) -> list[str]:
    """Texts of which a random `share` is put into one of `FRAMES`, with one or two of its three rarest words.

    A text stays unchanged if it has under 4 or over 22 words, or under two words that occur in four texts or more.

    Raises:
        InputError: not one of the texts can be framed.
    """
    counts = Counter(word for text in texts for word in {word.lower() for word in LETTERS.findall(text)})
    generator = np.random.default_rng([seed, 2])
    drawn = generator.random(len(texts)) < share
    found, framed = list(texts), False
    for place in np.flatnonzero(drawn).tolist():
        fillings = _fillings(texts[place], counts)
        if len(fillings) > 1:
            first, second = (fillings[number] for number in generator.permutation(len(fillings))[:2])
            frame = FRAMES[generator.integers(len(FRAMES))]
            found[place] = frame.format(text=texts[place].rstrip(" ."), first=first, second=second)
            framed = True
    if not framed:
        raise InputError(
            f"frames={share}: no text has {SHORTEST} to {LONGEST} words and two words that {LEAST} texts have. Give "
            "more texts, one sentence each, or frames=0."
        )
    return found


def _fillings(text: str, counts: Counter[str]) -> list[str]:
    """The rarest words of a text that are not too rare, spelled as in the text."""
    if not SHORTEST <= len(text.split()) <= LONGEST:
        return []
    written = {word.lower(): word for word in LETTERS.findall(text)}
    known = sorted((word for word in written if counts[word] >= LEAST), key=lambda word: (counts[word], word))
    return [written[word] for word in known[:RAREST]]


@dataclass(frozen=True)
class Start:
    """A model to go on with, or the configuration of a new one and its tokenizer.

    Attributes:
        model: a hub name or folder; a prediction head that it lacks is made new.
        config: a size of BERT ("tiny", "mini", "small", "medium", "base") or a config.json.
        tokenizer: the tokenizer of a new model: a hub name or folder; by default lower-case word pieces are learned
            from the texts.
        vocabulary: the most word pieces that are learned.
        options: keyword arguments for transformers' from_pretrained (revision, token, trust_remote_code …).
    """

    model: str | None = None
    config: str | None = None
    tokenizer: str | None = None
    vocabulary: int = 30_522
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.vocabulary, bool) or not isinstance(self.vocabulary, int) or self.vocabulary < 1:
            raise InputError(f"vocabulary={self.vocabulary!r}; it must be a whole number, 1 or more.")

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values; of a path on this machine its last part."""
        named = {name: getattr(self, name) for name in ("model", "config", "tokenizer")}
        short = {name: Path(value).name if value and Path(value).exists() else value for name, value in named.items()}
        return {**short, "vocabulary": self.vocabulary}


@dataclass(frozen=True)
class Prepared:
    """Everything that a run needs besides the weights; the sequences to learn from have no masks yet."""

    start: Start
    config: Any
    tokenizer: Any
    texts: Sequence[str]
    held_out_texts: Sequence[str]
    masking: Any
    train: Dataset
    held_out: Dataset

    def about(self, settings: Pretraining) -> dict[str, Any]:
        """What the run is made of, as JSON values."""
        tokens = int(self.train.with_format("numpy")["attention_mask"][:].sum())
        return {
            "start": self.start.to_dict(),
            "settings": settings.to_dict(),
            "texts": {
                "sha256": sha256(
                    "\0".join([*self.texts, "", *self.held_out_texts]).encode("utf-8", "surrogatepass")
                ).hexdigest(),
                "train": len(self.texts),
                "held_out": len(self.held_out_texts),
            },
            "sequences": {
                "train": len(self.train),
                "tokens": tokens,
                "filled": round(tokens / (len(self.train) * settings.max_seq_length), 4),
            },
        }


def prepare(texts: Sequence[str], held_out: Sequence[str] | None, start: Start, settings: Pretraining) -> Prepared:
    """Split, tokenise and pack the texts, and read the configuration.

    Raises:
        InputError: texts or settings that cannot be trained on.
        ModelError: nothing to load there, or no masked language model.
    """
    learned, measured = split_texts(texts, held_out, settings.seed)
    if settings.frames:
        learned = in_frames(learned, settings.frames, settings.seed)
    options = dict(start.options)
    config = read_config(start.model, start.config, options)
    tokenizer = open_tokenizer(start.model, start.tokenizer, learned, options, start.vocabulary)
    length, words = settings.max_seq_length, settings.whole_words
    fit_config(config, tokenizer, length, new=start.model is None, untied=settings.untied)
    train = pack(tokenizer, learned, length, words=words)
    if len(train) < settings.batch_size:
        raise InputError(
            f"batch_size={settings.batch_size} is larger than the {len(train)} sequences of {length} tokens that the "
            f"texts fill: take a batch_size of at most {len(train)}, shorter sequences or more texts."
        )
    masking = masking_of(tokenizer, settings.mask_probability, words)
    masked = masked_once(pack(tokenizer, measured, length, words=words), masking, settings.seed)
    return Prepared(start, config, tokenizer, learned, measured, masking, train, masked)
