"""Sphinx extension: formulas as MathML, which browsers draw by themselves, with no script, font or network."""

import re
from html import unescape
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
_ROWS = ("math", "mrow", "mstyle", "mtd")
_SCRIPTED = ("msub", "msup", "msubsup", "munder")
_THIN_SPACE = "0.1667em"
_APPLICATION = "\N{FUNCTION APPLICATION}"  # which browsers do not show

ElementTree.register_namespace("", _NAMESPACE)


def to_mathml(tex, is_block=False):
    """Return a formula in LaTeX as one ``<math>`` element."""
    # docutils reads \tfrac12 as a fraction of 12.
    tex = re.sub(r"(\\[td]?frac) ?(\d) ?(\d|[a-zA-Z]|\\[a-zA-Z]+)", r"\1{\2}{\3}", tex)
    text = latex2mathml.tex2mathml(tex.strip(), as_block=is_block)
    formula = ElementTree.fromstring(re.sub(r"&(?!lt;|gt;|amp;)\w+;", lambda entity: unescape(entity[0]), text))
    for row in formula.iter():
        if _tag(row) in _ROWS:
            _separate_functions(row)
    return ElementTree.tostring(formula, encoding="unicode")


def _separate_functions(row):
    """Put a thin space between the name of a function and its neighbours, as LaTeX does: log x, not logx."""
    parts = [part for part in row if part.text != _APPLICATION]
    spaced = []
    for left, right in zip([None, *parts], [*parts, None], strict=True):
        if left is not None:
            spaced.append(left)
        if left is None or right is None or not (_is_function(left) or _is_function(right)):
            continue
        if not {_tag(left), _tag(right)} & {"mo", "mspace", "mtext"}:
            spaced.append(ElementTree.Element(f"{{{_NAMESPACE}}}mspace", width=_THIN_SPACE))
    row[:] = spaced


def _is_function(element):
    name = element[0] if _tag(element) in _SCRIPTED else element
    return _tag(name) in ("mi", "mo") and re.fullmatch(r"[a-z]{2,}", name.text or "") is not None


def _tag(element):
    return element.tag.removeprefix(f"{{{_NAMESPACE}}}")


def visit_math(writer, node):
    is_block = isinstance(node, nodes.math_block)
    try:
        formula = to_mathml(node.astext(), is_block)
    except MathError as error:
        logging.getLogger(__name__).warning("%s In: %s", error, node.astext(), location=node)
    else:
        writer.body.append(f'<div class="math">{formula}</div>' if is_block else formula)
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    return {"parallel_read_safe": True}
