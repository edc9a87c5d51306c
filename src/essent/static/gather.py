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
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from scipy import sparse

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
from essent.recipe.tokens.ids import batches, fast_backend, pad, portions
from essent.static.table import bag_matrix
from essent.static.vocabulary import read

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PORTION = 4096  # texts between two looks at the clock
SETTINGS = "settings"


@dataclass
class Settings:
    """How to pass.

    Attributes:
        layers: which of 0…L; None averages all.
        unseen: vectors of tokens that the corpus lacks: `alone` (the model's state of the token between its special
            tokens), `static` (its row of the input table, with the mean and the spread that the averages have),
            `zero`, `mean` (of all places of all tokens). A token of the reader alone has the mean of its pieces' rows
            instead.
        reader: a tokenizer with more words than the model's, see `essent.static.vocabulary`; None counts the model's.
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
    reader: Tokenizer | None = None
    state: Path | None = None
    renew: bool = False
    every: float = 300.0
    batch_size: int = 32
    precision: str = AUTO
    progress: bool = False
    note: Callable[[str], object] | None = None

    def tell(self, message: str) -> None:
        """Call `note` with a line, where there is one."""
        if self.note is not None:
            self.note(message)


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
    checked = check_texts(texts)
    layers = _checked(backbone, checked, how, plan)
    required = RequiredOutputs(frozenset(layers)) | (RequiredOutputs() if plan is None else plan.required)
    rows = len(backbone.vocabulary) if how.reader is None else _rows(how.reader, len(backbone.vocabulary))
    frame = make_frame(backbone.tokenizer, None)
    identity = _identity(backbone, checked, how, layers, plan)
    device = backbone.static_table.device
    sums = _read_state(how.state, identity, how.renew) or _nothing(layers, rows, backbone.dimensions)
    sums.tables = {layer: table.to(device) for layer, table in sums.tables.items()}
    if sums.texts:
        how.tell(f"Goes on after {sums.texts:,} of {len(checked):,} texts, which an earlier run has read.")
    written = time.monotonic()
    backbone.eval()
    with (
        torch.inference_mode(),
        text_progress(len(checked), how.progress, sums.texts, "Contexts") as advance,
    ):
        for _, portion in portions(checked[sums.texts :], PORTION):
            _add(backbone, frame, required, plan, portion, how, sums, advance)
            sums.texts += len(portion)
            if how.state is not None and time.monotonic() - written >= how.every:
                _write_state(how.state, identity, sums)
                written = time.monotonic()
        if how.state is not None:
            _write_state(how.state, identity, sums)
        contexts = _contexts(backbone, frame, sums, how, layers)
    return contexts, np.concatenate(sums.vectors) if plan is not None else None


def _checked(backbone: Backbone, texts: list[str], how: Settings, plan: Plan | None) -> list[int]:
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
    if wrong := [layer for layer in layers if not isinstance(layer, int) or not 0 <= layer <= backbone.last]:
        raise InputError(f"Layer {wrong[0]!r}: the model has layers 0 to {backbone.last}.")
    if not layers:
        raise InputError("layers=[] averages nothing; leave it out for all layers.")
    if plan is not None and (plan.reads_stats or plan.frame != make_frame(backbone.tokenizer, None)):
        raise InputError(f"{str(plan.recipe)!r} cannot run along: it has a template or learns from texts.")
    return layers


def _rows(reader: Tokenizer, least: int) -> int:
    return max(least, 1 + max(reader.get_vocab(with_added_tokens=True).values()))


def _nothing(layers: Sequence[int], rows: int, dimensions: int) -> Sums:
    tables = {layer: torch.zeros(rows, dimensions, dtype=torch.float64) for layer in layers}
    return Sums(tables, np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def _add(
    backbone: Backbone,
    frame: Any,
    required: RequiredOutputs,
    plan: Plan | None,
    texts: Sequence[str],
    how: Settings,
    sums: Sums,
    advance: Callable[[int], object],
) -> None:
    """Add one portion of texts; `advance` is called with the number of texts of each batch."""
    occurrences = read(backbone, frame, texts, how.reader)
    count, frequency = occurrences.counts(len(sums.count))
    sums.count += count
    sums.document_frequency += frequency
    device = backbone.static_table.device
    vectors: np.ndarray | None = None
    for chosen in batches([len(ids) for ids in occurrences.sequences], how.batch_size):
        tokens = pad([occurrences.sequences[i] for i in chosen], frame, backbone.pad_id).to(device)
        states = backbone.states(tokens, required)
        token, position, share = (torch.from_numpy(values).to(device) for values in occurrences.of(chosen))
        # not of pads alone
        real = torch.from_numpy(np.array([bool(occurrences.sequences[i]) for i in chosen])).to(device)
        for layer, table in sums.tables.items():
            flat = states.hidden[layer][tokens.attention_mask & real[:, None]]  # (n,D) in the order of the texts
            table.index_add_(0, token, flat[position].double() * share.double()[:, None])
        if plan is not None:
            pooled = plan.pool(tokens, states, backbone, None)[0].float().cpu().numpy()
            vectors = np.empty((len(texts), pooled.shape[1]), np.float32) if vectors is None else vectors
            vectors[chosen] = pooled
        advance(len(chosen))
    if vectors is not None:
        sums.vectors.append(vectors)


def _contexts(backbone: Backbone, frame: Any, sums: Sums, how: Settings, layers: Sequence[int]) -> Contexts:
    """Sums divided by counts, and vectors for tokens never seen."""
    number = torch.from_numpy(np.maximum(sums.count, 1)).to(next(iter(sums.tables.values())).device)
    names = np.array([bool(name) for name in backbone.vocabulary.tokens])  # tables may have more rows than tokens
    unseen = np.flatnonzero((sums.count[: len(names)] == 0) & names)
    if how.unseen == "alone" and len(unseen):
        how.tell(f"{len(unseen):,} tokens that the texts lack are read alone.")
    alone = _alone(backbone, frame, layers, unseen, how.batch_size) if how.unseen == "alone" else {}
    added, shares = _unread(backbone, how.reader, sums.count)
    tables = {}
    for layer, table in sums.tables.items():
        averages = (table / number[:, None]).float().cpu().numpy()  # (V,D)
        if how.unseen == "alone":
            averages[unseen] = alone[layer]
        elif how.unseen == "static":
            rows = backbone.static_table.detach().float().cpu().numpy()
            averages[unseen] = _among(rows, averages[: len(rows)], sums.count[: len(rows)] > 0)[unseen]
        elif how.unseen == "mean":
            averages[unseen] = (table.sum(dim=0) / max(int(sums.count.sum()), 1)).float().cpu().numpy()
        averages[added] = shares @ averages
        tables[layer] = averages
    metadata = {"unseen": how.unseen, "filled": len(unseen) + len(added), "tokens": int(sums.count.sum())}
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


def _unread(backbone: Backbone, reader: Tokenizer | None, count: np.ndarray) -> tuple[np.ndarray, sparse.csr_matrix]:
    """Tokens of the reader alone that no text has before the model's length limit, and their shares of its pieces."""
    own = fast_backend(backbone.tokenizer)
    reader_ids = {} if reader is None else reader.get_vocab(with_added_tokens=True)
    names = {
        token_id: name
        for name, token_id in reader_ids.items()
        if count[token_id] == 0 and own.token_to_id(name) is None
    }
    texts = [name.replace("▁", " ") for name in names.values()]
    pieces = [piece.ids for piece in own.encode_batch(texts, add_special_tokens=False)]
    return np.fromiter(names, np.int64, len(names)), bag_matrix(pieces, len(count))


