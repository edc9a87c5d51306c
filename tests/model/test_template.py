"""The frame of a template: the ids of the filled template, the user's words apart; and denoising by the template."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from essent.encoder.encoder import Encoder
from essent.errors import UnsupportedRecipeError
from essent.model.template import make_frame
from essent.recipe.named import TEMPLATES
from essent.recipe.tokens import framed_ids
from families import CORPUS, build_tokenizer
from samples import LONG, TEXTS

Shells = Callable[[str], SentenceTransformer]

MORE = {
    "beside a symbol": "€{text}+ [MASK]",
    "none but a slot": "{text}",
    "at the end": "It means [MASK] : {text}",
    "glued": "({text})[MASK]",
}
PIECES = build_tokenizer("wordpiece")


def filled(tokenizer: PreTrainedTokenizerBase, template: str, text: str) -> list[int]:
    """Return the ids of the template with the text in its slot, tokenized as a whole, as the papers' code does."""
    if text and text[-1] not in ".?\"'" and template != TEMPLATES["echo"]:
        text += "."
    if '"{text}"' in template and "[MASK]" not in template:  # PromptEOL
        text = text.replace('"', "'")
        text = text[:-1] + "." if text.endswith("?") else text
    template = template.replace("[MASK]", tokenizer.mask_token or "").replace("{tokens}", "{text}")
    return tokenizer(template.replace("{text}", text))["input_ids"]


@pytest.mark.parametrize("name", [*TEMPLATES, *MORE])
def test_ids_match_the_filled_template(name: str, bert: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(bert)
    template = {**TEMPLATES, **MORE}[name]
    texts = [*TEXTS, *CORPUS[:8], "ends in a quote'", "wow!", "(brackets)", "“quoted”", "12.5 %", " "]
    frame = make_frame(tokenizer, template)
    assert framed_ids(tokenizer, frame, texts, None) == [filled(tokenizer, template, text) for text in texts]


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30).filter(lambda t: "[" not in t))
def test_any_text_stands_in_its_frame(text: str) -> None:
    frame = make_frame(PIECES, TEMPLATES["bert"])
    assert framed_ids(PIECES, frame, [text], None)[0] == filled(PIECES, TEMPLATES["bert"], text)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        *product(["prompteol", "knowledge"], ["gpt2", "llama", "roberta", "xlm-roberta"]),
        *product(["T4", "bert"], ["roberta", "xlm-roberta"]),
        *product(["roberta"], ["bert", "roberta", "albert", "t5"]),  # spaces around the slot serve every tokenizer
    ],
)
def test_ids_match_the_filled_template_when_tokens_cross_its_border(
    name: str, family: str, folder_of: Callable[[str], Path]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder_of(family))
    template = TEMPLATES[name]
    texts = [text for text in [*TEXTS, *CORPUS[:8], "a word", "wow!", '"quoted"', "(ok)", "12.5 %", "  apart "] if text]
    frame = make_frame(tokenizer, template)
    ids = framed_ids(tokenizer, frame, texts, None)
    assert ids == [filled(tokenizer, template, text) for text in texts]
    alone = framed_ids(tokenizer, make_frame(tokenizer, template.replace("{text}", "{tokens}")), texts, None)
    if family == "gpt2":  # learned `" ` and `."` from the corpus: tokens cross the border
        assert ids != alone


@pytest.mark.parametrize(("family", "side"), [("gpt2", "left"), ("llama", "right")])
def test_a_text_is_truncated_before_it_is_filled_in(family: str, side: str, folder_of: Callable[[str], Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder_of(family), truncation_side=side)
    frame, text = make_frame(tokenizer, TEMPLATES["prompteol"]), LONG[:75].strip() + "."
    ends = range(len(text)) if side == "left" else range(len(text), 0, -1)
    parts = [text[n:] if side == "left" else text[:n] for n in ends]
    rows = [tokenizer(TEMPLATES["prompteol"].replace("{text}", part))["input_ids"] for part in parts]
    assert len(rows[0]) > len(frame) + 9
    for limit in range(len(frame) + 1, len(frame) + 9, 2):
        (ids,) = framed_ids(tokenizer, frame, [text], limit)
        assert len(ids) <= limit
        assert ids in [[*frame.before, *frame.after], *(row for row in rows if len(row) <= limit)]
        assert len(ids) >= limit - 2


@pytest.mark.parametrize("family", ["gpt2", "roberta"])
def test_special_tokens_in_a_text_are_plain_text_in_every_template(
    family: str, folder_of: Callable[[str], Path]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder_of(family))
    frame = make_frame(tokenizer, TEMPLATES["prompteol"])
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    for text in ("a <unk> </s> b", "<s>"):
        (ids,) = framed_ids(tokenizer, frame, [text], None)
        assert [i for i in ids if i in special] == [i for i in (*frame.before, *frame.after) if i in special]
    assert framed_ids(tokenizer, frame, [""], None) == [[*frame.before, *frame.after]]


def test_masks_need_a_mask_token(folder_of: Callable[[str], Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder_of("gpt2"))
    with pytest.raises(UnsupportedRecipeError, match="has no mask token"):
        make_frame(tokenizer, TEMPLATES["T0"])


# -- denoising --------------------------------------------------------------------------------------------------------


def test_the_users_words_stay_as_they_are(shell_of: Shells) -> None:
    plain = Encoder(shell_of("bert"), "template=bert weights=content").encode(TEXTS)
    debiased = Encoder(shell_of("bert"), "template=bert layers=L-bias weights=content").encode(TEXTS)
    full = [n for n, text in enumerate(TEXTS) if text]  # the empty text falls back to all tokens of the template
    np.testing.assert_allclose(debiased[full], plain[full], atol=1e-5)
    empty, long = Encoder(shell_of("bert"), "prompt-denoised").encode(["", LONG * 3])
    assert np.abs(empty).max() < 1e-5
    assert np.isfinite(long).all()


def test_training_clears_the_cached_states(shell_of: Shells) -> None:
    encoder = Encoder(shell_of("bert"), "prompt-denoised")
    encoder.encode(TEXTS)
    assert encoder.module.backbone.template_states
    encoder.train()
    assert not encoder.module.backbone.template_states
    encoder(encoder.preprocess(["a man"]))["sentence_embedding"].sum().backward()
    assert not encoder.module.backbone.template_states
    for parameter in encoder.parameters():
        parameter.grad = None
    encoder.eval()
