"""One pass over the texts for all recipes of a template; `scoring` then shapes what is stored, without a further pass.

The texts go in portions whose hidden states fit a bound. Within a portion every weighting is pooled with every column
by one product per batch, the pairs' cosines are taken, and only what a shaping chain will read is written to disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

from essent._core.texts import require_finite
from essent.errors import InputError
from essent.recipe.tokens.ids import batches, count_tokens, framed_ids, pad, portions
from essent.recipe.types import CorpusStats, Tokens
from essent.selection.program import Block, Origin, Pass, Portion, Program, TextPairs, portions_of
from essent.selection.store import Store

ALL_FLOATS = 4  # bytes
GIB = 2**30
TILE = 2**21  # bytes of vectors that are compared at a time: they stay in the processor's cache
PAIRS = 16  # compared at a time at least


def free_bytes(folder: Path) -> int:
    """What a disk has room for."""
    return shutil.disk_usage(folder).free


@dataclass
class PortionStates:
    """What is kept of a portion while its pairs are scored: by block the columns and weights of each batch."""

    slices: list[slice] = field(default_factory=list)
    tokens: list[Tokens] = field(default_factory=list)
    columns: dict[int, list[list[torch.Tensor]]] = field(default_factory=dict)  # block -> batch -> C of (B,T,D)
    weights: dict[int, list[torch.Tensor]] = field(default_factory=dict)  # block -> batch -> (B,W,T)
    singles: dict[int, list[torch.Tensor]] = field(default_factory=dict)  # single -> batch -> (B,K)


class Sweep:
    """The passes of a program over texts and pairs, into a store.

    Args:
        memory: bytes that hidden states and pooled vectors may take together.
        keep_all: whether the vectors of every recipe are kept, and not only those that shaping reads.
    """

    def __init__(
        self,
        program: Program,
        data: TextPairs,
        store: Store,
        *,
        memory: int,
        batch_size: int,
        progress: bool,
        keep_all: bool = False,
    ) -> None:
        self.program, self.data, self.store = program, data, store
        self.memory, self.batch_size, self.progress = memory, batch_size, progress
        self.backbone = program.backbone
        self.device = self.backbone.static_table.device
        self.unshaped: dict[tuple[int, int], list[tuple[int, int, int]]] = {}  # pass, block -> row, mix, recipe
        # pass, block -> row -> columns that are read again
        self.reread_columns: dict[tuple[int, int], dict[int, set[int]]] = {}
        for number, (recipe, origin) in enumerate(zip(program.recipes, program.origins, strict=True)):
            key = (origin.frame, origin.block)
            if recipe.shaping or keep_all:
                columns = self.reread_columns.setdefault(key, {}).setdefault(origin.row, set())
                columns.update(column for column, _ in self._columns(origin))
            if not recipe.shaping and len(data.pairs):
                self.unshaped.setdefault(key, []).append((origin.row, origin.mix, number))
        self.rows_of: dict[int, np.ndarray] = {}  # pass -> (N,) row of each text in the pooled files
        self.rows_in: dict[int, int] = {}  # pass -> rows in the pooled files
        self.stats: dict[int, CorpusStats] = {}  # pass -> token counts, where something reads them
        self.encoded = 0  # texts that went through the model

    @torch.inference_mode()
    def run(self) -> None:
        """Run every pass; what the store has already is not run again."""
        self.backbone.eval()
        with tqdm(
            total=len(self.data.texts) * len(self.program.passes), desc="Texts", disable=not self.progress
        ) as bar:
            for at, model_pass in enumerate(self.program.passes):
                sequences = self._tokenised(model_pass)
                if model_pass.reads_stats:
                    self.stats[at] = self._counted(model_pass)
                lengths = np.fromiter((len(s) for s in sequences), np.int64, len(sequences))
                first = np.full(len(sequences), -1, np.int64)
                start = 0
                parts = list(portions_of(self.data.pairs, lengths, self._most_tokens(model_pass)))
                self.rows_in[at] = sum(len(part.texts) for part in parts)
                if not all(self.store.done(f"pass {at} portion {number}") for number in range(len(parts))):
                    self._check_room(at)
                for number, part in enumerate(parts):
                    unit = f"pass {at} portion {number}"
                    if not self.store.done(unit):
                        self._run_portion(at, part, start, sequences)
                        self.store.finish(unit)
                        self.encoded += len(part.texts)
                    new = first[part.texts] < 0
                    first[part.texts[new]] = start + np.flatnonzero(new)
                    start += len(part.texts)
                    bar.update(int(new.sum()))
                self.rows_of[at] = first

    def _tokenised(self, model_pass: Pass) -> list[np.ndarray]:
        tokenised: list[np.ndarray] = []
        for _, portion_texts in portions(self.data.texts):
            ids = framed_ids(
                self.backbone.tokenizer, model_pass.frame, list(portion_texts), self.backbone.max_seq_length
            )
            tokenised.extend(np.asarray(sequence, np.int32) for sequence in ids)
        return tokenised

    def _counted(self, model_pass: Pass) -> CorpusStats:
        def ids(texts: object) -> list[list[int]]:
            return framed_ids(self.backbone.tokenizer, model_pass.frame, list(texts), self.backbone.max_seq_length)  # type: ignore[call-overload]

        return count_tokens(ids, self.data.fit_texts(), len(self.backbone.vocabulary))

    def _check_room(self, at: int) -> None:
        """Refuse a pass whose kept vectors do not fit on the disk, before it runs for hours.

        Raises:
            InputError: with what is needed and what is free.
        """
        model_pass, required_bytes = self.program.passes[at], 0
        for (frame, number), rows in self.reread_columns.items():
            if frame == at:
                for row, columns in rows.items():
                    width = (
                        model_pass.singles[row].width(self.backbone) if number < 0 else model_pass.blocks[number].width
                    )
                    required_bytes += ALL_FLOATS * self.rows_in[at] * width * len(columns)
        stored_bytes = sum(path.stat().st_size for path in self.store.folder.glob(f"pooled-{at}-*"))
        free = free_bytes(self.store.folder) + stored_bytes
        if required_bytes > free:
            raise InputError(
                f"The vectors of this search need {required_bytes / GIB:.2g} GiB in {self.store.folder}, where "
                f"{free / GIB:.2g} GiB are free. Give --work a folder on a larger disk, a smaller space or fewer texts."
            )

    def _most_tokens(self, model_pass: Pass) -> int:
        """Tokens of a portion: half of the memory for what is kept of each."""
        bytes_a_token = (
            sum(ALL_FLOATS * (block.columns * block.width + len(block.rows)) for block in model_pass.blocks)
            + ALL_FLOATS * self.backbone.dimensions
        )
        return max(self.memory // 2 // bytes_a_token, 1)

    @torch.inference_mode()
    def try_texts(self, at: int, texts: Sequence[str]) -> None:
        """Run a pass over some texts and throw the vectors away, to see how long it takes."""
        model_pass = self.program.passes[at]
        self.backbone.eval()
        ids = framed_ids(self.backbone.tokenizer, model_pass.frame, list(texts), self.backbone.max_seq_length)
        stats = count_tokens(lambda _: ids, texts, len(self.backbone.vocabulary)) if model_pass.reads_stats else None
        sequences = sorted((np.asarray(sequence, np.int32) for sequence in ids), key=len, reverse=True)
        part = Portion(np.arange(len(texts)), np.empty(0, np.int64), np.empty((0, 2), np.int64))
        portion_states = self._read(model_pass, part, sequences, stats)
        for number, block in enumerate(model_pass.blocks):
            for _ in self._pooled(block, portion_states, number, len(texts)):
                pass

    def _run_portion(self, at: int, part: Portion, start: int, sequences: list[np.ndarray]) -> None:
        model_pass = self.program.passes[at]
        portion_states = self._read(model_pass, part, sequences, self.stats.get(at))
        ends = torch.from_numpy(part.ends).to(self.device)
        texts = [self.data.texts[index] for index in part.texts]
        for number, block in enumerate(model_pass.blocks):
            for rows, pooled in self._pooled(block, portion_states, number, len(part.texts)):
                require_finite(pooled, texts, self.backbone.named_parameters())
                self._keep((at, number), rows, pooled, start)
                if members := [m for m in self.unshaped.get((at, number), []) if m[0] in rows]:
                    cosines = pair_cosines(pooled, ends, block.mixed).cpu().numpy()  # (w,M,p)
                    where = np.array(members)
                    pair_scores = cosines[where[:, 0] - rows.start, where[:, 1]]  # (r,p)
                    self.store.rows[np.ix_(where[:, 2], part.pairs)] = pair_scores
            portion_states.columns.pop(number)
        for number in range(len(model_pass.singles)):
            vectors = torch.cat(portion_states.singles[number])[:, None, None]  # (n,1,1,K)
            require_finite(vectors, texts, self.backbone.named_parameters())
            self._keep((at, -1), range(number, number + 1), vectors, start)
            for row, _, recipe in self.unshaped.get((at, -1), []):
                if row == number:
                    self.store.rows[recipe, part.pairs] = pair_cosines(vectors, ends)[0, 0].cpu().numpy()

    def _read(
        self, model_pass: Pass, part: Portion, sequences: list[np.ndarray], stats: CorpusStats | None
    ) -> PortionStates:
        """Run the model over a portion, batch by batch."""
        portion_states = PortionStates()
        required = model_pass.required
        for chosen in batches([len(sequences[i]) for i in part.texts], self.batch_size):
            ids = [sequences[i] for i in part.texts[chosen]]
            tokens = pad(ids, model_pass.frame, self.backbone.pad_id).to(self.device)
            states = self.backbone.states(tokens, required)
            portion_states.tokens.append(tokens)
            portion_states.slices.append(slice(int(chosen[0]), int(chosen[-1]) + 1))  # longest first already
            for number, block in enumerate(model_pass.blocks):
                columns, weights = block.read(tokens, states, self.backbone, stats)
                portion_states.columns.setdefault(number, []).append(columns)
                portion_states.weights.setdefault(number, []).append(weights)
            for number, plan in enumerate(model_pass.singles):
                vectors, _, _ = plan.pool(tokens, states, self.backbone, stats)
                portion_states.singles.setdefault(number, []).append(vectors.float())
        return portion_states

    def _pooled(
        self, block: Block, portion_states: PortionStates, number: int, texts: int
    ) -> Iterator[tuple[range, torch.Tensor]]:
        """Pooled vectors of as many weightings at a time as the memory holds: rows, and (n,w,C,D)."""
        rows_at_once = max(1, self.memory // 2 // max(ALL_FLOATS * texts * block.columns * block.width, 1))
        buffer = torch.empty(texts, min(rows_at_once, len(block.rows)), block.columns, block.width, device=self.device)
        for first in range(0, len(block.rows), rows_at_once):
            rows = range(first, min(first + rows_at_once, len(block.rows)))
            pooled = buffer[:, : len(rows)]  # the next ones take its place
            for text_rows, columns, weights in zip(
                portion_states.slices, portion_states.columns[number], portion_states.weights[number], strict=True
            ):
                chosen = weights[:, rows.start : rows.stop]  # (B,w,T)
                for at, column in enumerate(columns):
                    pooled[text_rows, :, at] = chosen @ column  # (B,w,T) @ (B,T,D) -> (B,w,D)
            yield rows, pooled

    def _keep(self, key: tuple[int, int], rows: range, pooled: torch.Tensor, start: int) -> None:
        columns_by_row = self.reread_columns.get(key, {})
        for row in (row for row in rows if row in columns_by_row):
            for column in sorted(columns_by_row[row]):
                values = pooled[:, row - rows.start, column].cpu().numpy()  # (n,D)
                self.store.write(_file(key, row, column), start * values.shape[1], values)

    def _columns(self, origin: Origin) -> list[tuple[int, float]]:
        """The columns that a recipe's pooled vectors are made of, with their factors."""
        if origin.block < 0:
            return [(0, 1.0)]
        block = self.program.passes[origin.frame].blocks[origin.block]
        if block.premixed:
            return [(origin.mix, 1.0)]
        factors = block.factors[origin.mix].tolist()
        return [(column, factor) for column, factor in enumerate(factors) if factor] or [(0, 0.0)]

    def pooled(self, origin: Origin) -> np.ndarray:
        """A recipe's pooled vectors before shaping, (N,D) float32, one row a text."""
        model_pass = self.program.passes[origin.frame]
        width = (
            model_pass.singles[origin.row].width(self.backbone)
            if origin.block < 0
            else model_pass.blocks[origin.block].width
        )
        parts = []
        for column, factor in self._columns(origin):
            stored = self._column((origin.frame, origin.block), origin.row, column, width)
            parts.append(stored if factor == 1.0 else stored * np.float32(factor))
        return reduce(np.add, parts)

    def _column(self, key: tuple[int, int], row: int, column: int, width: int) -> np.ndarray:
        stored = self.store.read(_file(key, row, column), 0, (self.rows_in[key[0]], width))
        vectors: np.ndarray = stored[self.rows_of[key[0]]]
        return vectors

    def release(self, origin: Origin) -> None:
        """Remove what `pooled` reads for a weighting: it will not be read again."""
        for path in self.store.folder.glob(_file((origin.frame, origin.block), origin.row, "*")):
            path.unlink()


