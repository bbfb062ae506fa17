"""Standard errors part by part: dependence, sandwich, intervals, the verdict on a fit, and the printed summary."""

import dataclasses
import re
import warnings

import numpy as np
import pytest
from scipy.stats import norm

import closefar as cf
from closefar import packed
from closefar.judgements import Judgements
from closefar.questions import intervals as standard_errors
from closefar.questions.dependence import Dependence
from closefar.questions.intervals import (
    Confidence,
    Evidence,
    Observed,
    ParameterEllipsoid,
    Sandwich,
    _is_singular,
    _vanishes,
    jackknife,
    sandwich,
)
from closefar.questions.likelihood import LabelLikelihood, Moves
from closefar.questions.summary import describe_fit
from paper_estimator import PAPER

N = 256
RNG = np.random.default_rng(0)
Z = RNG.standard_normal((N, 2)) * [1.0, 20.0]
FORMS = 1.5 * Z[:, 0] ** 2 + (Z[:, 1] / 20.0) ** 2
LABELS = np.where(FORMS - 1.5 + RNG.logistic(size=N) >= 0, 1, -1)
INTERIOR = Sandwich(np.eye(4), rank=2, smallest=5.0, threshold=5.0, distance=0.0)


@pytest.fixture(scope="module")
def learner():
    return cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(Z, LABELS)


def likelihood_of(fit, z=Z, labels=LABELS):
    """The likelihood of all symmetric M, and the parameters of a fit."""
    judgements = Judgements.of_signs(z, labels)
    moves = Moves.of(fit, judgements, keeps_rank=False, is_complete=True)
    return LabelLikelihood.of(fit, judgements, moves)


@pytest.fixture(scope="module")
def local(learner):
    return likelihood_of(learner.fit_)


def spread_of(likelihood, parameters, groups, repeats):
    return Dependence(groups).spread(likelihood, likelihood.terms(parameters), repeats)


def facts_of(likelihood, parameters, repeats, rank):
    return sandwich(likelihood, parameters, Dependence(None), repeats, rank)


def scores_and_hessian(likelihood, parameters):
    """Of the mean loss in (packed M, tau), by plain sums."""
    features = np.column_stack([packed.form_gradients(Z @ likelihood.moves.basis), -np.ones(N)])
    far = 1.0 / (1.0 + np.exp(-features @ parameters))
    scores = features * (far - (LABELS > 0))[:, None] / N
    return scores, (features * (far * (1.0 - far))[:, None]).T @ features / N


# Dependence


@pytest.mark.parametrize(
    ("groups", "n_units", "by_points"),
    [(None, None, False), (np.array([7, 7, 2]), 2, False), (np.array([[7, 2], [2, 2], [5, 7]]), 3, True)],
)
def test_units_are_the_different_ids(groups, n_units, by_points):
    dependence = Dependence(groups)
    assert (dependence.n_units, dependence.by_points) == (n_units, by_points)


@pytest.mark.parametrize("repeats", [np.full(N, 0.5), np.full(N, 2.0 / N), np.full(N, 1.5 / N)])
def test_spread_of_independent_rows(local, repeats):
    """Each of r repeats has 1 / r of the score, so their squares sum to score^2 / r; then n / (n - 1)."""
    scores, _ = scores_and_hessian(*local)
    n = repeats.sum()
    found = spread_of(*local, None, repeats)
    np.testing.assert_allclose(found, (scores / repeats[:, None]).T @ scores * n / (n - 1.0), rtol=1e-8, atol=1e-12)


def test_two_groups_and_pairs_of_points_with_themselves(local):
    scores, _ = scores_and_hessian(*local)
    ids = np.arange(N) % 2
    sums = np.array([scores[ids == unit].sum(axis=0) for unit in (0, 1)])
    for groups in (ids, np.column_stack([ids, ids])):
        found = spread_of(*local, groups, np.ones(N))
        np.testing.assert_allclose(found, 2.0 * sums.T @ sums, rtol=1e-8, atol=1e-12)


def test_a_single_observation_or_group_says_nothing_of_the_spread(local):
    likelihood, parameters = local
    away = parameters + np.array([0.0, 0.0, 0.0, 1.0])
    one = spread_of(likelihood, away, None, np.full(N, 1.0 / N))
    group = spread_of(likelihood, away, np.zeros(N), np.ones(N))
    for spread in (one, group):
        assert 1e6 < np.trace(spread) < np.inf


# The sandwich


def test_facts_of_an_optimum(local):
    scores, hessian = scores_and_hessian(*local)
    inverse, parameters = np.linalg.inv(hessian), local[1]
    repeats = np.full(N, 2.0)
    covariance = inverse @ (scores.T @ scores) @ inverse / 2.0 * (2 * N) / (2 * N - 1)
    facts = facts_of(*local, repeats, 2)
    np.testing.assert_allclose(facts.root @ facts.root.T, covariance, rtol=1e-6)
    values, vectors = np.linalg.eigh(packed.unpack(parameters[:3], 2))
    slope = np.append(packed.form_gradients(vectors[:, :1].T)[0], 0.0)
    assert facts.rank == 2
    assert facts.smallest == pytest.approx(values[0] / np.sqrt(slope @ covariance @ slope), rel=1e-6)
    assert facts.threshold == pytest.approx(parameters[3] / np.sqrt(covariance[-1, -1]), rel=1e-6)
    assert facts.distance < 1e-3


