"""Late chunking (Günther et al. 2024): one pass over a document, one vector for each of its chunks.

e(chunk) = g( Σ_n ω_n Σ_k α_k h_n^(k) ), where n runs over the tokens of the chunk and h are their states in a pass over
the whole document. Weights are computed as if the chunk were a text: scaled, and positions counted, within it. Special
tokens and the prompt before the document belong to its first chunk, those after it to its last one, so that a document
of one chunk has the vector that `encode` gives it.

Documents longer than the model are read in overlapping windows ("long late chunking", Algorithm 2): a token has the
state of the first window that contains it. Unlike in the authors' code, every window has special tokens and prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from essent._core.arguments import check_encode
from essent._core.compat import prompt_of
from essent._core.display import text_progress
from essent._core.texts import check_texts, mend_surrogates
from essent.errors import InputError, UnsupportedRecipeError
from essent.recipe.named import format_template
from essent.recipe.recipe import Recipe
from essent.recipe.tokens import (
    TOKENS_PER_TEXT,
    Frame,
    batches,
    dropped_ids,
    fast_backend,
    pad,
    portions,
    special_tokens_as_text,
    tokenizer_lock,
)
from essent.recipe.types import States, Tokens
from essent.recipe.weighting.base import weightings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from essent.encoder.encoder import Encoder
    from essent.encoder.module import RecipeModule

OVERLAP = 256  # tokens that two windows share, as in the authors' code; at most half a window
Window = tuple[list[int], slice]  # ids of one pass, and the tokens whose states are retained


def check_late(recipe: Recipe) -> None:
    """Raise an error if late chunking has no meaning for a recipe.

    Raises:
        UnsupportedRecipeError: the recipe has a template, or reads a token that stands for the whole text.
    """
    if recipe.template is not None:
        raise UnsupportedRecipeError(
            f"template={format_template(recipe.template)!r}: late chunking reads the tokens of each chunk, and a "
            "template stands around the whole document. Use a recipe without a template, such as mean."
        )
    for spec in recipe.weights:
        if weightings.create(spec).whole_text:
            raise UnsupportedRecipeError(
                f"weights={spec}: late chunking needs weights of a chunk's own tokens, and these are tokens that "
                "stand for the whole document. Use other weights, such as idf, or encode the chunks alone."
            )


@torch.inference_mode()
def encode_chunks(
    self: Encoder,
    documents: Iterable[Iterable[str]],
    *,
    prompt_name: str | None = None,
    prompt: str | None = None,
    batch_size: int = 32,
    show_progress_bar: bool | None = None,
    normalize_embeddings: bool = False,
    truncate_dim: int | None = None,
) -> list[np.ndarray]:
    """Encode the chunks of documents in their context (late chunking, Günther et al. 2024).

    The model reads a whole document, and each chunk has the pooled vector of its own tokens. A token that two chunks
    share belongs to the chunk with its last character. A chunk without tokens (empty, blank) has the vector of the
    token after it. Documents longer than `max_seq_length` are read in overlapping windows.

    Args:
        documents: the chunks of each document in their order, with the spaces and line breaks between them: joined,
            they are the document.
        prompt_name, prompt: put before every document, as in `encode`.
        batch_size: texts of about 64 tokens per batch; a document is read in one batch if it fits.
        normalize_embeddings, truncate_dim: as in `encode`.

    Returns:
        The vectors (number of chunks, K) float32 of each document.

    Raises:
        UnsupportedRecipeError: the recipe has a template, or weights=cls or last.
        InputError: a document is not a list of chunks, or the prompt leaves no room for it.
        NotFittedError: the recipe has learned parts and `fit` has not been called.

    Example:
        >>> from essent import Encoder
        >>> encoder = Encoder("sentence-transformers/all-MiniLM-L6-v2")
        >>> documents = [["Berlin is the capital of Germany. ", "Its inhabitants like it."], ["One chunk."]]
        >>> [vectors.shape for vectors in encoder.encode_chunks(documents)]
        [(2, 384), (1, 384)]
    """
    module, before = self.module, mend_surrogates(prompt_of(self, prompt, prompt_name))
    check_late(module.recipe)
    check_encode(self.prompts, {"batch_size": batch_size, "truncate_dim": truncate_dim})
    module.require_fit()
    checked = [list(map(mend_surrogates, chunks)) for chunks in check_documents(documents)]
    self.eval()
    texts = [chunk for chunks in checked for chunk in chunks]
    rows = np.split(np.arange(len(texts)), np.cumsum([len(chunks) for chunks in checked]))  # by document
    windows, bounds = _tokenized(module, checked, before)
    vectors: torch.Tensor | None = None
    with text_progress(len(checked), bool(show_progress_bar)) as update:
        for chosen in batches([sum(len(ids) for ids, _ in own) for own in windows], batch_size):
            indices = [int(index) for index in chosen if checked[index]]  # documents without chunks have no vector
            if not indices:
                continue
            tokens = _token_rows(module, [window for index in indices for window in windows[index]], batch_size)
            pooled = _pool(module, tokens, [bounds[index] for index in indices], batch_size)
            features = {"sentence_embedding": module.shaped(pooled)}
            for further in list(self)[1:]:
                features = further(features)
            batch = features["sentence_embedding"].float().cpu()
            if vectors is None:
                vectors = batch.new_empty(len(texts), batch.shape[1])
            vectors[np.concatenate([rows[index] for index in indices])] = batch
            update(len(indices))
    if vectors is None:  # no chunks
        vectors = torch.empty(0, self.get_embedding_dimension() or 0)
    finished: np.ndarray = self._finished(vectors, texts, truncate_dim, normalize_embeddings).numpy()
    return [finished[of_document] for of_document in rows[:-1]]


def check_documents(documents: Any) -> list[list[str]]:
    """Return documents as lists of their chunks.

    Raises:
        InputError: a document is not a list of str; the message names its index.
    """
    if isinstance(documents, (str, bytes)) or not hasattr(documents, "__iter__"):
        raise InputError(f"documents={str(documents)[:60]!r}: must be a list of documents, each a list of its chunks.")
    checked = []
    for index, chunks in enumerate(documents):
        try:
            checked.append(check_texts(chunks))
        except InputError as error:
            raise InputError(f"documents[{index}]: {error}") from None
    return checked


def _tokenized(
    module: RecipeModule, documents: Sequence[list[str]], prompt: str
) -> tuple[list[list[Window]], list[np.ndarray]]:
    """Return the windows of each document, and the first token and the end (C,2) of each of its chunks."""
    frame, limit = module.plan.frame, module.max_seq_length
    texts = [prompt + "".join(chunks) for chunks in documents]
    prepared = frame.prepare(texts)
    windows, bounds = [], []
    tokenized = text_spans(module.tokenizer, prepared, frame.plain_text)
    for (ids, spans), text, whole, chunks in zip(tokenized, texts, prepared, documents, strict=True):
        starts = np.cumsum([0, *map(len, chunks)])[:-1]  # (C,)
        starts[1:] += len(prompt)  # the prompt belongs to the first chunk
        spans = np.maximum(spans - (len(whole) - len(text)), 0)  # a space may be put before the text
        of_prompt = int((spans[:, 1] <= len(prompt)).sum()) if prompt else 0
        windows.append(split_windows(ids, frame, of_prompt, limit))
        last_characters = np.maximum(spans[:, 1] - 1, spans[:, 0])  # (T,): a token belongs to the chunk of its last
        inner = np.maximum.accumulate(np.searchsorted(starts, last_characters, side="right") - 1)
        last = max(len(chunks) - 1, 0)
        owners = np.concatenate([np.zeros(len(frame.before), int), inner, np.full(len(frame.after), last)])
        owners = owners if len(owners) else np.zeros(1, int)  # an empty text is one padding token
        numbers = np.arange(len(chunks))
        first, stop = np.searchsorted(owners, numbers), np.searchsorted(owners, numbers, side="right")
        first = np.minimum(first, len(owners) - 1)  # a chunk without tokens reads the next one
        bounds.append(np.stack([first, np.maximum(stop, first + 1)], axis=1))
    return windows, bounds


def text_spans(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], plain_text: bool
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield the ids of each text as `text_ids` does, and the characters (T,2) of each token, start and stop.

    The texts must have no surrogates.
    """
    with tokenizer_lock, special_tokens_as_text(fast_backend(tokenizer), plain_text) as backend:
        encodings = backend.encode_batch(texts, add_special_tokens=False)
    dropped = dropped_ids(tokenizer)
    for encoding in encodings:
        ids = np.array(encoding.ids, np.int64)
        retained = ~np.isin(ids, dropped)
        yield ids[retained].tolist(), np.array(encoding.offsets, np.int64).reshape(-1, 2)[retained]


