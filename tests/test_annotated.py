"""Learners with annotators: predictions of a typical one and of those who are named."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import closefar as cf
from closefar.fitting import Settings, fit
from closefar.noise import Logistic
from paper_estimator import PAPER

NAMES = np.array(["ann", "bea", "cem", "dag"])
STRICTNESS = np.array([-1.0, -0.3, 0.3, 1.0])


def judged(n=1600, seed=0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Differences, their noisy squared distance less the strictness of who judged them, and who did."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3)) * [1.5, 1.0, 0.7]
    who = rng.integers(0, 4, size=n)
    return z, np.sum(z * z, axis=1) + rng.logistic(size=n) - STRICTNESS[who], NAMES[who]


@pytest.fixture(scope="module")
def binary():
    z, heard, who = judged()
    labels = heard >= 3.0
    return cf.LinearMetricLearner(**PAPER).fit(z, labels, annotators=who), z, labels, who


@pytest.fixture(scope="module")
def graded():
    z, heard, who = judged()
    levels = np.digitize(heard, [1.0, 3.0, 6.0])
    return cf.OrdinalMetricLearner(**PAPER).fit(z, levels, annotators=who), z, levels, who


def test_a_named_annotator_shifts_the_threshold(binary):
    learner, z, *_ = binary
    margin = learner.decision_function(z)
    np.testing.assert_allclose(margin, learner.metric_.margin(z))
    for name, strictness in zip(learner.annotators_.names, learner.annotators_.strictness, strict=True):
        named = learner.decision_function(z, annotator=name)
        np.testing.assert_allclose(named, margin - strictness)
        np.testing.assert_array_equal(learner.predict(z, annotator=name), named >= 0)
        np.testing.assert_allclose(learner.predict_proba(z, annotator=name)[:, 1], Logistic().cdf(named))
    strict, lenient = (learner.predict_proba(z, annotator=name)[:, 1].mean() for name in ("dag", "ann"))
    assert strict < learner.predict_proba(z)[:, 1].mean() < lenient


def test_each_pair_may_have_its_annotator(binary, graded):
    for learner, z, labels, who in (binary, graded):
        together = learner.predict_proba(z, annotator=who)
        for name in NAMES:
            rows = who == name
            np.testing.assert_array_equal(together[rows], learner.predict_proba(z[rows], annotator=name))
        codes = np.searchsorted(learner.classes_, labels)
        rows = np.arange(len(codes))
        loss = -np.mean(np.log(together[rows, codes]))
        assert loss == pytest.approx(learner.certificate_.loss, rel=1e-9)
        assert loss < -np.mean(np.log(learner.predict_proba(z)[rows, codes]))


def test_levels_of_an_annotator(graded):
    learner, z, *_ = graded
    strictness = dict(zip(learner.annotators_.names, learner.annotators_.strictness, strict=True))
    np.testing.assert_allclose(
        learner.decision_function(z, annotator="bea"), learner.decision_function(z) - strictness["bea"]
    )
    assert learner.predict(z, annotator="ann").mean() > learner.predict(z, annotator="dag").mean()


def test_flip_rates_of_annotators_are_in_their_predictions():
    z, heard, who = judged(4000, seed=1)
    labels = heard >= 3.0
    random = (who == "dag") & (np.random.default_rng(2).uniform(size=4000) < 0.5)
    labels[random] = np.random.default_rng(3).uniform(size=random.sum()) < 0.5
    learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(z, labels, annotators=who)
    rates = dict(zip(learner.annotators_.names, learner.annotators_.flip_rates, strict=True))
    assert rates["dag"] > 0.15
    assert max(rates["ann"], rates["bea"], rates["cem"]) < 0.1
    far = learner.predict_proba(z, annotator="dag")[:, 1]
    margin = learner.decision_function(z, annotator="dag")
    np.testing.assert_allclose(far, rates["dag"] + (1.0 - 2.0 * rates["dag"]) * Logistic().cdf(margin))


def test_annotators_that_are_not_known_are_named(binary):
    learner, z, labels, who = binary
    with pytest.raises(ValueError, match=r"annotators must be those of the fit, 'ann', .*; got 'eva' in row 0"):
        learner.predict(z, annotator="eva")
    with pytest.raises(ValueError, match=r"one annotator id per pair; got 3 ids for 1600 pairs"):
        learner.predict(z, annotator=who[:3])
    with pytest.raises(ValueError, match=r"one annotator id per pair; got 2 ids for 1600 pairs"):
        cf.LinearMetricLearner(**PAPER).fit(z, labels, annotators=["ann", "bea"])
    with pytest.raises(ValueError, match=r"got annotator='ann' for a fit without them\. Fit with annotators=ids"):
        cf.LinearMetricLearner(**PAPER).fit(z, labels).predict_proba(z, annotator="ann")


def test_copies_know_the_annotators(binary):
    learner, z, *_ = binary
    copied = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(copied.predict_proba(z, annotator="cem"), learner.predict_proba(z, annotator="cem"))


@pytest.mark.parametrize("ids", [[7, 11, 13, 17], ["d", "c", "b", "a"]], ids=["numbers", "another order"])
def test_names_and_order_of_annotators_do_not_matter(binary, ids):
    _, z, labels, who = binary
    precise = cf.LinearMetricLearner(tol=1e-10, **PAPER)

    def fitted(*given, annotators):
        learner = clone(precise)
        judgements = learner.read(*given, annotators=annotators)
        learner.fit_ = fit(judgements, Settings.of(learner, strictness_width=0.7))
        return learner

    plain = fitted(z, labels, annotators=who)
    renamed = np.array(ids)[np.searchsorted(NAMES, who)]
    other = fitted(z[::-1], labels[::-1], annotators=renamed[::-1])
    np.testing.assert_allclose(
        other.predict_proba(z, annotator=renamed), plain.predict_proba(z, annotator=who), rtol=0, atol=1e-8
    )


def test_units_do_not_matter(binary):
    _, z, labels, who = binary
    units = np.array([[1e4, 2.0, 0.0], [0.0, 1e-5, 1e-6], [0.3, 0.0, 1.0]])
    plain, other = (cf.LinearMetricLearner(**PAPER).fit(each, labels, annotators=who) for each in (z, z @ units.T))
    np.testing.assert_allclose(
        other.predict_proba(z @ units.T, annotator=who), plain.predict_proba(z, annotator=who), rtol=0, atol=1e-8
    )
