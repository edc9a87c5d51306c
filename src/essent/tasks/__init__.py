"""Evaluation tasks: a catalogue of data sets, one class per kind of labels, and results as plain values.

A task does not depend on essent's encoders. It calls `encode(list of N texts) -> (N,D)` of any model, or such a
function:

    >>> from essent import Encoder
    >>> from essent.tasks import load_task
    >>> result = load_task("duplicates.jsonl").run(Encoder("sentence-transformers/all-MiniLM-L6-v2"))
    >>> round(result.main_score, 1)
    100.0
"""

from essent._core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
