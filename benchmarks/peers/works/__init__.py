"""What is compared: settings, data and figures, one module for each kind of work."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

import numpy as np

__all__ = ["WORKS", "Data", "Measure", "Setting", "Work", "load_work"]

WORKS = ("pairs", "classes", "comparisons", "levels", "wrong_labels", "annotators")

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Setting:
    """A problem, which is drawn anew with every seed.

    A peer that ran out of time or memory at the setting named `smaller` is not tried at this one.
    """

    work: str
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = False  # part of --quick
    smaller: str = ""
    description: str = ""  # a sentence below the heading


@dataclass(frozen=True)
class Data:
    """What peers learn from, what they are asked, and what only the runner knows."""

    train: Arrays
    asked: Arrays
    truth: Arrays

    def fingerprint(self) -> str:
        """Return a hash of all arrays."""
        digest = hashlib.sha256()
        for arrays in (self.train, self.asked, self.truth):
            for name, array in sorted(arrays.items()):
                digest.update(f"{name} {array.dtype} {array.shape}".encode())
                digest.update(array.tobytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Measure:
    """A figure of the table."""

    name: str  # the key in the figures
    title: str
    larger_is_better: bool
    show: Callable[[float], str]


class Work(Protocol):
    """What a module of this package has."""

    TITLE: str
    SETTINGS: tuple[Setting, ...]
    MEASURES: tuple[Measure, ...]

    def make(self, setting: Setting, seed: int, options: Mapping[str, Any]) -> Data:
        """Draw the data of a setting; raises ValueError with the reason if it can't be had."""

    def figures(self, data: Data, answers: Arrays) -> dict[str, float]:
        """Return the figures of what a peer has answered."""


def load_work(name: str) -> Work:
    """Import a kind of work by its name."""
    module: Any = import_module(f"peers.works.{name}")
    return module  # type: ignore[no-any-return]
