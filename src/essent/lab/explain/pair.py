"""One pair of sentences: cosine, calibrated similarity, the share of each token, and what a negation or a typo changes.

A token's share is what the cosine loses without the token: its id is deleted, as in `POST /explain` of the server. The
negated and misspelled copies come from the rules of `essent.lab.minimal_pairs`, which are for English.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device, truncate_embeddings

from essent._core.arguments import ModelLike
from essent._core.compat import prompt_of
from essent._core.texts import check_texts
from essent.encoder.encoder import Encoder, open_as_it_is
from essent.errors import InputError, MissingDependencyError, ModelError
from essent.lab.explain.predictions import shown
from essent.lab.minimal_pairs.english import negate, part_of_speech, replace_word, replaceable, statement
from essent.lab.minimal_pairs.parsing import (
    Doc,
    Parser,
    UnsuitableError,
    attempt,
    is_word,
    make_typo,
    misspellings,
    text_of,
)
from essent.recipe.recipe import Recipe
from essent.selection.evaluation import model_name
from essent.tasks.base import unit_rows

if TYPE_CHECKING:
    from rich.table import Table

TOKENS = 8192  # tokens per pass
MIN_KNOWN = 0.5  # smallest share of English words in a sentence that is negated


@dataclass(frozen=True)
class PairChange:
    """The pair after one change of one sentence.

    Attributes:
        sentence: 1 or 2.
        kind: "token" (left out), "negation" or "typo".
        text: the token that is left out, or the changed sentence.
        cosine: cosine of the changed sentence and the other sentence.
        difference: `cosine` minus the cosine of the pair; what a token gives is minus this.
        to_original: cosine of the changed sentence and the same sentence without the change.

    Example:
        >>> from essent.lab.explain import explain_pair
        >>> model = "sentence-transformers/all-MiniLM-L6-v2"
        >>> pair = explain_pair(model, "The film was good.", "The film was not good.")
        >>> [change.text for change in pair.changes if change.kind == "negation"]
        ['The film was not good.', 'The film was good.']
    """

    sentence: int
    kind: str
    text: str
    cosine: float
    difference: float
    to_original: float


@dataclass(frozen=True, repr=False)
class PairExplanation:
    """The result of `explain_pair`.

    Attributes:
        model, recipe: how the vectors were computed.
        first, second: the sentences.
        cosine: cosine of their vectors.
        calibrated: calibrated similarity; None if the model has no calibration.
        calibration: what `calibrated` means; "" without a calibration.
        changes: each token left out, each negation and each typo, of the first sentence and then of the second.
        notes: what could not be computed, and why.

    Example:
        >>> from essent.lab.explain import explain_pair
        >>> explain_pair("sentence-transformers/all-MiniLM-L6-v2", "The film was good.", "The film was not good.")
        PairExplanation(cosine=0.79, first='The film was good.', second='The film was not good.')
    """

    model: str
    recipe: str
    first: str
    second: str
    cosine: float
    calibrated: float | None
    calibration: str
    changes: tuple[PairChange, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        calibrated = "" if self.calibrated is None else f", calibrated={self.calibrated:.2f}"
        return f"PairExplanation(cosine={self.cosine:.2f}{calibrated}, first={self.first!r}, second={self.second!r})"

    def tokens(self, sentence: int) -> list[tuple[str, float]]:
        """Return the tokens of sentence 1 or 2 in their order, with what each gives to the cosine.

        Example:
            >>> from essent.lab.explain import explain_pair
            >>> model = "sentence-transformers/all-MiniLM-L6-v2"
            >>> pair = explain_pair(model, "The film was good.", "The film was not good.")
            >>> [token for token, _ in pair.tokens(2)]
            ['the', 'film', 'was', 'not', 'good', '.']
        """
        return [(c.text, -c.difference) for c in self.changes if (c.sentence, c.kind) == (sentence, "token")]

    def copies(self) -> list[PairChange]:
        """Return the changes of whole sentences: negations and typos."""
        return [change for change in self.changes if change.kind != "token"]

    def headline(self) -> str:
        """Return "cosine 0.79", and the calibrated similarity if there is one."""
        return f"cosine {self.cosine:.2f}" + ("" if self.calibrated is None else f", calibrated {self.calibrated:.2f}")

    def tables(self) -> list[Table]:
        """Return tables of tokens and of negations and typos for `rich`; none of an empty one."""
        from rich import box
        from rich.table import Column, Table
        from rich.text import Text

        def right(name: str) -> Column:
            return Column(name, justify="right", no_wrap=True)

        style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False}
        tables = []
        both = [[(token, signed(given)) for token, given in self.tokens(number)] for number in (1, 2)]
        if any(both):
            table = Table("token of 1", right("gives"), "token of 2", right("gives"), **style)
            for row in zip_longest(*both, fillvalue=("", "")):
                table.add_row(*map(Text, chain(*row)))
            tables.append(table)
        if copies := self.copies():
            numbers = ("cosine", "difference", "to original")
            table = Table("change", Column("changed sentence", overflow="fold"), *map(right, numbers), **style)
            for copy in copies:
                name = f"{copy.kind} in {copy.sentence}"
                figures = f"{copy.cosine:.2f}", signed(copy.difference), f"{copy.to_original:.2f}"
                table.add_row(name, Text(copy.text), *figures)
            tables.append(table)
        return tables


def signed(value: float) -> str:
    """Format a difference of cosines as "+0.12"; "0.00" without a sign."""
    return "0.00" if abs(value) < 0.005 else f"{value:+.2f}"


def explain_pair(
    model: ModelLike, first: str, second: str, recipe: Recipe | str | None = None, **options: Any
) -> PairExplanation:
    """Explain the similarity of two sentences: what each token gives, and what a negation or a typo changes.

    What a token gives is the cosine minus the cosine without this token: above 0, it makes the sentences more similar.
    The sum over tokens is not the cosine, because each is left out alone. The model's default prompt, if it has one, is
    put before both sentences, and its tokens are among theirs.

    Args:
        model: a hub name, a folder, an Encoder or another SentenceTransformer. A saved calibration is used.
        first, second: the sentences.
        recipe: a recipe that learns nothing; None runs the model, such as a fitted Encoder, as it is.
        options: keyword arguments for SentenceTransformer (device, revision …).

    Raises:
        InputError: a sentence is not a str, or is empty.
        NotFittedError: the recipe has learned parts (idf, shaping): pass a fitted Encoder, or its folder.

    Example:
        >>> from essent.lab.explain import explain_pair
        >>> model = "sentence-transformers/all-MiniLM-L6-v2"
        >>> pair = explain_pair(model, "The film was good.", "The film was not good.", "mean")
        >>> for token, given in pair.tokens(2):
        ...     print(f"{given:+.1f}  {token}")
        +0.1  the
        +0.2  film
        +0.0  was
        -0.2  not
        +0.2  good
        -0.0  .
    """
    pair = check_texts([first, second])
    if empty := [name for name, text in zip(("first", "second"), pair, strict=True) if not text.strip()]:
        raise InputError(f"The {empty[0]} sentence is empty. Pass two sentences with at least one word each.")
    encoder: SentenceTransformer
    if recipe is not None:
        encoder = Encoder(model, recipe, **options)
    else:
        encoder = model if isinstance(model, SentenceTransformer) else open_as_it_is(model, options)
    copies, notes = _copies(pair)
    vectors = encoder.encode([*pair, *(text for _, _, text in copies)], show_progress_bar=False)
    units = unit_rows(np.asarray(vectors, np.float64))  # (2+C,K)
    changed: list[tuple[int, str, str, np.ndarray]] = []
    for number, text in enumerate(pair, start=1):
        try:
            changed += [(number, "token", *without) for without in _without_each_token(encoder, text)]
        except UnsuitableError as error:
            notes.append(f"No tokens of sentence {number}: {error}.")
    changed += [(*copy, unit) for copy, unit in zip(copies, units[2:], strict=True)]
    cosine = float(np.clip(units[0] @ units[1], -1, 1))
    changes = []
    for number, kind, text, unit in sorted(changed, key=itemgetter(0)):
        own, other = np.clip(units[[number - 1, 2 - number]] @ unit, -1, 1).tolist()
        changes.append(PairChange(number, kind, text, other, other - cosine, own))
    calibration = getattr(encoder, "calibration", None)
    return PairExplanation(
        model=model_name(model),
        recipe=str(encoder.recipe) if isinstance(encoder, Encoder) else "as saved",
        first=pair[0],
        second=pair[1],
        cosine=cosine,
        calibrated=None if calibration is None else float(calibration(cosine)),
        calibration="" if calibration is None else str(calibration),
        changes=tuple(changes),
        notes=tuple(notes),
    )


# -- tokens -----------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def _without_each_token(encoder: SentenceTransformer, text: str) -> list[tuple[str, np.ndarray]]:
    """Return the tokens of a text, each with the unit vector (K,) of the text without it.

    Raises:
        UnsuitableError: tokens cannot be left out.
    """
    if not isinstance(encoder, Encoder):
        raise UnsuitableError("no recipe describes the model's modules")
    module, (frame, *others) = encoder.module, encoder.module.plan.frames
    if others or frame.between is not None:
        raise UnsuitableError("the recipe adds several templates, or repeats the text")
    (ids,) = module.ids([prompt_of(encoder, None, None) + text])
    positions = range(len(frame.before), len(ids) - len(frame.after))  # of the text's tokens
    if len(positions) < 2:
        raise UnsuitableError("it has only one")
    encoder.eval()
    parts = []
    for rows in np.array_split(positions, math.ceil(len(positions) * len(ids) / TOKENS)):
        features = module.pad([np.delete(ids, row).tolist() for row in rows])
        parts.append(encoder(batch_to_device(features, encoder.device))["sentence_embedding"].double().cpu())
    vectors = torch.cat(parts)  # (T,K)
    vectors = vectors if encoder.truncate_dim is None else truncate_embeddings(vectors, encoder.truncate_dim)
    vocabulary = module.backbone.vocabulary
    tokens = [shown(vocabulary, ids[position]) for position in positions]
    return list(zip(tokens, unit_rows(vectors.numpy()), strict=True))


# -- negations and typos ----------------------------------------------------------------------------------------------


def _copies(pair: Sequence[str]) -> tuple[list[tuple[int, str, str]], list[str]]:
    """Return a negated and a misspelled copy of each sentence, and notes on copies that the rules cannot make.

    A copy is its sentence (1 or 2), its kind and its text, as in `PairChange`.
    """
    try:
        docs = Parser()(pair)
        misspellings()  # the typos below read this list, of the same extra
    except (MissingDependencyError, ModelError) as error:
        return [], [f"No negations and typos: {error}"]
    copies, notes = [], []
    for number, doc in enumerate(docs, start=1):
        for kind, change in (("negation", _negated), ("typo", _misspelled)):
            try:
                copies.append((number, kind, change(doc)))
            except UnsuitableError as error:
                notes.append(f"No {kind} of sentence {number}: {error}.")
    return copies, notes


def _negated(doc: Doc) -> str:
    """Negate the main verb, or remove its negation; raise UnsuitableError if no rule applies."""
    known = [is_word(token.lower_) for token in doc if token.is_alpha and part_of_speech(token)]
    if known and np.mean(known) < MIN_KNOWN:
        raise UnsuitableError("most of its words are not English")
    return negate(statement(doc))


def _misspelled(doc: Doc) -> str:
    """Misspell a verb or adjective, or else the longest word; raise UnsuitableError if none has a typo."""
    rng = np.random.default_rng([0, zlib.crc32(text_of(doc).encode())])  # as `build` draws typos
    longest = sorted((token for token in doc if token.is_alpha), key=len, reverse=True)
    for token in [*replaceable(doc), *longest]:
        typo = attempt(make_typo, token.text, rng, misspellings())
        if not isinstance(typo, UnsuitableError):
            return replace_word(token, typo)
    raise UnsuitableError("no word of at least three letters has a typo")
