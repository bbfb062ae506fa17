"""What others may add: a noise, a solver, a row source, a judgement, each one class; all else follows."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from typer.testing import CliRunner

import closefar as cf
from closefar import packed
from closefar.cli.app import app
from closefar.fitting import Settings, fit
from closefar.judgements import Judgements
from closefar.noise import NOISES, Logistic, Noise
from closefar.rows import BlockRows, Differences, RowSource
from closefar.solve import SOLVERS, Objective, Options, Passes, Solver, State, solve
from closefar.solve.bound import prove_bound
from closefar.solve.likelihood import Likelihood, Terms
from paper_estimator import PAPER

DATA = cf.datasets.make_pairs(1200, 3, rank=2, wrong_share=0.1, random_state=0)
Z = DATA.pairs[:, 0] - DATA.pairs[:, 1]


# A noise


class Wide(Noise):
    """Logistic noise of another scale: a noise with a parameter."""

    name, title = "wide", "wide logistic"
    onnx_cdf = """
        slower = Div(margin, scale)
        minus_margin = Neg(slower)
        odds = Exp(minus_margin)
        total = Add(one, odds)
        cdf = Reciprocal(total)
    """

    def __init__(self, scale=2.0):
        self.scale = scale

    @property
    def std(self):
        return self.scale * Logistic.std

    def _terms(self, margin, order, xp):
        terms = Logistic()._terms(margin / self.scale, order, xp)
        return tuple(term / self.scale**power for power, term in enumerate(terms))

    def _density(self, value, xp):
        return Logistic()._density(value / self.scale, xp) / self.scale

    def sample(self, size, rng):
        return rng.logistic(scale=self.scale, size=size)


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setitem(NOISES, "wide", Wide())
    return NOISES["wide"]


def test_a_noise_is_one_class(wide, tmp_path):
    learner = cf.LinearMetricLearner("wide", **PAPER).fit(DATA.pairs, DATA.labels)
    logistic = cf.LinearMetricLearner(**PAPER).fit(DATA.pairs, DATA.labels)
    # Distances are measured in the scale of the noise.
    np.testing.assert_allclose(learner.metric_.matrix, 2.0 * logistic.metric_.matrix, rtol=1e-3)
    np.testing.assert_allclose(learner.predict_proba(Z), logistic.predict_proba(Z), atol=1e-4)
    assert learner.check_noise_model().advice.startswith("No evidence against wide noise")
    assert "wide" in learner.summary()
    learner.metric_.save(tmp_path / "model")
    assert cf.load(tmp_path / "model") == learner.metric_
    data = cf.datasets.make_pairs(50, 2, noise="wide", random_state=0)
    assert len(data.labels) == 50
    with pytest.warns(cf.IdentifiabilityWarning, match="not clearly better than"):
        chosen = cf.LinearMetricLearner("auto", **PAPER).fit(DATA.pairs, DATA.labels)
    assert chosen.noise_comparison_.keys() == NOISES.keys()


def test_a_noise_is_exported_by_its_own_nodes(wide):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    metric = cf.Metric([[1.0, 0.0], [0.0, 0.5]], 1.0, "wide")
    session = onnxruntime.InferenceSession(metric.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    x, y = np.random.default_rng(0).standard_normal((2, 20, 2))
    (probability,) = session.run(["probability_far"], {"x": x, "y": y})
    np.testing.assert_allclose(probability, metric.probability_far(x - y), atol=1e-6)


def test_noises_are_equal_by_their_parameters(wide):
    assert Wide() == Wide(2.0) != Wide(3.0)
    assert len({Wide(), Wide(2.0), Wide(3.0)}) == 2
    assert repr(Wide(3.0)) == "Wide(scale=3.0)"
    other = cf.Metric([[1.0]], 1.0, Wide(3.0))
    with pytest.raises(
        ValueError, match=r"only the noise models of closefar.noise can be saved; got Wide\(scale=3.0\)"
    ):
        other.save("never-written")


def test_help_names_the_noises_of_the_registry():
    text = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["fit", "--help"]).stdout
    assert all(name in text for name in NOISES)


# A solver


class Descent(Solver):
    """Projected gradient steps of constant length, proven by conjugate gradients."""

    def start(self):
        return self._at(
            np.zeros((self.problem.cone.size, self.problem.cone.size)), np.zeros_like(self.problem.cone.least)
        )

    def resume(self, state):
        return self._at(state.matrix, state.thresholds)

    def step(self, state):
        point = self.problem.known(state.matrix, state.thresholds, state.memory)
        moved = self._at(state.matrix - 2.0 * point.gradient, state.thresholds)
        near = self.problem.known(moved.matrix, moved.thresholds, moved.memory)
        bound = (
            max(state.bound, prove_bound(near, self.tol)) if state.objective - moved.objective < 1e-6 else state.bound
        )
        return State(moved.matrix, moved.thresholds, moved.objective, bound, moved.least_margin, moved.memory)

    def _at(self, matrix, thresholds):
        matrix, squared = self.problem.project(matrix)
        thresholds, here = self.problem.minimise_threshold(squared, thresholds)
        return State(matrix, thresholds, self.problem.value(here, matrix), 0.0, here.least_margin, here)


def test_a_solver_is_one_class(monkeypatch):
    monkeypatch.setitem(SOLVERS, "descent", Descent)
    learner = cf.LinearMetricLearner(solver="descent", **PAPER).fit(Z, DATA.labels)
    assert learner.certificate_.converged
    expected = cf.LinearMetricLearner(**PAPER).fit(Z, DATA.labels)
    assert learner.certificate_.loss == pytest.approx(expected.certificate_.loss, abs=1e-6)
    np.testing.assert_allclose(learner.predict_proba(Z), expected.predict_proba(Z), atol=1e-2)
    with pytest.raises(ValueError, match="'descent'"):
        cf.LinearMetricLearner(solver="none", **PAPER).fit(Z, DATA.labels)


# A row source


class IndexedPairs(BlockRows):
    """Pairs of points given by index: it is points that are mapped and projected, not pairs."""

    def __init__(self, points, index):
        super().__init__(len(index), points.shape[1])
        self.points, self.index = points, index

    def read(self, where):
        left, right = self.index[where].T
        return (self.points[left] - self.points[right]).T

    def take_rows(self, indices):
        return IndexedPairs(self.points, self.index[indices])

    def in_coordinates(self, coordinates):
        return IndexedPairs(coordinates.apply(self.points.T).T, self.index)

    def squared_distances(self, factor):
        projected = self.points @ factor
        left, right = self.index.T
        return np.sum((projected[left] - projected[right]) ** 2, axis=1)


@pytest.mark.parametrize("parameters", [{}, {"rank": 2}, {"solver": "fista"}, {"flip_rate": "estimate"}], ids=str)
def test_a_row_source_is_one_class(parameters):
    rng = np.random.default_rng(1)
    points = rng.standard_normal((60, 3)) * [1e-3, 1.0, 1e3]
    index = rng.integers(0, 60, (2000, 2))
    source, z = IndexedPairs(points, index), points[index[:, 0]] - points[index[:, 1]]
    labels = (z[:, 1] ** 2 + (z[:, 0] * 1e3) ** 2) + rng.logistic(size=2000) > 3.0
    learner = cf.LinearMetricLearner(tol=1e-8, **PAPER | parameters)
    one, other = clone(learner).fit(source, labels), clone(learner).fit(z, labels)
    assert one.certificate_.converged == other.certificate_.converged
    assert one.certificate_.loss == pytest.approx(other.certificate_.loss, abs=1e-8)
    np.testing.assert_allclose(one.predict_proba(source), other.predict_proba(z), atol=1e-3)
    np.testing.assert_allclose(one.predict_proba(source), one.predict_proba(z), atol=1e-9)
    np.testing.assert_allclose(one.transform(source), one.transform(z), rtol=1e-9, atol=1e-12)
    assert one.score(source, labels) == one.score(z, labels)
    left, right = (cf.find_label_errors(each, x, labels, random_state=0) for each, x in ((one, source), (other, z)))
    np.testing.assert_allclose(left.probability, right.probability, atol=1e-3)


def test_a_row_source_is_checked():
    points, labels = np.arange(12.0).reshape(6, 2), [1, -1]
    for index, spoil, message in (
        ([[0, 1]], 1.0, "at least 2 pairs; got 1"),
        ([[0, 1], [2, 4]], np.nan, "rows must be finite; got NaN"),
        ([[0, 1], [2, 4]], np.ones((1, 0)), r"at least one column; got shape \(2, 0\)"),
    ):
        spoiled = points * spoil if np.ndim(spoil) == 0 else points[:, :0]
        with pytest.raises(ValueError, match=message):
            cf.LinearMetricLearner(**PAPER).fit(IndexedPairs(spoiled, np.array(index)), labels[: len(index)])


# Judgements: comparisons have two legs and no threshold, ratings several thresholds


class Legs(RowSource):
    """Rows of two differences: <F, M> is z'Mz of the second less that of the first."""

    def __init__(self, near, far):
        super().__init__(len(near), near.shape[1])
        self.near, self.far = near, far

    def quadratic_forms(self, matrix):
        return np.sum(self.far @ matrix * self.far, axis=1) - np.sum(self.near @ matrix * self.near, axis=1)

    def outer(self, coefficients):
        return self.far.T @ (self.far * coefficients[:, None]) - self.near.T @ (self.near * coefficients[:, None])

    def take_rows(self, indices):
        return Legs(self.near[indices], self.far[indices])

    def in_coordinates(self, coordinates):
        return Legs(self.near @ coordinates.transform, self.far @ coordinates.transform)

    def row_array(self, values):
        return values


