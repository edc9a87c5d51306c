"""Average every token's states over a corpus, in one resumable pass for all layers.

texts ─ portions ─ batches by tokens ─ states h^(k) ─ index_add to (V,D) per layer ─ divided by the counts
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from essent.model.backbone import Backbone
from essent.model.template import make_frame
from essent.recipe.sources.contexts import UNSEEN, Contexts
from essent.recipe.tokens.ids import Frame, batches, count_tokens, framed_ids, pad, portions
from essent.recipe.types import RequiredOutputs

PORTION = 4096  # texts after which the age of the last checkpoint is checked


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
    """Sums over the first `texts` texts.

    Attributes:
        tables: layer -> sums of the states (V,D) float64, on the model's device.
        count, document_frequency: per token, number of occurrences and of texts that contain it: (V,) int64.
        vectors: pooled vectors (N,K) float32 of all texts, filled up to `texts`; None without a plan.
    """

    tables: dict[int, torch.Tensor]
    count: np.ndarray
    document_frequency: np.ndarray
    vectors: np.ndarray | None
    texts: int = 0


def average_contexts(
    backbone: Backbone, texts: Sequence[str], settings: Settings | None = None, plan: Plan | None = None
) -> tuple[Contexts, np.ndarray | None]:
    """Average the states of every token, special tokens included, over its occurrences in texts.

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
    settings = settings or Settings()
    corpus = check_texts(texts)
    layers = _check_layers(backbone, corpus, settings, plan)
    frame, rows, device = make_frame(backbone.tokenizer, None), len(backbone.vocabulary), backbone.static_table.device
    sums = Sums(
        {layer: torch.zeros(rows, backbone.dimensions, dtype=torch.float64, device=device) for layer in layers},
        np.zeros(rows, np.int64),
        np.zeros(rows, np.int64),
        None if plan is None else np.empty((len(corpus), plan.width), np.float32),
    )
    identity = {  # a checkpoint is resumed only by a run with the same values
        "texts": hashlib.sha256(json.dumps(corpus).encode()).hexdigest(),
        "model": digest_of_backbone(backbone),
        "settings": json.dumps([layers, PORTION, "" if plan is None else plan.recipe.digest()]),
    }
    _resume(sums, settings, identity)
    if sums.texts:
        settings.note(f"Resuming after {sums.texts:,} of {len(corpus):,} texts.")
    written = time.monotonic()
    backbone.eval()
    with torch.inference_mode(), text_progress(len(corpus), settings.progress, sums.texts, "Contexts") as advance:
        for _, portion in portions(corpus[sums.texts :], PORTION):
            _add(sums, portion, backbone, frame, plan, settings.batch_size, advance)
            if settings.state is not None and time.monotonic() - written >= settings.every:
                _write_state(settings.state, identity, sums)
                written = time.monotonic()
        if settings.state is not None:
            _write_state(settings.state, identity, sums)
        return _contexts(backbone, frame, sums, settings), sums.vectors


def _check_layers(backbone: Backbone, texts: list[str], settings: Settings, plan: Plan | None) -> list[int]:
    """Check model, texts and settings, and return the layers in order."""
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
    if plan is not None and (plan.reads_stats or [*plan.frames] != [make_frame(backbone.tokenizer, None)]):
        raise InputError(
            f"The recipe {str(plan.recipe)!r} has a template or token counts: it cannot be computed in the same pass. "
            "Use a recipe without them, such as mean or first-last."
        )
    return layers


def _add(
    sums: Sums,
    texts: Sequence[str],
    backbone: Backbone,
    frame: Frame,
    plan: Plan | None,
    batch_size: int,
    advance: Callable[[int], object],
) -> None:
    """Add a portion of texts to the sums; `advance` is called with the number of texts of each batch."""
    required = RequiredOutputs(frozenset(sums.tables)) | (RequiredOutputs() if plan is None else plan.required)
    sequences = framed_ids(backbone.tokenizer, frame, list(texts), backbone.max_seq_length)
    device = backbone.static_table.device
    for indices in batches([len(ids) for ids in sequences], batch_size):
        tokens = pad([sequences[index] for index in indices], frame, backbone.pad_id).to(device)
        states = backbone.states(tokens, required)
        has_tokens = torch.tensor([[bool(sequences[index])] for index in indices], device=device)  # if not, one pad
        occurrences = tokens.attention_mask & has_tokens  # (B,T)
        for layer, table in sums.tables.items():
            table.index_add_(0, tokens.ids[occurrences], states.hidden[layer][occurrences].double())
        if plan is not None and sums.vectors is not None:
            sums.vectors[sums.texts + indices] = plan.pool(tokens, states, backbone, None)[0].float().cpu().numpy()
        advance(len(indices))
    stats = count_tokens(lambda _: sequences, texts, len(sums.count))
    sums.count += stats.count
    sums.document_frequency += stats.document_frequency
    sums.texts += len(texts)


