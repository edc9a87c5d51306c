"""Hidden states kept in memory: other recipes, and weights that are counted anew, pool them without another pass.

A grid search asks for one recipe after the other, and for each fold of the same texts. A text that goes through the
model for the second time leaves the states of all its layers here, as long as there is room.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence

from essent.encoder.pipeline.digests import digest_of_backbone
from essent.encoder.pipeline.module import RecipeModule
from essent.model.backbone import Backbone, RequiredOutputs
from essent.recipe.tokens.ids import Frame, batches, pad
from essent.recipe.types import States, Tokens

MOST_SEEN = 2**20  # texts that are remembered to have gone through a model
Heads = frozenset[tuple[int, int]]


class TextStates(NamedTuple):
    """What the model computed for one text: layers (L+1,T,D), and diagonals (H,T) of all heads or none."""

    layers: torch.Tensor
    diagonals: torch.Tensor | None

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        return sum(array.nbytes for array in self if array is not None)


@dataclass
class Entry:
    """The texts of one model, frame and length limit: which went through the model, and what was kept of them."""

    seen: set[int] = field(default_factory=set)  # hashes
    kept: dict[str, TextStates] = field(default_factory=dict)


class StatesStore:
    """States by model, frame, length limit and text, up to a number of bytes; one model's give way to another's.

    Args:
        most: bytes of states.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._one_writer = Lock()
        self.clear()

    def clear(self) -> None:
        """Forget all states."""
        self.size, self._model = 0, ""
        self._entries: dict[tuple[Frame, int | None], Entry] = {}

    def entry(self, model: str, frame: Frame, max_seq_length: int | None) -> Entry:
        """What is known of the texts; of another model than the last one nothing is."""
        with self._one_writer:
            if model != self._model:
                self.clear()
                self._model = model
            return self._entries.setdefault((frame, max_seq_length), Entry())

    def keep(self, entry: Entry, text: str, states: TextStates) -> None:
        """Keep a text's states, unless they do not fit, or their entry was given up in the meantime."""
        with self._one_writer:
            cached = entry.kept.get(text)
            more = states.bytes - (0 if cached is None else cached.bytes)
            if self.size + more <= self.most and any(entry is known for known in self._entries.values()):
                entry.kept[text] = states
                self.size += more


