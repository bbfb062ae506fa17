"""Plots of a fit; each function draws in one matplotlib Axes and returns it.

They need the extra ``closefar[plot]``.  `ax` is the Axes to draw in; by default each function
creates a new figure.  None of them shows a figure or changes matplotlib's settings.
"""

from closefar.plot.charts import (
    annotators,
    calibration,
    convergence,
    embedding,
    loadings,
    margins,
    noise_check,
    spectrum,
    truncation_path,
)

__all__ = [
    "annotators",
    "calibration",
    "convergence",
    "embedding",
    "loadings",
    "margins",
    "noise_check",
    "spectrum",
    "truncation_path",
]