def test_distance_from_the_optimum_is_that_of_a_newton_step(local):
    likelihood, parameters = local
    away = parameters * [1.44, 1.44, 1.44, 1.0]
    scores, hessian = scores_and_hessian(likelihood, away)
    step = np.linalg.solve(hessian, scores.sum(axis=0))
    expected = np.sqrt(3.0 * N * step @ hessian @ step)
    assert facts_of(likelihood, away, np.full(N, 3.0), 2).distance == pytest.approx(expected, rel=1e-6)


def test_distance_under_a_fixed_rank_is_along_the_moves_that_keep_it():
    """A fit of rank 1 is optimal among those, though every matrix of rank 2 nearby is better."""
    told = cf.LinearMetricLearner(rank=1, tol=1e-12, **PAPER).fit(Z, LABELS)
    local = likelihood_of(told.fit_)
    known = facts_of(*local, np.ones(N), 1)
    assert known.rank == 1
    assert known.distance < 0.01
    # M is diagonal in the coordinates of the likelihood, with its only eigenvalue first.
    assert known.smallest == pytest.approx(local[1][0] / np.linalg.norm(known.root[0]), rel=1e-6)
    free = facts_of(*local, np.ones(N), 2)
    _, hessian = scores_and_hessian(*local)
    spread = spread_of(*local, None, np.ones(N))
    inverse = np.linalg.inv(hessian)
    np.testing.assert_allclose(free.root @ free.root.T, inverse @ spread @ inverse, rtol=1e-6)
    assert free.smallest == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("ratio", "rank"), [(1e-7, 2), (1e-9, 1), (0.0, 1)])
@pytest.mark.parametrize("size", [1e-2, 1e3])
def test_rank_counts_eigenvalues_beside_the_largest(local, ratio, rank, size):
    assert facts_of(local[0], np.array([size, 0.0, size * ratio, size]), np.ones(N), 2).rank == rank


def test_nothing_learned_has_rank_zero(local):
    assert facts_of(local[0], local[1] * [0.0, 0.0, 0.0, 1.0], np.ones(N), 2).rank == 0


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_information_is_singular_where_moves_cannot_be_told_apart(scale):
    units = np.diag([scale, 1.0])
    for correlation, singular in [(0.0, False), (1.0 - 1e-8, False), (1.0 - 1e-12, True), (1.0, True), (1.1, True)]:
        assert _is_singular(units @ np.array([[1.0, correlation], [correlation, 1.0]]) @ units) == singular
    assert _is_singular(np.diag([scale, 0.0]))


def test_an_entry_that_only_the_rank_determines_has_no_error_where_the_rank_is_free(learner):
    """Along single columns no pair shows m12; with M = diag(m, 0) of rank 1 it must stay 0."""
    z = np.where(np.arange(N)[:, None] % 2 == [0, 1], Z, 0.0)
    labels = np.where((np.arange(N) % 2 == 0) & (LABELS > 0), 1, -1)
    local = likelihood_of(dataclasses.replace(learner.fit_, metric=cf.Metric([[1.0], [0.0]], 1.0)), z, labels)
    known, free = (facts_of(*local, np.ones(N), rank) for rank in (1, 2))
    assert known.root is not None
    assert (free.root, free.rank, free.distance) == (None, 1, np.inf)


def test_a_move_is_open_where_scores_do_not_vary():
    """Labels that are right with near certainty have a curvature, but hardly a score."""
    information = np.array([[2.0, 0.5], [0.5, 1.0]])
    root = np.linalg.cholesky(information)
    for share, is_open in [(1.0, False), (0.05, False), (0.01, True), (0.0, True)]:
        spread = root @ np.diag([1.0, share]) @ root.T
        for units in (np.eye(2), np.diag([1e6, 1e-3])):
            assert _vanishes(units @ information @ units, units @ spread @ units) == is_open


