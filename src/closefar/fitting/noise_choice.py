"""The choice of the noise model that describes the labels best, and whether it is clearly better than the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from closefar.arrays import FloatArray

__all__ = ["NoiseChoice", "choose_noise"]

_SIGNIFICANT = 1.96


@dataclass(frozen=True)
class NoiseChoice:
    """The noise model with the highest likelihood, and how clearly it is better than the others.

    Attributes
    ----------
    name : str
        The model with the lowest mean loss.
    comparison : dict
        For each model its mean ``loss``, the ``difference`` from the loss of the chosen model, and
        ``z``, that difference divided by its standard error.
    warning : str or None
        A sentence if the chosen model is not clearly better than some other.
    """

    name: str
    comparison: dict[str, dict[str, float]]
    warning: str | None


def choose_noise(row_losses: Mapping[str, FloatArray], weights: FloatArray) -> NoiseChoice:
    """Choose by likelihood; the models have the same number of parameters, so no correction is needed.

    Vuong's test for non-nested models decides whether a model is clearly better: it compares the
    mean difference of row losses with its standard error.

    Parameters
    ----------
    row_losses : mapping from names to arrays of shape (n,)
        -log P(label) of each pair under each fitted model, for the same pairs.
    weights : array of shape (n,)
        The weights of the fit; for `z` they are importance weights, not repeated pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from closefar.fitting import choose_noise
    >>> losses = {"logistic": np.array([0.3, 0.1, 0.2, 0.4]), "normal": np.array([0.4, 0.2, 0.2, 0.5])}
    >>> choice = choose_noise(losses, np.ones(4))
    >>> choice.name, round(choice.comparison["normal"]["z"], 2), choice.warning
    ('logistic', 3.46, None)
    """
    if not row_losses:
        raise ValueError("row_losses must contain the losses of at least one noise model; got none.")
    weights = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    losses = {name: float(weights @ rows) for name, rows in row_losses.items()}
    best = min(losses, key=lambda name: losses[name])
    comparison = {
        name: {
            "loss": losses[name],
            "difference": losses[name] - losses[best],
            "z": _z(rows - row_losses[best], weights),
        }
        for name, rows in row_losses.items()
    }
    alike = [name for name in losses if name != best and comparison[name]["z"] < _SIGNIFICANT]
    return NoiseChoice(best, comparison, _warning(best, alike, comparison))


def _z(difference: FloatArray, weights: FloatArray) -> float:
    mean = float(weights @ difference)
    error = float(np.sqrt(np.sum((weights * (difference - mean)) ** 2)))
    return mean / error if error > 0 else 0.0


def _warning(best: str, alike: list[str], comparison: dict[str, dict[str, float]]) -> str | None:
    if not alike:
        return None
    names = " or ".join(f"{name} (z = {comparison[name]['z']:.1f})" for name in alike)
    return f"{best} noise describes the labels best, but not clearly better than {names}."
