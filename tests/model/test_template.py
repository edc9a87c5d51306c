"""The frame of a template: the ids of the filled template, the user's words apart; and denoising by the template."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from essent.encoder.encoder import Encoder
from essent.model.template import make_frame
from essent.recipe.named import TEMPLATES
from essent.recipe.tokens import framed_ids
from families import CORPUS, Folders
from reference import References
from samples import LONG, TEXTS

MORE = {
    "beside a symbol": "€{text}+ [MASK]",
    "none but a slot": "{text}",
    "at the end": "It means [MASK] : {text}",
    "glued": "({text})[MASK]",
}


@pytest.mark.parametrize(
    ("family", "name"),
    [
        *product(["bert"], [*TEMPLATES, *MORE]),
        *product(["gpt2", "llama", "roberta", "xlm-roberta"], ["prompteol", "knowledge"]),
        *product(["roberta", "xlm-roberta"], ["T4", "bert"]),
        *product(["roberta", "albert", "t5"], ["roberta"]),  # spaces around the slot serve every tokenizer
    ],
)
def test_ids_match_the_filled_template(family: str, name: str, reference_of: References) -> None:
    """As the papers' code has them, which tokenizes the filled template as a whole."""
    reference, template = reference_of(family), {**TEMPLATES, **MORE}[name]
    tokenizer = reference.tokenizer
    texts = [*TEXTS, *CORPUS[:8], "a quote'", "wow!", '"quoted"', "“quoted”", "(ok)", "12.5 %", "  apart ", " "]
    texts = [text for text in texts if text.strip() or family == "bert"]
    ids = framed_ids(tokenizer, make_frame(tokenizer, template), texts, None)
    assert ids == [list(reference.sentence(text, template).ids) for text in texts]
    alone = framed_ids(tokenizer, make_frame(tokenizer, template.replace("{text}", "{tokens}")), texts, None)
    assert family != "gpt2" or ids != alone  # learned `" ` and `."` from the corpus: tokens cross the border


@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30).filter(lambda t: "[" not in t))
def test_any_text_stands_in_its_frame(text: str, reference_of: References) -> None:
    reference, template = reference_of("bert"), TEMPLATES["bert"]
    (ids,) = framed_ids(reference.tokenizer, make_frame(reference.tokenizer, template), [text], None)
    assert ids == list(reference.sentence(text, template).ids)


@pytest.mark.parametrize(("family", "side"), [("gpt2", "left"), ("llama", "right")])
def test_a_text_is_truncated_before_it_is_filled_in(family: str, side: str, folder_of: Folders) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder_of(family), truncation_side=side)
    frame, text = make_frame(tokenizer, TEMPLATES["prompteol"]), LONG[:75].strip() + "."
    parts = [text[n:] if side == "left" else text[: n + 1] for n in range(len(text))]
    rows = [tokenizer(TEMPLATES["prompteol"].replace("{text}", part))["input_ids"] for part in parts]
    for limit in range(len(frame) + 1, len(frame) + 9, 2):
        (ids,) = framed_ids(tokenizer, frame, [text], limit)
        assert limit - 2 <= len(ids) <= limit
        assert ids in [[*frame.before, *frame.after], *rows]


@pytest.mark.parametrize("family", ["gpt2", "roberta"])
def test_special_tokens_in_a_text_are_plain_text_in_every_template(family: str, reference_of: References) -> None:
    tokenizer = reference_of(family).tokenizer
    frame = make_frame(tokenizer, TEMPLATES["prompteol"])
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    for text in ("a <unk> </s> b", "<s>"):
        (ids,) = framed_ids(tokenizer, frame, [text], None)
        assert [i for i in ids if i in special] == [i for i in (*frame.before, *frame.after) if i in special]
    assert framed_ids(tokenizer, frame, [""], None) == [[*frame.before, *frame.after]]


# -- denoising --------------------------------------------------------------------------------------------------------


def test_the_users_words_stay_as_they_are(bert: Path) -> None:
    plain = Encoder(bert, "template=bert weights=content").encode(TEXTS)
    debiased = Encoder(bert, "template=bert layers=L-bias weights=content").encode(TEXTS)
    full = [n for n, text in enumerate(TEXTS) if text]  # the empty text falls back to all tokens of the template
    np.testing.assert_allclose(debiased[full], plain[full], atol=1e-5)
    empty, long = Encoder(bert, "prompt-denoised").encode(["", LONG * 3])
    assert np.abs(empty).max() < 1e-5
    assert np.isfinite(long).all()


def test_training_clears_the_cached_states(bert: Path) -> None:
    encoder = Encoder(bert, "prompt-denoised")
    encoder.encode(TEXTS)
    assert encoder.module.backbone.template_states
    encoder.train()
    assert not encoder.module.backbone.template_states
    encoder(encoder.preprocess(["a man"]))["sentence_embedding"].sum().backward()
    assert not encoder.module.backbone.template_states