def split_windows(ids: list[int], frame: Frame, repeated: int, limit: int | None) -> list[Window]:
    """Split the ids of a document into windows of at most `limit` tokens, each in the frame.

    Args:
        repeated: number of first ids, of the prompt, that every window begins with.

    Raises:
        InputError: frame and prompt leave no room.
    """
    before, after, own = [*frame.before, *ids[:repeated]], list(frame.after), ids[repeated:]
    room = max(len(own), 1) if limit is None else limit - len(before) - len(after)
    if room < 1:
        raise InputError(
            f"The prompt has {repeated} tokens, and the model reads at most {limit} tokens, special tokens included. "
            "Use a shorter prompt or a larger max_seq_length."
        )
    overlap = min(OVERLAP, room // 2)
    starts = range(0, max(len(own) - overlap, 1), room - overlap)
    windows = []
    for start in starts:
        window = [*before, *own[start : start + room], *after]
        stop = max(len(window), 1) if start == starts[-1] else len(window) - len(after)
        windows.append((window, slice(0 if start == 0 else len(before) + overlap, stop)))
    return windows


def _token_rows(module: RecipeModule, windows: Sequence[Window], batch_size: int) -> dict[Any, torch.Tensor]:
    """Return ids, content, states and diagonals (F,…) of the tokens that windows retain, in their order."""
    backbone, plan = module.backbone, module.plan
    size = max(1, TOKENS_PER_TEXT * batch_size // max(1, *(len(ids) for ids, _ in windows)))
    parts = []
    for _, batch in portions(windows, size):
        tokens = pad([ids for ids, _ in batch], plan.frame, backbone.pad_id).to(backbone.static_table.device)
        retained = torch.zeros_like(tokens.attention_mask)  # (B,T)
        for row, (_, part) in enumerate(batch):
            retained[row, part] = True
        states = backbone.states(tokens, plan.required)
        columns: dict[Any, torch.Tensor] = {
            "ids": tokens.ids,
            "content": tokens.content,
            **states.hidden,
            **states.diagonals,
        }
        parts.append({key: values[retained] for key, values in columns.items()})
    return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}


def _pool(
    module: RecipeModule, tokens: dict[Any, torch.Tensor], bounds: Sequence[np.ndarray], batch_size: int
) -> torch.Tensor:
    """Pool the chunks of documents: (number of all chunks, K).

    Args:
        tokens: of the documents, one after the other, see `_token_rows`.
        bounds: first token and end (C,2) of each chunk, by document.
    """
    heads, device = module.plan.required.attention_heads, tokens["ids"].device
    offsets = np.cumsum([0, *(chunks[:, 1].max() for chunks in bounds)])
    spans = np.concatenate([chunks + offset for chunks, offset in zip(bounds, offsets, strict=False)])  # (C,2)
    sizes = spans[:, 1] - spans[:, 0]
    order, vectors = [], []
    for chosen in batches(sizes.tolist(), batch_size):
        steps = np.arange(sizes[chosen].max())  # (T,)
        inside = torch.from_numpy(steps < sizes[chosen][:, None]).to(device)  # (B,T)
        index = torch.from_numpy(np.minimum(spans[chosen][:, :1] + steps, offsets[-1] - 1)).to(device)  # (B,T)
        rows = {key: values[index] for key, values in tokens.items()}
        own = Tokens(rows.pop("ids"), inside, rows.pop("content") & inside)
        states = States(diagonals={head: rows.pop(head) for head in heads}, hidden=rows)
        order.append(chosen)
        vectors.append(module.plan.pool(own, states, module.backbone, module.stats)[0])
    return torch.cat(vectors)[torch.from_numpy(np.argsort(np.concatenate(order))).to(device)]
