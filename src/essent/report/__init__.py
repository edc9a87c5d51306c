"""Results as pages and pictures. Nothing here sees an encoder or computes a score: results go in, files come out.

What `essent evaluate --json` wrote, as a page:

    from essent.report import write_report
    from essent.tasks import load_results

    write_report(load_results("results.json"), "report.html")
"""

from essent.report.colours import page_colours as page_colours
from essent.report.heat import FAINT as FAINT
from essent.report.heat import INK as INK
from essent.report.heat import draw_heros
from essent.report.heat import heat_map as heat_map
from essent.report.heat import shortened as shortened
from essent.report.labels import short_name as short_name
from essent.report.labels import short_paths as short_paths
from essent.report.parts import Column as Column
from essent.report.parts import Number as Number
from essent.report.parts import Point as Point
from essent.report.parts import Points as Points
from essent.report.parts import Report as Report
from essent.report.parts import Section as Section
from essent.report.parts import Table as Table
from essent.report.read import read_results
from essent.report.write import TITLE as TITLE
from essent.report.write import WRITERS as WRITERS
from essent.report.write import check_library as check_library
from essent.report.write import write_arranged as write_arranged
from essent.report.write import write_report

__all__ = [
    "draw_heros",
    "read_results",
    "write_report",
]
