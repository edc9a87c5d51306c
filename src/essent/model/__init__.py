"""A pretrained transformer: loading, what it offers to recipes, its states, templates, masked-LM head, token tables."""

from essent._core.lazy import needs_torch

with needs_torch(__name__):
    from essent.model.attention import probabilities
    from essent.model.backbone import Backbone, RequiredOutputs
    from essent.model.capabilities import ModelCapabilities, capabilities_of, check_recipe
    from essent.model.loading import POOLING, Loaded, load, open_model, read_capabilities
    from essent.model.mlm_head import NO_HEAD, MaskedLMHead, expected_rows, load_masked
    from essent.model.template import check_room, make_frame
    from essent.model.template_bias import debias, template_states
    from essent.model.token_rows import LONG, is_static, rows_backbone, unlimited
    from essent.model.weights import require_weights
    from essent.model.word_vectors.files import WordVectors, read_word_vectors
    from essent.model.word_vectors.model import word_model

__all__ = [
    "LONG",
    "NO_HEAD",
    "POOLING",
    "Backbone",
    "Loaded",
    "MaskedLMHead",
    "ModelCapabilities",
    "RequiredOutputs",
    "WordVectors",
    "capabilities_of",
    "check_recipe",
    "check_room",
    "debias",
    "expected_rows",
    "is_static",
    "load",
    "load_masked",
    "make_frame",
    "open_model",
    "probabilities",
    "read_capabilities",
    "read_word_vectors",
    "require_weights",
    "rows_backbone",
    "template_states",
    "unlimited",
    "word_model",
]
