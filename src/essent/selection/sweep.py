"""One pass over the texts for all recipes of a template; stored vectors are then shaped without a further pass.

The texts are processed in portions whose hidden states fit the memory limit. Within a portion, every weighting is
pooled with every column by one product per batch, the pairs' cosines are computed, and only vectors that a shaping
chain reads are written to disk.
"""

from __future__ import annotations

import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from essent._core.machine import cores
from essent._core.texts import require_finite
from essent.errors import InputError, NoSpreadError
from essent.recipe.shaping.affine import AffineShaper, Moments
from essent.recipe.shaping.chain import Chain
from essent.recipe.tokens.ids import batches, count_tokens, framed_ids, pad, portions
from essent.recipe.types import CorpusStats
from essent.selection.program import Block, Origin, Pass, Portion, Program, TextPairs, portions_of
from essent.selection.search_data import SearchData
from essent.selection.store import Store

ALL_FLOATS = 4  # bytes
GIB = 2**30
TILE = 2**21  # bytes of vectors that are compared at a time, so that they fit in the processor's cache
PAIRS = 16  # minimum number of pairs compared at a time
BlockKey = tuple[int, int]  # pass, block within it
RowKey = tuple[int, int, int]  # and weighting within that


class Sweep:
    """Run the passes of a program over texts and pairs, and write to a store.

    Args:
        memory: bytes for hidden states and pooled vectors together.
        keep_all: store the vectors of every recipe, not only those that shaping reads.
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
        self.unshaped: dict[BlockKey, list[tuple[int, int, int]]] = {}  # -> row, mix, recipe
        self.reread: dict[RowKey, dict[Origin, list[int]]] = {}  # -> recipes whose vectors are read again
        for number, (recipe, origin) in enumerate(zip(program.recipes, program.origins, strict=True)):
            if recipe.shaping or keep_all:
                self.reread.setdefault(origin[:3], {}).setdefault(origin, []).append(number)
            if not recipe.shaping and len(data.pairs):
                self.unshaped.setdefault(origin[:2], []).append((origin.row, origin.mix, number))
        self.rows_of: dict[int, np.ndarray] = {}  # pass -> (N,) row of each text in the pooled files
        self.rows_in: dict[int, int] = {}  # pass -> rows in the pooled files
        self.encoded = 0  # texts that went through the model

    def _block(self, key: RowKey | Origin) -> Block:
        return self.program.passes[key[0]].blocks[key[1]]

    def _columns(self, key: RowKey) -> list[int]:
        """Return the columns of a weighting that are read again."""
        block = self._block(key)
        return sorted({column for origin in self.reread.get(key, ()) for column, _ in block.columns_of(origin.mix)})

    @torch.inference_mode()
    def run(self) -> None:
        """Run every pass that the store does not contain yet."""
        backbone, texts = self.backbone, self.data.texts
        backbone.eval()
        with tqdm(total=len(texts) * len(self.program.passes), desc="Texts", disable=not self.progress) as bar:
            for at, model_pass in enumerate(self.program.passes):
                sequences = [
                    np.asarray(ids, np.int32)
                    for _, part in portions(texts)
                    for ids in framed_ids(backbone.tokenizer, model_pass.frame, list(part), backbone.max_seq_length)
                ]
                stats = self._counted(sequences) if model_pass.reads_stats else None
                lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
                first = np.full(len(sequences), -1, np.int64)
                start = 0
                parts = list(portions_of(self.data.pairs, lengths, self._most_tokens(model_pass)))
                self.rows_in[at] = sum(len(part.texts) for part in parts)
                units = [f"pass {at} portion {number}" for number in range(len(parts))]
                if not all(map(self.store.done, units)):
                    self._check_room(at)
                for unit, part in zip(units, parts, strict=True):
                    if not self.store.done(unit):
                        self._run_portion(at, part, start, sequences, stats)
                        self.store.finish(unit)
                        self.encoded += len(part.texts)
                    new = first[part.texts] < 0
                    first[part.texts[new]] = start + np.flatnonzero(new)
                    start += len(part.texts)
                    bar.update(int(new.sum()))
                self.rows_of[at] = first

    def _counted(self, sequences: list[np.ndarray]) -> CorpusStats:
        ids_by_text: dict[str, Any] = dict(zip(self.data.texts, sequences, strict=True))
        return count_tokens(
            lambda texts: [ids_by_text[text] for text in texts], self.data.fit_texts(), len(self.backbone.vocabulary)
        )

    def _check_room(self, at: int) -> None:
        """Check that the vectors of a pass fit on the disk before it runs for hours.

        Raises:
            InputError: too little space; names the required and the free space.
        """
        folder = self.store.folder
        width = sum(self._block(key).width * len(self._columns(key)) for key in self.reread if key[0] == at)
        required = ALL_FLOATS * self.rows_in[at] * width
        free = shutil.disk_usage(folder).free + sum(path.stat().st_size for path in folder.glob(f"pooled-{at}-*"))
        if required > free:
            raise InputError(
                f"The vectors of this search need {required / GIB:.2g} GiB in {folder}, but only {free / GIB:.2g} GiB "
                "are free. Set --work to a folder on a larger disk, or use a smaller space or fewer texts."
            )

    def _most_tokens(self, model_pass: Pass) -> int:
        """Return the tokens of a portion: half of the memory for the data retained per token."""
        floats = sum(block.columns * block.width + len(block.rows) for block in model_pass.blocks)
        return max(self.memory // 2 // (ALL_FLOATS * (floats + self.backbone.dimensions)), 1)

    def _run_portion(
        self, at: int, part: Portion, start: int, sequences: list[np.ndarray], stats: CorpusStats | None
    ) -> None:
        """Run the model over a portion batch by batch, then pool and compare its texts block by block."""
        model_pass = self.program.passes[at]
        slices: list[slice] = []
        read: list[list[tuple[list[torch.Tensor], torch.Tensor]]] = [[] for _ in model_pass.blocks]
        for chosen in batches([len(sequences[index]) for index in part.texts], self.batch_size):
            ids = [sequences[index] for index in part.texts[chosen]]
            tokens = pad(ids, model_pass.frame, self.backbone.pad_id).to(self.device)
            states = self.backbone.states(tokens, model_pass.required)
            slices.append(slice(int(chosen[0]), int(chosen[-1]) + 1))  # longest first already
            for number, block in enumerate(model_pass.blocks):
                read[number].append(block.read(tokens, states, self.backbone, stats))
        ends = torch.from_numpy(part.ends).to(self.device)
        texts = [self.data.texts[index] for index in part.texts]
        for number, block in enumerate(model_pass.blocks):
            for rows, pooled in self._pooled(block, slices, read[number], len(texts)):
                require_finite(pooled, texts, self.backbone.named_parameters())
                for row in rows:
                    for column in self._columns((at, number, row)):
                        values = pooled[:, row - rows.start, column].cpu().numpy()  # (n,D)
                        self.store.write(_file((at, number, row), column), start * block.width, values)
                if members := [member for member in self.unshaped.get((at, number), []) if member[0] in rows]:
                    cosines = pair_cosines(pooled, ends, block.mixed).cpu().numpy()  # (w,M,p)
                    row, mix, recipe = np.array(members).T
                    self.store.rows[np.ix_(recipe, part.pairs)] = cosines[row - rows.start, mix]  # (r,p)
            read[number].clear()

    def _pooled(
        self, block: Block, slices: list[slice], read: list[tuple[list[torch.Tensor], torch.Tensor]], texts: int
    ) -> Iterator[tuple[range, torch.Tensor]]:
        """Yield pooled vectors of as many weightings at a time as fit in memory: rows, and (n,w,C,D)."""
        rows_at_once = max(1, self.memory // 2 // max(ALL_FLOATS * texts * block.columns * block.width, 1))
        buffer = torch.empty(texts, min(rows_at_once, len(block.rows)), block.columns, block.width, device=self.device)
        for first in range(0, len(block.rows), rows_at_once):
            rows = range(first, min(first + rows_at_once, len(block.rows)))
            pooled = buffer[:, : len(rows)]  # overwritten by the next rows
            for text_rows, (columns, weights) in zip(slices, read, strict=True):
                chosen = weights[:, rows.start : rows.stop]  # (B,w,T)
                for at, column in enumerate(columns):
                    pooled[text_rows, :, at] = chosen @ column  # (B,w,T) @ (B,T,D) -> (B,w,D)
            yield rows, pooled

    def pooled(self, origin: Origin) -> np.ndarray:
        """Return a recipe's pooled vectors before shaping, (N,D) float32, one row per text."""
        block, shape = self._block(origin), (self.rows_in[origin.frame], self._block(origin).width)
        parts = []
        for column, factor in block.columns_of(origin.mix):
            stored = self.store.read(_file(origin[:3], column), shape)[self.rows_of[origin.frame]]
            parts.append(stored if factor == 1.0 else stored * np.float32(factor))
        return reduce(np.add, parts)

    def release(self, key: RowKey) -> None:
        """Remove the files of a weighting after its last use."""
        for path in self.store.folder.glob(_file(key, "*")):
            path.unlink()


