"""Annotators: how strict they are, how often they answer at random, and what is said of them."""

import json

import numpy as np
import pytest

import closefar as cf
from closefar.datasets import solve_noise_scale
from closefar.fitting import AnnotatorVerdict, Settings, fit
from closefar.fitting.explain import kappas, same_pairs
from closefar.fitting.problem import _best_width
from closefar.noise import NOISES
from closefar.rows import Differences
from closefar.solve import Answers, Likelihood, RateOfEach
from paper_estimator import PAPER


def judged(seed=0, n_annotators=12, n=150, d=4, n_levels=2, spread=0.3, random=(3,), coins=None):
    """Judgements by annotators of different strictness, some of whom toss a coin, and the truth."""
    rng = np.random.default_rng(seed)
    noise, total = NOISES["logistic"], n * n_annotators
    z, factor = rng.standard_normal((total, d)), rng.standard_normal((d, 2))
    squared = np.sum((z @ factor) ** 2, axis=1)
    middle = np.median(squared)
    scale = solve_noise_scale(squared - middle, noise, 0.1)
    taus = np.quantile(squared, np.arange(1, n_levels) / n_levels) / scale
    who = rng.permutation(np.repeat(np.arange(n_annotators), n))
    strictness = spread * middle / scale * rng.standard_normal(n_annotators)
    felt = squared / scale - strictness[who] + noise.sample(total, rng)
    codes = np.sum(felt[:, None] >= taus, axis=1)
    tossed = np.isin(who, random)
    codes[tossed] = rng.choice(n_levels, tossed.sum(), p=coins)
    return z, codes, who, factor @ factor.T / scale, strictness


def error(matrix, truth):
    return np.linalg.norm(matrix / np.trace(matrix) - truth / np.trace(truth))


@pytest.mark.parametrize("n_levels", [2, 4])
def test_who_answers_at_random_is_named_and_does_not_spoil_the_metric(n_levels):
    z, codes, who, truth, strictness = judged(n_levels=n_levels, random=(3, 7))
    build = cf.LinearMetricLearner if n_levels == 2 else cf.OrdinalMetricLearner
    pooled = build().fit(z, codes)
    learner = build(flip_rate="estimate").fit(z, codes, annotators=who)
    table = learner.annotators_
    assert table.named("answers at random") == [3, 7]
    assert error(learner.metric_.matrix, truth) < 0.75 * error(pooled.metric_.matrix, truth)
    assert table.flip_rates[[3, 7]].min() > 0.75 * (n_levels - 1) / n_levels
    others = np.delete(np.arange(12), [3, 7])
    assert table.flip_rates[others].max() < 0.1
    assert np.corrcoef(table.strictness[others], strictness[others])[0, 1] > 0.97
    assert learner.certificate_.gap <= 1e-6
    assert "typical annotator" in learner.certificate_.status


@pytest.mark.parametrize("coins", [(0.5, 0.5), (0.2, 0.8)])
def test_they_are_named_without_flips_too(coins):
    z, codes, who, *_ = judged(1, random=(0, 5), coins=coins)
    table = cf.LinearMetricLearner(**PAPER).fit(z, codes, annotators=who).annotators_
    assert table.named(AnnotatorVerdict.AT_RANDOM) == [0, 5]
    assert table.flip_rates is None
    np.testing.assert_allclose(table.information[[0, 5]], 0.0, atol=0.35)


def test_odd_annotators_are_told_apart():
    z, codes, who, *_ = judged(2, n_annotators=8, n=250, spread=0.0, random=())
    codes[who == 1] = 1 - codes[who == 1]
    codes[who == 2] = 1
    rng = np.random.default_rng(0)
    careless = (who == 4) & (rng.random(len(who)) < 0.6)
    codes[careless] = rng.integers(0, 2, careless.sum())
    few = np.flatnonzero(who == 5)[6:]
    kept = np.setdiff1d(np.arange(len(who)), few)
    table = (
        cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0)
        .fit(z[kept], codes[kept], annotators=who[kept])
        .annotators_
    )
    assert [str(table.verdict_of(name)) for name in (1, 2, 4, 5, 6)] == [
        "answers the other way round",
        "always gives the same answer",
        "often answers at random",
        "too few judgements to tell",
        "typical",
    ]