def _contexts(backbone: Backbone, frame: Frame, sums: Sums, settings: Settings) -> Contexts:
    """Divide the sums by the counts, and fill the rows of unseen tokens."""
    count = torch.from_numpy(np.maximum(sums.count, 1)).to(backbone.static_table.device)
    has_name = np.array([bool(name) for name in backbone.vocabulary.tokens])  # tables may have more rows than tokens
    unseen = np.flatnonzero((sums.count == 0) & has_name)
    tables = {layer: (table / count[:, None]).float().cpu().numpy() for layer, table in sums.tables.items()}  # (V,D)
    if settings.unseen == "alone" and len(unseen):
        settings.note(f"Running the model on {len(unseen):,} single tokens that do not occur in the texts.")
        _fill_alone(tables, backbone, frame, unseen, settings.batch_size)
    for layer, averages in tables.items():
        if settings.unseen == "static":
            rows = backbone.static_table.detach().float().cpu().numpy()
            averages[unseen] = _match_spread(rows, averages, sums.count > 0)[unseen]
        elif settings.unseen == "mean":
            total = sums.tables[layer].sum(dim=0)
            averages[unseen] = (total / max(int(sums.count.sum()), 1)).float().cpu().numpy()
    metadata = {"unseen": settings.unseen, "filled": len(unseen), "tokens": int(sums.count.sum())}
    return Contexts(
        tables, sums.count, sums.document_frequency, sums.texts, backbone.last, backbone.vocabulary.digest, metadata
    )


def _match_spread(rows: np.ndarray, averages: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Shift and scale rows (V,D) to the mean of the averages and their mean distance from it, over observed tokens.

    An input row is several times shorter than a state: unscaled, it would hardly change a text's mean.
    """
    rows_mean, averages_mean = rows[observed].mean(axis=0), averages[observed].mean(axis=0)
    spread = np.linalg.norm(rows[observed] - rows_mean, axis=1).mean()
    scale = np.linalg.norm(averages[observed] - averages_mean, axis=1).mean() / spread if spread > 0 else 0.0
    matched: np.ndarray = (rows - rows_mean) * np.float32(scale) + averages_mean
    return matched


def _fill_alone(
    tables: dict[int, np.ndarray], backbone: Backbone, frame: Frame, tokens: np.ndarray, batch_size: int
) -> None:
    """Fill the rows of tokens (n,) with the states of each token alone between the special tokens."""
    sequences = [[*frame.before, int(token), *frame.after] for token in tokens]
    for indices in batches([len(ids) for ids in sequences], batch_size):
        padded = pad([sequences[index] for index in indices], frame, backbone.pad_id).to(backbone.static_table.device)
        hidden = backbone.states(padded, RequiredOutputs(frozenset(tables))).hidden
        for layer, table in tables.items():
            table[tokens[indices]] = hidden[layer][:, len(frame.before)].float().cpu().numpy()


# -- checkpoints ------------------------------------------------------------------------------------------------------


def _write_state(path: Path, identity: dict[str, str], sums: Sums) -> None:
    """Write the sums and the identity of the run in one step."""
    observed = np.flatnonzero(sums.count)
    arrays: dict[str, np.ndarray] = {"seen": observed, "count": sums.count, "frequency": sums.document_frequency}
    arrays |= {f"layer.{layer}": table.cpu().numpy()[observed] for layer, table in sums.tables.items()}
    if sums.vectors is not None:
        arrays["vectors"] = sums.vectors[: sums.texts]
    with replacing_file(path) as temporary:
        save_file(arrays, temporary, metadata={**identity, "done": str(sums.texts)})


def _resume(sums: Sums, settings: Settings, identity: dict[str, str]) -> None:
    """Fill the sums, which are zero, from the checkpoint of an earlier run, if there is one."""
    path = settings.state
    if path is None or not path.exists():
        return
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if changed := [name for name in identity if metadata.get(name) != identity[name]]:
                raise DataError(
                    f"{path} is the checkpoint of another run: the {' and the '.join(changed)} differ. Use the same "
                    "ones, choose another path, or delete the file."
                )
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  not a dictionary
        done = int(metadata["done"])
        tables = {layer: torch.from_numpy(arrays[f"layer.{layer}"]) for layer in sums.tables}
        count, frequency, observed = arrays["count"], arrays["frequency"], torch.from_numpy(arrays["seen"])
        if sums.vectors is not None:
            sums.vectors[:done] = arrays["vectors"]
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        if settings.renew:
            return
        if isinstance(error, DataError):
            raise
        raise DataError(f"Cannot read {path} ({error!r}). Delete it to start over.") from error
    for layer, table in sums.tables.items():
        table[observed.to(table.device)] = tables[layer].to(table.device)
    sums.count, sums.document_frequency, sums.texts = count, frequency, done