def _alone(
    backbone: Backbone, frame: Any, layers: Sequence[int], tokens: np.ndarray, batch_size: int
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


def _identity(
    backbone: Backbone, texts: Sequence[str], how: Settings, layers: Sequence[int], plan: Plan | None
) -> dict[str, str]:
    """What a run must share with the one whose state it takes over."""
    corpus = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        corpus.update(len(data).to_bytes(8, "little") + data)
    reader = "" if how.reader is None else hashlib.sha256(how.reader.to_str().encode()).hexdigest()
    settings = [list(layers), reader, PORTION, "" if plan is None else plan.recipe.digest()]
    return {"texts": corpus.hexdigest(), "model": digest_of_backbone(backbone), SETTINGS: json.dumps(settings)}


def _write_state(path: Path, identity: dict[str, str], sums: Sums) -> None:
    """Write all at once, with what the run is."""
    observed = np.flatnonzero(sums.count)
    arrays: dict[str, np.ndarray] = {"seen": observed, "count": sums.count, "frequency": sums.document_frequency}
    arrays |= {f"layer.{layer}": table.cpu().numpy()[observed] for layer, table in sums.tables.items()}
    if sums.vectors:
        arrays["vectors"] = np.concatenate(sums.vectors)
    with replacing_file(path) as temporary:
        save_file(arrays, temporary, metadata={**identity, "done": str(sums.texts)})


def _read_state(path: Path | None, identity: dict[str, str], renew: bool) -> Sums | None:
    """What another run has summed; None where there is nothing to go on from."""
    if path is None or not path.exists():
        return None
    try:
        return _sums_of(path, identity)
    except DataError:
        if renew:
            return None
        raise


def _sums_of(path: Path, identity: dict[str, str]) -> Sums:
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            for name, meant in (("texts", "the texts"), ("model", "the model"), (SETTINGS, "the settings")):
                if metadata.get(name) != identity[name]:
                    raise DataError(
                        f"{path} holds what another run has summed: {meant} differ. Give the same again, or another "
                        "place, or delete the file."
                    )
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  not a dictionary
        tables = {}
        for key in (key for key in arrays if key.startswith("layer.")):
            whole = torch.zeros(len(arrays["count"]), arrays[key].shape[1], dtype=torch.float64)
            whole[torch.from_numpy(arrays["seen"])] = torch.from_numpy(arrays[key])
            tables[int(key[6:])] = whole
        vectors = [arrays["vectors"]] if "vectors" in arrays else []
        return Sums(tables, arrays["count"], arrays["frequency"], int(metadata["done"]), vectors)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read ({error!r}); delete it to begin again.") from error
