"""One streaming, resumable pass over a corpus that sums every token's states, for all layers at once.

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

from essent._core.atomic import replacing_file
from essent._core.display import text_progress
from essent._core.machine import AUTO
from essent._core.texts import check_texts
from essent.encoder.pipeline.digests import digest_of_backbone
from essent.encoder.pipeline.plan import Plan
from essent.errors import DataError, InputError, ModelError
from essent.model.backbone import Backbone, RequiredOutputs
from essent.model.template import make_frame
from essent.recipe.sources.contexts import UNSEEN, Contexts
from essent.recipe.tokens.ids import Frame, batches, count_tokens, framed_ids, pad, portions

PORTION = 4096  # texts between two checks of the time


@dataclass
class Settings:
    """Settings of the pass over a corpus.

    Attributes:
        layers: the layers to average, from 0…L; None averages all.
        unseen: vectors of tokens that the corpus lacks: `alone` (the model's state of the token between its special
            tokens), `static` (its row of the input table, shifted and scaled to the mean and spread of the averages),
            `zero`, or `mean` (over all positions of all tokens).
        state: checkpoint file for resuming a killed run; None writes none.
        renew: start over if `state` belongs to another run or cannot be read, instead of raising an error.
        every: seconds between two checkpoints.
        batch_size: size of a batch: 32 holds as many tokens as 32 texts of 64 tokens.
        precision: arithmetic of the model, see `essent._core.machine`; sums are always in float64.
        progress: show a bar, or lines if standard error is a file or pipe.
        note: called with a line about slow steps and about the text at which a run resumes.
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
    """Sums over the first `texts` texts, float64 (V,D) per layer, and the vectors of those texts."""

    tables: dict[int, torch.Tensor]
    count: np.ndarray
    document_frequency: np.ndarray
    texts: int = 0
    vectors: list[np.ndarray] = field(default_factory=list)


def average_contexts(
    backbone: Backbone, texts: Sequence[str], settings: Settings | None = None, plan: Plan | None = None
) -> tuple[Contexts, np.ndarray | None]:
    """Average every token's states over its occurrences in texts, including special tokens.

    Args:
        backbone: the model.
        texts: the corpus; duplicates count as often as they occur.
        settings: settings of the pass.
        plan: a recipe whose pooled vectors of the same texts are computed in the same pass.

    Returns:
        The averages, and the pooled vectors (N,K) of `plan`, or None without a plan.

    Raises:
        InputError: no texts, a layer that the model lacks, or an unknown value of `unseen`.
        DataError: `state` belongs to another run (other texts, another model or other settings), without `renew`.
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
        how.note(f"Resuming after {sums.texts:,} of {len(corpus):,} texts.")
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


def _checked_layers(backbone: Backbone, texts: list[str], settings: Settings, plan: Plan | None) -> list[int]:
    if backbone.only_static:
        raise ModelError("A static model has no contextual states to average. Use a transformer.")
    if not texts:
        raise InputError("There are no texts to average over.")
    if settings.unseen not in UNSEEN:
        raise InputError(f"unseen={settings.unseen!r}: must be one of {', '.join(UNSEEN)}.")
    width = int(backbone.static_table.shape[1])
    if settings.unseen == "static" and width != backbone.dimensions:
        raise InputError(
            f"unseen='static': the model's input table has {width} dimensions, but its states {backbone.dimensions}. "
            "Use alone, zero or mean."
        )
    layers = sorted(set(range(backbone.last + 1) if settings.layers is None else settings.layers))
    if wrong := [layer for layer in layers if layer not in range(backbone.last + 1)]:
        raise InputError(f"Layer {wrong[0]!r} does not exist: the model has layers 0 to {backbone.last}.")
    if not layers:
        raise InputError("layers=[] contains no layer. Omit layers= to average all.")
    if plan is not None and (plan.reads_stats or plan.frame != make_frame(backbone.tokenizer, None)):
        raise InputError(
            f"The recipe {str(plan.recipe)!r} has a template or token counts: it cannot be computed in the same pass."
        )
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
    """Add a portion of texts to the sums; `advance` is called with the number of texts of each batch."""
    required = RequiredOutputs(frozenset(sums.tables)) | (RequiredOutputs() if plan is None else plan.required)
    sequences = framed_ids(backbone.tokenizer, frame, list(texts), backbone.max_seq_length)
    stats = count_tokens(lambda _: sequences, texts, len(sums.count))
    device = backbone.static_table.device
    order: list[np.ndarray] = []
    vectors: list[np.ndarray] = []
    for chosen in batches([len(ids) for ids in sequences], batch_size):
        tokens = pad([sequences[index] for index in chosen], frame, backbone.pad_id).to(device)
        states = backbone.states(tokens, required)
        has_tokens = torch.tensor([[bool(sequences[index])] for index in chosen], device=device)  # else it is one pad
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


def _contexts(backbone: Backbone, frame: Frame, sums: Sums, settings: Settings) -> Contexts:
    """Divide the sums by the counts, and fill the rows of unseen tokens."""
    number = torch.from_numpy(np.maximum(sums.count, 1)).to(backbone.static_table.device)
    names = np.array([bool(name) for name in backbone.vocabulary.tokens])  # tables may have more rows than tokens
    unseen = np.flatnonzero((sums.count == 0) & names)
    alone: dict[int, np.ndarray] = {}
    if settings.unseen == "alone" and len(unseen):
        settings.note(f"Running the model on {len(unseen):,} single tokens that do not occur in the texts.")
        alone = _alone(backbone, frame, list(sums.tables), unseen, settings.batch_size)
    tables = {}
    for layer, table in sums.tables.items():
        averages = (table / number[:, None]).float().cpu().numpy()  # (V,D)
        if settings.unseen == "alone" and len(unseen):
            averages[unseen] = alone[layer]
        elif settings.unseen == "static":
            rows = backbone.static_table.detach().float().cpu().numpy()
            averages[unseen] = _among(rows, averages, sums.count > 0)[unseen]
        elif settings.unseen == "mean":
            averages[unseen] = (table.sum(dim=0) / max(int(sums.count.sum()), 1)).float().cpu().numpy()
        tables[layer] = averages
    metadata = {"unseen": settings.unseen, "filled": len(unseen), "tokens": int(sums.count.sum())}
    return Contexts(
        tables, sums.count, sums.document_frequency, sums.texts, backbone.last, backbone.vocabulary.digest, metadata
    )


def _among(rows: np.ndarray, averages: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Shift and scale rows (V,D) to the mean of the averages and their mean distance from it, over observed tokens.

    An input row is several times shorter than a state: unscaled, it would hardly change a text's mean.
    """
    rows_mean, averages_mean = rows[observed].mean(axis=0), averages[observed].mean(axis=0)
    spread = np.linalg.norm(rows[observed] - rows_mean, axis=1).mean()
    scale = np.linalg.norm(averages[observed] - averages_mean, axis=1).mean() / spread if spread > 0 else 0.0
    moved: np.ndarray = (rows - rows_mean) * np.float32(scale) + averages_mean
    return moved


