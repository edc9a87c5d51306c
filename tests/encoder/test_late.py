"""Late chunking equals a plain script: run the document, average its tokens' states chunk by chunk (float64)."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from essent import Encoder, EssentError
from families import CORPUS, Folders
from reference import Reference
from samples import daily

References = Callable[[str], Reference]
Span = tuple[int, int] | None  # the characters of a token; None: a special token

DOCUMENTS = [
    ["A man is playing a large flute. ", "How far is the moon ", "from the earth?"],
    ["Two dogs run through the green field,", " chasing a red ball.\n", "\n", "She doesn't like cold coffee."],
    ["unbelievably 12 kittens: Ünïcödé 你好 \U0001f468‍", "\U0001f469 and so on."],
    ("dogs",),
    ["", "The stock market fell sha", "rply on Monday", ""],
    [],
]
FAMILIES = ("bert", "gpt2", "llama", "roberta", "xlm-roberta", "t5", "modernbert", "qwen3")


def tokens_of_document(reference: Reference, document: str) -> tuple[list[int], list[Span]]:
    """Ids and each token's characters, None for special tokens."""
    encoded = reference.tokenizer(document, return_offsets_mapping=True, return_special_tokens_mask=True)
    specials = encoded["special_tokens_mask"]
    spans = [None if special else span for span, special in zip(encoded["offset_mapping"], specials, strict=True)]
    return encoded["input_ids"], spans


def tokens_of_chunks(chunks: Sequence[str], spans: list[Span]) -> list[list[int]]:
    """The tokens whose last character is in each chunk; special tokens go to the first or the last chunk.

    A chunk without tokens reads the token after it, or the last one.
    """
    of_character = [number for number, chunk in enumerate(chunks) for _ in chunk]
    words = [index for index, span in enumerate(spans) if span is not None]
    owners = [
        of_character[max(span[1] - 1, span[0])] if span is not None else (0 if index < words[0] else len(chunks) - 1)
        for index, span in enumerate(spans)
    ]
    tokens = []
    for number in range(len(chunks)):
        own = [index for index, owner in enumerate(owners) if owner == number]
        later = [index for index, owner in enumerate(owners) if owner > number]
        tokens.append(own or later[:1] or [len(owners) - 1])
    return tokens


@pytest.mark.parametrize("family", daily(FAMILIES, "bert", "llama"))
def test_equals_a_plain_script(family: str, folder_of: Folders, reference_of: References) -> None:
    """Alone, in a batch, and with a tokenizer that pads on the left."""
    encoder, reference = Encoder(str(folder_of(family)), "mean", device="cpu"), reference_of(family)
    expected = []
    for chunks in DOCUMENTS[:-1]:
        ids, spans = tokens_of_document(reference, "".join(chunks))
        states = reference.run(ids)[0][-1]
        expected.append([states[tokens].mean(axis=0) for tokens in tokens_of_chunks(chunks, spans)])
    for padding_side, batch_size in (("right", 32), ("left", 32), ("right", 1)):
        encoder.tokenizer.padding_side = padding_side
        vectors = encoder.encode_chunks(DOCUMENTS, batch_size=batch_size)
        assert vectors[-1].shape == (0, 32)
        for own, by_hand in zip(vectors[:-1], expected, strict=True):
            np.testing.assert_allclose(own, by_hand, atol=1e-5)
    assert encoder.encode_chunks([]) == []


def test_weights_of_a_chunk_equal_its_own(folder_of: Folders, reference_of: References) -> None:
    """Positions from 1 in each chunk, weights scaled in it; attention to itself is that in the document."""
    reference, chunks = reference_of("bert"), DOCUMENTS[0]
    ids, spans = tokens_of_document(reference, "".join(chunks))
    layers, attentions = reference.run(ids)
    recipes = {
        "first-last weights=position": lambda at: np.average(
            (layers[0][at] + layers[3][at]) / 2, axis=0, weights=np.arange(1, len(at) + 1)
        ),
        "weights=content": lambda at: layers[3][[index for index in at if spans[index] is not None]].mean(axis=0),
        "ditto:2-3": lambda at: sum(attentions[1][2, n, n] * (layers[0][n] + layers[3][n]) / 2 for n in at),
        "layers=2 reduce=max | normalize": lambda at: layers[2][at].max(axis=0) / np.linalg.norm(layers[2][at].max(0)),
    }
    for recipe, vector in recipes.items():
        encoder = Encoder(str(folder_of("bert")), recipe, device="cpu")
        (vectors,) = encoder.encode_chunks([chunks])
        by_hand = [vector(tokens) for tokens in tokens_of_chunks(chunks, spans)]
        np.testing.assert_allclose(vectors, by_hand, atol=1e-5, err_msg=recipe)


