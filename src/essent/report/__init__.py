"""Reports: results and leaderboards as HTML pages, Markdown and pictures. No encoder is used and no score computed.

Write the results of an evaluation as a page:

    >>> from essent import evaluate
    >>> from essent.report import write_report
    >>> results = evaluate("sentence-transformers/all-MiniLM-L6-v2", ["mean"], ["duplicates.jsonl"])
    >>> write_report(results["mean"], "report.html")
"""

from essent.report.write import draw_heros, write_report

__all__ = ["draw_heros", "write_report"]
