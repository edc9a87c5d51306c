"""One streaming pass over a corpus: every token's states summed, for all layers at once; resumable.

texts ─ portions ─ batches by tokens ─ states h^(k) ─ index_add to (V,D) per layer ─ divided by the counts
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from essent._core.arithmetic import AUTO
from essent._core.atomic import replacing_file
from essent._core.progress import text_progress
from essent._core.texts import check_texts
from essent.encoder.pipeline.digests import digest_of_backbone
from essent.encoder.pipeline.plan import Plan
from essent.errors import DataError, InputError, ModelError
from essent.model.backbone import Backbone, RequiredOutputs
from essent.model.template import make_frame
from essent.recipe.sources.contexts import UNSEEN, Contexts
from essent.recipe.tokens.ids import Frame, batches, count_tokens, framed_ids, pad, portions

PORTION = 4096  # texts between two looks at the clock


@dataclass
class Settings:
    """How to pass.

    Attributes:
        layers: which of 0…L; None averages all.
        unseen: vectors of tokens that the corpus lacks: `alone` (the model's state of the token between its special
            tokens), `static` (its row of the input table, with the mean and the spread that the averages have),
            `zero`, `mean` (of all places of all tokens).
        state: a file to keep what has been summed, for a run that is killed; None keeps nothing.
        renew: begin again where `state` holds another run, or cannot be read, instead of refusing it.
        every: seconds between two writings of it.
        batch_size: how much a batch holds: 32 is as much as 32 texts of 64 tokens.
        precision: of the passes, see `essent._core.arithmetic`; sums are in float64 whatever it is.
        progress: whether to show a bar, or lines where standard error is a file or pipe.
        note: is called with a line about what takes a while, and where a run goes on.
    """

    layers: Sequence[int] | None = None
    unseen: str = "alone"
    state: Path | None = None
    renew: bool = False
    every: float = 300.0
    batch_size: int = 32
    precision: str = AUTO
    progress: bool = False
    note: Callable[[str], object] = lambda message: None


@dataclass
class Sums:
    """What has been summed over the first `texts` texts: float64 (V,D) a layer; vectors of those texts."""

    tables: dict[int, torch.Tensor]
    count: np.ndarray
    document_frequency: np.ndarray
    texts: int = 0
    vectors: list[np.ndarray] = field(default_factory=list)


def average_contexts(
    backbone: Backbone, texts: Sequence[str], settings: Settings | None = None, plan: Plan | None = None
) -> tuple[Contexts, np.ndarray | None]:
    """Average every token's states over its places in the texts, special tokens included.

    Args:
        texts: the corpus; duplicated texts count as often as they stand there.
        plan: a recipe whose pooled vectors of the same texts are taken along.

    Returns:
        The averages, and the pooled vectors (N,K) of `plan`, or None without one.

    Raises:
        InputError: no texts, a layer that the model lacks, an unknown rule for tokens never seen.
        DataError: `state` holds another run (other texts, another model or other settings) and `renew` is not set.
        ModelError: a static model, which has no states.
    """
    how = settings or Settings()
    corpus = check_texts(texts)
    layers = _checked_layers(backbone, corpus, how, plan)
    frame, rows, device = make_frame(backbone.tokenizer, None), len(backbone.vocabulary), backbone.static_table.device
    identity = _identity(backbone, corpus, layers, plan)
    sums = _read_state(how, identity)
    if sums is None:
        tables = {layer: torch.zeros(rows, backbone.dimensions, dtype=torch.float64) for layer in layers}
        sums = Sums(tables, np.zeros(rows, np.int64), np.zeros(rows, np.int64))
    sums.tables = {layer: table.to(device) for layer, table in sums.tables.items()}
    if sums.texts:
        how.note(f"Goes on after {sums.texts:,} of {len(corpus):,} texts, which an earlier run has read.")
    written = time.monotonic()
    backbone.eval()
    with torch.inference_mode(), text_progress(len(corpus), how.progress, sums.texts, "Contexts") as advance:
        for _, portion in portions(corpus[sums.texts :], PORTION):
            _add(backbone, frame, plan, portion, how.batch_size, sums, advance)
            if how.state is not None and time.monotonic() - written >= how.every:
                _write_state(how.state, identity, sums)
                written = time.monotonic()
        if how.state is not None:
            _write_state(how.state, identity, sums)
        contexts = _contexts(backbone, frame, sums, how)
    return contexts, np.concatenate(sums.vectors) if plan is not None else None


def _checked_layers(backbone: Backbone, texts: list[str], how: Settings, plan: Plan | None) -> list[int]:
    if backbone.only_static:
        raise ModelError("A static model has no states of tokens in context; average a transformer's.")
    if not texts:
        raise InputError("Cannot average over no texts.")
    if how.unseen not in UNSEEN:
        raise InputError(f"unseen={how.unseen!r}; tokens never seen can be filled by {', '.join(UNSEEN)}.")
    width = int(backbone.static_table.shape[1])
    if how.unseen == "static" and width != backbone.dimensions:
        raise InputError(
            f"unseen='static': the model's input table has {width} dimensions, its states {backbone.dimensions}; "
            "choose alone, zero or mean."
        )
    layers = sorted(set(range(backbone.last + 1) if how.layers is None else how.layers))
    if wrong := [layer for layer in layers if layer not in range(backbone.last + 1)]:
        raise InputError(f"Layer {wrong[0]!r}: the model has layers 0 to {backbone.last}.")
    if not layers:
        raise InputError("layers=[] averages nothing; leave it out for all layers.")
    if plan is not None and (plan.reads_stats or plan.frame != make_frame(backbone.tokenizer, None)):
        raise InputError(f"{str(plan.recipe)!r} cannot run along: it has a template or learns from texts.")
    return layers


def _add(
    backbone: Backbone,
    frame: Frame,
    plan: Plan | None,
    texts: Sequence[str],
    batch_size: int,
    sums: Sums,
    advance: Callable[[int], object],
) -> None:
    """Add one portion of texts; `advance` is called with the number of texts of each batch."""
    required = RequiredOutputs(frozenset(sums.tables)) | (RequiredOutputs() if plan is None else plan.required)
    sequences = framed_ids(backbone.tokenizer, frame, list(texts), backbone.max_seq_length)
    stats = count_tokens(lambda _: sequences, texts, len(sums.count))
    device = backbone.static_table.device
    order: list[np.ndarray] = []
    vectors: list[np.ndarray] = []
    for chosen in batches([len(ids) for ids in sequences], batch_size):
        tokens = pad([sequences[index] for index in chosen], frame, backbone.pad_id).to(device)
        states = backbone.states(tokens, required)
        has_tokens = torch.tensor([[bool(sequences[index])] for index in chosen], device=device)  # else one pad stands
        occurrences = tokens.attention_mask & has_tokens  # (B,T)
        for layer, table in sums.tables.items():
            table.index_add_(0, tokens.ids[occurrences], states.hidden[layer][occurrences].double())
        if plan is not None:
            order.append(chosen)
            vectors.append(plan.pool(tokens, states, backbone, None)[0].float().cpu().numpy())
        advance(len(chosen))
    sums.count += stats.count
    sums.document_frequency += stats.document_frequency
    sums.texts += len(texts)
    if plan is not None:
        sums.vectors.append(np.concatenate(vectors)[np.argsort(np.concatenate(order))])


def _contexts(backbone: Backbone, frame: Frame, sums: Sums, how: Settings) -> Contexts:
    """Sums divided by counts, and vectors for tokens never seen."""
    number = torch.from_numpy(np.maximum(sums.count, 1)).to(backbone.static_table.device)
    names = np.array([bool(name) for name in backbone.vocabulary.tokens])  # tables may have more rows than tokens
    unseen = np.flatnonzero((sums.count == 0) & names)
    alone: dict[int, np.ndarray] = {}
    if how.unseen == "alone" and len(unseen):
        how.note(f"{len(unseen):,} tokens that the texts lack are read alone.")
        alone = _alone(backbone, frame, list(sums.tables), unseen, how.batch_size)
    tables = {}
    for layer, table in sums.tables.items():
        averages = (table / number[:, None]).float().cpu().numpy()  # (V,D)
        if how.unseen == "alone" and len(unseen):
            averages[unseen] = alone[layer]
        elif how.unseen == "static":
            rows = backbone.static_table.detach().float().cpu().numpy()
            averages[unseen] = _among(rows, averages, sums.count > 0)[unseen]
        elif how.unseen == "mean":
            averages[unseen] = (table.sum(dim=0) / max(int(sums.count.sum()), 1)).float().cpu().numpy()
        tables[layer] = averages
    metadata = {"unseen": how.unseen, "filled": len(unseen), "tokens": int(sums.count.sum())}
    return Contexts(
        tables, sums.count, sums.document_frequency, sums.texts, backbone.last, backbone.vocabulary.digest, metadata
    )


def _among(rows: np.ndarray, averages: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Rows (V,D) with the mean and the mean distance from it that the averages have, both taken over the seen tokens.

    An input row is several times shorter than a state: as it is, it would count for almost nothing in a text's mean.
    """
    rows_mean, averages_mean = rows[observed].mean(axis=0), averages[observed].mean(axis=0)
    spread = np.linalg.norm(rows[observed] - rows_mean, axis=1).mean()
    scale = np.linalg.norm(averages[observed] - averages_mean, axis=1).mean() / spread if spread > 0 else 0.0
    moved: np.ndarray = (rows - rows_mean) * np.float32(scale) + averages_mean
    return moved


