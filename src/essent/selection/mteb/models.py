"""Under which name MTEB keeps an encoder's results."""

from __future__ import annotations

from typing import Any, TypeVar

from essent.errors import InputError

Model = TypeVar("Model")


def identify(encoder: Model, name: str) -> Model:
    """Give an encoder the name and revision under which MTEB keeps its results; returns the encoder.

    An Encoder has a name of its own, made of its model's and its recipe's, and a revision that changes with `fit`; this
    one also tells weights apart that were trained further. The revision is a digest of recipe, weights and what `fit`
    has learned: call it after `fit`. A SentenceTransformer without a name is for MTEB "no_model_name/available".

    Args:
        encoder: an Encoder, or any SentenceTransformer.
        name: "organisation/model".

    Raises:
        InputError: an empty name.
    """
    from essent.encoder.pipeline.digests import digest_of, key_of

    if not isinstance(name, str) or not name.strip():
        raise InputError(f"A model's name is a text such as 'me/minilm-zscore', not {name!r}.")
    model: Any = encoder
    settings = (model.prompts, model.default_prompt_name, model.truncate_dim, model.max_seq_length)
    recipe = str(getattr(model, "recipe", ""))
    revision = key_of(digest_of(model, settings), recipe, getattr(model[0], "stats", None))
    model.model_card_data.model_name, model.model_card_data.base_model_revision = name, revision
    return encoder
