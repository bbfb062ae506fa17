"""What others may add: a noise, a solver, a row source, a judgement, each one class; all else follows."""

import numpy as np
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

import closefar as cf
from closefar import packed
from closefar.cli.app import app
from closefar.fitting import Settings, fit
from closefar.judgements import Judgements, PartitionedJudgements
from closefar.noise import NOISES, Logistic, Noise
from closefar.rows import BlockRows, RowSource, judged_rows, rows_of
from closefar.solve import SOLVERS, Answers, Likelihood, Problem, Solver, SolverSettings, State, solve
from closefar.solve.certificate import prove_bound
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


@pytest.mark.parametrize("parameters", [{}, {"rank": 2}, {"solver": "sampled"}, {"flip_rate": "estimate"}], ids=str)
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


# A kind of judgement, and a row source for solvers alone, which needs no more than the operator and its adjoint


class Ties(Answers):
    """Triplets (x, a, b): "a is nearer", "both are about as near", "b is nearer".

    A tie is |q - bias| < width for the thresholds (bias, width): a, which is shown first, is favoured by the bias.
    """

    def __init__(self):
        nothing, low, high = [0.0, 0.0], [1.0, -1.0], [1.0, 1.0]
        is_first, is_last = np.arange(3) == 0, np.arange(3) == 2
        lower, upper = np.array([nothing, low, high]), np.array([low, high, nothing])
        super().__init__(lower, upper, is_first, is_last, np.full(3, 1.0 / 3.0), np.array([-1.0, 0.0, 1.0]))

    def made_feasible(self, thresholds):
        return np.maximum(thresholds, [0.0, 0.1])


class Legs(RowSource):
    """Rows of two differences: <F, M> is z'Mz of the second less z'Mz of the first."""

    def __init__(self, near, far):
        super().__init__(len(near), near.shape[1])
        self.near, self.far = near, far

    def forms(self, matrix):
        return np.sum(self.far @ matrix * self.far, axis=1) - np.sum(self.near @ matrix * self.near, axis=1)

    def outer(self, coefficients):
        return self.far.T @ (self.far * coefficients[:, None]) - self.near.T @ (self.near * coefficients[:, None])

    def take_rows(self, indices):
        return Legs(self.near[indices], self.far[indices])

    def in_coordinates(self, coordinates):
        return Legs(self.near @ coordinates.transform, self.far @ coordinates.transform)

    def row_array(self, values):
        return values


N_TIED, TRUTH = 400, np.diag([1.0, 0.4, 0.0])
POINTS = np.random.default_rng(2).standard_normal((60, 3))
INDEX = np.array([np.random.default_rng(row).choice(60, 3, replace=False) for row in range(N_TIED)])
X, NEAR, FAR = np.moveaxis(POINTS[INDEX], 1, 0)
FORMS = np.sum((X - FAR) ** 2 @ TRUTH, axis=1) - np.sum((X - NEAR) ** 2 @ TRUTH, axis=1)
TIED = np.digitize(FORMS + np.random.default_rng(3).logistic(size=N_TIED), [-0.5, 1.5])


def tied(rows, solver, alpha=0.01):
    shares = rows.row_array(np.full(N_TIED, 1.0 / N_TIED))
    likelihood = Likelihood(NOISES["logistic"], Ties(), rows.row_array(TIED.astype(float)), shares)
    settings = SolverSettings(solver=solver, tol=1e-9)
    return solve(Problem.of(rows, likelihood, alpha), settings, rng=np.random.default_rng(0))


def mapped(folder):
    np.save(folder / "triplets.npy", POINTS[INDEX])
    return rows_of(np.load(folder / "triplets.npy", mmap_mode="r"))


def in_torch(folder):
    torch = pytest.importorskip("torch", reason="needs torch: run pip install -e '.[test-torch]'")
    return rows_of(cf.Tuples(torch.tensor(POINTS), INDEX))


def in_partitions(folder):
    array = pytest.importorskip("dask.array", reason="dask is not installed: run pip install -e '.[test]'")
    data = cf.Tuples(POINTS, array.from_array(INDEX, chunks=(150, 3)))
    return judged_rows(PartitionedJudgements.load(cf.LinearMetricLearner(), data, compares=True))