def _alone(
    backbone: Backbone, frame: Frame, layers: Sequence[int], tokens: np.ndarray, batch_size: int
) -> dict[int, np.ndarray]:
    """The states (n,D) of tokens that stand alone between the special tokens."""
    states = {layer: np.empty((len(tokens), backbone.dimensions), np.float32) for layer in layers}
    sequences = [[*frame.before, int(token), *frame.after] for token in tokens]
    for chosen in batches([len(ids) for ids in sequences], batch_size):
        padded = pad([sequences[i] for i in chosen], frame, backbone.pad_id).to(backbone.static_table.device)
        hidden = backbone.states(padded, RequiredOutputs(frozenset(layers))).hidden
        for layer in layers:
            states[layer][chosen] = hidden[layer][:, len(frame.before)].float().cpu().numpy()
    return states


# -- a run that is killed ---------------------------------------------------------------------------------------------


def _identity(backbone: Backbone, texts: Sequence[str], layers: Sequence[int], plan: Plan | None) -> dict[str, str]:
    """What a run must share with the one whose state it takes over."""
    corpus = json.dumps(texts).encode()
    settings = [list(layers), PORTION, "" if plan is None else plan.recipe.digest()]
    return {
        "texts": hashlib.sha256(corpus).hexdigest(),
        "model": digest_of_backbone(backbone),
        "settings": json.dumps(settings),
    }