def _alone(
    backbone: Backbone, frame: Frame, layers: Sequence[int], tokens: np.ndarray, batch_size: int
) -> dict[int, np.ndarray]:
    """Compute the states (n,D) of single tokens between the special tokens."""
    states = {layer: np.empty((len(tokens), backbone.dimensions), np.float32) for layer in layers}
    sequences = [[*frame.before, int(token), *frame.after] for token in tokens]
    for chosen in batches([len(ids) for ids in sequences], batch_size):
        padded = pad([sequences[i] for i in chosen], frame, backbone.pad_id).to(backbone.static_table.device)
        hidden = backbone.states(padded, RequiredOutputs(frozenset(layers))).hidden
        for layer in layers:
            states[layer][chosen] = hidden[layer][:, len(frame.before)].float().cpu().numpy()
    return states


# -- checkpoints ------------------------------------------------------------------------------------------------------


def _identity(backbone: Backbone, texts: Sequence[str], layers: Sequence[int], plan: Plan | None) -> dict[str, str]:
    """Return the values that a run must share with the run whose checkpoint it resumes from."""
    corpus = json.dumps(texts).encode()
    settings = [list(layers), PORTION, "" if plan is None else plan.recipe.digest()]
    return {
        "texts": hashlib.sha256(corpus).hexdigest(),
        "model": digest_of_backbone(backbone),
        "settings": json.dumps(settings),
    }


def _write_state(path: Path, identity: dict[str, str], sums: Sums) -> None:
    """Write the sums and the identity of the run in one step."""
    observed = np.flatnonzero(sums.count)
    arrays: dict[str, np.ndarray] = {"seen": observed, "count": sums.count, "frequency": sums.document_frequency}
    arrays |= {f"layer.{layer}": table.cpu().numpy()[observed] for layer, table in sums.tables.items()}
    if sums.vectors:
        arrays["vectors"] = np.concatenate(sums.vectors)
    with replacing_file(path) as temporary:
        save_file(arrays, temporary, metadata={**identity, "done": str(sums.texts)})


def _read_state(settings: Settings, identity: dict[str, str]) -> Sums | None:
    """Read the sums of an earlier run; None if there is no checkpoint."""
    path = settings.state
    if path is None or not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  not a dictionary
        if changed := [name for name in identity if metadata.get(name) != identity[name]]:
            raise DataError(
                f"{path} is the checkpoint of another run: the {' and the '.join(changed)} differ. Use the same ones, "
                "choose another path, or delete the file."
            )
        tables = {}
        for key in (key for key in arrays if key.startswith("layer.")):
            whole = torch.zeros(len(arrays["count"]), arrays[key].shape[1], dtype=torch.float64)
            whole[torch.from_numpy(arrays["seen"])] = torch.from_numpy(arrays[key])
            tables[int(key[6:])] = whole
        vectors = [arrays["vectors"]] if "vectors" in arrays else []
        return Sums(tables, arrays["count"], arrays["frequency"], int(metadata["done"]), vectors)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        if settings.renew:
            return None
        if isinstance(error, DataError):
            raise
        raise DataError(f"Cannot read {path} ({error!r}). Delete it to start over.") from error
