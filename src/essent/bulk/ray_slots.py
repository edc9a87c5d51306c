"""How many workers a Ray cluster is to have, where, and with what of its CPUs and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from essent._core.lazy import optional_import
from essent.bulk.job import Job
from essent.bulk.models import Model
from essent.static.encoder import StaticEncoder


def may_use_gpus(job: Job, model: Model) -> bool:
    """Whether the model runs on GPUs where there are some."""
    device = str(job.spec.options.get("device") or "")
    return not (isinstance(model.encoder, StaticEncoder) or hasattr(model.encoder, "engine_module") or "cpu" in device)


def wanted_slots(
    nodes: Mapping[str, Mapping[str, Any]], workers: int | None, cpus: int, gpus: bool
) -> dict[Any, dict[str, Any]]:
    """Ray's options for every worker that there should be.

    Args:
        nodes: those that are alive, by their number.
        workers: how many anywhere, of so many `cpus` each; None: one for every GPU, or for every node with CPUs.
        gpus: whether GPUs are used where there are some.
    """
    gpus = gpus and any(_has(node, "GPU") for node in nodes.values())
    if workers is not None:
        options = {"num_cpus": cpus, "num_gpus": int(gpus), "scheduling_strategy": "SPREAD"}
        return dict.fromkeys(range(workers), options)
    affinity = optional_import("ray.util.scheduling_strategies", "ray").NodeAffinitySchedulingStrategy
    found = {}
    for number, node in nodes.items():
        count = _has(node, "GPU") if gpus else min(1, _has(node, "CPU"))
        for place in range(count):
            options = {"num_cpus": _has(node, "CPU") // count, "num_gpus": int(gpus)}
            found[number, place] = options | {"scheduling_strategy": affinity(number, soft=False)}
    return found


def cpus_a_worker(nodes: Mapping[str, Mapping[str, Any]], workers: int) -> int:
    """The most CPUs that so many workers can each have; 1 where there are not enough for them."""
    counts = [_has(node, "CPU") for node in nodes.values()]
    fitting = (cpus for cpus in range(max(counts, default=1), 0, -1) if sum(n // cpus for n in counts) >= workers)
    return next(fitting, 1)


def _has(node: Mapping[str, Any], kind: str) -> int:
    return int(node["Resources"].get(kind, 0))
