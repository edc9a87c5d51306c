"""How the site is built: `make docs`. The pages stay Markdown that reads well on its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "site"), str(HERE.parent / "src")]
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no page and no notebook asks a hub
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")])  # of notebooks
os.environ.setdefault("TQDM_DISABLE", "1")  # bars would be printed into pages
os.environ["PYTHONWARNINGS"] = "ignore"

from essent.version import __version__  # noqa: E402

project, author, copyright = "essent", "the authors of essent", "the authors of essent"
version = release = __version__
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "generated",  # the rest are files of docs/site
    "docstrings",
    "links",
    "mathml",
]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
templates_path = ["site/templates"]
default_role = "literal"
smartquotes = False  # "--option" stays as it is
nitpicky = False

myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 4
suppress_warnings = ["ref.python"]  # a type that several doors name: any of them will do

nb_execution_mode = "cache"
nb_execution_in_temp = True  # notebooks write files
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"  # libraries' notes about loading

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # other libraries' docstrings

html_theme = "furo"
html_title = f"essent {version}"
html_favicon = "site/static/favicon.svg"
html_static_path = ["site/static"]
html_css_files = ["essent.css"]
html_js_files = ["essent.js"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b57a4",
        "color-brand-content": "#0b57a4",
        "color-foreground-muted": "#5a6470",
    },
    "dark_css_variables": {
        "color-brand-primary": "#8fc1f5",
        "color-brand-content": "#8fc1f5",
        "color-foreground-muted": "#a0abb8",
    },
}
