"""One pair of sentences: cosine, calibrated similarity, and the share of each token.

A token's share is what the cosine loses without the token: its id is deleted, as in `POST /explain` of the server.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device, truncate_embeddings

from essent._core.arguments import ModelLike
from essent._core.atomic import replacing_file
from essent._core.compat import prompt_of
from essent._core.lazy import optional_import
from essent._core.texts import check_texts
from essent.encoder.encoder import Encoder, open_as_it_is
from essent.errors import InputError
from essent.lab.explain.predictions import shown
from essent.recipe.recipe import Recipe
from essent.report.parts import shortened
from essent.report.picture import FAINT, STYLE
from essent.selection.evaluation import model_name
from essent.tasks.base import unit_rows
from essent.tasks.result import short_name

if TYPE_CHECKING:
    from rich.table import Table

TOKENS = 8192  # tokens per pass


@dataclass(frozen=True, repr=False)
class PairExplanation:
    """The result of `explain_pair`.

    Attributes:
        model, recipe: how the vectors were computed.
        first, second: the sentences.
        cosine: cosine of their vectors.
        calibrated: calibrated similarity; None if the model has no calibration.
        calibration: what `calibrated` means; "" without a calibration.
        tokens: the tokens of each sentence in their order, with what each gives to the cosine: the cosine minus that
            of the sentence without the token.
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
    tokens: tuple[list[tuple[str, float]], list[tuple[str, float]]]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        calibrated = "" if self.calibrated is None else f", calibrated={self.calibrated:.2f}"
        return f"PairExplanation(cosine={self.cosine:.2f}{calibrated}, first={self.first!r}, second={self.second!r})"

    def headline(self) -> str:
        """Return "cosine 0.79", and the calibrated similarity if there is one."""
        return f"cosine {self.cosine:.2f}" + ("" if self.calibrated is None else f", calibrated {self.calibrated:.2f}")

    def table(self) -> Table:
        """Return the table of tokens for `rich`."""
        from rich import box
        from rich.table import Column, Table
        from rich.text import Text

        gives = (Column("gives", justify="right", no_wrap=True) for _ in range(2))
        table = Table("token of 1", next(gives), "token of 2", next(gives), box=box.SIMPLE_HEAD, pad_edge=False)
        both = [[(token, signed(given)) for token, given in tokens] for tokens in self.tokens]
        for row in zip_longest(*both, fillvalue=("", "")):
            table.add_row(*map(Text, chain(*row)))
        return table


def signed(value: float) -> str:
    """Format a difference of cosines as "+0.12"; "0.00" without a sign."""
    return "0.00" if abs(value) < 0.005 else f"{value:+.2f}"


