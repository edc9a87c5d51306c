"""Model inspection: token importance, attention heads, mask predictions, and biases of token embeddings."""

from essent._core.lazy import needs_torch

with needs_torch(__name__):
    from essent.lab.explain.bias import BiasReport, SentenceAnisotropy, TokenMap, draw_bias, token_bias, write_bias
    from essent.lab.explain.importance import (
        Agreement,
        HeadAgreement,
        Impact,
        head_agreement,
        impact_agreement,
        impact_matrix,
    )
    from essent.lab.explain.predictions import MaskPrediction, MaskPredictions, Predicted, mask_predictions

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