def _file(key: tuple[int, int], row: int, column: int | str) -> str:
    return f"pooled-{key[0]}-{'single' if key[1] < 0 else key[1]}-{row}-{column}.bin"


def pair_cosines(
    vectors: torch.Tensor, ends: torch.Tensor, mixed: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> torch.Tensor:
    """Cosines of pairs: vectors (n,w,C,D), ends (p,2) -> (w,M,p) float64; with a zero vector the cosine is 0.

    As 1 − |u − v|²/2 of unit vectors, whose rounding shrinks with the angle: in an anisotropic model all cosines are
    close to 1, and a float32 dot product would rank its own rounding. Some pairs at a time, which the cache holds.

    Args:
        mixed: makes mixes (…,M,D) of columns (…,C,D); without it each column is one.
    """
    widest = vectors[:1, :1] if mixed is None else torch.cat([mixed(vectors[:1, :1]), vectors[:1, :1]], dim=2)
    tile = TILE if vectors.device.type == "cpu" else 64 * TILE
    at_once = max(1, tile // (ALL_FLOATS * widest.numel()))  # pairs times weightings
    parts = [
        torch.cat([_cosines(part, pairs, mixed) for pairs in ends.split(max(1, at_once // part.shape[1]))])
        for part in vectors.split(max(1, at_once // PAIRS), dim=1)
    ]
    return torch.cat(parts, dim=1).permute(1, 2, 0)


def _cosines(
    vectors: torch.Tensor, ends: torch.Tensor, mixed: Callable[[torch.Tensor], torch.Tensor] | None
) -> torch.Tensor:
    """Cosines (p,w,M) of all pairs at once."""
    sides = (vectors.index_select(0, ends[:, side]) for side in (0, 1))  # (p,w,C,D)
    first, second = sides if mixed is None else map(mixed, sides)
    lengths = [vector.norm(dim=-1, keepdim=True) for vector in (first, second)]
    apart = first / lengths[0].clamp(min=1e-30) - second / lengths[1].clamp(min=1e-30)
    cosines = 1 - torch.linalg.vecdot(apart, apart).double() / 2
    defined: torch.Tensor = cosines * ((lengths[0] > 0) & (lengths[1] > 0)).squeeze(-1)
    return defined
