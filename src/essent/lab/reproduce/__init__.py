"""Reproduce the papers' tables: run published tables again, and compare the figures.

For a table with a model for each of its roles:

    >>> import rich
    >>> from essent.lab.reproduce import find_table, render, run_table
    >>> rich.print(render(run_table(find_table("ditto-6"), {"bert": "bert-base-uncased"}, data="my-data")))
"""

from essent._core.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
