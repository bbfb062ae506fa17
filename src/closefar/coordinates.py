"""Unit-free coordinates: the solver's own, in which the rows have identity second moment.

Under z -> Uz the optimum maps to U^-T M U^-1 (section "Invariance to Changes in Unit
of Input"), so the solver may choose its units.  Columns are scaled first; only then
is a decomposition formed, so neither units nor their range can hurt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

__all__ = ["Coordinates", "find_coordinates"]

Block = tuple[slice, np.ndarray]

# The Gram matrix squares the condition number: below this smallest eigenvalue (of scaled columns) use QR.
_GRAM_IS_SAFE = 1e-7


@dataclass(frozen=True)
class Coordinates:
    """The map ``w = transform' z + offset`` from rows to unit-free coordinates.

    `offset` is None unless the rows carry a constant 1 (a learned origin).
    """

    transform: np.ndarray
    offset: np.ndarray | None

    @property
    def n_directions(self) -> int:
        """How many directions have variance; the rest of them get no weight."""
        return int(self.transform.shape[1])

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """Map rows to columns of coordinates."""
        mapped = self.transform.T @ rows.T
        if self.offset is not None:
            mapped += self.offset[:, None]
        return mapped

    def to_units(self, factor: np.ndarray) -> np.ndarray:
        """Map a factor back to the user's units, the learned origin's row last."""
        augmented = self.transform if self.offset is None else np.vstack([self.transform, self.offset])
        return augmented @ factor


def find_coordinates(
    blocks: Callable[[], Iterator[Block]], weights: np.ndarray, *, with_constant: bool = False
) -> Coordinates:
    """Find coordinates whose weighted second moment is the identity.

    `blocks` starts a pass over the rows; `weights` sum to one.  Directions that do not
    vary, to rounding, are dropped.
    """

    def scaled_blocks() -> Iterator[np.ndarray]:
        for where, rows in blocks():
            scaled = np.empty((len(rows), len(scale)))
            np.divide(rows, scale[: rows.shape[1]], out=scaled[:, : rows.shape[1]])
            scaled[:, rows.shape[1] :] = 1.0
            scaled *= np.sqrt(weights[where])[:, None]
            yield scaled

    largest = np.max([np.max(np.abs(rows), axis=0) for _, rows in blocks()], axis=0)
    scale = np.append(largest, 1.0) if with_constant else largest
    scale = np.where(scale > 0, scale, 1.0)
    gram = sum(rows.T @ rows for rows in scaled_blocks())
    length = np.sqrt(np.diag(gram))
    length[length == 0] = 1.0
    moments, directions = np.linalg.eigh(gram / np.outer(length, length))
    if moments[0] > _GRAM_IS_SAFE * moments[-1]:
        spread = np.sqrt(moments)
    else:
        triangle = np.empty((0, len(scale)))
        for rows in scaled_blocks():
            triangle = np.linalg.qr(np.vstack([triangle, rows]), mode="r")
        spread, directions = _singular_directions(triangle / length)
    keep = spread > 1e-12 * np.sqrt(len(scale)) * spread.max(initial=0.0)
    transform = directions[:, keep] / spread[keep] / (scale * length)[:, None]
    if with_constant:
        return Coordinates(transform[:-1], transform[-1])
    return Coordinates(transform, None)


def _singular_directions(triangle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, spread, directions = np.linalg.svd(triangle, full_matrices=True)
    missing = directions.shape[0] - len(spread)
    return np.append(spread, np.zeros(missing)), directions.T