class Ordered(Likelihood):
    """P = Phi(q): the first leg was said to be the shorter one."""

    def __init__(self, noise, weights):
        self.noise, self.weights, self.row_arrays, self.least = noise, weights, (weights,), np.empty(0)

    def terms(self, squared, *arrays, thresholds, order):
        (weights,) = arrays
        loss, slope, curvature = self.noise.derivatives(squared, 2)
        return Terms(
            float(weights @ loss), np.empty(0), float(squared.min()), weights * slope, weights * curvature,
            curvatures=np.empty((0, 0)),
        )  # fmt: skip

    def best_thresholds(self, source, squared, start, least, tol):
        return np.empty(0), self.evaluate(source, squared, np.empty(0), order=2)

    def trend(self, source):
        return self.weights

    def with_arrays(self, weights):
        return Ordered(self.noise, weights)


class Levels(Likelihood):
    """P(level k) = Phi(q - tau_k) - Phi(q - tau_{k+1}) with logistic noise, tau_0 = -inf and tau_K = inf."""

    def __init__(self, levels, weights, n_levels):
        self.levels, self.weights, self.row_arrays = levels, weights, (levels, weights)
        self.least = np.zeros(n_levels - 1)

    def terms(self, squared, *arrays, thresholds, order):
        levels, weights = arrays
        ends, n = np.concatenate([[-np.inf], thresholds, [np.inf]]), self.n_thresholds
        above, below = expit(squared - ends[levels]), expit(squared - ends[levels + 1])
        probability, f, g = above - below, above * (1.0 - above), below * (1.0 - below)

        def summed(lower, upper):
            at_lower, at_upper = (np.bincount(levels, weights * each, n + 1) for each in (lower, upper))
            return at_lower[1:] + at_upper[:-1]

        curvatures = np.diag(summed(
            (f / probability) ** 2 - f * (1.0 - 2.0 * above) / probability,
            (g / probability) ** 2 + g * (1.0 - 2.0 * below) / probability,
        ))  # fmt: skip
        between = -np.bincount(levels, weights * f * g / probability**2, n + 1)[1:-1]
        curvatures[np.arange(n - 1), np.arange(1, n)] = curvatures[np.arange(1, n), np.arange(n - 1)] = between
        return Terms(
            loss=-float(weights @ np.log(probability)),
            slopes=summed(f / probability, -g / probability),
            least_margin=-np.inf,
            margin_gradient=weights * (above + below - 1.0),
            curvature=weights * (f + g),
            crosses=tuple(-weights * (f * (levels == k + 1) + g * (levels == k)) for k in range(n)),
            curvatures=curvatures,
        )

    def best_thresholds(self, source, squared, start, least, tol):
        thresholds = start
        if not np.all(np.diff(start) > 1e-3):
            thresholds = np.quantile(squared, np.linspace(0, 1, len(start) + 2)[1:-1]) + np.arange(len(start))
        here = self.evaluate(source, squared, thresholds, order=2)
        while np.abs(here.slopes).max() > tol:
            step, length = np.linalg.solve(here.curvature.thresholds, here.slopes), 1.0
            while length > 1e-9:
                moved = thresholds - length * step
                there = self.evaluate(source, squared, moved, order=2) if np.all(np.diff(moved) > 0) else None
                if there is not None and there.loss < here.loss:
                    break
                length *= 0.5
            else:
                break
            thresholds, here = moved, there
        return thresholds, here

    def trend(self, source):
        return self.weights * (2.0 * self.levels / self.n_thresholds - 1.0)

    def with_arrays(self, levels, weights):
        return Levels(levels, weights, self.n_thresholds + 1)