def explain_pair(
    model: ModelLike, first: str, second: str, recipe: Recipe | str | None = None, **options: Any
) -> PairExplanation:
    """Explain the similarity of two sentences by what each token gives.

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
        >>> for token, given in pair.tokens[1]:
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
    units = unit_rows(np.asarray(encoder.encode(pair, show_progress_bar=False), np.float64))  # (2,K)
    cosine = float(np.clip(units[0] @ units[1], -1, 1))
    tokens: tuple[list[tuple[str, float]], list[tuple[str, float]]] = ([], [])
    notes = []
    for number, text in enumerate(pair):
        without = _without_each_token(encoder, text)
        if isinstance(without, str):
            notes.append(f"No tokens of sentence {number + 1}: {without}.")
        else:
            tokens[number].extend((token, cosine - float(unit @ units[1 - number])) for token, unit in without)
    calibration = getattr(encoder, "calibration", None)
    return PairExplanation(
        model=model_name(model),
        recipe=str(encoder.recipe) if isinstance(encoder, Encoder) else "as saved",
        first=pair[0],
        second=pair[1],
        cosine=cosine,
        calibrated=None if calibration is None else float(calibration(cosine)),
        calibration="" if calibration is None else str(calibration),
        tokens=tokens,
        notes=tuple(notes),
    )


@torch.inference_mode()
def _without_each_token(encoder: SentenceTransformer, text: str) -> list[tuple[str, np.ndarray]] | str:
    """Return the tokens of a text, each with the unit vector (K,) of the text without it, or why there are none."""
    if not isinstance(encoder, Encoder):
        return "no recipe describes the model's modules"
    module, (frame, *others) = encoder.module, encoder.module.plan.frames
    if others or frame.between is not None:
        return "the recipe adds several templates, or repeats the text"
    (ids,) = module.ids([prompt_of(encoder, None, None) + text])
    positions = range(len(frame.before), len(ids) - len(frame.after))  # of the text's tokens
    if len(positions) < 2:
        return "it has only one"
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


# -- the picture: a bar per token -------------------------------------------------------------------------------------

MORE, LESS = "#2F6DB5", "#C8553D"  # tokens that raise, tokens that lower the cosine
WIDTH, DPI = 11.0, 150  # inches; dots per inch
LINE, BAR, EDGES = 0.25, 0.27, 1.0  # inches: a line of the head, a token, title and axis
MAX_TOKENS = 40  # bars per sentence
MAX_LINE = 125  # characters per line of the head


def draw_pair(pair: PairExplanation, path: str | Path) -> None:
    """Draw a pair to a file, in the format of its suffix, by default PNG.

    Bars are what each token gives to the cosine; of more than 40 tokens of a sentence, those that give most are drawn.

    Raises:
        InputError: there are no tokens to draw.
        MissingDependencyError: matplotlib is not installed.

    Example:
        >>> from pathlib import Path
        >>> from essent.lab.explain import draw_pair, explain_pair
        >>> model = "sentence-transformers/all-MiniLM-L6-v2"
        >>> draw_pair(explain_pair(model, "The film was good.", "The film was not good."), "pair.png")
        >>> Path("pair.png").exists()
        True
    """
    matplotlib = optional_import("matplotlib", "demo")
    from matplotlib.figure import Figure

    if not any(pair.tokens):
        raise InputError(f"Nothing to draw: {' '.join(pair.notes)}")
    head = [pair.headline(), f"{shortened(short_name(pair.model), 60)}, {pair.recipe}"]
    head += textwrap.wrap(f"calibrated: {pair.calibration}", MAX_LINE) if pair.calibration else []
    for number, text in ((1, pair.first), (2, pair.second)):
        head += textwrap.wrap(f"{number}  {text}", MAX_LINE, subsequent_indent="    ", max_lines=3)
    rows = min(max(map(len, pair.tokens)), MAX_TOKENS)
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # characters missing from the font become boxes
        size = WIDTH, LINE * len(head) + EDGES + BAR * rows
        figure: Any = Figure(size, DPI, facecolor="white", layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)
        figure.suptitle("\n".join(head), x=0.02, ha="left", fontsize=11)
        _draw_tokens(figure, {number: part for number, part in enumerate(pair.tokens, start=1) if part}, rows)
        with replacing_file(path) as temporary:
            figure.savefig(temporary, format=temporary.suffix[1:] or "png")


def _draw_tokens(figure: Any, tokens: dict[int, list[tuple[str, float]]], rows: int) -> None:
    """Draw a bar per token, in the order of the sentence, on one scale for both sentences."""
    largest = max(abs(value) for of_sentence in tokens.values() for _, value in of_sentence)
    limit = 1.35 * max(largest, 0.05)  # room for the numbers
    panels = figure.subplots(1, len(tokens), squeeze=False)[0]
    for axes, (number, of_sentence) in zip(panels, tokens.items(), strict=True):
        drawn = sorted(np.argsort([-abs(value) for _, value in of_sentence], kind="stable")[:MAX_TOKENS])
        values = np.array([of_sentence[row][1] for row in drawn])
        left_out = f", {len(drawn)} of {len(of_sentence)}" if len(drawn) < len(of_sentence) else ""
        axes.set_title(f"What each token of {number} gives{left_out}", loc="left", fontsize=12, weight="bold")
        axes.set_ylim(rows - 0.4, -0.6)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.grid(axis="x")
        bars = axes.barh(range(len(drawn)), values, 0.62, color=np.where(values > 0, MORE, LESS))
        axes.bar_label(
            bars, [signed(value).replace("-", "−") for value in values], padding=4, fontsize=8.5, color=FAINT
        )
        axes.set_yticks(range(len(drawn)), [shortened(of_sentence[row][0], 24) for row in drawn])
        axes.set_xlim(-limit, limit)
        axes.axvline(0, color=FAINT, linewidth=0.8)
        axes.set_xlabel("cosine of the pair − cosine without the token")
