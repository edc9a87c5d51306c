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
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from essent._core.texts import check_texts
from essent._core.types import ModelLike
from essent.errors import InputError, ModelError
from essent.lab.explain.importance import backbone_of, count_corpus
from essent.model.backbone import Backbone
from essent.model.loading import open_model, read_capabilities
from essent.recipe.recipe import Recipe
from essent.recipe.tokens.ids import Vocabulary
from essent.selection.evaluation import Bench, name_of
from essent.tasks.base import Task
from essent.tasks.geometry import average_cosine
from essent.tasks.locate import load_task
from essent.tasks.pairs import PairTask
from essent.tasks.result import plain

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
        """The fields as plain values, of every token's in lists; NaN becomes None."""
        values: dict[str, Any] = plain(asdict(self, dict_factory=_with_lists))
        return values

    def tables(self) -> list[Table]:
        """Tokens and sentences, for `rich`."""
        from rich import box
        from rich.table import Column, Table

        style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "title_justify": "left"}
        tokens = Table("", *(Column(table.name, justify="right") for table in self.maps), title="Tokens", **style)
        tokens.add_row("tokens", *(f"{len(table.tokens):,}" for table in self.maps))
        tokens.add_row("average cosine (Table 2)", *(f"{table.cosine:.4f}" for table in self.maps))
        for name in self.maps[0].shares:
            tokens.add_row(f"variance by {name}", *(f"{100 * table.shares[name]:.1f} %" for table in self.maps))
        if not self.sentences:
            return [tokens]
        tasks = [*self.sentences[0].spearman]
        names = [*(f"Spearman {task}" for task in tasks), *["Spearman avg."] * (len(tasks) > 1), "anisotropy"]
        columns = [Column(name, justify="right") for name in names]
        sentences = Table("", *columns, title="Sentences (Table 1)", **style)
        for row in self.sentences:
            scores = [*row.spearman.values()]
            scores += [sum(scores) / len(scores)] if len(scores) > 1 else []
            sentences.add_row(RECIPES[row.recipe], *(f"{score:.2f}" for score in scores), f"{row.cosine:.4f}")
        return [tokens, sentences]


def _with_lists(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in fields}


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
    counts = None if texts is None else count_corpus(backbone, texts, None).count
    table = backbone.static_table.detach().float().cpu().numpy()  # (V,D)
    tables = {"input word embeddings": table, **_untied(backbone, table)}
    maps = tuple(token_map(name, rows, backbone.vocabulary, counts) for name, rows in tables.items())
    sentences: tuple[SentenceAnisotropy, ...] = ()
    if texts is not None or scored:
        recipes = [Recipe.parse(name) for name in RECIPES]
        bench = Bench(shell, recipes, batch_size=batch_size, progress=progress, options={})
        cosines = [math.nan] * len(recipes)
        if texts is not None:
            vectors = bench.vectors(_sample(texts, seed), None, None)
            cosines = [average_cosine(rows, self_pairs=True) for _, rows in vectors]
        scores = {
            task.name: [task.score_vectors(rows).main_score for _, rows in bench.vectors(task.texts(), None, None)]
            for task in scored
        }
        sentences = tuple(
            SentenceAnisotropy(recipe, cosines[row], {task: by_recipe[row] for task, by_recipe in scores.items()})
            for row, recipe in enumerate(RECIPES)
        )
    return BiasReport(name_of(model), maps, sentences, len(texts or []))


def token_map(name: str, table: np.ndarray, vocabulary: Vocabulary, counts: np.ndarray | None) -> TokenMap:
    """Two principal components of a table's rows (V,D) and what is known of its tokens; `counts` (V,) in a corpus."""
    from sklearn.decomposition import PCA

    special = vocabulary.special_ids
    shown = {i: t for i, t in enumerate(vocabulary.tokens) if t and i not in special and not UNUSED.fullmatch(t)}
    ids, tokens = np.array([*shown], np.int64), tuple(shown.values())
    if len(ids) < 3 or table.shape[1] < 2:
        raise InputError(f"A picture of {len(ids)} tokens in {table.shape[1]} dimensions shows nothing.")
    rows = table[ids].astype(np.float64)  # (M,D)
    pca = PCA(n_components=2, svd_solver="covariance_eigh").fit(rows)
    points = pca.transform(rows)
    points *= np.where(np.abs(points.min(axis=0)) > points.max(axis=0), -1.0, 1.0)  # the longer side to the right
    frequency = -ids.astype(np.float64) if counts is None else np.log1p(counts[ids].astype(np.float64))
    subword = np.array([vocabulary.is_subword(token) for token in tokens])
    upper = np.array([vocabulary.text(token)[:1].isupper() for token in tokens]) & ~subword
    upper &= upper.mean() >= CASED
    order = np.argsort(np.argsort(frequency, kind="stable"), kind="stable")  # ranks, equal values in their order
    groups = {"frequency": order * GROUPS // len(order), "sub-word": subword}
    groups |= {"case": upper} if upper.any() else {}
    first, second = pca.explained_variance_ratio_.tolist()
    shares = {"the first component": first, "the second component": second}
    shares |= {kind: between_groups(rows, labels) for kind, labels in groups.items()}
    return TokenMap(name, tokens, points, frequency, counts is not None, subword, upper, shares, average_cosine(rows))


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


def _untied(backbone: Backbone, table: np.ndarray) -> dict[str, np.ndarray]:
    """The masked-LM head's output matrix (V,D) where it is not the input table itself (PromptBERT A.2, Figure 2)."""
    layer = None if backbone.mlm_head is None else backbone.mlm_head.model.get_output_embeddings()
    weight = getattr(layer, "weight", None)
    if weight is None or len(weight) != len(table):
        return {}
    output = weight.detach().float().cpu().numpy()
    return {} if np.array_equal(output, table) else {"output matrix": output}


def _sample(texts: list[str], seed: int) -> list[str]:
    if len(texts) <= SENTENCES:
        return texts
    chosen = np.random.default_rng(seed).choice(len(texts), SENTENCES, replace=False)
    return [texts[i] for i in sorted(chosen)]