@pytest.mark.parametrize(
    ("known", "estimated"), [((0.0,), ()), ((0.1,), ()), ((0.1, 0.2), ()), ((), (0.1,)), ((), (0.1, 0.2))], ids=str
)
def test_derivatives_of_the_likelihood_by_finite_differences(local, known, estimated):
    likelihood = dataclasses.replace(local[0], rates=known, n_rates=len(estimated))
    start, shares = np.append(local[1], estimated), likelihood.shares

    def gradient(parameters):
        return likelihood.gradient(likelihood.terms(parameters), parameters, shares)

    steps = 1e-5 * np.eye(len(start))
    losses = [[shares @ likelihood.terms(start + sign * step).loss for sign in (1, -1)] for step in steps]
    np.testing.assert_allclose(gradient(start), np.subtract(*np.transpose(losses)) / 2e-5, atol=1e-8)
    curvatures = [(gradient(start + step) - gradient(start - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(likelihood.information(start, shares), curvatures, rtol=1e-5, atol=1e-7)
    scores = np.vstack([scores for _, scores in likelihood.scores(likelihood.terms(start))])
    np.testing.assert_allclose(scores.sum(axis=0), gradient(start), atol=1e-12)


# Intervals


TRANSFORM = RNG.standard_normal((3, 2))
METRIC = cf.Metric.from_matrix(TRANSFORM @ np.diag([1.0, 0.25]) @ TRANSFORM.T, 0.5)
ROOT = 0.1 * RNG.standard_normal((4, 3))


def around(*roots, metric=METRIC, quantile=2.0, transform=TRANSFORM, shift=0.0):
    """Intervals of so many standard errors around the estimate, or around a point that is shifted from it."""
    shifts = np.broadcast_to(shift, (len(roots), len(roots[0])))
    reaches = tuple(ParameterEllipsoid(*each, quantile) for each in zip(shifts, roots, strict=True))
    return confidence_of(reaches, metric, transform)


def confidence_of(reaches, metric, transform):
    moves = Moves.within(transform, np.arange(transform.shape[1], 0, -1.0))
    return Confidence("sandwich", True, (), "", 0.95, metric, reaches, moves)


def by_moving(function):
    """The covariance of numbers that are linear in (S, tau), M = T S T', from the move of each parameter alone."""
    moves = []
    for column in ROOT.T:
        step, threshold = packed.split(column, 2)
        moves.append(np.ravel(function(TRANSFORM @ step @ TRANSFORM.T, threshold[0])))
    return np.sqrt(np.sum(np.square(moves), axis=0))


def test_standard_errors_are_the_lengths_of_moves(rng):
    spread, z = around(ROOT), rng.standard_normal((4, 3))
    form = np.einsum("ij,jk,ik->i", z, METRIC.matrix, z)
    squared = spread.squared_distance(z)
    error = by_moving(lambda m, t: np.einsum("ij,jk,ik->i", z, m, z))
    np.testing.assert_allclose(squared.standard_error, error, rtol=1e-10)
    np.testing.assert_allclose(squared.low, np.maximum(form - 2.0 * error, 0.0))
    np.testing.assert_allclose(squared.high, form + 2.0 * error)
    matrix = spread.matrix
    np.testing.assert_allclose(matrix.standard_error.ravel(), by_moving(lambda m, t: m), rtol=1e-10)
    np.testing.assert_allclose(matrix.high, METRIC.matrix + 2.0 * matrix.standard_error)
    vectors = np.linalg.eigh(METRIC.matrix)[1][:, ::-1]
    expected = by_moving(lambda m, t: np.diag(vectors.T @ m @ vectors))
    np.testing.assert_allclose(spread.eigenvalues.standard_error, expected, rtol=1e-8, atol=1e-12)
    assert spread.thresholds.standard_error[0] == pytest.approx(by_moving(lambda m, t: t)[0])


def test_ends_that_cannot_be_negative_stop_at_zero():
    wide = around(100.0 * ROOT)
    matrix, eigenvalues, threshold = wide.matrix, wide.eigenvalues, wide.thresholds
    assert np.all(np.diag(matrix.low) == 0)
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(matrix.low[off], (METRIC.matrix - 2.0 * matrix.standard_error)[off])
    assert np.all(matrix.low[off] < 0)
    assert np.all(eigenvalues.low == 0)
    assert threshold.low == 0
    assert threshold.high == pytest.approx(0.5 + 2.0 * threshold.standard_error)
    narrow = around(1e-6 * ROOT)
    np.testing.assert_allclose(narrow.matrix.low, METRIC.matrix, rtol=0.01)
    assert narrow.thresholds.low[0] == pytest.approx(0.5, rel=0.01)
    assert narrow.thresholds.high[0] == pytest.approx(0.5, rel=0.01)


def test_errors_of_eigenvalues_are_those_of_finite_differences():
    rng = np.random.default_rng(5)
    half = rng.standard_normal((3, 3))
    matrix, step = half @ half.T, 1e-6
    metric = cf.Metric.from_matrix(matrix, 1.0)
    for entry in range(6):
        along = np.eye(7)[:, [entry]]
        moved = packed.unpack(packed.pack(matrix) + step * along[:6, 0], 3)
        values = [np.linalg.eigvalsh(each)[::-1] for each in (matrix, moved)]
        found = around(along, metric=metric, quantile=1.0, transform=np.eye(3)).eigenvalues
        np.testing.assert_allclose(found.estimate, values[0], rtol=1e-10)
        np.testing.assert_allclose(found.standard_error, np.abs(values[1] - values[0]) / step, rtol=1e-4, atol=1e-6)


def test_the_largest_of_several_errors_counts_for_each_number():
    matrix = np.diag([1.0, 0.0, 0.0, 0.0]), np.diag([0.0, 0.0, 0.0, 1.0])
    unit = cf.Metric.from_matrix(np.eye(2), 1.0)
    both = around(*matrix, metric=unit, quantile=1.0, transform=np.eye(2))
    np.testing.assert_allclose(both.matrix.standard_error, [[1.0, 0.0], [0.0, 0.0]])
    assert both.thresholds.standard_error[0] == 1.0
    nothing = confidence_of((), unit, np.eye(2))
    assert np.all(nothing.matrix.standard_error == np.inf)
    assert nothing.thresholds.high == np.inf


def test_a_metric_of_nothing_has_the_eigenvalues_of_the_columns():
    metric = cf.Metric.from_factor(np.zeros((2, 0)), 1.0)
    zero = around(np.diag([3.0, 5.0, 7.0, 1.0]), metric=metric, quantile=1.0, transform=np.eye(2)).eigenvalues
    np.testing.assert_allclose(zero.standard_error, [3.0, 7.0])
    np.testing.assert_array_equal(zero.estimate, 0.0)


def test_distances_and_probabilities_follow_from_forms():
    intervals, z = around(ROOT, quantile=1.5), np.array([[3.0, -1.0, 2.0], [0.0, 0.0, 0.0]])
    squared, distance, far = intervals.squared_distance(z), intervals.distance(z), intervals.probability_far(z)
    error = by_moving(lambda m, t: z[0] @ m @ z[0])[0]
    form = z[0] @ METRIC.matrix @ z[0]
    assert squared.standard_error == pytest.approx([error, 0.0])
    assert distance.standard_error == pytest.approx([error / (2.0 * np.sqrt(form)), 0.0])
    assert distance.low[0] == pytest.approx(np.sqrt(max(form - 1.5 * error, 0.0)))
    assert distance.high[0] == pytest.approx(np.sqrt(form + 1.5 * error))
    spread = by_moving(lambda m, t: [z[0] @ m @ z[0] - t, -t])
    margin = np.array([form, 0.0]) - 0.5
    noise = METRIC.noise
    np.testing.assert_allclose(far.standard_error, noise.pdf(margin) * spread)
    np.testing.assert_allclose(far.low, noise.cdf(margin - 1.5 * spread))
    np.testing.assert_allclose(far.high, noise.cdf(margin + 1.5 * spread))


def test_a_distance_of_zero_that_could_be_larger_has_no_error_of_its_own():
    flat = cf.Metric.from_matrix(np.diag([1.0, 0.0]), 1.0)
    distance = around(np.eye(4), metric=flat, transform=np.eye(2)).distance([0.0, 1.0])
    assert (distance.estimate, distance.standard_error, distance.low) == (0.0, np.inf, 0.0)
    assert distance.high == pytest.approx(np.sqrt(2.0))


def test_results_cannot_be_changed_and_are_compared_as_objects():
    intervals = around(ROOT, quantile=1.5)
    for result, name in [(intervals, "level"), (intervals.matrix, "low"), (INTERIOR, "rank")]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, name, 0)
    for result in (intervals, intervals.matrix):
        assert result != dataclasses.replace(result)
        assert result in {result}
    assert "_reaches" not in repr(intervals)


# The verdict


def observed(learner, groups=None, weights=None):
    return Observed.of(learner.fit_, Judgements.of_signs(Z, LABELS, weights), groups)


def evidence_of(sample, uncertain=400.0, n_parameters=4, **change):
    return Evidence(sample, dataclasses.replace(INTERIOR, **change), uncertain, n_parameters)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"rank": 1}, "M has rank 1 of 2"),
        ({"smallest": 3.01, "threshold": 3.01}, None),
        ({"smallest": 3.0}, "the smallest eigenvalue of M is only 3.0 standard errors above zero"),
        ({"threshold": 3.0}, "the threshold is only 3.0 standard errors above zero"),
        ({"smallest": np.nan}, "the smallest eigenvalue of M is only nan standard errors above zero"),
        ({"threshold": np.nan}, "the threshold is only nan standard errors above zero"),
    ],
    ids=str,
)
def test_an_interior_optimum_is_three_standard_errors_from_the_boundary(learner, change, reason):
    assert evidence_of(observed(learner), **change).boundary == reason


