"""The choice on held-out points: what is held out, what is chosen, and the problem around a centre."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import closefar as cf
from closefar import packed
from closefar.fitting import Settings, choose
from closefar.fitting.problem import UnitFreeProblem, flips_of
from closefar.noise import NOISES
from closefar.solve import Problem
from paper_estimator import PAPER

LEARNERS = {
    "close/far": cf.LinearMetricLearner,
    "levels": cf.OrdinalMetricLearner,
    "comparisons": cf.ComparisonMetricLearner,
}
kinds = pytest.mark.parametrize("kind", LEARNERS)


def judged(kind, n=300, d=4, *, n_points=80, eigenvalues=(2.0, 1.0), flips=0.0, seed=0):
    """Judgements of shared points, as their index and answers; only the first columns count."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n_points, d)) * np.linspace(1.0, 3.0, d)
    index = np.array([rng.choice(n_points, 3 if kind == "comparisons" else 2, replace=False) for _ in range(n)])
    scales = np.zeros(d)
    scales[: len(eigenvalues)] = eigenvalues

    def squared(one, other):
        return np.sum((points[index[:, one]] - points[index[:, other]]) ** 2 * scales, axis=1)

    if kind == "comparisons":
        answers = np.where(squared(0, 2) - squared(0, 1) + rng.logistic(size=n) > 0, 1, -1)
    else:
        heard = squared(0, 1) + rng.logistic(size=n)
        answers = np.where(heard > 4.0, 1, -1) if kind == "close/far" else np.digitize(heard, [2.0, 5.0, 9.0])
    if flips:
        answers = np.where(rng.random(n) < flips, -answers, answers)
    return points, index, answers


def searched(learner, X, y, groups=None, **more):
    """The search of a learner's settings, before it has tried anything."""
    judgements = learner.read(X, y, **more)
    return choose._Search(judgements.counted(), Settings.of(learner), groups)


def has_unseen_point(index, train, test):
    """Whether each judgement that is held out has a point that none of those that are fitted to has."""
    return len(test) > 0 and np.all(np.any(~np.isin(index[test], index[train]), axis=1))


# What is held out


@kinds
@pytest.mark.parametrize("n", [60, 300, 1500])
def test_folds_hold_out_points(kind, n):
    points, index, answers = judged(kind, n)
    folds = searched(LEARNERS[kind](), cf.Tuples(points, index), answers)
    assert folds.held_out == "points"
    # With plenty of judgements, those of one part are enough.
    assert sum(len(test) for _, test in folds.splits) >= 400 or len(folds.splits) >= 2
    for train, test in folds.splits:
        assert len(train) > 0
        assert has_unseen_point(index, train, test)
        assert len(np.unique(answers[train])) == len(np.unique(answers))


def test_pairs_that_share_no_point_are_all_held_out_once():
    points, _, _ = judged("close/far", n_points=400)
    answers = np.where(np.arange(200) % 3, 1, -1)
    folds = searched(cf.LinearMetricLearner(), points.reshape(200, 2, -1), answers)
    assert (folds.held_out, len(folds.splits)) == ("judgements", 5)
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in folds.splits])), np.arange(200))
    for train, test in folds.splits:
        assert set(train) == set(range(200)) - set(test)
        assert np.mean(answers[test] > 0) == pytest.approx(2 / 3, abs=0.05)


def test_a_point_of_most_pairs_is_not_held_out():
    rng = np.random.default_rng(0)
    index = np.column_stack([np.zeros(60, dtype=int), 1 + rng.integers(30, size=60)])
    folds = searched(cf.LinearMetricLearner(), cf.Tuples(rng.standard_normal((31, 2)), index), rng.choice([-1, 1], 60))
    for train, test in folds.splits:
        assert has_unseen_point(index, train, test)


def test_pairs_between_two_sets_of_points_hold_out_both():
    rng = np.random.default_rng(0)
    index = np.column_stack([rng.integers(20, size=120), 20 + rng.integers(20, size=120)])
    folds = searched(cf.LinearMetricLearner(), cf.Tuples(rng.standard_normal((40, 2)), index), rng.choice([-1, 1], 120))
    for train, test in folds.splits:
        assert has_unseen_point(index, train, test)


def test_groups_are_held_out_together():
    points, index, answers = judged("close/far")
    groups = np.random.default_rng(1).choice(["a", "b", "c", "d", "e", "f", "g", "h"], len(answers))
    learner = cf.LinearMetricLearner()
    folds = searched(learner, points[index], answers, groups)
    assert folds.held_out == "groups"
    for train, test in folds.splits:
        assert not set(groups[train]) & set(groups[test])
    assert learner.fit(points[index], answers, groups=groups).choice_.held_out == "groups"


