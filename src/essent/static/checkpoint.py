"""The checkpoint of a pass over a corpus: sums, vectors and position, from which a killed run resumes.

A resumed run adds the remaining batches in the same order to the same float64 sums, so that its result is the same to
the last bit, whenever the checkpoints were written.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from essent._core import machine
from essent._core.atomic import replacing_file
from essent.errors import DataError
from essent.static.sums import Sums


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
        arrays: dict[str, np.ndarray] = {"seen": observed, "count": sums.count, "frequency": sums.document_frequency}
        arrays["held_out.count"] = sums.held_out_count
        for layer, table in sums.tables.items():
            arrays[f"layer.{layer}"] = table.cpu().numpy()[observed]
            arrays[f"held_out.{layer}"] = sums.held_out_tables[layer].cpu().numpy()
            arrays[f"alone.{layer}"] = sums.alone[layer][: sums.tokens_alone]
        if sums.vectors is not None:
            arrays["vectors"] = sums.vectors[: sums.texts_begun]
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
            done, count, frequency = int(metadata["done"]), arrays["count"], arrays["frequency"]
            observed, held_out_count = torch.from_numpy(arrays["seen"]), arrays["held_out.count"]
            tables, held_out_tables = (
                {layer: torch.from_numpy(arrays[f"{name}.{layer}"]) for layer in sums.tables}
                for name in ("layer", "held_out")
            )
            alone = {layer: arrays[f"alone.{layer}"] for layer in sums.tables}
            vectors = None if sums.vectors is None else np.zeros_like(sums.vectors)
            if vectors is not None:
                vectors[: len(arrays["vectors"])] = arrays["vectors"]
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            if renew:
                return
            if isinstance(error, DataError):
                raise
            raise DataError(f"Cannot read {path} ({error!r}). Delete it to start over.") from error
        for layer, table in sums.tables.items():
            table[observed.to(table.device)] = tables[layer].to(table.device)
            sums.held_out_tables[layer].copy_(held_out_tables[layer])
        sums.count, sums.document_frequency, sums.held_out_count = count, frequency, held_out_count
        sums.vectors, sums.alone, sums.tokens_alone, sums.done = vectors, alone, len(next(iter(alone.values()))), done