def test_flaws_begin_where_the_rules_end(learner):
    fit = learner.fit_

    def flaws(groups=None, fit=fit, largest_rank=2, method="jackknife", **change):
        sample = dataclasses.replace(observed(learner, groups), fit=fit, largest_rank=largest_rank)
        return " ".join(evidence_of(sample, **change).flaws(method))

    assert flaws() == flaws(distance=1.0) == flaws(groups=np.arange(N) % 30) == ""
    assert flaws(distance=0.1, largest_rank=1) == ""
    assert "The fit is 1.1 standard errors from the optimum" in flaws(distance=1.1)
    assert "The fit is 0.11 standard errors from the optimum" in flaws(distance=0.11, largest_rank=1)
    assert "standard errors from the optimum" in flaws(distance=np.nan)
    assert flaws(groups=np.arange(N) % 29) == "Intervals need at least 30 groups; got 29. Add more groups."
    assert "at least 30 points; got 10" in flaws(groups=np.column_stack([np.arange(N) % 10, np.arange(1, N + 1) % 10]))
    unfinished = dataclasses.replace(fit, certificate=dataclasses.replace(fit.certificate, converged=False))
    assert flaws(fit=unfinished, distance=1.0) == "The fit did not converge; see certificate_.status."
    estimated = dataclasses.replace(fit, known=fit.known.but(flip_rate="estimate"))
    assert flaws(fit=estimated).startswith("The estimated flip rate, 0, is within 3 standard errors of zero")
    some = dataclasses.replace(estimated, metric=dataclasses.replace(fit.metric, flip_rate=0.1))
    assert flaws(fit=some, flip_rate=3.1) == ""
    assert flaws(fit=some, flip_rate=3.0).startswith("The estimated flip rate, 0.1, is within 3")


