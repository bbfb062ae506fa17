"""Packed products of rows: the features whose sums of squares, and whose sums over groups, a solver requests.

A row has one leg z, whose features are zz', or two: those of a comparison are those of its far leg minus those of its
near leg, which comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from closefar import packed
from closefar.arrays import Array, FloatArray
from closefar.rows.products import as_type_of, empty_like
from closefar.rows.source import slices

__all__ = ["features_of", "grouped_sums"]

Blocks = Iterable[tuple[slice, Array]]


def features_of(
    blocks: Blocks, root: Array, border: tuple[Array, ...], step: int, *, n_legs: int = 1, rough: bool = False
) -> Iterator[Array]:
    """Give root_i F_i, packed, and border_i as columns, `step` rows at a time, without the weights of packed entries.

    `blocks` are legs, each a column, and where they are among all legs; root and border have one number per row.
    """
    features: Array = None  # reused, since allocation would take longer than the products
    other: Array = None
    for where, block in blocks:
        size = packed.packed_size(int(block.shape[0]))
        if features is None:
            dtype = array_namespace(block).float32 if rough else block.dtype
            features = empty_like(block, (size + len(border), min(step, int(root.shape[0]))), dtype)
            other = None if n_legs == 1 else empty_like(block, (size, int(features.shape[1])), dtype)
        first, last = where.start // n_legs, where.stop // n_legs
        for start in range(first, last, step):
            stop = min(start + step, last)
            filled, scale = features[:, : stop - start], as_type_of(root[start:stop], features)
            columns = as_type_of(block[:, (start - first) * n_legs : (stop - first) * n_legs], features)
            _fill(columns, scale, filled, None if other is None else other[:, : stop - start])
            for line, values in enumerate(border, start=size):
                filled[line, :] = as_type_of(values[start:stop], filled)
            yield filled


def _fill(columns: Array, scale: Array, filled: Array, other: Array | None) -> None:
    if other is None:
        packed.fill_products(columns, scale, out=filled)
        return
    packed.fill_products(columns[:, 1::2], scale, out=filled)
    packed.fill_products(columns[:, 0::2], scale, out=other)
    filled[: other.shape[0], :] -= other


def grouped_sums(
    blocks: Blocks, coefficients: FloatArray, groups: NDArray[Any], n_groups: int, step: int, *, n_legs: int = 1
) -> FloatArray:
    """Return the sum of c_i F_i over the rows of each group, packed: an array of shape (n_groups, d (d + 1) / 2).

    In NumPy: features are sorted by group and added in one sweep, whatever the number of groups is.
    """
    total: FloatArray | None = None
    groups = groups.astype(np.intp, copy=False)
    for where, block in blocks:
        d, first = len(block), where.start // n_legs
        total = np.zeros((n_groups, packed.packed_size(d))) if total is None else total
        legs = block.reshape(d, -1, n_legs) if n_legs > 1 else block[:, :, None]
        for some in slices(legs.shape[1], step):
            here = slice(first + some.start, first + some.stop)
            order = np.argsort(groups[here], kind="stable")
            columns = legs[:, some][:, order].reshape(d, -1).astype(np.float64, copy=False)
            (features,) = features_of(
                [(slice(0, columns.shape[1]), columns)], coefficients[here][order], (), len(order) or 1, n_legs=n_legs
            )
            different, starts = np.unique(groups[here][order], return_index=True)
            known = different < n_groups
            if len(starts):
                total[different[known]] += np.add.reduceat(features, starts, axis=1).T[known]
    assert total is not None
    sums: FloatArray = total * packed.weights(d)
    return sums
