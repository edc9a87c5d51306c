"""Results as pages and pictures. Nothing here sees an encoder or computes a score: results go in, files come out.

What `essent evaluate --json` wrote, as a page:

    from essent.report import write_report
    from essent.tasks import load_results

    write_report(load_results("results.json"), "report.html")
"""

from essent.report.colours import page_colours
from essent.report.heat import FAINT, INK, draw_heros, heat_map, shortened
from essent.report.labels import short_name, short_paths
from essent.report.parts import Column, Number, Point, Points, Report, Section, Table
from essent.report.read import read_results
from essent.report.write import TITLE, WRITERS, check_library, write_arranged, write_report

__all__ = [
    "FAINT",
    "INK",
    "TITLE",
    "WRITERS",
    "Column",
    "Number",
    "Point",
    "Points",
    "Report",
    "Section",
    "Table",
    "check_library",
    "draw_heros",
    "heat_map",
    "page_colours",
    "read_results",
    "short_name",
    "short_paths",
    "shortened",
    "write_arranged",
    "write_report",
]