def test_labels_are_few_plenty_or_in_between(learner):
    sample = observed(learner)

    def evidence(per_parameter, n_parameters=4, sample=sample):
        return evidence_of(sample, per_parameter * n_parameters, n_parameters)

    few, some, many = (evidence(each) for each in (2.9, 3.0, 25.0))
    for method in ("jackknife", "sandwich"):
        (flaw,) = few.flaws(method)
        assert "at least 3 uncertain labels per parameter; got 2.9 (12," in flaw
        assert f"Label about {int(np.ceil(N * 3.0 / 2.9 / 10) * 10)} pairs" in flaw
    assert some.flaws("jackknife") == many.flaws("jackknife") == many.flaws("sandwich") == ()
    assert some.flaws("sandwich") == (
        "The sandwich needs at least 25 uncertain labels (and groups or points, if any) per parameter; got 3.0. "
        'Use method="jackknife".',
    )
    assert [each.is_plenty for each in (few, some, many)] == [False, False, True]
    # The bias beside the standard error grows with the number of parameters.
    assert not evidence(25.0, 40).is_plenty
    assert evidence(40.0, 40).is_plenty
    for n_units in (99, 100):
        grouped = dataclasses.replace(sample, dependence=Dependence(np.arange(N) % n_units))
        assert evidence(100.0, sample=grouped).is_plenty == (n_units == 100)
    fit = dataclasses.replace(sample.fit, known=sample.fit.known.but(flip_rate="estimate"))
    for per_parameter in (49.0, 50.0):
        with_flips = evidence(per_parameter, sample=dataclasses.replace(sample, fit=fit))
        assert with_flips.is_plenty == (per_parameter == 50.0)


def test_labels_that_repeat_each_other_count_once(learner):
    plain = observed(learner)
    twice, both, ids = np.vstack([Z, Z]), np.append(LABELS, LABELS), np.tile(np.arange(N), 2)
    copied = Observed.of(learner.fit_, Judgements.of_signs(twice, both), ids)
    for sample, expected in ((plain, 1.0), (copied, 0.5)):
        facts = sandwich(sample.likelihood, sample.parameters, sample.dependence, sample.repeats, 2)
        assert facts.independence == pytest.approx(expected, rel=0.01)
        per_parameter = learner.fit_statistics_.uncertain_per_parameter
        assert Evidence.of(sample, facts).per_parameter == pytest.approx(per_parameter, rel=0.01)


def test_the_covariance_of_thousands_of_parameters_is_refused(learner):
    z = np.random.default_rng(0).standard_normal((100, 89))
    for d in (88, 89):
        fit = dataclasses.replace(learner.fit_, metric=cf.Metric.from_factor(np.eye(d)[:, :1], 1.0))
        judgements = Judgements.of_signs(z[:, :d], np.where(z[:, 0] > 0, 1, -1))
        if d == 88:
            assert Observed.of(fit, judgements, None).largest_rank == 88
        else:
            with pytest.raises(ValueError, match="limited to 4000 parameters; got 4006"):
                Observed.of(fit, judgements, None)


