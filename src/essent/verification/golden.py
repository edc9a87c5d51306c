"""Compare folders and servers with the saved state: files by their digests, vectors by the golden vectors."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from essent._core.arguments import check_path
from essent._core.atomic import recover
from essent._core.folders.check import check_model
from essent._core.folders.contents import ABOUT, ARRAYS, is_essent_folder, is_exported_folder, opening, read_about
from essent._core.folders.files import STATE_FOLDER, check_digests, damage_named, has_digests, read_arrays
from essent._core.hub import folder_of
from essent._core.lazy import check_torch
from essent.engine.compiled import TOLERANCES, cosines, largest_difference
from essent.engine.files import load, read_graph_metadata
from essent.errors import EssentError, InputError, MissingDependencyError, ModelError, VerificationError
from essent.static.encoder import StaticEncoder

TOLERANCE = 1e-5
COSINE_TOLERANCE = 1e-3  # servers compute in half precision
TIMEOUT = 60.0  # seconds


@dataclass(frozen=True)
class Verification:
    """The result of `verify`.

    Attributes:
        recipe: the recipe of the folder, as text.
        portable: whether plain sentence-transformers loads the folder; None for an exported graph, which only essent
            loads.
        reason: why plain sentence-transformers cannot load it.
        differences: the largest difference from the golden vectors, per way of loading the folder.
        files: number of files whose digests match; None if the folder lists no digests.
        allowed: the largest difference that passes.

    Example:
        >>> from essent import Encoder, verify
        >>> Encoder("sentence-transformers/all-MiniLM-L6-v2", "mean").save("verified")
        >>> verification = verify("verified")
        >>> verification.passed, verification.portable
        (True, True)
        >>> print(next(verification.summary()))
        ✓ ... files are unchanged (SHA-256)
    """

    recipe: str
    portable: bool | None
    reason: str
    differences: dict[str, float]
    files: int | None = None
    allowed: float = TOLERANCE

    @property
    def passed(self) -> bool:
        """Whether every difference is at most `allowed`."""
        return all(difference <= self.allowed for difference in self.differences.values())

    def summary(self) -> Iterator[str]:
        """Yield the lines of a summary: the comparisons, and the libraries that load the folder."""
        if self.files is None:
            yield "The folder lists no digests: it was saved by an older version of essent."
        else:
            yield f"✓ {self.files} files are unchanged (SHA-256)"
        if not self.differences:
            yield "The vectors were not compared, because nothing was loaded."
            return
        yield "Largest difference from the saved vectors, per way of loading the folder:"
        for loader, difference in self.differences.items():
            yield f"  {loader:<21}  {difference:.1e}  ✓ same vectors"
        if self.portable is False:
            yield "  sentence-transformers  –        needs essent and trust_remote_code=True"
        if self.portable:
            yield "Plain sentence-transformers loads this folder without essent."
        else:
            yield f"Plain sentence-transformers cannot load this folder: {self.reason}."


def verify(name: str, *, untrusted: bool = False) -> Verification:
    """Compare the files of a saved folder with their digests, and its vectors with the saved golden vectors.

    Without torch, a static encoder is loaded by `StaticEncoder` only.

    Args:
        name: a folder that `Encoder.save` or `essent save --format openvino` wrote, or a name on the hub.
        untrusted: compare the files only, and load nothing.

    Raises:
        ModelError: not an essent folder.
        VerificationError: a file is missing, damaged, changed, or would run code; vectors of a way of loading differ by
            more than 1e-5; or there is nothing to compare with.
        MissingDependencyError: loading the folder needs torch, which is not installed.

    Example:
        >>> from essent import Encoder, verify
        >>> Encoder("sentence-transformers/all-MiniLM-L6-v2", "first-last").save("to-verify")
        >>> verification = verify("to-verify")
        >>> sorted(verification.differences)
        ['essent', 'sentence-transformers']
        >>> max(verification.differences.values()) < 1e-5
        True
    """
    name = check_path(name)
    recover(name)
    exported = is_exported_folder(name)
    if not exported and not is_essent_folder(name, {}):
        raise ModelError(
            f"{name!r} was not saved by essent: it contains neither {STATE_FOLDER}/{ABOUT} (an encoder) nor "
            f"{STATE_FOLDER}/engine.json (a graph)."
        )
    root = folder_of(name, {})
    try:
        with damage_named(name):
            check_model(name, {})
            files = check_digests(root, whole=True) if has_digests(root) else None
            report = (_graph if exported else _encoder)(root, files, untrusted)
    except MissingDependencyError:
        raise  # not a fault of the folder
    except EssentError as error:
        raise VerificationError(f"{name!r} differs from what was saved: {error}") from error
    if files is None and not report.differences:
        raise VerificationError(f"{name!r} lists no digests to compare with. Save it again with this version.")
    if not report.passed:
        raise VerificationError(
            f"{name!r} does not reproduce its golden vectors (largest difference "
            f"{max(report.differences.values()):.1e}; allowed "
            f"{report.allowed:.0e}). The weights, the tokenizer or a library have changed since it was saved."
        )
    return report


def _encoder(root: Path, files: int | None, untrusted: bool) -> Verification:
    """Verify a folder of `Encoder.save` in every way of loading it."""
    metadata, arrays = read_about(root / STATE_FOLDER / ABOUT), read_arrays(root / STATE_FOLDER / ARRAYS)
    texts, portable, reason = metadata["golden_texts"], metadata["portable"], metadata["reason"]
    if untrusted or not texts:
        return Verification(metadata["text"], portable, reason, {}, files)
    try:
        check_torch("Loading this folder")
    except MissingDependencyError:
        if metadata["table"] is None:
            raise
        loaders: dict[str, Any] = {"StaticEncoder": StaticEncoder.load(root)}
    else:
        from essent.encoder.encoder import Encoder

        loaders = {"essent": Encoder(str(root), model_kwargs={"dtype": "auto"})}  # as it was saved
        if portable:
            from sentence_transformers import SentenceTransformer

            with opening(str(root), {}):
                loaders["sentence-transformers"] = SentenceTransformer(str(root))
    differences = {
        loader: largest_difference(model.encode(texts, show_progress_bar=False), arrays["golden"])
        for loader, model in loaders.items()
    }
    return Verification(metadata["text"], portable, reason, differences, files)


def _graph(root: Path, files: int | None, untrusted: bool) -> Verification:
    """Verify the vectors of a saved graph; for formats below float32, loading already compares cosines."""
    metadata = read_graph_metadata(root / STATE_FOLDER / "engine.json")
    engine, reason = metadata["engine"], "it contains an exported graph; use essent.load"
    if untrusted:
        return Verification(metadata["recipe"], None, reason, {}, files)
    compiled: Any = load(root)
    texts, golden = compiled.golden
    difference = largest_difference(compiled.encode(texts, prompt="", show_progress_bar=False), golden)
    allowed = TOLERANCES[engine] if compiled.precision == "float32" else np.inf
    loader = f"essent, {engine} {compiled.precision}"
    return Verification(compiled.recipe, None, reason, {loader: difference}, files, float(allowed))


# -- a server ---------------------------------------------------------------------------------------------------------


def compare_with_server(model: str, url: str, **options: Any) -> dict[str, Any]:
    """Compare a server's vectors with those of a folder or hub model.

    Args:
        model: a folder of `Encoder.save`, compared by its golden vectors; a graph or any other model is loaded.
        url: address of a server with OpenAI's `/v1/embeddings` (essent, vLLM, TEI, Infinity …). The environment
            variable OPENAI_API_KEY, if set, is sent as bearer token.
        options: keyword arguments of SentenceTransformer, for a model that is loaded.

    Returns:
        `url` of the endpoint, number of `texts`, `lowest_cosine` of a text's two vectors, `largest_difference` of an
        entry.

    Raises:
        InputError: not an http(s) address.
        ModelError: the server cannot be reached, or its answer contains no vectors.
        VerificationError: the vectors differ in width, or a cosine is too low.
    """
    check_address(url)
    texts, expected = _expected(model, options)
    base = url.rstrip("/").removesuffix("/v1/embeddings").removesuffix("/v1") + "/v1/"
    endpoint = base + "embeddings"
    try:
        name = str(_request(base + "models")["data"][0]["id"])
    except (ModelError, LookupError, TypeError):  # the server does not list its models
        name = ""
    answer = _request(endpoint, {"input": texts, "model": name, "encoding_format": "float"})
    try:
        rows = sorted(answer["data"], key=lambda row: row["index"])
        served = np.array([row["embedding"] for row in rows], dtype=np.float64).reshape(len(texts), -1)  # (N,K)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{endpoint} did not return {len(texts)} embeddings: {error!r}.") from None
    if served.shape != expected.shape:
        raise VerificationError(
            f"{endpoint} returns {served.shape[1]} dimensions, but {model!r} has {expected.shape[1]}: the server runs "
            "a different model."
        )
    row_cosines = cosines(served, expected)  # (N,)
    worst = int(row_cosines.argmin())
    if row_cosines[worst] < 1 - COSINE_TOLERANCE:
        raise VerificationError(
            f"{endpoint} does not return the vectors of {model!r}: cosine {row_cosines[worst]:.3f} for "
            f"{texts[worst]!r}. Compare the server's pooling, prompts and maximum length with the folder's."
        )
    return {
        "url": endpoint,
        "texts": len(texts),
        "lowest_cosine": float(row_cosines[worst]),
        "largest_difference": float(np.abs(served - expected).max()),
    }


def check_address(url: str) -> None:
    """Raise InputError for anything but an http(s) address."""
    if not url.startswith(("http://", "https://")):
        raise InputError(f"{url!r} is not the address of a server, such as http://127.0.0.1:8080.")


def _expected(model: str, options: dict[str, Any]) -> tuple[list[str], np.ndarray]:
    """Return texts and their vectors (N,K), float64."""
    if is_essent_folder(model, {}):
        state = folder_of(model, {}) / STATE_FOLDER
        texts, vectors = read_about(state / ABOUT)["golden_texts"], read_arrays(state / ARRAYS)["golden"]
    elif is_exported_folder(model):
        graph: Any = load(model)
        texts = graph.golden[0]
        vectors = graph.encode(texts, show_progress_bar=False)  # its golden vectors are without the default prompt
    else:
        from essent.encoder.encoder import open_as_it_is
        from essent.encoder.save import GOLDEN_TEXTS

        texts = list(GOLDEN_TEXTS)
        vectors = open_as_it_is(model, options).encode(texts, show_progress_bar=False)
    rows = [row for row, text in enumerate(texts) if text.strip()]  # servers refuse blanks
    return [texts[row] for row in rows], np.asarray(vectors, np.float64)[rows]


def _request(url: str, body: dict[str, Any] | None = None) -> Any:
    """Return the JSON that the server returns to GET, or to POST of a body."""
    key = os.environ.get("OPENAI_API_KEY")
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    content = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, content, headers)  # noqa: S310  checked by the caller
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310
            return json.load(response)
    except urllib.error.HTTPError as error:
        detail = error.read(500).decode("utf-8", "replace")
        raise ModelError(f"{url} returned {error.code} {error.reason}: {detail}") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{url} cannot be read: {error}.") from None
