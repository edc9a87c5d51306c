"""The objectives as loops over sentences, written from the papers' equations, in float64 with torch's gradients."""

from itertools import chain
from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer


def ended(text: str) -> str:
    """A text with an end."""
    return text if text[-1] in ".?\"'" else text + "."


class Slow:
    """One sentence at a time, no padding, no batch; the template is filled as text and tokenised as a whole."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModel.from_pretrained(folder, dtype=torch.float64).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def _states(self, ids: list[int], positions: list[int] | None = None) -> torch.Tensor:
        table = getattr(getattr(self.model, "embeddings", None), "position_embeddings", None)
        first = 0 if getattr(table, "padding_idx", None) is None else table.padding_idx + 1  # RoBERTa
        offsets = range(len(ids)) if positions is None else positions
        position_ids = torch.tensor([[first + offset for offset in offsets]])
        return self.model(input_ids=torch.tensor([ids]), position_ids=position_ids).last_hidden_state[0]

    def first_token(self, text: str) -> torch.Tensor:
        return self._states(self.tokenizer(text)["input_ids"])[0]

    def prompted(self, text: str, template: str) -> torch.Tensor:
        """h: the mean of the masks of the filled template; of a decoder's, which has none, the last token."""
        filled = template.replace("{text}", ended(text)).replace("[MASK]", str(self.tokenizer.mask_token))
        ids = self.tokenizer(filled)["input_ids"]
        return self._pooled(self._states(ids), ids)

    def _pooled(self, states: torch.Tensor, ids: list[int]) -> torch.Tensor:
        rows = [states[n] for n, index in enumerate(ids) if index == self.tokenizer.mask_token_id]
        return sum(rows) / len(rows) if rows else states[-1]

    def bias(self, text: str, template: str) -> torch.Tensor:
        """ĥ: the template alone, positions after its slot shifted by the number of the text's tokens."""
        before, after = template.replace("[MASK]", self.tokenizer.mask_token).split("{text}")
        filled = self.tokenizer(before + ended(text) + after)["input_ids"]
        # a space before the text is the text's own where words are marked by it
        prefix, suffix = (
            self.tokenizer(part, add_special_tokens=False)["input_ids"] for part in (before.rstrip(), after)
        )
        ids = [self.tokenizer.cls_token_id, *prefix, *suffix, self.tokenizer.sep_token_id]
        head, shift = 1 + len(prefix), len(filled) - len(ids)
        positions = [n if n < head else n + shift for n in range(len(ids))]
        return self._pooled(self._states(ids, positions), ids)


def loss_of(anchors: list[torch.Tensor], positives: list[torch.Tensor], *negatives: list[torch.Tensor]) -> torch.Tensor:
    """Mean over i of −log( e^{cos(a_i,p_i)/τ} / Σ_j (e^{cos(a_i,p_j)/τ} + e^{cos(a_i,n_j)/τ}) )."""
    total = torch.zeros((), dtype=torch.float64)
    for i, anchor in enumerate(anchors):
        candidates = [*positives, *chain(*negatives)]
        exponentials = [torch.exp(torch.cosine_similarity(anchor, other, dim=0) / 0.05) for other in candidates]
        total = total - torch.log(exponentials[i] / sum(exponentials))
    return total / len(anchors)
