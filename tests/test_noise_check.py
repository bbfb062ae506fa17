"""The test of the noise model: its level, its power, what it depends on, and what it says."""

import builtins

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2, norm
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import closefar as cf
from closefar.judgements import Judgements, SharedPointsWarning
from closefar.model import Scores
from closefar.noise import NOISES
from closefar.questions import check_noise_model
from closefar.questions.dependence import Dependence
from closefar.questions.goodness_of_fit import (
    AdjustedSums,
    LabelScores,
    NoiseBin,
    _bins,
    _table,
    advise_noise,
    as_standard_normal,
    better_noise,
    combine,
    refitted,
    weighted_bins,
)
from closefar.questions.likelihood import LabelModel, Moves, SideErrors, by_legs
from paper_estimator import PAPER


def fitted(n=4000, d=4, *, seed=0, noise="logistic", wrong_share=0.1, learner=None):
    data = cf.datasets.make_pairs(n, d, rank=2, noise=noise, wrong_share=wrong_share, random_state=seed)
    learner = learner or cf.LinearMetricLearner(**PAPER)
    return learner.fit(data.pairs, data.labels), data.pairs, data.labels


@pytest.fixture(scope="module")
def case():
    return fitted(seed=3)


@pytest.mark.parametrize("noise", sorted(NOISES))
def test_a_right_model_is_rejected_about_as_often_as_the_level_says(noise):
    checks = [
        check_noise_model(*fitted(2000, 3, seed=seed, noise=noise, learner=cf.LinearMetricLearner(noise, **PAPER)))
        for seed in range(40)
    ]
    rejected = sum(check.p_value < 0.05 for check in checks)
    assert rejected <= 6  # binomial(40, 0.05) exceeds 6 once in 300 times
    assert 0.7 < np.std([check.tail_z for check in checks]) < 1.35
    ratio = np.mean([check.statistic for check in checks]) / np.mean([check.dof for check in checks])
    assert 0.75 < ratio < 1.25


def test_other_pairs_than_those_of_the_fit_are_judged_as_fairly():
    p_values = []
    for seed in range(40):
        data = cf.datasets.make_pairs(3000, 3, random_state=seed)
        learner = cf.LinearMetricLearner(**PAPER).fit(data.pairs[:1000], data.labels[:1000])
        p_values.append(check_noise_model(learner, data.pairs[1000:], data.labels[1000:]).p_value)
    assert sum(p < 0.05 for p in p_values) <= 6


@pytest.mark.parametrize(
    ("truth", "model", "advice"),
    [
        ("flips", "logistic", 'flip_rate="estimate"'),
        ("flips", "laplace", 'flip_rate="estimate"'),
        ("laplace", "normal", "more than expected are wrong at large margins. Try noise="),
        ("normal", "laplace", "fewer than expected are wrong at large margins. Try noise="),
    ],
)
def test_a_wrong_model_is_found_and_a_better_one_named(truth, model, advice):
    check = check_noise_model(*fitted(15_000, noise=truth, learner=cf.LinearMetricLearner(model, **PAPER)))
    assert check.p_value < 0.01
    assert advice in check.advice


def test_estimated_flips_are_not_found_again():
    _, pairs, labels = fitted(6000, 3, seed=1)
    labels = np.where(np.random.default_rng(0).uniform(size=len(labels)) < 0.05, -labels, labels)
    plain = cf.LinearMetricLearner(**PAPER).fit(pairs, labels)
    assert check_noise_model(plain, pairs, labels).tail_z > 4
    check = check_noise_model(cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(pairs, labels), pairs, labels)
    assert check.p_value > 0.05
    assert check.advice == f"No evidence against logistic noise (p = {check.p_value:.2g})."


def test_units_order_and_the_form_of_pairs_change_nothing(case):
    learner, pairs, labels = case
    check = check_noise_model(learner, pairs, labels)
    differences = (pairs[:, 0] - pairs[:, 1]) * [1e-6, 1.0, 1e3, 1e9]
    order = np.random.default_rng(0).permutation(len(labels))
    other = cf.LinearMetricLearner(**PAPER).fit(differences[order], labels[order])
    same = check_noise_model(other, differences[order], labels[order])
    assert same.dof == check.dof
    assert same.statistic == pytest.approx(check.statistic, rel=1e-2)
    assert same.tail_z == pytest.approx(check.tail_z, abs=1e-2)