def test_strict_and_lenient_annotators_are_told_apart():
    z, codes, who, truth, _ = judged(3, n_annotators=10, n=200, spread=0.0, random=())
    squared = np.einsum("ij,jk,ik->i", z, truth, z)
    middle = np.median(squared)
    noise = NOISES["logistic"].sample(len(z), np.random.default_rng(3))
    shifts = np.zeros(10)
    shifts[2], shifts[6] = 0.6 * middle, -0.6 * middle
    codes = (squared - shifts[who] + noise >= middle).astype(int)
    table = cf.LinearMetricLearner(**PAPER).fit(z, codes, annotators=who).annotators_
    assert table.named("stricter than most") == [2]
    assert table.named("more lenient than most") == [6]
    low, high = table.strictness_interval()[2]
    assert low < shifts[2] < high
    assert low > 0.0


def test_intervals_cover_the_true_strictness():
    covered = []
    for seed in range(6):
        z, codes, who, _, strictness = judged(10 + seed, random=())
        interval = cf.LinearMetricLearner(**PAPER).fit(z, codes, annotators=who).annotators_.strictness_interval()
        covered.append((interval[:, 0] <= strictness) & (strictness <= interval[:, 1]))
    assert 0.8 <= np.mean(covered) <= 1.0


def test_the_width_of_the_prior_is_estimated_or_given():
    z, codes, who, _, strictness = judged(4, n_annotators=30, n=80, random=())
    estimated = cf.LinearMetricLearner(**PAPER).fit(z, codes, annotators=who).annotators_
    assert estimated.width == pytest.approx(strictness.std(), rel=0.35)
    learner = cf.LinearMetricLearner(**PAPER)
    judgements = learner.read(z, codes, annotators=who)
    narrow = fit(judgements, Settings.of(learner, strictness_width=0.1)).annotators
    assert narrow.width == 0.1
    assert np.abs(narrow.strictness).max() < 0.2 * np.abs(estimated.strictness).max()
    # Relative to the typical annotator: with a free threshold the prior makes their sum zero.
    assert estimated.strictness.sum() == pytest.approx(0.0, abs=1e-3)


def test_annotators_who_do_not_differ_get_a_narrow_prior():
    z, codes, who, *_ = judged(5, n_annotators=20, n=150, spread=0.0, random=())
    table = cf.LinearMetricLearner(**PAPER).fit(z, codes, annotators=who).annotators_
    assert table.width < 0.4
    assert set(map(str, table.verdicts)) <= {"typical", "stricter than most", "more lenient than most"}


def test_the_width_maximises_the_marginal_likelihood():
    """Against a grid over the exact marginal likelihood of a normal model."""
    rng = np.random.default_rng(0)
    precisions, width = rng.uniform(2.0, 9.0, 25), 1.7
    measured = width * rng.standard_normal(25) + rng.standard_normal(25) / np.sqrt(precisions)
    at = 0.8
    shrunk = measured * precisions / (precisions + at**-2)
    widths = np.geomspace(0.1, 10.0, 2000)
    variances = widths[:, None] ** 2 + 1.0 / precisions
    likelihood = -0.5 * np.sum(np.log(variances) + measured**2 / variances, axis=1)
    prior = np.log(widths) - 2.0 * np.log1p(widths)
    best = widths[np.argmax(likelihood + prior)]
    assert _best_width(np.diag(precisions), shrunk, at, 1.0) == pytest.approx(best, rel=0.01)


def test_one_annotator_alone_is_the_typical_one():
    z, codes, who, *_ = judged(6, n_annotators=1, n=600, random=())
    learner = cf.LinearMetricLearner(**PAPER).fit(z, codes, annotators=who)
    plain = cf.LinearMetricLearner(**PAPER).fit(z, codes)
    assert learner.annotators_.strictness[0] == pytest.approx(0.0, abs=1e-3)
    np.testing.assert_allclose(learner.predict_proba(z), plain.predict_proba(z), atol=1e-3)


def test_predictions_are_for_the_typical_annotator_or_for_one():
    z, codes, who, *_ = judged(7, random=(3,))
    learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(z, codes, annotators=who)
    table = learner.annotators_
    margin = learner.decision_function(z)
    np.testing.assert_allclose(learner.decision_function(z, annotator=2), margin - table.strictness_of([2])[0])
    np.testing.assert_allclose(learner.decision_function(z, annotator=who), margin - table.strictness_of(who))
    assert np.abs(learner.predict_proba(z, annotator=3) - 0.5).max() < 0.1
    probabilities = learner.predict_proba(z, annotator=who)[np.arange(len(z)), codes]
    assert -np.mean(np.log(probabilities)) == pytest.approx(learner.certificate_.loss, abs=1e-9)
    with pytest.raises(ValueError, match="the annotator must be one of the 12 of the fit; got 99"):
        table.strictness_of([99])


