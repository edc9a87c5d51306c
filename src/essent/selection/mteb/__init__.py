"""MTEB, both ways: tasks of essent for `mteb.evaluate`, and what MTEB has saved as results of essent.

    import mteb
    from essent.selection.mteb import identify, read_mteb_results, to_mteb
    from essent.tasks import load_task

    mteb.evaluate(identify(encoder, "me/minilm-zscore"), [to_mteb(load_task("stsb"))])
    read_mteb_results("~/.cache/mteb/results/me__minilm-zscore")

Source: Muennighoff et al. 2023, "MTEB: Massive Text Embedding Benchmark"; layout and interfaces are those of mteb 2.
"""

from essent.selection.mteb.models import identify
from essent.selection.mteb.results import read_mteb_results
from essent.selection.mteb.tasks import to_mteb

__all__ = ["identify", "read_mteb_results", "to_mteb"]
