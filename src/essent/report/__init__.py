"""Results as pages and pictures. Nothing here sees an encoder or computes a score: results go in, files come out.

What `essent evaluate --json` wrote, as a page:

    from essent.report import write_report
    from essent.tasks import load_results

    write_report(load_results("results.json"), "report.html")
"""

from essent.report.read import read_results
from essent.report.write import draw_heros, write_report

__all__ = ["draw_heros", "read_results", "write_report"]