def test_rows_of_no_weight_are_left_out_with_their_groups(learner):
    weights = np.where(np.arange(N) < 3, 0.0, 2.0)
    sample = observed(learner, np.arange(N) // 2, weights)
    assert len(sample.judgements) == len(sample.repeats) == N - 3
    assert sample.dependence.n_units == N // 2 - 1
    np.testing.assert_array_equal(sample.repeats, 2.0)


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"level": 0.0}, True),
        ({"level": 1e-9}, False),
        ({"level": 1.0 - 1e-9}, False),
        ({"level": 1.0}, True),
        ({"level": "0.95"}, True),
        ({"method": "sandwich"}, False),
        ({"method": "jackknife"}, False),
        ({"method": "bootstrap"}, True),
    ],
    ids=str,
)
def test_requests_are_allowed_up_to_their_limits(learner, options, refused):
    request = {"level": 0.5, "method": "auto", **options}
    if refused:
        with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
            standard_errors._check_arguments(learner.fit_, **request)
    else:
        standard_errors._check_arguments(learner.fit_, **request)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_intervals_reach_a_quantile_of_the_normal_distribution(learner, level):
    intervals = cf.confidence(learner, Z, LABELS, level=level)
    assert (intervals.method, intervals.valid) == ("sandwich", True)
    low, high = norm.interval(level, learner.metric_.threshold, intervals.threshold.standard_error)
    assert (intervals.threshold.low, intervals.threshold.high, intervals.level) == pytest.approx(
        (max(low, 0.0), high, level)
    )
    if level == 0.95:
        assert cf.confidence(learner, Z, LABELS).threshold.high == intervals.threshold.high


def test_statements_say_what_holds(learner):
    sample = observed(learner)

    def words(method, sample=sample, uncertain=120.0, **change):
        return evidence_of(sample, uncertain, **change).statement(method)

    assert "the optimum is interior (the smallest eigenvalue of M is 5.0 standard" in words("sandwich")
    assert "all symmetric matrices" not in words("sandwich")
    free = words("sandwich", rank=1)
    assert "Since M has rank 1 of 2, intervals are centred at the optimum over all symmetric matrices" in free
    assert "interior" not in free
    assert "corrects the bias with only 11.0 uncertain labels per parameter; from 25 on" in words(
        "jackknife", uncertain=44.0
    )
    linked = dataclasses.replace(sample, dependence=Dependence(np.column_stack([np.arange(N) % 20, np.arange(N) % 20])))
    of_points = words("jackknife", linked, uncertain=44.0)
    assert "with only 5.0 points and 11.0 uncertain labels per parameter" in of_points
    assert "from 25 of each on" in of_points
    told = dataclasses.replace(sample, largest_rank=1)
    assert words("sandwich", told).endswith("Rank 1 is treated as known.")
    chosen = dataclasses.replace(told, fit=dataclasses.replace(told.fit, settings=told.fit.settings.but(rank="auto")))
    assert "Since the rank was chosen from these labels" in words("sandwich", chosen)
    assert "do not vary" not in cf.confidence(learner, Z, LABELS).statement


