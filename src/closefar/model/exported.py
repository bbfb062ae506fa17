"""What exports to other programs need: the parts of a metric, and optional packages."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from closefar.arrays import FloatArray
from closefar.noise import FlipRate, Noise

__all__ = ["Exported", "import_extra"]


class Exported(Protocol):
    """The parts of a metric that exports contain."""

    @property
    def factor(self) -> FloatArray: ...

    @property
    def components(self) -> FloatArray: ...

    @property
    def thresholds(self) -> tuple[float, ...]: ...

    @property
    def noise(self) -> Noise: ...

    @property
    def feature_names(self) -> tuple[str, ...] | None: ...

    @property
    def origin(self) -> FloatArray | None: ...

    @property
    def flip_rate(self) -> FlipRate: ...


def import_extra(name: str, needed_by: str) -> Any:
    """Import a package from the extra of the same name; the error says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{needed_by} needs {name}: run pip install 'closefar[{name}]'.") from error