def test_only_ratios_of_weights_count():
    data = cf.datasets.make_pairs(1500, 3, random_state=0)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 1500)
    learner = cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels, sample_weight=weights)
    check, same = (check_noise_model(learner, data.pairs, data.labels, scale * weights) for scale in (1.0, 1e-3))
    assert same.p_value == pytest.approx(check.p_value)
    assert same.tail_z == pytest.approx(check.tail_z)
    assert [row.count for row in same.bins] == pytest.approx([1e-3 * row.count for row in check.bins])


def test_a_weight_counts_as_copies_of_one_label():
    """Copies that a group holds together say as much as one label of their weight."""
    data = cf.datasets.make_pairs(1500, 3, random_state=0)
    counts = np.random.default_rng(1).integers(0, 4, size=1500)
    pairs, labels = np.repeat(data.pairs, counts, axis=0), np.repeat(data.labels, counts)
    learner = cf.LinearMetricLearner(**PAPER).fit(pairs, labels)
    weighted = check_noise_model(learner, data.pairs, data.labels, counts)
    repeated = check_noise_model(learner, pairs, labels, groups=np.repeat(np.arange(1500), counts))
    assert weighted.tail_z == pytest.approx(repeated.tail_z, abs=0.15)
    assert weighted.p_value == pytest.approx(repeated.p_value, abs=0.1)


def test_large_weights_raise_no_false_alarm():
    rejected = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        data = cf.datasets.make_pairs(1500, 3, random_state=seed)
        learner = cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels, np.exp(rng.standard_normal(1500)))
        rejected += check_noise_model(learner).p_value < 0.05
    assert rejected <= 5  # without regard to squared weights it was half of them


@pytest.mark.parametrize("n", [2000, 4000])
def test_many_columns_raise_no_false_alarm(n):
    """Of 20 columns there are 211 parameters: the fit bends towards its labels, which looks like heavy tails."""
    checks = []
    for seed in range(8):
        data = cf.datasets.make_pairs(n, 20, wrong_share=0.15, random_state=seed)
        checks.append(check_noise_model(cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels)))
    assert sum(check.p_value < 0.05 for check in checks) <= 2
    assert abs(np.mean([check.tail_z for check in checks])) < 1.2


@pytest.mark.filterwarnings("ignore::closefar.IdentifiabilityWarning")
def test_few_uncertain_labels_per_parameter_are_refused():
    data = cf.datasets.make_pairs(300, 8, wrong_share=0.15, random_state=0)
    learner = cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels)
    with pytest.raises(ValueError, match=r"at least 3 uncertain labels per parameter; got \d\.\d"):
        check_noise_model(learner)


