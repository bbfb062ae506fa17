"""Wrong labels: found, counted, and ranked, for each form of input."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score
from sklearn.model_selection import KFold

import closefar as cf
from closefar.questions import find_label_errors
from closefar.questions.label_errors import Judge


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
    words = np.where(data.labels == 1, "different", "same")
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


def test_what_cannot_be_judged_is_refused(data):
    with pytest.raises(ValueError, match="method must be one of"):
        find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels, method="loo")
    with pytest.raises(ValueError, match="class_weight must be None"):
        find_label_errors(cf.LinearMetricLearner(class_weight="balanced"), data.pairs, data.labels)
    with pytest.raises(ValueError, match="one label per pair"):
        find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels[:-1])
