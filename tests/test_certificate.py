"""Certificates and their proofs: bounds against optima found by other means, and each part against a formula."""

import itertools
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import entr, expit

import closefar as cf
from closefar import packed
from closefar.noise import NOISES
from closefar.rows import Differences
from closefar.solve import (
    SOLVERS,
    Answers,
    Evaluation,
    Likelihood,
    Outcome,
    Problem,
    SharedRate,
    SolverSettings,
    ignore_progress,
    problem,
    solve_with_flips,
)
from closefar.solve import flips as flips_module
from closefar.solve.certificate import (
    HessianSolver,
    _slack,
    advise_outcome,
    diagonal_model,
    lower_bound,
    prove_bound,
    proven_bound,
    sample_model,
)
from closefar.solve.likelihood import Curvature
from closefar.solve.newton import _solve_dense
from closefar.solve.problem import Cone, Point
from closefar.solve.solution import with_free_corner
from random_problems import KINDS, WAYS, RandomProblem, solved

EPS = np.finfo(np.float64).eps
SLACK = 1e-10  # what rounding may add to a sum of losses


# No certificate lies


def drawn(kind, noise):
    """Random problems without end, and the random numbers that each was made from."""
    for seed in itertools.count():
        rng = np.random.default_rng([seed, list(KINDS).index(kind), sorted(NOISES).index(noise)])
        judged = RandomProblem.of(
            kind,
            noise,
            n=int(rng.integers(10, 70)),
            d=int(rng.integers(1, 5)),
            alpha=one(rng, [0.0, 0.0, 1e-4, 1e-2, 0.2]),
            seed=int(rng.integers(1 << 30)),
            weighted=one(rng, [False, True]),
            scales=one(rng, [0.0, 3.0]),
            sharpness=one(rng, [0.3, 1.0, 3.0]),
            shift=one(rng, [0.0, 0.0, 4.0]),
            whole=one(rng, [False, False, True]),
        )
        if judged.likelihood.determines_thresholds(judged.rows):
            yield judged, rng


def one(rng, values):
    return values[rng.integers(len(values))]


def solved_with_flips(way, judged, rate, monkeypatch, **settings):
    """The solution at a flip rate, known or (if it is None) estimated, and the convex problem of its certificate."""
    soft, soften = [], flips_module.softened
    flips = SharedRate(np.array([0.1 if rate is None else rate]))
    given = judged.problem(likelihood=judged.likelihood.with_flips(flips))
    settings = SolverSettings(WAYS[way][0], **settings)
    with monkeypatch.context() as patch:
        patch.setattr(flips_module, "softened", lambda *given: soft.append(soften(*given)) or soft[-1])
        patch.setattr(problem, "_LARGEST_SHARE", WAYS[way][1] or 0.0)
        found, _ = solve_with_flips(
            given, settings, estimate=rate is None, rng=np.random.default_rng(0), watch=ignore_progress
        )
    # No label seems flipped, or each counts with its probability of not being flipped.
    return found, replace(judged, weights=soft[-1].weights) if soft else judged


