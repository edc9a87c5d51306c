"""Model inspection: a pair of sentences, token importance, heads, mask predictions, biases of token embeddings."""

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
    from essent.lab.explain.pair import PairChange, PairExplanation, explain_pair
    from essent.lab.explain.pair_picture import draw_pair
    from essent.lab.explain.predictions import MaskPrediction, MaskPredictions, Predicted, mask_predictions

__all__ = [
    "Agreement",
    "BiasReport",
    "HeadAgreement",
    "Impact",
    "MaskPrediction",
    "MaskPredictions",
    "PairChange",
    "PairExplanation",
    "Predicted",
    "SentenceAnisotropy",
    "TokenMap",
    "draw_bias",
    "draw_pair",
    "explain_pair",
    "head_agreement",
    "impact_agreement",
    "impact_matrix",
    "mask_predictions",
    "token_bias",
    "write_bias",
]