def _file(key: RowKey, column: int | str) -> str:
    return "-".join(map(str, ("pooled", *key, column))) + ".bin"


def pair_cosines(
    vectors: torch.Tensor, ends: torch.Tensor, mixed: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> torch.Tensor:
    """Return cosines of pairs: vectors (n,w,C,D), ends (p,2) -> (w,M,p) float64; with a zero vector the cosine is 0.

    Computed as 1 − |u − v|²/2 of unit vectors, whose rounding error shrinks with the angle: in an anisotropic model all
    cosines are close to 1, and the ranks of float32 dot products would be rounding noise. Pairs are processed in tiles
    that fit in the cache.

    Args:
        mixed: computes mixes (…,M,D) from columns (…,C,D); by default each column is one mix.
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
    """Return cosines (p,w,M) of all pairs at once."""
    sides = (vectors.index_select(0, ends[:, side]) for side in (0, 1))  # (p,w,C,D)
    first, second = sides if mixed is None else map(mixed, sides)
    lengths = [vector.norm(dim=-1, keepdim=True) for vector in (first, second)]
    apart = first / lengths[0].clamp(min=1e-30) - second / lengths[1].clamp(min=1e-30)
    cosines = 1 - torch.linalg.vecdot(apart, apart).double() / 2
    defined: torch.Tensor = cosines * ((lengths[0] > 0) & (lengths[1] > 0)).squeeze(-1)
    return defined


# -- shaping and evidence, from the vectors that the passes have stored ------------------------------------------------


def score_stored(sweep: Sweep, data: SearchData) -> None:
    """Fit and apply every chain, and write cosines and evidence to the rows, except for finished units.

    Recipes are scored in parallel, one per core as far as memory permits. Small products gain little from several
    threads, and threads of several libraries compete for the cores.
    """
    total = sum(len(members) for origins in sweep.reread.values() for members in origins.values())
    dimensions = sweep.backbone.dimensions
    used = 4 * ALL_FLOATS * len(sweep.data.texts) * dimensions  # pooled vectors, those to fit on, shaped and unit ones
    if data.task is not None and data.takes_vectors:
        used += data.task.working_bytes(dimensions)
    count = max(1, min(cores(), sweep.memory // max(used, 1)))
    threads, share = torch.get_num_threads(), max(1, cores() // count)
    pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(share,))
    try:
        # filters of warnings are shared by all threads: they must not end with those of one thread
        with (
            tqdm(total=total, desc="Scoring" if data.takes_vectors else "Shaping", disable=not sweep.progress) as bar,
            threadpool_limits(share),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", ConvergenceWarning)
            todo: dict[Origin, list[int]] = {}
            for key, origins in sweep.reread.items():
                if sweep.store.done(_unit(key)):
                    bar.update(sum(map(len, origins.values())))
                    sweep.release(key)  # in case a run was killed before it did so
                else:
                    todo |= origins
            remaining = Counter(origin[:3] for origin in todo)
            scored = pool.map(partial(_score_origin, sweep, data), todo, todo.values())
            for origin, members in zip(todo, scored, strict=True):
                bar.update(members)
                remaining[origin[:3]] -= 1
                if not remaining[origin[:3]]:
                    sweep.store.finish(_unit(origin[:3]))
                    sweep.release(origin[:3])
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def _unit(key: RowKey) -> str:
    """Return the store's name for the recipes of a weighting."""
    return " ".join(map(str, ("shaping", *key)))


def _score_origin(sweep: Sweep, data: SearchData, origin: Origin, members: list[int]) -> int:
    """Fill the rows of the recipes with these pooled vectors and return their number; moments are computed once."""
    vectors = sweep.pooled(origin)  # (N,D)
    fitted, pairs, rows = vectors[sweep.data.fit], sweep.data.pairs, sweep.store.rows
    moments: Moments | None = None
    for number in members:
        shaping = sweep.program.recipes[number].shaping
        shaped = vectors
        if shaping:
            chain = Chain.parse(shaping)
            if moments is None and isinstance(chain.steps[0], AffineShaper):
                moments = Moments.of(fitted)
            try:
                if chain.needs_fit:
                    chain.fit(fitted, moments=moments)
                shaped = chain.transform(vectors)  # (N,K)
            except NoSpreadError:  # for example [CLS] in layer 0: only this recipe's score is undefined
                shaped = np.zeros((len(vectors), chain.dim_out(vectors.shape[1])), vectors.dtype)
            cosines = pair_cosines(torch.from_numpy(shaped)[:, None, None], torch.from_numpy(pairs))[0, 0]
            rows[number, : len(pairs)] = cosines.numpy()  # those without shaping: during the pass
        if data.task is not None and data.takes_vectors:
            rows[number, data.evidence] = data.task.evidence(shaped, sweep.data.fit.tolist())
    return len(members)
