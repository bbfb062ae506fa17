"""The pages and what they load: read once, and nothing else is served by name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from closefar.templating import load_asset, load_template

_NEEDED_BY, _EXTRA = "closefar label", "label"
_PAGES = {"/": "label.html.jinja", "/overview": "label_overview.html.jinja"}
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_NAMES = ("palette.css", "label.css", "label.js", "label_icon.svg", "label_outbox.js", "label_page.js", "overview.js")


@dataclass(frozen=True)
class Asset:
    """Something that is the same for everybody."""

    content: bytes
    media_type: str
    tag: str

    @classmethod
    def of(cls, text: str, media_type: str) -> Asset:
        content = text.encode()
        return cls(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def load_pages() -> dict[str, Asset]:
    """The pages by their paths; they hold no data, which their scripts ask for."""
    return {
        path: Asset.of(load_template(name, _NEEDED_BY, _EXTRA).render(), "text/html; charset=utf-8")
        for path, name in _PAGES.items()
    }


def load_assets() -> dict[str, Asset]:
    """What pages load, by name."""
    return {name: Asset.of(load_asset(name), _TYPES[name.rpartition(".")[2]]) for name in _NAMES}
