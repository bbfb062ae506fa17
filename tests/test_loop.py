"""The loop that runs solvers: when a run ends, and with what."""

from dataclasses import replace

import numpy as np
import pytest

from closefar.solve import Ending, Solver, State


class Scripted(Solver):
    """Goes through given states."""

    def __init__(self, states):
        self.states = iter(states)

    def start(self):
        return next(self.states)

    def resume(self, state):
        return next(self.states)

    def step(self, state):
        following = next(self.states)
        if isinstance(following, BaseException):
            raise following
        return following


def state(objective, bound=0.0, **more):
    return replace(State.at(np.eye(1), 1.0), objective=objective, bound=bound, least_margin=-1.0, **more)


def go(*states, tol=1e-3, max_iter=10, **limits):
    solver, seen = Scripted(list(states)), []

    def watch(iteration, each):
        seen.append((iteration, each.objective))

    return solver.run(solver.start, tol=tol, max_iter=max_iter, watch=watch, **limits), seen


def test_a_run_ends_when_the_gap_is_small_enough():
    result, seen = go(state(1.0), state(0.9, 0.5), state(0.8, 0.7995))
    assert (result.ending, result.n_iter) == (Ending.CONVERGED, 2)
    assert seen == [(0, 1.0), (1, 0.9), (2, 0.8)]
    assert result.state.gap == pytest.approx(0.0005)
    result, _ = go(state(1.0), state(0.9, 0.89), relative_tol=0.02)
    assert result.ending is Ending.CONVERGED
    assert state(0.5, 0.7).gap == 0.0


def test_a_gap_of_exactly_the_tolerance_is_small_enough():
    assert go(state(1.0, 0.75), tol=0.25)[0].n_iter == 0
    assert go(state(1.0, 0.75), state(0.75, 0.75), tol=0.24)[0].n_iter == 1
    # The tolerance may also be a share of the objective.
    assert go(state(2.0, 1.5), tol=0.0, relative_tol=0.25)[0].n_iter == 0
    assert go(state(2.0, 1.5), state(2.0, 2.0), tol=0.0, relative_tol=0.24)[0].n_iter == 1
    assert go(state(0.5, 0.0), state(0.5, 0.5), tol=0.0)[0].n_iter == 1


def test_a_run_ends_where_labels_are_separated_if_asked():
    separated = replace(state(0.5), least_margin=0.1)
    assert go(state(1.0), separated, stop_if_separable=True)[0].ending is Ending.SEPARABLE
    assert go(state(1.0), separated, replace(separated, stuck=True, objective=0.4))[0].ending is Ending.STUCK
    at_zero = replace(state(0.5), least_margin=0.0, stuck=True)
    assert go(state(1.0), at_zero, stop_if_separable=True)[0].ending is Ending.STUCK
    # Even where the loss of a metric that separates the labels is below the tolerance.
    assert go(replace(separated, objective=1e-4), stop_if_separable=True)[0].ending is Ending.SEPARABLE


def test_a_run_ends_at_its_limit_and_at_an_interrupt():
    result, _ = go(*(state(1.0 / k) for k in range(1, 6)), max_iter=3)
    assert (result.ending, result.n_iter) == (Ending.LIMIT, 3)
    result, _ = go(state(1.0), state(0.9), KeyboardInterrupt())
    assert (result.ending, result.n_iter, result.state.objective) == (Ending.INTERRUPTED, 1, 0.9)


def test_a_point_about_which_nothing_is_known():
    point = State.at(np.eye(2), 1.0, 2.0)
    np.testing.assert_array_equal(point.thresholds, [1.0, 2.0])
    assert (point.objective, point.bound, point.least_margin, point.memory) == (np.inf, 0.0, -np.inf, None)
