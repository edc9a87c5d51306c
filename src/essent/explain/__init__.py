"""Looks into a model: which tokens matter to it, which attention heads know, what it predicts, how its tokens lie."""

from essent.lazy import needs_torch

with needs_torch(__name__):
    from essent.explain.bias import BiasReport, SentenceAnisotropy, TokenMap, token_bias
    from essent.explain.bias import token_map as token_map
    from essent.explain.files import BIAS_FILES as BIAS_FILES
    from essent.explain.files import write_bias
    from essent.explain.importance import (
        Agreement,
        HeadAgreement,
        Impact,
        head_agreement,
        impact_agreement,
        impact_matrix,
    )
    from essent.explain.importance import backbone_of as backbone_of
    from essent.explain.picture import draw_bias
    from essent.explain.predictions import MaskPrediction, MaskPredictions, Predicted, mask_predictions

__all__ = [
    "Agreement",
    "BiasReport",
    "HeadAgreement",
    "Impact",
    "MaskPrediction",
    "MaskPredictions",
    "Predicted",
    "SentenceAnisotropy",
    "TokenMap",
    "draw_bias",
    "head_agreement",
    "impact_agreement",
    "impact_matrix",
    "mask_predictions",
    "token_bias",
    "write_bias",
]
