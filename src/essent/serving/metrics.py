"""Numbers for Prometheus: essent's own, and those of TEI under TEI's names, so that its dashboards work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


class Metrics:
    """Counts and times of one server.

    Args:
        gauges: numbers that are read when they are asked for, and what they are, by their names.
    """

    def __init__(self, gauges: dict[str, tuple[str, Callable[[], float]]]) -> None:
        disable_created_metrics()
        registry = self.registry = CollectorRegistry()
        for name, (text, read) in gauges.items():
            Gauge(name, text, registry=registry).set_function(read)
        self._requests = Counter(
            "essent_requests", "Requests by path and status.", ["path", "status"], registry=registry
        )
        self._tokens = Counter("essent_tokens", "Tokens that models have read.", ["model"], registry=registry)
        self._truncated = Counter("essent_truncated_texts", "Texts that were cut.", registry=registry)
        self._tei = {  # gauges, as the names of prometheus-client's counters end in _total
            name: Gauge(f"te_request_{name}", "As text-embeddings-inference counts.", [label], registry=registry)
            for name, label in (("count", "method"), ("success", "method"), ("failure", "err"))
        }
        histograms = {
            "duration": ("te_request_duration", "Seconds of a request.", SECONDS),
            "tokenizing": ("te_request_tokenization_duration", "Seconds of tokenizing.", SECONDS),
            "waiting": ("te_request_queue_duration", "Seconds in the queue.", SECONDS),
            "running": ("te_request_inference_duration", "Seconds of the engine.", SECONDS),
            "length": ("te_request_input_length", "Tokens of a text.", SIZES),
            "batch_size": ("te_batch_next_size", "Texts in a batch.", SIZES),
            "batch_tokens": ("te_batch_next_tokens", "Tokens in a batch.", SIZES),
        }
        self._histograms = {
            key: Histogram(name, text, buckets=buckets, registry=registry)
            for key, (name, text, buckets) in histograms.items()
        }

    def answered(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(path, str(status)).inc()
        if method != "POST":
            return
        name = path.strip("/") or "predict"
        self._tei["count"].labels(name).inc()
        if status < 400:
            self._tei["success"].labels(name).inc()
            self._histograms["duration"].observe(seconds)
        else:
            self._tei["failure"].labels(str(status)).inc()

    def embedded(self, model: str, embedded: Any) -> None:
        """Count what was done for the texts of a request, an `Embedded`."""
        self._tokens.labels(model).inc(int(embedded.tokens.sum()))
        self._truncated.inc(len(embedded.truncated))
        for key in ("tokenizing", "waiting", "running"):
            self._histograms[key].observe(getattr(embedded, key))
        for tokens in embedded.tokens[:64].tolist():
            self._histograms["length"].observe(tokens)

    def batch(self, batch: Any) -> None:
        """Count a batch."""
        self._histograms["batch_size"].observe(len(batch.texts))
        self._histograms["batch_tokens"].observe(sum(len(ids) for ids in batch.sequences))

    def text(self) -> bytes:
        """All numbers as Prometheus reads them."""
        return generate_latest(self.registry)
