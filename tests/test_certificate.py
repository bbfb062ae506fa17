"""The proven gap against optima found by other means: a conic solver, and L-BFGS from several starts."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import entr, expit
from sklearn.exceptions import ConvergenceWarning

import closefar as cf
from closefar.noise import NOISES
from closefar.rows import Differences, unit_free
from closefar.solve import SOLVERS, CloseFar, Objective, Options, Passes, solve
from closefar.solve.bound import proven_bound
from paper_estimator import PAPER

SLACK = 1e-9


class Case:
    """A small problem: rows in whitened coordinates, labels, weights and a penalty in the units of columns."""

    def __init__(self, noise, d, n, *, alpha=0.0, weighted=False, tau=2.0, seed=0):
        rng = np.random.default_rng(seed)
        self.noise, self.alpha, self.tau = NOISES[noise], alpha, tau
        self.z = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) * 10.0 ** rng.uniform(-3, 3, d)
        self.weights = rng.integers(1, 5, n).astype(float) if weighted else np.ones(n)
        self.weights /= self.weights.sum()
        moment = (self.z * self.weights[:, None]).T @ self.z
        self.root = np.linalg.cholesky(moment)
        inverse = np.linalg.inv(self.root)
        self.w = self.z @ inverse.T
        self.penalty = (
            inverse * (alpha * np.diag(moment))
        ) @ inverse.T  # alpha sum_j M_jj mean(z_j^2) is tr(penalty M)
        truth = rng.standard_normal((d, d - 1))
        truth *= np.sqrt(max(tau, 0.0) + 0.5) / np.linalg.norm(truth)
        margin = np.sum((self.w @ truth) ** 2, axis=1) - tau
        self.labels = np.where(margin + self.noise.sample(n, rng) >= 0.0, 1, -1)

    def objective(self, matrix, tau):
        """R(M, tau) and the penalty for a whitened M."""
        margin = np.einsum("ij,jk,ik->i", self.w, matrix, self.w) - tau
        losses = self.noise.neg_log_cdf(self.labels * margin)
        return self.weights @ losses + np.sum(self.penalty * matrix)

    def objective_of(self, learner):
        return self.objective(self.root.T @ learner.get_mahalanobis_matrix() @ self.root, learner.metric_.threshold)

    def fit(self, **parameters):
        learner = cf.LinearMetricLearner(self.noise, **PAPER | {"alpha": self.alpha} | parameters)
        return learner.fit(self.z, self.labels, self.weights)

    def risk(self):
        rows, _ = unit_free(Differences(self.z), self.weights, blend=1.0 if self.alpha else 0.0)
        return Objective(rows, CloseFar(self.noise, self.labels.astype(float), self.weights), Passes())

    def options(self, **changes):
        options = {"solver": "newton", "tol": 1e-10, "max_iter": 500, **changes}
        return Options(alpha=self.alpha, rank=None, has_constant=False, **options)

    def optimum(self):
        """The objective of a feasible point that is as good as optimal: never below the minimum."""
        return conic_optimum(self) if self.noise.name == "logistic" else descent_optimum(self)


def conic_optimum(case):
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    d = case.w.shape[1]
    matrix, tau = cp.Variable((d, d), PSD=True), cp.Variable(nonneg=True)
    outer = np.einsum("ij,ik->ijk", case.w, case.w).reshape(len(case.w), -1)
    margin = outer @ cp.vec(matrix, order="C") - tau
    loss = case.weights @ cp.logistic(cp.multiply(-case.labels, margin)) + cp.trace(case.penalty @ matrix)
    cp.Problem(cp.Minimize(len(case.w) * loss)).solve(solver=cp.CLARABEL)
    values, vectors = np.linalg.eigh(matrix.value)
    return case.objective((vectors * np.maximum(values, 0.0)) @ vectors.T, max(float(tau.value), 0.0))


def descent_optimum(case):
    d = case.w.shape[1]

    def value_and_gradient(x):
        factor, tau = x[:-1].reshape(d, d), x[-1]
        product = case.w @ factor
        loss, slope = case.noise.derivatives(case.labels * (np.sum(product**2, axis=1) - tau), order=1)
        margin_gradient = case.weights * case.labels * slope
        gradient = 2.0 * case.w.T @ (product * margin_gradient[:, None]) + 2.0 * case.penalty @ factor
        return case.weights @ loss + np.sum(factor * (case.penalty @ factor)), np.append(
            gradient.ravel(), -margin_gradient.sum()
        )

    rng = np.random.default_rng(0)
    options = {"maxiter": 20_000, "maxfun": 50_000, "maxcor": 30, "ftol": 1e-16, "gtol": 1e-11}
    bounds = [(None, None)] * (d * d) + [(0.0, None)]
    starts = [np.append(0.7 * rng.standard_normal(d * d), 1.0) for _ in range(3)]
    return min(
        minimize(value_and_gradient, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options).fun for x in starts
    )


# Where tau is negative the best feasible threshold is zero.
CASES = {
    "logistic": Case("logistic", 4, 250, seed=1),
    "logistic-alpha": Case("logistic", 6, 300, alpha=0.01, seed=2),
    "logistic-weights": Case("logistic", 3, 200, weighted=True, seed=3),
    "logistic-zero": Case("logistic", 4, 200, tau=-1.0, seed=4),
    "logistic-zero-alpha-weights": Case("logistic", 3, 150, tau=-1.0, alpha=0.003, weighted=True, seed=5),
    "logistic-few": Case("logistic", 6, 60, alpha=0.02, seed=6),
    "normal": Case("normal", 4, 250, seed=7),
    "normal-zero-weights": Case("normal", 3, 200, tau=-1.0, weighted=True, seed=8),
    "normal-alpha": Case("normal", 6, 300, alpha=0.02, seed=9),
    "laplace": Case("laplace", 4, 300, seed=10),
    "laplace-alpha-weights": Case("laplace", 5, 200, alpha=0.01, weighted=True, seed=11),
    "laplace-zero": Case("laplace", 3, 200, tau=-1.0, seed=12),
    "hypsecant": Case("hypsecant", 5, 300, seed=13),
    "hypsecant-alpha": Case("hypsecant", 4, 100, alpha=0.05, seed=14),
    "hypsecant-zero-alpha": Case("hypsecant", 3, 200, tau=-1.0, alpha=0.001, seed=15),
}


@pytest.fixture(scope="module")
def optima():
    return {name: case.optimum() for name, case in CASES.items()}


@pytest.fixture(params=CASES)
def name(request):
    return request.param


@pytest.fixture
def case(name):
    return CASES[name]


@pytest.fixture
def optimum(name, optima):
    return optima[name]


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
def test_the_gap_is_proven_and_the_optimum_reached(case, optimum, tol):
    learner = case.fit(tol=tol)
    certificate = learner.certificate_
    objective = case.objective_of(learner)
    assert certificate.objective == pytest.approx(objective, abs=1e-10)
    assert certificate.converged
    assert certificate.globally_optimal
    assert certificate.gap <= tol
    assert certificate.gap >= objective - optimum - SLACK
    assert certificate.lower_bound <= optimum + SLACK
    assert abs(objective - optimum) <= max(tol, 1e-6)


def test_loss_objective_and_penalty_add_up(case):
    learner = case.fit()
    matrix = case.root.T @ learner.get_mahalanobis_matrix() @ case.root
    certificate = learner.certificate_
    assert certificate.objective - certificate.loss == pytest.approx(np.sum(case.penalty * matrix), abs=1e-9)
    assert certificate.gap == pytest.approx(certificate.objective - certificate.lower_bound, abs=1e-15)


def test_the_threshold_and_its_multiplier_are_complementary(case):
    learner = case.fit(tol=1e-9)
    multiplier = learner.certificate_.threshold_multiplier
    if case.tau < 0.0:
        assert learner.metric_.threshold == 0.0
        assert multiplier > 1e-4
    else:
        assert learner.metric_.threshold > 0.01
        assert abs(multiplier) < 1e-6


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("max_iter", [1, 2, 4])
def test_a_gap_reported_early_is_still_a_bound(case, optimum, solver, max_iter):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        learner = case.fit(tol=1e-12, max_iter=max_iter, solver=solver)
    certificate = learner.certificate_
    assert certificate.gap >= case.objective_of(learner) - optimum - SLACK
    assert certificate.lower_bound <= optimum + SLACK
    assert certificate.converged == (certificate.gap <= 1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_bound_on_the_way_exceeds_the_optimum(case, optimum, solver):
    states = []
    watch = lambda _, state: states.append(state)  # noqa: E731
    solve(case.risk(), case.options(solver=solver), rng=np.random.default_rng(0), watch=watch)
    bounds = np.array([state.bound for state in states])
    assert np.all(np.diff(bounds) >= 0.0)
    assert bounds[-1] > 0.0
    assert bounds[-1] <= optimum + SLACK
    assert all(state.objective >= optimum - 1e-6 for state in states)
    assert all(state.gap >= state.objective - optimum - SLACK for state in states)


def test_a_point_proves_no_more_than_the_optimum(case, optimum):
    """Symmetric M of any signature may serve, as long as its gradient is in the dual cone."""
    risk, d = case.risk(), case.w.shape[1]
    problem = case.options().problem(risk)
    best = solve(risk, case.options(max_iter=100), rng=np.random.default_rng(0), watch=lambda *_: None)
    rng = np.random.default_rng(16)
    bounds = []
    for scale in np.repeat(np.logspace(-9, 0, 20), 5):
        noise = rng.standard_normal((d, d))
        matrix = best.factor @ best.factor.T + scale * (noise + noise.T + rng.choice([-3.0, 3.0]) * np.eye(d))
        point = problem.known(matrix, *problem.minimise_threshold(risk.quadratic_forms(matrix), best.thresholds))
        bounds.append(proven_bound(point, best.certificate.objective))
        outside = np.linalg.eigvalsh(point.gradient)[0] < -1e-9
        assert bounds[-1] <= (-np.inf if outside and case.alpha == 0.0 else optimum + SLACK)
    # Without a penalty a gradient outside the cone proves nothing; with one there is always some bound.
    assert np.any(np.isinf(bounds)) if case.alpha == 0.0 else np.all(np.isfinite(bounds))


@pytest.mark.parametrize("noise", sorted(NOISES))
@pytest.mark.parametrize("seed", range(8))
def test_few_or_separable_pairs_with_a_penalty_prove_nothing_false(noise, seed):
    """There the Hessian is all but singular, and the steps of the proof are large."""
    rng = np.random.default_rng(seed)
    n, d = [(8, 5), (60, 2), (15, 10), (30, 6)][seed % 4]
    x = rng.standard_normal((n, d)) if seed < 4 else rng.integers(-2, 3, (n, d)).astype(float)
    length = np.sum(x**2, axis=1)
    labels = np.where(length > np.median(length), 1, -1)
    settings = {"alpha": [0.01, 1e-4][seed % 2], "tol": [1e-4, 1e-6][seed % 2]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = [cf.LinearMetricLearner(noise, solver=solver, **PAPER | settings).fit(x, labels) for solver in SOLVERS]
    certificates = [learner.certificate_ for learner in fitted]
    best = min(certificate.objective for certificate in certificates)
    for certificate in certificates:
        assert certificate.lower_bound <= best + SLACK
        assert certificate.gap >= certificate.objective - best - SLACK


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
    learner = cf.LinearMetricLearner(alpha=alpha, prior="zero", fit_origin=True, solver=solver, flip_rate=0.0).fit(
        x, labels
    )
    certificate = learner.certificate_
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


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.noise.name == "logistic"], indirect=True)
def test_the_tangent_dual_value_is_the_entropy(case, optimum):
    """For logistic noise the Fenchel dual value is the mean entropy of the fitted probabilities."""
    learner = case.fit(tol=1e-10)
    wrong = expit(-case.labels * learner.decision_function(case.z))
    entropy = case.weights @ (entr(wrong) + entr(1.0 - wrong))
    matrix, tau = case.root.T @ learner.get_mahalanobis_matrix() @ case.root, learner.metric_.threshold
    margin_gradient = -case.weights * case.labels * wrong
    gradient = (case.w * margin_gradient[:, None]).T @ case.w + case.penalty
    tangent = case.objective(matrix, tau) - np.sum(gradient * matrix) + tau * margin_gradient.sum()
    assert tangent == pytest.approx(entropy, abs=1e-10)
    assert tangent == pytest.approx(optimum, abs=1e-6)
    assert np.linalg.eigvalsh(gradient)[0] >= -1e-5
