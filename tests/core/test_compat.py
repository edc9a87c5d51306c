"""What essent uses of other libraries beyond their documented names means what essent takes it for."""

import inspect
import re
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

import essent
from essent._core import compat

ROOT = Path(essent.__file__).parent
PRIVATE = re.compile(r"\b(?!self\b|cls\b)(?:model|shell|config|encoder|compiled)\._[a-z]\w+|\b_attn_\w+")


def test_settings_match_the_constructor(shell: SentenceTransformer) -> None:
    settings = compat.settings_of(SentenceTransformer(modules=list(shell), device="cpu"))
    assert settings["similarity_fn_name"] is None
    assert set(settings) <= set(inspect.signature(SentenceTransformer.__init__).parameters)
    arguments = {
        "prompts": {"query": "query: "},
        "default_prompt_name": "query",
        "similarity_fn_name": "dot",
        "truncate_dim": 8,
    }
    restored = compat.settings_of(SentenceTransformer(modules=list(shell), device="cpu", **arguments))
    restored["prompts"].pop("document", None)  # one of the two that sentence-transformers adds
    assert restored == arguments


@pytest.mark.parametrize("layers", [[0], [1, 2], [2]])
def test_only_the_requested_layers_are_returned(bert: Path, layers: list[int]) -> None:
    """transformers 5.20 to 5.22 gave others for a list: wrong vectors without a word."""
    model = AutoModel.from_pretrained(bert).eval()
    ids = torch.tensor([[2, 5, 3]])
    with torch.inference_mode():
        every = model(input_ids=ids, output_hidden_states=True).hidden_states
        returned = model(input_ids=ids, output_hidden_states=compat.hidden_states_of(model, layers)).hidden_states
    for layer in layers:
        assert torch.equal(returned[layer], every[layer])


def test_only_compat_uses_private_names() -> None:
    private_names = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in ROOT.rglob("*.py")
        if path.name != "compat.py"
        for match in PRIVATE.finditer(path.read_text(encoding="utf-8"))
        if not path.match("folders/check.py")  # keys of files
        if match[0].partition(".")[2] not in ("_sign", "_modules", "_name_or_path")  # own, torch's, a key of files
    ]
    assert not private_names