@pytest.mark.parametrize("n", [60, 200])
def test_half_of_the_points_of_a_comparison_that_is_held_out_are_unseen(n):
    points, index, answers = judged("comparisons", n)
    folds = searched(cf.ComparisonMetricLearner(), cf.Tuples(points, index), answers)
    for train, test in folds.splits:
        assert np.all(np.sum(~np.isin(index[test], index[train]), axis=1) >= 2)


@pytest.mark.parametrize("n_points", [100, 3000])
def test_the_number_of_points_is_estimated_from_a_sample(n_points):
    rng = np.random.default_rng(0)
    index = rng.integers(n_points, size=(10_000, 2))
    sampled = np.unique(index[:1000], return_inverse=True)[1].reshape(1000, 2)
    n_found, share = choose._count_points(sampled, 0.1)
    assert n_found == pytest.approx(len(np.unique(index)), rel=0.1)
    assert share * n_found == pytest.approx(len(np.unique(sampled)))
    assert choose._count_points(sampled, 1.0) == (len(np.unique(sampled)), 1.0)


def test_many_judgements_of_few_points_are_not_plenty():
    rng = np.random.default_rng(0)
    answers = rng.choice([-1, 1], 1000)
    for n_points, is_plenty in ((30, False), (2000, True)):
        first = rng.integers(n_points, size=1000)
        index = np.column_stack([first, (first + rng.integers(1, 7, 1000)) % n_points])
        X = cf.Tuples(rng.standard_normal((n_points, 2)), index)
        assert searched(cf.LinearMetricLearner(), X, answers).has_plenty == is_plenty


# Whatever judgements there are


