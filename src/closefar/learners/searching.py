"""What a search prepares: coded labels, checked splits, and what is estimated once for all candidates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from closefar.judgements import Judgements, Kind, Sides
from closefar.learners.fitting_learner import FittingLearner

__all__ = ["check_split", "coded_for", "with_known_scales"]


def check_split(judgements: Judgements, number: int, train: NDArray[np.int64], test: NDArray[np.int64]) -> None:
    """Each split must train on every label, and test on something."""
    if judgements.kind is Kind.COMPARISONS:
        if min(len(train), len(test)) == 0:
            raise ValueError(
                f"each split must train and test on a comparison; split {number} trains on {len(train)} and tests on "
                f"{len(test)}. Set fewer folds (cv), or collect more comparisons."
            )
        return
    counts = np.bincount(judgements.codes[train], minlength=judgements.n_levels)
    if min(*counts, len(test)) > 0:
        return
    if judgements.kind is Kind.LEVELS:
        levels = judgements.sides.classes.tolist()
        trained = ", ".join(f"{n} of {level}" for n, level in zip(counts.tolist(), levels, strict=True))
        raise ValueError(
            f"each split must train on every level and test on a pair; split {number} trains on {trained} and tests on "
            f"{len(test)}. Set fewer folds (cv), or rate more pairs."
        )
    raise ValueError(
        f"each split must train on both classes and test on a pair; split {number} trains on {counts[0]} "
        f"close and {counts[1]} far pairs and tests on {len(test)}. Set fewer folds (cv), or label more pairs."
    )


def coded_for(trial: FittingLearner, judgements: Judgements) -> Judgements:
    """Labels as numbers, which scorers of scikit-learn take in order; the class weights of the trial are those of them.

    Comparisons are +1 and -1 already.
    """
    if judgements.kind is Kind.COMPARISONS:
        return judgements
    is_graded, sides = judgements.levels is not None, judgements.sides
    labels = sides.classes.tolist() if is_graded else [sides.close, sides.far]
    weights = getattr(trial, "class_weight", None)
    if isinstance(weights, dict):
        trial.set_params(class_weight={code: weights.get(label, 1.0) for code, label in enumerate(labels)})
    trial.set_params(**({"levels": None} if is_graded else {"far_label": None}))
    numbers_of = Sides(np.arange(len(labels)), is_graded=is_graded)
    return judgements.with_labels(judgements.codes.astype(np.int64), numbers_of)


def with_known_scales(trial: FittingLearner, judgements: Judgements, alpha: float) -> FittingLearner:
    """The trial with the strictness width and the comparison noise estimated once, by a fit to all judgements.

    Neither depends much on the candidate, and each estimate takes many fits.
    """
    parameters = trial.get_params()
    asked = {
        "strictness_width": judgements.annotators is not None,
        "comparison_noise": judgements.comparisons is not None,
    }
    if not any(matters and parameters.get(name) == "estimate" for name, matters in asked.items()):
        return trial
    found = clone(trial).set_params(alpha=alpha, flip_rate=0.0, **_zero_centre(parameters)).learn(judgements)
    known = {}
    if found.annotators is not None and found.annotators.width > 0:
        known["strictness_width"] = found.annotators.width
    if found.comparison_noise is not None:
        known["comparison_noise"] = found.comparison_noise.value
    estimated = {name: value for name, value in known.items() if parameters.get(name) == "estimate"}
    result: FittingLearner = trial.set_params(**estimated)
    return result


def _zero_centre(parameters: dict[str, Any]) -> dict[str, Any]:
    """The search itself may still have to choose these."""
    given = {"shrink_to": "zero", "relax_threshold": False, "rank": None, "alpha_scale": "auto"}
    return {name: value for name, value in given.items() if name in parameters}
