"""Sphinx settings: sphinx-build -W --keep-going -b html docs docs/_build/html."""

import re
import struct
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from sphinx.util import logging

import closefar

sys.path.insert(0, str(Path(__file__).parent))  # for mathml

project = "closefar"
author = "The closefar developers"
project_copyright = author
release = version = closefar.__version__

extensions = ["mathml", "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_gallery.gen_gallery"]
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
html_math_renderer = "mathml"
html_title = f"closefar {release}"


def escape_bars(app, what, name, obj, options, lines):
    """Keep |x| in a docstring an absolute value: outside literals reStructuredText reads it as a substitution."""
    for index, line in enumerate(lines):
        parts = re.split(r"(``.*?``)", line)
        lines[index] = "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in parts)


def add_picture_sizes(app, exception):
    """Give each picture of the pages its size in pixels, so that a page does not jump while it loads."""
    for page in Path(app.outdir).rglob("*.html") if exception is None else ():
        html = page.read_text(encoding="utf-8")
        sized = re.sub(r'<img (?![^>]*\bwidth=)[^>]*?src="([^":]+)"', partial(with_size, page.parent), html)
        if sized != html:
            page.write_text(sized, encoding="utf-8")


def with_size(folder, image):
    width, height = picture_size(folder / image[1])
    return f'{image[0]} width="{width}" height="{height}"'


def picture_size(path):
    """Return width and height in pixels, of which there are 96 in an inch of 72 points."""
    if path.suffix == ".svg":
        _, _, *points = map(float, ElementTree.parse(path).getroot().attrib["viewBox"].split())
        return tuple(round(length * 96 / 72) for length in points)
    return struct.unpack(">II", path.read_bytes()[16:24])  # of a PNG


def warn_of_outside_requests(app, exception):
    """Warn of a page that asks the network for something: the documentation is read offline as well."""
    for page in Path(app.outdir).rglob("*.html") if exception is None else ():
        for tag in re.findall(
            r'<(?:script|link|img)\b[^>]*(?:src|href)="(?:https?:)?//[^>]*>', page.read_text("utf-8")
        ):
            logging.getLogger(__name__).warning("%s makes an outside request: %s", page.name, tag)


def setup(app):
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("build-finished", add_picture_sizes)
    app.connect("build-finished", warn_of_outside_requests)
