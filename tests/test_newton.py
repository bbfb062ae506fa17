"""Newton's method: its quadratic program, how long steps are, when they are accepted, and when a proof is tried."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from closefar import packed
from closefar.solve import Ending, State, solve_roughly
from closefar.solve import newton as newton_module
from closefar.solve.newton import (
    ConeProgram,
    HessianSampler,
    Newton,
    _damping,
    _projection_slopes,
    _solve_dense,
    _typical_eigenvalue,
)
from closefar.solve.problem import Cone, Problem
from random_problems import KINDS, RandomProblem, solved

RNG = np.random.default_rng


# The quadratic program of a step


def test_the_cone_program_is_solved(rng):
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    root = rng.standard_normal((7, 7))
    hessian, linear = root @ root.T + 0.1 * np.eye(7), rng.standard_normal(7)
    program = ConeProgram(hessian, 1e-9, Cone(3, np.zeros(1)))
    found = program.project(program.solve(linear, np.zeros(7), tol=1e-12))
    matrix, tau = cp.Variable((3, 3), PSD=True), cp.Variable(nonneg=True)
    weights = packed.weights(3)
    x = cp.hstack([cp.multiply(weights, cp.hstack([matrix[i, j] for i in range(3) for j in range(i, 3)])), tau])
    best = cp.Problem(cp.Minimize(0.5 * cp.quad_form(x, cp.psd_wrap(hessian)) + linear @ x)).solve(solver=cp.CLARABEL)
    assert 0.5 * found @ hessian @ found + linear @ found == pytest.approx(best, abs=1e-6)
    assert np.linalg.eigvalsh(packed.split(found, 3)[0])[0] >= -1e-9
    assert found[-1] >= 0.0


def test_the_cone_program_with_free_linear_terms(rng):
    root = rng.standard_normal((11, 11))
    hessian, linear = root @ root.T + 0.1 * np.eye(11), rng.standard_normal(11)
    program = ConeProgram(hessian, 0.0, Cone(4, np.array([-np.inf]), has_constant=True))
    splitting = program.solve(linear, np.zeros(11), tol=1e-13)
    found = program.project(splitting)
    matrix, _ = packed.split(found, 4)
    assert matrix[-1, -1] == 0.0
    slack, slack_t = packed.split(hessian @ found + linear, 4)
    # Stationary in what is free, complementary in the cone.
    np.testing.assert_allclose(slack[:3, 3], 0.0, atol=1e-8)
    assert slack_t[0] == pytest.approx(0.0, abs=1e-8)
    assert np.linalg.eigvalsh(slack[:3, :3])[0] >= -1e-8
    assert np.sum(slack[:3, :3] * matrix[:3, :3]) == pytest.approx(0.0, abs=1e-8)


def test_damping_is_relative_to_the_mean_eigenvalue():
    hessian = np.diag([4.0, 2.0])
    program = ConeProgram(hessian, 0.5, Cone(1, np.zeros(1)))
    assert program.damping == 1.5
    np.testing.assert_allclose(program.hessian, hessian + 1.5 * np.eye(2))
    assert program.rho == pytest.approx(3.0 * np.sqrt((4.0 / 3.0 + 1e-3) * (2.0 / 3.0 + 1e-3)) + 1.5)
    assert ConeProgram(5.0 * hessian, 0.5, Cone(1, np.zeros(1))).rho == pytest.approx(5.0 * program.rho)
    assert ConeProgram(0.0 * hessian, 0.5, Cone(1, np.zeros(1))).damping == pytest.approx(0.5e-6)


def test_the_scale_of_a_program_is_not_set_by_annotators():
    """They are many, with little curvature each; one threshold that is free is that of an origin."""
    hessian = np.diag([4.0, 2.0, *[1e-6] * 20])
    few = ConeProgram(hessian[:2, :2], 0.0, Cone(1, np.zeros(1)))
    many = ConeProgram(hessian, 0.0, Cone(1, np.append(0.0, np.full(20, -np.inf))))
    assert many.rho == pytest.approx(few.rho, rel=0.1)


@pytest.mark.parametrize("values", [[1.5, 0.5], [2.0, 1.0, 0.0], [2.999, 1e-3, 0.0], [1.0]])
def test_the_typical_eigenvalue_is_the_geometric_mean(values, rng):
    turn = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    expected = np.prod(np.add(values, 1e-3)) ** (1.0 / len(values))
    assert _typical_eigenvalue((turn * values) @ turn.T) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("damping", [0.0, 10.0])
@pytest.mark.parametrize("cone", [Cone(3, np.array([0.5, -1.0])), Cone(3, np.array([-np.inf] * 2), has_constant=True)])
def test_newton_steps_of_the_cone_program_are_those_of_finite_differences(damping, cone, rng):
    root = rng.standard_normal((8, 8))
    program = ConeProgram(root @ root.T + 0.1 * np.eye(8), damping, cone)
    linear = rng.standard_normal(8)
    matrix = np.array([[1.0, 0.7, 0.3], [0.7, -1.0, 0.2], [0.3, 0.2, -0.5]])
    t = packed.join(matrix, np.array([1.0, -2.0]))  # one above its least value, one below
    residual, spectrum = program._residual(t, linear)
    near = [program._residual(t + 1e-6 * sign * unit, linear)[0] for unit in np.eye(8) for sign in (1.0, -1.0)]
    jacobian = (np.array(near[::2]) - np.array(near[1::2])).T / 2e-6
    # Some of the damping keeps it invertible.
    jacobian += 1e-4 * program.damping / program.rho * np.eye(8)
    step = program._newton_step(t, residual, spectrum)
    np.testing.assert_allclose(jacobian @ step, -residual, atol=1e-7 * np.abs(step).max())


@pytest.mark.parametrize(
    ("scale", "length"),
    [(1.0, 1.0), (1.85, 1.0), (0.11, 1.0), (2.0, 0.5), (5.0, 0.2), (10.0, None), (0.09, None), (0.0, None), (-1, None)],
)
def test_a_newton_step_is_shortened_until_the_residual_falls_by_a_tenth_of_its_length(scale, length):
    """Inside the cone the residual is linear: a step of s times the right one leaves 1 - s of it."""
    program = ConeProgram(np.array([[2.0, 0.5], [0.5, 1.0]]), 0.0, Cone(1, np.zeros(1)))
    linear, start = -program.hessian @ [3.0, 5.0], np.array([3.001, 4.999])
    residual, spectrum = program._residual(start, linear)
    step = program._newton_step(start, residual, spectrum)
    np.testing.assert_allclose(start + step, [3.0, 5.0])
    program._newton_step = lambda *_: scale * step
    found = program.solve(linear, start, tol=0.0, max_iter=1)
    # Where no length helps, a splitting step.
    expected = start - residual if length is None else start + length * scale * step
    np.testing.assert_allclose(found - start, expected - start, rtol=1e-9)


def test_the_cone_program_ends_when_the_slack_is_known_to_its_tolerance():
    program = ConeProgram(np.array([[2.0, 0.5], [0.5, 1.0]]), 0.0, Cone(1, np.zeros(1)))
    linear, start = -program.hessian @ [3.0, 5.0], np.array([3.1, 4.0])
    left = program.rho * np.abs(program._residual(start, linear)[0]).max()
    assert program.solve(linear, start, tol=left * 1.001) is start
    assert program.solve(linear, start, tol=left * 0.999) is not start
    assert program.solve(linear, start, tol=0.0, max_iter=0) is start
    # Nothing is left to gain at a solution of this arithmetic, whatever the tolerance.
    solution = program.solve(linear, start, tol=0.0)
    np.testing.assert_allclose(solution, [3.0, 5.0], rtol=1e-13)


def test_near_a_solution_the_cone_program_needs_few_steps():
    rng = RNG(5)
    root, linear = rng.standard_normal((7, 7)), rng.standard_normal(7)
    program = ConeProgram(root @ root.T + 0.1 * np.eye(7), 1e-9, Cone(3, np.zeros(1)))
    solution = program.solve(linear, np.zeros(7), tol=1e-12)
    near = program.solve(linear, solution + 1e-4 * rng.standard_normal(7), tol=0.0, max_iter=3)
    np.testing.assert_allclose(near, solution, atol=1e-9)


def test_slopes_of_the_projection_are_divided_differences():
    values = np.array([-2.0, 0.0, 0.0, 3.0])
    positive = np.maximum(values, 0.0)
    slopes = _projection_slopes(values)
    for i in range(4):
        for j in range(4):
            if values[i] != values[j]:
                assert slopes[i, j] == pytest.approx((positive[i] - positive[j]) / (values[i] - values[j]))
    assert (slopes[0, 0], slopes[3, 3], slopes[1, 2]) == (0.0, 1.0, 0.5)


def test_dense_systems_hold_thresholds(rng):
    root = rng.standard_normal((5, 5))
    hessian = root @ root.T
    matrix, slopes = np.array([[1.0, 0.5], [0.5, -1.0]]), np.array([0.3, -0.2])
    for held in ([False, False], [True, False], [True, True]):
        step, shift = _solve_dense(hessian, matrix, slopes, np.array(held), 0.0)
        image = hessian @ packed.join(step, shift)
        np.testing.assert_allclose(image[:3], packed.pack(matrix), atol=1e-10)
        for k, is_held in enumerate(held):
            assert shift[k] == 0.0 if is_held else image[3 + k] == pytest.approx(slopes[k])


# A step


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
    solver = Newton(RandomProblem.of("close/far", n=n, d=2).problem(), tol, RNG(0))
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


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "origin"])
def test_a_newton_step_minimises_the_damped_quadratic_model(kind, rank):
    judged = RandomProblem.of(kind, n=400, d=2, sharpness=0.5, rank=rank)
    best = solved("newton", judged.problem())
    matrix, thresholds = best.factor @ best.factor.T + 0.05 * np.eye(2), best.thresholds + 0.01
    solver = Newton(judged.problem(), 1e-6, RNG(0))
    start = solver.resume(State.at(matrix, *thresholds))
    moved = solver.advance(start)
    hessian, gradient = judged.hessian(matrix, thresholds), packed.join(*judged.gradient(matrix, thresholds))
    damped = hessian + start.memory.damping * np.trace(hessian) / len(hessian) * np.eye(len(hessian))
    taken = packed.join(moved.matrix - matrix, moved.thresholds - thresholds)
    model, rng = gradient @ taken + 0.5 * taken @ damped @ taken, RNG(0)
    assert moved.memory.decrement == pytest.approx(-model, rel=1e-5)
    if rank == 2 and not judged.kind.has_centre:  # the step stays inside the cone
        np.testing.assert_allclose(taken, -np.linalg.solve(damped, gradient), atol=1e-5)
    # No other feasible step is better for the model.
    for size in np.logspace(-4, 0, 200):
        aside = size * rng.standard_normal((2, 2))
        tau = moved.thresholds + size * rng.standard_normal(len(thresholds))
        other, tau = judged.feasible(moved.matrix + aside + aside.T, tau)
        other = packed.join(other - matrix, tau - thresholds)
        assert gradient @ other + 0.5 * other @ damped @ other >= model - 1e-9
    assert moved.objective == pytest.approx(judged.value(moved.matrix, moved.thresholds), abs=1e-10)
    assert moved.objective < start.objective
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


@pytest.mark.parametrize(
    ("share", "longest", "expected"),
    [
        (1.01e-4, 1.0, 1.0),
        (0.99e-4, 1.0, 0.0),
        (0.5, 0.3, 0.25),
        (1.01e-4, 0.25, 0.25),
        (0.5, 2.0**-19, 2.0**-19),
        (0.5, 2.0**-20, 0.0),
    ],
)
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


# Proofs, and the last digits


def proving(solver, moved, monkeypatch, *bounds):
    """Let the solver step to a state, and prove these bounds one after another; return the Hessians that it used."""
    hessians, left = [], list(bounds)
    point = moved.memory.point
    program = SimpleNamespace(hessian=np.diag([1.5, 2.5, 3.5, 4.5]), damping=0.5)

    def prove(at, solve, tol):
        assert (at, tol) == (point, solver.tol)
        hessians.append(solve.args[0])
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(newton_module, "lower_bound", prove)
    solver._advance = lambda state: (replace(moved, bound=max(moved.bound, state.bound)), program)
    return hessians


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
def test_newton_proves_where_the_decrement_is_small_or_nothing_moves(
    tol, decrement, before, damping, stuck, is_tried, monkeypatch
):
    solver, state = newton_at(tol, damping=1.0, decrement=before)
    moved = replace(state, stuck=stuck, memory=replace(state.memory, decrement=decrement, damping=damping))
    hessians = proving(solver, moved, monkeypatch, 0.01)
    assert solver.step(state).bound == (0.01 if is_tried else 0.0)
    assert bool(hessians) == is_tried


@pytest.mark.parametrize(
    ("proofs", "best"), [((0.75, 0.9), 0.75), ((0.7, 0.9), 0.9), ((0.7, 0.5), 0.7), ((0.1, 0.2), 0.3)]
)
def test_newton_proves_nearly_undamped_first(proofs, best, monkeypatch):
    solver, state = newton_at(0.25)
    moved = replace(state, objective=1.0, bound=0.3, stuck=True)
    hessians = proving(solver, moved, monkeypatch, *proofs)
    assert solver.step(state).bound == best
    np.testing.assert_allclose(hessians[0], np.diag([1.0, 2.0, 3.0, 4.0]) + 0.0005 * np.eye(4))
    if proofs[0] < 0.75:
        np.testing.assert_allclose(hessians[1], np.diag([1.5, 2.5, 3.5, 4.5]))
    assert len(hessians) == (1 if proofs[0] == 0.75 else 2)


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
def test_newton_polishes_what_is_proven(gap, decrement, before, stuck, n_steps, monkeypatch):
    solver, state = newton_at(0.25, decrement=before)
    solver.is_small = False
    moved = replace(state, objective=1.0, stuck=stuck, memory=replace(state.memory, decrement=decrement))
    proving(solver, moved, monkeypatch, 1.0 - gap)
    seen, advance = [], solver._advance
    solver._advance = lambda each: seen.append(each.bound) or advance(each)
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
def test_newton_polishes_small_problems_down_to_rounding_errors(decrements, n_steps, monkeypatch):
    solver, state = newton_at(0.25, decrement=1e-5)
    assert solver.is_small
    proving(solver, state, monkeypatch, 1.0)
    seen, (_, program) = [], solver._advance(state)

    def advance(each):
        seen.append(each)
        memory = replace(state.memory, decrement=decrements[len(seen) - 1])
        return replace(state, objective=1.0, bound=each.bound, memory=memory), program

    solver._advance = advance
    solver.step(state)
    assert len(seen) == n_steps


def test_newton_needs_few_steps_and_passes():
    given = RandomProblem.of("close/far", n=4000, d=5).problem()
    solver = Newton(given, 1e-8, RNG(0))
    result = solver.run(solver.start, tol=1e-8, max_iter=50)
    assert result.ending is Ending.CONVERGED
    assert result.n_iter <= 10
    assert given.passes.count < 25
    # From a solution there is nothing to do but to prove it.
    again = solver.run(lambda: solver.resume(result.state), tol=1e-8, max_iter=50)
    assert again.n_iter <= 2


def test_a_point_looked_at_again_keeps_what_was_learned():
    solver = Newton(RandomProblem.of("close/far", n=600).problem(), 1e-8, RNG(0))
    first = solver.advance(solver.start())
    again = solver.renew(first)
    assert again.objective == pytest.approx(first.objective)
    assert again.memory.splitting is first.memory.splitting
    fresh = solver.renew(State.at(first.matrix, *first.thresholds))
    assert fresh.objective == pytest.approx(first.objective)
    # Its risk is another one, of which nothing is proven yet.
    assert solver.renew(replace(first, bound=0.3)).bound == 0.0


# Fits that are only compared: nothing is proven


@pytest.mark.parametrize(
    ("tol", "is_rough", "inexactness"), [(1e-2, True, 1e-2), (1e-3, False, 1e-3), (1e-4, False, 1e-9)]
)
def test_a_fit_that_proves_nothing_solves_its_models_roughly(tol, is_rough, inexactness, monkeypatch):
    made, build = [], newton_module.Newton.__init__
    monkeypatch.setattr(Newton, "__init__", lambda self, *given: made.append(self) or build(self, *given))
    solve_roughly(RandomProblem.of("close/far").problem(), None, tol=tol, n_steps=50)
    assert (made[0].proves, made[0].is_rough, made[0].inexactness) == (False, is_rough, inexactness)


@pytest.mark.parametrize(
    ("decrement", "before", "is_rough", "stuck"),
    [
        (0.9e-3, 0.5, True, True),  # a thousandth of the objective, which is one
        (1.1e-3, 0.5, True, False),
        (0.9e-3, 0.5, False, True),
        (1.1e-3, 0.5, False, False),
        (0.9e-3, 3e-3, False, False),  # steps hardly shrink
        (0.9e-3, 1.0, False, False),  # the first step tells nothing
        (0.9e-3, 1.0, True, True),
        (1e-16, 1e-16, False, True),  # only rounding is left
    ],
)
def test_a_fit_that_proves_nothing_ends_with_a_step_that_gains_little(decrement, before, is_rough, stuck):
    solver, state = newton_at(1e-3, decrement=before)
    solver.proves, solver.is_rough = False, is_rough
    moved = replace(state, objective=1.0, memory=replace(state.memory, decrement=decrement))
    solver._advance = lambda _: (moved, None)
    assert solver.step(state).stuck == stuck


def test_a_curvature_that_is_infinite_ends_a_fit_that_proves_nothing():
    solver, state = newton_at()

    def fail(state):
        raise np.linalg.LinAlgError("singular")

    solver._advance = fail
    with pytest.raises(np.linalg.LinAlgError):
        solver.step(state)
    solver.proves = False
    assert solver.step(state).stuck


# The first steps, and Hessians, on a sample


@pytest.mark.parametrize(("n", "shares"), [(191, []), (192, [1.0 / 8.0])])
def test_newton_starts_on_an_eighth_where_that_has_eight_for_each_unknown_of_the_metric(monkeypatch, n, shares):
    seen = []
    monkeypatch.setattr(newton_module, "_LONG_SCOUTED_PASS", 4.0 * 2**2 * 191)
    monkeypatch.setattr(Problem, "sample", lambda self, share, rng: seen.append(share))
    solver = Newton(RandomProblem.of("close/far", n=n, d=2).problem(), 1e-6, RNG(0))
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
    whole, few = (RandomProblem.of("close/far", n=n, d=2).problem() for n in (192, 50))
    solver = Newton(whole, 1e-6, RNG(0))
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


def test_a_start_that_an_enormous_difference_spoils_is_given_up():
    """With a penalty, where M = 0 is far better than what the moments say."""
    judged = RandomProblem.of("close/far", n=300, d=2, alpha=0.01)
    solver = Newton(judged.problem(), 1e-6, RNG(0))
    far_off = solver._begin(1e6 * np.eye(2), np.ones(1))
    solver._begin = lambda matrix, *rest: far_off if matrix.any() else Newton._begin(solver, matrix, *rest)
    begun = solver.start()
    assert not begun.matrix.any()
    assert begun.objective == pytest.approx(judged.best_threshold(np.zeros((2, 2)))[1], abs=1e-9)


@pytest.mark.parametrize("kind", ["close/far", "levels", "annotators"])
def test_the_hessian_of_a_sample_is_that_of_all_on_average(kind):
    judged = RandomProblem.of(kind, n=3000, d=2, sharpness=3.0)
    given = judged.problem()
    best = solved("newton", given)
    here = given.evaluate(given.forms(best.factor @ best.factor.T), best.thresholds, order=2)
    exact = given.hessian(here.curvature)
    sampler, found = HessianSampler(given, RNG(0)), []
    for _ in range(60):
        found.append(sampler.hessian(best.factor @ best.factor.T, best.thresholds, here, 400))
    spread = np.std(found, axis=0) / np.sqrt(60)
    assert np.all(np.abs(np.mean(found, axis=0) - exact) <= 5.0 * spread + 1e-6 * np.abs(exact).max())
    assert np.max(spread) > 1e-3 * np.abs(exact).max()  # they are samples indeed
    # A sample of nearly all is all, in single precision.
    whole = sampler.hessian(best.factor @ best.factor.T, best.thresholds, here, 2000)
    np.testing.assert_allclose(whole, exact, atol=1e-5 * np.abs(exact).max())


def test_judgements_that_are_certain_are_left_out_of_a_hessian():
    judged = RandomProblem.of("close/far", n=3000, d=2, sharpness=200.0)
    given = judged.problem()
    matrix, thresholds = 30.0 * np.eye(2), np.array([60.0])
    here = given.evaluate(given.forms(matrix), thresholds, order=2)
    exact, seen = given.hessian(here.curvature), []
    hessian = given.sampled_hessian
    object.__setattr__(given, "sampled_hessian", lambda *given: seen.append(given[2]) or hessian(*given))
    found = HessianSampler(given, RNG(0)).hessian(matrix, thresholds, here, 1500)
    assert len(seen[0]) < 1500
    np.testing.assert_allclose(found, exact, atol=1e-5 * np.abs(exact).max())