def odd_judgements(seed):
    """A learner with 2 to 50 judgements of some odd shape, and their weights."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(list(LEARNERS), p=[0.6, 0.2, 0.2]))
    shape = str(rng.choice(["any", "hub", "bipartite", "constant", "duplicates", "disjoint", "binary"]))
    k = 3 if kind == "comparisons" else 2
    n, d, n_points = int(rng.integers(2, 51)), int(rng.choice([1, 2, 3, 8])), int(rng.integers(4, 60))
    points = rng.standard_normal((n_points, d)) * 10.0 ** rng.uniform(-3, 3, d)
    index = np.array([rng.choice(n_points, k, replace=False) for _ in range(n)])
    if shape == "disjoint":
        points, index = rng.standard_normal((k * n, d)), np.arange(k * n).reshape(n, k)
    elif shape == "hub":
        index = np.column_stack(
            [np.zeros(n, dtype=int), [1 + rng.permutation(n_points - 1)[: k - 1] for _ in range(n)]]
        )
    elif shape == "bipartite":
        half = n_points // 2
        others = [half + rng.permutation(n_points - half)[: k - 1] for _ in range(n)]
        index = np.column_stack([rng.integers(half, size=n), others])
    elif shape == "constant" and d > 1:
        points[:, 0] = 3.0
    elif shape == "duplicates":
        points[1::3] = points[0]
    elif shape == "binary":
        points = (points > 0.0).astype(float)
    z = points[index[:, 0]] - points[index[:, 1]]
    if not np.any(z):
        points[index[0, 0]] += 1.0
    length = np.sum((z / (np.abs(points).max(axis=0) + 1e-9)) ** 2, axis=1) + 0.2 * rng.standard_normal(n)
    if kind == "comparisons":
        other = points[index[:, 0]] - points[index[:, 2]]
        kept = np.any(z != other, axis=1) & np.any(z != -other, axis=1)  # others are refused
        index, answers = index[kept], rng.choice([-1, 1], n)[kept]
        if len(index) < 2:
            return odd_judgements(seed + 1000)
    elif kind == "levels":
        n_levels = min(n, int(rng.integers(2, 5)))
        answers = np.argsort(np.argsort(length)) * n_levels // n
        if rng.random() < 0.4:  # all but one level are rare
            answers = np.where(np.arange(n) < n_levels, np.arange(n), 0)
    else:
        answers = np.where(length > np.median(length), 1, -1)
        if rng.random() < 0.3:  # one class in most folds
            answers[:] = -1
        answers[:2] = 1, -1
    weights = None
    if rng.random() < 0.3:
        weights = rng.choice([0.0, 1.0, 3.0], len(answers))
        weights[np.unique(answers, return_index=True)[1]] = 1.0
    X = cf.Tuples(points, index) if rng.random() < 0.5 else points[index]
    return LEARNERS[kind](), X, answers, weights


@pytest.mark.parametrize("seed", range(100))
def test_odd_judgements_give_a_metric(seed):
    learner, X, answers, weights = odd_judgements(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.fit(X, answers, weights)
    assert np.all(np.isfinite(learner.predict_proba(X)))
    assert np.all(np.isfinite(learner.metric_.matrix))
    assert np.isfinite(learner.choice_.alpha)
    assert learner.choice_.summary().startswith("Chosen ")
    if learner.choice_.table:
        assert "Held-out accuracy" in learner.baseline_.sentence


def wilder_judgements(seed):
    """Also of many columns, of annotators and mixed, far from the origin, with enormous points."""
    rng = np.random.default_rng([seed, 5])
    kind = rng.choice(["pairs", "levels", "comparisons", "annotated", "mixed"], p=[0.45, 0.15, 0.15, 0.15, 0.1])
    n, m = int(rng.integers(2, 51)), int(rng.integers(3, 40))
    d = int(rng.choice([1, 2, 4, 10, 30, 100], p=[0.2, 0.2, 0.2, 0.2, 0.1, 0.1]))
    points = rng.standard_normal((m, d)) if rng.random() < 0.7 else rng.integers(0, 3, (m, d)).astype(float)
    points = points * [1.0, 1e-6, 1e6, 10.0 ** rng.uniform(-4, 4, d)][rng.integers(4)]
    if rng.random() < 0.2:
        points += 1e3 * np.abs(points).max()
    if rng.random() < 0.2:
        points[:, rng.random(d) < 0.5] = 7.0
    if rng.random() < 0.15 and d > 1:
        points[:, 1] = 2.0 * points[:, 0]
    if rng.random() < 0.15:
        points[0] *= 1e3
    k = 3 if kind == "comparisons" else 2
    index = np.array([rng.choice(m, k, replace=False) for _ in range(n)])
    length = np.sum(((points[index[:, 0]] - points[index[:, 1]]) / (np.abs(points).max(axis=0) + 1e-300)) ** 2, axis=1)
    answers = np.where(length + rng.choice([0.0, 0.1, 1.0]) * rng.standard_normal(n) > np.median(length), 1, -1)
    if rng.random() < 0.2:
        answers = rng.choice([-1, 1], n)
    answers[:2] = 1, -1
    more = {}
    if kind == "levels":
        answers = np.unique(rng.integers(0, 5, n), return_inverse=True)[1]
    elif kind == "annotated":
        more["annotators"] = np.array(list("abcde"))[rng.integers(0, 5, n)]
    elif kind == "mixed":
        more["comparisons"] = cf.Tuples(points, np.array([rng.choice(m, 3, replace=False) for _ in range(12)]))
    sides = index if k == 3 else more["comparisons"].index if more.get("comparisons") is not None else None
    if sides is not None:
        a, b, c = np.moveaxis(points[sides], 1, 0)
        if not np.all(np.any(a - b != a - c, axis=1) & np.any(a - b != c - a, axis=1)):
            return wilder_judgements(seed + 1000)  # comparisons whose sides are the same are refused
    if len(np.unique(answers)) < 2 or not np.any(points[index[:, 0]] - points[index[:, 1]]):
        return wilder_judgements(seed + 1000)
    name = {"levels": "levels", "comparisons": "comparisons"}.get(str(kind), "close/far")
    return LEARNERS[name](), cf.Tuples(points, index) if rng.random() < 0.6 else points[index], answers, more


@pytest.mark.parametrize("seed", range(100))
def test_wilder_judgements_give_a_metric(seed):
    learner, X, answers, more = wilder_judgements(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Of answers at random, the reverse may be likelier.
        warnings.simplefilter("ignore", cf.IdentifiabilityWarning)
        learner.fit(X, answers, **more)
    assert learner.certificate_.converged
    assert np.all(np.isfinite(learner.predict_proba(X)))


# What is chosen


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_the_plain_distance_is_doubted_if_columns_have_several_units(scale):
    points, index, answers = judged("close/far", 60, 4)
    search = searched(cf.LinearMetricLearner(), points[index] * [scale, 1.0, 1.0, 1.0], answers)
    assert (search._caution == 0.0) == (scale > 1.0)
    assert search.centres()[0] == ("standardized" if scale > 1.0 else "euclidean")


def test_a_slight_penalty_of_plenty_of_judgements_is_nearly_none():
    # The columns are correlated: measured column by column, a thousand steps are not enough for this penalty.
    rng = np.random.default_rng(0)
    z = rng.standard_normal((60000, 34)) @ (0.1 * np.eye(34) + rng.standard_normal((34, 34)))
    directions = np.linalg.qr(rng.standard_normal((34, 34)))[0][:, :3]
    white = np.linalg.solve(np.linalg.cholesky(z.T @ z / len(z)), z.T).T
    squared = np.sum((white @ directions) ** 2, axis=1)
    answers = np.where(squared + 0.5 * rng.logistic(size=len(z)) > np.median(squared), 1, -1)
    chosen = cf.LinearMetricLearner().fit(z, answers)
    unpenalised = cf.LinearMetricLearner(**PAPER).fit(z, answers)
    assert 0.0 < chosen.alpha_ < 1e-6
    assert chosen.certificate_.converged
    assert chosen.n_iter_ < 300
    np.testing.assert_allclose(
        chosen.metric_.matrix, unpenalised.metric_.matrix, atol=1e-3 * np.abs(unpenalised.metric_.matrix).max()
    )


def test_nothing_is_chosen_that_is_set():
    points, index, answers = judged("close/far")
    for parameters in (PAPER, {"alpha": 0.0, "flip_rate": "estimate"}, {"alpha": 0.1, "prior": "zero", "flip_rate": 0}):
        learner = cf.LinearMetricLearner(**parameters).fit(points[index], answers)
        assert not hasattr(learner, "choice_")
        assert not hasattr(learner, "baseline_")


@kinds
def test_a_metric_that_explains_the_labels_is_kept(kind):
    scales = np.append(np.full(10, 0.12), np.zeros(20))
    points, index, answers = judged(kind, 100, 30, eigenvalues=scales)
    thresholds = {"close/far": 1.0, "levels": [1.0, 2.0, 3.0], "comparisons": None}[kind]
    learner = LEARNERS[kind](prior=cf.Metric(np.diag(scales), thresholds)).fit(cf.Tuples(points, index), answers)
    assert learner.choice_.prior == "metric"
    matrix = learner.metric_.matrix
    assert np.sum(matrix * np.diag(scales)) > 0.9 * np.linalg.norm(matrix) * np.linalg.norm(scales)


@kinds
@pytest.mark.parametrize("d", [4, 10])
@pytest.mark.parametrize("seed", range(3))
def test_where_the_plain_distance_beats_chance_there_is_a_distance(kind, d, seed):
    points, index, answers = judged(kind, 90, d, eigenvalues=np.full(d, 0.6 / d), seed=seed)
    learner = LEARNERS[kind]().fit(cf.Tuples(points, index), answers)
    baseline = learner.baseline_
    assert learner.metric_.rank > 0
    assert baseline.learned_loss <= baseline.plain_loss + baseline.standard_error


@pytest.mark.parametrize("seed", range(3))
def test_rare_levels_at_random_are_no_problem(seed):
    rng = np.random.default_rng(seed)
    learner = cf.OrdinalMetricLearner()
    learner.fit(rng.standard_normal((60, 2, 3)), rng.choice(4, 60, p=[0.6, 0.2, 0.1, 0.1]))
    assert np.all(np.diff(learner.thresholds_) > 0.0)


@kinds
@pytest.mark.parametrize("seed", range(3))
def test_labels_at_random_do_little_harm(kind, seed):
    """More than half are close, so that the model without a distance is right."""
    points, index, _ = judged(kind, 150, seed=seed)
    shares = {"close/far": [0.65, 0.35], "levels": [0.6, 0.2, 0.1, 0.1], "comparisons": [0.5, 0.5]}[kind]
    answers = np.random.default_rng(seed).choice(len(shares), 150, p=shares)
    learner = LEARNERS[kind]().fit(cf.Tuples(points, index), 2 * answers - 1 if kind == "comparisons" else answers)
    new, others, _ = judged(kind, 1000, seed=9)
    loss = -np.mean(np.log(learner.predict_proba(cf.Tuples(new, others))) @ shares)
    assert loss < -np.sum(shares * np.log(shares)) + 0.15


@kinds
def test_what_can_be_learned_is_better_than_the_plain_distance(kind):
    points, index, answers = judged(kind, 500)
    learner = LEARNERS[kind]().fit(cf.Tuples(points, index), answers)
    assert learner.baseline_.is_better
    assert learner.baseline_.learned_accuracy > learner.baseline_.plain_accuracy
    assert not learner.choice_.is_plain
    assert learner.certificate_.converged
    tried = learner.choice_.table
    assert all(row.loss >= min(other.loss for other in tried) and row.standard_error >= 0.0 for row in tried)


def test_the_metric_of_fewer_points_than_columns_has_a_centre():
    points, index, answers = judged("close/far", 400, 30, n_points=20, eigenvalues=(3.0, 2.0))
    learner = cf.LinearMetricLearner().fit(cf.Tuples(points, index), answers)
    assert "zero" not in {row.prior for row in learner.choice_.table}


@pytest.mark.parametrize("seed", range(5))
def test_some_direction_is_left_of_weak_signals(seed):
    points, index, answers = judged("close/far", 60, 8, eigenvalues=(0.2,), flips=0.3, seed=seed)
    assert cf.LinearMetricLearner(prior="zero").fit(cf.Tuples(points, index), answers).metric_.rank > 0


def test_repeated_judgements_do_not_count_for_the_calibration():
    points, index, answers = judged("close/far", 80, n_points=60)
    margins = np.random.default_rng(0).standard_normal((80, 1)) + 0.5 * answers[:, None]
    logistic, found = NOISES["logistic"], []
    for repeats in (1, 5):
        X = cf.Tuples(points, np.tile(index, (repeats, 1)))
        search = searched(cf.LinearMetricLearner(), X, np.tile(answers, repeats))
        everyone = np.ones(80 * repeats, dtype=bool)
        found.append(search.calibrate(np.tile(margins, (repeats, 1)), logistic, 0.0, rows=everyone)[0].scale)
    assert found[0] == pytest.approx(found[1], rel=1e-3)
    assert found[0] != pytest.approx(1.0, rel=0.05)


def test_one_answer_tells_nothing_about_flips():
    rng = np.random.default_rng(0)
    points, index, _ = judged("close/far", 60, 3)
    answers = np.where(np.arange(60) < 2, 1, -1)
    assert cf.LinearMetricLearner().fit(cf.Tuples(points, index), rng.permutation(answers)).flip_rate_ == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_flips_are_found_where_there_are_some(seed):
    points, index, answers = judged("close/far", 1500, n_points=400, eigenvalues=(6.0, 3.0), flips=0.15, seed=seed)
    found = cf.LinearMetricLearner().fit(cf.Tuples(points, index), answers)
    assert 0.1 < found.flip_rate_ < 0.2
    points, index, answers = judged("close/far", 1500, n_points=400, eigenvalues=(6.0, 3.0), seed=seed)
    none = cf.LinearMetricLearner().fit(cf.Tuples(points, index), answers)
    assert none.flip_rate_ < 0.02


def test_rank_and_noise_are_chosen_if_asked():
    points, index, answers = judged("close/far", 600)
    X = cf.Tuples(points, index)
    ranked = cf.LinearMetricLearner(rank="auto").fit(X, answers)
    assert ranked.rank_ == ranked.choice_.rank == ranked.metric_.rank == 2
    assert ranked.choice_.prior == "zero"
    heard = cf.LinearMetricLearner("auto").fit(X, answers)
    assert heard.metric_.noise.name == heard.choice_.noise
    assert {row.noise for row in heard.choice_.table} == set(NOISES)


# The same judgements, in any form


FORMS = {
    "pairs": lambda points, index: (points[index], None),
    "differences and ids": lambda points, index: (points[index[:, 0]] - points[index[:, 1]], index),
    "single precision": lambda points, index: (cf.Tuples(points.astype(np.float32), index), None),
}


@pytest.fixture(scope="module")
def reference():
    points, index, answers = judged("close/far", 300)
    return cf.LinearMetricLearner().fit(cf.Tuples(points, index), answers), points, index, answers


def assert_same_choice(learner, reference, atol=1e-6):
    choice, expected = learner.choice_, reference.choice_
    assert [row[:5] for row in choice.table] == [pytest.approx(row[:5]) for row in expected.table]
    assert (choice.held_out, choice.n_held_out) == (expected.held_out, expected.n_held_out)
    np.testing.assert_allclose(learner.metric_.matrix, reference.metric_.matrix, rtol=0, atol=atol)


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_pairs_does_not_matter(form, reference):
    expected, points, index, answers = reference
    data, groups = FORMS[form](points, index)
    learner = cf.LinearMetricLearner().fit(data, answers, groups=groups)
    assert_same_choice(learner, expected, 1e-5 if form == "single precision" else 1e-6)


def test_pairs_of_a_cluster_are_the_same(reference):
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    expected, points, index, answers = reference
    lazy = da.from_array(points[index], chunks=(70, 2, 4)), da.from_array(answers, chunks=70)
    assert_same_choice(cf.LinearMetricLearner().fit(*lazy), expected)


def test_pairs_of_a_file_are_the_same(reference, tmp_path):
    expected, points, index, answers = reference
    np.save(tmp_path / "pairs.npy", points[index[:, 0]] - points[index[:, 1]])
    with cf.open_pairs(tmp_path / "pairs.npy") as opened:
        assert_same_choice(cf.LinearMetricLearner().fit(opened, answers, groups=index), expected)


def test_pairs_of_torch_are_the_same(reference):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    expected, points, index, answers = reference
    assert_same_choice(cf.LinearMetricLearner().fit(torch.asarray(points[index]), answers), expected)


def test_weights_of_zero_are_absent_and_equal_ones_do_not_matter(reference):
    expected, points, index, answers = reference
    weights = np.append(np.full(300, 2.5), np.zeros(40))
    data = cf.Tuples(points, np.vstack([index, index[:40]]))
    assert_same_choice(cf.LinearMetricLearner().fit(data, np.append(answers, -answers[:40]), weights), expected)


def test_units_of_columns_do_not_matter_where_they_differ_much():
    points, index, answers = judged("close/far")
    units = np.array([1e-4, 1.0, 1e3, 1e5])
    plain, other = (
        cf.LinearMetricLearner(prior="standardized").fit(cf.Tuples(points * unit, index), answers)
        for unit in (np.ones(4), units)
    )
    matrix = units[:, None] * other.metric_.matrix * units
    np.testing.assert_allclose(matrix, plain.metric_.matrix, rtol=0, atol=1e-5)


# The problem around a centre


def losses_of(kind, squared, thresholds, answers):
    """-log P of each answer with logistic noise, as in the definition."""
    if kind != "levels":
        return np.logaddexp(0.0, -answers * (squared - (0.0 if kind == "comparisons" else thresholds[0])))
    ends = np.concatenate([[-np.inf], thresholds, [np.inf]])
    return -np.log(expit(squared - ends[answers]) - expit(squared - ends[answers + 1]))


def independent_optimum(kind, legs, answers, weights, alpha):
    """The least mean loss + alpha tr R over M = c I + R, the thresholds, c >= 0 and R = A A', by L-BFGS."""
    d, n_thresholds = legs.shape[2], {"close/far": 1, "levels": 3, "comparisons": 0}[kind]
    signs = np.array([-1.0, 1.0]) if kind == "comparisons" else np.ones(1)

    def value(x):
        factor, steps, centre = x[: d * d].reshape(d, d), x[d * d : -1], x[-1]
        squared = (np.sum((legs @ factor) ** 2, axis=2) + centre * np.sum(legs**2, axis=2)) @ signs
        return weights @ losses_of(kind, squared, np.cumsum(steps), answers) + alpha * np.sum(factor**2)

    rng = np.random.default_rng(0)
    bounds = [(None, None)] * (d * d) + [(0.0, None)] * min(n_thresholds, 1) + [(1e-6, None)] * (n_thresholds - 1)
    start = np.concatenate([0.5 * rng.standard_normal(d * d), np.ones(n_thresholds), [0.1]])
    options = {"maxiter": 5000, "maxfun": 200_000, "ftol": 1e-15, "gtol": 1e-9}
    return minimize(value, start, jac="3-point", method="L-BFGS-B", bounds=[*bounds, (0.0, None)], options=options).fun


