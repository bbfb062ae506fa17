"""Labels that depend on more than a distance are found, named, and told with advice; right models are left alone."""

import warnings

import numpy as np
import pytest

import closefar as cf
from closefar.questions import Misfit, diagnose, find_misfit
from closefar.questions.goodness_of_fit import _rejected, bounded, by_place, place_columns
from paper_estimator import PAPER


def pairs_of(kind, n=500, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((2, n, d))
    if kind == "log":
        x, y = np.exp(0.8 * x), np.exp(0.8 * y)
    z = x - y
    score = {
        "linear": lambda: z @ np.arange(1.0, d + 1.0),
        "product": lambda: z[:, 0] * z[:, 1],
        "saddle": lambda: z[:, 0] ** 2 - z[:, 1] ** 2,
        "dot": lambda: np.sum(x * y, axis=1),
        "city": lambda: np.sum(np.abs(z), axis=1),
        "largest": lambda: np.max(np.abs(z), axis=1),
        "log": lambda: np.sum(np.log(x / y) ** 2, axis=1),
        "place": lambda: np.sum(z**2, axis=1) * np.exp(0.5 * (x + y)[:, 0]),
        "region": lambda: np.sum(z**2 * np.where((x + y)[:, :1] > 0, [4.0, 1.0, 1.0], [1.0, 1.0, 4.0]), axis=1),
        "right": lambda: np.sum(z**2, axis=1),
    }[kind]()
    margin = (score - np.median(score)) / np.std(score)
    return np.stack([x, y], axis=1), margin, rng


def labelled(kind, *, noise=0.1, **options):
    pairs, margin, rng = pairs_of(kind, **options)
    return pairs, np.where(margin + noise * rng.logistic(size=len(margin)) > 0, 1, -1)


def kinds_of(pairs, labels, **settings):
    return [
        finding.kind for finding in find_misfit(cf.LinearMetricLearner(**{**PAPER, **settings}).fit(pairs, labels).fit_)
    ]


@pytest.mark.filterwarnings("ignore:.*close and far swapped:closefar.IdentifiabilityWarning")
@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize(
    ("kind", "expected", "words"),
    [
        ("linear", Misfit.LINEAR, "mostly in column 'x2'"),
        ("product", Misfit.INDEFINITE, "product or a ratio"),
        ("saddle", Misfit.INDEFINITE, "a larger difference makes pairs closer"),
        ("dot", Misfit.PLACE, "where a pair lies"),
        ("city", Misfit.SHAPE, "city block"),
        ("largest", Misfit.SHAPE, "the largest difference alone"),
        ("log", Misfit.PLACE, "Take the logarithm of 'x0', 'x1', 'x2'."),
        ("place", Misfit.PLACE, "mostly in column 'x0': no single metric"),
        ("region", Misfit.PLACE, "fit one metric per region"),
    ],
)
def test_each_kind_is_named_with_advice(kind, expected, words, noise):
    pairs, labels = labelled(kind, noise=noise)
    diagnosis = diagnose(cf.LinearMetricLearner(**PAPER).fit(pairs, labels).fit_)
    sentences = {finding.kind: finding.sentence for finding in diagnosis.findings}
    assert words in sentences[expected]
    assert sentences[expected] in diagnosis.problems
    assert min(finding.p_value for finding in diagnosis.findings if finding.kind is expected) < 0.01


def test_right_models_are_doubted_at_most_as_often_as_the_level_says():
    doubted, rng = 0, np.random.default_rng(0)
    columns = {
        "normal": rng.standard_normal,
        "heavy": lambda size: rng.standard_t(3, size),
        "skewed": lambda size: np.exp(0.8 * rng.standard_normal(size)),
        "binary": lambda size: np.where(
            np.arange(size[-1]) % 2, rng.standard_normal(size), rng.uniform(size=size) < 0.4
        ),
    }
    for draw in columns.values():
        for noise in ("logistic", "normal", "laplace"):
            for _ in range(4):
                pairs = draw((400, 2, 3))
                z = pairs[:, 0] - pairs[:, 1]
                squared = np.sum((z / z.std(axis=0)) ** 2, axis=1)
                labels = squared - np.median(squared) + 0.5 * cf.noise.get_noise(noise).sample(400, rng) > 0
                doubted += bool(kinds_of(pairs, labels, noise=noise))
    assert doubted <= 7  # of 48; binomial(48, 0.05) exceeds 7 once in 200 times


def test_flips_are_blamed_on_the_noise_and_not_on_the_metric():
    pairs, labels = labelled("right", n=1000, noise=0.05)
    flipped = np.where(np.random.default_rng(1).uniform(size=1000) < 0.1, -labels, labels)
    (finding,) = find_misfit(cf.LinearMetricLearner(**PAPER).fit(pairs, flipped).fit_)
    assert finding.kind is Misfit.NOISE
    assert 'Try flip_rate="estimate"' in finding.sentence
    assert kinds_of(pairs, flipped, flip_rate="estimate") == []


@pytest.mark.parametrize(
    ("wrong", "words"), [(-1, "Close pairs are labelled far"), (1, "Far pairs are labelled close")]
)
def test_flips_of_one_side_are_named(wrong, words):
    pairs, labels = labelled("right", n=1500, noise=0.05)
    flipped = np.where((np.random.default_rng(1).uniform(size=1500) < 0.15) & (labels == wrong), -labels, labels)
    found = {
        finding.kind: finding.sentence
        for finding in find_misfit(cf.LinearMetricLearner(**PAPER).fit(pairs, flipped).fit_)
    }
    assert found[Misfit.ASYMMETRIC_FLIPS].startswith(words + " more often than ")


def test_a_rank_that_is_too_low_is_named():
    pairs, labels = labelled("right", n=1000)
    assert Misfit.RANK in kinds_of(pairs, labels, rank=2)
    assert kinds_of(pairs, labels) == []


@pytest.mark.parametrize("settings", [{"alpha": 0.02}, {"class_weight": {-1: 3.0, 1: 1.0}}], ids=str)
def test_penalty_and_class_weights_are_left_out(settings):
    assert kinds_of(*labelled("right"), **settings) == []
    assert kinds_of(*labelled("city"), **settings) == kinds_of(*labelled("city"))


def test_units_sides_and_rows_change_nothing():
    pairs, labels = labelled("city")
    order = np.random.default_rng(0).permutation(len(labels))
    plain = find_misfit(cf.LinearMetricLearner(**PAPER).fit(pairs, labels).fit_)
    other = find_misfit(cf.LinearMetricLearner(**PAPER).fit((pairs * [1e-6, 1.0, 1e6])[order], labels[order]).fit_)
    swapped = find_misfit(cf.LinearMetricLearner(**PAPER).fit(pairs[:, ::-1], labels).fit_)
    assert [finding.kind for finding in plain] == [finding.kind for finding in other]
    for finding, same in zip(plain, swapped, strict=True):
        assert np.log(same.p_value) == pytest.approx(np.log(finding.p_value), rel=0.02)


def test_where_nothing_is_learned_it_is_said_what_else_there_is():
    pairs, labels = labelled("linear", noise=0.05)
    z = pairs[:, 0] - pairs[:, 1]
    learner = next(
        found
        for rows in range(400, 500, 5)
        if (found := cf.LinearMetricLearner(alpha=0.3, flip_rate=0.0).fit(z[:rows], labels[:rows])).metric_.rank == 0
    )
    problems = diagnose(learner.fit_).problems
    assert any("sign of the difference" in problem for problem in problems)


@pytest.mark.filterwarnings("ignore:.*close and far swapped:closefar.IdentifiabilityWarning")
def test_differences_alone_say_nothing_of_place():
    pairs, labels = labelled("dot")
    assert Misfit.PLACE not in kinds_of(pairs[:, 0] - pairs[:, 1], labels)


def test_points_with_a_learned_origin_have_no_linear_term():
    rng = np.random.default_rng(0)
    points = rng.normal(3.0, size=(800, 2))
    labels = np.sum((points - [3.5, 3.0]) ** 2, axis=1) + 0.5 * rng.logistic(size=800) > 2.0
    assert kinds_of(points, labels, fit_origin=True) == []


def test_shared_points_are_found_without_a_warning():
    rng = np.random.default_rng(0)
    points, ids = rng.standard_normal((60, 2)), rng.integers(60, size=(500, 2))
    pairs = points[ids[ids[:, 0] != ids[:, 1]]]
    z = pairs[:, 0] - pairs[:, 1]
    labels = np.sum(z**2, axis=1) + rng.logistic(size=len(z)) > 3.0
    fit = cf.LinearMetricLearner(**PAPER).fit(pairs, labels).fit_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_misfit(fit) == ()


def test_what_cannot_be_tested_is_told():
    data = cf.datasets.make_pairs(120, 6, random_state=0)
    learner = cf.LinearMetricLearner(alpha=1e-3, flip_rate=0.0).fit(data.pairs, data.labels)
    diagnosis = diagnose(learner.fit_)
    assert diagnosis.findings == ()
    assert diagnosis.facts[-1].startswith("Not tested: ")


def test_many_pairs_are_tested_by_a_sample(monkeypatch):
    pairs, labels = labelled("city", n=4000)
    fit = cf.LinearMetricLearner(**PAPER).fit(pairs, labels).fit_
    monkeypatch.setattr("closefar.questions.goodness_of_fit._MOST_WORK", 0.0)
    assert find_misfit(fit)[0].kind is Misfit.SHAPE


@pytest.mark.parametrize(
    ("p_values", "rejected"),
    [
        ([0.02, 0.5, 0.9], []),
        ([0.016, 0.5, 0.9], [0]),
        ([0.5, 0.02, 0.01], [2, 1]),
        ([0.04, 0.02, 0.01], [2, 1, 0]),
        ([0.06, 0.02, 0.01], [2, 1]),
    ],
)
def test_several_tests_are_judged_together(p_values, rejected):
    kinds = list(Misfit)[: len(p_values)]
    assert _rejected(dict(zip(kinds, p_values, strict=True))) == [kinds[index] for index in rejected]


def test_features_are_bounded_and_know_their_columns():
    values = np.array([[1e9, 1.0, 0.0], [1.0, -1.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0], [0.0, 1.0, 0.0]])
    np.testing.assert_allclose(bounded(values)[0], [4.0, 1.0, 0.0])
    pairs = np.random.default_rng(0).standard_normal((50, 2, 3))
    metric = cf.Metric(np.eye(3), 1.0)
    pairs[:, :, 1] = 0.25  # no place at all
    terms = np.hstack(by_place(pairs[:, 0], pairs[:, 1], pairs[:, 0] - pairs[:, 1], metric))
    assert len(place_columns(3)) == terms.shape[1]
    assert not np.any(terms[:, place_columns(3) == 1])
    assert np.all(np.any(terms != 0, axis=0)[(place_columns(3) != 1) & (np.arange(24) < 6)])
