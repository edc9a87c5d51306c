"""What tables measure besides task scores: cosines of sentences and of tokens, word importance, lexical overlap."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from essent.lab.explain.importance import HeadAgreement, backbone_of, head_agreement, impact_agreement
from essent.lab.minimal_pairs.overlap import lexical_overlap
from essent.lab.reproduce.scores import Score
from essent.recipe.recipe import Recipe
from essent.selection.evaluation import Bench
from essent.tasks.base import Task
from essent.tasks.geometry import average_cosine
from essent.tasks.heros import HerosTask
from essent.tasks.pairs import PairTask


@dataclass(frozen=True)
class Bound:
    """What a measure may read: a model, a recipe on it, a head "layer-head", tasks, the corpus.

    `memo` is kept for a run of the table: several cells show parts of one measurement.
    """

    model: str
    recipe: Recipe | None
    head: str
    tasks: Sequence[Task]
    corpus: Sequence[str]
    batch_size: int
    progress: bool
    options: dict[str, Any]
    memo: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, what: str, make: Callable[[], Any]) -> Any:
        """What is measured on this model and these tasks, made when it is first asked for."""
        key = (what, self.model, tuple((task.name, *task.texts()) for task in self.tasks))
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]


@dataclass(frozen=True)
class Measure:
    """A measure by name; `reads_corpus` when it needs texts beside the tasks'."""

    run: Callable[[Bound], Score]
    reads_corpus: bool = False


def _cosine(bound: Bound, self_pairs: bool) -> Score:
    assert bound.recipe is not None  # noqa: S101 — every row with this measure has one, a test sees to it
    bench = Bench(
        bound.model, [bound.recipe], batch_size=bound.batch_size, progress=bound.progress, options=bound.options
    )
    ((_, vectors),) = bench.vectors(bound.corpus, None, None)
    return Score(average_cosine(vectors, self_pairs=self_pairs))


def _token_cosine(bound: Bound) -> Score:
    table = backbone_of(bound.model, **bound.options).static_table
    return Score(average_cosine(table.detach().float().cpu().numpy()))


def _impact(bound: Bound, which: str) -> Score:
    found = bound.once("impact", lambda: impact_agreement(bound.model, bound.corpus, **bound.options))
    return Score(float(getattr(found, which)))


def _head(bound: Bound, which: str) -> Score:
    texts = [text for task in bound.tasks for text in task.texts()]
    found: HeadAgreement = bound.once(
        "heads", lambda: head_agreement(bound.model, texts, frequency_texts=bound.corpus, **bound.options)
    )
    layer, head = (int(number) - 1 for number in bound.head.split("-"))
    return Score(float(getattr(found, which)[layer, head]))


def _overlap(bound: Bound, which: str) -> Score:
    return Score(float(bound.once("overlap", lambda: _overlaps(bound))[which]))


def _overlaps(bound: Bound) -> dict[str, float]:
    tokenizer = bound.once("tokenizer", lambda: backbone_of(bound.model, **bound.options).tokenizer)
    pairs = [pair for task in bound.tasks for pair in _sides(task)]

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    return lexical_overlap(pairs, ids)


def _sides(task: Task) -> list[tuple[str, str]]:
    if isinstance(task, HerosTask):
        return [(pair.original, pair.changed) for pair in task.pairs]
    return [(pair.sentence1, pair.sentence2) for pair in task.pairs] if isinstance(task, PairTask) else []


MEASURES = {
    "average-cosine": Measure(lambda bound: _cosine(bound, self_pairs=False), reads_corpus=True),
    "average-cosine-with-self": Measure(lambda bound: _cosine(bound, self_pairs=True), reads_corpus=True),
    "token-cosine": Measure(_token_cosine),
    "impact-pearson": Measure(lambda bound: _impact(bound, "pearson"), reads_corpus=True),
    "impact-spearman": Measure(lambda bound: _impact(bound, "spearman"), reads_corpus=True),
    "head-pearson": Measure(lambda bound: _head(bound, "pearson"), reads_corpus=True),
    "head-spearman": Measure(lambda bound: _head(bound, "spearman"), reads_corpus=True),
    "rouge-1": Measure(lambda bound: _overlap(bound, "rouge1")),
    "rouge-2": Measure(lambda bound: _overlap(bound, "rouge2")),
    "rouge-l": Measure(lambda bound: _overlap(bound, "rougeL")),
    "levenshtein": Measure(lambda bound: _overlap(bound, "levenshtein")),
    "length": Measure(lambda bound: _overlap(bound, "length")),
}
