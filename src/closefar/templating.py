"""The HTML templates of the package, and the palette that all pages share."""

from __future__ import annotations

from importlib import resources
from typing import Any

__all__ = ["load_asset", "load_template"]


def load_asset(name: str) -> str:
    """Return the text of a file that pages are made of."""
    return resources.files("closefar").joinpath("templates", name).read_text(encoding="utf-8")


def load_template(name: str, needed_by: str, extra: str) -> Any:
    """Return the template `name`, which escapes what it is given and allows no unknown name."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise ImportError(f"{needed_by} needs jinja2: run pip install 'closefar[{extra}]'.") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(load_asset(name))
