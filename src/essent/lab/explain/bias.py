"""How a model's token embeddings are biased: by frequency, by sub-word, by case; and how anisotropic they are.

Source: PromptBERT (Jiang et al. 2022), section 3: Figures 1 and 2 show two principal components of the table, Table 2
the average cosine of its rows, Table 1 the average cosine of sentences and what they score on STS. The share of the
table's variance that lies between groups of tokens is essent's own number beside them.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.atomic import replacing_file, write_json
from essent._core.lazy import optional_import
from essent._core.texts import check_texts
from essent._core.types import ModelLike
from essent.errors import InputError, ModelError
from essent.lab.explain.importance import backbone_of
from essent.model.loading import open_model, read_capabilities
from essent.model.template import make_frame
from essent.recipe.recipe import Recipe
from essent.recipe.tokens.ids import Vocabulary, count_tokens, framed_ids
from essent.report.heat import shortened
from essent.report.labels import short_name
from essent.selection.evaluation import Bench, name_of
from essent.tasks.base import Task
from essent.tasks.geometry import average_cosine
from essent.tasks.locate import load_task
from essent.tasks.pairs import PairTask

if TYPE_CHECKING:
    from rich.table import Table
    from sentence_transformers import SentenceTransformer


RECIPES = {"static": "static token embeddings avg.", "mean": "last layer avg."}
SENTENCES = 100_000  # of the corpus, as the paper takes of Wikipedia
GROUPS = 10  # of equally many tokens each, from rare to frequent
CASED = 0.01  # of the tokens begin with a capital where case is kept
UNUSED = re.compile(r"\[unused\d+\]|<unused\d+>|<madeupword\d+>|<extra_id_\d+>")


@dataclass(frozen=True)
class TokenMap:
    """A table of token vectors, seen along its first two principal components.

    Attributes:
        name: "input word embeddings", or "output matrix" where the model does not tie them.
        tokens: those shown (M): neither special, nor unused, nor rows without a token.
        points: (M,2).
        frequency: (M,) log(1 + count) in the corpus; without one the place in the vocabulary, the first highest.
        counted: whether `frequency` was counted.
        subword: (M,) whether the token continues a word.
        upper: (M,) whether the word begins with a capital; all False for uncased models, which have a few odd ones.
        shares: of the table's variance, what each of the two components, and each kind of bias, explains.
        cosine: average cosine of two different rows.
    """

    name: str
    tokens: tuple[str, ...]
    points: np.ndarray
    frequency: np.ndarray
    counted: bool
    subword: np.ndarray
    upper: np.ndarray
    shares: Mapping[str, float]
    cosine: float

    @property
    def cased(self) -> bool:
        """Whether the vocabulary has tokens with capitals."""
        return bool(self.upper.any())


@dataclass(frozen=True)
class SentenceAnisotropy:
    """Sentence vectors by one recipe: average cosine (each pair with itself too, eq. 1), Spearman ×100 by task."""

    recipe: str
    cosine: float
    spearman: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class BiasReport:
    """What `token_bias` found."""

    model: str
    maps: tuple[TokenMap, ...]
    sentences: tuple[SentenceAnisotropy, ...]
    texts: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, every token with its place; NaN becomes None."""
        return {
            "model": self.model,
            "texts": self.texts,
            "tables": [_map_to_dict(one) for one in self.maps],
            "sentences": [
                {"recipe": row.recipe, "average_cosine": _plain(row.cosine), "spearman": _plain_all(row.spearman)}
                for row in self.sentences
            ],
        }

    def tables(self) -> list[Table]:
        """Tokens and sentences, for `rich`."""
        from rich import box
        from rich.table import Table

        tokens = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Tokens", title_justify="left")
        tokens.add_column("")
        for one in self.maps:
            tokens.add_column(one.name, justify="right")
        tokens.add_row("tokens", *(f"{len(one.tokens):,}" for one in self.maps))
        tokens.add_row("average cosine (Table 2)", *(f"{one.cosine:.4f}" for one in self.maps))
        for name in self.maps[0].shares:
            tokens.add_row(f"variance by {name}", *(f"{100 * one.shares[name]:.1f} %" for one in self.maps))
        if not self.sentences:
            return [tokens]
        sentences = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Sentences (Table 1)", title_justify="left")
        tasks = list(self.sentences[0].spearman)
        for name in ("", *(f"Spearman {task}" for task in tasks), *["Spearman avg."] * (len(tasks) > 1), "anisotropy"):
            sentences.add_column(name, justify="right" if name else "left")
        for row in self.sentences:
            scores = list(row.spearman.values())
            means = [sum(scores) / len(scores)] if len(scores) > 1 else []
            sentences.add_row(
                RECIPES.get(row.recipe, row.recipe), *(f"{s:.2f}" for s in [*scores, *means]), f"{row.cosine:.4f}"
            )
        return [tokens, sentences]


