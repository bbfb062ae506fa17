"""Sphinx settings: sphinx-build -W --keep-going -b html docs docs/_build/html."""

import re

import closefar

project = "closefar"
author = "The closefar developers"
release = version = closefar.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3

napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"

html_theme = "furo"
html_title = f"closefar {release}"


def escape_bars(app, what, name, obj, options, lines):
    """Keep |x| in a docstring an absolute value: outside literals reStructuredText reads it as a substitution."""
    for index, line in enumerate(lines):
        parts = re.split(r"(``.*?``)", line)
        lines[index] = "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in parts)


def setup(app):
    app.connect("autodoc-process-docstring", escape_bars)
