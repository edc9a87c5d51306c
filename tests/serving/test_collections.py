"""Collections: texts of files and of `essent encode`, the nearest of them, their map; and the page at `/`."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from essent import Encoder, StaticEncoder, embed
from essent.errors import DataError, EngineError, InputError, VerificationError
from essent.serving.collection import ON_MAP, Index
from essent.serving.explorer import explorer
from essent.serving.loading import open_collections, read_collections
from essent.serving.machine import Threads
from essent.serving.prepared import Prepared, prepare
from essent.serving.service import Service
from essent.serving.settings import Settings
from families import CORPUS, build_tokenizer
from servers import running
from static_models import table_of

TEXTS = CORPUS[:8]
PLACES = [0, 1, 2, 4, 5, 6, 7, 8]  # line 3 of the file is empty
QUERY = "a dog runs through the field"


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def by_model(expected: Callable, expected_static: Callable) -> dict[str, Callable]:
    return {"tiny": expected, "static": expected_static}


@pytest.mark.parametrize("model", ["tiny", "static"])
def test_nearest_is_exact(client: httpx.Client, by_model: dict[str, Callable], model: str) -> None:
    vectors = unit(by_model[model]([QUERY, *TEXTS]))
    cosines = vectors[1:] @ vectors[0]
    order = np.argsort(-cosines)[:3]
    found = client.post("/nearest", json={"input": QUERY, "k": 3, "model": model}).json()
    assert (found["model"], found["collection"], found["prompt"]) == (model, "things", "")
    assert [hit["row"] for hit in found["hits"]] == [PLACES[row] for row in order]
    assert [hit["text"] for hit in found["hits"]] == [TEXTS[row] for row in order]
    np.testing.assert_allclose([hit["score"] for hit in found["hits"]], cosines[order], atol=1e-5)


def test_a_text_lies_at_its_own_place(client: httpx.Client) -> None:
    drawn = client.get("/map", params={"collection": "things", "model": "tiny"}).json()
    assert drawn["texts"] == len(drawn["points"]) == 8
    assert 0 < drawn["share"] <= 1
    assert [point["row"] for point in drawn["points"]] == PLACES
    for point in drawn["points"]:
        found = client.post("/nearest", json={"input": point["text"], "k": 1}).json()
        assert found["hits"][0]["row"] == point["row"]
        for placed in (found, found["hits"][0]):
            np.testing.assert_allclose([placed["x"], placed["y"]], [point["x"], point["y"]], atol=1e-4)


def test_which_collections_there_are(client: httpx.Client) -> None:
    listed = client.get("/collections").json()
    assert listed == {"collections": [{"name": "things", "texts": 8, "models": ["tiny", "static"]}]}


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"input": QUERY, "k": 101}, 400, "k"),
        ({"input": QUERY, "k": 0}, 400, "k"),
        ({"input": ""}, 400, "input"),
        ({"input": [QUERY]}, 400, "input"),
        ({"input": QUERY, "collection": "../things"}, 404, "collection"),
        ({"input": QUERY, "model": "none"}, 404, "model"),
        ({"input": QUERY, "prompt_name": "none"}, 400, "prompt_name"),
        ({"input": "word " * 300}, 400, "input"),
    ],
)
def test_wrong_requests(client: httpx.Client, body: dict, status: int, param: str) -> None:
    answer = client.post("/nearest", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
    assert QUERY not in answer.text


def test_a_server_without_texts(static: Prepared) -> None:
    with running([static], no_page=True) as server:
        assert httpx.get(server.url + "/collections").json() == {"collections": []}
        answer = httpx.post(server.url + "/nearest", json={"input": QUERY})
        assert answer.status_code == 404
        assert "--texts" in answer.json()["error"]["message"]
        assert httpx.get(server.url + "/map").status_code == 404
        assert httpx.get(server.url, headers={"accept": "text/html"}).content == b""


# -- what is loaded ---------------------------------------------------------------------------------------------------


def loaded(models: list[Prepared], *texts: object, **settings: object) -> tuple[dict, list[str]]:
    """What a server would load, and what it says."""
    chosen, notes = Settings(texts=[Path(str(text)) for text in texts], **settings), []

    async def load() -> dict:
        service = Service(models, chosen, Threads(1, 1))
        try:
            await service.start()
            return await open_collections(service, read_collections(chosen), notes.append, False)
        finally:
            await service.stop()

    return asyncio.run(load()), notes


@pytest.fixture(scope="module")
def parts(static_folder: Path, texts_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `essent encode` makes of the texts, one of which is empty, in two parts."""
    folder = tmp_path_factory.mktemp("embedded")
    lines = texts_file.read_text("utf-8").splitlines(keepends=True)
    for name, some in (("a", lines[:5]), ("b", lines[5:])):
        (folder / f"{name}.txt").write_text("".join(some), "utf-8")
    embed([folder / "a.txt", folder / "b.txt"], StaticEncoder.load(static_folder), folder / "parts")
    assert len(list((folder / "parts").glob("part-*"))) == 2
    return folder / "parts"


