"""Learning from points and their classes, some of which are wrong."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import check_grad
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.metrics import average_precision_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from typer.testing import CliRunner

import closefar as cf
from closefar.cli.app import app
from closefar.fitting import ClassPosterior, class_pairs, class_posterior
from closefar.fitting import classes as class_labels

WINES, CULTIVARS = load_wine(return_X_y=True)
QUICK = cf.LinearMetricLearner(alpha=0.05, prior="zero", flip_rate=0.0)


def classes_of(n, separation, wrong, n_classes=3, seed=0):
    """Points of Gaussian classes, their true classes, and labels, some of which are wrong."""
    rng = np.random.default_rng(seed)
    true = rng.integers(n_classes, size=n)
    points = rng.standard_normal((n, 4)) + separation * np.eye(n_classes, 4)[true]
    is_wrong = rng.random(n) < wrong
    return points, true, np.where(is_wrong, (true + rng.integers(1, n_classes, n)) % n_classes, true)


def with_wrong(classes, share, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(len(classes)) < share, (classes + rng.integers(1, 3, len(classes))) % 3, classes)


# Which labels are wrong


def test_posterior_is_that_of_the_enumerated_model():
    votes = np.array([[4, 0, 1], [1, 3, 1], [0, 0, 5], [2, 2, 1]])
    codes, share = np.array([0, 1, 0, 2]), 0.2
    logs = np.log(votes + 0.5)
    parameters, _ = class_labels._fitted(logs, codes, share, np.array([0.0, 0.0, 0.0, 1.0]))
    found = class_labels._posterior(logs, codes, np.arange(4), share).probabilities
    for point, label in enumerate(codes):
        joint = np.empty(3)
        for k in range(3):
            weights = [np.exp(parameters[j]) * (votes[point, j] + 0.5) ** parameters[3] for j in range(3)]
            joint[k] = weights[k] / sum(weights) * (1 - share if label == k else share / 2)
        np.testing.assert_allclose(found[point], joint / joint.sum(), atol=1e-4)


def test_parameters_are_the_likeliest(monkeypatch):
    rng = np.random.default_rng(0)
    logs, codes = np.log(rng.integers(0, 10, (50, 3)) + 0.5), rng.integers(3, size=50)
    losses = []
    monkeypatch.setattr(class_labels, "minimize", lambda loss, start, **_: losses.append(loss) or _Found(start))
    class_labels._fitted(logs, codes, 0.1, np.zeros(4))
    at = np.array([0.3, -0.2, 0.1, 1.4])
    assert check_grad(lambda x: losses[0](x)[0], lambda x: losses[0](x)[1], at) < 1e-4


class _Found:
    fun = 0.0

    def __init__(self, x):
        self.x = x


@pytest.mark.parametrize("separation", [1.5, 3.0])
def test_overlapping_classes_are_no_wrong_labels(separation):
    points, true, _ = classes_of(1500, separation, 0.0)
    found = class_posterior(points, true, 3, np.random.default_rng(0))
    assert found.wrong_share < 0.06
    assert np.mean(found.probabilities[np.arange(1500), true] < 0.1) < 0.005


@pytest.mark.parametrize("wrong", [0.1, 0.3])
def test_wrong_labels_of_separate_classes_are_counted_and_found(wrong):
    points, true, labels = classes_of(600, 6.0, wrong)
    found = class_posterior(points, labels, 3, np.random.default_rng(0))
    suspicion = 1.0 - found.probabilities[np.arange(600), labels]
    assert found.wrong_share == pytest.approx(np.mean(labels != true), abs=0.04)
    low, high = found.share_interval
    assert low < np.mean(labels != true) < high < low + 0.25
    assert average_precision_score(labels != true, suspicion) > 0.97
    assert np.mean((labels != true)[suspicion > 0.9]) > 0.95


def test_a_given_share_is_used():
    points, _, labels = classes_of(300, 3.0, 0.2)
    shares = [class_posterior(points, labels, 3, np.random.default_rng(0), share).wrong_share for share in (0.02, 0.3)]
    assert shares[0] < 0.05 < shares[1]


def test_labels_at_random_leave_the_share_open():
    points, true, _ = classes_of(300, 0.0, 0.0)
    low, high = class_posterior(points, true, 3, np.random.default_rng(0)).share_interval
    assert low < 0.1
    assert high > 0.35


# Pairs


def test_pairs_are_half_of_one_class_and_uncertain_ones_occur_twice():
    codes = np.repeat([0, 1, 2], [50, 30, 20])
    index, labels, weights = class_pairs(ClassPosterior.certain(codes, 3), 1000, np.random.default_rng(0))
    assert np.all((codes[index[:, 0]] == codes[index[:, 1]]) == (labels == -1))
    assert np.sum(labels == -1) == 500
    assert np.all(weights == 1.0)
    assert np.all(index[:, 0] != index[:, 1])
    probabilities = np.full((100, 3), 0.1)
    probabilities[np.arange(100), codes] = 0.8
    index, labels, weights = class_pairs(ClassPosterior(probabilities, 0.2), 1000, np.random.default_rng(0))
    assert len(index) == 2000
    close = np.sum(probabilities[index[:, 0]] * probabilities[index[:, 1]], axis=1)
    np.testing.assert_allclose(weights, np.where(labels == -1, close, 1 - close))


# The learner


# The checks fit separable and tiny data, of which the learner rightly warns.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:most labels of these classes seem wrong")
@pytest.mark.filterwarnings("ignore:neighbours do not tell the classes apart")
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@parametrize_with_checks([cf.ClassMetricLearner(n_pairs=100, learner=QUICK)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def wine():
    """Half of the wines with 30 % wrong labels, and what was learned from them."""
    labels = with_wrong(CULTIVARS[::2], 0.3)
    return labels, cf.ClassMetricLearner().fit(WINES[::2], labels)


def test_pairs_of_wine_are_told_in_spite_of_wrong_labels(wine):
    labels, learner = wine
    left, right = np.array(list(itertools.combinations(range(len(WINES[1::2])), 2))).T
    pairs, truth = (
        WINES[1::2][left] - WINES[1::2][right],
        np.where(CULTIVARS[1::2][left] == CULTIVARS[1::2][right], -1, 1),
    )
    trusting = cf.ClassMetricLearner(wrong_share=0).fit(WINES[::2], labels)
    accuracy = [np.mean(each.pair_learner_.predict(pairs) == truth) for each in (learner, trusting)]
    assert accuracy[0] > accuracy[1] + 0.04


def test_corrected_classes_are_right_more_often_than_labels(wine):
    labels, learner = wine
    assert np.mean(learner.corrected_classes_ == CULTIVARS[::2]) > np.mean(labels == CULTIVARS[::2]) + 0.15
    assert learner.wrong_share_ == pytest.approx(learner.wrong_probability_.mean())
    np.testing.assert_allclose(learner.class_probabilities_.sum(axis=1), 1.0)


def test_units_do_not_matter_to_columns(wine):
    labels, _ = wine
    powers = 2.0 ** np.linspace(-26, 26, 13).round()
    plain = cf.ClassMetricLearner(units="columns", learner=QUICK).fit(WINES[::2], labels)
    scaled = cf.ClassMetricLearner(units="columns", learner=QUICK).fit(WINES[::2] * powers, labels)
    np.testing.assert_array_equal(plain.wrong_probability_, scaled.wrong_probability_)
    distances = [
        np.linalg.norm(each.transform(points)[1:] - each.transform(points)[:-1], axis=1)
        for each, points in ((plain, WINES), (scaled, WINES * powers))
    ]
    np.testing.assert_allclose(*distances, rtol=1e-6)


def test_is_deterministic_and_pickles_without_the_points(wine):
    labels, learner = wine
    again = clone(learner).fit(WINES[::2], labels)
    np.testing.assert_array_equal(again.transform(WINES), learner.transform(WINES))
    copy = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(copy.transform(WINES), learner.transform(WINES))
    assert copy.pair_learner_.fit_.judgements is None


def test_frames_and_words():
    frame = pd.DataFrame(WINES, columns=load_wine().feature_names)
    words = np.array(["a", "b", "c"])[CULTIVARS]
    learner = cf.ClassMetricLearner(learner=QUICK).fit(frame, words)
    assert learner.classes_.tolist() == ["a", "b", "c"]
    assert learner.metric_.feature_names == learner.neighbour_metric_.feature_names == tuple(frame.columns)
    assert list(learner.set_output(transform="pandas").transform(frame).columns) == list(
        learner.get_feature_names_out()
    )


def test_constant_and_repeated_columns_change_nothing():
    more = np.column_stack([WINES, np.full(len(WINES), 0.1)])
    learners = [
        cf.ClassMetricLearner(units="columns", learner=QUICK).fit(points, CULTIVARS) for points in (WINES, more)
    ]
    np.testing.assert_array_equal(learners[0].wrong_probability_, learners[1].wrong_probability_)
    assert np.all(learners[1].neighbour_metric_.matrix[-1] == 0.0)
    cf.ClassMetricLearner(learner=QUICK).fit(np.hstack([WINES, WINES]), CULTIVARS)


def test_a_rare_class_is_named():
    points, _, labels = classes_of(200, 4.0, 0.0)
    labels[:2] = 7
    with pytest.warns(UserWarning, match=r"most labels of these classes seem wrong.* 7 \(2\)\. If .* wrong_share=0"):
        cf.ClassMetricLearner(learner=QUICK).fit(points, labels)
    trusting = cf.ClassMetricLearner(wrong_share=0, learner=QUICK).fit(points, labels)
    assert trusting.corrected_classes_.tolist() == labels.tolist()


def test_classes_without_a_difference_are_trusted():
    points = np.random.default_rng(0).standard_normal((200, 3))
    with pytest.warns(UserWarning, match="neighbours do not tell the classes apart"):
        learner = cf.ClassMetricLearner(learner=QUICK).fit(points, np.arange(200) < 8)
    assert learner.wrong_share_ == 0.0


@pytest.mark.parametrize(("n", "d"), [(6, 4), (20, 60)])
def test_few_points(n, d):
    points = np.random.default_rng(0).standard_normal((n, d))
    learner = cf.ClassMetricLearner(learner=cf.LinearMetricLearner(alpha=0.1, prior="zero", flip_rate=0.0)).fit(
        points, np.arange(n) % 2
    )
    assert np.all(np.isfinite(learner.transform(points)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"wrong_share": 1.5}, 'wrong_share must be "estimate" or a number from 0 to 1; got 1.5'),
        ({"units": "metres"}, "units must be"),
        ({"n_pairs": 3}, "n_pairs must be a whole number >= 100"),
    ],
)
def test_wrong_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        cf.ClassMetricLearner(**parameters).fit(WINES, CULTIVARS)


def test_wrong_data_are_refused():
    with pytest.raises(ValueError, match="two classes at least; got 1 class, 0"):
        cf.ClassMetricLearner().fit(WINES, np.zeros(len(WINES), dtype=int))
    with pytest.raises(ValueError, match="two points at least; got one point of each"):
        cf.ClassMetricLearner().fit(WINES[:9], np.arange(9))
    with pytest.raises(ValueError, match="all the same"):
        cf.ClassMetricLearner().fit(np.ones((20, 2)), np.arange(20) % 2)
    with pytest.raises(TypeError, match="learner must be a LinearMetricLearner; got int"):
        cf.ClassMetricLearner(learner=3).fit(WINES, CULTIVARS)


# The command line


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(WINES, columns=[f"f{index}" for index in range(13)])
    frame.insert(0, "id", [f"w{index}" for index in range(len(frame))])
    frame.to_csv("points.csv", index=False)
    frame.assign(cultivar=np.array(["a", "b", "c"])[with_wrong(CULTIVARS, 0.1)]).to_csv("wine.csv", index=False)
    return frame


def run(*command):
    return CliRunner().invoke(app, list(command), env={"COLUMNS": "200"})


def test_command_writes_models_and_suspicious_labels(table):
    asked = ["--points", "wine.csv", "--label", "cultivar"]
    written = ["--neighbours", "neighbours.closefar", "--suspicious", "suspicious.csv"]
    done = run("classes", *asked, *written, "--json")
    assert done.exit_code == 0, done.output
    labels = pd.read_csv("wine.csv")["cultivar"]
    learner = cf.ClassMetricLearner().fit(table.drop(columns="id").to_numpy(), labels.to_numpy(dtype=str))
    assert json.loads(done.stdout)["wrong_share"] == pytest.approx(learner.wrong_share_)
    suspicious = pd.read_csv("suspicious.csv", index_col="id")
    assert suspicious["probability_wrong"].is_monotonic_decreasing
    np.testing.assert_allclose(suspicious["probability_wrong"][table["id"]], learner.wrong_probability_)
    assert suspicious["probable_class"][table["id"]].tolist() == learner.corrected_classes_.tolist()
    mapped = run("transform", "--model", "neighbours.closefar", "--points", "points.csv", "--out", "mapped.csv")
    assert mapped.exit_code == 0, mapped.output
    values = table.drop(columns="id").to_numpy()
    np.testing.assert_allclose(pd.read_csv("mapped.csv", index_col="id"), learner.transform(values), rtol=1e-6)
    pd.DataFrame({"left": ["w0", "w0"], "right": ["w1", "w170"]}).to_csv("pairs.csv", index=False)
    predicted = run("predict", "--model", "model.closefar", "--points", "points.csv", "--pairs", "pairs.csv")
    assert [line.rpartition(",")[2] for line in predicted.stdout.split()] == ["predicted", "-1", "1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--label", "vintage"], "no column 'vintage'"),
        (["--label", "cultivar", "--wrong-share", "2"], "--wrong-share must be"),
        (["--label", "cultivar", "--neighbours", "model.closefar"], "must have a name of its own"),
        (["--label", "cultivar", "--suspicious", "wine.csv"], "must have a name of its own"),
    ],
)
@pytest.mark.usefixtures("table")
def test_command_refuses_wrong_input(options, message):
    done = run("classes", "--points", "wine.csv", *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
