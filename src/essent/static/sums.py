"""Sums of token states over a corpus, batch by batch, the teacher's vectors of the same texts, and checkpoints of both.

The states come from a pass over the texts without a template. A teacher without a template pools its vectors in the
same pass; each template of a teacher takes another pass.

A run resumed from a checkpoint adds the remaining batches in the same order to the same float64 sums, so that its
result is the same to the last bit, whenever the checkpoints were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from essent._core import machine
from essent._core.atomic import replacing_file
from essent.encoder.plan import Plan, count_frames
from essent.errors import DataError
from essent.model.backbone import Backbone
from essent.model.template import make_frame
from essent.recipe.tokens import Frame, batches, count_tokens, framed_ids, in_frame, pad, portions
from essent.recipe.types import RequiredOutputs

COUNTS = {"count": "count", "frequency": "document_frequency", "held_out.count": "held_out_count"}
PORTION = 4096  # texts whose ids are in memory at a time, and whose batches are sorted by length

# -- held-out texts ---------------------------------------------------------------------------------------------------

SHARE, LEAST, MOST = 0.1, 50, 1000  # share of the distinct texts, minimum, maximum
MIN_TEXTS = 4 * LEAST  # a smaller corpus holds none out: too few texts would be left for a comparable table
SEED = 0


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out texts, and the averages without them.

    Attributes:
        is_held_out: whether each text of the corpus is held out: (N,) bool.
        tokens: the tokens of these texts, ascending: (U,) int64.
        averages: layer -> rows (U,D) float32 that these tokens have in a table of the other texts.
    """

    is_held_out: np.ndarray
    tokens: np.ndarray
    averages: dict[int, np.ndarray]


def hold_out(texts: Sequence[str]) -> np.ndarray:
    """Choose the held-out texts with all their copies: (N,) bool; none of fewer than MIN_TEXTS distinct texts."""
    distinct = list(dict.fromkeys(texts))
    if len(distinct) < MIN_TEXTS:
        return np.zeros(len(texts), dtype=bool)
    count = min(MOST, max(LEAST, round(SHARE * len(distinct))))
    order = np.random.default_rng(SEED).permutation(len(distinct))
    chosen = {distinct[index] for index in order[:count]}
    return np.array([text in chosen for text in texts])


# -- sums -------------------------------------------------------------------------------------------------------------