@kinds
@pytest.mark.parametrize("prior", ["euclidean", "standardized"])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_certificate_is_that_of_the_metric_around_a_centre(kind, prior, is_weighted):
    points, index, answers = judged(kind, 150, 3, seed=2)
    weights = np.random.default_rng(0).integers(1, 4, 150).astype(float) if is_weighted else np.ones(150)
    shares = weights / weights.sum()
    legs = np.stack([points[index[:, 0]] - points[index[:, k]] for k in range(1, index.shape[1])], axis=1)
    # The unit is that of the mean squares of columns: of comparisons, those of both legs.
    mean_squares = np.einsum("i,ijk->k", shares, legs**2) / legs.shape[1]
    unit = np.sqrt(np.full(3, mean_squares.mean()) if prior == "euclidean" else mean_squares)
    learner = LEARNERS[kind](alpha=0.01, prior=prior, flip_rate=0.0, tol=1e-8)
    certificate = learner.fit(cf.Tuples(points, index), answers, weights).certificate_
    optimum = independent_optimum(kind, legs / unit, answers, shares, 0.01)
    assert certificate.converged
    assert certificate.objective == pytest.approx(optimum, abs=1e-6)
    assert certificate.lower_bound <= optimum + 1e-7
    scaled = unit[:, None] * learner.metric_.matrix * unit
    rest = np.linalg.eigvalsh(scaled)
    assert certificate.objective - certificate.loss == pytest.approx(0.01 * np.sum(rest - rest[0]), abs=1e-4)


