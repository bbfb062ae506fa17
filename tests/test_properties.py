"""What must make no difference to a fit, on problems that hypothesis draws."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import closefar as cf
from closefar.datasets import make_pairs  # not within a strategy: its imports use `random`
from closefar.noise import NOISES

few = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@st.composite
def problems(draw):
    """Pairs with noisy labels that no metric gets all right, and a learner for them."""
    d = draw(st.integers(1, 4))
    seed = draw(st.integers(0, 2**20))
    noise = draw(st.sampled_from(sorted(NOISES)))
    alpha = draw(st.sampled_from([0.0, 0.001, 0.05]))
    n = draw(st.integers(120, 300))
    data = make_pairs(n, d, noise=noise, wrong_share=0.2, random_state=seed)
    # Wrong by hand too: a pair of difference almost zero labelled far is on the wrong side of every metric.
    pairs, labels = data.pairs.copy(), data.labels.copy()
    pairs[:10, 1] = pairs[:10, 0] + 1e-3 * (pairs[:10, 1] - pairs[:10, 0])
    labels[:10] = 1
    labels[10:20] = -data.true_labels[10:20]
    assume(20 < np.sum(labels > 0) < n - 20)
    learner = cf.LinearMetricLearner(noise, alpha=alpha, prior="zero", tol=1e-11, flip_rate=0.0)
    return learner, pairs, labels, np.random.default_rng(seed)


def fit(learner, pairs, labels, **kwargs):
    return type(learner)(**learner.get_params()).fit(pairs, labels, **kwargs)


def assert_same(left, right, atol=1e-6):
    np.testing.assert_allclose(left, right, rtol=0, atol=atol)


@few
@given(problems())
def test_row_order(problem):
    learner, pairs, labels, rng = problem
    order = rng.permutation(len(pairs))
    expected = fit(learner, pairs, labels).predict_proba(pairs)
    assert_same(fit(learner, pairs[order], labels[order]).predict_proba(pairs), expected)
    assert_same(fit(learner, pairs, labels).predict_proba(pairs[order]), expected[order], atol=1e-12)


@few
@given(problems())
def test_order_of_columns(problem):
    learner, pairs, labels, rng = problem
    order = rng.permutation(pairs.shape[2])
    expected = fit(learner, pairs, labels)
    turned = fit(learner, pairs[:, :, order], labels)
    assert_same(turned.predict_proba(pairs[:, :, order]), expected.predict_proba(pairs))


@few
@given(problems())
def test_swapping_the_two_sides_of_some_pairs(problem):
    learner, pairs, labels, rng = problem
    swap = rng.uniform(size=len(pairs)) < 0.5
    swapped = np.where(swap[:, None, None], pairs[:, ::-1], pairs)
    expected = fit(learner, pairs, labels).predict_proba(pairs)
    assert_same(fit(learner, swapped, labels).predict_proba(pairs), expected)
    assert_same(fit(learner, pairs, labels).predict_proba(swapped), expected, atol=1e-12)


@few
@given(problems())
def test_pairs_and_their_differences(problem):
    learner, pairs, labels, rng = problem
    shift = rng.standard_normal(pairs.shape[2])
    differences = pairs[:, 0] - pairs[:, 1]
    expected = fit(learner, pairs, labels).predict_proba(pairs)
    assert_same(fit(learner, differences, labels).predict_proba(differences), expected)
    assert_same(fit(learner, pairs + shift, labels).predict_proba(pairs + shift), expected)


@few
@given(problems())
def test_integer_weights_are_repeats(problem):
    learner, pairs, labels, rng = problem
    repeats = rng.integers(1, 4, len(pairs))
    weighted = fit(learner, pairs, labels, sample_weight=repeats)
    repeated = fit(learner, np.repeat(pairs, repeats, axis=0), np.repeat(labels, repeats))
    assert_same(weighted.predict_proba(pairs), repeated.predict_proba(pairs))


@few
@given(problems())
def test_zero_weights_are_absences(problem):
    learner, pairs, labels, rng = problem
    extra = rng.standard_normal((30, *pairs.shape[1:])) * 100.0
    weights = np.append(np.full(len(pairs), 2.5), np.zeros(30))
    all_labels = np.append(labels, rng.choice([-1, 1], 30))
    weighted = fit(learner, np.concatenate([pairs, extra]), all_labels, sample_weight=weights)
    assert_same(weighted.predict_proba(pairs), fit(learner, pairs, labels).predict_proba(pairs))


@few
@given(problems())
def test_float32_is_close_to_float64(problem):
    learner, pairs, labels, _ = problem
    single = pairs.astype(np.float32)
    expected = fit(learner, pairs, labels).predict_proba(pairs)
    assert_same(fit(learner, single, labels).predict_proba(single), expected, atol=1e-3)


@few
@given(problems(), st.integers(0, 2**20))
def test_scaling_of_columns(problem, seed):
    learner, pairs, labels, _ = problem
    scale = 10.0 ** np.random.default_rng(seed).uniform(-9, 9, pairs.shape[2])
    expected = fit(learner, pairs, labels)
    scaled = fit(learner, pairs * scale, labels)
    assert_same(scaled.predict_proba(pairs * scale), expected.predict_proba(pairs))
    assert_same(
        expected.metric_.change_units(scale).probability_far((pairs[:, 0] - pairs[:, 1]) * scale),
        expected.predict_proba(pairs)[:, 1],
        atol=1e-9,
    )


@few
@given(problems())
def test_turning_the_labels_over_with_far_label(problem):
    learner, pairs, labels, _ = problem
    expected = fit(learner, pairs, labels)
    turned = fit(learner.set_params(far_label=-1), pairs, -labels)
    assert_same(turned.predict_proba(pairs)[:, ::-1], expected.predict_proba(pairs), atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*does not vary:closefar.IdentifiabilityWarning")
@few
@given(problems())
def test_a_redundant_column(problem):
    """Without a penalty, which counts columns."""
    learner, pairs, labels, rng = problem
    learner.set_params(alpha=0.0)
    mix = rng.standard_normal(pairs.shape[2])
    wider = np.concatenate([pairs, (pairs @ mix)[:, :, None], np.zeros((*pairs.shape[:2], 1))], axis=2)
    assert_same(fit(learner, wider, labels).predict_proba(wider), fit(learner, pairs, labels).predict_proba(pairs))