def solved(source, likelihood, solver):
    options = Options(alpha=0.01, rank=None, has_constant=False, solver=solver, tol=1e-6, max_iter=500)
    objective = Objective(source, likelihood, Passes())
    return solve(objective, options, rng=np.random.default_rng(0), watch=lambda *_: None)


def check_optimum(certificate, value):
    assert certificate.objective == pytest.approx(value, abs=1e-6)
    assert certificate.gap <= 1e-6
    assert certificate.gap >= certificate.objective - value - 1e-8


@pytest.mark.parametrize("solver", ["newton", "fista", "factor"])
def test_a_judgement_without_a_threshold_is_solved_and_proven(solver):
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    rng = np.random.default_rng(2)
    near, far = rng.standard_normal((2, 300, 3))
    truth = np.diag([1.0, 0.4, 0.0])
    order = (far @ truth * far).sum(1) - (near @ truth * near).sum(1) + rng.logistic(size=300) > 0
    near, far = np.where(order[:, None], near, far), np.where(order[:, None], far, near)
    solution = solved(Legs(near, far), Ordered(NOISES["logistic"], np.full(300, 1.0 / 300)), solver)
    assert solution.thresholds.shape == (0,)
    matrix = cp.Variable((3, 3), PSD=True)
    outer = np.einsum("ij,ik->ijk", far, far) - np.einsum("ij,ik->ijk", near, near)
    margin = outer.reshape(300, -1) @ cp.vec(matrix, order="C")
    problem = cp.Problem(cp.Minimize(cp.sum(cp.logistic(-margin)) / 300 + 0.01 * cp.trace(matrix)))
    check_optimum(solution.certificate, problem.solve(solver=cp.CLARABEL))


