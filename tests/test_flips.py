"""Labels flipped whatever the distance: what the fit makes of them, and how it climbs."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

import closefar as cf
from closefar.noise import NOISES
from closefar.rows import Differences, unit_free
from closefar.solve import Answers, Ending, Likelihood, Outcome, Problem, SharedRate, SideRates, SolverSettings, State
from closefar.solve import flips as flips_module
from closefar.solve.certificate import Certificate
from closefar.solve.flips import Alternating
from closefar.solve.problem import moment_start
from paper.synthetic import paper_pairs
from paper_estimator import PAPER


def flipped_pairs(n=4000, d=4, rate=0.1, seed=0, noise=None, wrong_share=None):
    """Pairs of which `rate` of the labels are flipped, beside those that noise makes wrong."""
    data = cf.datasets.make_pairs(n, d, rank=2, noise=noise, wrong_share=wrong_share, random_state=seed)
    flips = np.random.default_rng(seed).random(n) < rate
    return data.pairs[:, 0] - data.pairs[:, 1], np.where(flips, -data.labels, data.labels), data


def labelled(labels, n_levels=2, **more):
    weights = np.full(len(labels), 1.0 / len(labels))
    return Likelihood(NOISES["logistic"], Answers.of(n_levels), (np.asarray(labels) > 0).astype(int), weights, **more)


def best_flip_rate(right, weights=None):
    """The likeliest rate of labels that have these probabilities if they are not flipped."""
    weights = np.ones(len(right)) if weights is None else weights
    likelihood = replace(labelled(np.ones(len(right))), weights=weights / weights.sum())
    rates = SharedRate(np.zeros(1)).best(likelihood, Differences(np.zeros((len(right), 1))), right)
    return rates.flip_rate(likelihood.answers)


@pytest.fixture(params=sorted(NOISES))
def noise(request):
    return NOISES[request.param]


@pytest.mark.parametrize("seed", [0, 1])
def test_flips_are_found_and_the_metric_with_them(seed):
    split = paper_pairs(15_000, noise="flips", wrong_share=0.1, seed=seed)
    plain = cf.LinearMetricLearner(**PAPER).fit(split.train, split.noisy_train)
    learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(split.train, split.noisy_train)
    accuracy = {
        each: np.mean((each.decision_function(split.test) >= 0) == (split.true_test > 0)) for each in (plain, learner)
    }
    assert accuracy[learner] > 0.99 > 0.97 > accuracy[plain]
    assert learner.flip_rate_ == pytest.approx(0.1, abs=0.01)
    assert learner.fit_statistics_.wrong_share == pytest.approx(0.1, abs=0.01)
    assert learner.certificate_.loss < plain.certificate_.loss
    assert learner.certificate_.gap <= 1e-6
    assert "flipped" in learner.certificate_.status


def test_noise_alone_is_not_taken_for_flips(noise):
    split = paper_pairs(8_000, noise=noise.name, seed=3)
    plain = cf.LinearMetricLearner(noise, **PAPER).fit(split.train, split.noisy_train)
    learner = cf.LinearMetricLearner(noise, flip_rate="estimate", alpha=0.0).fit(split.train, split.noisy_train)
    assert learner.flip_rate_ < 0.02
    assert learner.score(split.test, split.true_test) >= plain.score(split.test, split.true_test) - 0.004


def test_noise_and_flips_together_are_told_apart():
    z, labels, data = flipped_pairs(20_000, 4, 0.1, seed=4, noise="logistic", wrong_share=0.1)
    learner = cf.LinearMetricLearner(flip_rate="estimate", tol=1e-8, alpha=0.0).fit(z, labels)
    assert learner.flip_rate_ == pytest.approx(0.1, abs=0.02)
    right = learner.metric_.noise.cdf(labels * learner.decision_function(z))
    rate = learner.flip_rate_
    loss = -np.mean(np.log(rate + (1 - 2 * rate) * right))
    assert learner.certificate_.loss == pytest.approx(loss, abs=1e-9)
    assert best_flip_rate(right) == pytest.approx(rate, abs=1e-6)
    assert np.mean(labels != data.true_labels) == pytest.approx(learner.fit_statistics_.wrong_share, abs=0.01)


def test_a_given_rate_is_kept_and_probabilities_respect_it():
    z, labels, _ = flipped_pairs()
    learner = cf.LinearMetricLearner(flip_rate=0.1, alpha=0.0).fit(z, labels)
    assert learner.flip_rate_ == 0.1
    probabilities = learner.predict_proba(z)
    assert probabilities.min() >= 0.1
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_allclose(learner.metric_.probability_far(z), probabilities[:, 1], rtol=1e-12)


def test_units_do_not_matter():
    z, labels, _ = flipped_pairs(noise="logistic", wrong_share=0.1)
    units = np.array([1e-6, 1.0, 1e3, 1e9])
    one, other = (
        cf.LinearMetricLearner(flip_rate="estimate", tol=1e-9, alpha=0.0).fit(rows, labels) for rows in (z, z * units)
    )
    np.testing.assert_allclose(one.predict_proba(z), other.predict_proba(z * units), atol=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "parameters", [{"rank": 2}, {"alpha": 0.01}, {"fit_origin": True}, {"fit_origin": True, "alpha": 0.01}], ids=str
)
def test_with_other_parameters(parameters):
    z, labels, data = flipped_pairs(noise="logistic", wrong_share=0.05)
    plain = cf.LinearMetricLearner(**PAPER | parameters).fit(z, labels)
    learner = cf.LinearMetricLearner(**PAPER | {"flip_rate": "estimate"} | parameters).fit(z, labels)
    assert learner.flip_rate_ == pytest.approx(0.1, abs=0.04)
    assert learner.score(z, data.true_labels) >= plain.score(z, data.true_labels) - 0.003
    if "rank" in parameters:
        assert learner.metric_.rank == 2


def test_many_columns():
    z, labels, data = flipped_pairs(6000, 40, noise="logistic", wrong_share=0.05)
    plain = cf.LinearMetricLearner(**PAPER).fit(z, labels)
    learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(z, labels)
    assert learner.flip_rate_ == pytest.approx(0.1, abs=0.05)
    assert learner.certificate_.loss <= plain.certificate_.loss
    assert learner.score(z, data.true_labels) >= plain.score(z, data.true_labels)


def test_labels_without_noise_or_flips():
    z, labels, _ = flipped_pairs(500, rate=0.0)
    with pytest.warns(ConvergenceWarning, match="separable"):
        learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(z, labels)
    assert learner.flip_rate_ == 0.0


@pytest.mark.parametrize("rate", [-0.1, 0.5, np.nan, "some", None])
def test_bad_rates_are_named(rate):
    z, labels, _ = flipped_pairs(100)
    with pytest.raises(
        ValueError, match=r'flip_rate must be "auto", "estimate", "two" or a number from 0 to below 0\.5 .*; got'
    ):
        cf.LinearMetricLearner(flip_rate=rate, alpha=0.0).fit(z, labels)


@pytest.mark.parametrize("parameters", [{"rank": 1}, {"rank": 2}, {"alpha": 0.02}], ids=str)
def test_the_result_is_stationary(parameters):
    """One more step of expectation-maximisation gains nothing."""
    z, labels, _ = flipped_pairs(1500, 5, noise="logistic", wrong_share=0.05, seed=6)
    first = cf.LinearMetricLearner(tol=1e-8, **PAPER | {"flip_rate": "estimate"} | parameters).fit(z, labels)
    rate = first.flip_rate_
    right = first.metric_.noise.cdf(labels * first.decision_function(z))
    flipped = rate * (1.0 - right) / (rate + (1.0 - 2.0 * rate) * right)
    both, weights = np.vstack([z, z]), np.concatenate([1.0 - flipped, flipped])
    step = cf.LinearMetricLearner(tol=1e-8, **PAPER | parameters).fit(both, np.concatenate([labels, -labels]), weights)
    right = step.metric_.noise.cdf(labels * step.decision_function(z))
    rate = best_flip_rate(right)
    after = -np.mean(np.log(rate + (1.0 - 2.0 * rate) * right))
    penalty = {"alpha": 0.0, **parameters}["alpha"]
    gain = (
        first.certificate_.loss
        - after
        + penalty * np.mean(first.metric_.squared_distance(z) - step.metric_.squared_distance(z))
    )
    assert gain <= 1e-5
    assert not first.certificate_.globally_optimal


def test_a_rank_that_limits_nothing_changes_nothing():
    z, labels, _ = flipped_pairs(1500, 5, noise="logistic", wrong_share=0.05, seed=6)
    free = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(z, labels)
    same = cf.LinearMetricLearner(flip_rate="estimate", rank=5, alpha=0.0).fit(z, labels)
    assert same.metric_ == free.metric_
    assert same.certificate_.n_passes == free.certificate_.n_passes


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_climb_keeps_the_rank_and_is_short(rank):
    z, labels, _ = flipped_pairs(1500, 8, noise="logistic", wrong_share=0.05, seed=6)
    plain = cf.LinearMetricLearner(rank=rank, **PAPER).fit(z, labels)
    learner = cf.LinearMetricLearner(flip_rate="estimate", rank=rank, alpha=0.0).fit(z, labels)
    assert learner.metric_.rank == rank
    assert learner.certificate_.loss < plain.certificate_.loss
    # Expectation-maximisation with a whole fit in each of its rounds took thousands.
    assert learner.certificate_.n_passes < 20 * plain.certificate_.n_passes
    assert learner.certificate_.n_passes == learner.history_[-1].passes


def test_where_the_scale_is_not_determined_the_climb_ends_and_says_so():
    z, labels, _ = flipped_pairs(400, 4, 0.1, seed=1)
    learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(z, labels)
    assert "the scale of M and tau" in learner.certificate_.status
    assert "not the scale of M and tau" in learner.certificate_.status
    # A penalty determines it.
    penalised = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.01, prior="zero").fit(z, labels)
    assert "not the scale of M and tau" not in penalised.certificate_.status


def test_an_interrupt_during_the_climb_keeps_what_was_reached(monkeypatch):
    step, calls = Alternating.step, []

    def interrupted(self, state):
        calls.append(state)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return step(self, state)

    monkeypatch.setattr(Alternating, "step", interrupted)
    z, labels, _ = flipped_pairs(1500, 5, noise="logistic", wrong_share=0.05, seed=6)
    learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(z, labels)
    assert learner.certificate_.outcome is Outcome.INTERRUPTED
    assert learner.certificate_.advice.startswith("the fit was interrupted")
    assert not learner.certificate_.converged
    assert learner.flip_rate_ > 0.0
    assert np.isfinite(learner.metric_.matrix).all()


def problem_of(z, labels, alpha=0.0, flips=None):
    likelihood = labelled(labels, flips=flips)
    return Problem.of(unit_free(Differences(z), likelihood.weights)[0], likelihood, alpha)


def test_the_climb_comes_to_the_same_place_from_the_moments_of_the_labels():
    z, labels, _ = flipped_pairs(3000, 4, noise="logistic", wrong_share=0.05, seed=2)
    problem = problem_of(z, labels, flips=SharedRate.of(0.1, 2))
    matrix, thresholds = moment_start(problem_of(z, labels))
    climb = Alternating(problem, np.random.default_rng(0), estimate=True, rank=None)
    found = climb.run(climb.beginning(State.at(matrix, *thresholds)), tol=0.0, max_iter=100)
    learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(z, labels)
    assert found.ending is Ending.STUCK
    assert found.state.objective == pytest.approx(learner.certificate_.loss, abs=1e-6)
    (share,) = found.state.rates
    assert 0.5 * share == pytest.approx(learner.flip_rate_, abs=1e-3)


# The parts of a fit with flips


def solve_with_flips(flip_rate, *, alpha=0.0, watch=lambda *_: None, n=1500, **settings):
    """The problem without flips, the solution, and the flip rate."""
    z, labels, _ = flipped_pairs(n, 3, noise="logistic", wrong_share=0.05, seed=2)
    problem = problem_of(z, labels, alpha)
    estimate, rate = flip_rate is None, 0.0 if flip_rate is None else flip_rate
    solution, found = flips_module.solve_with_flips(
        problem.with_likelihood(problem.likelihood.with_flips(SharedRate.of(rate, 2))),
        SolverSettings(**{"tol": 1e-6, "max_iter": 100} | settings),
        estimate=estimate,
        rng=np.random.default_rng(0),
        watch=watch,
    )
    return problem, solution, found.flips.flip_rate(found.answers)


@pytest.fixture
def record(monkeypatch):
    """What the convex fits and the climb have given."""
    found = {"solve": [], "run": [], "solve_roughly": []}
    for name, kept in found.items():
        place = Alternating if name == "run" else flips_module
        function = getattr(place, name)

        def recorded(*args, function=function, kept=kept, **kwargs):
            kept.append(function(*args, **kwargs))
            return kept[-1]

        monkeypatch.setattr(place, name, recorded)
    return found


@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("rate", [0.03, 0.1, 0.2, None])
def test_the_metric_is_stationary_at_the_given_or_likeliest_rate(rate, alpha):
    problem, solution, found = solve_with_flips(rate, alpha=alpha)
    assert found == rate or rate is None
    mixture = problem.with_likelihood(problem.likelihood.with_flips(SharedRate.of(found, 2)))
    here = mixture.evaluate(solution.squared, solution.thresholds)
    gradient = 2.0 * (mixture.outer(here.margin_gradient) + alpha * np.eye(3)) @ solution.factor
    np.testing.assert_allclose(gradient, 0.0, atol=2e-4)
    np.testing.assert_allclose(here.slopes, 0.0, atol=2e-4)
    assert solution.certificate.loss == pytest.approx(here.loss, rel=1e-12)
    if rate is None:
        right = problem.likelihood.right(problem.rows, solution.squared, solution.thresholds)
        assert found == pytest.approx(best_flip_rate(right), abs=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("rate", [0.1, None])
def test_the_history_is_that_of_all_steps_and_proves_the_last_alone(rate, alpha, record):
    seen = []
    problem, solution, _ = solve_with_flips(
        rate, alpha=alpha, watch=lambda *_: seen.append(sum(map(len, record.values())))
    )
    (plain, last), (climb,) = record["solve"], record["run"] + record["solve_roughly"]
    assert climb.ending is Ending.STUCK
    assert climb.n_iter >= 1
    assert solution.n_iter == plain.n_iter + climb.n_iter + last.n_iter
    *before, end = solution.history
    assert len(before) == len(plain.history) + climb.n_iter + 1
    assert {step.gap for step in before} == {np.inf}
    passes = [step.passes for step in solution.history]
    assert passes == sorted(passes)
    assert end.passes == problem.passes.count == solution.certificate.n_passes
    assert end.gap == solution.certificate.gap <= 1e-6
    assert end.objective == pytest.approx(solution.certificate.loss + alpha * np.sum(solution.factor**2), rel=1e-12)
    assert not solution.certificate.globally_optimal
    assert set(seen) == {0, 1, 2}  # the plain fit, the climb and the last step are all watched


def test_a_rate_of_zero_is_the_plain_fit(record):
    _, solution, rate = solve_with_flips(0.0)
    (plain,) = record["solve"]
    assert solution is plain
    assert rate == 0.0


def interrupt(*_):
    raise KeyboardInterrupt


def test_an_interrupt_during_the_plain_fit_ends_it_all(record):
    _, solution, rate = solve_with_flips(0.1, watch=interrupt)
    (plain,) = record["solve"]
    assert solution is plain
    assert rate == 0.1
    assert solution.certificate.outcome is Outcome.INTERRUPTED


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_after_an_interrupt_of_the_climb_the_last_step_is_brief(alpha, record):
    def interrupt_the_climb(*_):
        if len(record["solve"]) == 1 and not record["run"] + record["solve_roughly"]:
            raise KeyboardInterrupt

    _, solution, _ = solve_with_flips(0.1, alpha=alpha, tol=1e-12, max_iter=50, watch=interrupt_the_climb)
    plain, last = record["solve"]
    assert last.n_iter == 1
    assert solution.n_iter == plain.n_iter + 1
    assert solution.certificate.outcome is Outcome.INTERRUPTED
    assert not solution.certificate.converged


@pytest.mark.parametrize(("bound", "said"), [(0.598, "the proven gap is 2.0e-03"), (0.0, "no gap is proven yet")])
def test_after_an_interrupt_a_gap_is_named_where_it_is_proven(bound, said):
    convex = Certificate(0.5, 2e-3, True, Outcome.CONVERGED, "near.", 9.0, 0.6, bound, 0.0, False)
    advice = f"the fit was interrupted; {said}. The metric is usable."
    expected = replace(convex, converged=False, outcome=Outcome.INTERRUPTED, advice=advice)
    assert flips_module._interrupted(convex) == expected


# Flips that depend on the side


def sided_pairs(n, d, rates, seed=0, noise="logistic", wrong_share=0.1):
    """Differences and labels, of which close and far ones are flipped at these rates, and the true metric."""
    data = cf.datasets.make_pairs(
        n, d, rank=2, noise=noise, wrong_share=wrong_share, covariance_eigenvalues=np.ones(d), random_state=seed
    )
    draws = np.random.default_rng(seed).random(n)
    flips = np.where(data.labels > 0, draws < rates[1], draws < rates[0])
    return data.pairs[:, 0] - data.pairs[:, 1], np.where(flips, -data.labels, data.labels), data.metric


@pytest.mark.parametrize("rates", [(0.15, 0.03), (0.03, 0.15), (0.2, 0.0)])
def test_two_rates_are_found_and_the_metric_with_them(rates, noise):
    z, labels, truth = sided_pairs(8000, 4, rates, noise=noise)
    one, two = (cf.LinearMetricLearner(noise, flip_rate=each, alpha=0.0).fit(z, labels) for each in ("estimate", "two"))
    np.testing.assert_allclose(two.flip_rate_, rates, atol=0.025)
    errors = [
        np.linalg.norm(each.metric_.matrix / each.metric_.threshold - truth.matrix / truth.threshold)
        for each in (one, two)
    ]
    assert errors[1] < 0.8 * errors[0]
    assert two.certificate_.loss < one.certificate_.loss
    assert two.certificate_.gap <= 1e-6
    assert "close pairs called far" in two.certificate_.status
    probabilities = two.predict_proba(z)[np.arange(len(z)), (labels > 0).astype(int)]
    assert -np.mean(np.log(probabilities)) == pytest.approx(two.certificate_.loss, abs=1e-9)


def test_without_flips_both_rates_are_near_zero():
    z, labels, _ = sided_pairs(15_000, 3, (0.0, 0.0))
    assert max(cf.LinearMetricLearner(flip_rate="two", alpha=0.0).fit(z, labels).flip_rate_) < 0.02


@pytest.mark.parametrize("seed", range(4))
def test_two_rates_are_the_best_of_many_starts(seed):
    """Against a search over factor, threshold and rates from many points."""
    model = sorted(NOISES.values(), key=lambda each: each.name)[seed]
    rng = np.random.default_rng(seed)
    z, labels, _ = sided_pairs(400, 2, 0.2 * rng.random(2), seed=seed, noise=model)

    def loss(x):
        squared, (a, b) = np.sum((z @ x[:4].reshape(2, 2)) ** 2, axis=1), np.exp(x[5:]) / (1 + np.exp(x[5:]).sum())
        right = model.cdf(labels * (squared - max(x[4], 0.0)))
        return -np.mean(np.log(np.where(labels > 0, a, b) + (1.0 - a - b) * right + 1e-300))

    starts = (np.r_[3 * rng.standard_normal(4), 10 * rng.random(), -1 - 4 * rng.random(2)] for _ in range(4))
    best = min(minimize(loss, start, method="L-BFGS-B", options={"maxfun": 20_000}).fun for start in starts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cf.IdentifiabilityWarning)
        learner = cf.LinearMetricLearner(model, flip_rate="two", alpha=0.0).fit(z, labels)
    assert learner.certificate_.loss <= best + 2e-6


def test_the_best_two_rates_are_those_of_a_search():
    rng = np.random.default_rng(0)
    for _ in range(5):
        right, signs = rng.beta(2.0, 0.5, 300), rng.choice([-1.0, 1.0], 300)
        rows = Differences(np.zeros((300, 1)))

        def loss(rates, right=right, signs=signs):
            floor = np.where(signs > 0, *rates)
            return -np.mean(np.log(floor + (1.0 - sum(rates)) * right))

        found = SideRates(np.zeros(2)).best(labelled(signs), rows, right).rates
        grid = [loss((a, b)) for a in np.linspace(0, 0.98, 50) for b in np.linspace(0, 0.98 - a, 50)]
        assert loss(found) <= min(grid) + 1e-12
        assert found.min() >= 0.0
        assert found.sum() < 1.0


def test_rates_that_are_not_determined_are_named():
    few = sided_pairs(150, 3, (0.1, 0.1), wrong_share=0.25, seed=1)[:2]
    without_flips = cf.datasets.make_pairs(400, 3, wrong_share=0.25, random_state=1)[:2]
    for data in (few, without_flips):
        with pytest.warns(cf.IdentifiabilityWarning, match="hardly determine the two flip rates"):
            cf.LinearMetricLearner(flip_rate="two", alpha=0.0).fit(*data)


def test_two_given_rates_are_kept():
    z, labels, _ = sided_pairs(2000, 3, (0.15, 0.05))
    learner = cf.LinearMetricLearner(flip_rate=(0.15, 0.05), alpha=0.0).fit(z, labels)
    assert learner.flip_rate_ == (0.15, 0.05)
    probabilities = learner.predict_proba(z)
    assert probabilities[:, 1].min() >= 0.15
    assert probabilities[:, 0].min() >= 0.05
    with pytest.raises(ValueError, match=r"two numbers >= 0 with a sum below 1.*got \(0\.6, 0\.5\)"):
        cf.LinearMetricLearner(flip_rate=(0.6, 0.5), alpha=0.0).fit(z, labels)


# Flips of levels and comparisons


def test_answers_at_random_among_levels_are_found():
    data = cf.datasets.make_judgements(6000, 4, kind="levels", n_levels=4, rank=2, flip_rate=0.15, random_state=0)
    plain = cf.OrdinalMetricLearner(**PAPER).fit(data.tuples, data.labels)
    learner = cf.OrdinalMetricLearner(flip_rate="estimate", alpha=0.0).fit(data.tuples, data.labels)
    assert learner.flip_rate_ == pytest.approx(0.15, abs=0.02)
    truth = data.metric.matrix / data.noise_scale
    errors = [np.linalg.norm(each.metric_.matrix - truth) for each in (plain, learner)]
    assert errors[1] < 0.3 * errors[0]
    probabilities = learner.predict_proba(data.tuples)[np.arange(6000), data.labels]
    assert -np.mean(np.log(probabilities)) == pytest.approx(learner.certificate_.loss, abs=1e-9)
    assert learner.certificate_.gap <= 1e-6
    given = cf.OrdinalMetricLearner(flip_rate=0.15, alpha=0.0).fit(data.tuples, data.labels)
    assert given.certificate_.loss == pytest.approx(learner.certificate_.loss, abs=1e-3)


def test_without_answers_at_random_levels_have_no_flips():
    data = cf.datasets.make_judgements(4000, 3, kind="levels", n_levels=4, random_state=1)
    assert cf.OrdinalMetricLearner(flip_rate="estimate", alpha=0.0).fit(data.tuples, data.labels).flip_rate_ < 0.01


def test_flipped_comparisons_are_found():
    data = cf.datasets.make_judgements(4000, 3, kind="triplets", flip_rate=0.1, random_state=0)
    plain = cf.ComparisonMetricLearner(**PAPER).fit(data.tuples, data.labels)
    learner = cf.ComparisonMetricLearner(flip_rate="estimate", alpha=0.0).fit(data.tuples, data.labels)
    assert learner.flip_rate_ == pytest.approx(0.1, abs=0.02)
    truth = data.metric.matrix / data.noise_scale
    errors = [np.linalg.norm(each.metric_.matrix - truth) for each in (plain, learner)]
    assert errors[1] < 0.3 * errors[0]
    assert learner.certificate_.loss < plain.certificate_.loss


@pytest.mark.parametrize("kind", ["levels", "triplets"])
def test_two_rates_need_two_sides(kind):
    data = cf.datasets.make_judgements(200, 3, kind=kind, random_state=0)
    learner = cf.OrdinalMetricLearner if kind == "levels" else cf.ComparisonMetricLearner
    with pytest.raises(ValueError, match="two flip rates, of close and of far pairs, need close/far labels"):
        learner(flip_rate="two").fit(data.tuples, data.labels)