@pytest.mark.parametrize("noise", sorted(NOISES))
@pytest.mark.parametrize("kind", KINDS)
def test_no_certificate_lies(kind, noise, monkeypatch):
    """504 problems in all: few or many judgements, separable or noisy, flipped or not, ended at any step."""
    monkeypatch.setattr(problem, "_FEWEST_PER_PARAMETER", 4)  # small samples, whose Hessians are rough
    for judged, rng in itertools.islice(drawn(kind, noise), 14):
        way, has_flips = one(rng, list(WAYS)), one(rng, [False, False, True])
        settings = {"tol": 10.0 ** rng.uniform(-9, -2), "max_iter": one(rng, [1, 3, 10, 30])}
        if has_flips:
            found, judged = solved_with_flips(way, judged, one(rng, [0.02, 0.2, None]), monkeypatch, **settings)
            bounds = [found.certificate.lower_bound]
        else:
            found = solved(way, judged.problem(), **settings)
            bounds = [step.objective - step.gap for step in found.history]  # proven on the way, too
        certificate, matrix, thresholds = found.certificate, found.factor @ found.factor.T, found.thresholds
        assert certificate.objective == pytest.approx(judged.value(matrix, thresholds), rel=1e-9, abs=1e-9)
        assert certificate.gap == max(certificate.objective - certificate.lower_bound, 0.0)
        assert judged.is_feasible(thresholds)
        # A better point, by another solver that goes on from there to a far smaller tolerance, and others around it.
        other, given = "lowrank" if way == "newton" else "newton", judged.problem()
        best = solved(other, given, tol=1e-9, max_iter=15, start=with_free_corner(given.cone, found.state))
        feasible = [(matrix, thresholds), (best.factor @ best.factor.T, best.thresholds)]
        for size in (1e-6, 1e-3, 0.1, 1.0):
            step = size * rng.standard_normal(matrix.shape)
            moved = thresholds + size * rng.standard_normal(len(thresholds))
            feasible.append(judged.feasible(feasible[1][0] + step + step.T, moved))
        optimum = min(judged.value(*point) for point in feasible)
        assert certificate.lower_bound <= optimum + SLACK
        assert max(bounds) <= optimum + SLACK


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "origin"])
@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_a_point_proves_no_more_than_the_optimum(kind, alpha):
    """Symmetric M of any signature may serve, as long as its gradient is in the dual cone."""
    judged = RandomProblem.of(kind, n=200, alpha=alpha, seed=1)
    given, optimum, rng = judged.problem(), judged.optimum(), np.random.default_rng(16)
    best, bounds = solved("newton", given, tol=1e-10), []
    solution = best.factor @ best.factor.T
    hessian = given.hessian(given.at(solution, best.thresholds).evaluation.curvature)
    for scale in np.repeat(np.logspace(-9, 0, 20), 5):
        noise = rng.standard_normal((3, 3))
        # A step that raises the gradient by this, to first order.
        right = scale * (noise + noise.T + rng.choice([-3.0, 3.0]) * np.eye(3))
        step, _ = dense(hessian, right, 0.0 * best.thresholds, best.thresholds == 0.0, 0.0)
        point = settled(given, solution + step, best.thresholds)
        bounds.append(proven_bound(point, best.certificate.objective))
        outside = np.linalg.eigvalsh(point.gradient)[0] < -1e-9
        assert bounds[-1] <= (-np.inf if outside and alpha == 0.0 else optimum + 1e-9)
    assert np.any(np.isfinite(bounds))
    assert np.any(np.isinf(bounds)) == (alpha == 0.0)  # with a penalty there is always some bound


def test_the_dual_value_of_logistic_noise_is_the_entropy():
    """At the optimum, the Fenchel dual value is the mean entropy of the fitted probabilities."""
    judged = RandomProblem.of("close/far", n=200, weighted=True)
    best = solved("newton", judged.problem(), tol=1e-11)
    matrix = best.factor @ best.factor.T
    above, below = judged.ends(matrix, best.thresholds)
    wrong = expit(np.where(np.isinf(above), below, -above))
    entropy = judged.weights @ (entr(wrong) + entr(1.0 - wrong))
    assert judged.problem().at(matrix, best.thresholds).dual_value == pytest.approx(entropy, abs=1e-9)
    assert entropy == pytest.approx(judged.optimum(), abs=1e-9)


@pytest.mark.parametrize(("shift", "is_held"), [(0.0, False), (30.0, True)])
def test_the_threshold_and_its_multiplier_are_complementary(shift, is_held):
    judged = RandomProblem.of("close/far", "normal", n=300, alpha=1e-3, shift=shift)
    found = solved("newton", judged.problem(), tol=1e-9)
    multiplier = found.certificate.threshold_multiplier
    assert (found.thresholds[0] == 0.0, multiplier > 1e-4) == (is_held, is_held)
    assert is_held or (found.thresholds[0] > 0.01 and abs(multiplier) < 1e-7)


