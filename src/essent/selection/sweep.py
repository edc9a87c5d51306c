"""One pass over the texts for all recipes of a template; stored vectors are then shaped without a further pass.

The texts are processed in portions whose hidden states fit the memory limit. Within a portion, every weighting is
pooled with every column by one product per batch, the pairs' cosines are computed, and only vectors that a shaping
chain or a task reads are written to disk. A killed search resumes from its folder.
"""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from essent._core.atomic import remove_leftovers, sync, write_text
from essent._core.display import text_progress
from essent._core.machine import cores
from essent._core.texts import require_finite
from essent.encoder.plan import chain_of
from essent.errors import DataError, NoSpreadError
from essent.recipe.shaping.affine import AffineShaper, Moments
from essent.recipe.tokens import batches, count_tokens, framed_ids, pad, portions
from essent.recipe.types import CorpusStats
from essent.selection.program import (
    ALL_FLOATS,
    BatchInputs,
    Block,
    Origin,
    Origins,
    Portion,
    Program,
    TextPairs,
    pair_cosines,
    portions_of,
    required_by,
)
from essent.selection.search_data import SearchData, SearchSettings

GIB = 2**30
FORMAT = "essent-search/4"
FLOAT, DOUBLE = np.dtype("<f4"), np.dtype("<f8")  # vectors, rows
HEAD, ROWS = "search.json", "rows.bin"
BlockKey = tuple[int, int]  # pass, block of the pass
RowKey = tuple[int, int, int]  # and row of the block (a weighting)
Recipes = list[int]  # indices of recipes in the program


