"""The learned origin: from a metric on (x, 1) to a point that distances are measured from."""

from __future__ import annotations

import numpy as np

from closefar.arrays import Array, FloatArray, like, to_numpy
from closefar.rows import BlockRows

__all__ = ["find_origin"]


def find_origin(points: BlockRows, shares: FloatArray, factor: FloatArray) -> tuple[FloatArray, float]:
    """Return the origin c and s >= 0 with |(x, 1) A|^2 = |(x - c) A_x|^2 + s for every x.

    `factor` is A with the row of the constant last, and A_x the rows above it.  Where M does not
    determine c, it is the choice closest to the mean of the points in the Mahalanobis distance of
    their covariance, so it follows the points under any change of units.  `shares` are the weights
    of the points, which sum to one.
    """
    on_points, on_constant = factor[:-1], factor[-1]
    mean = np.sum([to_numpy(like(block, shares[where]) @ block.T) for where, block in points.blocks()], axis=0)
    cross: Array = 0.0
    for where, block in points.blocks():
        centred = block.T - like(block, mean)
        weighted = centred * like(block, shares[where])[:, None]
        cross = cross + to_numpy(weighted.T @ (centred @ like(block, on_points)))
    wanted = -(on_constant + mean @ on_points)
    origin: FloatArray = mean + cross @ np.linalg.lstsq(on_points.T @ cross, wanted, rcond=1e-12)[0]
    slack = on_constant + origin @ on_points
    return origin, float(slack @ slack)