@pytest.mark.parametrize("flip_rate", [0.0, 0.05, "two", "estimate"])
def test_weights_are_repeats(flip_rate):
    z, codes, who, *_ = judged(8, n_annotators=4, n=60, random=())
    weights = np.random.default_rng(0).integers(1, 3, len(z))
    repeated = np.repeat(np.arange(len(z)), weights)
    settings = {"flip_rate": flip_rate, "tol": 1e-8}
    one = cf.LinearMetricLearner(**PAPER | settings).fit(z, codes, weights, annotators=who)
    other = cf.LinearMetricLearner(**PAPER | settings).fit(z[repeated], codes[repeated], annotators=who[repeated])
    np.testing.assert_allclose(one.predict_proba(z), other.predict_proba(z), atol=2e-4)
    np.testing.assert_allclose(one.annotators_.strictness, other.annotators_.strictness, atol=5e-3)
    assert one.annotators_.verdicts == other.annotators_.verdicts


def test_units_do_not_matter():
    z, codes, who, *_ = judged(9, n_annotators=5, random=(2,))
    units = np.array([1e-6, 1.0, 1e3, 1e9])
    one, other = (
        cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(rows, codes, annotators=who)
        for rows in (z, z * units)
    )
    np.testing.assert_allclose(one.predict_proba(z), other.predict_proba(z * units), atol=1e-4)
    assert one.annotators_.verdicts == other.annotators_.verdicts


# The table


def test_the_table_in_all_its_forms():
    z, codes, who, *_ = judged(n_annotators=3, n=60, random=(1,))
    names = np.array(["<ann>", "bea", "cem"])[who]
    table = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(z, codes, annotators=names).annotators_
    lines = str(table).splitlines()
    assert (
        " ".join(lines[0].split()) == "annotator judgements strictness 95% interval flip rate agreement kappa verdict"
    )
    assert len(lines) == 4
    columns = table.to_dict()
    assert columns["annotator"] == ["<ann>", "bea", "cem"]
    assert columns["judgements"] == [60, 60, 60]
    assert columns["kappa"] == [None, None, None]
    json.dumps(columns)
    assert repr(table) == "AnnotatorTable(3 annotators)"
    frame = pytest.importorskip("pandas", reason="pandas is not installed") and table.to_frame()
    assert list(frame.columns) == list(columns)
    with pytest.raises(ValueError, match=r"the verdict must be one of 'typical', .*; got 'random'"):
        table.named("random")


def test_a_long_table_is_shortened():
    z, codes, who, *_ = judged(n_annotators=50, n=10, random=())
    text = str(cf.LinearMetricLearner(**PAPER).fit(z, codes, annotators=who).annotators_)
    assert text.splitlines()[-1] == "... and 10 more annotators"


def test_a_fit_without_annotators_has_no_table():
    z, codes, *_ = judged(n_annotators=2)
    with pytest.raises(AttributeError, match="annotators_ exists only after"):
        _ = cf.LinearMetricLearner(**PAPER).fit(z, codes).annotators_


# Agreement


def test_kappa_of_two_is_cohens():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    first = rng.integers(0, 4, 200)
    second = np.where(rng.random(200) < 0.6, first, rng.integers(0, 4, 200))
    pairs, who = np.tile(np.arange(200), 2), np.repeat([0, 1], 200)
    found = kappas(pairs, np.append(first, second), who, 3)
    expected = metrics.cohen_kappa_score(first, second, weights="quadratic")
    np.testing.assert_allclose(found[:2], expected)
    assert np.isnan(found[2])


def test_kappa_is_of_pairs_that_others_judged_too():
    pairs, codes, who = np.array([0, 0, 0, 1, 2, 2]), np.array([1, 1, 0, 1, 0, 0]), np.array([0, 0, 1, 0, 0, 1])
    found = kappas(pairs, codes, who, 2)
    # The first annotator answered pair 0 twice: each answer is compared with that of the other.
    assert found[0] == pytest.approx(1.0 - (2 / 3) / (2 / 3))
    assert np.isnan(kappas(pairs, np.ones(6, dtype=int), who, 2)).all()
    assert np.isnan(kappas(np.arange(6), codes, who, 2)).all()


def test_equal_pairs_are_recognised_in_either_order():
    points = np.random.default_rng(0).standard_normal((5, 3))
    index = np.array([[0, 1], [1, 0], [2, 3], [0, 1], [4, 4], [3, 2]])
    expected = np.array([0, 0, 1, 0, 2, 1])
    for data in (points[index], points[index][:, 0] - points[index][:, 1], cf.Tuples(points, index)):
        numbers = same_pairs(data)
        same = numbers[:, None] == numbers[None, :]
        np.testing.assert_array_equal(same, expected[:, None] == expected[None, :])


