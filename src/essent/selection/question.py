"""What a search is asked: pairs with gold scores, or those that criteria make of texts; and the scores of recipes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from essent.recipe import Recipe
from essent.selection.combined import Criterion, PseudoPairs, criteria, default_criterion
from essent.selection.pairs import TextPairs
from essent.selection.significance import spearman
from essent.selection.sweep import Sweep
from essent.tasks import PairTask, load_pairs, rows_of
from essent.texts import check_texts
from essent.types import InputError
from essent.weighting import inverse_document_frequency

LABELS = "spearman"


@dataclass(frozen=True)
class Question:
    """The pairs of a search: those with gold scores first, then each criterion's own."""

    name: str
    pairs: TextPairs
    gold: np.ndarray | None
    wanted: tuple[str, ...]
    parts: tuple[tuple[Criterion, PseudoPairs, slice], ...]

    @classmethod
    def of(cls, data: Any, folder: str | Path | None, criterion: str | Sequence[str], seed: int) -> Question:
        """Read the data of a search and choose its criteria."""
        name, texts, given, gold = read_pairs_of(data, folder)
        specs = [criterion] if isinstance(criterion, str) else list(criterion)
        named = [spec if spec == LABELS else criteria.create(spec).spec() for spec in specs]
        wanted = list(dict.fromkeys(named)) or [LABELS if gold is not None else default_criterion()]
        if LABELS in wanted and gold is None:
            raise InputError(f"The criterion {LABELS!r} needs pairs with gold scores; {name} has none.")
        ends = list(given) if gold is not None else []
        parts = []
        for spec in wanted:
            if spec != LABELS:
                made = criteria.create(spec)
                pseudo = made.pairs(texts, given, seed)
                parts.append((made, pseudo, slice(len(ends), len(ends) + len(pseudo.first))))
                ends.extend(zip(pseudo.first, pseudo.second, strict=True))
        return cls(name, TextPairs.of(ends, texts), gold, tuple(wanted), tuple(parts))

    def identity(self, model: str, recipes: Sequence[Recipe]) -> dict[str, Any]:
        """What tells one search from another."""
        data = json.dumps([self.pairs.texts, self.pairs.pairs.tolist(), self.pairs.fit.tolist()]).encode()
        listed = "\n".join(map(str, recipes)).encode()
        return {
            "model": model,
            "data": hashlib.sha256(data).hexdigest(),
            "recipes": hashlib.sha256(listed).hexdigest(),
            "weighed": self.reads_weights,
        }

    @property
    def reads_weights(self) -> bool:
        """Whether a criterion reads token weights."""
        return any(made.reads_weights for made, _, _ in self.parts)

    @property
    def is_relative(self) -> bool:
        """Whether a criterion compares recipes with others: a fixed set of recipes must then run along."""
        return any(made.relative for made, _, _ in self.parts)

    @property
    def scored_pairs(self) -> list[tuple[str, str]]:
        """The pairs whose gold scores are read."""
        texts = self.pairs.texts
        gold = 0 if self.gold is None or LABELS not in self.wanted else len(self.gold)
        return [(texts[first], texts[second]) for first, second in self.pairs.pairs[:gold]]

    def settled(self, cosines: np.ndarray, reference: Sequence[int]) -> Question:
        """The question with relative criteria settled by the rows of cosines (R,P) of the reference recipes."""
        if not self.is_relative:
            return self
        known = np.array(cosines[list(reference)])
        parts = tuple((made, made.settled(known[:, where], pseudo), where) for made, pseudo, where in self.parts)
        return replace(self, parts=parts)

    def scores(self, sweep: Sweep, count: int) -> dict[str, np.ndarray]:
        """Every wanted criterion's scores (R,) of the first R = `count` recipes."""
        cosines = sweep.store.cosines[:count]  # (R,P)
        by_name = {}
        parts = iter(self.parts)
        for spec in self.wanted:
            if spec == LABELS and self.gold is not None:
                rows = range(0, len(cosines), 256)
                gold = len(self.gold)
                by_name[spec] = np.concatenate([spearman(cosines[r : r + 256, :gold], self.gold) for r in rows])
            else:
                made, pseudo, where = next(parts)
                read = weight_scores(made, sweep)[:count] if made.reads_weights else None
                by_name[spec] = made.score(np.asarray(cosines[:, where]), pseudo) if read is None else read
        return by_name


def weight_scores(made: Criterion, sweep: Sweep) -> np.ndarray:
    """Scores (R,) of a criterion on token weights; NaN for recipes that pool by themselves."""
    scores = np.full(len(sweep.program.recipes), np.nan)
    by_block: dict[tuple[int, int], np.ndarray] = {}
    for number, place in enumerate(sweep.program.places):
        if place.block >= 0:
            key = (place.frame, place.block)
            if key not in by_block:
                weights, ids = sweep.token_weights(*key)
                by_block[key] = made.weight_score(weights, inverse_document_frequency(sweep.stats[place.frame])[ids])
            scores[number] = by_block[key][place.row]
    return scores


def read_pairs_of(
    data: Any, folder: str | Path | None
) -> tuple[str, list[str], list[tuple[str, str]], np.ndarray | None]:
    """Name, texts, pairs and gold scores of what `search` was given."""
    if isinstance(data, (str, Path)) and Path(data).suffix == ".txt":
        raise InputError(
            f"{data} has texts without labels; give them as a list: Path({str(data)!r}).read_text().splitlines()."
        )
    if isinstance(data, (str, Path)):
        data = load_pairs(data, folder)
    if not isinstance(data, PairTask) and (hasattr(data, "__iter__") or hasattr(data, "columns")):
        data = rows_of(data)
        if data and (isinstance(data[0], Mapping) or (isinstance(data[0], (tuple, list)) and len(data[0]) > 2)):
            data = PairTask.from_rows(data)
    if isinstance(data, PairTask):
        pairs = [(pair.sentence1, pair.sentence2) for pair in data.pairs]
        return data.name, data.texts(), pairs, np.array([pair.score for pair in data.pairs], np.float64)
    items = list(data) if hasattr(data, "__iter__") else [data]
    if not items:
        raise InputError("search needs pairs or texts, got none.")
    if all(isinstance(item, (tuple, list)) and len(item) == 2 for item in items):
        pairs = [(str(a), str(b)) for a, b in items]
        check_texts([text for item in items for text in item])
        return f"{len(items)} pairs", [a for a, _ in pairs] + [b for _, b in pairs], pairs, None
    return f"{len(items)} texts", check_texts(items), [], None
