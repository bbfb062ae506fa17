"""The choice of the noise model that describes the labels best, and whether it is clearly better than the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import Array, FloatArray

__all__ = ["NoiseChoice", "choice_from", "choose_noise", "sums_of_losses"]

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
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    return choice_from(list(row_losses), sums_of_losses(list(row_losses.values()), shares))


def sums_of_losses(losses: Sequence[Array], shares: Array) -> FloatArray:
    """Sums over some pairs, from which `choice_from` chooses between the models with these losses of each pair.

    The first line is the mean loss of each model and the sum of squared shares; the others are, for each pair of
    models, the sums of their difference d: of w d, of w^2 d and of w^2 d^2.
    """
    xp = array_namespace(shares)
    squares = shares * shares
    sums = np.zeros((1 + len(losses) ** 2, max(len(losses) + 1, 3)))
    sums[0, : len(losses)] = [float(xp.vecdot(shares, each)) for each in losses]
    sums[0, len(losses)] = float(xp.sum(squares))
    for line, (left, right) in enumerate(product(losses, losses), start=1):
        if left is not right:
            difference = left - right
            weighted = squares * difference
            sums[line, :3] = [
                float(xp.vecdot(shares, difference)),
                float(xp.sum(weighted)),
                float(xp.vecdot(weighted, difference)),
            ]
    return sums


def choice_from(names: Sequence[str], sums: FloatArray) -> NoiseChoice:
    """Choose between models from the `sums_of_losses` of all pairs."""
    n = len(names)
    losses = dict(zip(names, sums[0, :n].tolist(), strict=True))
    best = min(losses, key=lambda name: losses[name])
    between = sums[1:].reshape(n, n, -1)[:, names.index(best)]
    comparison = {
        name: {"loss": losses[name], "difference": losses[name] - losses[best], "z": _z(line[:3], sums[0, n])}
        for name, line in zip(names, between, strict=True)
    }
    alike = [name for name in losses if name != best and comparison[name]["z"] < _SIGNIFICANT]
    return NoiseChoice(best, comparison, _warning(best, alike, comparison))


def _z(differences: FloatArray, squares: float) -> float:
    """A mean difference divided by its standard error, the root of the sum of w^2 (d - mean)^2."""
    mean, linear, square = differences
    variance = square - 2.0 * mean * linear + mean**2 * squares
    return float(mean / np.sqrt(variance)) if variance > 0.0 else 0.0


def _warning(best: str, alike: list[str], comparison: dict[str, dict[str, float]]) -> str | None:
    if not alike:
        return None
    names = " or ".join(f"{name} (z = {comparison[name]['z']:.1f})" for name in alike)
    return f"{best} noise describes the labels best, but not clearly better than {names}."