def rated(n):
    rng = np.random.default_rng(3)
    z = rng.standard_normal((n, 3))
    felt = z[:, 0] ** 2 + 0.4 * z[:, 1] ** 2 + 0.5 * rng.logistic(size=n)
    return z, Levels(np.digitize(felt, [0.4, 1.0, 2.0]), np.full(n, 1.0 / n), 4)


@pytest.mark.parametrize("solver", ["newton", "fista", "factor"])
def test_a_judgement_with_several_thresholds_is_solved_and_proven(solver):
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    z, likelihood = rated(300)
    solution = solved(Differences(z), likelihood, solver)
    matrix, tau = cp.Variable((3, 3), PSD=True), cp.Variable(3, nonneg=True)
    squared = np.einsum("ij,ik->ijk", z, z).reshape(300, -1) @ cp.vec(matrix, order="C")
    losses = []
    for level in range(4):
        q = squared[np.flatnonzero(likelihood.levels == level)]
        above, below = (q - tau[level - 1] if level > 0 else None), (q - tau[level] if level < 3 else None)
        if level == 0:
            losses.append(cp.sum(cp.logistic(below)))
        elif level == 3:
            losses.append(cp.sum(cp.logistic(-above)))
        else:
            width = cp.log(1 - cp.exp(tau[level - 1] - tau[level]))
            losses.append(cp.sum(cp.logistic(-above) + cp.logistic(below)) - q.size * width)
    problem = cp.Problem(cp.Minimize(sum(losses) / 300 + 0.01 * cp.trace(matrix)))
    check_optimum(solution.certificate, problem.solve(solver=cp.CLARABEL))
    np.testing.assert_allclose(solution.thresholds, tau.value, atol=0.02)


def test_several_thresholds_are_one_sweep_of_the_rows():
    """However many they are: derivatives by finite differences, and no pass beyond those that are counted."""
    z, likelihood = rated(1500)
    objective = Objective(Differences(z), likelihood, Passes())
    matrix, tau, step, shift = np.diag([1.0, 0.5, 0.2]), np.array([0.4, 1.1, 2.2]), np.ones((3, 3)), np.arange(3.0)
    curvature = objective.loss_and_gradient(matrix, tau)[0].curvature
    product, product_t = objective.hessian_product(step, shift, curvature)
    h = 1e-6
    ahead, behind = (objective.loss_and_gradient(matrix + t * step, tau + t * shift) for t in (h, -h))
    np.testing.assert_allclose(product, (ahead[1] - behind[1]) / (2 * h), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(product_t, (ahead[0].slopes - behind[0].slopes) / (2 * h), rtol=1e-5, atol=1e-8)
    hessian = objective.hessian(curvature)
    np.testing.assert_allclose(hessian @ packed.join(step, shift), packed.join(product, product_t), atol=1e-10)
    counted = objective.passes.count
    objective.hessian_product(step, shift, curvature)
    assert objective.passes.count == counted + 1.0
    objective.hessian(curvature)
    assert objective.passes.count == counted + 1.0 + 36.0 / 36.0 + 1.5


# Fitting is a function


def test_fitting_is_a_function_of_judgements_and_settings():
    judgements = Judgements.of_signs(DATA.pairs, DATA.labels)
    found = fit(judgements, Settings(rank=2, tol=1e-8, **PAPER))
    learner = cf.LinearMetricLearner(rank=2, tol=1e-8, **PAPER).fit(DATA.pairs, DATA.labels)
    assert found.metric == learner.metric_
    assert found.certificate == learner.certificate_
    assert found.settings == learner.fit_.settings