@pytest.mark.parametrize("way", WAYS)
def test_a_proof_measures_thresholds_from_their_least(way):
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    judged = RandomProblem.of("close/far", n=600)
    given = judged.problem()
    lowest = 2.0 * solved("newton", given).thresholds
    found = solved(way, replace(given, cone=Cone(3, lowest)), tol=1e-7, max_iter=2000)
    assert found.thresholds == lowest
    matrix, threshold = cp.Variable((3, 3), PSD=True), cp.Variable()
    squared = np.einsum("ij,ik->ijk", judged.far, judged.far).reshape(600, -1) @ cp.vec(matrix, order="C")
    loss = cp.sum(cp.logistic(cp.multiply(1.0 - 2.0 * judged.codes, squared - threshold))) / 600
    value = cp.Problem(cp.Minimize(loss), [threshold >= lowest]).solve(solver=cp.CLARABEL)
    assert found.certificate.objective == pytest.approx(value, abs=1e-7)
    assert found.certificate.objective - value - 1e-9 <= found.certificate.gap <= 1e-7


# What learners report, in the units of the data


@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_gap_of_a_learned_origin(alpha, solver):
    """Without a penalty x'Mx + b'x - tau is fitted, only M in the cone; with one all of the metric on (x, 1) is."""
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    rng = np.random.default_rng(17)
    n, d = 250, 3
    x = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + 2.0
    centred = x - x.mean(axis=0)
    w = centred @ np.linalg.inv(np.linalg.cholesky(centred.T @ centred / n)).T
    labels = np.where(np.sum((w - 0.5) ** 2, axis=1) - 2.5 + rng.logistic(size=n) > 0, 1, -1)
    w = np.hstack([centred / centred.std(axis=0) if alpha else w, np.ones((n, 1))])
    matrix, tau = cp.Variable((d + 1, d + 1), symmetric=True), cp.Variable()
    margin = np.einsum("ij,ik->ijk", w, w).reshape(n, -1) @ cp.vec(matrix, order="C") - tau
    loss = cp.sum(cp.logistic(cp.multiply(-labels, margin))) + n * alpha * cp.trace(matrix)
    free = [matrix[:d, :d] >> 0, matrix[d, d] == 0]
    optimum = cp.Problem(cp.Minimize(loss), [matrix >> 0, tau >= 0] if alpha else free).solve(solver=cp.CLARABEL) / n
    learner = cf.LinearMetricLearner(alpha=alpha, prior="zero", fit_origin=True, solver=solver, flip_rate=0.0)
    certificate = learner.fit(x, labels).certificate_
    assert certificate.gap <= 1e-6
    assert certificate.gap >= certificate.objective - optimum - 1e-8
    assert certificate.objective == pytest.approx(optimum, abs=1e-6)
    fitted = np.mean(learner.metric_.noise.neg_log_cdf(labels * learner.decision_function(x)))
    assert certificate.loss == pytest.approx(fitted, abs=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("prior", "alpha"), [("zero", 0.02), ("standardized", 0.01), ("standardized", 0.03), ("euclidean", 0.02)]
)
def test_the_gap_of_a_penalty(solver, prior, alpha):
    """M = c S^-1 + R, with alpha tr(R S) the penalty, S the mean squares of columns or one unit, and c free or 0."""
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    rng = np.random.default_rng(18)
    n, d = 200, 4
    z = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    z[:, 3] = z[:, 0] + z[:, 1] + 0.01 * z[:, 3]
    labels = np.where(np.sum(z**2, axis=1) + 2.0 * z[:, 0] ** 2 - 8.0 + 2.0 * rng.logistic(size=n) > 0, 1, -1)
    mean_squares = np.mean(z**2, axis=0)
    root = np.sqrt(np.full(d, mean_squares.mean()) if prior == "euclidean" else mean_squares)
    w = z / root
    matrix, tau, centre = cp.Variable((d, d), PSD=True), cp.Variable(nonneg=True), cp.Variable(nonneg=True)
    margin = np.einsum("ij,ik->ijk", w, w).reshape(n, -1) @ cp.vec(matrix, order="C") - tau
    if prior != "zero":
        margin = margin + centre * np.sum(w**2, axis=1)
    loss = cp.sum(cp.logistic(cp.multiply(-labels, margin))) / n + alpha * cp.trace(matrix)
    optimum = cp.Problem(cp.Minimize(loss)).solve(solver=cp.CLARABEL)
    units = np.full(d, 1e3) if prior == "euclidean" else np.array([1e-6, 1.0, 1e3, 1e6])
    learner = cf.LinearMetricLearner(alpha=alpha, prior=prior, flip_rate=0.0, solver=solver).fit(z * units, labels)
    certificate = learner.certificate_
    assert certificate.gap <= 1e-6
    assert certificate.gap >= certificate.objective - optimum - 1e-8
    assert certificate.objective == pytest.approx(optimum, abs=1e-6)
    found = (root * units)[:, None] * learner.get_mahalanobis_matrix() * (root * units)
    least = 0.0 if prior == "zero" else np.linalg.eigvalsh(found)[0]
    assert certificate.objective - certificate.loss == pytest.approx(alpha * (np.trace(found) - d * least), abs=1e-5)


