"""What a server must know of a model before it runs it: found once, in a process of its own that ends afterwards.

torch and transformers are imported there alone; the HTTP process needs neither, and an engine that runs a graph
starts again in a second or two.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer

from essent._core.folders.contents import ABOUT, is_essent_folder, is_exported_folder, read_about
from essent._core.folders.files import STATE_FOLDER
from essent._core.hub import reach_model
from essent._core.machine import AUTO, BFLOAT16, FLOAT32
from essent._core.texts import mend_surrogates
from essent.engine.choice import EngineChoice, check_graph
from essent.errors import EngineError, EssentError, MissingDependencyError, ModelError, RecipeError
from essent.recipe.tokens.ids import Frame, dropped_ids, fast_backend, in_frame, read_ids
from essent.serving.worker import ignore_stop_signals
from essent.static.encoder import StaticEncoder, static_of
from essent.tasks.calibration import Calibration
from essent.verification.golden import Verification, verify

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedTokenizerBase

    from essent.engine.compiled import CompiledEncoder

logger = logging.getLogger(__name__)
NO_FRAME = Frame((), ())
STATIC_TEXTS = ("A man is playing a large flute.", "How far is the moon from the earth?")
OWN_TOLERANCE = 1e-4  # of a precision below float32: the same graph in other batches


@dataclass(frozen=True)
class Reading:
    """How a model reads texts, without the model: its tokenizer, the frame around a text, the most tokens.

    The HTTP process tokenizes, so that lengths, usage and the schedule are exact before anything is queued, and the
    engine gets ids. No torch is needed for it.

    Attributes:
        tokenizer: as its own JSON, which crosses into other processes.
        frame: ids before and after every text, and how the text is prepared.
        max_seq_length: the most tokens of a text with its frame; None without a limit.
        pad_id: the id of padding.
        cuts_start: whether texts that are too long are cut at their beginning, unless a request says otherwise.
        dropped: ids that leave every text.
    """

    tokenizer: str
    frame: Frame = NO_FRAME
    max_seq_length: int | None = None
    pad_id: int = 0
    cuts_start: bool = False
    dropped: tuple[int, ...] = ()

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, frame: Frame, max_seq_length: int | None, pad_id: int) -> Reading:
        """What a loaded model's tokenizer does."""
        cuts_start = getattr(tokenizer, "truncation_side", "right") == "left"
        text = fast_backend(tokenizer).to_str()
        return cls(text, frame, max_seq_length, pad_id, cuts_start, tuple(dropped_ids(tokenizer)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_backend"}

    @cached_property
    def _backend(self) -> Tokenizer:
        backend = Tokenizer.from_str(self.tokenizer)
        backend.no_padding()
        backend.no_truncation()
        backend.encode_special_tokens = self.frame.plain_text
        return backend

    def ids(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text alone, not framed and not cut."""
        texts_ids = read_ids(self._backend, self.frame.prepare(texts))
        if self.dropped:
            return [[i for i in ids if i not in self.dropped] for ids in texts_ids]
        return texts_ids

    def framed(self, texts_ids: list[list[int]], cuts_start: bool | None = None) -> list[np.ndarray]:
        """Ids of each text in its frame, cut to the most tokens: (T,) int32 each."""
        at_start = self.cuts_start if cuts_start is None else cuts_start
        framed = in_frame(texts_ids, self.frame, self.max_seq_length, at_start)
        return [np.asarray(ids, np.int32) for ids in framed]

    def tokens(self, text: str, framed: bool = True) -> list[dict[str, Any]]:
        """Every token with its span in the text, in characters; those of the frame have none, and are special."""
        text = mend_surrogates(text)
        (prepared,) = self.frame.prepare([text])
        shift = 1 if self.frame.space and text else 0
        encoding = self._backend.encode(prepared, add_special_tokens=False)
        own = [
            {"id": index, "text": self.decode([index], False), "special": False,
             "start": max(start - shift, 0), "stop": min(stop - shift, len(text))}
            for index, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True)
            if index not in self.dropped
        ]  # fmt: skip

        def special(ids: Sequence[int]) -> list[dict[str, Any]]:
            names = [self._backend.id_to_token(index) or "" for index in ids]
            return [
                {"id": index, "text": name, "special": True, "start": None, "stop": None}
                for index, name in zip(ids, names, strict=True)
            ]

        return [*special(self.frame.before), *own, *special(self.frame.after)] if framed else own

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of ids."""
        return str(self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens))

    @property
    def size(self) -> int:
        """How many ids there are."""
        return 1 + max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1)


@dataclass(frozen=True)
class Prepared:
    """A model that can be served.

    Attributes:
        name: what requests call it.
        engine: what runs it: static, openvino, onnx or torch.
        folder: the folder or name on the hub that the engine loads.
        precision: what is computed in.
        reading: how it reads texts.
        recipe, digest: what it computes, as text, and a digest of that and of all its weights' golden vectors.
        dimensions: K of the vectors, as `encode` gives them.
        prompts, prompt_name: what may be put before a text, and which one is when none is asked for.
        golden_texts, golden: texts and their vectors (N,K), which the engine must give back.
        tolerance: the largest difference to them, relative to the longest vector where that is above 1.
        fitted: what it learned from texts, in words; empty where it learned nothing.
        checks: what `verify` found, by each way of loading the folder; empty where the folder has no golden vectors.
        similarity: how its vectors are compared: cosine, dot, euclidean or manhattan.
        token_weights: weight of every token (V,), where the recipe weighs by token alone; None otherwise.
        calibration: what its cosines mean; None for a model that is not calibrated.
    """

    name: str
    engine: str
    folder: str
    precision: str
    reading: Reading
    recipe: str
    digest: str
    dimensions: int
    prompts: dict[str, str]
    prompt_name: str | None
    golden_texts: list[str]
    golden: np.ndarray
    tolerance: float
    fitted: str = ""
    checks: dict[str, float] = field(default_factory=dict)
    similarity: str = "cosine"
    token_weights: np.ndarray | None = None
    calibration: Calibration | None = None

    @property
    def unit(self) -> bool:
        """Whether its vectors have length 1."""
        lengths = np.linalg.norm(self.golden, axis=1)
        return bool(len(lengths)) and bool(np.all(np.abs(lengths - 1) < 1e-3))


def named(model: str) -> tuple[str, str]:
    """The name that requests use and the model, of `NAME=MODEL` or a model alone (a folder's last part)."""
    name, equals, source = model.partition("=")
    if equals and name and "/" not in name and not Path(model).exists():
        return name, source
    path = Path(model)
    return (path.resolve().name if path.exists() else model), model


def served_static(source: str) -> StaticEncoder | None:
    """The encoder of a static folder; None for a graph or another model. Errors: see `essent.static.static_of`."""
    return None if not Path(source).is_dir() or is_exported_folder(source) else static_of(source)


def prepare(name_and_model: str, engine: str, folder: Path, precision: str = AUTO) -> Prepared:
    """Verify a model, load it, and convert it where its engine runs graphs.

    Args:
        name_and_model: `NAME=MODEL`, or a model.
        engine: auto, openvino, onnx or torch.
        folder: empty; a graph that is made is written here.
        precision: auto, float32, or bfloat16, which graphs alone compute in here.

    Raises:
        VerificationError: a folder that essent wrote does not give its golden vectors, or has changed.
        EssentError: the model cannot be loaded, or not run by this engine.
    """
    name, source = named(name_and_model)
    source = str(Path(source).resolve()) if Path(source).exists() else source
    checked = _verified(source)
    chosen = EngineChoice(engine, precision)
    if chosen.is_default and (static := served_static(source)) is not None:
        return _static(name, source, static, checked)
    if is_exported_folder(source):
        from essent.engine.files import load

        graph: Any = check_graph(load(source), chosen)
        return _graph(name, source, Path(source), graph, graph, checked)
    model = _load(source)
    for kind in _engines(chosen, model):
        if kind == "torch":
            return _torch(name, source, model, checked)
        from essent.engine.compiled import compile

        try:
            compiled = compile(model, kind, precision=chosen.graph_precision)
        except (EngineError, MissingDependencyError) as error:
            if engine != "auto" or chosen.precision == BFLOAT16:
                raise
            logger.warning("%s runs in torch: %s", name, error)
            continue
        compiled.save(str(folder))
        return _graph(name, source, folder, compiled, model, checked)
    raise EngineError(f"No engine runs {source!r}.")


def _verified(source: str) -> Verification | None:
    """What `verify` finds in a folder that essent wrote; None for any other model."""
    if is_exported_folder(source) or (Path(source).is_dir() and is_essent_folder(source, {})):
        return verify(source)
    return None


def _load(source: str) -> SentenceTransformer:
    """An Encoder; a sentence-transformers model stays one where no recipe describes its modules."""
    from essent.encoder.encoder import Encoder
    from essent.model.loading import open_model

    options = reach_model(source, {})
    try:
        return Encoder(source, **options)
    except RecipeError:
        return open_model(source, options)


def _engines(chosen: EngineChoice, model: SentenceTransformer) -> list[str]:
    if chosen.precision == BFLOAT16 and (chosen.engine == "torch" or model.device.type != "cpu"):
        raise EngineError(
            "precision='bfloat16' is served by graphs on the CPU: take engine='openvino'; on another device save the "
            "model in bfloat16."
        )
    if chosen.engine != "auto":
        return [chosen.engine]
    return ["torch"] if model.device.type != "cpu" else ["openvino", "torch"]


def _static(name: str, source: str, encoder: StaticEncoder, checked: Verification | None) -> Prepared:
    table = encoder.table
    dropped = () if table.dropped is None else (table.dropped,)
    reading = Reading(table.tokenizer.to_str(), max_seq_length=table.limit, cuts_start=table.cuts_left, dropped=dropped)
    recipe = checked.recipe if checked else repr(encoder)
    return Prepared(
        engine="static", folder=source, precision=str(table.rows.dtype), reading=reading, tolerance=1e-5,
        token_weights=table.weights, **_common(name, source, encoder, recipe, STATIC_TEXTS, checked),
    )  # fmt: skip


def _graph(
    name: str, source: str, folder: Path, compiled: CompiledEncoder, model: SentenceTransformer,
    checked: Verification | None,
) -> Prepared:  # fmt: skip
    from essent.encoder.saving.save import GOLDEN_TEXTS
    from essent.engine.compiled import TOLERANCES

    module = compiled.engine_module
    inputs, engine, exact = module.inputs, module.runtime.engine, compiled.precision == FLOAT32
    return Prepared(
        engine=engine, folder=str(folder), precision=compiled.precision,
        reading=Reading.of(module.reader, inputs.frame, inputs.max_seq_length, inputs.pad_id),
        tolerance=TOLERANCES[engine] if exact else OWN_TOLERANCE, token_weights=_weights(model),
        **_common(name, source, compiled, compiled.recipe, GOLDEN_TEXTS, checked),
    )  # fmt: skip


def _torch(name: str, source: str, model: SentenceTransformer, checked: Verification | None) -> Prepared:
    from essent.encoder.encoder import Encoder
    from essent.encoder.saving.save import GOLDEN_TEXTS

    if not isinstance(model, Encoder):
        raise EngineError(
            f"{source!r} has modules that no recipe describes; torch runs recipes: use --engine openvino."
        )
    module, backbone = model.module, model.module.backbone
    return Prepared(
        engine="torch", folder=source, precision=str(backbone.static_table.dtype).removeprefix("torch."),
        reading=Reading.of(module.tokenizer, module.plan.frame, module.max_seq_length, backbone.pad_id),
        tolerance=1e-5 if model.device.type == "cpu" else 1e-3, token_weights=_weights(model),
        **_common(name, source, model, str(model.recipe), GOLDEN_TEXTS, checked),
    )  # fmt: skip


def _common(
    name: str, source: str, encoder: Any, recipe: str, texts: Sequence[str], checked: Verification | None
) -> dict[str, Any]:
    """What every encoder says of itself, and its vectors of golden texts as it gives them now, once it is verified.

    The digest is of the recipe and of these vectors to four digits: two models that differ in either are told apart.
    """
    golden = np.asarray(encoder.encode(list(texts), prompt="", show_progress_bar=False), np.float32)
    if not np.isfinite(golden).all():
        raise ModelError(f"{source!r} gives vectors that are not finite.")
    rounded = np.round(golden.astype(np.float64), 4) + 0.0  # no negative zeros
    return {
        "name": name,
        "recipe": recipe,
        "digest": hashlib.sha256(recipe.encode() + rounded.tobytes()).hexdigest(),
        "dimensions": golden.shape[1],
        "prompts": {key: text for key, text in encoder.prompts.items() if text is not None},
        "prompt_name": encoder.default_prompt_name,
        "golden_texts": list(texts),
        "golden": golden,
        "fitted": _fitted(source),
        "checks": dict(checked.differences) if checked else {},
        "similarity": str(encoder.similarity_fn_name),
        "calibration": getattr(encoder, "calibration", None),
    }


def _fitted(source: str) -> str:
    """What the folder says it was fitted on."""
    path = Path(source) / STATE_FOLDER / ABOUT
    if not path.is_file():
        return ""
    counted = read_about(path).get("texts_counted")
    return f"token counts of {counted:,} texts" if counted else ""


def _weights(model: SentenceTransformer) -> np.ndarray | None:
    """The weight of every token, where the recipe's weights depend on the token alone."""
    from essent.encoder.encoder import Encoder
    from essent.recipe.weighting.base import ByToken
    from essent.recipe.weighting.position import Uniform

    if not isinstance(model, Encoder) or model.module.plan.recipe.reduce != "sum":
        return None
    plan, vocabulary = model.module.plan, model.module.backbone.vocabulary
    factors = [factor for factor in plan.weightings if not isinstance(factor, Uniform)]
    tables = [factor.table(vocabulary, model.module.stats) for factor in factors if isinstance(factor, ByToken)]
    weights: np.ndarray = np.prod([np.ones(len(vocabulary)), *tables], axis=0)
    return weights if len(tables) == len(factors) else None


def prepare_in_process(connection: Any, model: str, engine: str, folder: str, precision: str) -> None:
    """`prepare` for a process of its own: sends the model, or the error, through the connection."""
    ignore_stop_signals()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        connection.send((prepare(model, engine, Path(folder), precision), None))
    except EssentError as error:
        connection.send((None, error))
    except OSError as error:
        connection.send((None, ModelError(f"{model!r} cannot be loaded: {error}")))
    connection.close()
