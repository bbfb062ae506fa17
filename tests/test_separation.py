"""Separable labels: a metric with a wide margin in the place of an arbitrary one."""

from dataclasses import replace

import numpy as np
import pytest

import closefar as cf
from closefar.noise import NOISES
from closefar.rows import Differences
from closefar.solve import Answers, Ending, Likelihood, Problem, Solver, State, ignore_progress
from closefar.solve.loop import Run
from closefar.solve.newton import Newton
from closefar.solve.separation import _largest_penalty, max_margin
from paper_estimator import PAPER
from random_problems import RandomProblem, solved


def problem_of(z, is_far, alpha=0.0):
    likelihood = Likelihood(NOISES["logistic"], Answers.of(2), is_far.astype(float), np.full(len(z), 1.0 / len(z)))
    return Problem.of(Differences(z), likelihood, alpha)


def state(objective, bound=0.0, least_margin=-1.0, **more):
    return replace(State.at(np.eye(1), 1.0), objective=objective, bound=bound, least_margin=least_margin, **more)


def test_from_the_largest_penalty_on_nothing_is_learned():
    judged = RandomProblem.of("close/far", n=600)
    largest = _largest_penalty(judged.problem())
    assert solved("newton", judged.problem(alpha=1.01 * largest), tol=1e-10).factor.shape[1] == 0
    assert solved("newton", judged.problem(alpha=0.99 * largest), tol=1e-10).factor.shape[1] == 1
    reverse = problem_of(np.arange(8.0)[:, None], np.arange(8) < 4)
    assert _largest_penalty(reverse) == 1e-8


def scripted_path(margins, *, last=None, bound=0.0):
    """Go down the penalties with a solver that has this least margin after one step at each of them."""
    given, calls = RandomProblem.of("close/far", n=600).problem(), []

    class Path(Solver):
        def start(self):
            return self.resume(None)

        def resume(self, before):
            calls.append((self.problem.alpha, self.tol, before))
            return state(1.0, bound)

        def step(self, before):
            if last is not None and len(calls) == len(margins):
                raise last
            return state(1.0, 0.5, margins[len(calls) - 1], stuck=True)

    separated = Run(state(0.25, 0.125, 0.5), Ending.SEPARABLE, n_iter=3)
    found = max_margin(Path, given, separated, np.random.default_rng(0), 5, ignore_progress)
    return found, calls, _largest_penalty(given)


def test_the_first_penalty_that_separates_the_labels_is_taken():
    found, calls, largest = scripted_path([-1.0, -1.0, 0.0, 0.125, 1.0])
    alphas = largest * np.array([1e-2, 1e-3, 1e-4, 1e-5])
    np.testing.assert_allclose([alpha for alpha, _, _ in calls], alphas)
    np.testing.assert_allclose([tol for _, tol, _ in calls], 1e-3 * alphas)
    assert [before and before.least_margin for _, _, before in calls] == [None, -1.0, -1.0, 0.0]
    assert (found.ending, found.n_iter) == (Ending.SEPARABLE, 7)
    assert (found.state.least_margin, found.state.bound) == (0.125, 0.0)


def test_after_ten_penalties_or_an_interrupt_the_metric_that_was_there_is_kept():
    found, calls, _ = scripted_path([-1.0] * 20)
    assert (len(calls), found.n_iter, found.ending, found.state.objective) == (10, 13, Ending.SEPARABLE, 0.25)
    found, calls, _ = scripted_path([-1.0, -1.0], last=KeyboardInterrupt())
    assert (len(calls), found.n_iter, found.ending, found.state.objective) == (2, 4, Ending.INTERRUPTED, 0.25)


@pytest.mark.parametrize(("gap", "n_steps"), [(8e-3, 0), (1.2e-2, 10)])
def test_first_order_solvers_prove_a_hundredth_of_the_objective(gap, n_steps):
    found, _, _ = scripted_path([-1.0] * 10, bound=1.0 - gap)
    assert found.n_iter == 3 + n_steps


def test_newton_steps_minimise_precisely_at_the_first_penalty_that_separates():
    z = np.random.default_rng(0).standard_normal((4000, 3))
    is_far = z[:, 0] ** 2 + 0.3 * z[:, 1] ** 2 > 1.0
    given, signs = problem_of(z, is_far), np.where(is_far, 1.0, -1.0)
    separated = Run(State.at(np.eye(3), 1.0), Ending.SEPARABLE, n_iter=0)
    found = max_margin(Newton, given, separated, np.random.default_rng(0), 200, ignore_progress).state
    alphas = 0.01 * _largest_penalty(given) * 0.1 ** np.arange(6)
    solutions = [solved("newton", problem_of(z, is_far, alpha), tol=1e-12) for alpha in alphas]
    margins = [signs * (np.sum((z @ each.factor) ** 2, axis=1) - each.thresholds[0]) for each in solutions]
    first = next(k for k, margin in enumerate(margins) if margin.min() > 0.0)
    assert first >= 2
    np.testing.assert_allclose(found.thresholds, solutions[first].thresholds, rtol=1e-4)
    exact = solutions[first].factor @ solutions[first].factor.T / solutions[first].thresholds[0]
    np.testing.assert_allclose(found.matrix / found.thresholds[0], exact, atol=1e-5)


def test_separable_labels_get_a_wide_margin():
    """A share of the widest one, which a conic solver finds."""
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    rng = np.random.default_rng(3)
    z = rng.standard_normal((120, 2))
    squared = z[:, 0] ** 2 + 0.2 * z[:, 1] ** 2
    kept = np.abs(squared - 1.0) > 0.15
    z, labels = z[kept], np.where(squared[kept] > 1.0, 1, -1)
    with pytest.warns(match="separable"):
        learner = cf.LinearMetricLearner(**PAPER).fit(z, labels)
    moment = np.linalg.cholesky(z.T @ z / len(z))
    w = z @ np.linalg.inv(moment).T
    matrix, tau, margin = cp.Variable((2, 2), PSD=True), cp.Variable(nonneg=True), cp.Variable()
    forms = np.einsum("ij,ik->ijk", w, w).reshape(len(w), -1) @ cp.vec(matrix, order="C")
    cp.Problem(cp.Maximize(margin), [cp.multiply(labels, forms - tau) >= margin, cp.trace(matrix) <= 1]).solve()
    found = moment.T @ learner.metric_.matrix @ moment
    own = np.min(labels * learner.decision_function(z)) / np.trace(found)
    assert own > 0.2 * margin.value  # the first penalty that still separates, not the widest margin itself
    assert learner.certificate_.lower_bound == 0.0