def test_advice_names_what_was_asked_for():
    facts = {"gap": 2e-4, "is_proven": True, "tol": 1e-6, "rank": None, "max_iter": 7}
    assert "2.0e-04" in advise_outcome(Outcome.CONVERGED, **facts)
    assert "Rank 3 costs nothing" in advise_outcome(Outcome.CONVERGED, **{**facts, "rank": 3})
    assert "rank-3" in advise_outcome(Outcome.RESTRICTED, **{**facts, "rank": 3})
    assert "max_iter=7 steps did not reach tol=1.0e-06; the proven gap is 2.0e-04" in advise_outcome(
        Outcome.UNFINISHED, **facts
    )
    assert "no gap is proven yet" in advise_outcome(Outcome.STALLED, **{**facts, "is_proven": False})
    assert 'Set alpha="auto"' in advise_outcome(Outcome.SEPARABLE, **facts)
    assert "the fit was interrupted" in advise_outcome(Outcome.INTERRUPTED, **facts)


# What a gradient proves


def problem_of(cone, *, alpha=0.0, condition=1.0):
    """A problem that is not computed: what is known of its points is given."""
    likelihood = SimpleNamespace(precisions=np.zeros(len(cone.least)), lengths=None)
    return Problem(SimpleNamespace(condition=condition), likelihood, alpha, cone, None)


def point_at(matrix, tau, gradient, slope, *, loss=0.0, given=None, **more):
    """A point whose loss and derivatives are given, not computed."""
    matrix, gradient = np.atleast_2d(matrix).astype(float), np.atleast_2d(gradient).astype(float)
    given = given or problem_of(Cone(len(matrix), np.zeros(1)), **more)
    here = Evaluation(loss, np.array([float(slope)]), least_margin=-1.0, margin_gradient=None)
    return Point(given, matrix, np.array([float(tau)]), here, gradient)


def optimum_of(judged):
    """The problem, its solution M and thresholds, and its optimum."""
    given = judged.problem()
    best = solved("newton", given, tol=1e-12)
    return given, best.factor @ best.factor.T, best.thresholds, best.certificate.objective


def settled(given, matrix, thresholds):
    return given.known(matrix, *given.minimise_threshold(given.forms(matrix), thresholds))


def dense(hessian, matrix, thresholds, held, residual):
    """Solve with a Hessian that may be singular; some thresholds are held."""
    right = packed.join(matrix, thresholds)
    free = np.append(np.ones(len(right) - len(held), dtype=bool), ~held)
    step = np.zeros_like(right)
    step[free] = np.linalg.lstsq(hessian[np.ix_(free, free)], right[free], rcond=1e-12)[0]
    return packed.split(step, len(matrix))


@pytest.mark.parametrize(("matrix", "tau"), [(0.0, 0.0), (3.0, 0.0), (0.0, 7.0), ([[2e5, 1e5], [1e5, 1e5]], 1e5)])
def test_a_bound_allows_for_the_rounding_of_margins(matrix, tau):
    """Margins are wrong by eps times the size of M and tau, and the gradient's error is multiplied by M."""
    point = point_at(matrix, tau, np.zeros_like(matrix), 0.0)
    size = 1.0 + np.abs(matrix).sum() + tau
    bound = proven_bound(point, 1.0)
    assert bound == pytest.approx(-EPS * size * (1.0 + size), rel=1e-9, abs=0.0)
    ill = point_at(matrix, tau, np.zeros_like(matrix), 0.0, condition=50.0)
    assert proven_bound(ill, 1.0) == pytest.approx(50.0 * bound, rel=1e-9, abs=0.0)
    assert proven_bound(point, bound) == bound
    assert proven_bound(point, bound - 1e-3) == -np.inf