class Sums:
    """Sums over the first `done` texts, counted over all passes.

    Args:
        backbone: the model.
        plan: the teacher, whose vectors of the same texts are computed; None computes none.
        layers: the layers whose states are added.
        texts: the corpus.
        is_held_out: which texts also have sums of their own: (N,) bool.
        batch_size: size of a batch: 32 holds as many tokens as 32 texts of 64 tokens.

    Attributes:
        tables: layer -> sums of the states (V,D) float64, on the model's device.
        count, document_frequency: per token, number of occurrences and of texts that contain it: (V,) int64.
        held_out_tokens: tokens of the held-out texts, ascending: (U,) int64.
        held_out_tables, held_out_count: the part of the held-out texts in `tables`, only rows of their tokens (U,D),
            and in `count` (V,).
        vectors: the teacher's vectors (N,K) float32, zero if not computed yet; None without a plan.
        alone: layer -> states (n,D) float32 of single tokens, of which `tokens_alone` are computed.
    """

    def __init__(
        self,
        backbone: Backbone,
        plan: Plan | None,
        layers: Sequence[int],
        texts: list[str],
        is_held_out: np.ndarray,
        batch_size: int,
    ) -> None:
        self.backbone, self.plan, self.texts = backbone, plan, texts
        self.is_held_out, self.batch_size = is_held_out, batch_size
        self.frame = make_frame(backbone.tokenizer, None)
        self.frames = [self.frame, *(frame for frame in (() if plan is None else plan.frames) if frame != self.frame)]
        self.stats = {} if plan is None else count_frames(backbone, [plan], texts)
        rows = len(backbone.vocabulary)
        self.count, self.document_frequency, self.held_out_count = (np.zeros(rows, np.int64) for _ in range(3))
        held_out = [text for text, held in zip(texts, is_held_out, strict=True) if held]
        self.held_out_tokens = np.array(sorted({i for ids in self._ids(self.frame, held_out) for i in ids}), np.int64)
        zeros = partial(torch.zeros, dtype=torch.float64, device=backbone.static_table.device)
        self.tables = {layer: zeros(rows, backbone.dimensions) for layer in layers}
        self.held_out_tables = {layer: zeros(len(self.held_out_tokens), backbone.dimensions) for layer in layers}
        self.vectors = None if plan is None else np.zeros((len(texts), plan.width), np.float32)
        self.alone = {layer: np.zeros((0, backbone.dimensions), np.float32) for layer in layers}
        self.done = self.tokens_alone = 0

    @property
    def total(self) -> int:
        """The number of texts over all passes."""
        return len(self.texts) * len(self.frames)

    def _ids(self, frame: Frame, texts: Sequence[str]) -> list[list[int]]:
        return framed_ids(self.backbone.tokenizer, frame, list(texts), self.backbone.max_seq_length)

    def read_texts(self) -> Iterator[int]:
        """Run the batches after the first `done` texts, and yield the number of texts of each after adding it."""
        for number, frame in enumerate(self.frames):
            for start, portion in portions(self.texts, PORTION):
                before = number * len(self.texts) + start  # texts before the batch
                if self.done >= before + len(portion):
                    continue
                sequences = self._ids(frame, portion)
                for indices in batches([len(ids) for ids in sequences], self.batch_size):
                    if self.done <= before:
                        self._add(frame, [sequences[index] for index in indices], start + indices)
                        self.done += len(indices)
                        yield len(indices)
                    before += len(indices)

    def _add(self, frame: Frame, sequences: list[list[int]], rows: np.ndarray) -> None:
        """Add the batch of the corpus's texts `rows` (B,)."""
        backbone, plan, required = self.backbone, self.plan, RequiredOutputs()
        if frame == self.frame:
            required |= RequiredOutputs(frozenset(self.tables))
        if plan is not None and frame in plan.frames:
            required |= plan.required
        tokens = pad(sequences, frame, backbone.pad_id).to(backbone.static_table.device)
        states = backbone.states(tokens, required)
        if plan is not None and self.vectors is not None and frame in plan.frames:
            vectors, _, _ = plan.pool(tokens, states, backbone, self.stats.get(frame))
            self.vectors[rows] += vectors.float().cpu().numpy() * plan.frames[frame]
        if frame != self.frame:
            return
        has_tokens = torch.tensor([[bool(ids)] for ids in sequences], device=tokens.ids.device)  # if not, one pad
        occurrences = tokens.attention_mask & has_tokens  # (B,T)
        held_out = occurrences & torch.from_numpy(self.is_held_out[rows, None]).to(occurrences.device)
        held_out_rows = np.searchsorted(self.held_out_tokens, tokens.ids[held_out].cpu().numpy())
        for layer, table in self.tables.items():
            table.index_add_(0, tokens.ids[occurrences], states.hidden[layer][occurrences].double())
            if len(held_out_rows):
                index = torch.from_numpy(held_out_rows).to(table.device)
                self.held_out_tables[layer].index_add_(0, index, states.hidden[layer][held_out].double())
        stats = count_tokens(lambda _: sequences, [self.texts[row] for row in rows], len(self.count))
        self.count += stats.count
        self.document_frequency += stats.document_frequency
        self.held_out_count += np.bincount(self.held_out_tokens[held_out_rows], minlength=len(self.count))

    def read_alone(self, tokens: np.ndarray) -> Iterator[int]:
        """Run tokens (n,) alone between the special tokens; yield the number of tokens of each batch after adding it.

        The first `tokens_alone` are skipped.
        """
        missing = len(tokens) - self.tokens_alone
        for layer, rows in self.alone.items():
            self.alone[layer] = np.concatenate([rows, np.zeros((missing, rows.shape[1]), np.float32)])
        for indices in batches([len(self.frame) + 1] * len(tokens), self.batch_size):  # in order: lengths are equal
            if indices[0] < self.tokens_alone:
                continue
            sequences = in_frame([[int(token)] for token in tokens[indices]], self.frame)
            padded = pad(sequences, self.frame, self.backbone.pad_id).to(self.backbone.static_table.device)
            hidden = self.backbone.states(padded, RequiredOutputs(frozenset(self.tables))).hidden
            for layer, rows in self.alone.items():
                rows[indices] = hidden[layer][:, len(self.frame.before)].float().cpu().numpy()
            self.tokens_alone += len(indices)
            yield len(indices)


