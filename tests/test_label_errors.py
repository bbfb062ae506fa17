"""Wrong labels: found, counted, and ranked, for each form of input."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, truncnorm
from sklearn.metrics import average_precision_score
from sklearn.model_selection import KFold

import closefar as cf
from closefar.judgements import Judgements
from closefar.noise import NOISES
from closefar.questions import find_label_errors
from closefar.questions.label_errors import Judge, LabelErrors, _error_ratio, _errors_of_sides, judge_labels


@pytest.fixture(scope="module")
def data():
    return cf.datasets.make_pairs(3000, 4, rank=2, wrong_share=0.1, random_state=0)


@pytest.fixture(scope="module")
def errors(data):
    return find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels, random_state=0)


@pytest.mark.parametrize("method", ["out-of-fold", "in-sample"])
@pytest.mark.parametrize("noise", ["logistic", "normal"])
def test_wrong_labels_are_counted_and_ranked(method, noise):
    data = cf.datasets.make_pairs(6000, 5, noise=noise, wrong_share=0.1, random_state=1)
    errors = find_label_errors(cf.LinearMetricLearner(noise), data.pairs, data.labels, method=method, random_state=0)
    wrong = data.labels != data.true_labels
    assert average_precision_score(wrong, errors.probability) > 0.95
    assert errors.share == pytest.approx(wrong.mean(), abs=0.01)
    assert errors.share_low <= wrong.mean() <= errors.share_high


def test_flipped_labels_are_counted_and_ranked():
    data = cf.datasets.make_pairs(5000, 4, noise="flips", wrong_share=0.1, random_state=0)
    learner = cf.LinearMetricLearner(flip_rate="estimate")
    errors = find_label_errors(learner, data.pairs, data.labels, cv=3, random_state=0)
    wrong = data.labels != data.true_labels
    assert average_precision_score(wrong, errors.probability) > 0.98
    assert errors.share == pytest.approx(wrong.mean(), abs=0.01)


def test_doubtful_probabilities_are_frequencies():
    probability, wrong = [], []
    for seed in range(8):
        data = cf.datasets.make_pairs(2000, 4, wrong_share=0.15, random_state=seed)
        errors = find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels, random_state=0)
        probability.append(errors.probability)
        wrong.append(data.labels != data.true_labels)
    probability, wrong = np.concatenate(probability), np.concatenate(wrong)
    for low, high in ((0.05, 0.35), (0.35, 0.65), (0.65, 0.95)):
        between = (probability > low) & (probability < high)
        assert between.sum() > 100
        assert wrong[between].mean() == pytest.approx(probability[between].mean(), abs=0.1)


def test_the_most_suspicious_come_first(data, errors):
    assert sorted(errors.order) == list(range(3000))
    assert np.all(np.diff(errors.probability[errors.order]) <= 0)
    assert np.all((errors.probability >= 0) & (errors.probability <= 1))
    rows = errors.table(5)
    assert [row["index"] for row in rows] == errors.order[:5].tolist()
    for row in rows:
        assert row["label"] == data.labels[row["index"]]
        assert row["label"] * row["margin"] < 0
        assert set(row) == {"index", "label", "probability", "margin", "error"}


def test_words(errors):
    assert repr(errors).startswith("LabelErrors(3000 labels, ")
    lines = errors.summary().splitlines()
    assert lines[0].endswith(f"{errors.share_low:.1%} to {errors.share_high:.1%}).")
    assert len(lines) == 13
    assert str(errors.order[0]) in lines[3]


def test_forms_of_input_give_the_same(data, errors):
    frame = pd.DataFrame(data.pairs[:, 0] - data.pairs[:, 1], columns=list("abcd"))
    words = pd.Series(np.where(data.labels == 1, "far", "close"))
    learner = cf.LinearMetricLearner()
    same = find_label_errors(learner, frame, words, random_state=0)
    np.testing.assert_allclose(same.probability, errors.probability, atol=1e-9)
    assert same.table(1)[0]["label"] in ("far", "close")
    assert not hasattr(learner, "metric_")


def test_labels_without_an_order_warn_once(data):
    words = np.where(data.labels == 1, "unlike", "alike")
    with pytest.warns(UserWarning, match="taken as far") as caught:
        find_label_errors(cf.LinearMetricLearner(), data.pairs, words, cv=2)
    assert len(caught) == 1


def test_pairs_of_weight_zero_do_not_count(data):
    weights = np.ones(3000)
    weights[2000:] = 0.0
    learner = cf.LinearMetricLearner()
    weighted = find_label_errors(learner, data.pairs, data.labels, sample_weight=weights, method="in-sample")
    shorter = find_label_errors(learner, data.pairs[:2000], data.labels[:2000], method="in-sample")
    np.testing.assert_allclose(weighted.probability[:2000], shorter.probability, atol=1e-4)
    assert weighted.share == pytest.approx(shorter.share, abs=1e-4)


@pytest.mark.parametrize("cv", [3, KFold(3)])
def test_no_label_is_judged_by_a_fit_that_saw_it(data, cv):
    changed = data.labels.copy()
    changed[7] = -changed[7]
    before = find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels, cv=KFold(3))
    after = find_label_errors(cf.LinearMetricLearner(), data.pairs, changed, cv=KFold(3))
    assert before.margin[7] == after.margin[7]
    assert find_label_errors(cf.LinearMetricLearner(), data.pairs, changed, cv=cv, random_state=0).share > 0


def test_groups_share_a_fold(data):
    groups = np.arange(3000) // 2
    doubled = np.repeat(data.pairs[::2], 2, axis=0), np.repeat(data.labels[::2], 2)
    errors = find_label_errors(cf.LinearMetricLearner(), *doubled, groups=groups, random_state=0)
    np.testing.assert_allclose(errors.probability[::2], errors.probability[1::2])


def test_pairs_that_share_points():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((60, 3))
    ends = np.array([(i, j) for i in range(60) for j in range(i)])
    pairs = points[ends]
    squared = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2, axis=1)
    labels = np.where(squared + rng.logistic(size=len(ends)) > 5.0, 1, -1)
    errors = find_label_errors(cf.LinearMetricLearner(), pairs, labels, groups=ends, cv=2, random_state=0)
    assert errors.share == pytest.approx(np.mean(labels != np.where(squared > 5.0, 1, -1)), abs=0.03)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_margin_known_exactly_leaves_no_doubt(is_new):
    fit = Judge(np.zeros(0), np.zeros(0), cf.noise.get_noise("normal"), 0.0, is_new)
    np.testing.assert_allclose(fit.probability_wrong(np.array([-5.0, 5.0]), np.zeros(2)), [1.0, 0.0])


def test_an_unseen_label_counts_for_its_side():
    seen, new = (
        Judge(np.zeros(0), np.zeros(0), cf.noise.get_noise("logistic"), 0.0, is_new).probability_wrong(
            np.zeros(1), np.full(1, 2.0)
        )
        for is_new in (False, True)
    )
    assert seen[0] == 0.5
    assert new[0] < 0.3


@pytest.mark.parametrize("flip_rate", [0.0, 0.2])
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_the_probability_is_bayes_with_the_means_of_both_sides(noise, flip_rate):
    agreement, error = np.array([-3.0, -0.5, 0.0, 0.4, 2.0]), np.array([2.0, 0.5, 1.0, 3.0, 0.7])
    cut = -agreement / error
    below = truncnorm.mean(-np.inf, cut, loc=agreement, scale=error)
    above = truncnorm.mean(cut, np.inf, loc=agreement, scale=error)
    wrong = norm.cdf(cut) * (flip_rate + (1.0 - 2.0 * flip_rate) * noise.cdf(below))
    right = norm.sf(cut) * (flip_rate + (1.0 - 2.0 * flip_rate) * noise.cdf(above))
    judge = Judge(np.zeros(0), np.zeros(0), noise, flip_rate, is_new=True)
    np.testing.assert_allclose(judge.probability_wrong(agreement, error), wrong / (wrong + right), rtol=1e-9)
    judge = Judge(np.zeros(0), np.zeros(0), noise, flip_rate, is_new=False)
    np.testing.assert_allclose(judge.probability_wrong(agreement, error), norm.cdf(cut), rtol=1e-12)


def some_judgements(n=60, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 2)) * [1.0, 2.0]
    return Judgements.of_signs(z, rng.choice([-1.0, 1.0], n), rng.uniform(0.5, 2.0, n))


def some_metric(seed=0, *, flip_rate=0.1):
    root = np.eye(2) + 0.3 * np.random.default_rng(seed).standard_normal((2, 2))
    return cf.Metric.from_matrix(root @ root.T, 2.0 + 0.1 * seed, flip_rate=flip_rate)


def plain_features(judgements, metric):
    """The derivative of each margin in (M_11, M_12, M_22, tau), and those four."""
    x, y = judgements.data.T
    (a, b), (_, c) = metric.matrix
    return np.column_stack([x * x, 2 * x * y, y * y, -np.ones(len(x))]), np.array([a, b, c, metric.threshold])


def plain_information(judgements, metric):
    """Of the four, in labels of logistic noise with flips."""
    features, parameters = plain_features(judgements, metric)
    far, q = 1.0 / (1.0 + np.exp(-features @ parameters)), metric.flip_rate
    labelled, slope = q + (1 - 2 * q) * far, (1 - 2 * q) * far * (1 - far)
    each = judgements.weights * slope**2 / (labelled * (1 - labelled))
    return (features * each[:, None]).T @ features


def test_errors_of_sides_are_those_of_the_moves_that_keep_the_scale():
    """Three directions of the four parameters are independent of their scale: errors along those, by brute force."""
    seen, asked, metric = some_judgements(), some_judgements(8, seed=1), some_metric()
    features, parameters = plain_features(asked, metric)
    information = plain_information(seen, metric)
    directions = np.linalg.svd((parameters @ information)[None])[2][1:].T
    along = features @ directions
    variance = np.einsum("ij,jk,ik->i", along, np.linalg.inv(directions.T @ information @ directions), along)
    np.testing.assert_allclose(_errors_of_sides(metric, seen, asked), np.sqrt(variance), rtol=1e-8)


@pytest.mark.parametrize("z", [0.1, 0.7, 1.3, 2.9])
def test_pairs_that_are_alike_tell_the_scale_and_leave_no_error_of_sides(z):
    seen = Judgements.of_signs(np.full((20, 1), z), np.tile([1.0, -1.0], 10))
    errors = _errors_of_sides(cf.Metric([[1.0]], 1.0), seen, seen)
    np.testing.assert_allclose(errors, 0.0, atol=1e-6)


def plain_ratio(margins, error, train_share):
    """A grouped jackknife of margins of length one, pair by pair, over the nearer half."""
    lengths = [np.linalg.norm(margin) / np.sqrt(len(margin)) if np.any(margin) else 1.0 for margin in margins]
    scaled = [margin / length for margin, length in zip(margins, lengths, strict=True)]
    centre = sum(scaled) / len(scaled)
    near = sorted(range(len(centre)), key=lambda i: abs(centre[i]))[: (len(centre) + 1) // 2]
    by_model = [(error[i] / (sum(lengths) / len(lengths))) ** 2 for i in near]
    usual = [value + np.median(by_model) for value in by_model]
    by_folds = [sum((one[i] - centre[i]) ** 2 for one in scaled) / len(scaled) / (1.0 - train_share) for i in near]
    above, below = (sum(v / u for v, u in zip(values, usual, strict=True)) for values in (by_folds, by_model))
    return np.sqrt(above / below)


@pytest.mark.parametrize("n", [8, 9])
@pytest.mark.parametrize("with_zero", [False, True])
def test_the_ratio_of_errors_is_a_grouped_jackknife(n, with_zero):
    rng = np.random.default_rng(n)
    margins = [rng.standard_normal(n) * size + rng.standard_normal() for size in (1.0, 2.0, 5.0)]
    margins[0] *= not with_zero
    error = rng.uniform(0.1, 2.0, n)
    assert _error_ratio(margins, error, 0.8) == pytest.approx(plain_ratio(margins, error, 0.8), rel=1e-9)


def test_the_ratio_of_errors_at_its_limits():
    margins, error = [np.array([1.0, -2.0, 3.0]), np.array([1.0, 2.0, 3.0])], np.ones(3)
    assert _error_ratio(margins, np.zeros(3), 0.5) == 1.0
    # Errors of 0 and 1: the median is not 0 and every pair counts.
    some = np.array([0.0, 1.0, 1.0])
    assert _error_ratio(margins, some, 0.5) == pytest.approx(plain_ratio(margins, some, 0.5))
    assert np.isfinite(_error_ratio(margins, error, 1.0))
    assert _error_ratio([2.0 * margins[0], margins[0]], error, 0.5) == 0.0


def fixed_fit(metric):
    fit = SimpleNamespace(metric=metric, flip_rate=metric.flip_rate)
    fit.unless_interrupted = lambda: fit
    return fit


@pytest.mark.parametrize("n_folds", [3, 2, 1, 0])
def test_each_label_is_judged_by_the_fit_of_its_fold(n_folds):
    """Folds test twenty pairs each; what they leave is judged by a fit to all, which has seen it."""
    judgements, everything = some_judgements(), np.arange(60)
    tests = np.split(everything, [20, 40])[:n_folds]
    splits = [(np.setdiff1d(everything, test)[k:], test) for k, test in enumerate(tests)]
    metrics = {len(train): some_metric(k, flip_rate=0.1 * k) for k, (train, _) in enumerate(splits)}
    metrics[60] = some_metric(7)  # the number of pairs seen tells which fit it is
    found = judge_labels(lambda seen: fixed_fit(metrics[len(seen)]), judgements, splits)

    sides = [*splits, (everything, everything[20 * n_folds :])]
    judges = [metrics[len(train)] for train, _ in sides]
    margins = [metric.margin(judgements.data) for metric in judges]
    error = np.concatenate(
        [
            _errors_of_sides(metric, judgements.take(train), judgements.take(test))
            for metric, (train, test) in zip(judges, sides, strict=True)
            if len(test)
        ]
    )
    if n_folds > 1:
        error *= plain_ratio(margins[:n_folds], error, np.mean([len(train) / 60 for train, _ in splits]))
    np.testing.assert_allclose(found.error, error, rtol=1e-9)
    for k, ((_, test), metric, margin) in enumerate(zip(sides, judges, margins, strict=True)):
        np.testing.assert_allclose(found.margin[test], margin[test])
        judge = Judge(margin, error[test], metric.noise, metric.flip_rate, is_new=k < n_folds)
        expected = judge.probability_wrong(judgements.signs[test] * margin[test], error[test])
        np.testing.assert_allclose(found.probability[test], expected, rtol=1e-9)


def test_what_is_told_of_labels_that_were_judged():
    margin, error = np.array([-1.0, 2.0, -3.0, 0.5, 2.0]), np.array([1.0, 1.0, 1.0, 0.0, 0.5])
    judgements = Judgements.of_signs(np.zeros((5, 1)), [1, 1, 1, 1, 1], [1.0, 2.0, 2.0, 1.0, 2.0])
    probability = np.array([0.8, 0.3, 0.8, 0.2, 0.3])
    errors = LabelErrors.of(judgements, probability, margin, error)
    # Of equal probabilities the more contradicted first.
    assert errors.order.tolist() == [2, 0, 1, 4, 3]
    shares = np.array([1.0, 2.0, 2.0, 1.0, 2.0]) / 8.0
    share = shares @ probability
    spread = norm.ppf(0.975) * np.sqrt(shares**2 @ (probability * (1 - probability) + (probability - share) ** 2))
    assert errors.share == pytest.approx(share)
    assert (errors.share_low, errors.share_high) == pytest.approx((share - spread, share + spread), abs=1e-4)
    few = LabelErrors.of(judgements, np.array([0.2, 0.0, 0.0, 0.0, 0.0]), margin, error)
    assert few.share_low == 0.0
    most = LabelErrors.of(judgements, np.array([0.8, 1.0, 1.0, 1.0, 1.0]), margin, error)
    assert most.share_high == 1.0


@pytest.mark.parametrize("doubtful", [0, 3, 10, 12])
def test_at_most_ten_labels_are_shown(doubtful):
    judgements = Judgements.of_signs(np.zeros((20, 1)), np.ones(20))
    probability = np.where(np.arange(20) < doubtful, 0.51, 0.5)
    errors = LabelErrors.of(judgements, probability, -np.ones(20), np.ones(20))
    lines = errors.summary().splitlines()
    assert lines[1] == f"{doubtful} are more likely wrong than right."
    assert len(lines) == 3 + min(doubtful, 10)
    assert len(errors.table()) == 10
    assert [row["index"] for row in errors.table(2)] == [0, 1]


def test_five_folds_are_made_at_random_where_no_number_is_given(data):
    def margins(**options):
        return find_label_errors(cf.LinearMetricLearner(), data.pairs[:300], data.labels[:300], **options).margin

    np.testing.assert_array_equal(margins(random_state=3), margins(random_state=3, cv=5))
    assert not np.allclose(margins(random_state=3), margins(random_state=4))


def test_what_cannot_be_judged_is_refused(data):
    with pytest.raises(ValueError, match="method must be one of"):
        find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels, method="loo")
    with pytest.raises(ValueError, match="class_weight must be None"):
        find_label_errors(cf.LinearMetricLearner(class_weight="balanced"), data.pairs, data.labels)
    with pytest.raises(ValueError, match="one label per pair"):
        find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels[:-1])