@pytest.mark.parametrize("outside", [6e-14, 1e-13])
@pytest.mark.parametrize("alpha", [0.0, 1e-3])
def test_a_gradient_feasible_to_rounding_bounds_all_metrics_up_to_a_thousand_times_as_large(outside, alpha):
    matrix, tau = 100.0, 99.0
    for gradient, slope in ((-outside, 0.0), (0.0, -outside), (-outside, -outside)):
        point = point_at(matrix, tau, gradient, slope, alpha=alpha, loss=-alpha * matrix)
        tangent = -gradient * matrix - slope * tau
        worst = tangent + 1e3 * 200.0 * (gradient + slope) - EPS * 200.0 * 201.0
        assert proven_bound(point, 7.0) == pytest.approx(worst, rel=1e-6, abs=0.0)


def test_a_gradient_outside_the_dual_cone_proves_nothing_without_a_penalty():
    assert proven_bound(point_at(1.0, 1.0, -1.8e-13, 0.0), 1.0) == -np.inf
    assert proven_bound(point_at(1.0, 1.0, -1.8e-13, 0.0, alpha=0.1), 1.0) > -np.inf
    assert proven_bound(point_at(1.0, 1.0, 0.0, -1.8e-13), 1.0) == -np.inf
    assert proven_bound(point_at(1.0, 1.0, 0.0, -1.8e-13, alpha=0.1), 1.0) == -np.inf


def test_a_gradient_in_the_dual_cone_proves_its_dual_value():
    given, best, thresholds, optimum = optimum_of(RandomProblem.of("close/far", n=600))
    # Wherever something is proven it is below the optimum, and near it.
    n_inside = 0
    for scale in (-1e-2, 1e-3, 1e-2, 0.1):
        point = settled(given, best + scale * np.eye(3), thresholds)
        bound = proven_bound(point, optimum)
        assert bound <= optimum + 1e-12
        if np.linalg.eigvalsh(point.gradient)[0] > 0:
            n_inside += 1
            assert bound == pytest.approx(point.dual_value, abs=1e-9)
    assert 0 < n_inside < 4
    # A dual value above the objective of a feasible point can't be right.
    assert proven_bound(settled(given, best + 0.01 * np.eye(3), thresholds), -1.0) == -np.inf


def test_with_a_penalty_a_gradient_outside_the_cone_has_a_price():
    given, best, thresholds, optimum = optimum_of(RandomProblem.of("close/far", n=600, alpha=0.05))
    point = settled(given, best - 0.02 * np.eye(3), thresholds)
    below = -np.linalg.eigvalsh(point.gradient)[0]
    assert below > 1e-6
    assert proven_bound(point, optimum) == pytest.approx(point.dual_value - below * optimum / 0.05, abs=1e-9)
    assert proven_bound(point, optimum) < optimum


def test_a_threshold_with_a_penalty_needs_no_sign_of_its_slope():
    """With strictness delta at slope s and a penalty p delta^2 / 2, the bound is lower by s^2 / (2 p)."""
    judged = RandomProblem.of("annotators", n=600)
    given, best, thresholds, optimum = optimum_of(judged)
    moved = thresholds + np.array([0.0, 0.3, -0.2, 0.1, 0.0])
    point = given.at(best + 0.05 * np.eye(3), moved)
    point = given.at(point.matrix, thresholds + np.array([3.0 * 0.05, 0.0, 0.0, 0.0, 0.0]))
    slopes = point.slopes[1:]
    assert np.abs(slopes).max() > 1e-5
    tangent = point.value - np.sum(point.gradient * point.matrix) - point.slopes[0] * point.thresholds[0]
    assert point.dual_value == pytest.approx(tangent - np.sum(slopes**2) / (2.0 * judged.precision), abs=1e-12)
    assert point.dual_value <= optimum