@pytest.mark.parametrize(
    ("family", "recipe"),
    [
        ("bert", "first-last-idf-zscore"),
        ("gpt2", "static-remove-biases"),
        ("llama", "ditto:1-1"),
        ("bert", "weights=sif*position reduce=dct:3 | normalize"),
        ("llama", "layers=random:32,7+L reduce=power:3"),
    ],
)
def test_a_single_chunk_is_the_document(recipe: str, family: str, folder_of: Folders) -> None:
    """Its vector is that of `encode`, prompt, empty texts and surrogates included."""
    encoder = Encoder(str(folder_of(family)), recipe, device="cpu").fit(CORPUS)
    texts = [*CORPUS[:8], "", " ", "\ud83d\ude00 lone \ud800 surrogate", "[SEP] in </s> a text", "dogs\n"]
    for options in ({}, {"prompt": "query: ", "truncate_dim": 16, "normalize_embeddings": True}):
        vectors = encoder.encode_chunks([[text] for text in texts], **options)
        np.testing.assert_allclose(np.concatenate(vectors), encoder.encode(texts, **options), atol=2e-5)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_longer_than_the_model(family: str, folder_of: Folders, reference_of: References) -> None:
    """Windows of 20 tokens that share half of their text; a chunk may be longer than one."""
    encoder, reference = Encoder(str(folder_of(family)), "mean", device="cpu"), reference_of(family)
    encoder.max_seq_length, prompt = 20, "query: "
    chunks = ["She drinks cold coffee ", " ".join(CORPUS[:3]), " in the morning. ", *(f"{t} " for t in CORPUS[3:8])]
    ids, spans = tokens_of_document(reference, prompt + "".join(chunks))
    words = [token for token, span in enumerate(spans) if span is not None]
    start = words[0] + sum(span is not None and span[1] <= len(prompt) for span in spans)  # of every window
    end = words[-1] + 1
    room = 20 - start - (len(ids) - end)
    step = room - room // 2
    states = np.full((len(ids), 32), np.nan)
    for first in range(start, end - room + step, step):
        tokens = np.r_[:start, first : min(first + room, end), end : len(ids)]
        window = reference.run([ids[token] for token in tokens])[0][-1]
        is_new = np.isnan(states[tokens, 0]) | (tokens >= end)  # special tokens after the text: those of the last one
        states[tokens[is_new]] = window[is_new]
    of_chunks = tokens_of_chunks([prompt + chunks[0], *chunks[1:]], spans)
    expected = [states[tokens].mean(axis=0) for tokens in of_chunks]
    for documents in ([chunks], [["dogs"], chunks, chunks[:2]]):
        vectors = encoder.encode_chunks(documents, prompt=prompt, batch_size=2)[len(documents) > 1]
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    with pytest.raises(EssentError, match=r"The prompt has \d+ tokens, and the model reads at most 20"):
        encoder.encode_chunks([chunks], prompt=" ".join(CORPUS[:3]))


def test_refused_recipes_and_documents(shell: SentenceTransformer) -> None:
    for recipe, message in (
        ("weights=idf*last", "stand for the whole document. Use other weights"),
        ("t4-mean", "template="),
        ("mean | zscore", "call fit"),
    ):
        with pytest.raises(EssentError, match=message):
            Encoder(shell, recipe).encode_chunks([["A chunk."]])
    encoder = Encoder(shell, "mean")
    for documents, message in (
        ("A text.", r"must be a list of documents"),
        (["A text."], r"documents\[0\]: Expected a list of texts, got str: 'A text.'"),
        ([["a"], [None]], r"documents\[1\]: Text 0 is NoneType"),
        ([["a"], 3], r"documents\[1\]: Expected a list of texts, got int"),
    ):
        with pytest.raises(EssentError, match=message):
            encoder.encode_chunks(documents)
