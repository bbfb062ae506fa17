"""Wrong labels: found, counted, and ranked, for each form of input."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.datasets import load_diabetes, load_wine
from sklearn.metrics import average_precision_score
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

import closefar as cf
from closefar.fitting import Settings, choose_settings
from closefar.judgements import Judgements, SharedPointsWarning
from closefar.model import Scores
from closefar.noise import NOISES
from closefar.questions import find_label_errors
from closefar.questions.dependence import Dependence
from closefar.questions.label_errors import (
    FlipEvidence,
    LabelErrors,
    Verdicts,
    _share,
    by_suspicion,
    explained,
    flip_aware,
    judge_sides,
)
from closefar.questions.likelihood import SideErrors
from paper_estimator import PAPER


@pytest.fixture(scope="module")
def data():
    return cf.datasets.make_pairs(3000, 4, rank=2, wrong_share=0.1, random_state=0)


@pytest.fixture(scope="module")
def errors(data):
    return find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels, random_state=0)


@pytest.mark.parametrize("method", ["auto", "out-of-fold", "in-sample"])
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


def test_of_equally_probable_labels_those_that_contradict_most_come_first():
    assert by_suspicion(np.array([0.5, 0.5, 0.9]), np.array([1.0, -1.0, 3.0])).tolist() == [2, 1, 0]


def test_words(errors):
    assert repr(errors).startswith("LabelErrors(3000 labels, ")
    lines = errors.summary().splitlines()
    assert f"{errors.share_low:.1%} to {errors.share_high:.1%})" in lines[0]
    assert lines[0].endswith(f"{errors.n_contradicting} contradict the learned distance.")
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
    learner, method = cf.LinearMetricLearner(), "out-of-fold"
    before = find_label_errors(learner, data.pairs, data.labels, cv=KFold(3), method=method)
    after = find_label_errors(learner, data.pairs, changed, cv=KFold(3), method=method)
    assert before.margin[7] == after.margin[7]
    assert find_label_errors(learner, data.pairs, changed, cv=cv, method=method, random_state=0).share > 0


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


def wrong_by(noise, flip_rate, is_new, agreement, error, labels=1.0):
    """P(wrong) of labels whose margins are `agreement` times themselves."""
    signs = np.broadcast_to(labels, agreement.shape).astype(float)
    judgements = Judgements.of_signs(np.zeros((len(signs), 1)), signs)
    scored = Scores(judgements, (signs * agreement)[:, None], noise, flip_rate)
    return Verdicts.of(scored, error[:, None], np.full(len(signs), is_new)).probability


@pytest.mark.parametrize("is_new", [True, False])
def test_a_margin_known_exactly_leaves_no_doubt(is_new):
    found = wrong_by(cf.noise.get_noise("normal"), 0.0, is_new, np.array([-5.0, 5.0]), np.zeros(2))
    np.testing.assert_allclose(found, [1.0, 0.0])


def test_an_unseen_label_counts_for_its_side():
    seen, new = (
        wrong_by(cf.noise.get_noise("logistic"), 0.0, is_new, np.zeros(1), np.full(1, 2.0)) for is_new in (False, True)
    )
    assert seen[0] == 0.5
    assert new[0] < 0.3


@pytest.mark.parametrize("label", [-1.0, 1.0])
@pytest.mark.parametrize("flip_rate", [0.0, 0.2, (0.1, 0.3)], ids=["none", "one", "two"])
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_the_probability_is_bayes_rule(noise, flip_rate, label):
    agreement, error = np.array([-3.0, -0.5, 0.0, 0.4, 2.0, 9.0]), np.array([2.0, 0.5, 1.0, 3.0, 0.7, 1.5])
    of_close, of_far = flip_rate if isinstance(flip_rate, tuple) else (flip_rate, flip_rate)
    base, kept = of_close if label > 0 else of_far, 1.0 - of_close - of_far

    def joint(true, mean, width):
        return (base + kept * noise.cdf(np.array(true))) * norm.pdf(true, mean, width)

    found = wrong_by(noise, flip_rate, True, agreement, error, label)
    for value, mean, width in zip(found, agreement, error, strict=True):
        wrong, right = (
            quad(joint, *ends, args=(mean, width))[0]
            for ends in ((min(mean, 0.0) - 9.0 * width, 0.0), (0.0, max(mean, 0.0) + 9.0 * width))
        )
        assert value == pytest.approx(wrong / (wrong + right), abs=1e-3, rel=2e-3)
    expected = norm.cdf(-agreement / error)
    np.testing.assert_allclose(wrong_by(noise, flip_rate, False, agreement, error, label), expected, rtol=1e-12)


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


def fixed_fit(metric):
    fit = SimpleNamespace(metric=metric, flip_rate=metric.flip_rate, relative_noise=1.0, annotators=None)
    fit.unless_interrupted = lambda: fit
    return fit


def errors_of_sides(metric, seen, asked):
    return SideErrors.of(fixed_fit(metric), seen).at(asked.data, metric.margin(asked.data)[:, None])[:, 0]


def test_errors_of_sides_are_those_of_the_moves_that_keep_the_scale():
    """Three directions of the four parameters are independent of their scale: errors along those, by brute force."""
    seen, asked, metric = some_judgements(), some_judgements(8, seed=1), some_metric()
    features, parameters = plain_features(asked, metric)
    information = plain_information(seen, metric)
    directions = np.linalg.svd((parameters @ information)[None])[2][1:].T
    along = features @ directions
    variance = np.einsum("ij,jk,ik->i", along, np.linalg.inv(directions.T @ information @ directions), along)
    np.testing.assert_allclose(errors_of_sides(metric, seen, asked), np.sqrt(variance), rtol=1e-8)


@pytest.mark.parametrize("z", [0.1, 0.7, 1.3, 2.9])
def test_pairs_that_are_alike_tell_the_scale_and_leave_no_error_of_sides(z):
    seen = Judgements.of_signs(np.full((20, 1), z), np.tile([1.0, -1.0], 10))
    errors = errors_of_sides(cf.Metric([[1.0]], 1.0), seen, seen)
    np.testing.assert_allclose(errors, 0.0, atol=1e-6)


def judged_by(metrics, judgements, splits):
    """The number of pairs seen tells which metric judges."""
    fits = [fixed_fit(metrics[len(train)]) for train, _ in splits]
    return judge_sides(fixed_fit(metrics[len(judgements)]), judgements, splits, fits)


@pytest.mark.parametrize("n_folds", [3, 2, 1, 0])
def test_each_label_is_judged_by_the_fit_of_its_fold(n_folds):
    """Folds test twenty pairs each; what they leave is judged by a fit to all, which has seen it."""
    judgements, everything = some_judgements(), np.arange(60)
    tests = np.split(everything, [20, 40])[:n_folds]
    splits = [(np.setdiff1d(everything, test)[k:], test) for k, test in enumerate(tests)]
    metrics = {len(train): some_metric(k, flip_rate=0.1 * k) for k, (train, _) in enumerate(splits)}
    metrics[60] = some_metric(7)
    found = judged_by(metrics, judgements, splits)

    sides = [*splits, (everything, everything[20 * n_folds :])]
    judges = [metrics[len(train)] for train, _ in sides]
    margins = [metric.margin(judgements.data) for metric in judges]
    error = np.concatenate(
        [
            errors_of_sides(metric, judgements.take(train), judgements.take(test))
            for metric, (train, test) in zip(judges, sides, strict=True)
            if len(test)
        ]
    )
    np.testing.assert_allclose(found.error, error, rtol=1e-9)
    for k, ((_, test), metric, margin) in enumerate(zip(sides, judges, margins, strict=True)):
        np.testing.assert_allclose(found.margin[test], margin[test])
        assert np.all(found.is_new[test] == (k < n_folds))
        signs = judgements.signs[test]
        given = metric.noise, metric.flip_rate, k < n_folds, signs * margin[test], error[test], signs
        np.testing.assert_allclose(found.probability[test], wrong_by(*given), rtol=1e-9)


def test_the_share_of_wrong_labels_has_the_spread_of_doubt_and_chance():
    judgements = Judgements.of_signs(np.zeros((5, 1)), [1, 1, 1, 1, 1], [1.0, 2.0, 2.0, 1.0, 2.0])
    probability = np.array([0.8, 0.3, 0.8, 0.2, 0.3])
    shares = np.array([1.0, 2.0, 2.0, 1.0, 2.0]) / 8.0
    share = shares @ probability
    spread = norm.ppf(0.975) * np.sqrt(shares**2 @ (probability * (1 - probability) + (probability - share) ** 2))
    assert _share(judgements, probability) == pytest.approx((share, share - spread, share + spread), abs=1e-4)
    assert _share(judgements, np.array([0.2, 0.0, 0.0, 0.0, 0.0]))[1] == 0.0
    assert _share(judgements, np.array([0.8, 1.0, 1.0, 1.0, 1.0]))[2] == 1.0


def some_errors(n_doubtful, n_contradicting, *, share=0.1, meaning="side"):
    is_first = np.arange(20)
    ends = (None, None) if share is None else (0.05, 0.15)
    return LabelErrors(
        probability=np.where(is_first < n_doubtful, 0.51, 0.5),
        order=is_first,
        meaning=meaning,
        share=share,
        share_low=ends[0],
        share_high=ends[1],
        reason=None if share is not None else "the metric is zero",
        contradicts=is_first < n_contradicting,
        unseen_share=0.2,
        unseen_low=0.1,
        unseen_high=0.3,
        margin=np.ones(20),
        error=np.ones(20),
        labels=-np.ones(20),
    )


@pytest.mark.parametrize("contradicting", [0, 3, 10, 12])
def test_at_most_ten_labels_are_shown(contradicting):
    errors = some_errors(2, contradicting)
    lines = errors.summary().splitlines()
    assert lines[1] == "2 are more likely wrong than right."
    assert len(lines) == 3 + min(contradicting, 10)
    assert len(errors.table()) == 10
    assert [row["index"] for row in errors.table(2)] == [0, 1]


def test_where_no_share_is_claimed_the_words_say_what_is_known():
    errors = some_errors(2, 7, share=None, meaning="flipped")
    assert errors.summary().startswith(
        "7 of 20 labels contradict the learned distance; out-of-fold, 20.0% do (95% interval 10.0% "
        "to 30.0%).\nThe number of wrong labels can't be estimated: the metric is zero. "
        "2 are more likely flipped than not.\n"
    )
    assert "P(flipped)" in errors.summary()
    assert "None is clearly flipped." in some_errors(0, 7, share=None, meaning="flipped").headline()
    assert repr(errors) == "LabelErrors(20 labels, 7 contradict the learned distance)"
    assert "2 are more likely flipped than not." in some_errors(2, 7, meaning="flipped").headline()


def test_five_folds_are_made_at_random_where_no_number_is_given(data):
    def margins(**options):
        learner, method = cf.LinearMetricLearner(), "out-of-fold"
        return find_label_errors(learner, data.pairs[:300], data.labels[:300], method=method, **options).margin

    np.testing.assert_array_equal(margins(random_state=3), margins(random_state=3, cv=5))
    assert not np.allclose(margins(random_state=3), margins(random_state=4))


def test_what_cannot_be_judged_is_refused(data):
    with pytest.raises(ValueError, match="method must be one of"):
        find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels, method="loo")
    with pytest.raises(ValueError, match="class_weight must be None"):
        find_label_errors(cf.LinearMetricLearner(class_weight="balanced"), data.pairs, data.labels)
    with pytest.raises(ValueError, match="one label per pair"):
        find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels[:-1])


def scored_flips(n, q, *, power=1.0, seed=0, weights=None):
    """Margins on both sides of which the unflipped labels are missed less and less."""
    rng = np.random.default_rng(seed)
    margin = rng.standard_normal(n) * 3.0
    missed = rng.uniform(size=n) < 0.5 * np.exp(-(np.abs(margin) ** power))
    flipped = rng.uniform(size=n) < q
    signs = np.where((margin > 0) ^ missed ^ flipped, 1.0, -1.0)
    judgements = Judgements.of_signs(np.zeros((n, 1)), signs, weights)
    return Scores(judgements, margin[:, None], cf.noise.get_noise("logistic"), 0.0), flipped


@pytest.mark.parametrize("power", [0.8, 1.5])
@pytest.mark.parametrize("q", [0.0, 0.1, 0.25])
def test_flips_are_told_from_misses_by_the_largest_margins(q, power):
    scored, flipped = scored_flips(4000, q, power=power)
    evidence = FlipEvidence.of(scored)
    assert evidence.low - 0.01 <= flipped.mean() <= evidence.high + 0.01
    assert evidence.high - evidence.low < 0.1
    for low, high in ((0.2, 0.8), (0.8, 1.01)):
        between = (evidence.probability >= low) & (evidence.probability < high)
        if between.sum() > 50:
            assert flipped[between].mean() == pytest.approx(evidence.probability[between].mean(), abs=0.1)
    assert np.mean(evidence.probability) == pytest.approx(flipped.mean(), abs=0.02)


def test_flips_are_no_more_frequent_than_they_may_be():
    scored, _ = scored_flips(1000, 0.2)
    assert FlipEvidence.of(scored, largest_rate=0.05).probability.max() < 0.5
    assert FlipEvidence.of(scored, largest_rate=0.0).probability.max() == 0.0


def test_pairs_of_weight_zero_say_nothing_of_flips():
    weights = np.repeat([2.0, 0.0], 500)
    scored, _ = scored_flips(1000, 0.1, weights=weights)
    some = scored.take(np.arange(500))
    plain = Scores(some.judgements.with_weights(np.ones(500)), some.margins, some.noise, 0.0)
    assert FlipEvidence.of(some).rate == pytest.approx(FlipEvidence.of(plain).rate)
    assert FlipEvidence.of(scored).rate == pytest.approx(FlipEvidence.of(plain).rate, abs=0.02)


def test_products_of_rows_that_share_an_id():
    def products(values, ids):
        return 0.5 * sum(cross[0, 0] for cross in Dependence(np.array(ids)).cross_sums(np.array(values)[:, None]))

    values = [2.0, 3.0, 5.0, 7.0]
    assert products(values, [0, 1, 0, 1]) == 2 * 5 + 3 * 7
    # Rows 0 and 1 share point 1, rows 1 and 2 point 2; row 3 is a point with itself.
    assert products(values, [[0, 1], [1, 2], [2, 3], [4, 4]]) == 2 * 3 + 3 * 5
    # Two pairs of the same points count once.
    assert products(values[:2], [[0, 1], [1, 0]]) == 2 * 3


def table_pairs(load, n, seed):
    """Pairs of points of the same class or of different ones, a tenth of the labels flipped."""
    points, classes = load(return_X_y=True)
    rng = np.random.default_rng(seed)
    left = rng.integers(len(points), size=n)
    right = (left + rng.integers(1, len(points), size=n)) % len(points)
    flipped = rng.uniform(size=n) < 0.1
    labels = np.where((classes[left] != classes[right]) ^ flipped, 1, -1)
    return StandardScaler().fit_transform(points)[np.column_stack([left, right])], labels, flipped


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_labels_of_a_table_that_no_metric_fits_are_not_called_wrong():
    def far_apart(**options):
        points, target = load_diabetes(**options)
        return points, target > 140  # half of them

    pairs, labels, flipped = table_pairs(far_apart, 1000, 0)
    errors = find_label_errors(cf.LinearMetricLearner(), pairs, labels, random_state=0)
    assert errors.share is errors.share_low is errors.share_high is None
    assert "explains too little" in errors.reason
    assert errors.meaning == "flipped"
    assert errors.unseen_share > 0.3
    assert np.sum(errors.probability > 0.95) <= 2
    assert np.mean(errors.probability) < 0.2
    assert flipped.mean() == pytest.approx(0.1, abs=0.03)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_flipped_labels_of_a_table_are_found_though_the_metric_fits_imperfectly():
    pairs, labels, flipped = table_pairs(load_wine, 1500, 1)
    errors = find_label_errors(cf.LinearMetricLearner(), pairs, labels, random_state=0)
    sure = errors.probability > 0.85
    assert sure.sum() > 20
    assert flipped[sure].mean() > 0.9
    assert errors.meaning == "flipped"
    assert errors.share is None or errors.share_low <= flipped.mean() <= errors.share_high
    assert average_precision_score(flipped, errors.probability) > 0.8


@pytest.mark.filterwarnings("ignore::UserWarning")  # of separable folds
@pytest.mark.parametrize(("n", "d", "noise"), [(200, 6, "logistic"), (80, 3, "flips")])
def test_few_pairs_are_not_judged_by_fits_to_fewer(n, d, noise):
    precision = {"auto": [], "out-of-fold": []}
    for seed in range(5):
        data = cf.datasets.make_pairs(n, d, noise=noise, wrong_share=0.1, random_state=seed)
        wrong = data.labels != data.true_labels
        for method, found in precision.items():
            learner = cf.LinearMetricLearner()
            errors = find_label_errors(learner, data.pairs, data.labels, method=method, random_state=0)
            found.append(average_precision_score(wrong, errors.probability))
            assert errors.share is None or errors.share_low <= wrong.mean() <= errors.share_high
    assert np.mean(precision["auto"]) > np.mean(precision["out-of-fold"])


def test_a_sample_that_gave_nan():
    rng = np.random.default_rng(44)
    z = rng.standard_t(3, (100, 6))
    labels = z[:, 0] ** 2 + 0.3 * rng.logistic(size=100) > 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in ("auto", "out-of-fold", "in-sample"):
            errors = find_label_errors(cf.LinearMetricLearner(), z, labels, method=method, random_state=0)
            assert np.all(np.isfinite([errors.probability, errors.margin, errors.error]))
            assert errors.share is None
            assert "too few" in errors.reason
            assert "nan" not in errors.summary()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(12))
def test_small_problems_of_every_kind_have_finite_answers(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(10, 80)), int(rng.integers(1, 6))
    draw = [rng.standard_normal, lambda size: rng.standard_t(1.5, size), lambda size: rng.integers(-1, 2, size) * 1.0]
    z = draw[seed % 3]((n, d))
    squared = np.sum(z**2, axis=1)
    far = [squared > np.median(squared), rng.uniform(size=n) < 0.5, squared > np.quantile(squared, 0.9)][seed // 3 % 3]
    far[0] = not far[1]
    learner = cf.LinearMetricLearner(list(NOISES)[seed % len(NOISES)], rank=None if seed % 2 else 1)
    errors = find_label_errors(learner, z, far, random_state=0)
    assert np.all(np.isfinite([errors.margin, errors.error]))
    assert np.all((errors.probability >= 0) & (errors.probability <= 1))
    assert errors.share is None or errors.share_low <= errors.share <= errors.share_high
    assert sorted(errors.order) == list(range(n))


def test_a_split_that_tests_what_it_trained_on_does_not_count_for_the_others():
    judgements, everything = some_judgements(), np.arange(60)
    tests = np.split(everything, 3)
    overlapping = (everything[:50], tests[0])
    splits = [(np.setdiff1d(everything, test)[:k], test) for k, test in zip((25, 30), tests[1:], strict=True)]
    metrics = {50: some_metric(0), 25: some_metric(1), 30: some_metric(2), 60: some_metric(7)}

    def judged(splits):
        return judged_by(metrics, judgements, splits)

    first, last = judged([overlapping, *splits]), judged([*splits, overlapping])
    np.testing.assert_allclose(first.error, last.error, rtol=1e-12)
    assert not first.is_new[tests[0]].any()


def test_points_that_pairs_share_are_found_and_folds_made_of_them():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((40, 2))
    ends = np.array([(i, j) for i in range(40) for j in range(i)])
    squared = np.sum((points[ends[:, 0]] - points[ends[:, 1]]) ** 2, axis=1)
    labels = np.where(squared + 0.5 * rng.logistic(size=len(ends)) > 3.0, 1, -1)
    learner = cf.LinearMetricLearner()
    with pytest.warns(SharedPointsWarning):
        found = find_label_errors(learner, points[ends], labels, random_state=0)
    given = find_label_errors(learner, points[ends], labels, groups=ends, random_state=0)
    np.testing.assert_allclose(found.probability, given.probability)
    assert found.unseen_share == pytest.approx(given.unseen_share, abs=0.05)
    # Of four points no side of a fold has both labels: single pairs are left out instead.
    few = np.flatnonzero((ends < 4).all(axis=1))
    rare = np.array([1, -1, -1, 1, -1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert 0 <= find_label_errors(learner, points[ends[few]], rare, groups=ends[few]).unseen_share <= 1


def test_what_is_changed_to_find_wrong_labels():
    def changes(penalise=True, **parameters):
        return flip_aware(Settings.of(cf.LinearMetricLearner(**parameters)), penalise=penalise)

    assert changes() == {}  # flips and a penalty are chosen
    assert changes(alpha=0.1, flip_rate=0.2) == changes(alpha=0.1, flip_rate="estimate") == {}
    assert changes(**PAPER) == {"flip_rate": "estimate", "alpha": "auto"}
    assert changes(penalise=False, **PAPER) == {"flip_rate": "estimate"}


def test_settings_are_chosen_once(monkeypatch):
    data = cf.datasets.make_pairs(300, 3, noise="flips", wrong_share=0.1, random_state=0)
    asked = []

    def count(judgements, settings, *rest):
        asked.append(settings.has_choice)
        return choose_settings(judgements, settings, *rest)

    monkeypatch.setattr("closefar.fitting.fitting.choose_settings", count)
    for method in ("auto", "out-of-fold", "in-sample"):
        asked.clear()
        find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels, method=method, random_state=0)
        assert sum(asked) == 1
        assert len(asked) == (1 if method == "in-sample" else 6)


def test_nothing_is_called_out_of_fold_where_no_label_was_left_out(rng):
    """Labels that no distance explains: no share is reported, and of what was not measured nothing is said."""
    z = rng.standard_normal((200, 2))
    labels = np.where(rng.random(200) < 0.5, 1, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen, folded = (
            find_label_errors(cf.LinearMetricLearner(), z, labels, method=method, random_state=0)
            for method in ("in-sample", "auto")
        )
    assert (seen.share, seen.unseen_share, seen.unseen_low, seen.unseen_high) == (None,) * 4
    assert "out-of-fold" not in seen.headline()
    assert 0.0 < folded.unseen_low < folded.unseen_share < folded.unseen_high < 1.0
    assert "out-of-fold" in folded.headline()


def test_a_metric_explains_what_it_errs_less_than_the_majority():
    """Nothing at the error rate of the majority, all at 0.6 times that, and in between a share."""
    signs = np.repeat([1.0, -1.0], [60, 40])  # the majority errs in 40 of 100

    def with_errors(count):
        margin = signs.copy()
        margin[:count] *= -1.0
        judgements = Judgements.of_signs(np.zeros((100, 1)), signs)
        return explained(Scores(judgements, margin[:, None], NOISES["logistic"], 0.0))

    assert [with_errors(count) for count in (50, 40, 24, 10)] == pytest.approx([0.0, 0.0, 1.0, 1.0])
    assert with_errors(32) == pytest.approx(0.5)