# The search for a bound


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.0, 0.02])
def test_a_bound_is_found_near_the_optimum(kind, alpha):
    """With the Hessian of the risk, or by conjugate gradients."""
    if kind == "origin" and alpha == 0.0:
        kind = "close/far"  # a metric with a finite origin is not the point that a proof begins at
    judged = RandomProblem.of(kind, n=600, alpha=alpha)
    given, best, thresholds, optimum = optimum_of(judged)
    point = settled(given, best, thresholds)
    hessian = given.hessian(point.evaluation.curvature)

    for target in (1e-4, 1e-7):
        for bound in (lower_bound(point, partial(dense, hessian), target), prove_bound(point, target)):
            assert point.value - target <= bound <= optimum + 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_a_proof_is_not_held_up_by_a_centre(seed):
    """M can do what its multiple does, so the Hessian in both is singular: conjugate gradients took 60 passes."""
    judged = RandomProblem.of("around a centre", n=500, d=5, alpha=0.03, seed=seed)
    given, best, thresholds, _ = optimum_of(judged)
    assert thresholds[-1] > 0.1
    near = settled(given, 1.0001 * best, thresholds)
    before = given.passes.count
    assert near.value - prove_bound(near, 1e-6) <= 2e-6
    assert given.passes.count - before < 35


class Asked:
    """In place of a solver: keeps what it was asked for, and answers with one step."""

    def __init__(self, step=np.nan, shift=0.0):
        self.answer = step, shift
        self.calls = []

    def __call__(self, matrix, thresholds, held, residual):
        self.calls.append((matrix, thresholds, held.tolist(), residual))
        return np.full_like(matrix, self.answer[0]), np.full_like(thresholds, self.answer[1])


@pytest.mark.parametrize(("scale", "target"), [(4.0, 1e-3), (1.0, 1e-3), (0.25, 1e-3), (4.0, 1e-14)])
def test_the_goal_of_a_proof_costs_half_of_the_target(scale, target):
    """It is the gradient's own slack where M is zero, and so far inside the cone that <goal, M> is target / 2."""
    matrix, gradient = np.diag([0.0, scale]), np.array([[3.0, 0.2], [0.2, -0.1]])
    asked = Asked()
    bound = lower_bound(point_at(matrix, 0.0, gradient, 0.3, loss=0.5), asked, target)
    assert bound == 0.0
    ((right, slopes, held, residual),) = asked.calls
    inside = max(target, 1e-12) / 2.0 / max(scale, 1.0)
    np.testing.assert_allclose(right + gradient, np.diag([3.0, 0.0]) + inside * np.eye(2), rtol=1e-9, atol=1e-15)
    assert residual == pytest.approx(0.9 * inside, abs=0.0)  # a tenth is left inside
    assert (slopes.tolist(), held) == ([-0.3], [True])


def test_a_proof_with_free_linear_terms_leaves_a_residual_of_rounding_only():
    asked, given = Asked(), problem_of(Cone(2, np.array([-np.inf]), has_constant=True))
    lower_bound(point_at(np.eye(2), 1.0, np.eye(2), 0.1, given=given), asked, 1e-3)
    ((_, _, held, residual),) = asked.calls
    assert residual <= 1e-13
    assert held == [False]


def scripted(violations, matrix=0.0, slope=-1.0):
    """A point of one coordinate, at which each further look sees the next violation, and what was looked at."""
    ahead, seen = iter(violations), []

    class Scripted(Problem):
        def forms(self, matrix):
            return matrix

        def evaluate(self, squared, thresholds, order=1):
            return SimpleNamespace(slopes=np.array([slope]))

        def minimise_threshold(self, squared, thresholds, tol):
            assert 0.0 < tol < 1e-13  # slopes must be feasible to rounding
            seen.append((squared.item(), thresholds.item()))
            return thresholds, None

        def known(self, matrix, thresholds, evaluation):
            return point_at(matrix, thresholds.item(), -next(ahead), 0.0, loss=0.5, given=self)

    plain = problem_of(Cone(1, np.zeros(1)))
    given = Scripted(plain.rows, plain.likelihood, 0.0, plain.cone, None)
    return point_at(matrix, 2.0, -1.0, 0.0, loss=0.5, given=given), seen


