"""Questions about many pairs are answered with a part of them, and so well that nobody sees it."""

from __future__ import annotations

import numpy as np
import pytest

import closefar as cf
from closefar.arrays import numbered
from closefar.fitting import Scorer, Settings, fit, fit_from, is_near_parts, refit
from closefar.judgements import Judgements, PairGroupKFold, split_judgements
from closefar.questions import dependence, goodness_of_fit
from paper_estimator import PAPER


def _judgements(n: int, *, flipped: float = 0.0) -> Judgements:
    data = cf.datasets.make_pairs(n, 3, wrong_share=0.15, random_state=0)
    signs = np.where(data.labels == data.labels.max(), 1.0, -1.0)
    return Judgements.of_signs(data.pairs, np.where(np.random.default_rng(0).random(n) < flipped, -signs, signs))


@pytest.mark.parametrize("flip_rate", [0.0, "estimate"])
def test_folds_that_start_from_the_fit_to_all_end_where_others_do(flip_rate):
    judgements = _judgements(50_000, flipped=0.05)
    settings = Settings(flip_rate=flip_rate, alpha=0.0)
    whole = fit(judgements, settings)
    assert is_near_parts(whole)
    train, test = split_judgements(5, judgements, seed=0)[0]
    seen, unseen = judgements.take(train), judgements.take(test)
    exact, near = refit(seen, settings).metric, fit_from(whole, seen).metric
    probabilities = [Scorer(metric).score(unseen).probability_far for metric in (exact, near)]
    np.testing.assert_allclose(*probabilities, atol=1e-3)
    # The fit to all is not it: what is left out is not seen.
    assert np.abs(Scorer(whole.metric).score(unseen).probability_far - probabilities[0]).max() > 1e-3


def test_few_pairs_are_not_near_their_parts():
    assert not is_near_parts(fit(_judgements(2000), Settings(**PAPER)))


def test_tests_are_made_with_at_most_so_many_pairs(monkeypatch):
    judgements, sizes = _judgements(3000), []
    fitted = fit(judgements, Settings(**PAPER))
    monkeypatch.setattr(goodness_of_fit, "_MOST_TESTED", 1000)
    monkeypatch.setattr(
        goodness_of_fit, "check_noise_model", lambda fit, used, groups: sizes.append((len(used), len(groups)))
    )
    goodness_of_fit.check_noise_if_possible(fitted, judgements, None)
    goodness_of_fit.check_noise_if_possible(fitted, judgements.take(np.arange(500, 900)), np.arange(400))
    assert sizes == [(1000, 1000), (400, 400)]


def test_folds_of_very_many_points_are_balanced():
    rng = np.random.default_rng(0)
    ids = rng.integers(500_000, size=(400_000, 2))
    sizes = [len(test) for _, test in PairGroupKFold(5, random_state=0).split(ids, groups=ids)]
    assert max(sizes) < 1.1 * min(sizes)


@pytest.mark.parametrize(
    "ids",
    [
        np.array([[3, 9], [9, 4]]),
        np.array([-7, 5, -7], dtype=np.int32),
        np.array([0, 10**12, 5, 0]),
        np.array([250, 3, 250], dtype=np.uint8),
        np.array(["b", "a", "b"]),
        np.zeros((0, 2), dtype=np.int64),
    ],
    ids=["dense", "negative", "sparse", "small", "text", "none"],
)
def test_ids_are_numbered_in_their_order(ids):
    different, inverse = np.unique(ids, return_inverse=True)
    numbers, n = numbered(ids)
    assert n == len(different)
    assert np.array_equal(numbers, inverse.reshape(ids.shape))


def test_products_of_pairs_that_share_points_are_summed_once():
    rng = np.random.default_rng(0)
    ids = rng.integers(30, size=(60, 2))
    ids[:3], ids[3] = [[1, 2], [2, 1], [1, 2]], [5, 5]
    terms = rng.standard_normal((60, 2))
    one, both = dependence.Dependence(ids).cross_sums(terms)
    shared = np.array([[len(set(left) & set(right)) for right in ids.tolist()] for left in ids.tolist()])
    np.fill_diagonal(shared, 0)
    assert np.allclose(one + both, terms.T @ (shared > 0) @ terms)
    assert np.allclose(both, terms.T @ (shared == 2) @ terms)
