"""The HTML templates of the package, and the palette that all pages share."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

__all__ = ["load_asset", "load_template"]


def load_asset(name: str) -> str:
    """Return the text of a file that pages are made of."""
    return resources.files("closefar").joinpath("templates", name).read_text(encoding="utf-8")


def load_template(name: str, needed_by: str, extra: str) -> Any:
    """Return the template `name`, which escapes what it is given and allows no unknown name."""
    try:
        import jinja2  # noqa: F401 - to say what is missing
    except ImportError as error:
        raise ImportError(f"{needed_by} needs jinja2: run pip install 'closefar[{extra}]'.") from error
    return _compiled(name)


@cache
def _compiled(name: str) -> Any:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(load_asset(name))
