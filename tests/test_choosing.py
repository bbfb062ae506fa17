"""Choosing questions: the posterior, batches, invariances, kinds of judgement, and many candidates."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import entr, expit

import closefar as cf
from closefar import packed
from closefar.fitting import Fit
from closefar.questions.choosing import AnswerModel, Posterior, _Known, choose_batch, common_coordinates, training_of
from closefar.rows import rows_of
from paper_estimator import PAPER

D = 4


@pytest.fixture(scope="module")
def pairs():
    return cf.datasets.make_pairs(240, D, rank=2, wrong_share=0.1, random_state=0)


@pytest.fixture(scope="module")
def learner(pairs):
    return cf.LinearMetricLearner(flip_rate=0).fit(pairs.pairs, pairs.labels)


@pytest.fixture(scope="module")
def candidates():
    return np.random.default_rng(1).standard_normal((300, D))


def parts_of(learner, candidates, make=Posterior.of):
    fit = Fit.of(learner)
    rows = rows_of(candidates)
    posterior = make(fit, rows, common_coordinates(training_of(fit), rows))
    return posterior, rows, posterior.margins(rows), AnswerModel(fit.metric.noise, 0.05)


def derivatives(posterior, z):
    """Of each margin in (packed M, tau), from outer products."""
    y = z @ posterior.moves.basis
    return np.array([np.append(packed.pack(np.outer(each, each)), -1.0) for each in y])


def test_precision_is_the_curvature_of_the_likelihood_and_a_prior(learner, pairs, candidates):
    posterior, _, _, _ = parts_of(learner, candidates, Posterior.around)
    along = derivatives(posterior, pairs.pairs[:, 0] - pairs.pairs[:, 1])
    p = learner.predict_proba(pairs.pairs)[:, 1]
    prior = np.linalg.inv(posterior.covariance) - along.T @ (along * (p * (1.0 - p))[:, None])
    width = np.linalg.norm(posterior.moves.values) / np.sqrt(packed.packed_size(D))
    expected = np.append(np.full(packed.packed_size(D), width**-2.0), (width**2 * D * (D + 2.0)) ** -1.0)
    np.testing.assert_allclose(prior, np.diag(expected), atol=1e-7 * np.abs(prior).max())


def test_coordinates_show_the_metric_and_have_unit_second_moment(learner, pairs, candidates):
    posterior, _, means, _ = parts_of(learner, candidates, Posterior.around)
    y = candidates @ posterior.moves.basis
    np.testing.assert_allclose(y**2 @ posterior.moves.values - learner.metric_.threshold, means[:, 0], atol=1e-8)
    both = np.vstack([candidates, pairs.pairs[:, 0] - pairs.pairs[:, 1]]) @ posterior.moves.basis
    np.testing.assert_allclose(both.T @ both / len(both), np.eye(D), atol=1e-8)


def test_utilities_are_those_of_draws_from_the_posterior(learner, candidates):
    posterior, _, means, _ = parts_of(learner, candidates)
    _, utilities = cf.choose_pairs(learner, candidates, 1, return_utilities=True)
    centre, rng = np.zeros(len(posterior.covariance)), np.random.default_rng(2)
    draws = rng.multivariate_normal(centre, posterior.covariance, 40_000)
    probabilities = 0.05 + 0.9 * expit(means[:20, 0] + draws @ derivatives(posterior, candidates[:20]).T)
    mean = probabilities.mean(axis=0)
    expected = entr(mean) + entr(1.0 - mean) - (entr(probabilities) + entr(1.0 - probabilities)).mean(axis=0)
    np.testing.assert_allclose(utilities[0, :20], expected, rtol=0.05, atol=1e-3)


def test_a_choice_adds_its_expected_information(learner, candidates):
    posterior, rows, means, answers = parts_of(learner, candidates)
    known, along = _Known(posterior, rows, means), derivatives(posterior, candidates)
    np.testing.assert_allclose(known.along(7), along[7:8], atol=1e-10)
    np.testing.assert_allclose(
        known.covariances[:, 0, 0], np.einsum("ni,ij,nj->n", along, posterior.covariance, along), rtol=1e-8
    )
    information = answers.expected_fisher(known.means[7], known.covariances[7])
    known.learn(known.along(7), known.covariances_with(known.along(7)), information)
    after = np.linalg.inv(np.linalg.inv(posterior.covariance) + information * np.outer(along[7], along[7]))
    np.testing.assert_allclose(known.covariances[:, 0, 0], np.einsum("ni,ij,nj->n", along, after, along), rtol=1e-6)


def test_gains_of_before_are_bounds_that_change_no_choice(learner, candidates):
    many = np.repeat(candidates, 2, axis=0) * np.linspace(0.5, 2.0, 600)[:, None]
    posterior, rows, means, answers = parts_of(learner, many)
    quick, _ = choose_batch(posterior, rows, means, answers, 15)
    full, _ = choose_batch(posterior, rows, means, answers, 15, with_utilities=True)
    assert quick.tolist() == full.tolist()


@pytest.mark.parametrize("method", ["information", "uncertainty", "random"])
def test_utilities_are_as_in_scikit_activeml(learner, candidates, method):
    chosen, utilities = cf.choose_pairs(learner, candidates, 6, method=method, random_state=0, return_utilities=True)
    assert utilities.shape == (6, 300)
    assert len(set(chosen.tolist())) == 6
    for place, best in enumerate(chosen):
        assert utilities[place, best] == np.nanmax(utilities[place])
        assert np.flatnonzero(np.isnan(utilities[place])).tolist() == sorted(chosen[:place].tolist())
    again = cf.choose_pairs(learner, candidates, 6, method=method, random_state=0)
    assert again.tolist() == chosen.tolist()
    assert again.dtype.kind == "i"


def test_uncertainty_is_the_entropy_of_the_answer(learner, candidates):
    chosen, utilities = cf.choose_pairs(learner, candidates, 5, method="uncertainty", return_utilities=True)
    np.testing.assert_allclose(utilities[0], entr(learner.predict_proba(candidates)).sum(axis=1), rtol=1e-9)
    assert chosen.tolist() == np.argsort(np.abs(learner.decision_function(candidates)))[:5].tolist()


def test_random_questions_are_uniform(learner, candidates):
    rng = np.random.RandomState(0)
    counts = sum(
        np.bincount(cf.choose_pairs(learner, candidates[:10], 2, method="random", random_state=rng), minlength=10)
        for _ in range(1000)
    )
    assert np.sum((counts - 200.0) ** 2 / 200.0) < 25.0


def kind_of_learner(kind, pairs, U):
    """A learner fitted to data in the units U, and what it may be asked about."""
    rng = np.random.default_rng(3)
    points = rng.standard_normal((80, D))
    z = pairs.pairs[:, 0] - pairs.pairs[:, 1]
    size = 3 if kind == "comparisons" else 2
    asked = cf.Tuples(points @ U, cf.Tuples.sample(points, 200, size=size, random_state=4).index)
    if kind == "comparisons":
        index = cf.Tuples.sample(points, 150, size=3, random_state=5).index
        triplets = points[index]
        q = [np.sum((triplets[:, 0] - triplets[:, k])[:, :2] ** 2, axis=1) for k in (1, 2)]
        answers = np.where(q[1] - q[0] + rng.logistic(size=150) >= 0, 1, -1)
        return cf.ComparisonMetricLearner(prior="zero").fit(cf.Tuples(points @ U, index), answers), asked
    if kind == "levels":
        levels = np.digitize(np.sum(z[:, :2] ** 2, axis=1) + 0.5 * rng.logistic(size=len(z)), [1.0, 3.0])
        return cf.OrdinalMetricLearner(prior="zero").fit(z @ U, levels), asked
    options = {"few": PAPER, "penalty": {"alpha": 0.01}, "flips": {"flip_rate": 0.1}, "many": PAPER}[kind]
    n = 30 if kind == "few" else 240
    if kind == "many":
        pairs = cf.datasets.make_pairs(3000, D, random_state=0)
        z, n = pairs.pairs[:, 0] - pairs.pairs[:, 1], 3000
    return cf.LinearMetricLearner(**{"prior": "zero", **options}).fit(z[:n] @ U, pairs.labels[:n]), asked


@pytest.mark.parametrize("kind", ["few", "penalty", "flips", "levels", "comparisons", "many"])
def test_units_do_not_matter(kind, pairs):
    U = np.array([[1e3, 0.5, 0.0, 2.0], [0.0, 1e-3, 0.1, 0.0], [0.0, 0.0, 5.0, 1.0], [0.0, 0.0, 0.3, 7.0]])
    if kind != "many":  # a penalty measures M in the units of each column
        U = np.diag(np.diag(U))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few labels are separable
        (plain, asked), (other, in_units) = (kind_of_learner(kind, pairs, units) for units in (np.eye(D), U))
    chosen, utilities = cf.choose_pairs(plain, asked, 5, return_utilities=True)
    found, others = cf.choose_pairs(other, in_units, 5, return_utilities=True)
    np.testing.assert_allclose(others[0], utilities[0], rtol=0.02, atol=1e-4)
    assert found[0] == chosen[0]


@pytest.mark.parametrize("kind", ["few", "penalty", "flips", "levels", "comparisons"])
def test_the_order_of_candidates_does_not_matter(kind, pairs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner, asked = kind_of_learner(kind, pairs, np.eye(D))
    order = np.random.default_rng(5).permutation(len(asked))
    assert order[cf.choose_pairs(learner, asked[order], 8)].tolist() == cf.choose_pairs(learner, asked, 8).tolist()


@pytest.mark.parametrize("kind", ["penalty", "levels", "comparisons"])
def test_the_same_question_is_not_asked_twice_while_others_are_left(kind, pairs):
    learner, asked = kind_of_learner(kind, pairs, np.eye(D))
    swapped = asked.index[:20, [0, 2, 1] if kind == "comparisons" else [1, 0]]
    both = cf.Tuples(asked.points, np.vstack([asked.index[:20], swapped, asked.index[:20]]))
    chosen = cf.choose_pairs(learner, both, 60)
    assert sorted(chosen.tolist()) == list(range(60))
    assert len(set((chosen[:20] % 20).tolist())) == 20


@pytest.mark.parametrize("kind", ["penalty", "levels", "comparisons"])
def test_of_many_candidates_a_sample_is_looked_at(kind, pairs):
    """The sample is the same each time, and the choice is the one among its candidates."""
    learner, asked = kind_of_learner(kind, pairs, np.eye(D))
    first, second, third = np.random.default_rng(8).permuted(np.tile(np.arange(80), (9000, 1)), axis=1)[:, :3].T
    many = cf.Tuples(asked.points, np.column_stack([first, second, third][: asked.shape[1]]))
    chosen, utilities = cf.choose_pairs(learner, many, 10, return_utilities=True)
    seen = np.isfinite(utilities[0])
    assert seen.sum() == (2048 if kind == "levels" else 8192)
    assert chosen.tolist() == cf.choose_pairs(learner, many, 10).tolist()
    rows = np.flatnonzero(seen)
    alone, exact = cf.choose_pairs(learner, many[rows], 10, return_utilities=True)
    assert rows[alone].tolist() == chosen.tolist()
    np.testing.assert_allclose(utilities[:, rows], exact)
    assert abs(rows.mean() - 4500) < 300


def test_enormous_candidates_are_no_error(learner):
    z = np.random.default_rng(10).standard_normal((500, D))
    z[3] *= 1e12
    assert len(cf.choose_pairs(learner, z, 5)) == 5


def test_every_form_of_candidates(learner, pairs):
    z = pairs.pairs[:, 0] - pairs.pairs[:, 1]
    expected = cf.choose_pairs(learner, pairs.pairs, 5).tolist()
    index = np.arange(480).reshape(240, 2)
    forms = [z, pairs.pairs.tolist(), cf.Tuples(pairs.pairs.reshape(480, D), index), pd.DataFrame(z)]
    for form in forms:
        assert cf.choose_pairs(learner, form, 5).tolist() == expected
    assert len(cf.choose_pairs(learner, z.astype(np.float32), 5)) == 5


@pytest.mark.parametrize("noise", cf.noise.NOISES)
@pytest.mark.parametrize("rate", [0.0, (0.05, 0.1), "estimate"], ids=["none", "two", "estimated"])
def test_all_noises_and_flips(noise, rate, pairs, candidates):
    learner = cf.LinearMetricLearner(noise=noise, flip_rate=rate).fit(pairs.pairs, pairs.labels)
    _, utilities = cf.choose_pairs(learner, candidates, 3, return_utilities=True)
    assert np.nanmax(utilities) < np.log(2.0)
    assert np.nanmin(utilities) >= 0.0


def test_annotators_and_comparisons_teach_as_well(pairs, candidates):
    who = np.tile(["ana", "ben", "cem"], 80)
    z = np.random.default_rng(11).standard_normal((60, 3, D))
    q = np.sum((z[:, 0] - z[:, 2])[:, :2] ** 2 - (z[:, 0] - z[:, 1])[:, :2] ** 2, axis=1)
    answers = np.where(q + np.random.default_rng(12).logistic(size=60) >= 0, 1, -1)
    plain = cf.LinearMetricLearner(alpha=0.01).fit(pairs.pairs, pairs.labels)
    mixed = cf.LinearMetricLearner(alpha=0.01).fit(pairs.pairs, pairs.labels, comparisons=(z, answers))
    judged = cf.LinearMetricLearner(alpha=0.01, flip_rate="estimate").fit(pairs.pairs, pairs.labels, annotators=who)
    traces = [np.trace(parts_of(each, candidates, Posterior.around)[0].covariance) for each in (plain, mixed)]
    assert traces[1] < traces[0]
    assert len(cf.choose_pairs(judged, candidates, 4)) == 4
    assert len(cf.choose_pairs(mixed, z, 4)) == 4
    with pytest.raises(ValueError, match="2, d"):
        cf.choose_pairs(plain, z, 4)


@pytest.mark.filterwarnings("ignore::closefar.IdentifiabilityWarning")
def test_directions_that_no_judgement_has_seen_are_asked_about(pairs):
    """A fit has M = 0 along them; a rank of M that is too low would never be found out."""
    z = pairs.pairs[:, 0] - pairs.pairs[:, 1]
    z[:, 3] = 0.0
    learner = cf.LinearMetricLearner(alpha=0.01).fit(z, pairs.labels)
    asked = np.random.default_rng(13).standard_normal((300, D))
    asked[:150, 3] = 0.0
    assert np.mean(cf.choose_pairs(learner, asked, 10) >= 150) > 0.5


@pytest.mark.filterwarnings("ignore::closefar.IdentifiabilityWarning")
def test_many_columns_are_reduced():
    rng = np.random.default_rng(14)
    z = rng.standard_normal((90, 80))
    labels = np.where(np.sum(z[:, :3] ** 2, axis=1) > 2.5, 1, -1)
    learner = cf.LinearMetricLearner(alpha=0.1).fit(z, labels)
    assert len(cf.choose_pairs(learner, rng.standard_normal((100, 80)), 3)) == 3


def test_errors_say_what_to_do(learner, pairs, candidates):
    with pytest.raises(ValueError, match=r"from 1 to the number of candidates, 300; got 301\. Choose fewer"):
        cf.choose_pairs(learner, candidates, 301)
    with pytest.raises(ValueError, match="n must be a whole number"):
        cf.choose_pairs(learner, candidates, 1.5)
    with pytest.raises(ValueError, match="method must be one of 'information'"):
        cf.choose_pairs(learner, candidates, 3, method="entropy")
    with pytest.raises(ValueError, match="fit_origin"):
        cf.choose_pairs(
            cf.LinearMetricLearner(fit_origin=True, alpha=0.01).fit(pairs.pairs[:, 0], pairs.labels), candidates, 3
        )
    with pytest.raises(ValueError, match="Fit it again"):
        cf.choose_pairs(Fit.of(learner).without_judgements(), candidates, 3)
    with pytest.raises(ValueError, match=r"columns|features"):
        cf.choose_pairs(learner, candidates[:, :3], 3)
