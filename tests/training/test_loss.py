"""The loss on a model: each objective against loops over sentences in float64, loss and all gradients."""

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from train_reference import Slow, loss_of
from training_helpers import TEXTS

from essent import Encoder
from essent.recipe.named import TEMPLATES as PROMPT_TEXTS
from essent.training.loss import ContrastiveLoss, ViewCollator, info_nce, make_collator, make_loss
from essent.training.parameters import projection_heads
from essent.training.settings import BERT_TEMPLATES, OBJECTIVES, ROBERTA_TEMPLATES, Settings
from families import Folders

TRIPLETS = [
    ("A man is playing a flute.", "A man plays", "A man is cooking."),
    ("Two dogs run.", "Animals run through the field.", "Dogs sleep"),
    ("She drinks coffee", "She drinks it every morning.", "She likes tea."),
]
PROMPTS = (PROMPT_TEXTS["prompteol"], PROMPT_TEXTS["about"])  # for decoders


def build(
    folder: Path, objective: str, head: str, columns: int, templates: tuple[str, ...] = BERT_TEMPLATES
) -> tuple[ContrastiveLoss, ViewCollator]:
    """A loss on a model of its own, dropout off."""
    views = templates[: OBJECTIVES[objective].templates]
    recipe = ("prompteol" if templates is PROMPTS else "prompt") if views else "cls"
    settings = Settings(objective, views, recipe, projection_head=head, seed=0)
    encoder = Encoder(SentenceTransformer(str(folder), device="cpu"), "mean")
    loss = make_loss(encoder, settings, columns)
    return loss.eval(), make_collator(encoder, loss)


def features_of(collator: ViewCollator, rows: list[Any]) -> list[dict[str, torch.Tensor]]:
    """What the trainer makes of a batch: one dictionary a place."""
    batch = collator([{str(n): text for n, text in enumerate(row)} for row in rows])
    return [
        {key.removeprefix(prefix): value for key, value in batch.items() if key.startswith(prefix)}
        for prefix in (f"view{number}_" for number in range(len(collator.column_views)))
    ]


@pytest.mark.parametrize(
    ("family", "templates", "objective", "head", "columns"),
    [
        ("bert", BERT_TEMPLATES, "simcse", "none", 1),
        ("roberta", ROBERTA_TEMPLATES, "simcse", "dense-tanh", 2),
        ("roberta", ROBERTA_TEMPLATES, "same-template", "none", 1),
        ("bert", BERT_TEMPLATES, "different-templates", "dense-tanh", 3),
        ("bert", BERT_TEMPLATES, "different-templates-denoised", "dense-tanh", 1),
        ("bert", BERT_TEMPLATES, "same-template-denoised", "prediction-transform", 3),
        ("llama", PROMPTS, "same-template", "none", 3),
        ("gpt2", PROMPTS, "different-templates", "dense-tanh", 1),
    ],
)
def test_loss_and_gradients(
    family: str, templates: tuple[str, ...], objective: str, head: str, columns: int, folder_of: Folders
) -> None:
    loss, collator = build(folder_of(family), objective, head, columns, templates)
    rows = [row[:columns] for row in TRIPLETS]
    slow, row = Slow(folder_of(family)), OBJECTIVES[objective]
    exact_head = projection_heads[head](32, slow.model.config, torch.Generator().manual_seed(0), []).double()

    def vector(text: str, view: int) -> torch.Tensor:
        if not row.templates:
            return exact_head(slow.first_token(text))
        h = slow.prompted(text, templates[view])
        if not row.denoised:
            return exact_head(h)
        bias = slow.bias(text, templates[view])
        return exact_head(h) - exact_head(bias) if exact_head.before_denoising else exact_head(h - bias)

    expected = loss_of(*[[vector(texts[column], view) for texts in rows] for column, view in loss.column_views])
    expected.backward()
    theirs = dict(slow.model.named_parameters()) | {f"head.{k}": v for k, v in exact_head.named_parameters()}
    largest = max(float(weight.grad.abs().max()) for weight in theirs.values() if weight.grad is not None)
    features = features_of(collator, rows)
    for loss_part, tolerance in ((loss, 5e-5), (loss.double(), 1e-9)):  # gradients sum over tokens in float32 at first
        loss_part.zero_grad()
        computed = loss_part(features)
        computed.backward()
        assert computed.item() == pytest.approx(expected.item(), rel=1e-5 if tolerance > 1e-6 else 1e-9)
        ours = dict(loss.model.module.backbone.model.named_parameters())
        ours |= {f"head.{name}": weight for name, weight in loss.projection_head.named_parameters()}
        for name, weight in ours.items():
            exact = theirs[name].grad if theirs[name].grad is not None else torch.zeros_like(theirs[name])
            assert weight.grad is not None, name
            assert float((weight.grad.double() - exact).abs().max()) / largest < tolerance, name


def test_the_bias_is_computed_once_a_length(bert: Path) -> None:
    """With dropout, texts of one length have one bias."""
    loss, collator = build(bert, "same-template-denoised", "none", 3)
    features = features_of(collator, [("one two three", "one", "two three"), ("one two", "two", "three one two")])
    lengths = torch.cat([part["attention_mask"].sum(dim=1) for part in features])
    biases = torch.cat(loss.train()._biases(features, [0, 0, 0]))
    assert len(biases.unique(dim=0)) == len(lengths.unique()) < len(lengths)


def test_dropout_makes_the_views_differ(bert: Path) -> None:
    loss, collator = build(bert, "simcse", "none", 1)
    features = features_of(collator, [(text,) for text in TEXTS[:4]])
    first, second = loss.embed(features)
    assert torch.equal(first, second)
    loss.train()
    first, second = loss.embed(features)
    assert (first - second).abs().max() > 1e-3


def test_dropout_of_attention_alone_where_its_diagonal_is_read(bert: Path) -> None:
    """A recipe that reads attention runs its own attention function: it must drop out too, the diagonal must not."""
    encoder = Encoder(SentenceTransformer(str(bert), device="cpu"), "ditto:2-1")
    for name, part in encoder.module.backbone.model.named_modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5 if name.endswith("attention.self.dropout") else 0.0
    features = encoder.preprocess(TEXTS[:4])
    for dropped in (True, False):
        encoder.train(dropped)
        first, second = (encoder(dict(features))["sentence_embedding"] for _ in range(2))
        assert torch.equal(first, second) is not dropped


def test_views_are_cut_to_the_text_length(bert: Path) -> None:
    _, collator = build(bert, "different-templates", "none", 1)
    collator.max_seq_length = 5
    features = features_of(collator, [("The old oak tree stayed there all the morning.",), ("dogs",)])
    longest = [int(part["attention_mask"].sum(dim=1).max()) for part in features]
    assert longest == [len(frame) + 5 for frame in collator.frames]


# -- the loss of vectors ----------------------------------------------------------------------------------------------


def test_half_precision_and_zero_rows() -> None:
    anchors, positives = (part.bfloat16() for part in torch.randn(2, 4, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half_loss = info_nce(anchors, positives)
    assert half_loss.dtype == torch.float32
    assert half_loss.item() == pytest.approx(info_nce(anchors.float(), positives.float()).item(), rel=1e-6)
    zero = torch.zeros(2, 3, requires_grad=True)
    loss = info_nce(zero, torch.randn(2, 3))
    loss.backward()
    assert loss.item() == pytest.approx(0.6931472)  # every cosine 0: two equal candidates
    assert torch.isfinite(zero.grad).all()
