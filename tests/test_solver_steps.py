"""Single steps of the solvers: how long they are, when they are accepted, and when a proof is tried."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize_scalar

from closefar import packed
from closefar.noise import NOISES
from closefar.rows import Differences, unit_free
from closefar.solve import CloseFar, Objective, Passes, State
from closefar.solve import fista as fista_module
from closefar.solve import low_rank as factor_module
from closefar.solve import newton as newton_module
from closefar.solve.fista import Fista
from closefar.solve.low_rank import Factor
from closefar.solve.newton import Newton, _damping
from closefar.solve.problem import Cone, Problem

RNG = np.random.default_rng

# A line search: the share of the promised fall, the longest step with one, and the length that is taken.
HALVED = [(1.01e-4, 1.0, 1.0), (0.99e-4, 1.0, 0.0), (0.5, 0.3, 0.25), (1.01e-4, 0.25, 0.25)]


def rows_and_signs(n=300, d=2):
    rng = RNG(0)
    z = rng.standard_normal((n, d))
    z = np.linalg.svd(z, full_matrices=False)[0] * np.sqrt(n)
    signs = np.where(z**2 @ np.arange(1, d + 1) + 0.5 * rng.logistic(size=n) > 0.8 * d, 1.0, -1.0)
    return z, signs


def problem_of(n=300, d=2, alpha=0.0):
    z, signs = rows_and_signs(n, d)
    weights = np.full(n, 1.0 / n)
    rows, _ = unit_free(Differences(z), weights)
    return Problem(Objective(rows, CloseFar(NOISES["logistic"], signs, weights), Passes()), alpha, Cone(d, np.zeros(1)))


class PlainRisk:
    """The logistic risk of the same rows, written out."""

    def __init__(self, problem):
        self.z = problem.objective.source.read(slice(None)).T
        self.signs = rows_and_signs(*self.z.shape)[1]
        self.alpha = problem.alpha

    def value(self, matrix, tau):
        margin = self.signs * (np.sum(self.z @ matrix * self.z, axis=1) - tau)
        return np.mean(np.logaddexp(0.0, -margin)) + self.alpha * np.trace(matrix)

    def settled(self, matrix):
        """The least value over the threshold, and that threshold."""
        best = minimize_scalar(lambda tau: self.value(matrix, tau), bounds=(0.0, 20.0), options={"xatol": 1e-11})
        return best.fun, best.x

    def gradient(self, matrix, tau):
        margin = self.signs * (np.sum(self.z @ matrix * self.z, axis=1) - tau)
        margin_gradient = -self.signs / (1.0 + np.exp(margin)) / len(margin)
        return self.z.T @ (margin_gradient[:, None] * self.z) + self.alpha * np.eye(len(matrix)), -margin_gradient.sum()

    def hessian(self, matrix, tau):
        margin = np.sum(self.z @ matrix * self.z, axis=1) - tau
        slopes = np.column_stack([packed.form_gradients(self.z), -np.ones(len(margin))])
        curvature = 1.0 / (2.0 + 2.0 * np.cosh(margin)) / len(margin)
        return slopes.T @ (curvature[:, None] * slopes)


# Newton


class Planned:
    """In place of a cone program: goes where it is told to, and keeps what it was asked."""

    def __init__(self, x, direction, hessian=None, rho=2.0):
        self.target = x + direction
        self.hessian = np.zeros((len(x), len(x))) if hessian is None else hessian
        self.rho, self.damping = rho, 0.5

    def solve(self, linear, start, tol):
        self.linear, self.begin, self.tol = linear, start, tol
        return start

    def project(self, splitting):
        return self.target


def newton_at(tol=1e-6, n=100, **memory):
    """A Newton solver and a state from which it starts, with other things in its memory."""
    solver = Newton(problem_of(n), tol, RNG(0))
    state = solver.resume(State.at(np.diag([0.5, 0.7]), 1.0))
    return solver, replace(state, memory=replace(state.memory, **memory))


def planned(state, decrement):
    """The state with a program whose decrement is this."""
    point = state.memory.point
    x, gradient = packed.join(point.matrix, point.thresholds), packed.join(point.gradient, point.slopes)
    program = Planned(x, -decrement * gradient / (gradient @ gradient))
    return replace(state, memory=replace(state.memory, program=program)), program


def with_gain(point, gain):
    """The same point with a risk that is smaller by `gain` than nothing."""
    return replace(point, evaluation=replace(point.evaluation, loss=-gain))


def test_a_newton_step_minimises_the_damped_quadratic_model():
    problem = problem_of(150)
    solver, plain = Newton(problem, 1e-6, RNG(0)), PlainRisk(problem)
    matrix, tau = np.array([[0.8, 0.1], [0.1, 1.2]]), 1.5
    start = solver.resume(State.at(matrix, tau))
    moved = solver.advance(start)
    hessian = plain.hessian(matrix, tau)
    damped = hessian + start.memory.damping * np.trace(hessian) / 4 * np.eye(4)
    slope_matrix, slope = plain.gradient(matrix, tau)
    gradient = packed.join(slope_matrix, np.array([slope]))
    step = -np.linalg.solve(damped, gradient)
    expected, shift = packed.split(step, 2)
    assert np.linalg.eigvalsh(matrix + expected)[0] > 0
    np.testing.assert_allclose(moved.matrix, matrix + expected, atol=1e-6)
    np.testing.assert_allclose(moved.thresholds, tau + shift, atol=1e-6)
    assert moved.memory.decrement == pytest.approx(-0.5 * gradient @ step, rel=1e-6)
    assert moved.objective == pytest.approx(plain.value(matrix + expected, tau + shift[0]), abs=1e-8)
    assert (start.bound, moved.bound) == (0.0, 0.0)


@pytest.mark.parametrize("splitting", [None, np.array([1.0, 2.0, 3.0, 4.0])])
def test_the_quadratic_model_has_the_slope_of_the_risk(splitting):
    solver, state = newton_at(splitting=splitting)
    point = state.memory.point
    x, gradient = packed.join(point.matrix, point.thresholds), packed.join(point.gradient, point.slopes)
    root = RNG(1).standard_normal((4, 4))
    program = Planned(x, -0.01 * gradient, root @ root.T)
    moved = solver.advance(replace(state, memory=replace(state.memory, program=program)))
    np.testing.assert_allclose(program.hessian @ x + program.linear, gradient, atol=1e-12)
    # The search begins where the last one ended, or a gradient step away.
    np.testing.assert_allclose(program.begin, x - gradient / program.rho if splitting is None else splitting)
    quadratic = 0.5 * 0.01**2 * gradient @ program.hessian @ gradient
    assert moved.memory.decrement == pytest.approx(0.01 * gradient @ gradient - quadratic)


@pytest.mark.parametrize(("n", "share"), [(191, 1e-9), (192, 1e-5)])
def test_models_are_solved_to_a_share_of_the_last_decrement(monkeypatch, n, share):
    """A larger share from 64 judgements for each of the three unknowns of M on, unless the problem is small."""
    assert newton_at(n=n)[0].inexactness == 1e-9
    monkeypatch.setattr(newton_module, "_EXACT_JUDGEMENTS", 0)
    for decrement, expected in ((1.0, share), (1e-3, 1e-3 * share), (0.0, 1e-15)):
        solver, state = newton_at(n=n, decrement=decrement)
        state, program = planned(state, 1e-3)
        solver.advance(state)
        assert program.tol == pytest.approx(expected, rel=1e-9, abs=0.0)
    assert newton_at()[1].memory.decrement == 1.0


@pytest.mark.parametrize(("share", "longest", "expected"), [*HALVED, (0.5, 2.0**-19, 2.0**-19), (0.5, 2.0**-20, 0.0)])
def test_a_newton_step_is_halved_until_the_risk_falls_by_a_share_of_the_decrement(share, longest, expected):
    solver, decrement = newton_at()[0], 3.0
    solver._evaluate = lambda x: SimpleNamespace(value=-share * x[0] * decrement if x[0] <= longest else 1.0)
    new, length = solver._search(SimpleNamespace(value=0.0), np.zeros(1), np.ones(1), decrement)
    assert length == expected
    assert (new is None) == (expected == 0.0)


@pytest.mark.parametrize(("rise", "accepted"), [(1e-14, True), (1.1e-14, False)])
def test_a_rise_below_rounding_is_accepted(rise, accepted):
    solver = newton_at()[0]
    solver._evaluate = lambda x: SimpleNamespace(value=rise)
    new, length = solver._search(SimpleNamespace(value=0.0), np.zeros(1), np.ones(1), 0.0)
    assert (new is not None, length) == (accepted, float(accepted))


@pytest.mark.parametrize(
    ("last", "length", "crawling", "expected"),
    [
        (0.01, 0.0625, False, 0.1),  # ten times more after a short step
        (1e-12, 0.0625, True, 1e-3),  # and at least this
        (5.0, 0.0625, False, 10.0),  # and at most that
        (0.01, 0.125, False, 1e-3),  # else a tenth
        (1e-3, 1.0, False, 3e-4),  # down to the first one
        (1e-5, 1.0, False, 1e-5),
        (3e-4, 1.0, True, 3e-5),  # and below it where full steps gain little
        (2e-12, 1.0, True, 1e-12),
    ],
)
def test_damping_follows_the_steps(last, length, crawling, expected):
    assert _damping(last, length, crawling) == pytest.approx(expected, rel=1e-9, abs=0.0)


@pytest.mark.parametrize(
    ("last", "expected", "stuck"), [(1e-6, 1e-3, False), (0.5, 50.0, False), (1e4, 1e6, False), (1.01e4, 1.01e6, True)]
)
def test_where_no_step_is_found_the_damping_grows_until_there_is_nothing_left(last, expected, stuck):
    solver, state = newton_at(damping=last, decrement=1e-3, splitting=np.ones(4), samples=False)
    solver._search = lambda *_: (None, 0.0)
    kept = solver.advance(state)
    assert kept.memory.damping == pytest.approx(expected)
    assert (kept.stuck, kept.memory.decrement, kept.memory.splitting) == (stuck, 1.0, None)
    np.testing.assert_array_equal(kept.matrix, state.matrix)
    # With an old Hessian the next step takes a new one first.
    kept = solver.advance(planned(state, 1e-3)[0])
    assert (kept.memory.damping, kept.memory.program, kept.stuck) == (last, None, False)
    # With that of a sample, it takes that of all judgements first.
    kept = solver.advance(replace(state, memory=replace(state.memory, samples=True)))
    assert (kept.memory.damping, kept.memory.samples, kept.stuck) == (last, False, False)


@pytest.mark.parametrize(
    ("decrement", "last", "length", "keeps"),
    [
        (0.99e-5, 1.0, 1.0, True),
        (1.01e-5, 1.0, 1.0, False),
        (0.99e-6, 1e-5, 1.0, True),  # it shrank to a tenth
        (1.01e-6, 1e-5, 1.0, False),
        (0.99e-5, 1e-5, 0.5, True),  # a shorter step says nothing of the Hessian
        (-1.0, 1.0, 1.0, False),
    ],
)
def test_the_hessian_is_kept_near_the_optimum_while_steps_shrink(decrement, last, length, keeps):
    solver, state = newton_at(decrement=last)
    state, program = planned(state, decrement)
    solver._search = lambda point, *_: (with_gain(point, 1.0), length)
    memory = solver.advance(state).memory
    assert memory.program is (program if keeps else None)
    assert memory.decrement == pytest.approx(max(decrement, 0.0))


@pytest.mark.parametrize(
    ("decrement", "length", "expected"), [(0.49, 1.0, 3e-4), (0.51, 1.0, 3e-5), (0.51, 0.5, 3e-4), (0.51, 0.01, 3e-3)]
)
def test_damping_falls_where_full_steps_hardly_shrink(decrement, length, expected):
    solver, state = newton_at(decrement=1.0, damping=3e-4)
    solver._search = lambda point, *_: (with_gain(point, 1.0), length)
    moved = solver.advance(planned(state, decrement)[0])
    assert moved.memory.damping == pytest.approx(expected)


@pytest.mark.parametrize(("tol", "least"), [(1.0, 0.1), (0.0, 1e-15)])
def test_newton_is_stuck_after_ten_steps_that_gain_next_to_nothing(tol, least):
    solver, state = newton_at(tol)
    point = with_gain(state.memory.point, 0.0)
    state = replace(state, memory=replace(state.memory, point=point))

    def after(idle, gain):
        solver._search = lambda point, *_: (with_gain(point, gain), 1.0)
        return solver.advance(replace(state, memory=replace(state.memory, idle=idle)))

    assert state.memory.idle == 0
    assert after(0, least).memory.idle == 1
    assert after(7, 1.01 * least).memory.idle == 0
    assert not after(8, 0.0).stuck
    assert after(9, 0.0).stuck
    assert not after(9, 1.01 * least).stuck


@pytest.mark.parametrize(
    ("tol", "decrement", "before", "damping", "stuck", "is_tried"),
    [
        (1e-4, 0.99e-2, 0.039, 1.0, False, True),  # steps hardly shrink
        (1e-4, 1.01e-2, 0.039, 1.0, False, False),
        (0.0, 0.99e-9, 0.0, 1.0, False, True),
        (0.0, 1.01e-9, 0.0, 1.0, False, False),
        (0.0, 0.99e-13, 1.0, 1.0, False, True),  # there is only rounding left
        (1e-4, 0.99e-6, 1e-3, 1.0, False, True),  # the next decrement would be 1e-9
        (1e-4, 1.01e-6, 1e-3, 1.0, False, False),
        (1e-8, 3.1e-7, 1e-2, 1.0, False, True),  # the next decrement would be 1e-11
        (1e-8, 3.2e-7, 1e-2, 1.0, False, False),
        (1e-8, 5e-11, 1e-9, 1.0, False, True),  # rounds that shrink as steps do reach the cone from here
        (1e-8, 2e-10, 2e-9, 1.0, False, False),
        (1e-4, 1e-7, 1e-3, 1.01, False, False),
        (1e-4, 1e-7, 1e-3, 0.5, False, True),
        (1e-4, 1.0, 1.0, 2.0, True, True),
    ],
)
def test_newton_proves_where_the_decrement_is_small_or_nothing_moves(tol, decrement, before, damping, stuck, is_tried):
    solver, state = newton_at(tol, damping=1.0, decrement=before)
    moved = replace(state, stuck=stuck, memory=replace(state.memory, decrement=decrement, damping=damping))
    solver._advance = lambda _: (moved, "program")
    solver._bound = lambda state, program: 0.01 if program == "program" else 0.02
    assert solver.step(state).bound == (0.01 if is_tried else 0.0)


@pytest.mark.parametrize(
    ("gap", "decrement", "before", "stuck", "n_steps"),
    [
        (0.25, 1e-4, 1.0, False, 2),
        (0.26, 1e-4, 1.0, False, 1),
        (0.25, 1.01e-8, 1.01e-5, False, 2),
        (0.25, 0.99e-8, 1.0e-5, False, 1),  # the next decrement would be 1e-11
        (0.25, 1.01e-11, 0.0, False, 2),
        (0.25, 0.99e-11, 0.0, False, 1),
        (0.25, 1e-4, 1.0, True, 1),
    ],
)
def test_newton_polishes_what_is_proven(gap, decrement, before, stuck, n_steps):
    solver, state = newton_at(0.25, decrement=before)
    solver.is_small = False
    moved = replace(state, objective=1.0, stuck=stuck, memory=replace(state.memory, decrement=decrement))
    seen = []
    solver._advance = lambda each: (seen.append(each.bound), (replace(moved, bound=each.bound), None))[1]
    solver._bound = lambda *_: 1.0 - gap
    assert solver.step(state).bound == 1.0 - gap
    assert seen == [0.0, 1.0 - gap][:n_steps]


@pytest.mark.parametrize(
    ("decrements", "n_steps"),
    [
        ([1e-8, 1e-12, 1e-15, 1e-18, 1e-20], 4),  # down to rounding errors
        ([1e-8, 1e-12, 1e-12, 1e-18], 3),  # which the third step has reached
        ([10.0**-k for k in range(7, 17)], 6),  # at most five more
    ],
)
def test_newton_polishes_small_problems_down_to_rounding_errors(decrements, n_steps):
    solver, state = newton_at(0.25, decrement=1e-5)
    assert solver.is_small
    seen = []

    def advance(each):
        seen.append(each)
        memory = replace(state.memory, decrement=decrements[len(seen) - 1])
        return replace(state, objective=1.0, bound=each.bound, memory=memory), None

    solver._advance, solver._bound = advance, lambda *_: 1.0
    solver.step(state)
    assert len(seen) == n_steps


@pytest.mark.parametrize(
    ("proofs", "best"), [((0.75, 0.9), 0.75), ((0.7, 0.9), 0.9), ((0.7, 0.5), 0.7), ((0.1, 0.2), 0.3)]
)
def test_newton_proves_nearly_undamped_first(monkeypatch, proofs, best):
    solver, state = newton_at(0.25)
    hessians, left = [], list(proofs)
    monkeypatch.setattr(
        newton_module, "lower_bound", lambda _, solve, tol: (hessians.append(solve.args[0]), left.pop(0))[1]
    )
    hessian = np.diag([1.0, 2.0, 3.0, 4.0])
    program = SimpleNamespace(hessian=hessian + 0.5 * np.eye(4), damping=0.5)
    assert solver._bound(replace(state, objective=1.0, bound=0.3), program) == best
    np.testing.assert_allclose(hessians[0], hessian + 0.0005 * np.eye(4))
    if proofs[0] < 0.75:
        np.testing.assert_allclose(hessians[1], hessian + 0.5 * np.eye(4))
    assert len(hessians) == (1 if proofs[0] == 0.75 else 2)


@pytest.mark.parametrize(("n", "shares"), [(191, []), (192, [1.0 / 8.0])])
def test_newton_starts_on_an_eighth_where_that_has_eight_for_each_unknown_of_the_metric(monkeypatch, n, shares):
    seen = []
    monkeypatch.setattr(newton_module, "_LONG_SCOUTED_PASS", 4.0 * 2**2 * 191)
    monkeypatch.setattr(Problem, "sample", lambda self, share, rng: seen.append(share))
    solver = Newton(problem_of(n), 1e-6, RNG(0))
    start = solver.start()
    assert seen == shares
    assert (start.memory.program, start.bound) == (None, 0.0)


@pytest.mark.parametrize(
    ("changes", "n_steps"),
    [
        ({}, 15),
        ({"stuck": True}, 1),
        ({"least_margin": 1e-9}, 1),
        ({"least_margin": 0.0}, 15),
        ({"decrement": 0.99 * 3 / 50}, 1),
        ({"decrement": 1.01 * 3 / 50}, 15),
    ],
)
def test_scouts_go_until_they_know_no_better_than_their_judgements(monkeypatch, changes, n_steps):
    monkeypatch.setattr(newton_module, "_LONG_SCOUTED_PASS", 0.0)
    solver, few = Newton(problem_of(192), 1e-6, RNG(0)), problem_of(50)
    monkeypatch.setattr(Problem, "sample", lambda *_: few)
    seen = []

    def advance(scout, state):
        seen.append((scout.problem, scout.tol, scout.inexactness))
        memory = replace(state.memory, decrement=changes.get("decrement", 1.0))
        rest = {name: value for name, value in changes.items() if name != "decrement"}
        return replace(state, memory=memory, least_margin=-1.0) if not rest else replace(state, **rest), "program"

    monkeypatch.setattr(Newton, "_advance", advance)
    start = solver.start()
    assert seen == [(few, 0.0, 1e-3)] * n_steps
    # The whole problem goes on from there, with their Hessian.
    assert start.memory.program == "program"
    assert start.memory.point.problem is solver.problem


def test_a_changed_risk_is_proven_anew():
    solver, state = newton_at()
    assert solver.renew(replace(state, bound=0.3)).bound == 0.0


# Fista


def fista_at(alpha=0.0, tol=1e-6, **memory):
    solver = Fista(problem_of(alpha=alpha), tol, RNG(0))
    state = solver.resume(State.at(np.array([[0.3, 0.1], [0.1, 0.2]]), 0.5))
    return solver, replace(state, memory=replace(state.memory, **memory))


def projected(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


@pytest.mark.parametrize("alpha", [0.0, 0.02])
def test_fista_takes_the_steps_of_the_textbook(alpha):
    solver, state = fista_at(alpha, smoothness=2.0)
    plain = PlainRisk(solver.problem)
    before = here = np.array([[0.3, 0.1], [0.1, 0.2]])
    assert state.objective == pytest.approx(plain.settled(here)[0], abs=1e-7)
    t, smoothness = 1.0, 2.0
    for _ in range(4):
        following = (1.0 + math.sqrt(1.0 + 4.0 * t * t)) / 2.0
        base = here + (t - 1.0) / following * (here - before)
        gradient = plain.gradient(base, plain.settled(base)[1])[0]
        before, here, t = here, projected(base - gradient / smoothness), following
        state = solver.step(state)
        np.testing.assert_allclose(state.matrix, here, atol=1e-5)
        assert state.memory.momentum == pytest.approx(t)
        assert state.memory.residual == pytest.approx(smoothness * np.linalg.norm(here - base), rel=1e-3)
        np.testing.assert_array_equal(state.memory.here.matrix, state.matrix)
        np.testing.assert_allclose(state.memory.before.matrix, before, atol=1e-5)
        smoothness *= 0.97  # a little longer each time
        assert state.memory.smoothness == pytest.approx(smoothness)


def test_a_fista_step_is_shortened_until_the_quadratic_model_lies_above():
    solver, state = fista_at(smoothness=1e-3)
    plain, matrix = PlainRisk(solver.problem), state.matrix
    value, tau = plain.settled(matrix)
    gradient = plain.gradient(matrix, tau)[0]
    smoothness = 1e-3
    while True:
        target = projected(matrix - gradient / smoothness)
        change = target - matrix
        if plain.settled(target)[0] <= value + np.sum(gradient * change) + 0.5 * smoothness * np.sum(change**2):
            break
        smoothness *= 1.5
    moved = solver.step(state)
    assert smoothness > 2e-3
    assert moved.memory.smoothness == pytest.approx(0.97 * smoothness)
    np.testing.assert_allclose(moved.matrix, target, atol=1e-5)


@pytest.mark.parametrize(
    ("above", "moved", "accepted"),
    [
        (-1e-3, 1.0, True),
        (0.8e-14, 1e-6, True),
        (1.3e-14, 1e-6, False),
        (1.0, 0.9e-13, True),  # too short to be measured
        (1.0, 1.1e-13, False),
    ],
)
def test_fista_accepts_what_rounding_cannot_tell(above, moved, accepted):
    solver, state = fista_at(smoothness=2.0)
    here = replace(state.memory.here, value=0.0)
    state = replace(state, memory=replace(state.memory, here=here))
    gradient = solver.problem.known(here.matrix, here.thresholds, here.evaluation).gradient
    change = np.array([[gradient[0, 1], -0.5 * gradient[0, 0]], [-0.5 * gradient[0, 0], 0.0]])  # the risk is level
    change *= math.sqrt(0.5 * moved) / np.linalg.norm(change)
    values = [float(np.sum(gradient * change)) + 0.5 * moved + above, -1e3]
    solver._iterate = lambda *_: replace(here, matrix=here.matrix + change, value=values.pop(0))
    assert solver.step(state).memory.smoothness == pytest.approx(0.97 * (2.0 if accepted else 3.0))


def test_fista_restarts_where_a_step_turns_back():
    solver, state = fista_at(smoothness=2.0)
    for _ in range(60):
        state = solver.step(state)
    memory, push = replace(state.memory, momentum=20.0), 0.3 * np.eye(2)
    matrix = state.matrix - push
    away = memory.before._replace(matrix=matrix, squared=solver.problem.objective.quadratic_forms(matrix))
    beyond = solver.step(replace(state, memory=replace(memory, before=away)))
    assert beyond.memory.momentum == 1.0
    assert np.sum((beyond.matrix - state.matrix) * push) > 0  # it stopped beyond the optimum


def test_fista_extrapolates_and_guesses_thresholds_without_a_pass(monkeypatch):
    solver, state = fista_at(smoothness=2.0)
    state = solver.step(solver.step(state))
    minimise_threshold, seen = Problem.minimise_threshold, []

    def spy(self, squared, thresholds, tol):
        seen.append((np.array(squared), thresholds, *minimise_threshold(self, squared, thresholds, tol)))
        return seen[-1][2:]

    monkeypatch.setattr(Problem, "minimise_threshold", spy)
    last = state.memory
    moved = solver.step(state)
    weight = (last.momentum - 1.0) / moved.memory.momentum
    base = last.here.matrix + weight * (last.here.matrix - last.before.matrix)
    np.testing.assert_allclose(seen[0][0], solver.problem.objective.quadratic_forms(base), atol=1e-9)
    np.testing.assert_allclose(
        seen[0][1], last.here.thresholds + weight * (last.here.thresholds - last.before.thresholds)
    )
    # A threshold moves with the mean squared distance.
    shift = np.mean(seen[1][0]) - np.mean(seen[0][0])
    np.testing.assert_allclose(seen[1][1], seen[0][2] + shift, atol=1e-9)


@pytest.mark.parametrize(
    ("alpha", "residual", "expected"), [(0.0, 1.0, 1e-6), (0.0, 1e-4, 1e-8), (0.02, 1.0, 1e-14), (0.02, 1e-4, 1e-14)]
)
def test_thresholds_are_settled_as_exactly_as_the_step_or_the_bound_needs(monkeypatch, alpha, residual, expected):
    solver, state = fista_at(alpha, smoothness=2.0, residual=residual, momentum=3.0)
    minimise_threshold, tols = Problem.minimise_threshold, []
    monkeypatch.setattr(
        Problem,
        "minimise_threshold",
        lambda self, squared, thresholds, tol: (tols.append(tol), minimise_threshold(self, squared, thresholds))[1],
    )
    solver.step(state)
    assert tols == [pytest.approx(expected, rel=1e-9, abs=0.0)] * 2


@pytest.mark.parametrize(("share", "is_tried"), [(0.99, False), (1.01, True)])
def test_fista_proves_once_the_residual_is_small(monkeypatch, share, is_tried):
    monkeypatch.setattr(fista_module, "prove_bound", lambda point, tol: 0.1)
    solver, state = fista_at(smoothness=2.0, certify_below=0.0)
    residual = solver.step(state).memory.residual
    # The gap is about residual^2 / smoothness.
    below = share * residual / math.sqrt(2.0)
    moved = solver.step(replace(state, memory=replace(state.memory, certify_below=below)))
    assert moved.bound == (0.1 if is_tried else 0.0)
    assert moved.memory.certify_below == pytest.approx(0.2 * below if is_tried else below)


def test_fista_tries_a_proof_the_later_the_smaller_the_tolerance():
    below = {tol: fista_at(tol=tol)[1].memory.certify_below for tol in (0.0, 1e-15, 1e-14, 4e-14, 1e-6)}
    assert below[0.0] == below[1e-15] == below[1e-14]
    assert below[4e-14] == pytest.approx(2.0 * below[1e-14])
    # Where it is tried first the gap, residual^2 / smoothness, is about a tenth of the tolerance.
    assert below[1e-6] ** 2 == pytest.approx(1e-7, rel=0.2)


@pytest.mark.parametrize(("residual", "stuck"), [(0.9e-12, True), (1.1e-12, False)])
def test_a_proof_of_fista_keeps_the_better_bound(monkeypatch, residual, stuck):
    solver, state = fista_at(residual=residual)
    points = []
    monkeypatch.setattr(fista_module, "prove_bound", lambda point, tol: (points.append((point, tol)), 0.1)[1])
    assert solver._certify(replace(state, bound=0.05)).bound == 0.1
    kept = solver._certify(replace(state, bound=0.2))
    assert (kept.bound, kept.stuck) == (0.2, stuck)
    point, tol = points[0]
    assert tol == solver.tol
    assert abs(point.slopes[0]) < 1e-14
    np.testing.assert_array_equal(point.matrix, state.matrix)


@pytest.mark.parametrize(("alpha", "bound", "expected"), [(0.0, 0.0, 0.0), (0.02, 0.0, 0.1), (0.02, 0.2, 0.2)])
def test_with_a_penalty_each_gradient_of_fista_proves_something(monkeypatch, alpha, bound, expected):
    solver, state = fista_at(alpha, smoothness=2.0)
    monkeypatch.setattr(fista_module, "proven_bound", lambda point, ceiling: 0.1)
    assert state.bound == 0.0
    assert solver.step(replace(state, bound=bound)).bound == expected


# Descent on the factor


def factor_at(alpha=0.0, tol=1e-6, rank=None, matrix=((0.3, 0.1), (0.1, 0.2)), **memory):
    solver = Factor(problem_of(alpha=alpha), tol, RNG(0), rank)
    state = solver.resume(State.at(np.array(matrix), 0.5))
    return solver, replace(state, memory=replace(state.memory, **memory))


def going(memory, value, gradient=None):
    """In place of an evaluation: the value at a distance from where one was."""

    def evaluate(factor, thresholds, steps):
        length = np.linalg.norm(factor - memory.factor)
        slopes = np.ones_like(factor) if gradient is None else gradient(factor)
        return replace(memory, factor=factor, value=value(length), gradient=slopes, steps=steps)

    return evaluate


@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_the_gradient_in_the_factor_is_that_of_the_risk_with_its_best_threshold(alpha):
    solver, state = factor_at(alpha)
    plain, factor = PlainRisk(solver.problem), state.memory.factor
    np.testing.assert_allclose(factor @ factor.T, [[0.3, 0.1], [0.1, 0.2]], atol=1e-12)

    def value(entries):
        a = entries.reshape(2, 2)
        return plain.settled(a @ a.T)[0]

    assert state.objective == pytest.approx(value(factor.ravel()), abs=1e-10)
    slopes = approx_fprime(factor.ravel(), value, 1e-6)
    np.testing.assert_allclose(state.memory.gradient.ravel(), slopes, atol=1e-5)


def test_a_factor_begins_with_small_columns_where_there_are_none():
    nothing = factor_at(matrix=np.zeros((2, 2)))[1].memory.factor
    np.testing.assert_allclose(nothing, 1e-6 * np.eye(2))
    thin = factor_at(matrix=np.diag([4.0, 0.0]))[1].memory.factor
    np.testing.assert_allclose(np.abs(thin), [[2.0, 2e-3], [0.0, 0.0]], atol=1e-12)


@pytest.mark.parametrize("size", [0.01, 10.0])
def test_the_first_step_moves_a_factor_by_a_tenth_at_most(size):
    gradient = size * np.array([[0.6, 0.0], [0.0, 0.8]])
    solver, state = factor_at(gradient=gradient)
    solver._evaluate = going(state.memory, lambda length: state.objective - 100.0 * length)
    step = solver.step(state).memory.factor - state.memory.factor
    expected = min(size, 0.1 * np.linalg.norm(state.memory.factor))
    np.testing.assert_allclose(step, -expected * gradient / size, atol=1e-12)


@pytest.mark.parametrize(("share", "longest", "expected"), [*HALVED, (0.5, 2.0**-33, 2.0**-33), (0.5, 2.0**-34, 0.0)])
def test_a_step_of_the_factor_is_halved_until_it_gains_a_share_of_the_slope(monkeypatch, share, longest, expected):
    """Along a direction of length and slope one."""
    monkeypatch.setattr(factor_module, "prove_bound", lambda point, tol: 0.1)
    gradient = np.array([[0.6, 0.0], [0.0, 0.8]])
    steps = ((gradient, gradient, 1.0),)
    solver, state = factor_at(factor=np.zeros((2, 2)), gradient=gradient, steps=steps, value=0.0)
    solver._evaluate = going(state.memory, lambda length: -share * length if length <= 1.0001 * longest else 1.0)
    moved = solver.step(state)
    if expected == 0.0:
        assert (moved.stuck, moved.bound) == (True, 0.1)
        np.testing.assert_array_equal(moved.matrix, state.matrix)
    else:
        np.testing.assert_allclose(moved.memory.factor, -expected * gradient, rtol=1e-9)


@pytest.mark.parametrize(("turn", "is_kept"), [(1.0, True), (-1.0, False), (0.0, False)])
def test_steps_are_remembered_where_the_risk_curves_upwards(turn, is_kept):
    gradient = np.array([[0.6, 0.0], [0.0, 0.8]])
    old = tuple((k * gradient, gradient, float(k)) for k in range(1, 13))
    for steps in ((), old):
        solver, state = factor_at(gradient=gradient, steps=steps)
        last = state.memory

        def change(factor, last=last):
            return turn * (factor - last.factor)

        solver._evaluate = going(last, lambda _: -100.0, lambda factor: gradient + change(factor))
        new = solver.step(state).memory
        if is_kept:
            assert new.steps[:-1] == steps[-11:]  # the twelve latest
            np.testing.assert_allclose(new.steps[-1][0], new.factor - last.factor)
            np.testing.assert_allclose(new.steps[-1][1], new.factor - last.factor)
        else:
            assert new.steps is steps


@pytest.mark.parametrize(("tol", "limit"), [(1e-4, 1e-6), (0.0, 1e-12)])
@pytest.mark.parametrize("share", [0.99, 1.01])
def test_the_factor_is_settled_where_its_gradient_is_small_for_the_tolerance(monkeypatch, tol, limit, share):
    monkeypatch.setattr(factor_module, "prove_bound", lambda point, tol: 0.1)
    solver, state = factor_at(tol=tol)

    def gradient(factor):
        return share * limit / (1.0 + np.linalg.norm(factor)) * np.eye(2) / math.sqrt(2.0)

    solver._evaluate = going(state.memory, lambda _: -1.0, gradient)
    assert solver.step(state).stuck == (share < 1.0)


@pytest.mark.parametrize(
    ("value", "gain", "stuck"),
    [(0.0, 0.9e-15, True), (0.0, 1.1e-15, False), (1000.0, 2.0**-40, True), (1000.0, 2.0**-39, False)],
)
def test_the_factor_is_stuck_where_a_step_gains_no_more_than_rounding(monkeypatch, value, gain, stuck):
    monkeypatch.setattr(factor_module, "prove_bound", lambda point, tol: 0.1)
    solver, state = factor_at(value=value, gradient=1e-8 * np.eye(2))
    solver._evaluate = going(state.memory, lambda _: value - gain)
    assert solver.step(state).stuck == stuck


@pytest.mark.parametrize(
    ("rank", "proves", "expected"), [(None, True, 0.1), (2, True, 0.1), (1, True, 0.0), (2, False, 0.0)]
)
def test_only_a_factor_of_full_rank_proves(monkeypatch, rank, proves, expected):
    monkeypatch.setattr(factor_module, "prove_bound", lambda point, tol: 0.1)
    solver = Factor(problem_of(), 1e-6, RNG(0), rank, proves=proves)
    state = solver.start()
    assert (state.bound, state.memory.factor.shape) == (0.0, (2, rank or 2))
    done = solver._finish(state)
    assert (done.bound, done.stuck) == (expected, True)
    assert solver._finish(replace(state, bound=0.2)).bound == 0.2


@pytest.mark.parametrize("n_steps", [0, 1, 3])
def test_the_direction_of_descent_is_that_of_the_bfgs_formula(n_steps):
    rng = RNG(2)
    gradient, steps = rng.standard_normal((3, 2)), rng.standard_normal((n_steps, 3, 2))
    changes = steps * rng.uniform(0.5, 2.0, steps.shape)
    inverse = first = np.diag(np.arange(1.0, 7.0))
    if n_steps:
        inverse = first * np.sum(steps[-1] * changes[-1]) / np.sum(changes[-1].ravel() @ first @ changes[-1].ravel())
    for s, y in zip(steps.reshape(-1, 6), changes.reshape(-1, 6), strict=True):
        turn = np.eye(6) - np.outer(s, y) / (s @ y)
        inverse = turn @ inverse @ turn.T + np.outer(s, s) / (s @ y)
    pairs = tuple((step, change, np.sum(step * change)) for step, change in zip(steps, changes, strict=True))
    found = factor_module._two_loop(gradient, pairs, lambda matrix: matrix * np.diag(first).reshape(3, 2))
    np.testing.assert_allclose(found.ravel(), -inverse @ gradient.ravel(), rtol=1e-9)


def test_a_factor_whose_gradient_vanishes_is_stuck(monkeypatch):
    solver, state = factor_at()
    flat = np.zeros_like(state.memory.gradient)
    monkeypatch.setattr(solver, "_evaluate", going(state.memory, lambda _: state.memory.value, np.zeros_like))
    assert solver.step(replace(state, memory=replace(state.memory, gradient=flat))).stuck