class Sweep:
    """Run the passes of a program over one data set, and write cosines and evidence to a store.

    Args:
        data: defines what is scored.
        pairs: its texts with the model's prompts, and the pairs whose cosines are stored.
    """

    def __init__(
        self, program: Program, data: SearchData, pairs: TextPairs, store: Store, settings: SearchSettings
    ) -> None:
        self.program, self.data, self.pairs, self.store, self.settings = program, data, pairs, store, settings
        self.memory = int(settings.memory * GIB)  # bytes for hidden states and pooled vectors together
        self.backbone = program.backbone
        self.device = self.backbone.static_table.device
        # A pass computes the cosines of a recipe with one template and without shaping while its pooled vectors are in
        # memory. Vectors that are needed later are written to the store, one file per row and column, and
        # `score_stored` reads them after all passes: to fit a shaping chain, to add the vectors of several templates,
        # or to compute evidence from vectors.
        self.compared_in_pass = defaultdict[BlockKey, list[tuple[int, ...]]](list)  # -> row, mix and recipe
        self.recipes_of: dict[Origins, Recipes] = {}  # of the stored vectors that they share
        self.columns_to_store = defaultdict[RowKey, set[int]](set)  # row -> columns that are read later
        for index, (recipe, origins) in enumerate(zip(program.recipes, program.origins, strict=True)):
            if recipe.shaping or data.reads_vectors or len(origins) > 1:
                self.recipes_of.setdefault(origins, []).append(index)
                for origin, _ in origins:
                    columns = self._block(origin).columns_of(origin.mix)
                    self.columns_to_store[origin[:3]].update(column for column, _ in columns)
            if not recipe.shaping and len(pairs.pairs) and len(origins) == 1:
                ((origin, _),) = origins
                self.compared_in_pass[origin[:2]].append((origin.row, origin.mix, index))
        self.rows_of: list[np.ndarray] = []  # by pass: (N,) row of each text in the files of pooled vectors
        self.row_counts: list[int] = []  # by pass: rows of these files
        self.encoded = 0  # texts that went through the model

    def _block(self, key: RowKey | Origin) -> Block:
        return self.program.passes[key[0]][key[1]]

    @torch.inference_mode()
    def run(self) -> None:
        """Run every pass that the store does not contain yet."""
        backbone, texts = self.backbone, self.pairs.texts
        backbone.eval()
        with text_progress(len(texts) * len(self.program.passes), self.settings.progress) as update:
            for number, blocks in enumerate(self.program.passes):
                sequences = [
                    np.asarray(ids, np.int32)
                    for _, part in portions(texts)
                    for ids in framed_ids(backbone.tokenizer, blocks[0].frame, list(part), backbone.max_seq_length)
                ]
                stats = self._count(sequences) if any(block.reads_stats for block in blocks) else None
                lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
                floats = sum(block.columns * block.width + len(block.rows) for block in blocks)  # per token
                max_tokens = max(self.memory // 2 // (ALL_FLOATS * (floats + backbone.dimensions)), 1)
                parts = list(portions_of(self.pairs.pairs, lengths, max_tokens))
                stored_texts = np.concatenate([part.texts for part in parts])
                self.row_counts.append(len(stored_texts))
                self.rows_of.append(np.unique(stored_texts, return_index=True)[1])
                units = [f"pass-{number}-{index}" for index in range(len(parts))]
                start = 0
                for unit, part in zip(units, parts, strict=True):
                    if not self.store.done(unit):
                        self._run_portion(number, part, start, sequences, stats)
                        self.store.finish(unit)
                        self.encoded += len(part.texts)
                    update(int((self.rows_of[number][part.texts] >= start).sum()))  # texts of no earlier portion
                    start += len(part.texts)

    def _count(self, sequences: list[np.ndarray]) -> CorpusStats:
        """Count the tokens of the texts that recipes are fitted on."""
        ids_of: Any = sequences.__getitem__  # by the position of the text
        rows = self.pairs.fit.tolist()
        return count_tokens(lambda part: list(map(ids_of, part)), rows, len(self.backbone.vocabulary))

    def _run_portion(
        self, number: int, part: Portion, start: int, sequences: list[np.ndarray], stats: CorpusStats | None
    ) -> None:
        """Run the model over a portion batch by batch, then pool and compare its texts block by block."""
        blocks = self.program.passes[number]
        required = required_by(blocks)
        slices: list[slice] = []
        inputs: list[list[BatchInputs]] = [[] for _ in blocks]
        for indices in batches([len(sequences[text]) for text in part.texts], self.settings.batch_size):
            ids: Any = [sequences[text] for text in part.texts[indices]]
            tokens = pad(ids, blocks[0].frame, self.backbone.pad_id).to(self.device)
            states = self.backbone.states(tokens, required)
            slices.append(slice(int(indices[0]), int(indices[-1]) + 1))  # the texts are sorted already
            for block, block_inputs in zip(blocks, inputs, strict=True):
                block_inputs.append(block.read(tokens, states, self.backbone, stats))
        ends = torch.from_numpy(part.ends).to(self.device)
        texts = [self.pairs.texts[index] for index in part.texts]
        for index, block in enumerate(blocks):
            for rows, pooled in self._pooled(block, slices, inputs[index], len(texts)):
                require_finite(pooled, texts, self.backbone.named_parameters())
                for row in rows:
                    for column in sorted(self.columns_to_store[number, index, row]):
                        vectors = pooled[:, row - rows.start, column].cpu().numpy()  # (n,D)
                        self.store.write(_file((number, index, row), column), start * block.width, vectors)
                compared = [entry for entry in self.compared_in_pass[number, index] if entry[0] in rows]
                if compared:
                    cosines = pair_cosines(pooled, ends, block.mixed).cpu().numpy()  # (w,M,p)
                    row, mix, recipe = np.array(compared).T
                    self.store.rows[np.ix_(recipe, part.pairs)] = cosines[row - rows.start, mix]  # (r,p)
            inputs[index].clear()

    def _pooled(
        self, block: Block, slices: list[slice], inputs: list[BatchInputs], texts: int
    ) -> Iterator[tuple[range, torch.Tensor]]:
        """Yield pooled vectors of as many weightings at a time as fit in memory: rows, and (n,w,C,D)."""
        rows_at_once = max(1, self.memory // 2 // max(ALL_FLOATS * texts * block.columns * block.width, 1))
        buffer = torch.empty(texts, min(rows_at_once, len(block.rows)), block.columns, block.width, device=self.device)
        for first in range(0, len(block.rows), rows_at_once):
            rows = range(first, min(first + rows_at_once, len(block.rows)))
            pooled = buffer[:, : len(rows)]  # overwritten by the next rows
            for text_rows, (columns, weights) in zip(slices, inputs, strict=True):
                for index, column in enumerate(columns):  # (B,w,T) @ (B,T,D) -> (B,w,D)
                    pooled[text_rows, :, index] = weights[:, rows.start : rows.stop] @ column
            yield rows, pooled

    def pooled(self, origins: Origins) -> np.ndarray:
        """Return a recipe's pooled vectors before shaping, (N,D) float32, one row per text."""
        parts = []
        for origin, template_factor in origins:
            block, rows = self._block(origin), self.rows_of[origin.number]
            shape = (self.row_counts[origin.number], block.width)
            for column, factor in block.columns_of(origin.mix):
                stored = self.store.read(_file(origin[:3], column), shape)[rows]
                factor *= template_factor
                parts.append(stored if factor == 1.0 else stored * np.float32(factor))
        return reduce(np.add, parts)


def _file(key: RowKey, column: int | str) -> str:
    return "-".join(map(str, ("pooled", *key, column))) + ".bin"


# -- shaping and evidence, from the vectors that the passes have stored ------------------------------------------------


def score_stored(sweep: Sweep) -> None:
    """Fit and apply every chain, and write cosines and evidence to the rows, except for finished units.

    Recipes are scored in parallel, one per core as far as memory permits. Small products gain little from several
    threads, and threads of several libraries compete for the cores.
    """
    data, store, dimensions = sweep.data, sweep.store, sweep.backbone.dimensions
    # bytes of vectors per thread: pooled, to fit on, shaped, unit
    used = 4 * ALL_FLOATS * len(sweep.pairs.texts) * dimensions
    if (task := data.vector_task) is not None:
        used += task.working_bytes(dimensions)
    count = max(1, min(cores(), sweep.memory // max(used, 1)))
    threads, share = torch.get_num_threads(), max(1, cores() // count)
    pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(share,))
    groups = {f"group-{number}": group for number, group in enumerate(sweep.recipes_of.items())}
    open_groups = {unit: group for unit, group in groups.items() if not store.done(unit)}
    done = len(groups) - len(open_groups)
    try:
        # all threads share the filters of warnings: a filter of one thread would end for the others too
        with (
            text_progress(len(groups), sweep.settings.progress, done, "Scoring", "recipe group") as update,
            threadpool_limits(share),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", ConvergenceWarning)
            scored = pool.map(lambda group: _score_recipes(sweep, *group), open_groups.values())
            for unit, _ in zip(open_groups, scored, strict=True):
                store.finish(unit)
                update(1)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
    store.remove("pooled-*")


def _score_recipes(sweep: Sweep, origins: Origins, recipes: Recipes) -> None:
    """Fill the store's rows of the recipes with these pooled vectors; moments are computed once for all recipes."""
    vectors = sweep.pooled(origins)  # (N,D)
    fitted, pairs, rows = vectors[sweep.pairs.fit], sweep.pairs.pairs, sweep.store.rows
    moments: Moments | None = None
    for index in recipes:
        recipe, shaped = sweep.program.recipes[index], vectors
        if recipe.shaping:
            chain = chain_of(recipe, vectors.shape[1], sweep.backbone)
            if moments is None and isinstance(chain.steps[0], AffineShaper):
                moments = Moments.of(fitted)
            try:
                if chain.needs_fit:
                    chain.fit(fitted, moments=moments)
                shaped = chain.transform(vectors)  # (N,K)
            except NoSpreadError:  # for example [CLS] in layer 0: only this recipe's score is undefined
                shaped = np.zeros((len(vectors), chain.dim_out(vectors.shape[1])), vectors.dtype)
        if recipe.shaping or len(origins) > 1:
            cosines = pair_cosines(torch.from_numpy(shaped)[:, None, None], torch.from_numpy(pairs))[0, 0]
            rows[index, : len(pairs)] = cosines.numpy()  # a single template without shaping is compared during its pass
        for columns, numbers in sweep.data.vector_evidence(shaped, sweep.pairs):
            rows[index, columns] = numbers


# -- the folder of a search: numbers per recipe, vectors to read again, and the units of work that are finished -------


class Store:
    """A folder with a row of numbers per recipe (R,W), pooled vectors to read again, and the finished units of work.

    A unit is marked as finished, by an empty file, after all its data have reached the disk; incomplete units of a
    killed run are written again. The search's identity is written last: a folder without it counts as empty.

    Args:
        folder: created if missing.
        identity: plain values that identify the search; the folder of another search is refused.
        recipes: R.
        width: W, the length of a row: cosines of pairs, and evidence computed from vectors.
        durable: whether a later run may resume; a temporary folder need not be synced to disk.

    Raises:
        DataError: the folder contains another search, or other files.
    """

    def __init__(
        self, folder: Path, identity: dict[str, Any], recipes: int, width: int, *, durable: bool = True
    ) -> None:
        self.folder, self.durable = folder, durable
        self._unsynced: set[Path] = set()
        head, rows = folder / HEAD, folder / ROWS
        identity_text = json.dumps({"format": FORMAT, **identity}, sort_keys=True, indent=1)
        if folder.is_file():
            raise DataError(f"{folder} is a file, but a search needs a folder. Choose another name.")
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(head)
        if not head.is_file():
            if any(path != rows and not path.name.startswith(".") for path in folder.iterdir()):
                raise DataError(f"{folder} contains other files than those of a search. Choose a new folder.")
            with rows.open("wb") as file:
                file.truncate(recipes * width * DOUBLE.itemsize)
            self._sync(rows)
            write_text(head, identity_text)
        elif head.read_text("utf-8") != identity_text:
            raise DataError(
                f"{folder} contains another search (other model, data, recipes or settings). Choose another folder, or "
                "remove this one to start over."
            )
        try:
            self._mapped = np.memmap(rows, DOUBLE, "r+")
            self.rows = self._mapped.reshape(recipes, width)
        except (OSError, ValueError):
            raise self._damaged(rows) from None

    def _damaged(self, path: Path) -> DataError:
        return DataError(f"{path} is missing or damaged. Remove the folder {self.folder} to start the search over.")

    def _sync(self, *paths: Path) -> None:
        if self.durable:
            for path in (*paths, self.folder):
                sync(path)

    def done(self, unit: str) -> bool:
        """Return whether a unit of work is finished."""
        return (self.folder / f"done-{unit}").exists()

    def finish(self, unit: str) -> None:
        """Mark a unit of work as finished, after all its data have reached the disk."""
        if self.durable:
            self._mapped.flush()
        self._sync(*sorted(self._unsynced))
        self._unsynced.clear()
        (self.folder / f"done-{unit}").touch()
        self._sync()

    def write(self, name: str, offset: int, values: np.ndarray) -> None:
        """Write float32 values to a file, `offset` values from its start."""
        path = self.folder / name
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(offset * FLOAT.itemsize)
            file.write(np.ascontiguousarray(values, FLOAT).data)
        self._unsynced.add(path)

    def read(self, name: str, shape: tuple[int, int]) -> np.ndarray:
        """Return a file's values in the shape in which they were written."""
        try:
            return np.fromfile(self.folder / name, FLOAT).reshape(shape)
        except (OSError, ValueError):
            raise self._damaged(self.folder / name) from None

    def remove(self, pattern: str) -> None:
        """Remove files of vectors that no recipe reads any more."""
        for path in self.folder.glob(pattern):
            path.unlink()