@pytest.mark.parametrize(
    ("violations", "n_rounds"),
    [([0.0, 0.0], 1), ([8.0, 4.0, 1.0], 2), ([8.0, 3.9, 1.9, 0.9, 0.1], 4), ([8.0, 9.0, 1.0], 2)],
)
def test_a_proof_goes_on_while_rounds_halve_the_violation(violations, n_rounds):
    point, seen = scripted(violations)
    lower_bound(point, Asked(1.0, 0.5), 1e-3)
    assert seen == [(1.0 + k, 2.5 + 0.5 * k) for k in range(n_rounds)]


@pytest.mark.parametrize(("slope", "is_exact"), [(-1e-9, True), (0.0, False), (8e-5, False), (9e-5, True)])
def test_a_proof_takes_a_threshold_as_it_is_if_its_slope_is_small_and_feasible(slope, is_exact):
    """At tau = 2 a slope of 1e-3 / (8 * 3) is aimed at, and up to twice that is as good."""
    point, seen = scripted([0.0], slope=slope)
    lower_bound(point, Asked(1.0), 1e-3)
    assert bool(seen) == is_exact


@pytest.mark.parametrize(("matrix", "longest"), [(0.0, 10.0), (3.0, 40.0)])
def test_a_proof_takes_no_step_beyond_ten_times_the_size_of_the_metric(matrix, longest):
    for step, is_taken in ((longest, True), (-longest, True), (1.001 * longest, False), (np.nan, False)):
        point, seen = scripted([0.0], matrix)
        lower_bound(point, Asked(step), 1e-3)
        assert bool(seen) == is_taken


def test_a_proof_keeps_the_best_bound():
    point, _ = scripted([0.0])
    assert lower_bound(point, Asked(1.0), 1e-3) == pytest.approx(0.5)
    point, _ = scripted([8.0, 9.0])
    assert lower_bound(point, Asked(1.0), 1e-3) == 0.0


def test_the_slack_is_the_positive_part_of_the_gradient_where_the_metric_is_zero():
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    gradient = np.diag([2.0, -3.0, 5.0, 7.0])

    def slack(*values):
        point = point_at(turn @ np.diag(values) @ turn.T, 1.0, turn @ gradient @ turn.T, 0.0)
        return turn.T @ _slack(point) @ turn

    np.testing.assert_allclose(slack(0.0, 0.0, 0.0, 0.1), np.diag([2.0, 0.0, 5.0, 0.0]), atol=1e-9)
    np.testing.assert_allclose(slack(0.0, 0.0, 0.0, 0.0), np.diag([2.0, 0.0, 5.0, 7.0]), atol=1e-9)
    # Up to 1e-9 of the largest eigenvalue counts as zero.
    np.testing.assert_allclose(slack(0.6e-10, 0.0, 1.8e-10, 0.1), np.diag([2.0, 0.0, 0.0, 0.0]), atol=1e-4)


# Conjugate gradients


def solver_in(basis, given, curvature):
    return HessianSolver(given, curvature, diagonal_model(given, curvature, basis))


@pytest.mark.parametrize("kind", ["close/far", "levels", "annotators", "pairs and comparisons"])
def test_conjugate_gradients_solve_with_the_hessian(kind):
    given = RandomProblem.of(kind, n=1500, d=4).problem()
    thresholds = 1.0 + np.arange(given.likelihood.n_thresholds)
    here = given.at(0.7 * np.eye(4), thresholds).evaluation
    hessian, n = given.hessian(here.curvature), len(thresholds)
    right, right_t = np.diag([1.0, -0.5, 0.2, 0.0]) + 0.1, np.linspace(0.3, -0.2, n)
    solver = solver_in(np.eye(4), given, here.curvature)
    for held in (np.zeros(n, dtype=bool), np.arange(n) < 1):
        step, shift = solver(right, right_t, held, 1e-10)
        expected, expected_t = _solve_dense(hessian, right, right_t, held, 0.0)
        np.testing.assert_allclose(step, expected, atol=1e-6 * np.abs(expected).max())
        np.testing.assert_allclose(shift, expected_t, atol=1e-6 * np.abs(expected).max())
    before = given.passes.count
    rough, shift = solver(right, right_t, np.zeros(n, dtype=bool), 0.1)
    assert given.passes.count - before < 20
    left = right - packed.split(hessian @ packed.join(rough, shift), 4)[0]
    assert np.linalg.norm(left, 2) <= 0.1


