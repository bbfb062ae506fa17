"""The learned origin: from a metric on (x, 1) to a point that distances are measured from."""

from __future__ import annotations

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.rows import BlockRows

__all__ = ["find_origin"]


def find_origin(points: BlockRows, shares: Array, factor: FloatArray) -> tuple[FloatArray, float]:
    """Return the origin c and s >= 0 with |(x, 1) A|^2 = |(x - c) A_x|^2 + s for every x.

    `factor` is A with the row of the constant last, and A_x the rows above it.  Where M does not
    determine c, it is the choice closest to the mean of the points in the Mahalanobis distance of
    their covariance, so it follows the points under any change of units.  `shares`, a handle, are the weights
    of the points, which sum to one.
    """
    on_points, on_constant = factor[:-1], factor[-1]
    mean = points.weighted_sum(shares)
    cross = points.second_moment(shares, mean, np.ones(points.n_columns)) @ on_points
    wanted = -(on_constant + mean @ on_points)
    origin: FloatArray = mean + cross @ np.linalg.lstsq(on_points.T @ cross, wanted, rcond=1e-12)[0]
    slack = on_constant + origin @ on_points
    return origin, float(slack @ slack)
