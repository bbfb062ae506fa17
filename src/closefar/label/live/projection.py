"""How many judgements are still needed, projected from those so far."""

from __future__ import annotations

import math
import warnings
from typing import Any

from closefar import plan_sample_size
from closefar.label.live.learned import Given, learn_unpenalised
from closefar.label.task import Task

# A projection computes with a matrix that has a row for each entry of M.
_MOST_COLUMNS = 60

# With fewer uncertain answers per parameter there is no projection.
_LEAST_UNCERTAIN = 1.0


def projected(given: Given, task: Task) -> dict[str, Any]:
    """The number of answers at which the expected error of the metric is the target, or why there is none yet."""
    d = given.features.shape[1]
    if d > _MOST_COLUMNS:
        return no_projection(task, f"Projections are made for at most {_MOST_COLUMNS} columns; there are {d}.")
    if len(given) <= d:
        return no_projection(task, f"There is no projection yet: it needs more answers than columns ({d}).")
    pilot = learn_unpenalised(given, task)
    if pilot is None or pilot.learner.fit_.is_separable or not pilot.learner.certificate_.converged:
        return no_projection(
            task,
            "There is no projection yet: some metric explains all answers without exception, so that nothing tells "
            "how uncertain it is. A few more answers will change that.",
        )
    statistics = pilot.learner.fit_statistics_
    if statistics.uncertain_per_parameter < _LEAST_UNCERTAIN:
        needed = math.ceil(1.5 * len(given) * _LEAST_UNCERTAIN / max(statistics.uncertain_per_parameter, 0.1))
        return no_projection(
            task,
            f"There is no projection yet: {len(given)} answers are few for the {statistics.n_parameters} parameters "
            f"of the metric. With about {needed} answers there will be one.",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = plan_sample_size(pilot.learner, target_error=task.target_error, measure="spectral")
    except ValueError:  # the other requirements of a pilot, all of which more answers meet
        return no_projection(task, "There is no projection yet: it needs more answers.")
    error, more = plan.expected_error(len(given)), plan.n_pairs - len(given)
    goal = (
        f"About {plan.n_pairs:,} answers are needed for an error of the metric of {task.target_error:.0%}: "
        f"{more:,} more."
        if more > 0
        else f"There are enough answers for an error of the metric of {task.target_error:.0%}."
    )
    rough = " This is a rough projection." if plan.uncertain_per_parameter < 5.0 else ""
    reading = f"{goal} Now it is about {error:.0%}. This assumes that further questions are like those so far.{rough}"
    return {"needed": plan.n_pairs, "target": task.target_error, "error": error, "reading": reading}


def no_projection(task: Task, reading: str) -> dict[str, Any]:
    """A plan without a number, and why there is none."""
    return {"needed": None, "target": task.target_error, "error": None, "reading": reading}