MIXED = {
    "close/far": {},
    "levels": {},
    "comparisons": {},
    "close/far with comparisons": {"comparisons": True},
    "levels with comparisons": {"comparisons": True},
    "close/far of annotators": {"annotators": True},
    "levels of annotators": {"annotators": True},
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("flip_rate", [0.0, 0.1])
@pytest.mark.parametrize("mixed", MIXED)
def test_derivatives_around_a_centre_are_those_of_the_loss(mixed, flip_rate, noise):
    kind = mixed.split(" ")[0]
    points, index, answers = judged(kind, 120, 3)
    learner, more = LEARNERS[kind](), {}
    if "comparisons" in MIXED[mixed]:
        _, triplets, order = judged("comparisons", 50, 3, seed=0)
        more["comparisons"] = (points[triplets], order)
    if "annotators" in MIXED[mixed]:
        more["annotators"] = np.arange(120) % 4
    judgements = learner.read(points[index], answers, **more)
    settings = Settings(alpha=0.1, prior="standardized", flip_rate=flip_rate)
    prepared = UnitFreeProblem.of(judgements, settings, finds_null=False)
    likelihood = prepared.likelihood(NOISES[noise], width=0.7, flips=flips_of(settings, judgements))
    problem = Problem.of(prepared.rows, likelihood)

    rng = np.random.default_rng(1)
    factor = rng.standard_normal((3, 3))
    n_thresholds = len(likelihood.least) - 1
    thresholds = np.append(np.cumsum(rng.uniform(0.3, 1.0, n_thresholds)), 0.7)
    step, shift = rng.standard_normal((3, 3)), rng.standard_normal(n_thresholds + 1)
    step = step + step.T

    def at(length, order=1):
        matrix = factor @ factor.T + length * step
        return problem.evaluate(prepared.rows.forms(matrix), thresholds + length * shift, order=order)

    def gradient(evaluation):
        return prepared.rows.outer(evaluation.margin_gradient)

    def along(evaluation):
        return np.sum(gradient(evaluation) * step) + evaluation.slopes @ shift

    width = 1e-5
    ahead, behind, here = at(width), at(-width), at(0.0, order=2)
    assert along(here) == pytest.approx((ahead.loss - behind.loss) / (2 * width), rel=1e-6, abs=1e-8)
    curvature = here.curvature
    image, slopes = curvature.product(prepared.rows, step, shift)
    if not flip_rate:  # with flips the curvature is the Fisher information, as the loss is not convex
        change = (gradient(ahead) - gradient(behind)) / (2 * width)
        np.testing.assert_allclose(image, change, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(slopes, (ahead.slopes - behind.slopes) / (2 * width), rtol=1e-4, atol=1e-6)
    whole = curvature.hessian(prepared.rows) @ np.append(packed.pack(step), shift)
    np.testing.assert_allclose(whole, np.append(packed.pack(image), slopes), rtol=1e-9, atol=1e-10)
    basis = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    fourth, sums = curvature.rotated(prepared.rows, basis)
    for j in range(3):
        image, slopes = curvature.product(prepared.rows, np.outer(basis[:, j], basis[:, j]), 0.0 * shift)
        np.testing.assert_allclose(fourth[j], np.einsum("ij,ik,kj->j", basis, image, basis), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(sums[j], slopes, rtol=1e-8, atol=1e-10)


# The plain distance beside what is learned


@kinds
def test_the_baseline_is_that_of_the_same_held_out_judgements(kind):
    points, index, answers = judged(kind, 200)
    learner = LEARNERS[kind](alpha=0.05, prior="zero", flip_rate="auto").fit(cf.Tuples(points, index), answers)
    search = searched(learner, cf.Tuples(points, index), answers)
    legs = np.stack([points[index[:, 0]] - points[index[:, k]] for k in range(1, index.shape[1])], axis=1)
    scales = np.sqrt(np.mean(legs**2, axis=(0, 1)))
    signs = np.array([-1.0, 1.0]) if kind == "comparisons" else np.ones(1)
    losses = {}
    for prior, unit in (("euclidean", 1.0), ("standardized", scales)):
        squares = np.sum((legs / unit) ** 2, axis=2)
        lengths = squares / np.mean(squares) @ signs
        margins, times = np.zeros((200, max(search.judgements.n_thresholds, 1))), np.zeros(200)
        for train, test in search.splits:
            centre, thresholds = fitted_threshold(kind, lengths[train], answers[train], price=0.1 / 200)
            margins[test] += centre * lengths[test, None] - (thresholds if len(thresholds) else 0.0)
            times[test] += 1
        held_out = times > 0
        margins = margins[held_out] / times[held_out, None]
        said = answers[held_out]
        if kind == "levels":
            padded = np.hstack([np.full((len(said), 1), np.inf), margins, np.full((len(said), 1), -np.inf)])
            rows = np.arange(len(said))
            loss = -np.log(expit(padded[rows, said]) - expit(padded[rows, said + 1]))
            right = np.sum(margins >= 0.0, axis=1) == said
        else:
            loss, right = np.logaddexp(0.0, -said * margins[:, 0]), (margins[:, 0] >= 0.0) == (said > 0)
        losses[prior] = np.mean(loss), np.mean(right)
    baseline = learner.baseline_
    assert baseline.n_held_out == learner.choice_.n_held_out == np.sum(held_out)
    assert baseline.plain_loss == pytest.approx(losses[baseline.plain][0], abs=1e-5)
    assert baseline.plain_accuracy == pytest.approx(losses[baseline.plain][1], abs=0.011)
    shares = np.unique(said, return_counts=True)[1] / len(said)
    guess = kind == "comparisons"
    assert baseline.majority_accuracy == pytest.approx(0.5 if guess else shares.max())
    assert baseline.majority_loss == pytest.approx(np.log(2.0) if guess else -np.sum(shares * np.log(shares)))
    assert baseline.gain == pytest.approx(baseline.plain_loss - baseline.learned_loss)
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = baseline.to_frame()
    np.testing.assert_allclose(frame["accuracy"].iloc[1:], [baseline.plain_accuracy, baseline.learned_accuracy])
    assert list(learner.choice_.to_frame()["loss"]) == [row.loss for row in learner.choice_.table]


def test_tables_without_pandas_say_what_to_use(reference, monkeypatch):
    learner = reference[0]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"to_frame needs pandas. Install pandas, or use table\."):
        learner.choice_.to_frame()
    with pytest.raises(ImportError, match=r"to_frame needs pandas. Install pandas, or use summary\(\)\."):
        learner.baseline_.to_frame()


def fitted_threshold(kind, lengths, answers, price):
    """The best multiple >= 0 of these squared lengths, at a price, and thresholds >= 0."""
    n_thresholds = {"close/far": 1, "levels": 3, "comparisons": 0}[kind]

    def value(x):
        return np.mean(losses_of(kind, x[0] * lengths, np.cumsum(x[1:]), answers)) + price * x[0]

    bounds = [(0.0, None)] * min(1 + n_thresholds, 2) + [(1e-9, None)] * max(n_thresholds - 1, 0)
    found = minimize(value, np.ones(1 + n_thresholds), jac="3-point", method="L-BFGS-B", bounds=bounds, tol=1e-14)
    return found.x[0], np.cumsum(found.x[1:])


@pytest.mark.parametrize("noise", NOISES.values(), ids=list(NOISES))
@pytest.mark.parametrize("rate", [0.0, 0.2])
@pytest.mark.parametrize("n_thresholds", [1, 3])
def test_slopes_in_margins_are_finite_differences(noise, rate, n_thresholds):
    rng = np.random.default_rng(0)
    codes = np.arange(40) % (n_thresholds + 1)
    margins = rng.normal(0.0, 3.0, (40, 1)) - np.arange(n_thresholds)
    _, slopes = choose._terms(noise, margins, codes, rate)
    for place in range(n_thresholds):
        step = 1e-6 * np.eye(n_thresholds)[place]
        high, low = (choose._terms(noise, margins + sign * step, codes, rate)[0] for sign in (1.0, -1.0))
        np.testing.assert_allclose(slopes[:, place], (high - low) / 2e-6, rtol=1e-5, atol=1e-8)


def test_calibrated_levels_have_the_least_penalised_loss():
    points, index, answers = judged("levels", 300, 3)
    search = searched(cf.OrdinalMetricLearner(), cf.Tuples(points, index), answers)
    rng, noise = np.random.default_rng(0), NOISES["logistic"]
    n, prior = search.judgements.n_thresholds, (1e3, 1e3)
    margins = search.judgements.codes[:, None] + rng.normal(0.0, 1.0, (300, 1)) - 0.5 - np.arange(n)
    found, loss = search.calibrate(margins, noise, 0.1, prior)
    shares = search.weights[search.tested] / search.weights[search.tested].sum()

    def loss_at(scale, shifts):
        return float(shares @ search._losses(scale * margins - shifts, noise, 0.1))

    assert loss == pytest.approx(loss_at(found.scale, np.array(found.shifts)), rel=1e-12)
    for step in 1e-2 * np.vstack([np.eye(1 + n), -np.eye(1 + n)]):
        assert loss < loss_at(found.scale + step[0], np.array(found.shifts) + step[1:])