def token_bias(
    model: ModelLike,
    corpus: Sequence[str] | None = None,
    *,
    tasks: Sequence[Task | str] = (),
    data: str | None = None,
    seed: int = 0,
    batch_size: int = 32,
    progress: bool = False,
    **options: Any,
) -> BiasReport:
    """Token maps of a model's table, and the anisotropy of its static and last-layer sentence vectors.

    Args:
        model: a hub name, a folder, or a SentenceTransformer.
        corpus: texts; tokens are counted on all of them, sentences measured on at most 100,000 drawn. None: the
            vocabulary's order stands for frequency, and no sentences are measured.
        tasks: scored pairs, or their names, whose Spearman correlation stands beside the anisotropy.
        data: local data for the names.
        options: keyword arguments for SentenceTransformer (device, revision …).

    Raises:
        InputError: an empty corpus, or a model with fewer than three tokens to show.
    """
    texts = None if corpus is None else check_texts(corpus)
    if texts is not None and not texts:
        raise InputError("The corpus has no texts.")
    scored = [load_task(task, data) if isinstance(task, str) else task for task in tasks]
    if wrong := [task.name for task in scored if not isinstance(task, PairTask)]:
        raise InputError(f"{wrong[0]} has no scored pairs; tasks here are such as stsb.")
    shell = _opened(model, options)
    backbone = backbone_of(shell)
    table = backbone.static_table.detach().float().cpu().numpy()  # (V,D)
    vocabulary = backbone.vocabulary
    counts = None
    if texts is not None:
        frame = make_frame(backbone.tokenizer, None)
        stats = count_tokens(
            lambda some: framed_ids(backbone.tokenizer, frame, list(some), None), texts, len(vocabulary)
        )
        counts = stats.count
    maps = [token_map("input word embeddings", table, vocabulary, counts)]
    if (output := _untied(shell, table)) is not None:
        maps.append(token_map("output matrix", output, vocabulary, counts))
    found: list[SentenceAnisotropy] = []
    if texts is not None or scored:
        drawn = _drawn(texts or [], seed)
        recipes = [Recipe.parse(name) for name in RECIPES]
        bench = Bench(shell, recipes, batch_size=batch_size, progress=progress, options={})
        cosines = [math.nan] * len(recipes)
        if drawn:
            cosines = [average_cosine(rows, self_pairs=True) for _, rows in bench.vectors(drawn, None, None)]
        spearman: list[dict[str, float]] = [{} for _ in recipes]
        for task in scored:
            for place, (_, rows) in enumerate(bench.vectors(task.texts(), None, None)):
                spearman[place][task.name] = task.score_vectors(rows).main_score
        found = [SentenceAnisotropy(*row) for row in zip(RECIPES, cosines, spearman, strict=True)]
    return BiasReport(name_of(model), tuple(maps), tuple(found), len(texts or []))