def test_the_hessian_of_a_sample_makes_passes_over_all_judgements_few():
    given = RandomProblem.of("close/far", n=20_000, d=4).problem()
    few = given.sample(0.1, np.random.default_rng(0))
    matrix, tau = 0.7 * np.eye(4), np.array([1.5])
    here, there = (each.at(matrix, tau).evaluation.curvature for each in (given, few))
    right, right_t = np.diag([1.0, -0.5, 0.2, 0.0]) + 0.1, np.array([0.3])
    solver = HessianSolver(given, here, sample_model(few, there, np.eye(4), 0.05))
    before, on_few = given.passes.count, few.passes.count
    step, shift = solver(right, right_t, np.array([False]), 1e-6)
    on_few = few.passes.count - on_few
    assert given.passes.count - before - 0.1 * on_few < 10
    left = right - packed.split(given.hessian(here) @ packed.join(step, shift), 4)[0]
    assert np.linalg.norm(left, 2) <= 1.1e-6


def mirrored(turn, scales=(1.0, 2.0, 0.5)):
    """Rows that come with every choice of signs in turned coordinates, and a curvature of each that ignores signs."""
    rng = np.random.default_rng(0)
    some = rng.uniform(0.5, 1.5, (5, 3)) * scales
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T
    z = (some[:, None] * signs).reshape(-1, 3) @ turn.T
    likelihood = Likelihood(NOISES["logistic"], Answers.of(2), np.ones(40), np.full(40, 1.0 / 40))
    distance = np.repeat(rng.uniform(0.1, 1.0, 5), 8) / 40
    return Problem.of(Differences(z), likelihood), curvature_of(likelihood, distance), z


def curvature_of(likelihood, distance):
    return Curvature(likelihood, thresholds=np.array([[distance.sum()]]), arrays=(distance,))


@pytest.mark.parametrize("held", [[False], [True]])
def test_where_only_squares_of_coordinates_are_correlated_one_product_is_enough(held):
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    given, curvature, _ = mirrored(turn)
    right, right_t = np.array([[1.0, 0.3, -0.2], [0.3, -0.5, 0.4], [-0.2, 0.4, 0.1]]), np.array([0.3])
    solver = solver_in(turn, given, curvature)
    expected, expected_t = _solve_dense(given.hessian(curvature), right, right_t, np.array(held), 0.0)
    step, shift = solver.preconditioner(np.array(held))(right, right_t)
    np.testing.assert_allclose(step, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(shift, expected_t, rtol=1e-5, atol=1e-5)
    before = given.passes.count
    step, _ = solver(right, right_t, np.array(held), 1e-3)
    assert given.passes.count == before + 1.0
    np.testing.assert_allclose(step, expected, rtol=1e-5, atol=1e-5)


def test_a_coordinate_without_data_has_a_ridge_of_1e_10_of_the_mean_curvature():
    given, curvature, z = mirrored(np.eye(3), scales=(1.0, 2.0, 0.0))
    mean = (np.sum(curvature.distance @ z**4) + curvature.distance.sum()) / 4.0
    right = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])
    step, _ = solver_in(np.eye(3), given, curvature).preconditioner(np.array([False]))(right, np.zeros(1))
    np.testing.assert_allclose(step, right / (1e-10 * mean), rtol=1e-6)


@pytest.mark.parametrize(("scale", "residual"), [(0.0, 0.0), (1.0, 1.5), (1.0, np.inf)])
def test_a_right_side_within_the_residual_costs_nothing(scale, residual):
    given, curvature, _ = mirrored(np.eye(3))
    solver = solver_in(np.eye(3), given, curvature)
    before = given.passes.count
    right = scale * np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])  # its spectral norm is sqrt(2)
    step, shift = solver(right, np.zeros(1), np.array([False]), residual)
    assert given.passes.count == before
    assert not step.any()
    assert not shift.any()


def test_without_curvature_there_is_no_step():
    given, _, _ = mirrored(np.eye(3))
    flat = curvature_of(given.likelihood, np.zeros(40))
    step, shift = solver_in(np.eye(3), given, flat)(np.eye(3), np.ones(1), np.array([False]), 1e-3)
    assert not step.any()
    assert not shift.any()
