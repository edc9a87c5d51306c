"""Biases of token embeddings by frequency, sub-word and case, their anisotropy, and pictures of them.

Source: PromptBERT (Jiang et al. 2022), section 3: Figures 1 and 2 show two principal components of the table, Table 2
the average cosine of its rows.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.arguments import ModelLike
from essent._core.atomic import replacing_file
from essent._core.lazy import optional_import
from essent._core.texts import check_texts
from essent.errors import InputError, ModelError
from essent.lab.explain.importance import backbone_of
from essent.model.backbone import Backbone
from essent.model.loading import open_model, read_capabilities
from essent.recipe.tokens import Vocabulary, count_tokens, text_ids
from essent.report.parts import shortened
from essent.selection.evaluation import model_name
from essent.tasks.geometry import average_cosine
from essent.tasks.result import short_name

if TYPE_CHECKING:
    from rich.table import Table
    from sentence_transformers import SentenceTransformer


CASED = 0.01  # minimum share of tokens with a capital in a cased vocabulary
UNUSED = re.compile(r"\[unused\d+\]|<unused\d+>|<madeupword\d+>|<extra_id_\d+>")


@dataclass(frozen=True)
class TokenMap:
    """A table of token vectors, projected on its first two principal components.

    Attributes:
        name: "input word embeddings", or "output matrix" if the model does not tie the two.
        tokens: the M tokens of the map, without special tokens, unused tokens and rows without a token.
        points: (M,2) coordinates.
        frequency: (M,) log(1 + count) in the corpus; without a corpus, minus the index in the vocabulary.
        counted: whether `frequency` was counted in a corpus.
        subword: (M,) whether the token continues a word.
        upper: (M,) whether the word begins with a capital; all False for uncased models, which have a few such tokens.
        shares: share of the table's variance that each of the two components explains.
        cosine: average cosine of two different rows.

    Example:
        >>> from essent.lab.explain import token_bias
        >>> (token_map,) = token_bias("sentence-transformers/all-MiniLM-L6-v2").maps
        >>> token_map.name, token_map.points.shape
        ('input word embeddings', (29523, 2))
        >>> {name: round(share, 2) for name, share in token_map.shares.items()}
        {'the first component': 0.02, 'the second component': 0.02}
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
class BiasReport:
    """The result of `token_bias`: one map per table of token vectors.

    Attributes:
        model: name of the model.
        maps: the input word embeddings, and the output matrix if the model does not tie the two.
        texts: number of texts in the corpus.

    Example:
        >>> from essent.lab.explain import token_bias
        >>> report = token_bias("my-mlm", ["The museum opens at nine.", "A dog runs along the beach."])
        >>> report.texts, [table.name for table in report.maps]
        (2, ['input word embeddings'])
    """

    model: str
    maps: tuple[TokenMap, ...]
    texts: int

    def table(self) -> Table:
        """Return the measures as a table for `rich`."""
        from rich import box
        from rich.table import Column, Table

        columns = (Column(token_map.name, justify="right") for token_map in self.maps)
        table = Table("", *columns, box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_row("tokens", *(f"{len(token_map.tokens):,}" for token_map in self.maps))
        table.add_row("average cosine (Table 2)", *(f"{token_map.cosine:.4f}" for token_map in self.maps))
        for name in self.maps[0].shares:
            table.add_row(f"variance by {name}", *(f"{100 * token_map.shares[name]:.1f} %" for token_map in self.maps))
        return table


def token_bias(model: ModelLike, corpus: Sequence[str] | None = None, **options: Any) -> BiasReport:
    """Measure the biases of a model's token embeddings.

    Args:
        model: a hub name, a folder, or a SentenceTransformer.
        corpus: texts to count tokens in. Without a corpus, the vocabulary's order replaces frequency.
        options: keyword arguments for SentenceTransformer (device, revision …).

    Raises:
        InputError: the corpus is empty, or the table is too small to draw.

    Example:
        >>> from essent.lab.explain import token_bias
        >>> texts = ["The museum opens at nine.", "A dog runs along the beach.", "He sold the old car."]
        >>> report = token_bias("sentence-transformers/all-MiniLM-L6-v2", texts)
        >>> round(report.maps[0].cosine, 2)
        0.01
    """
    texts = None if corpus is None else check_texts(corpus)
    if texts is not None and not texts:
        raise InputError("The corpus has no texts. Pass at least one text, or None.")
    backbone = backbone_of(_open_with_head(model, options))
    size, tokenizer = len(backbone.vocabulary), backbone.tokenizer
    counts = None if texts is None else count_tokens(lambda part: text_ids(tokenizer, list(part)), texts, size).count
    table = backbone.static_table.detach().float().cpu().numpy()  # (V,D)
    tables = {"input word embeddings": table, **_untied_table(backbone, table)}
    maps = tuple(token_map(name, rows, backbone.vocabulary, counts) for name, rows in tables.items())
    return BiasReport(model_name(model), maps, len(texts or []))


def token_map(name: str, table: np.ndarray, vocabulary: Vocabulary, counts: np.ndarray | None) -> TokenMap:
    """Compute the map of a table (V,D); `counts` (V,) are the tokens' counts in a corpus."""
    from sklearn.decomposition import PCA

    special = vocabulary.special_ids
    shown = {i: t for i, t in enumerate(vocabulary.tokens) if t and i not in special and not UNUSED.fullmatch(t)}
    ids, tokens = np.array([*shown], np.int64), tuple(shown.values())
    if len(ids) < 3 or table.shape[1] < 2:
        raise InputError(
            f"The table of {name} has {len(ids)} tokens in {table.shape[1]} dimensions. At least 3 tokens and 2 "
            "dimensions are required."
        )
    rows = table[ids].astype(np.float64)  # (M,D)
    pca = PCA(n_components=2, svd_solver="covariance_eigh").fit(rows)
    points = pca.transform(rows)
    points *= np.where(np.abs(points.min(axis=0)) > points.max(axis=0), -1.0, 1.0)  # sign: the longer side on the right
    frequency = -ids.astype(np.float64) if counts is None else np.log1p(counts[ids].astype(np.float64))
    subword = np.array([vocabulary.is_subword(token) for token in tokens])
    upper = np.array([vocabulary.text(token)[:1].isupper() for token in tokens]) & ~subword
    upper &= upper.mean() >= CASED
    first, second = pca.explained_variance_ratio_.tolist()
    shares = {"the first component": first, "the second component": second}
    return TokenMap(name, tokens, points, frequency, counts is not None, subword, upper, shares, average_cosine(rows))


def _open_with_head(model: ModelLike, options: dict[str, Any]) -> SentenceTransformer:
    """Load the model, with its masked-LM head if the checkpoint (and not only the configuration) has one."""
    if read_capabilities(model, options).mlm_head:
        with contextlib.suppress(ModelError):
            return open_model(model, options, with_mlm_head=True)
    return open_model(model, options)


def _untied_table(backbone: Backbone, table: np.ndarray) -> dict[str, np.ndarray]:
    """Return the masked-LM head's output matrix (V,D) if it is not the input table (PromptBERT A.2, Figure 2)."""
    layer = None if backbone.mlm_head is None else backbone.mlm_head.model.get_output_embeddings()
    weight = getattr(layer, "weight", None)
    if weight is None or len(weight) != len(table):
        return {}
    output = weight.detach().float().cpu().numpy()
    return {} if np.array_equal(output, table) else {"output matrix": output}


# -- pictures: one row of panels per table, one panel per kind of bias (Figures 1 and 2) -------------------------------

FAINT, WORDS, SUBWORDS, CAPITALS = "#6A7178", "#3B76B4", "#D9A93F", "#C8553D"
PANEL, DPI = 5.0, 150  # inches; dots per inch
MAX_QUANTILE = 0.995  # quantile of the points at the edge of the frame


def draw_bias(report: BiasReport, path: str | Path) -> None:
    """Draw a bias report to a file, in the format of its suffix, by default PNG.

    Vector formats contain the points as pixels.

    Raises:
        MissingDependencyError: matplotlib is not installed.

    Example:
        >>> from pathlib import Path
        >>> from essent.lab.explain import draw_bias, token_bias
        >>> draw_bias(token_bias("my-mlm"), "bias.svg")
        >>> Path("bias.svg").exists()
        True
    """
    optional_import("matplotlib", "demo")
    from matplotlib.figure import Figure

    panels, rows = 3 if any(token_map.cased for token_map in report.maps) else 2, len(report.maps)
    figure = Figure(figsize=(PANEL * panels, (PANEL + 0.6) * rows + 0.8), dpi=DPI, layout="constrained")
    counted = f"counted in {report.texts:,} texts" if report.maps[0].counted else "by the vocabulary's order"
    figure.suptitle(
        f"Token embeddings of {shortened(short_name(report.model), 48)}\n"
        f"{len(report.maps[0].tokens):,} tokens, one point each; frequency {counted}",
        parse_math=False,
    )
    for token_map, row in zip(report.maps, figure.subplots(rows, panels, squeeze=False), strict=True):
        words, subwords = ~token_map.subword, (token_map.subword, SUBWORDS)
        _draw_frequency(row[0], token_map)
        _draw_groups(row[1], token_map, "Sub-words", {"begins a word": (words, WORDS), "continues one": subwords})
        if token_map.cased:
            case = {"small": (words & ~token_map.upper, WORDS), "capital": (token_map.upper, CAPITALS)}
            _draw_groups(row[2], token_map, "Case", {**case, "sub-word": subwords})
        for axes in row[2 + token_map.cased :]:
            axes.remove()
    with replacing_file(path) as temporary:
        figure.savefig(temporary, format=temporary.suffix[1:] or "png")


def _begin(axes: Any, token_map: TokenMap, title: str) -> dict[str, Any]:
    """Frame the points of a panel without outliers; return how they are drawn."""
    low, high = np.quantile(token_map.points, [1 - MAX_QUANTILE, MAX_QUANTILE], axis=0)
    margin = 0.25 * (high - low) + 1e-9
    (left, bottom), (right, top) = low - margin, high + margin
    axes.set(xticks=[], yticks=[], xlim=(left, right), ylim=(bottom, top), box_aspect=1)
    axes.set_title(title, loc="left")
    return {"s": float(np.clip(75_000 / len(token_map.points), 2.5, 22)), "linewidths": 0, "rasterized": True}


def _draw_frequency(axes: Any, token_map: TokenMap) -> None:
    style = _begin(axes, token_map, "Frequency, light: rare")
    order = np.argsort(token_map.frequency, kind="stable")  # frequent tokens are drawn last
    axes.scatter(*token_map.points[order].T, c=token_map.frequency[order], cmap="YlGnBu", **style)
    first, second = (100 * token_map.shares[name] for name in ("the first component", "the second component"))
    text = f"{token_map.name}: first two principal components, {first:.1f} % and {second:.1f} % of the variance"
    axes.set_xlabel(f"{text}; average cosine {token_map.cosine:.3f}", loc="left", color=FAINT)


def _draw_groups(axes: Any, token_map: TokenMap, title: str, groups: dict[str, tuple[np.ndarray, str]]) -> None:
    style = _begin(axes, token_map, title)
    for name, (members, colour) in groups.items():
        label = f"{name} ({members.sum():,})"
        axes.scatter(*token_map.points[members].T, color=colour, alpha=0.6, label=label, **style)
    axes.legend(frameon=False, loc="upper right", ncols=len(groups), fontsize=9, markerscale=3)
