"""How the documentation is built: ``make docs``."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "_ext"), str(Path(__file__).parents[1])]

project = "adaptive-dp"
author = "The adaptive-dp authors"
copyright = author
version = release = installed("adaptive-dp")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_parser",
    "api",
    "mathml",
]
exclude_patterns = ["_build", "_ext"]
default_role = "code"
highlight_language = "text"  # of blocks that name none

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
html_math_renderer = "mathml"

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "adaptive-dp"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
