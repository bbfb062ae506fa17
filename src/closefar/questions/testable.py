"""Whether the labels of a fit are enough to test it."""

from __future__ import annotations

from closefar.fitting import Fit
from closefar.questions.dependence import Dependence
from closefar.questions.moves import MOST_MOVES
from closefar.questions.score_tests import LabelScores
from closefar.questions.vocabulary import in_words_of

__all__ = ["FEWEST_UNCERTAIN", "MOST_TESTED", "check_certain_enough", "check_testable", "check_units"]

# Uncertain labels per parameter: down to this number, correct models were rejected at the nominal rate in simulations.
FEWEST_UNCERTAIN = 3.0
FEWEST_UNITS = 20

# What this many pairs do not show is too small to matter, and more would take long.
MOST_TESTED = 30_000


def check_testable(fit: Fit) -> None:
    """Raise an error for fits whose probabilities do not estimate those of the labels."""
    if fit.is_metric_alone:
        raise ValueError(
            "the noise model can be checked only for a fit; got a metric that was truncated, or stored without its "
            "fit. Fit a learner to check it."
        )
    if fit.settings.class_weight is not None:
        raise ValueError(
            "class_weight must be None to check the noise model, since it changes the probabilities; got "
            f"{fit.settings.class_weight!r}. Fit without it to check."
        )
    if fit.annotators is not None and fit.annotators.flip_rates is not None:
        raise ValueError(
            "the noise model can't be checked if each annotator has a flip rate, since these are shrunk, and what is "
            "left of them looks like noise of another kind. Leave out annotators who answer at random, and fit with "
            "flip_rate=0."
        )
    if fit.is_separable:
        sentence = (
            "the noise model can't be checked if the metric gets every label right, since the scale of the "
            "margins is then arbitrary. Label more pairs."
        )
        raise ValueError(in_words_of(fit.kind, sentence))


def check_certain_enough(scores: LabelScores, what: str) -> None:
    """Raise an error if the fit adapts so closely to its labels that no correction is enough."""
    found = scores.uncertain_per_parameter
    if scores.moves.is_partial:
        raise ValueError(
            f"{what} can't be checked with more than {MOST_MOVES} free parameters. "
            "Limit the rank, or leave columns out."
        )
    if found < FEWEST_UNCERTAIN:
        raise ValueError(
            f"{what} can't be checked with these {len(scores.scored):,} pairs: there must be at least "
            f"{FEWEST_UNCERTAIN:g} uncertain labels per parameter; got {found:.1f} ({scores.n_parameters} parameters). "
            "Label more pairs, limit the rank, or leave columns out."
        )


def check_units(dependence: Dependence) -> None:
    """Raise an error if there are too few groups to estimate dependence."""
    if dependence.n_units is not None and dependence.n_units < FEWEST_UNITS:
        raise ValueError(
            f"groups must be at least {FEWEST_UNITS} groups or points, to estimate how much labels depend on them; got "
            f"{dependence.n_units}."
        )
