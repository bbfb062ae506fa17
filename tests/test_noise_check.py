"""The test of the noise model: its level, its power, what it depends on, and what it says."""

import builtins

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import closefar as cf
from closefar.judgements import Judgements
from closefar.noise import NOISES
from closefar.questions import check_noise_model
from closefar.questions.label_model import LabelModel
from closefar.questions.moves import MarginMoves


def fitted(n=4000, d=4, *, seed=0, noise="logistic", wrong_share=0.1, learner=None):
    data = cf.datasets.make_pairs(n, d, rank=2, noise=noise, wrong_share=wrong_share, random_state=seed)
    learner = learner or cf.LinearMetricLearner()
    return learner.fit(data.pairs, data.labels), data.pairs, data.labels


@pytest.fixture(scope="module")
def case():
    return fitted(seed=3)


@pytest.mark.parametrize("noise", sorted(NOISES))
def test_a_right_model_is_rejected_about_as_often_as_the_level_says(noise):
    checks = [
        check_noise_model(*fitted(2000, 3, seed=seed, noise=noise, learner=cf.LinearMetricLearner(noise)))
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
        learner = cf.LinearMetricLearner().fit(data.pairs[:1000], data.labels[:1000])
        p_values.append(check_noise_model(learner, data.pairs[1000:], data.labels[1000:]).p_value)
    assert sum(p < 0.05 for p in p_values) <= 6


@pytest.mark.parametrize(
    ("truth", "model", "advice"),
    [
        ("flips", "logistic", "flip_rate='estimate'"),
        ("flips", "laplace", "flip_rate='estimate'"),
        ("laplace", "normal", "more are wrong at large margins. Try noise="),
        ("normal", "laplace", "fewer are wrong at large margins. Try noise="),
    ],
)
def test_a_wrong_model_is_found_and_a_better_one_named(truth, model, advice):
    check = check_noise_model(*fitted(15_000, noise=truth, learner=cf.LinearMetricLearner(model)))
    assert check.p_value < 0.01
    assert advice in check.advice


def test_estimated_flips_are_not_found_again():
    _, pairs, labels = fitted(6000, 3, seed=1)
    labels = np.where(np.random.default_rng(0).uniform(size=len(labels)) < 0.05, -labels, labels)
    plain = cf.LinearMetricLearner().fit(pairs, labels)
    assert check_noise_model(plain, pairs, labels).tail_z > 4
    check = check_noise_model(cf.LinearMetricLearner(flip_rate="estimate").fit(pairs, labels), pairs, labels)
    assert check.p_value > 0.05
    assert check.advice == f"No sign that logistic noise is wrong (p = {check.p_value:.2g})."


def test_units_order_and_the_form_of_pairs_change_nothing(case):
    learner, pairs, labels = case
    check = check_noise_model(learner, pairs, labels)
    differences = (pairs[:, 0] - pairs[:, 1]) * [1e-6, 1.0, 1e3, 1e9]
    order = np.random.default_rng(0).permutation(len(labels))
    other = cf.LinearMetricLearner().fit(differences[order], labels[order])
    same = check_noise_model(other, differences[order], labels[order])
    assert same.dof == check.dof
    assert same.statistic == pytest.approx(check.statistic, rel=1e-2)
    assert same.tail_z == pytest.approx(check.tail_z, abs=1e-2)


def test_a_weight_counts_as_repeated_pairs():
    data = cf.datasets.make_pairs(1500, 3, random_state=0)
    counts = np.random.default_rng(1).integers(0, 4, size=1500)
    pairs, labels = np.repeat(data.pairs, counts, axis=0), np.repeat(data.labels, counts)
    learner = cf.LinearMetricLearner().fit(pairs, labels)
    weighted, repeated = (
        check_noise_model(learner, data.pairs, data.labels, counts),
        check_noise_model(learner, pairs, labels),
    )
    assert weighted.statistic == pytest.approx(repeated.statistic)
    assert weighted.tail_z == pytest.approx(repeated.tail_z)
    assert [row.count for row in weighted.bins] == [row.count for row in repeated.bins]


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


def test_points_with_a_learned_origin():
    rng = np.random.default_rng(0)
    points = rng.normal([5.0, -3.0, 100.0], size=(4000, 3))
    squared = np.sum((points - [5.5, -3.0, 100.0]) ** 2, axis=1)
    labels = np.where(squared + 0.7 * rng.logistic(size=4000) >= 2.5, 1, -1)
    learner = cf.LinearMetricLearner(fit_origin=True).fit(points, labels)
    assert check_noise_model(learner, points, labels).p_value > 0.01


def test_derivatives_of_margins_are_finite_differences(case):
    learner, pairs, _ = case
    margin_moves = MarginMoves(learner.metric_, Judgements.of_signs(pairs, np.ones(len(pairs))))
    moves = np.vstack([block for _, block in margin_moves.blocks(pairs[:20])])
    rank = learner.metric_.rank
    assert moves.shape == (20, len(margin_moves.moves)) == (20, 4 * rank - rank * (rank - 1) // 2 + 1)
    # A change of the factor, and of the threshold, moves margins within the span of the moves.
    step = 1e-6 * np.random.default_rng(0).standard_normal(learner.metric_.factor.shape)
    z = pairs[:, 0] - pairs[:, 1]
    change = np.sum((z @ (learner.metric_.factor + step)) ** 2, axis=1) - learner.metric_.squared_distance(z)
    everything = np.vstack([block for _, block in margin_moves.blocks(pairs)])
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
        learner = cf.LinearMetricLearner().fit(x, labels)
        margins.append(learner.decision_function(z))
        moves = MarginMoves(learner.metric_, Judgements.of_signs(x, labels))
        model = LabelModel.at(learner.decision_function(x), learner.metric_.noise, 0.0)
        variances.append(moves.variances(z, moves.covariance(x, model, np.ones(2000))))
    assert np.median(np.var(margins, axis=0) / np.mean(variances, axis=0)) == pytest.approx(1.0, abs=0.4)


def test_many_columns_are_judged_by_eigenvalues_only(monkeypatch, case):
    learner, pairs, labels = case
    exact = check_noise_model(learner, pairs, labels)
    monkeypatch.setattr("closefar.questions.moves.MOST_MOVES", 3)
    # Normal points: the other moves hardly matter.
    assert check_noise_model(learner, pairs, labels).statistic == pytest.approx(exact.statistic, rel=0.1)


def test_what_cannot_be_checked_is_refused(case):
    learner, pairs, labels = case
    with pytest.raises(NotFittedError):
        check_noise_model(cf.LinearMetricLearner(), pairs, labels)
    with pytest.raises(ValueError, match="class_weight must be None"):
        check_noise_model(cf.LinearMetricLearner(class_weight="balanced").fit(pairs, labels), pairs, labels)
    with pytest.raises(ValueError, match="labels must be those of the fit"):
        check_noise_model(learner, pairs, np.where(labels == 1, 1, 0))
    with pytest.raises(ValueError, match="n_bins"):
        check_noise_model(learner, pairs, labels, n_bins=1)
    with pytest.raises(ValueError, match="too few labels are uncertain"):
        check_noise_model(learner, pairs[:50], labels[:50])
    clean = cf.datasets.make_pairs(300, 3, noise=None, random_state=0)
    with pytest.warns(ConvergenceWarning):
        separable = cf.LinearMetricLearner().fit(clean.pairs, clean.labels)
    with pytest.raises(ValueError, match="every label right"):
        check_noise_model(separable, clean.pairs, clean.labels)


def test_plot(case):
    from matplotlib.figure import Figure

    check = check_noise_model(*case)
    ax = Figure().subplots()
    assert check.plot(ax) is ax
    x, y = ax.lines[-1].get_data()
    np.testing.assert_allclose(x, [row.margin for row in check.bins])
    np.testing.assert_allclose(y, [row.observed - row.expected for row in check.bins])


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