def dependent(seed, n_groups=60, size=8):
    """Labels of normal noise, of which half is shared within a group."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), size)
    z = rng.standard_normal((len(groups), 2)) + 0.5 * rng.standard_normal((n_groups, 2))[groups]
    noise = np.sqrt(0.5) * (rng.standard_normal(n_groups)[groups] + rng.standard_normal(len(groups)))
    return z, np.where(np.sum(z**2, axis=1) - 2.0 + noise > 0, 1, -1), groups


def test_labels_of_a_group_may_depend_on_each_other():
    plain, grouped = [], []
    for seed in range(40):
        z, labels, groups = dependent(seed)
        learner = cf.LinearMetricLearner("normal", **PAPER).fit(z, labels)
        plain.append(learner.check_noise_model().tail_z)
        grouped.append(learner.check_noise_model(groups=groups))
    assert sum(check.p_value < 0.05 for check in grouped) <= 6
    assert np.mean(np.abs([check.tail_z for check in grouped])) < np.mean(np.abs(plain))


def test_points_that_pairs_share_are_recognised():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((80, 3))
    ids = np.column_stack([np.arange(600) % 80, (np.arange(600) % 80 + rng.integers(1, 80, 600)) % 80])
    pairs = points[ids]
    z = pairs[:, 0] - pairs[:, 1]
    labels = np.where(np.sum(z**2, axis=1) - 5.0 + rng.logistic(size=600) > 0, 1, -1)
    learner = cf.LinearMetricLearner(**PAPER).fit(pairs, labels)
    with pytest.warns(SharedPointsWarning):
        check = check_noise_model(learner)
    assert check.p_value == pytest.approx(check_noise_model(learner, groups=ids).p_value)
    differences = check_noise_model(cf.LinearMetricLearner(**PAPER).fit(z, labels))
    assert check_noise_model(learner, groups=np.arange(600)).p_value == pytest.approx(differences.p_value)
    with pytest.raises(ValueError, match=r"groups must be at least 20 groups or points.*got 19"):
        check_noise_model(learner, groups=np.arange(600) % 19)
    with pytest.raises(ValueError, match="groups must hold one group id per pair"):
        check_noise_model(learner, groups=[1, 2])


@pytest.mark.parametrize("alpha", [1e-3, 0.03])
def test_a_penalty_raises_no_false_alarm(alpha):
    rejected = 0
    for seed in range(20):
        data = cf.datasets.make_pairs(500, 4, random_state=seed)
        rejected += (
            check_noise_model(cf.LinearMetricLearner(alpha=alpha, flip_rate=0.0).fit(data.pairs, data.labels)).p_value
            < 0.05
        )
    assert rejected <= 4


def test_flips_are_found_among_three_hundred_pairs():
    found = 0
    for seed in range(20):
        data = cf.datasets.make_pairs(300, 3, noise="flips", wrong_share=0.1, random_state=seed)
        found += check_noise_model(cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels)).p_value < 0.05
    assert found >= 18


def test_bins_are_the_shares_observed_and_predicted(case):
    learner, pairs, labels = case
    check = check_noise_model(learner, pairs, labels, n_bins=6)
    assert sum(row.count for row in check.bins) == len(labels)
    margins = [row.margin for row in check.bins]
    assert margins == sorted(margins)
    counts = np.array([row.count for row in check.bins])
    assert counts @ [row.observed for row in check.bins] == pytest.approx(np.sum(labels == 1))
    # At the optimum the step of the parameters is nothing, so `expected` is the mean probability.
    expected = counts @ [row.expected for row in check.bins]
    assert expected == pytest.approx(learner.predict_proba(pairs)[:, 1].sum(), rel=1e-3)
    for row in check.bins:
        assert row.z == pytest.approx((row.observed - row.expected) / row.error)


@pytest.mark.parametrize("flip_rate", [0.0, "estimate"])
def test_both_tests_are_the_plain_formulas(flip_rate):
    """In plain coordinates: the features of two columns at full rank, and sums of (c - G H^-1 s) (e + bias)."""
    rng = np.random.default_rng(5)
    z = rng.standard_normal((900, 2)) * [1.0, 1.5]
    labels = np.where(np.sum(z**2, axis=1) - 3.0 + rng.logistic(size=900) > 0, 1, -1)
    labels = np.where(rng.uniform(size=900) < 0.01, -labels, labels)
    weights = rng.uniform(0.5, 2.0, 900)
    learner = cf.LinearMetricLearner(flip_rate=flip_rate, alpha=0.0).fit(z, labels, weights)
    check = check_noise_model(learner, n_bins=5)

    w = weights / weights.mean()
    margin, q = learner.decision_function(z), learner.metric_.flip_rate
    far = 1.0 / (1.0 + np.exp(-margin))
    labelled = q + (1 - 2 * q) * far
    variance, residual = labelled * (1 - labelled), (labels == 1) - labelled
    features = np.column_stack([z[:, 0] ** 2, z[:, 0] * z[:, 1], z[:, 1] ** 2, np.ones(900)])
    slopes = features * ((1 - 2 * q) * far * (1 - far))[:, None]
    if flip_rate == "estimate":
        assert q > 0
        slopes = np.column_stack([slopes, 1 - 2 * far])
    information = np.linalg.inv((slopes * (w / variance)[:, None]).T @ slopes)
    spread = information @ (slopes * (w**2 / variance)[:, None]).T @ slopes @ information
    curvature = (1 - 2 * q) * far * (1 - far) * (1 - 2 * far) * np.sum(features @ spread[:4, :4] * features, axis=1)
    if flip_rate == "estimate":
        curvature -= 4.0 * far * (1 - far) * (features @ spread[:4, 4])
    bins = weighted_bins(margin, weights, 5)
    questions = np.column_stack([bins[:, None] == np.arange(5), (1 - 2 * far) / (variance + 0.02)])
    left = w[:, None] * (questions - slopes / variance[:, None] @ information @ slopes.T @ (w[:, None] * questions))
    sums = left.T @ (residual + curvature / 2)
    shift = slopes @ information @ (slopes.T @ (w / variance * curvature))
    unbiased = np.clip(labelled + (shift - curvature) / 2, 0, 1)
    unbiased = np.maximum(unbiased * (1 - unbiased) + np.sum(slopes @ spread * slopes, axis=1), variance)
    covariance = (left * unbiased[:, None]).T @ left
    for k, row in enumerate(check.bins):
        inside = bins == k
        total = weights[inside].sum()
        assert row.count == pytest.approx(total)
        assert row.margin == pytest.approx(np.average(margin[inside], weights=weights[inside]))
        assert row.observed == pytest.approx(np.average(labels[inside] == 1, weights=weights[inside]))
        assert row.error == pytest.approx(np.sqrt(covariance[k, k]) / w[inside].sum(), rel=1e-3)
        assert row.z == pytest.approx(sums[k] / np.sqrt(covariance[k, k]), abs=0.02)
        assert row.expected == pytest.approx(row.observed - row.z * row.error)
    values, vectors = np.linalg.eigh(covariance[:5, :5])
    kept = values > 1e-3 * values[-1]
    statistic = np.sum((vectors[:, kept].T @ sums[:5]) ** 2 / values[kept])
    assert (check.statistic, check.dof) == (pytest.approx(statistic, abs=0.05), np.sum(kept))
    model = LabelModel(labelled, 1 - labelled, far, far, far)
    tail_z = as_standard_normal(sums[5] / np.sqrt(covariance[5, 5]), left[:, 5], model)
    assert check.tail_z == pytest.approx(tail_z, abs=0.02)
    tails = 2.0 * norm.sf(abs(check.tail_z))
    assert check.p_value == pytest.approx(combine(chi2.sf(statistic, check.dof), tails), abs=0.03)


def test_p_values_are_combined_by_cauchys_distribution():
    assert combine(0.03) == pytest.approx(0.03)
    assert combine(0.05, 0.05) == pytest.approx(0.05)
    assert combine(1e-20, 0.3) == pytest.approx(2e-20)
    assert combine(0.2, 0.4) == pytest.approx(0.5 - np.arctan((np.tan(0.3 * np.pi) + np.tan(0.1 * np.pi)) / 2) / np.pi)
    assert combine(0.01, 1.0) == pytest.approx(0.02, rel=0.01)
    assert combine(0.7, 0.9) == pytest.approx(0.7)
    assert combine(0.0, 0.0) < 1e-200
    assert combine(1.0, 1.0) == pytest.approx(1.0)


def sums_of(sums, covariance):
    half = np.full(4, 0.5)
    model = LabelModel(half, half, half, half, half)
    return AdjustedSums(np.asarray(sums), np.asarray(covariance), np.zeros((4, len(sums))), model)


@pytest.mark.parametrize(("correlation", "dof"), [(0.0, 3), (0.997, 3), (0.9986, 2), (0.9999, 2)])
def test_what_the_fit_explains_but_for_a_thousandth_is_no_degree_of_freedom(correlation, dof):
    """Of two bins with this correlation, the sum has the variance 2 (1 + c) and the difference 2 (1 - c)."""
    scale, sums = np.array([3.0, 0.02, 1.0]), np.array([1.5, 0.2, 0.7])
    covariance = np.outer(scale, scale) * [[1.0, correlation, 0.0], [correlation, 1.0, 0.0], [0.0, 0.0, 1.0]]
    first, second, other = sums / scale
    expected = other**2 + (first + second) ** 2 / (2 * (1 + correlation))
    expected += (first - second) ** 2 / (2 * (1 - correlation)) if dof == 3 else 0.0
    test = sums_of(sums, covariance).chi_square(np.full(3, True))
    assert (test.statistic, test.dof) == (pytest.approx(expected, rel=1e-6), dof)
    assert test.p_value == pytest.approx(chi2.sf(expected, dof))


def test_a_question_that_the_model_answers_is_no_question():
    nothing = sums_of([0.0, 0.0], np.zeros((2, 2)))
    assert nothing.chi_square(np.full(2, True)).p_value == 1.0
    assert nothing.z(np.array([1.0, 0.0])) == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_a_sum_of_few_labels_is_made_normal(seed):
    """Against the exact distribution: all labels of twelve pairs, of which some count for much."""
    rng = np.random.default_rng(seed)
    far, weights = rng.uniform(0.02, 0.4, 12), rng.lognormal(sigma=0.7, size=12)
    labels = (np.arange(2**12)[:, None] >> np.arange(12)) & 1
    probability = np.prod(np.where(labels, far, 1 - far), axis=1)
    totals = (labels - far) @ (weights / np.sqrt(np.sum(weights**2 * far * (1 - far))))
    half = np.full(12, 0.5)
    model = LabelModel(far, 1 - far, half, half, half)
    for total in (-1.0, 1.0, 2.5):
        exact = np.sum(probability[totals >= total])
        assert norm.sf(as_standard_normal(total, weights, model)) == pytest.approx(exact, rel=0.35)
    assert np.min(totals) > -3.0
    assert as_standard_normal(-3.0, weights, model) == -3.0  # beyond where it ends
    assert as_standard_normal(0.01, weights, model) == 0.01
    assert norm.sf(as_standard_normal(1e3, weights, model)) < 1e-6


def scored_at(margin, signs=None, weights=None, *, noise="logistic", flip_rate=0.0):
    signs = np.tile([1.0, -1.0], len(margin))[: len(margin)] if signs is None else signs
    judgements = Judgements.of_signs(np.zeros((len(margin), 1)), signs, weights)
    return Scores(judgements, np.asarray(margin, dtype=float)[:, None], NOISES[noise], flip_rate)


def question_of(case, scored):
    fit = case[0].fit_
    return LabelScores("", fit, scored, Dependence(None), 0, Moves.of(fit, fit.training()))


@pytest.mark.parametrize("scale", [1.0, 1e-4])
@pytest.mark.parametrize(
    ("sizes", "bins"),
    [
        ([20, 20, 20, 20], [0, 1, 2, 3]),  # each has a variance of exactly 5
        ([20, 19, 1, 20], [0, 1, 1, 2]),
        ([19, 1, 20], [0, 0, 1]),
        ([20, 20, 19], [0, 1, 1]),  # what is left over joins its neighbour
        ([10, 10, 5, 5, 10], [0, 0, 1, 1, 1]),
    ],
)
def test_neighbouring_bins_are_joined_until_their_variance_is_five(sizes, bins, scale):
    margin = np.repeat(np.arange(float(len(sizes))), sizes)
    half = np.full(len(margin), 0.5)
    scored = scored_at(margin, weights=np.full(len(margin), scale))
    found = _bins(scored, LabelModel(half, half, half, half, half), 1000)
    np.testing.assert_array_equal(found, np.repeat(bins, sizes))


@pytest.mark.parametrize("sizes", [[20, 19], [5, 5, 5], [39]])
def test_two_bins_are_the_fewest(sizes):
    margin = np.repeat(np.arange(float(len(sizes))), sizes)
    half = np.full(len(margin), 0.5)
    with pytest.raises(ValueError, match=f"these {sum(sizes)} pairs: there are too few uncertain labels"):
        _bins(scored_at(margin), LabelModel(half, half, half, half, half), 1000)


def test_ten_bins_are_made_where_no_number_is_given(case):
    assert check_noise_model(*case) == check_noise_model(*case, n_bins=10)


def test_two_bins_may_be_asked_for(case):
    assert len(check_noise_model(*case, n_bins=2).bins) == 2
    with pytest.raises(ValueError, match="n_bins must be a whole number >= 2; got 1"):
        check_noise_model(*case, n_bins=1)


def test_a_bin_without_error_has_no_deviation():
    first, second = _table(scored_at([1.0, 2.0, 5.0]), np.array([0, 0, 1]), np.array([0.0, 0.2]), np.array([0.0, 0.1]))
    assert first == NoiseBin(margin=1.5, count=2.0, observed=0.5, expected=0.5, error=0.0, z=0.0)
    assert second == NoiseBin(margin=5.0, count=1.0, observed=1.0, expected=0.8, error=0.1, z=2.0)


@pytest.mark.parametrize(
    ("better", "tail_z", "advice"),
    [
        (("logistic", 0.1), 3.0, 'even at the largest margins. Try flip_rate="estimate".'),
        (("laplace", 0.0), 0.5, 'more than expected are wrong at large margins. Try noise="laplace".'),
        (("normal", 0.0), -0.5, 'fewer than expected are wrong at large margins. Try noise="normal".'),
        (
            None,
            2.1,
            "more than expected are wrong at large margins, but no other noise fits clearly better. The metric itself",
        ),
        (
            None,
            -2.1,
            "fewer than expected are wrong at large margins, but no other noise fits clearly better. The metric itself",
        ),
        (None, 2.0, "at some margins too many or too few are far. The metric itself may not fit: diagnose() tests"),
    ],
)
def test_advice_names_what_is_better(monkeypatch, case, better, tail_z, advice):
    found = None if better is None else scored_at(np.zeros(4), noise=better[0], flip_rate=better[1])
    monkeypatch.setattr("closefar.questions.goodness_of_fit.better_noise", lambda scored: found)
    sentence = advise_noise(question_of(case, scored_at(np.zeros(4))), 0.01, tail_z)
    assert sentence.startswith("The labels do not fit logistic noise (p = 0.01): ")
    assert advice in sentence


def test_a_noise_is_better_only_where_that_is_clear():
    rng = np.random.default_rng(0)
    margin = 4.0 * rng.standard_normal(6000)
    laplace = np.where(margin + rng.laplace(size=6000) > 0, 1.0, -1.0)
    logistic = np.where(margin + rng.logistic(size=6000) > 0, 1.0, -1.0)
    flipped = np.where(rng.uniform(size=6000) < 0.05, -logistic, logistic)
    assert better_noise(scored_at(margin, laplace, noise="normal")).noise.name != "normal"
    assert better_noise(scored_at(margin, flipped)).flip_rate == pytest.approx(0.05, abs=0.02)
    assert better_noise(scored_at(margin, logistic)) is None
    assert better_noise(scored_at(margin[:200], laplace[:200])) is None


@pytest.mark.parametrize(
    ("p_value", "start"),
    [
        (0.05, "No evidence against logistic noise (p = 0.05)."),
        (0.049, "The labels do not fit logistic noise (p = 0.049)"),
        (0.0001, "The labels do not fit logistic noise (p = 0.0001)"),
        (0.00009, "The labels do not fit logistic noise (p < 0.0001)"),
    ],
)
def test_doubt_begins_below_five_per_cent(case, p_value, start):
    scores = question_of(case, scored_at([1.0, -1.0, 0.5, -0.5]))
    assert advise_noise(scores, p_value, 0.0).startswith(start)


@pytest.mark.parametrize(
    ("noise", "size", "known", "estimate_flips"),
    [
        ("logistic", 3.0, 0.0, False),
        ("logistic", 3.0, 0.0, True),
        ("logistic", 3.0, 0.05, True),
        ("normal", 3.0, 0.05, False),
        ("normal", 0.1, 0.0, True),
        ("logistic", 40.0, 0.05, False),
    ],
)
def test_a_refit_has_the_least_loss_of_a_scale_and_a_shift(noise, size, known, estimate_flips):
    rng = np.random.default_rng(2)
    margin = size * rng.standard_normal(800)
    signs = np.where(1.8 / size * margin - 0.4 + rng.logistic(size=800) > 0, 1.0, -1.0)
    signs = np.where(rng.uniform(size=800) < 0.12, -signs, signs)
    weights = rng.uniform(0.5, 1.5, 800)
    cdf = {"logistic": lambda x: 1.0 / (1.0 + np.exp(-x)), "normal": norm.cdf}[noise]

    def loss(parameters):
        scale, shift, *rate = parameters
        q = abs(rate[0]) if estimate_flips else known
        return -np.average(np.log(q + (1 - 2 * q) * cdf(signs * (scale * margin - shift))), weights=weights)

    start = [1.5 / size, 0.0, 0.1] if estimate_flips else [1.5 / size, 0.0]
    expected = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12, "maxiter": 2000}).fun
    scored = scored_at(margin, signs, weights, flip_rate=known)
    options = {"estimate_flips": True} if estimate_flips else {}
    assert refitted(scored, NOISES[noise], **options).loss == pytest.approx(expected, abs=1e-6)


def test_points_with_a_learned_origin():
    rng = np.random.default_rng(0)
    points = rng.normal([5.0, -3.0, 100.0], size=(4000, 3))
    squared = np.sum((points - [5.5, -3.0, 100.0]) ** 2, axis=1)
    labels = np.where(squared + 0.7 * rng.logistic(size=4000) >= 2.5, 1, -1)
    learner = cf.LinearMetricLearner(fit_origin=True, **PAPER).fit(points, labels)
    assert check_noise_model(learner, points, labels).p_value > 0.01


def test_derivatives_of_margins_are_finite_differences(case):
    learner, pairs, _ = case
    moves, rank = Moves.of(learner.fit_, Judgements.of_signs(pairs, np.ones(len(pairs)))), learner.metric_.rank
    everything = np.vstack([along for _, along in by_legs(moves.rows(pairs), moves.gradients)])
    assert everything.shape == (len(pairs), len(moves)) == (len(pairs), 4 * rank - rank * (rank - 1) // 2)
    # A change of the factor moves squared distances within the span of the moves.
    step = 1e-6 * np.random.default_rng(0).standard_normal(learner.metric_.factor.shape)
    z = pairs[:, 0] - pairs[:, 1]
    change = np.sum((z @ (learner.metric_.factor + step)) ** 2, axis=1) - learner.metric_.squared_distance(z)
    fit = everything @ np.linalg.lstsq(everything, change, rcond=None)[0]
    np.testing.assert_allclose(fit, change, atol=1e-9)


def test_standard_errors_of_margins_are_those_of_refits():
    truth = fitted(20_000, 3, seed=0)[0]
    z = np.random.default_rng(1).standard_normal((50, 3))
    margins, variances = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((2000, 3))
        labels = np.where(rng.uniform(size=2000) < truth.predict_proba(x)[:, 1], 1, -1)
        learner = cf.LinearMetricLearner(**PAPER).fit(x, labels)
        margins.append(learner.decision_function(z))
        errors = SideErrors.of(learner.fit_, Judgements.of_signs(x, labels))
        variances.append(errors.at(z, margins[-1][:, None])[:, 0] ** 2 + errors.of_scale * margins[-1] ** 2)
    assert np.median(np.var(margins, axis=0) / np.mean(variances, axis=0)) == pytest.approx(1.0, abs=0.4)


def test_more_parameters_than_are_adjusted_for_are_refused(monkeypatch, case):
    monkeypatch.setattr("closefar.questions.likelihood.MOST_MOVES", 3)
    with pytest.raises(ValueError, match="more than 1500 free parameters"):
        check_noise_model(*case)


def test_what_cannot_be_checked_is_refused(case):
    learner, pairs, labels = case
    with pytest.raises(NotFittedError):
        check_noise_model(cf.LinearMetricLearner(**PAPER), pairs, labels)
    with pytest.raises(ValueError, match="class_weight must be None"):
        check_noise_model(cf.LinearMetricLearner(class_weight="balanced", **PAPER).fit(pairs, labels), pairs, labels)
    with pytest.raises(ValueError, match="labels must be those of the fit"):
        check_noise_model(learner, pairs, np.where(labels == 1, 1, 0))
    with pytest.raises(ValueError, match="n_bins"):
        check_noise_model(learner, pairs, labels, n_bins=1)
    with pytest.raises(ValueError, match="at least 3 uncertain labels per parameter"):
        check_noise_model(learner, pairs[:50], labels[:50])
    clean = cf.datasets.make_pairs(300, 3, noise=None, random_state=0)
    with pytest.warns(ConvergenceWarning):
        separable = cf.LinearMetricLearner(**PAPER).fit(clean.pairs, clean.labels)
    with pytest.raises(ValueError, match="every label right"):
        check_noise_model(separable, clean.pairs, clean.labels)


def test_plot(case):
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure

    check = check_noise_model(*case)
    ax = Figure().subplots()
    assert check.plot(ax) is ax
    x, y = ax.lines[-1].get_data()
    np.testing.assert_allclose(x, [row.margin for row in check.bins])
    np.testing.assert_allclose(y, [row.observed - row.expected for row in check.bins])
    assert list(ax.lines[0].get_ydata()) == [0.0, 0.0]
    (band,) = ax.collections
    np.testing.assert_allclose(band.get_facecolor()[0][:3], to_rgb(ax.lines[-1].get_color()))
    edge = band.get_paths()[0].vertices
    for row in check.bins:
        heights = edge[np.isclose(edge[:, 0], row.margin), 1]
        assert (heights.min(), heights.max()) == pytest.approx((-1.96 * row.error, 1.96 * row.error))


def test_plot_without_matplotlib_names_the_extra(monkeypatch, case):
    find = builtins.__import__

    def no_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return find(name, *args, **kwargs)

    check = check_noise_model(*case)
    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    with pytest.raises(ImportError, match=r"closefar\[plot\]"):
        check.plot()
