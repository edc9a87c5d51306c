"""Numbers for Prometheus: essent's own, and those of TEI under TEI's names, so that its dashboards work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import Metric

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


class Metrics:
    """Counts and times of one server.

    Args:
        gauges: numbers that are read when they are asked for, by their names.
    """

    def __init__(self, gauges: dict[str, tuple[str, Callable[[], float]]]) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry()
        self._gauges = gauges
        self._tei: defaultdict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)
        self.registry.register(self)  # it has `collect`
        self._requests = Counter(
            "essent_requests", "Requests by path and status.", ["path", "status"], registry=self.registry
        )
        self._tokens = Counter("essent_tokens", "Tokens that models have read.", ["model"], registry=self.registry)
        self._truncated = Counter("essent_truncated_texts", "Texts that were cut.", registry=self.registry)
        histograms = {
            "duration": ("te_request_duration", "Seconds of a request.", SECONDS),
            "tokenising": ("te_request_tokenization_duration", "Seconds of tokenising.", SECONDS),
            "waiting": ("te_request_queue_duration", "Seconds in the queue.", SECONDS),
            "running": ("te_request_inference_duration", "Seconds of the engine.", SECONDS),
            "length": ("te_request_input_length", "Tokens of a text.", SIZES),
            "batch_size": ("te_batch_next_size", "Texts in a batch.", SIZES),
            "batch_tokens": ("te_batch_next_tokens", "Tokens in a batch.", SIZES),
        }
        self._histograms = {
            key: Histogram(name, text, buckets=buckets, registry=self.registry)
            for key, (name, text, buckets) in histograms.items()
        }

    def collect(self) -> Iterator[Metric]:
        """TEI's counters, whose names do not end as those of prometheus-client do, and numbers read just now."""
        names = {name for name, _ in self._tei} | {"te_request_count", "te_request_success", "te_request_failure"}
        for name in sorted(names):
            metric = Metric(name, "As text-embeddings-inference counts.", "unknown")
            for (of, labels), value in self._tei.items():
                if of == name:
                    metric.add_sample(name, dict(labels), value)
            yield metric
        for name, (text, read) in self._gauges.items():
            metric = Metric(name, text, "gauge")
            metric.add_sample(name, {}, read())
            yield metric

    def answered(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(path, str(status)).inc()
        if method != "POST":
            return
        self._tei["te_request_count", (("method", path.strip("/") or "predict"),)] += 1
        if status < 400:
            self._tei["te_request_success", (("method", path.strip("/") or "predict"),)] += 1
            self._histograms["duration"].observe(seconds)
        else:
            self._tei["te_request_failure", (("err", str(status)),)] += 1

    def embedded(self, model: str, embedded: Any) -> None:
        """Count what was done for the texts of a request, an `Embedded`."""
        self._tokens.labels(model).inc(int(embedded.tokens.sum()))
        self._truncated.inc(len(embedded.truncated))
        for key in ("tokenising", "waiting", "running"):
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
