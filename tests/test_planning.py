"""Planned sample sizes: the errors that a pilot predicts are those that fits have."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import chi2, norm

import closefar as cf
from closefar import packed
from closefar.judgements import Kind
from closefar.noise import NOISES
from closefar.questions import SampleSizePlan, plan_sample_size
from closefar.questions import sample_size as planning
from paper_estimator import PAPER

FITS = 40


def world(d, eigenvalues, noise="logistic", seed=0):
    """Differences with the true probability of far, and the true M and tau at unit noise."""
    data = cf.datasets.make_pairs(40_000, d, metric_eigenvalues=eigenvalues, noise=noise, random_state=seed)
    z, model = data.pairs[:, 0] - data.pairs[:, 1], NOISES[noise]
    scale = cf.datasets.solve_noise_scale(data.metric.margin(z), model, 0.15)
    far = model.cdf(data.metric.margin(z) / scale)
    return z, far, data.metric.matrix / scale, data.metric.threshold / scale


def draw(z, far, n, rng):
    chosen = rng.choice(30_000, n, replace=False)
    return z[chosen], np.where(rng.uniform(size=n) < far[chosen], 1, -1)


def errors_of(metric, z, far, matrix, threshold):
    """Excess loss on rows that no fit saw, and relative spectral error of M / tau."""
    test, probability = z[30_000:], far[30_000:]

    def loss(margins):
        phi = metric.noise.neg_log_cdf
        return np.mean(probability * phi(margins) + (1 - probability) * phi(-margins))

    excess = loss(metric.margin(test)) - loss(np.einsum("ij,jk,ik->i", test, matrix, test) - threshold)
    change = metric.matrix / metric.threshold - matrix / threshold
    return excess, np.linalg.norm(change, 2) / np.linalg.norm(matrix / threshold, 2)


@pytest.fixture(scope="module")
def pilot():
    data = cf.datasets.make_pairs(800, 3, wrong_share=0.15, random_state=0)
    return cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels), data.pairs, data.labels


@pytest.mark.parametrize(
    ("d", "eigenvalues", "noise", "n"),
    [(3, [1.0, 0.6, 0.3], "logistic", 1000), (5, [1.0, 0.5], "normal", 2000), (4, [1.0, 0.5], "laplace", 2000)],
)
def test_predicted_errors_are_those_of_fits(d, eigenvalues, noise, n):
    """A pilot of 3000 predicts the average errors of fits to n pairs; M* has full rank and less."""
    z, far, matrix, threshold = world(d, eigenvalues, noise)
    rng = np.random.default_rng(1)
    pairs, labels = draw(z, far, 3000, rng)
    learner = cf.LinearMetricLearner(noise, **PAPER).fit(pairs, labels)
    found = []
    for _ in range(FITS):
        metric = cf.LinearMetricLearner(noise, **PAPER).fit(*draw(z, far, n, rng)).metric_
        found.append(errors_of(metric, z, far, matrix, threshold))
    found = np.array(found)
    for measure, errors in zip(("loss", "spectral"), found.T, strict=True):
        plan = plan_sample_size(learner, pairs, labels, target_error=0.05, measure=measure, delta=0.1)
        assert plan.expected_error(n) == pytest.approx(errors.mean(), rel=0.25)
        assert 0.75 <= np.mean(errors <= plan.likely_error(n)) < 1.0  # of 40 fits, where 0.9 is expected


def test_labels_of_another_noise_cost_more_parameters():
    """Flipped labels under normal noise: the sandwich counts more than there are, and is right."""
    data = cf.datasets.make_pairs(30_000, 5, metric_eigenvalues=[1.0, 0.4], noise="flips", random_state=3)
    z, far = data.pairs[:, 0] - data.pairs[:, 1], np.where(data.true_labels == 1, 0.9, 0.1)
    both, labels = np.vstack([z, z]), np.repeat([1, -1], len(z))
    best = cf.LinearMetricLearner("normal", **PAPER).fit(both, labels, sample_weight=np.append(far, 1 - far)).metric_
    rng, n, found, counts = np.random.default_rng(0), 2000, [], []
    for _ in range(25):
        chosen = rng.choice(len(z), n, replace=False)
        signs = np.where(rng.uniform(size=n) < far[chosen], 1, -1)
        learner = cf.LinearMetricLearner("normal", **PAPER).fit(z[chosen], signs)
        phi, margins, target = best.noise.neg_log_cdf, learner.metric_.margin(z), best.margin(z)
        changes = far * (phi(margins) - phi(target)) + (1 - far) * (phi(-margins) - phi(-target))
        found.append(2 * n * np.mean(changes))
        counts.append(plan_sample_size(learner, z[chosen], signs, target_error=0.01).n_parameters)
    assert np.mean(counts) == pytest.approx(np.mean(found), rel=0.25)
    assert np.mean(counts) > 16


def test_effective_parameters_of_full_rank_are_all_of_them(pilot):
    learner, pairs, labels = pilot
    assert learner.metric_.rank == 3
    assert plan_sample_size(learner, pairs, labels, target_error=0.01).n_parameters == pytest.approx(7, rel=0.1)


def test_effective_parameters_of_low_rank_are_those_of_the_cone():
    """M* of rank k leaves dk - k(k-1)/2 + 1 parameters and, as noise may raise the rank, half of the rest."""
    d, k = 6, 2
    z, far, _, _ = world(d, [1.0, 0.5])
    rng, counts, dimensions = np.random.default_rng(0), [], []
    for _ in range(12):
        pairs, labels = draw(z, far, 2500, rng)
        learner = cf.LinearMetricLearner(**PAPER).fit(pairs, labels)
        rank = learner.metric_.rank
        counts.append(plan_sample_size(learner, pairs, labels, target_error=0.01).n_parameters)
        dimensions.append(d * rank - rank * (rank - 1) / 2 + 1)
    tangent = d * k - k * (k - 1) / 2 + 1
    assert np.mean(counts) == pytest.approx(tangent + (d - k) * (d - k + 1) / 4, rel=0.08)
    assert tangent < np.mean(counts) < np.mean(dimensions) < d * (d + 1) / 2 + 1


def test_a_fit_of_set_rank_has_the_parameters_of_that_rank():
    z, far, _, _ = world(6, [1.0, 0.5])
    pairs, labels = draw(z, far, 3000, np.random.default_rng(0))
    learner = cf.LinearMetricLearner(rank=2, **PAPER).fit(pairs, labels)
    assert plan_sample_size(learner, pairs, labels, target_error=0.01).n_parameters == pytest.approx(12, rel=0.15)


@pytest.mark.parametrize("measure", ["loss", "spectral"])
def test_the_numbers_of_a_plan_agree(pilot, measure):
    plan = plan_sample_size(*pilot, target_error=0.02, measure=measure, delta=0.1)
    assert plan.expected_error(plan.n_pairs) <= 0.02 < plan.expected_error(plan.n_pairs - 1)
    assert plan.likely_error(plan.n_pairs_likely) <= 0.02 < plan.likely_error(plan.n_pairs_likely - 1)
    assert plan.n_pairs < plan.n_pairs_likely < plan.worst_case / 1e3
    power = 1 if measure == "loss" else 2
    halved = plan_sample_size(*pilot, target_error=0.01, measure=measure, delta=0.1)
    assert halved.n_pairs == pytest.approx(2**power * plan.n_pairs, rel=0.1)
    assert halved.n_pairs <= 2**power * plan.n_pairs  # few pairs are worse than the rate says
    for number in (f"{plan.n_pairs:,}", f"{plan.n_pairs_likely:,}", f"{plan.worst_case:.0e}", "orders of magnitude"):
        assert number in plan.sentence


def test_the_worst_case_is_the_theorem(pilot):
    """Excess loss eps takes N(eps / 2) pairs; in units where the longest difference has length one."""
    learner, pairs, labels = pilot
    plan = plan_sample_size(learner, pairs, labels, target_error=0.02, delta=0.1)
    z = pairs[:, 0] - pairs[:, 1]
    values, vectors = np.linalg.eigh(z.T @ z / len(z))
    whitened = learner.metric_.change_units((vectors / np.sqrt(values)).T)
    longest = np.max(np.sum((z @ vectors / np.sqrt(values)) ** 2, axis=1))
    n = cf.theory.sample_size(
        0.01, 0.1, n_features=3, max_eigenvalue=whitened.eigenvalues[0] * longest, max_squared_length=1.0
    )
    assert plan.worst_case == pytest.approx(n, rel=1e-6)


def test_an_enormous_worst_case_is_infinite_and_said():
    data = cf.datasets.make_pairs(800, 3, noise="normal", wrong_share=0.05, random_state=0)
    learner = cf.LinearMetricLearner("normal", **PAPER).fit(data.pairs, data.labels)
    plan = plan_sample_size(learner, data.pairs, data.labels, target_error=0.05, measure="spectral")
    assert plan.worst_case == math.inf
    assert "needs more than 1e+300 pairs, too many to plan with" in plan.sentence


def test_units_do_not_matter(pilot):
    learner, pairs, labels = pilot
    units = np.array([1e-6, 1.0, 1e6])
    scaled = cf.LinearMetricLearner(**PAPER).fit(pairs * units, labels)
    plan = plan_sample_size(learner, pairs, labels, target_error=0.01)
    other = plan_sample_size(scaled, pairs * units, labels, target_error=0.01)
    assert other.n_parameters == pytest.approx(plan.n_parameters, rel=1e-6)
    assert other.worst_case == pytest.approx(plan.worst_case, rel=1e-6)


def test_class_weights_are_those_of_the_fit(pilot):
    _, pairs, labels = pilot
    weighted = cf.LinearMetricLearner(class_weight={-1: 2.0, 1: 2.0}, **PAPER).fit(pairs, labels)
    plain = plan_sample_size(*pilot, target_error=0.01)
    assert plan_sample_size(weighted, pairs, labels, target_error=0.01).n_pairs == plain.n_pairs


def test_what_the_sentence_says_to_do(pilot):
    easy = plan_sample_size(*pilot, target_error=0.02)
    hard = plan_sample_size(*pilot, target_error=0.001)
    assert "the pilot is large enough" in easy.sentence
    assert f"label {hard.n_pairs - 800:,} more" in hard.sentence
    assert "rough" not in easy.sentence + hard.sentence


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_error": 0.0}, "target_error must be a finite number > 0; got 0.0"),
        ({"target_error": math.inf}, "target_error must be a finite number > 0; got inf"),
        ({"delta": 1.0}, "delta must be between 0 and 1; got 1.0"),
        ({"measure": "accuracy"}, r"measure must be one of \['loss', 'spectral'\]; got 'accuracy'"),
    ],
)
def test_requests_are_checked(pilot, change, message):
    with pytest.raises(ValueError, match=message):
        plan_sample_size(*pilot, **{"target_error": 0.01, **change})


def test_other_data_than_the_pilot_is_refused(pilot):
    learner, pairs, labels = pilot
    with pytest.raises(ValueError, match=r"must be the whole pilot.* Pass the pilot, or fit again"):
        plan_sample_size(learner, pairs[:500], labels[:500], target_error=0.01)


def test_fits_that_have_no_asymptotics_are_refused(pilot):
    _, pairs, labels = pilot
    differences = pairs[:, 0] - pairs[:, 1]
    centred = cf.LinearMetricLearner(fit_origin=True, **PAPER).fit(differences, labels)
    with pytest.raises(ValueError, match=r"got fit_origin=True. Fit differences without it"):
        plan_sample_size(centred, differences, labels, target_error=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        separable = cf.LinearMetricLearner(**PAPER).fit(pairs[:12], labels[:12])
    for learner in (separable, cf.LinearMetricLearner().fit(pairs[:12], labels[:12])):
        with pytest.raises(ValueError, match=r"labels that a metric explains without error.* Label more pairs"):
            plan_sample_size(learner, pairs[:12], labels[:12], target_error=0.01)


@pytest.mark.parametrize("settings", [{}, {"alpha": 0.01, "flip_rate": 0.0}], ids=["default", "set"])
def test_the_plan_of_a_penalised_fit_is_that_of_the_fit_without_it(settings):
    pilot = cf.datasets.make_pairs(1500, 3, wrong_share=0.1, random_state=5)
    known = cf.plan_sample_size(cf.LinearMetricLearner(**PAPER).fit(pilot.pairs, pilot.labels), target_error=0.01)
    penalised = cf.LinearMetricLearner(**{**settings, "flip_rate": 0.0}).fit(pilot.pairs, pilot.labels)
    assert penalised.alpha_ > 0
    assert cf.plan_sample_size(penalised, target_error=0.01).n_pairs == pytest.approx(known.n_pairs, rel=1e-3)


def test_the_pilot_is_the_training_pairs_by_default():
    pilot = cf.datasets.make_pairs(1500, 3, wrong_share=0.1, random_state=5)
    learner = cf.LinearMetricLearner(**PAPER).fit(pilot.pairs, pilot.labels)
    given = cf.plan_sample_size(learner, pilot.pairs, pilot.labels, target_error=0.01)
    assert cf.plan_sample_size(learner, target_error=0.01) == given


# The parts


def central(function, q, step):
    return np.stack([(function(q + e) - function(q - e)) / (2 * step) for e in step * np.eye(len(q))], axis=-1)


def local_model(losses, q):
    """Hessian of the mean loss and second moment of the scores, by finite differences."""
    scores = central(losses, q, 1e-5)
    return central(lambda at: central(losses, at, 1e-5).mean(axis=0), q, 1e-4), scores.T @ scores / len(scores)


@pytest.mark.parametrize("kind", ["full rank", "rank told", "threshold zero"])
def test_the_number_of_parameters_is_a_trace_by_finite_differences(kind):
    """tr(H^-1 V) is the same in any coordinates: entries of M and tau, or the factor and tau, or the entries alone."""
    rng = np.random.default_rng(4)
    z = rng.standard_normal((400, 2)) @ [[1.0, 0.3], [0.0, 2.0]]
    shift = 0.3 if kind == "threshold zero" else -0.8
    labels = np.where(0.8 * z[:, 0] ** 2 + 0.3 * z[:, 1] ** 2 + shift + rng.logistic(size=400) >= 0, 1, -1)
    learner = cf.LinearMetricLearner(rank=1 if kind == "rank told" else None, tol=1e-12, **PAPER).fit(z, labels)
    metric = learner.metric_
    assert metric.threshold == 0.0 if kind == "threshold zero" else 0.0 < metric.threshold < 1.0
    products = np.column_stack([z[:, 0] ** 2, 2 * z[:, 0] * z[:, 1], z[:, 1] ** 2])
    entries = metric.matrix[np.triu_indices(2)]
    margin, q = {
        "full rank": (lambda q: products @ q[:3] - q[3], np.append(entries, metric.threshold)),
        "rank told": (lambda q: (z @ q[:2]) ** 2 - q[2], np.append(metric.factor, metric.threshold)),
        "threshold zero": (lambda q: products @ q, entries),
    }[kind]
    hessian, covariance = local_model(lambda q: np.logaddexp(0.0, -labels * margin(q)), q)
    plan = plan_sample_size(learner, target_error=0.01)
    assert plan.n_parameters == pytest.approx(np.trace(np.linalg.solve(hessian, covariance)), rel=5e-3)
    assert plan.expected_coefficient == pytest.approx(plan.n_parameters / 2)


@pytest.fixture(scope="module")
def column():
    rng = np.random.default_rng(3)
    z = rng.uniform(-3.0, 3.0, (2000, 1))
    labels = np.where(0.8 * z[:, 0] ** 2 - 2.0 + rng.logistic(size=2000) >= 0, 1, -1)
    return cf.LinearMetricLearner(tol=1e-12, **PAPER).fit(z, labels), z, labels


def test_errors_of_one_column_have_a_closed_form(column):
    """The error of m / tau is normal, that of the loss half a chi-squared of two degrees of freedom."""
    learner, z, labels = column
    m, tau = learner.metric_.matrix[0, 0], learner.metric_.threshold
    hessian, covariance = local_model(
        lambda q: np.logaddexp(0.0, -labels * (q[0] * z[:, 0] ** 2 - q[1])), np.array([m, tau])
    )
    slope = np.linalg.solve(hessian, [1.0 / m, -1.0 / tau])
    sigma = np.sqrt(slope @ covariance @ slope)
    plan = plan_sample_size(learner, target_error=0.05, measure="spectral", delta=0.2)
    assert plan.expected_coefficient == pytest.approx(sigma * np.sqrt(2.0 / np.pi), rel=0.1)
    assert plan.likely_coefficient == pytest.approx(sigma * norm.ppf(0.9), rel=0.1)
    loss = plan_sample_size(learner, target_error=0.05, delta=0.2)
    assert loss.likely_coefficient == pytest.approx(0.5 * chi2.ppf(0.8, 2), rel=0.15)


def test_the_defaults_of_a_plan(column):
    learner, z, labels = column
    plan = plan_sample_size(learner, z, labels, target_error=0.05)
    assert plan == plan_sample_size(learner, target_error=0.05, measure="loss", delta=0.05, random_state=0)
    assert plan.likely_coefficient != plan_sample_size(learner, target_error=0.05, random_state=1).likely_coefficient


def test_changes_of_the_ratio_by_finite_differences():
    rng = np.random.default_rng(0)
    transform, h = rng.standard_normal((3, 2)), 1e-6
    metric = cf.Metric.from_matrix(transform @ np.diag([2.0, 0.5]) @ transform.T, 1.7)
    steps = rng.standard_normal((4, 6))
    expected = []
    for step in steps.T:
        inner, threshold = packed.split(h * step, 2)
        ratio = (metric.matrix + transform @ inner @ transform.T) / (1.7 + threshold[0])
        change = np.linalg.norm(ratio - metric.matrix / 1.7, 2)
        expected.append(change / np.linalg.norm(metric.matrix / 1.7, 2) / h)
    np.testing.assert_allclose(planning._spectral_errors(steps, transform, metric, Kind.CLOSE_FAR), expected, rtol=1e-4)


@pytest.mark.parametrize("tau", [0.5, 6.0])
@pytest.mark.parametrize("d", [1, 2])
def test_the_theorem_for_either_measure(tau, d):
    """The excess loss that allows a parameter distance of e tau / (e + max(tau / beta, 1)), halved."""
    metric, beta, e = cf.Metric(np.eye(d), tau), 3.0, 0.1
    sizes = {"n_features": d, "max_eigenvalue": beta, "max_squared_length": 1.0, "max_threshold": max(beta, tau)}
    loss = planning._worst_case(metric, "loss", e, 0.2, beta)
    assert loss == pytest.approx(cf.theory.sample_size(e / 2, 0.2, **sizes))
    distance = e * tau / (e + max(tau / beta, 1.0))
    bound = cf.theory.parameter_bound

    def beyond(log_excess):
        found = bound(math.exp(log_excess), n_features=d, radius=max(beta, tau))
        return math.log(found / distance)

    excess = math.exp(brentq(beyond, -80.0, 0.0, xtol=1e-13))
    spectral = planning._worst_case(metric, "spectral", e, 0.2, beta)
    assert spectral == pytest.approx(cf.theory.sample_size(excess / 2, 0.2, **sizes), rel=1e-8)


def test_the_worst_case_of_the_ratio_is_in_the_units_of_the_data(column):
    learner, z, _ = column
    plan = plan_sample_size(learner, target_error=0.05, measure="spectral", delta=0.2)
    beta = learner.metric_.matrix[0, 0] * np.max(z**2)
    assert plan.worst_case == pytest.approx(planning._worst_case(learner.metric_, "spectral", 0.05, 0.2, beta))


def test_beyond_the_largest_numbers_the_worst_case_is_infinite():
    metric = cf.Metric(np.eye(1), 1.0)
    assert 1e270 < planning._worst_case(metric, "loss", 1e-140, 0.1, 1.0) < math.inf
    assert planning._worst_case(metric, "loss", 1e-160, 0.1, 1.0) == math.inf


def test_losses_are_those_of_a_chi_square(monkeypatch):
    data = cf.datasets.make_pairs(40, 1, wrong_share=0.3, random_state=0)
    learner = cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels)
    model = np.eye(2, 39), 2.0 * np.eye(39), 3.0 * np.eye(39)
    monkeypatch.setattr(planning, "_local_model", lambda *_: model)
    plan = plan_sample_size(learner, target_error=0.01, delta=0.3)
    assert plan.n_parameters == pytest.approx(39 * 1.5)
    assert plan.likely_coefficient == pytest.approx(0.75 * chi2.ppf(0.7, 39), rel=0.05)


def test_the_pilot_has_the_loss_of_the_fit(column):
    learner, *_ = column
    loss = learner.certificate_.loss
    for change, refused in [(0.0, False), (0.8e-7, False), (-0.8e-7, False), (1.2e-7, True), (-1.2e-7, True)]:
        certificate = dataclasses.replace(learner.certificate_, loss=loss + change * (1.0 + loss))
        fit = dataclasses.replace(learner.fit_, certificate=certificate)
        if refused:
            with pytest.raises(ValueError, match="must be the whole pilot"):
                planning._check_pilot(fit, loss)
        else:
            planning._check_pilot(fit, loss)


@pytest.mark.parametrize(
    ("target_error", "delta", "refused"),
    [
        (1e-300, 1e-300, None),
        (1e300, 1.0 - 1e-15, None),
        (3, 0.5, None),
        (0.0, 0.5, "target_error"),
        (-1.0, 0.5, "target_error"),
        (math.nan, 0.5, "target_error"),
        (math.inf, 0.5, "target_error"),
        ("0.1", 0.5, "target_error"),
        (0.1, 0.0, "delta"),
        (0.1, 1.0, "delta"),
        (0.1, None, "delta"),
    ],
)
def test_requests_are_allowed_up_to_their_limits(target_error, delta, refused):
    if refused is None:
        planning._check_request(target_error, "loss", delta)
    else:
        rule = "a finite number > 0" if refused == "target_error" else "between 0 and 1"
        with pytest.raises(ValueError, match=f"{refused} must be {rule}; got "):
            planning._check_request(target_error, "loss", delta)


def test_a_pilot_must_find_a_direction_and_for_the_ratio_a_threshold(column):
    def check(factor, threshold, measure, flip_rate=0.0):
        metric = cf.Metric.from_factor(np.array(factor), threshold, flip_rate=flip_rate)
        planning._check_fit(dataclasses.replace(column[0].fit_, metric=metric), measure)

    for measure in ("loss", "spectral"):
        check([[1.0], [2.0]], 1.0, measure)
        check(np.eye(2), 1.0, measure)
        with pytest.raises(ValueError, match=r"must have a rank of at least 1.* Label more pairs"):
            check(np.zeros((2, 0)), 1.0, measure)
    check([[1.0]], 0.0, "loss")
    with pytest.raises(ValueError, match=r"for the error of M / tau, a threshold > 0; got Metric"):
        check([[1.0]], 0.0, "spectral")
    with pytest.raises(ValueError, match=r"without flips; got a flip rate of 0\.01.* the plan would be wrong"):
        check([[1.0]], 1.0, "loss", flip_rate=0.01)


PLAN = SampleSizePlan("loss", 0.01, 0.05, 500, 50.0, 1e9, 600, 900, 3e7, 6.0, 9.0)


def test_errors_fall_with_pairs():
    assert (PLAN.expected_error(300), PLAN.likely_error(300)) == pytest.approx((0.02, 0.03))
    spectral = dataclasses.replace(PLAN, measure="spectral")
    assert (spectral.expected_error(900), spectral.likely_error(900)) == pytest.approx((0.2, 0.3))
    with pytest.raises(dataclasses.FrozenInstanceError):
        PLAN.delta = 0.1


def test_errors_of_few_uncertain_labels_are_larger():
    few = dataclasses.replace(PLAN, uncertain_per_parameter=5.0)
    assert few.expected_error(500) == pytest.approx(PLAN.expected_error(500) * (1 + 1 / 5 + 5 / 25))
    assert few.expected_error(1000) == pytest.approx(PLAN.expected_error(1000) * (1 + 1 / 10 + 5 / 100))
    spectral = dataclasses.replace(few, measure="spectral")
    assert spectral.likely_error(500) == pytest.approx(9.0 / np.sqrt(500) * (1 + 0.4 / 5 + 1 / 25))


@pytest.mark.parametrize(("n", "d", "wrong"), [(120, 4, 0.15), (88, 4, 0.2), (300, 8, 0.2)])
def test_errors_of_small_pilots_are_foreseen(n, d, wrong):
    """On average; the plain asymptotics promise half of them or less."""
    rng, predicted, found, plain = np.random.default_rng(0), [], [], []
    z = rng.standard_normal((20_000, d))
    squared = z**2 @ np.linspace(1.0, 0.3, d)
    scale = cf.datasets.solve_noise_scale(squared - np.median(squared), NOISES["logistic"], wrong)
    margin = (squared - np.median(squared)) / scale
    far, phi = NOISES["logistic"].cdf(margin), NOISES["logistic"].neg_log_cdf
    best = np.mean(far * phi(margin) + (1 - far) * phi(-margin))
    for _ in range(25):
        chosen = rng.choice(len(z), n, replace=False)
        learner = cf.LinearMetricLearner(**PAPER).fit(z[chosen], np.where(rng.uniform(size=n) < far[chosen], 1, -1))
        if learner.fit_statistics_.uncertain_per_parameter < 2:
            continue
        plan, margins = plan_sample_size(learner, target_error=0.01), learner.metric_.margin(z)
        predicted.append(plan.expected_error(n))
        plain.append(plan.expected_coefficient / n)
        found.append(np.mean(far * phi(margins) + (1 - far) * phi(-margins)) - best)
    assert len(found) >= 8
    assert 0.55 < np.mean(found) / np.mean(predicted) < 1.6
    assert np.mean(plain) < 0.75 * np.mean(found)


def test_points_that_a_pilot_shares_are_told():
    rng = np.random.default_rng(0)
    pairs = rng.standard_normal((80, 2))[rng.integers(80, size=(500, 2))]
    labels = np.where((pairs[:, 0, 0] - pairs[:, 1, 0]) ** 2 + rng.logistic(size=500) > 1, 1, -1)
    assert plan_sample_size(cf.LinearMetricLearner(**PAPER).fit(pairs, labels), target_error=0.01).shares_points
    apart = cf.LinearMetricLearner(**PAPER).fit(pairs[:, 0] - pairs[:, 1], labels)
    assert not plan_sample_size(apart, target_error=0.01).shares_points


@pytest.mark.filterwarnings("ignore:there are only 0.6 uncertain labels:closefar.IdentifiabilityWarning")
def test_a_pilot_with_few_uncertain_labels_is_refused():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((100, 5))
    labels = np.where(z[:, 0] ** 2 + 0.5 * z[:, 1] ** 2 + 0.1 * rng.logistic(size=100) > 1, 1, -1)
    learner = cf.LinearMetricLearner(**PAPER).fit(z, labels)
    assert learner.certificate_.converged
    assert learner.fit_statistics_.uncertain_per_parameter < 1
    with pytest.raises(ValueError, match=r"at least 1 uncertain label per parameter.* Label more pairs first, about"):
        plan_sample_size(learner, target_error=0.01)


@pytest.mark.parametrize(
    ("change", "said", "unsaid"),
    [
        (
            {},
            "With the 500 pairs of the pilot it is 0.012; with 900 it is at most the target with probability 0.95.",
            "rough",
        ),
        ({}, "needs 3e+07 pairs (4 orders of magnitude more), too many", "more than 1e+300"),
        ({"n_pairs": 501}, "label 1 more.", "enough"),
        ({"n_pairs": 500}, "the pilot is large enough.", "label"),
        ({"uncertain_per_parameter": 2.0}, "only 2.0 uncertain labels per parameter", "enough"),
        ({"uncertain_per_parameter": 2.0}, "this plan is rough. Plan again with about 1,250 pairs.", "enough"),
        ({"uncertain_per_parameter": 5.0}, "label 100 more.", "rough"),
        ({"shares_points": True}, "these share points, so more are needed.", "rough"),
        ({"worst_case": math.inf}, "needs more than 1e+300 pairs, too many", "orders"),
    ],
    ids=str,
)
def test_the_sentence_follows_from_the_numbers(change, said, unsaid):
    sentence = dataclasses.replace(PLAN, **change).sentence
    assert said in sentence
    assert unsaid not in sentence