# -- checkpoints ------------------------------------------------------------------------------------------------------


class Checkpoint:
    """The file of a run, written before more than `every` seconds of work would be lost.

    Args:
        path: the file; None writes none.
        identity: values that only a run with the same results has; another run is refused.
        every: seconds of work that a kill may lose, if no single batch takes longer.
    """

    def __init__(self, path: Path | None, identity: dict[str, str], every: float) -> None:
        self.path, self.identity, self.every = path, identity, every
        self.written = self.last_batch = machine.elapsed()

    def after_batch(self, sums: Sums) -> None:
        """Write the file if the next batch, as long as the last one, would exceed the limit."""
        seconds = machine.elapsed()
        if seconds - self.written + (seconds - self.last_batch) >= self.every:
            self.write(sums)
            seconds = self.written = machine.elapsed()
        self.last_batch = seconds

    def write(self, sums: Sums) -> None:
        """Write sums and identity in one step."""
        if self.path is None:
            return
        observed = np.flatnonzero(sums.count)
        arrays = {name: getattr(sums, attribute) for name, attribute in COUNTS.items()}
        for layer, table in sums.tables.items():
            arrays[f"layer.{layer}"] = table.cpu().numpy()[observed]
            arrays[f"held_out.{layer}"] = sums.held_out_tables[layer].cpu().numpy()
            arrays[f"alone.{layer}"] = sums.alone[layer][: sums.tokens_alone]
        if sums.vectors is not None:
            arrays["vectors"] = sums.vectors[: -(-sums.done // PORTION) * PORTION]  # of the portions that are begun
        with replacing_file(self.path) as temporary:
            save_file(arrays, temporary, metadata={**self.identity, "done": str(sums.done)})

    def resume(self, sums: Sums, renew: bool) -> None:
        """Fill the sums, which are zero, from the file of an earlier run, if there is one.

        Args:
            renew: start over instead of raising an error.

        Raises:
            DataError: the file belongs to another run, or cannot be read.
        """
        path = self.path
        if path is None or not path.exists():
            return
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                if changed := [name for name in self.identity if metadata.get(name) != self.identity[name]]:
                    raise DataError(
                        f"{path} is the checkpoint of another run: the {' and the '.join(changed)} differ. Use the "
                        "same ones, choose another path, or delete the file."
                    )
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  not a dictionary
            observed = torch.from_numpy(np.flatnonzero(arrays["count"]))
            tables, held_out_tables, alone = (
                {layer: arrays[f"{name}.{layer}"] for layer in sums.tables} for name in ("layer", "held_out", "alone")
            )
            counts, done = {attribute: arrays[name] for name, attribute in COUNTS.items()}, int(metadata["done"])
            if sums.vectors is not None:
                sums.vectors[: len(arrays["vectors"])] = arrays["vectors"]
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            if renew:
                return
            if isinstance(error, DataError):
                raise
            raise DataError(f"Cannot read {path} ({error!r}). Delete it to start over.") from error
        for layer, table in sums.tables.items():
            table[observed.to(table.device)] = torch.from_numpy(tables[layer]).to(table.device)
            sums.held_out_tables[layer].copy_(torch.from_numpy(held_out_tables[layer]))
        for attribute, count in counts.items():
            setattr(sums, attribute, count)
        sums.alone, sums.tokens_alone, sums.done = alone, len(next(iter(alone.values()))), done
