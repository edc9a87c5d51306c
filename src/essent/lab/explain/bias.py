"""Biases of token embeddings by frequency, sub-word and case, and their anisotropy.

Source: PromptBERT (Jiang et al. 2022), section 3: Figures 1 and 2 show two principal components of the table, Table 2
the average cosine of its rows, Table 1 the average cosine of sentences and their STS scores. The share of the table's
variance that lies between groups of tokens is essent's own measure.
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
SENTENCES = 100_000  # sampled from the corpus; the paper samples as many from Wikipedia
GROUPS = 10  # groups of equal size, from rare to frequent tokens
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
        shares: share of the table's variance that each of the two components, and each kind of bias, explains.
        cosine: average cosine of two different rows.

    Example:
        >>> from essent.lab.explain import token_bias
        >>> (token_map,) = token_bias("sentence-transformers/all-MiniLM-L6-v2").maps
        >>> token_map.name, token_map.points.shape
        ('input word embeddings', (29523, 2))
        >>> {name: round(share, 2) for name, share in token_map.shares.items()}
        {'the first component': 0.02, 'the second component': 0.02, 'frequency': 0.01, 'sub-word': 0.01}
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
    """The anisotropy of the sentence vectors of a recipe.

    Attributes:
        recipe: "static" or "mean".
        cosine: average cosine of all pairs of sentences, including each sentence with itself (eq. 1).
        spearman: Spearman correlation ×100 per task.

    Example:
        >>> from essent.lab.explain import token_bias
        >>> texts = ["The museum opens at nine.", "A dog runs along the beach.", "He sold the old car."]
        >>> report = token_bias("sentence-transformers/all-MiniLM-L6-v2", texts)
        >>> for row in report.sentences:
        ...     print(row.recipe, round(row.cosine, 2))
        static 0.79
        mean 0.35
    """

    recipe: str
    cosine: float
    spearman: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class BiasReport:
    """The result of `token_bias`: one map per table of token vectors, and the anisotropy of sentences.

    Attributes:
        model: name of the model.
        maps: the input word embeddings, and the output matrix if the model does not tie the two.
        sentences: one row per recipe ("static", "mean"); empty without texts and tasks.
        texts: number of texts in the corpus.

    Example:
        >>> from essent.lab.explain import token_bias
        >>> report = token_bias("my-mlm", ["The museum opens at nine.", "A dog runs along the beach."])
        >>> report.texts, [table.name for table in report.maps]
        (2, ['input word embeddings'])
        >>> [table.title for table in report.tables()]
        ['Tokens', 'Sentences (Table 1)']
    """

    model: str
    maps: tuple[TokenMap, ...]
    sentences: tuple[SentenceAnisotropy, ...]
    texts: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values: arrays become lists, NaN becomes None."""
        values: dict[str, Any] = plain(asdict(self, dict_factory=_with_lists))
        return values

    def tables(self) -> list[Table]:
        """Return tables of tokens and of sentences for `rich`."""
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
    """Measure the biases of a model's token embeddings, and the anisotropy of its sentence vectors.

    Args:
        model: a hub name, a folder, or a SentenceTransformer.
        corpus: texts to count tokens in. Sentence vectors are measured on a sample of at most 100,000. Without a
            corpus, the vocabulary's order replaces frequency, and anisotropy is not measured.
        tasks: tasks of scored pairs, or their names; the report contains their Spearman correlation.
        data: folder of the named tasks.
        seed: seed of the sample.
        options: keyword arguments for SentenceTransformer (device, revision …).

    Raises:
        InputError: the corpus is empty, a task has no scored pairs, or the table is too small to draw.

    Example:
        >>> from essent.lab.explain import token_bias
        >>> texts = ["The museum opens at nine.", "A dog runs along the beach.", "He sold the old car."]
        >>> report = token_bias("sentence-transformers/all-MiniLM-L6-v2", texts)
        >>> round(report.maps[0].cosine, 2), round(report.sentences[1].cosine, 2)
        (0.01, 0.35)
    """
    texts = None if corpus is None else check_texts(corpus)
    if texts is not None and not texts:
        raise InputError("The corpus has no texts. Pass at least one text, or None.")
    scored = [load_task(task, data) if isinstance(task, str) else task for task in tasks]
    if wrong := [task.name for task in scored if not isinstance(task, PairTask)]:
        raise InputError(f"The task {wrong[0]} has no scored pairs. Pass one that has, e.g. stsb.")
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
    order = np.argsort(np.argsort(frequency, kind="stable"), kind="stable")  # ranks; ties in vocabulary order
    groups = {"frequency": order * GROUPS // len(order), "sub-word": subword}
    groups |= {"case": upper} if upper.any() else {}
    first, second = pca.explained_variance_ratio_.tolist()
    shares = {"the first component": first, "the second component": second}
    shares |= {kind: between_groups(rows, labels) for kind, labels in groups.items()}
    return TokenMap(name, tokens, points, frequency, counts is not None, subword, upper, shares, average_cosine(rows))


def between_groups(rows: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of the variance of rows (M,D) between the means of their groups; NaN without variance."""
    mean = rows.mean(axis=0)
    total = float(((rows - mean) ** 2).sum())
    _, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    sums = np.zeros((len(sizes), rows.shape[1]))
    np.add.at(sums, inverse, rows)
    between = float((sizes[:, None] * (sums / sizes[:, None] - mean) ** 2).sum())
    return between / total if total > 0 else math.nan


def _opened(model: ModelLike, options: dict[str, Any]) -> SentenceTransformer:
    """Load the model, with its masked-LM head if the checkpoint (and not only the configuration) has one."""
    if read_capabilities(model, options).mlm_head:
        with contextlib.suppress(ModelError):
            return open_model(model, options, with_mlm_head=True)
    return open_model(model, options)


def _untied(backbone: Backbone, table: np.ndarray) -> dict[str, np.ndarray]:
    """Return the masked-LM head's output matrix (V,D) if it is not the input table (PromptBERT A.2, Figure 2)."""
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