def test_what_embed_wrote_is_taken_by_the_model_that_gives_it(static: Prepared, parts: Path, by_model: dict) -> None:
    found, notes = loaded([static], f"faq={parts}")
    assert found["faq"].texts == TEXTS
    assert found["faq"].places.tolist() == PLACES
    np.testing.assert_allclose(found["faq"].indexes["static"].unit, unit(by_model["static"](TEXTS)), atol=1e-6)
    assert notes == ["faq: 8 texts for static, 0 MB."]


@pytest.mark.parametrize("options", [{"dtype": "int8"}, {"dtype": "float16", "vectors": "fixed"}, {"prompt": "the "}])
def test_number_formats_and_prompts_of_embed(
    static: Prepared, static_folder: Path, texts_file: Path, tmp_path: Path, by_model: dict, options: dict
) -> None:
    embed(texts_file, StaticEncoder.load(static_folder), tmp_path / "parts", **options)
    found, _ = loaded([static], tmp_path / "parts")
    wanted = unit(by_model["static"]([options.get("prompt", "") + text for text in TEXTS]))
    np.testing.assert_allclose(found["parts"].indexes["static"].unit, wanted, atol=1e-2)


def test_pieces_of_texts(static: Prepared, static_folder: Path, tmp_path: Path, by_model: dict) -> None:
    (tmp_path / "long.txt").write_text(f"{TEXTS[0]} {TEXTS[1]}\n{TEXTS[2]}\n", "utf-8")
    encoder = StaticEncoder.load(static_folder)
    embed(tmp_path / "long.txt", encoder, tmp_path / "rows", chunk="sentences")
    embed(tmp_path / "long.txt", encoder, tmp_path / "means", chunk="sentences", chunk_rows="mean")
    found, _ = loaded([static], tmp_path / "rows", tmp_path / "means")
    assert found["rows"].texts == TEXTS[:3]
    assert found["means"].texts == [f"{TEXTS[0]} {TEXTS[1]}", TEXTS[2]]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A static encoder with the same tokens, width and recipe as `static`, and other rows."""
    folder, tokenizer = tmp_path_factory.mktemp("served") / "other", build_tokenizer("wordpiece").backend_tokenizer
    table = StaticEmbedding(tokenizer, table_of(tokenizer, seed=1))
    Encoder(SentenceTransformer(modules=[table], device="cpu"), "static | normalize").save(str(folder))
    return prepare(str(folder), "auto", folder.parent / "unused")


def test_vectors_of_another_model_are_refused(
    static: Prepared,
    other: Prepared,
    graph: Prepared,
    static_folder: Path,
    texts_file: Path,
    parts: Path,
    tmp_path: Path,
) -> None:
    found, _ = loaded([other, static], parts)
    assert list(found["parts"].indexes) == ["static"]
    with pytest.raises(VerificationError, match=r"another model .*other gives vectors that are off by .* of its texts"):
        loaded([other], parts)
    with pytest.raises(VerificationError, match="tiny has 32 dimensions, not 12"):
        loaded([graph], parts)
    embed(texts_file, StaticEncoder.load(static_folder), tmp_path / "means", chunk="tokens:2", chunk_rows="mean")
    with pytest.raises(VerificationError, match="no row has the vector of its whole text"):
        loaded([static], tmp_path / "means")


def test_prompts_for_texts_and_queries(static: Prepared, texts_file: Path, by_model: dict) -> None:
    """Also where sentence-transformers has added its empty `document` to the prompts that a model came with."""
    prompted = replace(static, prompts={"query": "two dogs ", "document": "", "passage": "the kitten "})
    found, notes = loaded([prompted], texts_file)
    wanted = unit(by_model["static"]([f"the kitten {text}" for text in TEXTS]))
    np.testing.assert_allclose(found["things"].indexes["static"].unit, wanted, atol=1e-6)
    assert notes[0] == "things: 8 texts are encoded by static with its prompt 'passage'."
    with running([prompted], texts=[texts_file]) as server:
        answers = [httpx.post(server.url + "/nearest", json={"input": "run", **more}).json()
                   for more in ({}, {"prompt_name": "document"})]  # fmt: skip
    for answer, text in zip(answers, ("two dogs run", "run"), strict=True):
        assert answer["prompt"] + "run" == text
        best = float((wanted @ unit(by_model["static"]([text])[0])).max())
        assert answer["hits"][0]["score"] == pytest.approx(best, abs=1e-5)


def test_texts_are_encoded_within_the_limits_of_a_request(
    static: Prepared, texts_file: Path, by_model: dict, tmp_path: Path
) -> None:
    found, _ = loaded([static], texts_file, max_request_tokens=30)
    np.testing.assert_allclose(found["things"].indexes["static"].unit, unit(by_model["static"](TEXTS)), atol=1e-6)
    (tmp_path / "long.txt").write_text("dogs " * 31, "utf-8")
    with pytest.raises(EngineError, match=r"long.txt cannot be encoded: The request has 31 tokens"):
        loaded([static], tmp_path / "long.txt", max_request_tokens=30)


def test_wrong_files(static: Prepared, static_folder: Path, texts_file: Path, parts: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="different names"):
        loaded([static], texts_file, f"things={parts}")
    with pytest.raises(InputError, match="has 8 texts, and a collection has at most 7"):
        loaded([static], texts_file, max_texts=7)
    with pytest.raises(DataError, match="has 9 rows, and at most 8"):
        loaded([static], parts, max_texts=8)
    with pytest.raises(DataError, match="no parts of `essent encode`"):
        loaded([static], tmp_path)
    (tmp_path / "empty.txt").write_text("\n\n", "utf-8")
    with pytest.raises(DataError, match="has no texts"):
        loaded([static], tmp_path / "empty.txt")
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\na dog runs,good\n", "utf-8")
    embed(rows, StaticEncoder.load(static_folder), tmp_path / "labels", id=("label",))
    with pytest.raises(DataError, match="no column 'text' with the texts, only embedding, label, status"):
        loaded([static], tmp_path / "labels")
    found, _ = loaded([static], rows, column="label")
    assert found["rows"].texts == ["good"]


# -- index and map ----------------------------------------------------------------------------------------------------


def test_of_equal_texts_the_first_come_first() -> None:
    index = Index(np.array([[0, 1], [2, 0], [0, 3], [1, 0], [0, 0], [5, 0]], np.float32))
    rows, scores = index.nearest(np.array([1, 0], np.float32), 2)
    assert (rows.tolist(), scores.tolist()) == ([1, 3], [1.0, 1.0])
    rows, scores = index.nearest(np.array([1, 0], np.float32), 100)
    assert rows.tolist() == [1, 3, 5, 0, 2, 4]
    assert scores[-1] == 0  # a text without known words


@pytest.mark.parametrize("texts", [300, 6])
def test_the_map_is_by_principal_components(texts: int) -> None:
    vectors = np.random.default_rng(0).standard_normal((texts, 8)) * [5, 3, 1, 1, 1, 1, 1, 1]
    plane = Index(vectors).plane
    centred = unit(vectors) - unit(vectors).mean(axis=0)
    variances = np.linalg.eigvalsh(centred.T @ centred)[::-1]
    np.testing.assert_allclose((plane.points**2).sum(axis=0), variances[:2], rtol=1e-4)
    assert plane.share == pytest.approx(variances[:2].sum() / variances.sum(), rel=1e-4)


@pytest.mark.parametrize("shape", [(1, 4), (2, 4), (5, 1), (ON_MAP + 7, 3)])
def test_maps_of_few_and_of_many(shape: tuple[int, int]) -> None:
    plane = Index(np.random.default_rng(1).standard_normal(shape)).plane
    assert plane.points.shape == (min(shape[0], ON_MAP), 2)
    assert np.isfinite(plane.points).all()
    assert len(set(plane.rows.tolist())) == len(plane.rows)


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_is_sent_with_its_policy(client: httpx.Client) -> None:
    answer = client.get("/", headers={"accept": "text/html,*/*;q=0.8"})
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["connect-src"], policy["frame-ancestors"]) == ("'none'", "'self'", "'none'")
    for tag in ("script", "style"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, flags=re.DOTALL)
        assert policy[f"{tag}-src"] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert not re.findall(r"(?:src|href|action)=\"(?!data:,|#)", answer.text)
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3\.org/2000/svg)", answer.text
    )
    assert client.get("/").content == b""
    assert client.post("/", headers={"accept": "text/html"}, json={"inputs": "a dog"}).json()[0]


def test_the_page_needs_no_key_and_everything_else_does(static: Prepared, texts_file: Path) -> None:
    with running([static], ("secret",), texts=[texts_file]) as server:
        assert httpx.get(server.url, headers={"accept": "text/html"}).content == explorer().html
        for method, path in (
            ("GET", "/collections"),
            ("GET", "/map"),
            ("POST", "/nearest"),
            ("POST", "/"),
            ("PUT", "/"),
        ):
            assert httpx.request(method, server.url + path, json={}).status_code == 401, path