def token_map(name: str, table: np.ndarray, vocabulary: Vocabulary, counts: np.ndarray | None) -> TokenMap:
    """Two principal components of a table's rows (V,D) and what is known of its tokens; `counts` (V,) in a corpus."""
    from sklearn.decomposition import PCA

    every = vocabulary.tokens
    special = vocabulary.special_ids
    ids = np.array(
        [i for i, token in enumerate(every) if token and i not in special and not UNUSED.fullmatch(token)], np.int64
    )
    if len(ids) < 3 or table.shape[1] < 2:
        raise InputError(f"A picture of {len(ids)} tokens in {table.shape[1]} dimensions shows nothing.")
    rows = table[ids].astype(np.float64)  # (M,D)
    pca = PCA(n_components=2, svd_solver="covariance_eigh").fit(rows)
    points = pca.transform(rows)
    points *= np.where(np.abs(points.min(axis=0)) > points.max(axis=0), -1.0, 1.0)  # the longer side to the right
    frequency = -ids.astype(np.float64) if counts is None else np.log1p(counts[ids].astype(np.float64))
    tokens = [every[i] for i in ids]
    subword = np.array([vocabulary.is_subword(token) for token in tokens])
    upper = np.array([vocabulary.text(token)[:1].isupper() for token in tokens]) & ~subword
    upper &= upper.mean() >= CASED
    order = np.argsort(np.argsort(frequency, kind="stable"), kind="stable")  # ranks, equal values in their order
    groups = {"frequency": order * GROUPS // len(order), "sub-word": subword}
    groups |= {"case": upper} if upper.any() else {}
    first, second = pca.explained_variance_ratio_
    shares = {"the first component": float(first), "the second component": float(second)}
    shares |= {kind: between_groups(rows, np.asarray(labels)) for kind, labels in groups.items()}
    return TokenMap(
        name, tuple(tokens), points, frequency, counts is not None, subword, upper, shares, average_cosine(rows)
    )


def between_groups(rows: np.ndarray, labels: np.ndarray) -> float:
    """Share of the variance of rows (M,D) that lies between the means of their groups (M,): in [0, 1], NaN for none."""
    mean = rows.mean(axis=0)
    total = float(((rows - mean) ** 2).sum())
    _, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    sums = np.zeros((len(sizes), rows.shape[1]))
    np.add.at(sums, inverse, rows)
    between = float((sizes[:, None] * (sums / sizes[:, None] - mean) ** 2).sum())
    return between / total if total > 0 else math.nan


def _opened(model: ModelLike, options: dict[str, Any]) -> SentenceTransformer:
    """The model, loaded once, with its masked-LM head where it has one; a head in the configuration alone is none."""
    if read_capabilities(model, options).mlm_head:
        with contextlib.suppress(ModelError):
            return open_model(model, options, with_mlm_head=True)
    return open_model(model, options)


def _untied(shell: SentenceTransformer, table: np.ndarray) -> np.ndarray | None:
    """The masked-LM head's output matrix (V,D) where it is not the input table itself (PromptBERT A.2, Figure 2)."""
    head = backbone_of(shell).mlm_head
    layer = None if head is None else head.model.get_output_embeddings()
    weight = getattr(layer, "weight", None)
    if weight is None:
        return None
    output: np.ndarray = weight.detach().float().cpu().numpy()
    return None if output.shape[0] != len(table) or np.array_equal(output, table) else output


def _drawn(texts: list[str], seed: int) -> list[str]:
    if len(texts) <= SENTENCES:
        return texts
    chosen = np.random.default_rng(seed).choice(len(texts), SENTENCES, replace=False)
    return [texts[i] for i in sorted(chosen)]


def _map_to_dict(one: TokenMap) -> dict[str, Any]:
    return {
        "name": one.name,
        "average_cosine": _plain(one.cosine),
        "variance_explained": _plain_all(one.shares),
        "frequency": "log(1 + count)" if one.counted else "place in the vocabulary, negative",
        "columns": ["token", "x", "y", "frequency", "subword", "capital"],
        "tokens": [
            [token, round(x, 4), round(y, 4), round(f, 4), bool(s), bool(u)]
            for token, (x, y), f, s, u in zip(
                one.tokens, one.points.tolist(), one.frequency.tolist(), one.subword, one.upper, strict=True
            )
        ],
    }


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _plain_all(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _plain(value) for name, value in values.items()}


INK, FAINT, UNSEEN = "#1B1F24", "#6A7178", "#DDDDDD"
SEQUENCE = ("#A5C9EA", "#4F90CE", "#1F5C9E", "#071F45")  # from rare to frequent
WORDS, SUBWORDS, CAPITALS = "#3B76B4", "#D9A93F", "#C8553D"
PANEL, HEAD, FOOT, DPI = 5.0, 1.3, 0.75, 150  # inches; dots an inch
WITHIN = 0.995  # of the points lie within the frame


def draw_bias(report: BiasReport, path: str | Path) -> None:
    """Write the picture, PNG or whatever the suffix says; points are pixels in vector formats too.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    optional_import("matplotlib", "demo")
    from matplotlib.figure import Figure

    panels = 3 if any(one.cased for one in report.maps) else 2
    width, height = PANEL * panels, HEAD + (PANEL + FOOT) * len(report.maps)
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    model = shortened(short_name(report.model), 48)
    figure.text(
        0.3 / width, 1 - 0.3 / height, f"Token embeddings of {model}", fontsize=17, weight="bold",
        color=INK, va="top", parse_math=False,
    )  # fmt: skip
    figure.text(0.3 / width, 1 - 0.72 / height, _caption(report), fontsize=11, color=FAINT, va="top")
    for row, one in enumerate(report.maps):
        top = height - HEAD - (PANEL + FOOT) * row
        draws = [_draw_frequency, _draw_subwords, *[_draw_case] * one.cased]
        for column, draw in enumerate(draws):
            left, bottom, side = (PANEL * column + 0.3) / width, (top - PANEL) / height, PANEL - 0.45
            axes = figure.add_axes((left, bottom, side / width, side / height))
            _frame(axes, one)
            draw(axes, one)
        shares = [100 * one.shares[name] for name in ("the first component", "the second component")]
        words = (
            f"{one.name}: first two principal components, {shares[0]:.1f} % and {shares[1]:.1f} % of the variance; "
            f"average cosine {one.cosine:.3f}"
        )
        figure.text(0.3 / width, (top - PANEL - 0.18) / height, words, fontsize=10, color=FAINT, va="top")
    with replacing_file(path) as temporary:
        figure.savefig(temporary, format=temporary.suffix[1:] or "png")


def _caption(report: BiasReport) -> str:
    counted = f"counted in {report.texts:,} texts" if report.maps[0].counted else "by the vocabulary's order"
    return f"{len(report.maps[0].tokens):,} tokens, one point each; frequency {counted}"


def _frame(axes: Any, one: TokenMap) -> None:
    """The same frame for all panels of a table, without the few points far out."""
    low, high = np.quantile(one.points, [1 - WITHIN, WITHIN], axis=0)
    room = 0.18 * (high - low) + 1e-9
    axes.set_xlim(low[0] - room[0], high[0] + room[0])
    axes.set_ylim(low[1] - room[1], high[1] + room[1])
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_color("#E4E4E4")


def _scatter(axes: Any, one: TokenMap, chosen: np.ndarray, colours: Any, **options: Any) -> Any:
    size = float(np.clip(75_000 / len(one.points), 2.5, 22))
    x, y = one.points[chosen].T
    return axes.scatter(x, y, c=colours, s=size, linewidths=0, rasterized=True, **options)


def _draw_frequency(axes: Any, one: TokenMap) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("frequency", SEQUENCE)
    order = np.argsort(one.frequency, kind="stable")  # the frequent ones on top
    seen = order[one.frequency[order] > 0] if one.counted else order
    unseen = order[: len(order) - len(seen)]
    _scatter(axes, one, unseen, UNSEEN)
    image = _scatter(axes, one, seen, one.frequency[seen], cmap=shades)
    _title(axes, "Frequency")
    axes.annotate("rare", (0, 1.035), xycoords="axes fraction", va="center", fontsize=10, color=FAINT)
    bar = axes.inset_axes((0.085, 1.022, 0.22, 0.026))
    axes.figure.colorbar(image, cax=bar, orientation="horizontal", ticks=[]).outline.set_visible(False)
    axes.annotate("frequent", (0.32, 1.035), xycoords="axes fraction", va="center", fontsize=10, color=FAINT)
    if len(unseen):
        text = f"● not in these texts ({len(unseen):,})"
        where = {"xycoords": "axes fraction", "ha": "right", "va": "center"}
        axes.annotate(text, (1, 1.035), fontsize=10, color="#8E959C", **where)


def _draw_subwords(axes: Any, one: TokenMap) -> None:
    _groups(axes, one, "Sub-words", {"begins a word": (~one.subword, WORDS), "continues one": (one.subword, SUBWORDS)})


def _draw_case(axes: Any, one: TokenMap) -> None:
    small = ~one.subword & ~one.upper
    groups = {"small": (small, WORDS), "capital": (one.upper, CAPITALS), "sub-word": (one.subword, SUBWORDS)}
    _groups(axes, one, "Case", groups)


def _groups(axes: Any, one: TokenMap, title: str, groups: dict[str, tuple[np.ndarray, str]]) -> None:
    """Points by group, mixed before they are drawn: none hides the others by coming last."""
    from matplotlib.lines import Line2D

    colours = np.empty(len(one.points), dtype=object)
    for where, colour in groups.values():
        colours[where] = colour
    order = np.random.default_rng(0).permutation(len(one.points))
    _scatter(axes, one, order, list(colours[order]))
    _title(axes, title)
    marks = [
        Line2D([], [], marker="o", linestyle="", markersize=6, color=colour, label=f"{name} ({where.sum():,})")
        for name, (where, colour) in groups.items()
    ]
    axes.legend(
        handles=marks, loc="center left", bbox_to_anchor=(-0.02, 1.035), ncols=len(marks), frameon=False, fontsize=10,
        labelcolor=FAINT, handletextpad=0.1, columnspacing=1.2, borderpad=0,
    )  # fmt: skip


def _title(axes: Any, text: str) -> None:
    axes.annotate(
        text, (0, 1.1), xycoords="axes fraction", ha="left", va="center", fontsize=13, weight="bold", color=INK
    )


BIAS_FILES = ("bias.png", "bias.svg", "bias.json", "bias.txt")


def write_bias(found: BiasReport, folder: str | Path) -> None:
    """Write the picture (PNG, SVG), the numbers and the tables into a folder, under the names of `BIAS_FILES`."""
    from rich.console import Console

    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for name in BIAS_FILES[:2]:
        draw_bias(found, place / name)
    write_json(place / "bias.json", found.to_dict(), indent=None)
    with replacing_file(place / "bias.txt") as temporary, temporary.open("w", encoding="utf-8") as file:
        console = Console(file=file, width=120)
        for table in found.tables():
            console.print(table)
