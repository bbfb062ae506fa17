"""Whether the labels of a fit are enough to test it."""

from __future__ import annotations

import numpy as np

from closefar.arrays import IndexArray
from closefar.fitting import Fit
from closefar.questions.dependence import Dependence
from closefar.questions.moves import MOST_MOVES
from closefar.questions.score_tests import LabelScores

__all__ = ["FEWEST_UNCERTAIN", "MOST_TESTED", "check_certain_enough", "check_testable", "check_units", "rows_to_test"]

# Uncertain labels per parameter: simulated right models were rejected as often as the level says down to this number.
FEWEST_UNCERTAIN = 3.0
FEWEST_UNITS = 20

# What so many pairs do not show is too small to matter, and more of them take long.
MOST_TESTED = 30_000


def rows_to_test(n: int, most: int = MOST_TESTED) -> IndexArray:
    """Which of n pairs a test is made with: all or, of many, the same random ones each time."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def check_testable(fit: Fit) -> None:
    """Refuse fits whose probabilities are not meant to be those of the labels."""
    if fit.is_metric_alone:
        raise ValueError(
            "the noise model can be checked for a fit only, which has the margins that the labels ask for; got a "
            "metric that was truncated or kept without its fit."
        )
    if fit.settings.class_weight is not None:
        raise ValueError(
            "class_weight must be None to check the noise model, since it changes the probabilities; got "
            f"{fit.settings.class_weight!r}. Fit without it to check."
        )
    if fit.is_separable:
        raise ValueError(
            "the noise model can't be checked where the metric gets every label right: the scale of its margins is "
            "arbitrary. Label more pairs."
        )


def check_certain_enough(scores: LabelScores, what: str) -> None:
    """Refuse where the fit bends so far towards its labels that no correction makes up for it."""
    found = scores.uncertain_per_parameter
    if scores.moves.is_partial:
        raise ValueError(
            f"{what} can't be checked with more than {MOST_MOVES} free parameters. "
            "Limit the rank, or leave columns out."
        )
    if found < FEWEST_UNCERTAIN:
        raise ValueError(
            f"{what} can't be checked with these {len(scores.scored)} pairs: too few labels are uncertain, "
            f"{found:.1f} for each of {scores.n_parameters} free parameters, and {FEWEST_UNCERTAIN:g} are needed. "
            "Label more pairs, limit the rank, or leave columns out."
        )


def check_units(dependence: Dependence) -> None:
    """Refuse to judge dependence by a few groups."""
    if dependence.n_units is not None and dependence.n_units < FEWEST_UNITS:
        raise ValueError(
            f"groups must be at least {FEWEST_UNITS} groups or points, to tell how much labels depend on them; got "
            f"{dependence.n_units}."
        )