def test_repeated_judgements_are_compared():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((40, 3))
    index = np.array([(i, j) for i in range(40) for j in range(i)])[rng.permutation(780)[:200]]
    squared = np.sum((points[index[:, 0]] - points[index[:, 1]]) ** 2, axis=1)
    who = np.tile(np.arange(4), 200)
    rows = np.repeat(np.arange(200), 4)
    far = squared[rows] + NOISES["logistic"].sample(800, rng) >= np.median(squared)
    codes = np.where(who == 3, rng.integers(0, 2, 800), far)
    table = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(
        cf.Tuples(points, index[rows]), codes, annotators=who
    )
    kappa = table.annotators_.kappa
    assert kappa[:3].min() > 0.2 > abs(kappa[3])


# Rates of their own


def best_rates(right, who, n_annotators):
    """The likeliest rates of annotators whose answers, of two, have these probabilities if they are not at random."""
    n = len(right)
    likelihood = Likelihood(
        NOISES["logistic"], Answers.of(2), np.zeros(n, dtype=int), np.full(n, 1 / n), who, n_annotators
    )
    return RateOfEach.none(n_annotators, float(n)).best(likelihood, Differences(np.zeros((n, 1))), right)


def test_a_prior_does_not_pull_those_who_answer_at_random():
    rng = np.random.default_rng(0)
    right = np.where(rng.random(900) < 0.9, 0.95, 0.05)
    right[:300] = np.where(rng.random(300) < 0.5, 0.95, 0.05)
    found = best_rates(right, np.repeat([0, 1, 2], 300), 3)
    assert found.shares[0] > 0.85
    assert found.shares[1:3].max() < 0.12
    assert found.typical < 0.12  # nine in ten answers as expected, of which 95 % are, leave 11 % at random


def test_a_prior_does_not_make_the_shares_of_all_too_low():
    rng = np.random.default_rng(0)
    n_annotators, each = 20, 60
    n = n_annotators * each
    is_expected = np.where(rng.random(n) < 0.2, rng.random(n) < 0.5, rng.random(n) < 0.9)
    found = best_rates(np.where(is_expected, 0.9, 0.1), np.repeat(np.arange(n_annotators), each), n_annotators)
    assert found.shares[:-1].mean() == pytest.approx(0.2, abs=0.06)
    assert found.typical == pytest.approx(0.2, abs=0.06)


def test_the_typical_rate_is_that_of_annotators_without_judgements():
    rng = np.random.default_rng(0)
    right = np.where(rng.random(400) < 0.85, 0.95, 0.05)
    found = best_rates(right, np.repeat([0, 2], 200), 4)
    assert found.shares[[1, 3]].tolist() == [found.typical] * 2
    assert found.shares[4] == found.typical  # judgements by nobody
    assert found.typical == pytest.approx(found.shares[[0, 2]].mean(), abs=0.05)


def test_careless_annotators_are_found_beside_many_who_answer_at_random():
    """Without flips these make the metric smaller, so that it would expect less of careless ones than they know."""
    n, careless, at_random = 14, 3, 6
    data = cf.datasets.make_judgements(500 * n, 4, n_annotators=n, strictness_spread=0.3, random_state=0)
    names, rng = sorted(set(data.annotators.tolist())), np.random.default_rng(0)
    guessed = np.isin(data.annotators, names[:careless]) & (rng.random(500 * n) < 0.5)
    guessed |= np.isin(data.annotators, names[careless:][:at_random])
    labels = np.where(guessed, rng.choice(np.unique(data.labels), 500 * n), data.labels)
    table = cf.LinearMetricLearner(**PAPER).fit(data.tuples, labels, annotators=data.annotators).annotators_
    found = {name for name, verdict in zip(table.names, table.verdicts, strict=True) if "random" in str(verdict)}
    assert found == set(names[: careless + at_random])


def test_annotators_have_rates_of_their_own_around_a_centre_too():
    data = cf.datasets.make_pairs(800, 3, random_state=0)
    who = np.repeat(["ann", "bea", "cem", "dag"], 200)
    answers = np.where(who == "dag", np.random.default_rng(0).choice([-1, 1], 800), data.labels)
    learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.05, prior="euclidean")
    rates = learner.fit(data.pairs, answers, annotators=who).annotators_.flip_rates
    assert rates[:3].max() < 0.1
    assert rates[3] > 0.35