ENGINES = {
    "array": lambda folder: rows_of(POINTS[INDEX]),
    "index": lambda folder: rows_of(cf.Tuples(POINTS, INDEX)),
    "memory map": mapped,
    "torch": in_torch,
    "dask": in_partitions,
    "a source of one's own": lambda folder: Legs(X - NEAR, X - FAR),
}


@pytest.fixture(scope="module")
def optimum():
    """The least risk and the thresholds, found by a conic solver."""
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    matrix, bias, width = cp.Variable((3, 3), PSD=True), cp.Variable(nonneg=True), cp.Variable(nonneg=True)
    outer = np.einsum("ij,ik->ijk", X - FAR, X - FAR) - np.einsum("ij,ik->ijk", X - NEAR, X - NEAR)
    beyond = outer.reshape(N_TIED, -1) @ cp.vec(matrix, order="C") - bias
    nearer, tie, farther = (beyond[np.flatnonzero(code == TIED)] for code in range(3))
    # log(CDF(u + w) - CDF(u - w)) = log CDF(u + w) + log CDF(w - u) + log(1 - exp(-2 w)) for logistic noise.
    loss = cp.sum(cp.logistic(nearer + width)) + cp.sum(cp.logistic(width - farther))
    loss += cp.sum(cp.logistic(-tie - width)) + cp.sum(cp.logistic(tie - width))
    loss -= tie.size * cp.log(1.0 - cp.exp(-2.0 * width))
    problem = cp.Problem(cp.Minimize(loss / N_TIED + 0.01 * cp.trace(matrix)))
    return problem.solve(solver=cp.CLARABEL), [bias.value, width.value]


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_judgement_is_one_class_for_every_solver(solver, optimum):
    value, thresholds = optimum
    found = tied(ENGINES["array"](None), solver)
    assert found.certificate.objective == pytest.approx(value, abs=1e-7)
    assert found.certificate.objective - value - 1e-8 <= found.certificate.gap <= 1e-8
    np.testing.assert_allclose(found.thresholds, thresholds, atol=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_judgement_is_one_class_on_every_engine(engine, tmp_path):
    rows, expected = ENGINES[engine](tmp_path), tied(ENGINES["array"](tmp_path), "newton")
    found = tied(rows, "newton")
    assert found.certificate.objective == pytest.approx(expected.certificate.objective, abs=1e-10)
    np.testing.assert_allclose(found.factor @ found.factor.T, expected.factor @ expected.factor.T, atol=1e-6)
    np.testing.assert_allclose(rows.gather(found.squared), expected.squared, atol=1e-6)


def test_derivatives_of_a_judgement_follow_from_its_class():
    """By finite differences of the loss: the gradient, the Hessian and its product with a step."""
    shares = np.full(N_TIED, 1.0 / N_TIED)
    problem = Problem.of(Legs(X - NEAR, X - FAR), Likelihood(NOISES["normal"], Ties(), TIED.astype(float), shares))
    matrix, thresholds = np.diag([1.0, 0.5, 0.2]), np.array([0.4, 0.7])
    step, shift, h = np.ones((3, 3)), np.array([1.0, -0.5]), 1e-5
    here = problem.at(matrix, thresholds)
    behind, ahead = (problem.at(matrix + t * step, thresholds + t * shift) for t in (-h, h))
    slope = float(np.sum(here.gradient * step) + here.slopes @ shift)
    assert slope == pytest.approx((ahead.value - behind.value) / (2 * h), rel=1e-7)
    product, product_t = problem.hessian_product(step, shift, here.evaluation.curvature)
    np.testing.assert_allclose(product, (ahead.gradient - behind.gradient) / (2 * h), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(product_t, (ahead.slopes - behind.slopes) / (2 * h), rtol=1e-6, atol=1e-9)
    hessian = problem.hessian(here.evaluation.curvature)
    np.testing.assert_allclose(hessian @ packed.join(step, shift), packed.join(product, product_t), atol=1e-10)


# Fitting is a function


def test_fitting_is_a_function_of_judgements_and_settings():
    judgements = Judgements.of_signs(DATA.pairs, DATA.labels)
    found = fit(judgements, Settings(rank=2, tol=1e-8, **PAPER))
    learner = cf.LinearMetricLearner(rank=2, tol=1e-8, **PAPER).fit(DATA.pairs, DATA.labels)
    assert found.metric == learner.metric_
    assert found.certificate == learner.certificate_
    assert found.settings == learner.fit_.settings
