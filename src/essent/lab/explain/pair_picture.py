"""The picture of one pair of sentences: a bar per token, and the cosines of the negated and misspelled copies."""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.atomic import replacing_file
from essent._core.lazy import optional_import
from essent.errors import InputError
from essent.lab.explain.pair import PairChange, PairExplanation, signed
from essent.report.parts import shortened
from essent.report.picture import FAINT, INK, RULE, STYLE
from essent.tasks.result import short_name

MORE, LESS, OWN = "#2F6DB5", "#C8553D", "#8A929B"  # tokens that raise, tokens that lower the cosine; own original
WIDTH, DPI = 11.0, 150  # inches; dots per inch
LINE, BAR, COPY = 0.25, 0.27, 0.6  # inches: a line of the head, a token, a copy
TOKEN_EDGES, COPY_EDGES = 1.0, 1.3  # inches: title, axis and legend
MAX_TOKENS = 40  # bars per sentence
MAX_LINE, MAX_COPY = 125, 44  # characters per line of the head and of a copy


def draw_pair(pair: PairExplanation, path: str | Path) -> None:
    """Draw a pair to a file, in the format of its suffix, by default PNG.

    Bars are what each token gives to the cosine; of more than 40 tokens of a sentence, those that give most are drawn.

    Raises:
        InputError: there is nothing to draw: no tokens, no negation and no typo.
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

    copies, tokens = pair.copies(), [pair.tokens(1), pair.tokens(2)]
    if not pair.changes:
        raise InputError(f"Nothing to draw: {' '.join(pair.notes)}")
    head = [pair.headline(), f"{shortened(short_name(pair.model), 60)}, {pair.recipe}"]
    head += textwrap.wrap(f"calibrated: {pair.calibration}", MAX_LINE) if pair.calibration else []
    for number, text in ((1, pair.first), (2, pair.second)):
        head += textwrap.wrap(f"{number}  {text}", MAX_LINE, subsequent_indent="    ", max_lines=3)
    heights = [TOKEN_EDGES + BAR * min(max(map(len, tokens)), MAX_TOKENS)] if any(tokens) else []
    heights += [COPY_EDGES + COPY * len(copies)] if copies else []
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # characters missing from the font become boxes
        size = WIDTH, LINE * len(head) + sum(heights)
        figure: Any = Figure(size, DPI, facecolor="white", layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)
        figure.suptitle("\n".join(head), x=0.02, ha="left", fontsize=11)
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False).ravel()
        if any(tokens):
            _draw_tokens(parts[0], {number: part for number, part in enumerate(tokens, start=1) if part})
        if copies:
            _draw_copies(parts[-1], pair.cosine, copies)
        with replacing_file(path) as temporary:
            figure.savefig(temporary, format=temporary.suffix[1:] or "png")


def _draw_tokens(part: Any, tokens: dict[int, list[tuple[str, float]]]) -> None:
    """Draw a bar per token, in the order of the sentence, on one scale for both sentences."""
    largest = max(abs(value) for of_sentence in tokens.values() for _, value in of_sentence)
    limit = 1.35 * max(largest, 0.05)  # room for the numbers
    rows = min(max(map(len, tokens.values())), MAX_TOKENS)
    panels = part.subplots(1, len(tokens), squeeze=False)[0]
    for axes, (number, of_sentence) in zip(panels, tokens.items(), strict=True):
        drawn = sorted(np.argsort([-abs(value) for _, value in of_sentence], kind="stable")[:MAX_TOKENS])
        values = np.array([of_sentence[row][1] for row in drawn])
        left_out = f", {len(drawn)} of {len(of_sentence)}" if len(drawn) < len(of_sentence) else ""
        _begin(axes, f"What each token of {number} gives{left_out}", rows)
        bars = axes.barh(range(len(drawn)), values, 0.62, color=np.where(values > 0, MORE, LESS))
        axes.bar_label(bars, [_figure(value) for value in values], padding=4, fontsize=8.5, color=FAINT)
        axes.set_yticks(range(len(drawn)), [shortened(of_sentence[row][0], 24) for row in drawn])
        axes.set_xlim(-limit, limit)
        axes.axvline(0, color=FAINT, linewidth=0.8)
        axes.set_xlabel("cosine of the pair − cosine without the token")


def _draw_copies(part: Any, cosine: float, copies: list[PairChange]) -> None:
    """Draw the cosine of each copy with the other sentence, next to the pair's, and with its own original."""
    axes = part.subplots()
    _begin(axes, "What a negation and a typo change", len(copies))
    lines = range(len(copies))
    others = [copy.cosine for copy in copies]
    axes.axvline(cosine, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=f"the pair, {cosine:.2f}")
    axes.hlines(lines, cosine, others, color=RULE, linewidth=4, zorder=1)
    axes.plot(others, lines, "o", color=MORE, markersize=9, label="changed sentence and the other one")
    hollow = {"markerfacecolor": "white", "markeredgecolor": OWN, "markeredgewidth": 1.6}
    own = [copy.to_original for copy in copies]
    axes.plot(own, lines, "o", markersize=9, label="changed sentence and its original", **hollow)
    labels = [
        "\n".join(
            [
                *textwrap.wrap(f"{copy.kind} in {copy.sentence}: {copy.text}", MAX_COPY, max_lines=2),
                f"{copy.cosine:.2f} ({_figure(copy.difference)})",
            ]
        )
        for copy in copies
    ]
    axes.set_yticks(lines, labels)
    values = [cosine, *others, *own]
    margin = 0.06 * max(max(values) - min(values), 0.1)
    axes.set_xlim(min(values) - margin, max(values) + margin)
    axes.set_xlabel("cosine")
    part.legend(frameon=False, loc="outside lower center", ncols=3, fontsize=9)


def _figure(value: float) -> str:
    return signed(value).replace("-", "−")  # as on the axes


def _begin(axes: Any, title: str, rows: int) -> None:
    axes.set_title(title, loc="left", fontsize=12, weight="bold")
    axes.set_ylim(rows - 0.4, -0.6)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(axis="x")
