"""Tables of token vectors as models, for static encoders: `h_n` is the row of the token, without layers.

StaticEmbedding and model2vec models become a `Backbone` whose only source is `static`, so all token
weights and shaping steps work on them. As in these models, texts have no special tokens and no length limit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.modeling_outputs import BaseModelOutput

from essent._core.folders.contents import read_config, read_modules
from essent.errors import ModelError
from essent.model.backbone import Backbone
from essent.model.weights import require_rows
from essent.recipe.tokens import DROPPED, fast_backend, unknown_token


class RowsConfig(PretrainedConfig):
    """Shape of a table: `vocab_size` rows of `hidden_size`, including the last row of zeros for padding."""

    model_type = "essent_rows"

    def __init__(self, vocab_size: int = 1, hidden_size: int = 1, **options: Any) -> None:
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.num_hidden_layers = self.num_attention_heads = 0
        super().__init__(**{key: value for key, value in options.items() if not key.startswith("num_")})


class RowsModel(PreTrainedModel):
    """A model that consists of its input embeddings; a text without tokens has the last row, a vector of zeros."""

    config_class = RowsConfig
    base_model_prefix = "rows"
    only_static = True

    def __init__(self, config: RowsConfig) -> None:
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the table of rows."""
        return self.embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the table of rows, as saved folders do."""
        self.embeddings = value  # type: ignore[assignment]

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> BaseModelOutput:
        """Return the rows (B,T,D) of ids (B,T)."""
        return BaseModelOutput(last_hidden_state=self.embeddings(input_ids))


AutoConfig.register(RowsConfig.model_type, RowsConfig, exist_ok=True)
AutoModel.register(RowsConfig, RowsModel, exist_ok=True)


def rows_backbone(
    table: torch.Tensor | np.ndarray,
    tokenizer: Tokenizer | PreTrainedTokenizerBase,
    *,
    dropped: Iterable[int] = (),
    max_seq_length: int | None = None,
) -> Backbone:
    """Make a backbone from a table (V,D) whose row t is the vector of token t.

    Args:
        table: of any float type; stored in float32.
        tokenizer: its ids are row indices of the table.
        dropped: ids to remove from every text, such as that of the unknown word: no mean and no frequency counts them.
        max_seq_length: maximum number of tokens per text; None for no limit.

    Raises:
        ModelError: the table is not a matrix, has NaN or infinite values, or lacks the row of an id.
    """
    rows = torch.as_tensor(table).detach().cpu().float()
    if rows.ndim != 2 or 0 in rows.shape:
        raise ModelError(f"Expected a table of token vectors of shape (V,D), got {tuple(rows.shape)}.")
    finite = torch.isfinite(rows).all(dim=1)
    if not bool(finite.all()):
        bad = torch.nonzero(~finite).flatten().tolist()
        raise ModelError(
            f"{len(bad)} of {len(rows)} token vectors have NaN or infinite values, the first at id {bad[0]}."
        )
    own = unlimited(tokenizer, dropped)
    require_rows(own, len(rows))
    model = RowsModel(RowsConfig(len(rows) + 1, int(rows.shape[1])))
    with torch.no_grad():
        model.embeddings.weight.copy_(torch.cat([rows, rows.new_zeros(1, rows.shape[1])]))
    return Backbone(model.eval().requires_grad_(False), own, max_seq_length)


# -- tokenizers -------------------------------------------------------------------------------------------------------


def unlimited(tokenizer: Tokenizer | PreTrainedTokenizerBase, dropped: Iterable[int] = ()) -> PreTrainedTokenizerBase:
    """Return a copy of the tokenizer without special tokens around a text, padding and truncation.

    Args:
        dropped: ids to remove from every text; saved in tokenizer_config.json.
    """
    backend = copy.deepcopy(fast_backend(tokenizer) if isinstance(tokenizer, PreTrainedTokenizerBase) else tokenizer)
    side = "right" if backend.truncation is None else str(backend.truncation["direction"]).lower()
    backend.post_processor = None
    backend.no_padding()
    backend.no_truncation()
    special = [token.content for token in backend.get_added_tokens_decoder().values() if token.special]
    mask = next((text for text in ("[MASK]", "<mask>") if backend.token_to_id(text) is not None), None)
    # naming a token that the tokenizer does not treat as special would change the ids of texts
    named = {"unk_token": unknown_token(backend), "mask_token": mask}
    named = {key: text for key, text in named.items() if text in special}
    extra_tokens = [text for text in special if text not in named.values()]
    settings: dict[str, Any] = {DROPPED: sorted(set(dropped))} if set(dropped) else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        extra_special_tokens=extra_tokens,
        model_max_length=int(1e30),
        truncation_side=side,
        **named,
        **settings,
    )


# -- static models of sentence-transformers and model2vec -------------------------------------------------------------


def backbone_of(first: StaticEmbedding) -> Backbone:
    """Make the backbone of a sentence-transformers model that starts with a table.

    Raises:
        ModelError: the table does not fit the tokenizer.
    """
    cut = first.tokenizer.truncation
    limit = None if cut is None else int(cut["max_length"])
    dropped = getattr(first, DROPPED, ())
    return rows_backbone(first.embedding.weight, first.tokenizer, dropped=dropped, max_seq_length=limit)


def is_static(name: str, hub: dict[str, Any]) -> bool:
    """Return whether a folder or hub name contains a static model of sentence-transformers or model2vec."""
    modules = read_modules(name, hub)
    if modules is None:
        return is_model2vec(name, hub)
    return bool(modules) and str(modules[0].get("type", "")).rpartition(".")[2] == StaticEmbedding.__name__


def is_model2vec(name: str, hub: dict[str, Any]) -> bool:
    """Return whether a folder or hub name contains a model2vec model without modules.json."""
    config = (read_config(name, hub) or {}) if read_modules(name, hub) is None else {}
    return config.get("model_type") == "model2vec" or "StaticModel" in (config.get("architectures") or ())


def open_model2vec(name: str, hub: dict[str, Any], options: dict[str, Any]) -> SentenceTransformer:
    """Load a folder of model2vec as a SentenceTransformer that removes unknown tokens from every text.

    Row weights and a mapping to fewer rows (vocabulary quantization) are folded into one row per token. model2vec
    truncates texts at the `max_seq_length` of its configuration to save time; here whole texts are used.
    """
    config = read_config(name, hub) or {}
    first = StaticEmbedding.load(name, **hub)
    unknown = unknown_token(first.tokenizer)
    dropped = first.tokenizer.token_to_id(unknown) if unknown is not None else None
    setattr(first, DROPPED, () if dropped is None else (dropped,))
    modules: list[nn.Module] = [first, *([Normalize()] if config.get("normalize") else [])]
    settings = {key: options[key] for key in ("device", "prompts", "default_prompt_name") if key in options}
    return SentenceTransformer(modules=modules, **settings)