def _write_state(path: Path, identity: dict[str, str], sums: Sums) -> None:
    """Write all at once, with what the run is."""
    observed = np.flatnonzero(sums.count)
    arrays: dict[str, np.ndarray] = {"seen": observed, "count": sums.count, "frequency": sums.document_frequency}
    arrays |= {f"layer.{layer}": table.cpu().numpy()[observed] for layer, table in sums.tables.items()}
    if sums.vectors:
        arrays["vectors"] = np.concatenate(sums.vectors)
    with replacing_file(path) as temporary:
        save_file(arrays, temporary, metadata={**identity, "done": str(sums.texts)})


def _read_state(how: Settings, identity: dict[str, str]) -> Sums | None:
    """What an earlier run has summed; None where there is nothing to go on from."""
    path = how.state
    if path is None or not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  not a dictionary
        if changed := [name for name in identity if metadata.get(name) != identity[name]]:
            raise DataError(
                f"{path} holds what another run has summed: the {' and the '.join(changed)} differ. Give the same "
                "again, or another place, or delete the file."
            )
        tables = {}
        for key in (key for key in arrays if key.startswith("layer.")):
            whole = torch.zeros(len(arrays["count"]), arrays[key].shape[1], dtype=torch.float64)
            whole[torch.from_numpy(arrays["seen"])] = torch.from_numpy(arrays[key])
            tables[int(key[6:])] = whole
        vectors = [arrays["vectors"]] if "vectors" in arrays else []
        return Sums(tables, arrays["count"], arrays["frequency"], int(metadata["done"]), vectors)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        if how.renew:
            return None
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read ({error!r}); delete it to begin again.") from error
