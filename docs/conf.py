"""Sphinx settings: sphinx-build -W --keep-going -b html docs docs/_build/html."""

import re

import closefar

project = "closefar"
author = "The closefar developers"
release = version = closefar.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery"]  # auto_gallery is made of gallery

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3

napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "run_stale_examples": True,  # the package may have changed where an example has not
    "backreferences_dir": None,
    "download_all_examples": False,
    "show_signature": False,
    "capture_repr": (),
    # What took how long differs from build to build.
    "min_reported_time": 3600,
    "write_computation_times": False,
}

html_theme = "furo"
html_title = f"closefar {release}"


def escape_bars(app, what, name, obj, options, lines):
    """Keep |x| in a docstring an absolute value: outside literals reStructuredText reads it as a substitution."""
    for index, line in enumerate(lines):
        parts = re.split(r"(``.*?``)", line)
        lines[index] = "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in parts)


def setup(app):
    app.connect("autodoc-process-docstring", escape_bars)
