"""Whether a running server gives a model's vectors: the golden texts by OpenAI's protocol, compared with the folder."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

import numpy as np

from essent._core.folders.contents import ABOUT, ARRAYS, is_essent_folder, read_about
from essent._core.folders.names import STATE_FOLDER
from essent._core.folders.reading import read_arrays
from essent.errors import InputError, ModelError, VerificationError

TOLERANCE = 1e-3  # of a cosine: servers compute in half precision
TIMEOUT = 60.0  # seconds


@dataclass(frozen=True)
class ServerComparison:
    """The vectors of a server beside those of a model, on the same texts.

    Attributes:
        url: address of the embeddings endpoint.
        texts: number of texts.
        lowest_cosine: the lowest cosine of a text's two vectors.
        largest_difference: the largest difference of an entry.
    """

    url: str
    texts: int
    lowest_cosine: float
    largest_difference: float

    def __str__(self) -> str:
        return (
            f"✓ {self.url} gives the model's vectors for {self.texts} texts: lowest cosine {self.lowest_cosine:.6f}, "
            f"largest difference {self.largest_difference:.1e}"
        )


def compare_with_server(model: str, url: str, **options: Any) -> ServerComparison:
    """Compare a server's vectors with those of a folder or hub model.

    Args:
        model: a folder of `Encoder.save` is compared by the golden vectors in it; any other model is loaded.
        url: address of a server with OpenAI's `/v1/embeddings` (essent, vLLM, TEI, Infinity …). The environment
            variable OPENAI_API_KEY is sent as bearer token where it is set.
        options: SentenceTransformer's, for a model that is loaded.

    Raises:
        InputError: not an http(s) address.
        ModelError: the server cannot be reached, or answers something else than vectors.
        VerificationError: other vectors; says the width, or the lowest cosine and its text.
    """
    check_address(url)
    texts, expected = _expected(model, options)
    endpoint = url.rstrip("/").removesuffix("/v1/embeddings").removesuffix("/v1") + "/v1/embeddings"
    served = _request(endpoint, texts)
    if served.shape != expected.shape:
        raise VerificationError(
            f"{endpoint} gives {served.shape[1]} dimensions, and {model!r} has {expected.shape[1]}: it serves another "
            "model."
        )
    lengths = np.linalg.norm(served, axis=1) * np.linalg.norm(expected, axis=1)  # (N,)
    cosines = (served * expected).sum(axis=1) / np.maximum(lengths, np.finfo(np.float64).tiny)
    worst = int(cosines.argmin())
    if cosines[worst] < 1 - TOLERANCE:
        raise VerificationError(
            f"{endpoint} does not give the vectors of {model!r}: cosine {cosines[worst]:.3f} for {texts[worst]!r}. "
            "Compare pooling, prompts and the maximum length of the server with the folder's."
        )
    return ServerComparison(endpoint, len(texts), float(cosines[worst]), float(np.abs(served - expected).max()))


def check_address(url: str) -> None:
    """Raise InputError where it is not an http(s) address."""
    if not url.startswith(("http://", "https://")):
        raise InputError(f"--against {url!r}: give the address of a server, such as http://127.0.0.1:8080.")


def _expected(model: str, options: dict[str, Any]) -> tuple[list[str], np.ndarray]:
    """Texts, and their vectors (N,K) float64."""
    if is_essent_folder(model, {}):
        from essent.verification.golden import saved_folder

        state = saved_folder(model) / STATE_FOLDER
        texts, vectors = read_about(state / ABOUT)["golden_texts"], read_arrays(state / ARRAYS)["golden"]
    else:
        from essent.encoder.as_it_is import open_as_it_is
        from essent.encoder.saving.save import GOLDEN_TEXTS

        texts = list(GOLDEN_TEXTS)
        vectors = open_as_it_is(model, options).encode(texts, show_progress_bar=False)
    pairs = [
        (text, vector) for text, vector in zip(texts, vectors, strict=True) if text.strip()
    ]  # others refuse blanks
    return [text for text, _ in pairs], np.array([vector for _, vector in pairs], dtype=np.float64)


def _request(endpoint: str, texts: list[str]) -> np.ndarray:
    """The server's vectors (N,K) float64."""
    key = os.environ.get("OPENAI_API_KEY")
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    name = _served_name(endpoint.removesuffix("embeddings") + "models", headers)
    body = json.dumps({"input": texts, "model": name, "encoding_format": "float"}).encode()
    answer = _json(urllib.request.Request(endpoint, body, headers))  # noqa: S310  checked by the caller
    try:
        rows = sorted(answer["data"], key=lambda row: row["index"])
        return np.array([row["embedding"] for row in rows], dtype=np.float64).reshape(len(texts), -1)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{endpoint} answers something else than {len(texts)} embeddings: {error!r}.") from None


def _served_name(endpoint: str, headers: dict[str, str]) -> str:
    """The name of the first model that the server lists, "" without a list."""
    try:
        return str(_json(urllib.request.Request(endpoint, headers=headers))["data"][0]["id"])  # noqa: S310
    except (ModelError, LookupError, TypeError):
        return ""


def _json(request: urllib.request.Request) -> Any:
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310
            return json.load(response)
    except urllib.error.HTTPError as error:
        detail = error.read(500).decode("utf-8", "replace")
        raise ModelError(f"{request.full_url} answers {error.code} {error.reason}: {detail}") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{request.full_url} cannot be read: {error}.") from None