class KeptStates:
    """A store for one backbone.

    Args:
        whole: the model's backbone, not cut.
    """

    def __init__(self, whole: Backbone, store: StatesStore) -> None:
        self.whole, self.store = whole, store

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """A copy or another process has None in its place."""
        return type(None), ()

    def pool(
        self,
        module: RecipeModule,
        texts: list[str],
        batch_size: int,
        compute: Callable[[list[str]], torch.Tensor],
    ) -> torch.Tensor:
        """Pooled vectors (N,K) of distinct texts before shaping, on the CPU.

        Args:
            module: the recipe on `whole`, or on a cut of it.
            compute: gives those of texts whose states are not to be kept.
        """
        if not self._is_of(module.backbone):
            return compute(texts)
        entry = self.store.entry(digest_of_backbone(self.whole), module.plan.frame, module.backbone.max_seq_length)
        ids = dict(zip(texts, module.ids(texts), strict=True))
        again = [text for text in texts if hash(text) in entry.seen]
        self._read_again(module, entry, {text: ids[text] for text in again}, batch_size)
        if len(entry.seen) < MOST_SEEN:
            entry.seen.update(map(hash, texts))
        heads = self._reads_heads(module)
        cached = {text: states for text in again if (states := entry.kept.get(text)) and _has(states, heads)}
        vectors = torch.empty(len(texts), module.plan.width(module.backbone))
        row_by_text = {text: row for row, text in enumerate(texts)}
        lacking = [text for text in texts if text not in cached]
        if lacking:
            vectors[[row_by_text[text] for text in lacking]] = compute(lacking).float().cpu()
        names = list(cached)
        for chosen in batches([len(ids[text]) for text in names], batch_size):
            batch = [names[i] for i in chosen]
            pooled = self._pooled(module, [ids[text] for text in batch], [cached[text] for text in batch])
            vectors[[row_by_text[text] for text in batch]] = pooled.float().cpu()
        return vectors

    def _is_of(self, backbone: Backbone) -> bool:
        """Whether a backbone has the parameters of the whole one."""
        whole = {name: value.data_ptr() for name, value in self.whole.state_dict().items()}
        return all(whole.get(name) == value.data_ptr() for name, value in backbone.state_dict().items())

    def _read_again(self, module: RecipeModule, entry: Entry, ids: dict[str, list[int]], batch_size: int) -> None:
        """Keep what the recipe reads of texts that have been through the model before, as far as there is room."""
        heads = self._reads_heads(module)
        names = [text for text in ids if (cached := entry.kept.get(text)) is None or not _has(cached, heads)]
        self.whole.eval()
        for chosen in batches([len(ids[text]) for text in names], batch_size):
            batch = [names[i] for i in chosen]
            tokens = self._batch(module, [ids[text] for text in batch])
            if self.store.size + self._bytes_of(int(tokens.attention_mask.sum())) > self.store.most:
                return  # the layers above those that are read would be computed for nothing
            states = self.whole.states(tokens, self._everything(heads))
            layers = torch.stack([states.hidden[layer] for layer in range(self.whole.last + 1)], dim=1)  # (B,L+1,T,D)
            at = self._heads() if heads else []
            diagonals = torch.stack([states.diagonals[head] for head in at], dim=1) if heads else None  # (B,H,T)
            for row, (text, length) in enumerate(zip(batch, tokens.attention_mask.sum(dim=1).tolist(), strict=True)):
                own = None if diagonals is None else diagonals[row, :, :length].cpu().clone()
                self.store.keep(entry, text, TextStates(layers[row, :, :length].cpu().clone(), own))

    def _pooled(self, module: RecipeModule, ids: list[list[int]], cached: list[TextStates]) -> torch.Tensor:
        """Vectors (B,K) of a batch from what was kept of its texts."""
        tokens, plan = self._batch(module, ids), module.plan
        device = tokens.ids.device

        def padded(rows: list[torch.Tensor]) -> torch.Tensor:
            return pad_sequence(rows, batch_first=True).to(device)

        hidden: dict[int | str, torch.Tensor] = {
            layer: padded([states_of_text.layers[layer] for states_of_text in cached])
            for layer in plan.required.layers  # (B,T,D)
        }
        if plan.required.static:
            hidden["static"] = torch.nn.functional.embedding(tokens.ids, module.backbone.static_table)
        index_by_head = {head: row for row, head in enumerate(self._heads())}
        diagonals = {
            head: padded(
                [
                    states_of_text.diagonals[index_by_head[head]]
                    for states_of_text in cached
                    if states_of_text.diagonals is not None
                ]
            )  # (B,T)
            for head in plan.required.attention_heads
        }
        return plan.pool(tokens, States(hidden, diagonals), module.backbone, module.stats)[0]

    def _batch(self, module: RecipeModule, ids: list[list[int]]) -> Tokens:
        tokens: Any = pad(ids, module.plan.frame, self.whole.pad_id)
        return tokens.to(self.whole.static_table.device)  # type: ignore[no-any-return]

    def _bytes_of(self, tokens: int) -> int:
        """What the layers of so many tokens take: nothing smaller is kept."""
        return tokens * (self.whole.last + 1) * self.whole.dimensions * self.whole.static_table.element_size()

    def _reads_heads(self, module: RecipeModule) -> bool:
        """Whether diagonals are kept: another recipe may read them where this one does not."""
        return self.whole.gives_diagonals or bool(module.plan.required.attention_heads)

    def _heads(self) -> list[tuple[int, int]]:
        """Every attention head of the model, in the order in which their diagonals are kept."""
        heads = range(1, self.whole.attention_heads + 1)
        return [(layer, head) for layer in range(1, self.whole.last + 1) for head in heads]

    def _everything(self, heads: bool) -> RequiredOutputs:
        """All layers, and the diagonals of all heads if any: another recipe may read others."""
        layers = frozenset(range(self.whole.last + 1))
        return RequiredOutputs(layers, attention_heads=frozenset(self._heads() if heads else ()))


def _has(states: TextStates, heads: bool) -> bool:
    return states.diagonals is not None or not heads
