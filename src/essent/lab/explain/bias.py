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
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.texts import check_texts
from essent._core.types import ModelLike
from essent.errors import InputError, ModelError
from essent.lab.explain.importance import backbone_of
from essent.model.loading import open_model, read_capabilities
from essent.model.template import make_frame
from essent.recipe.recipe import Recipe
from essent.recipe.tokens.ids import Vocabulary, count_tokens, framed_ids
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
            "tables": [_map_to_dict(token_table) for token_table in self.maps],
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
        for token_table in self.maps:
            tokens.add_column(token_table.name, justify="right")
        tokens.add_row("tokens", *(f"{len(token_table.tokens):,}" for token_table in self.maps))
        tokens.add_row("average cosine (Table 2)", *(f"{token_table.cosine:.4f}" for token_table in self.maps))
        for name in self.maps[0].shares:
            tokens.add_row(
                f"variance by {name}", *(f"{100 * token_table.shares[name]:.1f} %" for token_table in self.maps)
            )
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
            lambda portion: framed_ids(backbone.tokenizer, frame, list(portion), None), texts, len(vocabulary)
        )
        counts = stats.count
    maps = [token_map("input word embeddings", table, vocabulary, counts)]
    if (output := _untied(shell, table)) is not None:
        maps.append(token_map("output matrix", output, vocabulary, counts))
    anisotropy: list[SentenceAnisotropy] = []
    if texts is not None or scored:
        sample = _sample(texts or [], seed)
        recipes = [Recipe.parse(name) for name in RECIPES]
        bench = Bench(shell, recipes, batch_size=batch_size, progress=progress, options={})
        cosines = [math.nan] * len(recipes)
        if sample:
            cosines = [average_cosine(rows, self_pairs=True) for _, rows in bench.vectors(sample, None, None)]
        spearman: list[dict[str, float]] = [{} for _ in recipes]
        for task in scored:
            for recipe_index, (_, rows) in enumerate(bench.vectors(task.texts(), None, None)):
                spearman[recipe_index][task.name] = task.score_vectors(rows).main_score
        anisotropy = [SentenceAnisotropy(*row) for row in zip(RECIPES, cosines, spearman, strict=True)]
    return BiasReport(name_of(model), tuple(maps), tuple(anisotropy), len(texts or []))


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


def _sample(texts: list[str], seed: int) -> list[str]:
    if len(texts) <= SENTENCES:
        return texts
    chosen = np.random.default_rng(seed).choice(len(texts), SENTENCES, replace=False)
    return [texts[i] for i in sorted(chosen)]


def _map_to_dict(token_table: TokenMap) -> dict[str, Any]:
    return {
        "name": token_table.name,
        "average_cosine": _plain(token_table.cosine),
        "variance_explained": _plain_all(token_table.shares),
        "frequency": "log(1 + count)" if token_table.counted else "place in the vocabulary, negative",
        "columns": ["token", "x", "y", "frequency", "subword", "capital"],
        "tokens": [
            [token, round(x, 4), round(y, 4), round(f, 4), bool(s), bool(u)]
            for token, (x, y), f, s, u in zip(
                token_table.tokens,
                token_table.points.tolist(),
                token_table.frequency.tolist(),
                token_table.subword,
                token_table.upper,
                strict=True,
            )
        ],
    }


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _plain_all(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _plain(value) for name, value in values.items()}
