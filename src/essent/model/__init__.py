"""A pretrained transformer: loading, what it offers to recipes, its states, templates, masked-LM head, token tables."""

from essent.model.backbone import Backbone, Needs
from essent.model.capabilities import Allows, allows_of, check
from essent.model.loading import POOLING, allowed, load, open_model
from essent.model.mlm_head import NO_HEAD, MaskedLMHead, expected_rows, load_masked
from essent.model.template import check_room, make_frame
from essent.model.template_bias import debias, template_states
from essent.model.token_rows import LONG, is_static, rows_backbone, unlimited

__all__ = [
    "LONG",
    "NO_HEAD",
    "POOLING",
    "Allows",
    "Backbone",
    "MaskedLMHead",
    "Needs",
    "allowed",
    "allows_of",
    "check",
    "check_room",
    "debias",
    "expected_rows",
    "is_static",
    "load",
    "load_masked",
    "make_frame",
    "open_model",
    "rows_backbone",
    "template_states",
    "unlimited",
]