def test_an_entry_that_no_pair_shows_has_no_interval():
    """Differences along one of two columns at a time say nothing of the entry of M between them."""
    rng = np.random.default_rng(1)
    z = np.column_stack([np.where(np.arange(N)[:, None] % 2 == [0, 1], Z, 0.0), rng.standard_normal(N)])
    labels = np.where(np.sum((z / [1.0, 20.0, 1.0]) ** 2, axis=1) - 1.5 + rng.logistic(size=N) > 0, 1, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = cf.LinearMetricLearner(**PAPER).fit(z, labels)
    for method in ("auto", "sandwich", "jackknife"):
        intervals = cf.confidence(learner, z, labels, method=method)
        assert (intervals.method, intervals.valid) == ("none", False)
        assert intervals.statement.startswith("Not valid: the pairs do not determine the metric along a combination")
        assert "'x0'" in intervals.statement
        assert "'x1'" in intervals.statement
        assert "'x2'" not in intervals.statement
        assert intervals.threshold.high == np.inf


# The jackknife


@pytest.mark.parametrize("repeats", [np.ones(N), np.arange(N) % 3 + 1.0, np.full(N, 47.5), np.full(N, 0.3)])
def test_parts_hold_every_observation_once(repeats):
    held = Dependence(None).parts(repeats, Z[:, 0], 20, np.random.default_rng(0))
    np.testing.assert_allclose(held.sum(axis=1), repeats)
    assert np.all(held >= 0)
    assert np.ptp(held.sum(axis=0)) <= max(1.0, 0.01 * held.sum(axis=0).mean())


def test_parts_of_groups_and_of_points():
    ids = np.arange(N) // 4
    by_group = Dependence(ids).parts(np.full(N, 2.0), Z[:, 0], 20, np.random.default_rng(0))
    np.testing.assert_array_equal(by_group.sum(axis=1), 2.0)
    np.testing.assert_array_equal(by_group[::4], by_group[3::4])
    points = np.column_stack([ids, (ids + np.arange(N) % 7) % (N // 4)])
    by_point = Dependence(points).parts(np.ones(N), Z[:, 0], 20, np.random.default_rng(0))
    assert set(by_point.sum(axis=1)) <= {1.0, 2.0}
    for point in (0, 17, 40):  # the part of a point has all pairs of it
        touched = by_point[(points == point).any(axis=1)]
        assert np.any(touched.min(axis=0) == 1.0)


def test_parts_do_not_depend_on_the_order_of_rows():
    order = np.random.default_rng(1).permutation(N)
    for groups in (None, np.arange(N) // 4):
        plain = Dependence(groups).parts(np.ones(N), Z[:, 0], 20, np.random.default_rng(0))
        other = Dependence(None if groups is None else groups[order]).parts(
            np.ones(N), Z[order, 0], 20, np.random.default_rng(0)
        )
        np.testing.assert_array_equal(other, plain[order])


@pytest.mark.parametrize(("rank", "class_weight"), [(None, None), (1, None), (1, {-1: 1.5, 1: 1.0})])
def test_the_jackknife_is_the_formula_over_fits_without_a_part(rank, class_weight):
    """Against fits by the learner itself, each without a part of the pairs."""
    learner = cf.LinearMetricLearner(rank=rank, class_weight=class_weight, tol=1e-12, **PAPER).fit(Z, LABELS)
    sample = observed(learner)
    reach = jackknife(sample, sample.parameters, 0.95, None, None, keeps_rank=rank is not None)
    margins = (Z @ sample.likelihood.moves.basis) ** 2 @ sample.likelihood.moves.values - sample.parameters[3]
    seed = np.random.RandomState(0).randint(2**31)
    left_out = sample.dependence.parts(np.ones(N), margins, 20, np.random.default_rng(seed))
    thresholds = [learner.fit(Z[part == 0], LABELS[part == 0]).metric_.threshold for part in left_out.T]
    whole = sample.parameters[3]
    share = left_out.sum() / (20 * N)
    assert share == 1.0 / 20
    assert reach.shift[3] == pytest.approx(19 * (whole - np.mean(thresholds)), rel=0.02, abs=0.02)
    assert np.sum(reach.root[3] ** 2) == pytest.approx(19 * np.var(thresholds), rel=0.02)
    assert reach.quantile == pytest.approx(2.093, abs=1e-3)


def test_few_labels_are_jackknifed_with_room_for_the_bias():
    z, labels = Z[:60], LABELS[:60]
    learner = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(z, labels)
    intervals = cf.confidence(learner, z, labels)
    assert (intervals.method, intervals.valid) == ("jackknife", True)
    alone = cf.confidence(learner, z, labels, method="sandwich")
    assert (alone.method, alone.valid) == ("sandwich", False)
    assert 'Use method="jackknife"' in alone.statement
    for name in ("threshold", "matrix", "eigenvalues"):
        wide, narrow = getattr(intervals, name), getattr(alone, name)
        assert np.all(wide.low <= narrow.low + 1e-9)
        assert np.all(wide.high >= narrow.high - 1e-9)
    again = cf.confidence(learner, z, labels)
    assert again.threshold.high == intervals.threshold.high
    assert cf.confidence(learner, z, labels, random_state=3).threshold.high != intervals.threshold.high
    fewer = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(Z[:24], LABELS[:24])
    none = cf.confidence(fewer, Z[:24], LABELS[:24], method="jackknife")
    assert (none.method, none.valid) == ("sandwich", False)
    assert "uncertain labels per parameter" in none.statement
    assert none.statement.endswith("No refits were made, since they would not help.")


def test_the_jackknife_depends_on_neither_units_nor_order_nor_repeats():
    z, labels, order = Z[:100], LABELS[:100], np.random.default_rng(0).permutation(100)
    weights = np.arange(100) % 2 + 1.0
    units = np.array([[1e3, 2e3], [-3e-3, 1e-3]])
    repeated = np.repeat(np.arange(100), weights.astype(int))
    ends = []
    for rows, given, weight in [
        (z, labels, weights),
        (z[order], labels[order], weights[order]),
        (-z, labels, weights),
        (z @ units.T, labels, weights),
        (z[repeated], labels[repeated], None),
    ]:
        learner = cf.LinearMetricLearner(tol=1e-12, **PAPER).fit(rows, given, sample_weight=weight)
        intervals = cf.confidence(learner, rows, given, sample_weight=weight, method="jackknife")
        assert (intervals.method, intervals.valid) == ("jackknife", True)
        ends.append([intervals.threshold.low, intervals.threshold.high])
    np.testing.assert_allclose(ends, np.tile(ends[0], (len(ends), 1)), rtol=1e-4)


# The summary


def test_lines_of_the_summary_fill_its_width(learner):
    lines = describe_fit(learner.fit_).split("\n")
    assert lines[0].strip() == "Linear metric learner"
    assert lines[0].center(78) == lines[0]
    assert {line for line in lines if set(line) <= {"=", "-"}} == {"=" * 78, "-" * 78}
    assert {len(line) for line in lines[2:9]} == {78}
    assert max(len(line) for line in lines) == 78


def rows_of(text, start):
    """The numbers of the lines that start with a whole number, after a heading."""
    table = text.split(start)[1].split("---")[0].split("\n")[1:]
    return [line.split() for line in table if re.match(r"\d", line)]


def with_metric(learner, metric, **changes):
    statistics = dataclasses.replace(learner.fit_.statistics, column_scales=(1.0,) * len(metric.factor))
    return dataclasses.replace(learner.fit_, metric=metric, statistics=statistics, **changes)


@pytest.mark.parametrize(("d", "left"), [(9, None), (10, None), (11, 1), (13, 3)])
def test_ten_directions_are_listed(learner, d, left):
    values = np.arange(d, 0, -1.0)
    text = describe_fit(with_metric(learner, cf.Metric.from_matrix(np.diag(values), 4.0)))
    rows = rows_of(text, "Eigenvalues in raw units")
    assert [int(row[0]) for row in rows] == list(range(1, min(d, 10) + 1))
    found = np.array([[cell.rstrip("%") for cell in row] for row in rows], dtype=float)[:, 1:].T
    np.testing.assert_allclose(found[0], values[:10], rtol=1e-5)
    np.testing.assert_allclose(found[1], values[:10] / 4.0, rtol=1e-5)
    np.testing.assert_allclose(found[2], (100.0 * values / values.sum())[:10], atol=0.051)
    np.testing.assert_allclose(found[3], (100.0 * np.cumsum(values) / values.sum())[:10], atol=0.051)
    assert re.findall(r"and (\d+) weaker", text) == ([] if left is None else [str(left)])


def test_five_loadings_are_listed_largest_first(learner):
    direction = np.array([0.1, -0.7, 0.3, 0.2, -0.4, 0.45, 0.05])
    text = describe_fit(with_metric(learner, cf.Metric(direction[:, None], 1.0)))
    found = re.findall(r"x(\d)\s+([+-]\d\.\d{4})$", text, re.M)
    order = [1, 5, 4, 2, 3]
    assert [int(index) for index, _ in found] == order
    expected = direction[order] / np.linalg.norm(direction)
    assert np.abs([float(value) for _, value in found]) == pytest.approx(np.abs(expected), abs=1e-4)


def test_summary_of_a_threshold_of_zero_or_of_nothing(learner):
    flat = describe_fit(with_metric(learner, cf.Metric(np.eye(2), 0.0)))
    assert [row[2] for row in rows_of(flat, "Eigenvalues in raw units")] == ["-", "-"]
    nothing = describe_fit(with_metric(learner, cf.Metric.from_factor(np.zeros((2, 0)), 1.0)))
    assert "M is zero" in nothing
    assert "There are no directions." in nothing
    single = describe_fit(with_metric(learner, cf.Metric(np.eye(2)[:, :1], 1.0)))
    assert "Direction 1. Its largest loadings" in single
    assert "M is zero" not in single
    assert rows_of(single, "Eigenvalues in raw units") == [["1", "1", "1", "100.0%", "100.0%"]]


def test_summary_names_flips_and_the_prior_of_a_penalty(learner):
    def cell(metric=learner.metric_, **settings):
        changed = with_metric(learner, metric, known=learner.fit_.known.but(**settings))
        return re.findall(r"^(?:Noise|Penalty): +(.*?)  ", describe_fit(changed), re.M)

    assert cell() == ["logistic", "none"]
    assert cell(dataclasses.replace(learner.metric_, flip_rate=0.25)) == ["logistic, 0.250 flips", "none"]
    assert cell(alpha=0.5) == ["logistic", "0.5, prior zero"]
    assert cell(alpha=0.5, prior="standardized") == ["logistic", "0.5, prior standardized"]
    assert cell(alpha=0.5, prior=learner.metric_) == ["logistic", "0.5, prior metric"]
    assert cell(flip_rate="estimate") == ["logistic, 0.000 flips", "none"]


def test_summary_says_what_was_chosen_and_shows_the_plain_distance():
    data = cf.datasets.make_pairs(300, 3, random_state=0)
    learner = cf.LinearMetricLearner().fit(data.pairs, data.labels)
    said = " ".join(learner.summary().split())
    assert learner.choice_.sentence in said
    assert learner.baseline_.sentence in said


def test_columns_of_the_summary_line_up_whatever_they_hold(learner):
    flipped = dataclasses.replace(learner.metric_, flip_rate=0.25, noise=cf.noise.get_noise("hypsecant"))
    known = learner.fit_.known.but(alpha=1.23456e-5, prior="standardized")
    lines = describe_fit(with_metric(learner, flipped, known=known)).splitlines()[2:10]
    assert {len(line) for line in lines} == {78}
    assert {line[36:40] for line in lines} == {"    "}


def test_pseudo_r2_is_the_share_of_the_null_loss_that_is_explained(learner):
    certificate = dataclasses.replace(learner.certificate_, loss=0.15)
    statistics = dataclasses.replace(learner.fit_statistics_, null_loss=0.6)
    fit = dataclasses.replace(learner.fit_, certificate=certificate, statistics=statistics)
    assert re.search(r"Pseudo-R2: +(\S+)$", describe_fit(fit), re.M).group(1) == "0.7500"
