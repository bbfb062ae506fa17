"""Rows in partitions: they agree with rows in memory, stay where they are, and take few round trips."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone

import closefar as cf
from closefar import cluster
from closefar.cluster import FAN_IN, Cluster, PartitionError, by_partition, combined
from closefar.judgements import Judgements, Partition, PartitionedJudgements, Tuples
from closefar.noise import NOISES
from closefar.rows import Differences, PartitionedRows, find_coordinates, judged_rows, unit_free
from closefar.rows.partitioned import Handle
from closefar.rows.source import Trait
from closefar.solve import Answers, Likelihood, Problem
from paper_estimator import PAPER
from partitions import KINDS, bits, check_same, cut, on_dask, partitioned

pytest.importorskip("dask")

RNG = np.random.default_rng(0)
N, D = 700, 4
Z = RNG.standard_normal((N, D)) @ np.triu(np.ones((D, D)))
LABELS = (np.sum(Z[:, :2] ** 2, axis=1) + RNG.logistic(size=N) > 5.0).astype(int)
SIGNS = 2.0 * LABELS - 1.0
WEIGHTS = RNG.random(N) + 0.5
SYMMETRIC = RNG.standard_normal((D, D)) + RNG.standard_normal((D, D)).T
SYMMETRIC = SYMMETRIC + SYMMETRIC.T
FACTOR = RNG.standard_normal((D, 2))
MATRIX = FACTOR @ FACTOR.T
C = RNG.standard_normal(N)
GROUPS = np.arange(N) % 3


@pytest.fixture
def rows():
    return judged_rows(PartitionedJudgements.load(cf.LinearMetricLearner(**PAPER), partitioned(Z, LABELS)))


def close(found, expected, rtol=1e-12):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-12 * np.abs(expected).max())


COORDINATES = find_coordinates(Differences(Z), np.full(N, 1.0 / N))

OPERATIONS = {
    "forms": lambda rows: rows.gather(rows.forms(SYMMETRIC)),
    "distances": lambda rows: rows.gather(rows.squared_distances(FACTOR)),
    "lengths": lambda rows: rows.gather(rows.squared_lengths(COORDINATES)),
    "inner": lambda rows: rows.gather(rows.inner(rows.forward(FACTOR), rows.forward(FACTOR + 1.0))),
    "outer": lambda rows: rows.outer(rows.row_array(C)),
    "outer by group": lambda rows: rows.grouped_outers(rows.row_array(C), rows.row_array(GROUPS), 3),
    "backward": lambda rows: rows.backward(rows.forward(FACTOR), rows.row_array(C)),
    "numbers of rows": lambda rows: rows.gather(rows.row_numbers()),
    "fourth moments": lambda rows: rows.rotated_moments(rows.row_array(C), (rows.row_array(SIGNS),), MATRIX)[0],
    "columns of sums": lambda rows: rows.rotated_moments(rows.row_array(C), (rows.row_array(SIGNS),), MATRIX)[1],
    "squares": lambda rows: rows.sum_of_squares(rows.row_array(C), (rows.row_array(SIGNS),)),
    "largest": lambda rows: rows.largest(np.arange(4.0)),
    "second moment": lambda rows: rows.second_moment(rows.row_array(WEIGHTS), np.ones(D), np.arange(1.0, 5.0)),
    "scaled squares": lambda rows: rows.scaled_squares(rows.row_array(WEIGHTS), np.ones(D), np.arange(1.0, 5.0)),
    "weighted sum": lambda rows: rows.weighted_sum(rows.row_array(WEIGHTS)),
    "triangle": lambda rows: np.abs(rows.triangle(rows.row_array(WEIGHTS), np.zeros(D), np.ones(D))),
    "cross moment": lambda rows: rows.in_coordinates(COORDINATES).cross_moment(rows, FACTOR, rows.row_array(WEIGHTS)),
    "mapped": lambda rows: rows.in_coordinates(COORDINATES).outer(rows.row_array(C)),
    "extremes": lambda rows: np.array(rows.extremes(rows.row_array(C))),
    "total": lambda rows: np.array([rows.total(rows.row_array(C))]),
    "dot": lambda rows: np.array([rows.dot(rows.row_array(C), rows.row_array(SIGNS))]),
    "arithmetic": lambda rows: rows.gather(2.0 * rows.row_array(C) - rows.row_array(SIGNS) * 0.5 + 1.0),
    "mapped numbers": lambda rows: rows.gather(rows.map(np.exp, -rows.row_array(C))),
    "kept numbers": lambda rows: rows.gather(rows.keep(rows.row_array(C) + 1.0)),
    "found": lambda rows: rows.find(lambda c: c > 1.0, rows.row_array(C)),
    "parts": lambda rows: np.sum(rows.parts(lambda c: c.sum(), rows.row_array(C))),
    "some rows": lambda rows: rows.take_rows(np.array([3, 1, 699, 350])).read(slice(0, 4)),
    "their numbers": lambda rows: rows.pick(rows.row_array(C), np.array([3, 1, 699, 350])),
    "read": lambda rows: rows.read(slice(100, 420)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_partitions_agree_with_rows_in_memory(name, rows):
    close(OPERATIONS[name](rows), OPERATIONS[name](Differences(Z)))


LEVELS = np.digitize(np.sum(Z[:, :2] ** 2, axis=1) + RNG.logistic(size=N), [2.0, 6.0])
# The codes of answers, the thresholds, and further arrays.
LIKELIHOODS = {
    "close and far": (Answers.of(2), LABELS, [1.0], {}),
    "levels": (Answers.of(3), LEVELS, [1.0, 3.0], {}),
    "annotators": (Answers.of(2), LABELS, [1.0, 0.5, -0.5, 0.1], {"groups": GROUPS, "n_groups": 3, "precision": 0.1}),
}


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_a_pass_agrees_and_its_arrays_stay(kind, rows):
    answers, codes, thresholds, more = LIKELIHOODS[kind]

    def problem(rows):
        given = more | {name: rows.row_array(more[name]) for name in more.keys() & {"groups"}}
        handles = rows.row_array(codes.astype(np.int8)), rows.row_array(WEIGHTS / WEIGHTS.sum())
        return Problem.of(rows, Likelihood(NOISES["normal"], answers, *handles, **given))

    here, there = problem(Differences(Z)), problem(rows)
    expected, found = (each.at(MATRIX, np.array(thresholds)) for each in (here, there))
    close(found.gradient, expected.gradient)
    close(found.evaluation.loss, expected.evaluation.loss)
    close(found.evaluation.slopes, expected.evaluation.slopes)
    curvatures = [each.evaluation.curvature for each in (expected, found)]
    assert isinstance(curvatures[1].distance, Handle)
    close(rows.gather(curvatures[1].distance), curvatures[0].distance)
    direction = np.linspace(-1.0, 1.0, len(thresholds))
    expected, found = (
        each.hessian_product(SYMMETRIC, direction, curvature)
        for each, curvature in zip((here, there), curvatures, strict=True)
    )
    close(found[0], expected[0])
    close(found[1], expected[1])
    close(there.hessian(curvatures[1]), here.hessian(curvatures[0]))
    squared = [each.forms(MATRIX) for each in (here, there)]
    best = [each.minimise_threshold(q, np.array(thresholds))[0] for each, q in zip((here, there), squared, strict=True)]
    close(best[1], best[0], rtol=1e-9)


def test_arithmetic_of_handles_takes_no_round_trip_and_is_not_repeated(rows):
    calls = []
    handle = rows.keep(rows.map(lambda c: (calls.append(len(c)), np.exp(c))[1], rows.row_array(C)))
    n_calls = len(calls)
    combined = 2.0 * handle + rows.forms(MATRIX) - 1.0
    before = rows.cluster.round_trips
    total = rows.total(combined)
    assert rows.total(combined) == total
    assert rows.cluster.round_trips == before + 2
    assert len(calls) == n_calls == 5
    close(rows.gather(handle), np.exp(C))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::closefar.IdentifiabilityWarning")
def test_every_kind_agrees_with_rows_in_memory(kind):
    learner, data = KINDS[kind]
    here, there = clone(learner).fit(**data), clone(learner).fit(**on_dask(data))
    assert isinstance(there.fit_.judgements, PartitionedJudgements)
    check_same(there, here, data)


def test_pairs_and_pairs_by_index():
    points = RNG.standard_normal((60, D))
    index = np.stack([RNG.integers(0, 60, N), RNG.integers(0, 60, N)], axis=1)
    pairs = points[index]
    labels = (np.sum((pairs[:, 0] - pairs[:, 1]) ** 2, axis=1) + RNG.logistic(size=N) > 5.0).astype(int)

    def load(task, shared):
        where = slice(*task)
        return Partition(Tuples(points, index[where]), labels[where])

    other = cf.LinearMetricLearner(**PAPER).fit(pairs, labels)
    for data in (partitioned(pairs, labels), partitioned(pairs, labels, load=load)):
        learner = cf.LinearMetricLearner(**PAPER).fit(data)
        assert learner.certificate_.loss == pytest.approx(other.certificate_.loss, abs=1e-8)


def test_pairs_of_weight_zero_do_not_count_and_keep_their_numbers():
    weights = np.where(np.arange(N) % 3 == 0, 0.0, WEIGHTS)
    learner = cf.LinearMetricLearner(**PAPER).fit(partitioned(Z, LABELS, weights))
    other = cf.LinearMetricLearner(**PAPER).fit(Z, LABELS, weights)
    assert learner.certificate_.loss == pytest.approx(other.certificate_.loss, abs=1e-8)
    assert learner.fit_statistics_.n_pairs == other.fit_statistics_.n_pairs
    judgements = learner.fit_.judgements.counted()
    np.testing.assert_array_equal(judgements.numbers_of(np.array([0, 9, 300])), np.flatnonzero(weights)[[0, 9, 300]])
    some = judgements.take(np.array([5, 300]))
    np.testing.assert_array_equal(some.data, Z[weights > 0][[5, 300]])
    close(some.weights, weights[weights > 0][[5, 300]])


def test_an_enormous_row_is_named_and_an_empty_partition_is_left_out():
    z, labels = Z.copy(), LABELS.copy()
    z[333], labels[333] = 1e6, 0
    ends = [(0, 300), (300, 300), (300, N)]
    with pytest.warns(cf.IdentifiabilityWarning, match="row 333, labelled close"):
        learner = cf.LinearMetricLearner(**PAPER).fit(partitioned(z, labels, tasks=ends))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = cf.LinearMetricLearner(**PAPER).fit(z, labels)
    assert learner.certificate_.loss == pytest.approx(other.certificate_.loss, abs=1e-8)


def test_columns_that_do_not_vary_are_found_by_a_triangle_of_all_partitions():
    z = np.column_stack([Z, Z[:, 0] + Z[:, 1]])
    with pytest.warns(cf.IdentifiabilityWarning, match="combination of the columns"):
        cf.LinearMetricLearner(**PAPER).fit(partitioned(z, LABELS))


@pytest.mark.parametrize(("n", "d"), [(20_000, 20), (30_000, 24)])
def test_a_pass_takes_about_one_round_trip(n, d):
    pairs, labels, *_ = cf.datasets.make_pairs(n, d, rank=3, random_state=0)
    learner = cf.LinearMetricLearner(**PAPER).fit(partitioned(pairs, labels, n_partitions=6))
    assert learner.certificate_.converged
    assert learner.fit_.judgements.cluster.round_trips <= 1.2 * learner.certificate_.n_passes


def test_partitions_without_room_are_loaded_again_and_give_the_same_bits(monkeypatch):
    held = cf.LinearMetricLearner(**PAPER).fit(partitioned(Z, LABELS))
    monkeypatch.setattr(cluster, "HOLD_BYTES", 0)
    data = partitioned(Z, LABELS)
    calls = []
    original = type(data.load).__call__
    monkeypatch.setattr(type(data.load), "__call__", lambda *given: calls.append(1) or original(*given))
    streamed = cf.LinearMetricLearner(**PAPER).fit(data)
    assert bits(streamed) == bits(held)
    assert len(calls) > 5 * len(data)


def test_sums_are_joined_in_a_tree_of_fixed_shape():
    seen = []

    def join(results):
        seen.append(len(results))
        return sum(results)

    assert Cluster().run(abs, range(40), combine=join) == 780
    assert sorted(seen) == [3, 40 - 2 * FAN_IN, FAN_IN, FAN_IN]
    assert combined(join, [7]) == 7


def test_rows_are_found_in_their_partitions():
    starts = np.array([0, 3, 3, 10])
    within, order = by_partition(np.array([9, 0, 4, 2]), starts)
    assert [each.tolist() for each in within] == [[0, 2], [], [1, 6]]
    joined = np.concatenate([start + each for start, each in zip(starts, within, strict=False)])
    assert joined[order].tolist() == [9, 0, 4, 2]


def test_a_partition_that_cannot_be_loaded_is_named():
    def load(task, shared):
        raise FileNotFoundError(2, "No such file or directory", "part-3.parquet")

    with pytest.raises(PartitionError, match=r"partition \d of 2 .* can't be loaded.*part-3\.parquet"):
        cf.LinearMetricLearner(**PAPER).fit(partitioned(Z, LABELS, n_partitions=2, load=load))


def test_arrays_that_arrive_are_aligned():
    shifted = np.frombuffer(bytearray(8 * 40 + 1), dtype=np.uint8)[1:].view(np.float64).reshape(10, 4)
    holder = partitioned(shifted, np.zeros(10)).load((0, 10), None)
    assert not holder.data.flags.aligned
    arrived = pickle.loads(pickle.dumps(holder))
    assert arrived.data.flags.aligned
    np.testing.assert_array_equal(arrived.data, shifted)


@pytest.mark.parametrize("value", [Cluster(), Handle([])], ids=type)
def test_what_stays_in_this_process_is_not_sent_to_partitions(value):
    with pytest.raises(TypeError, match="stays in its process"):
        pickle.dumps(value)


def test_a_checkpoint_compares_pairs_where_they_are(tmp_path, monkeypatch):
    learner, path = cf.LinearMetricLearner(**PAPER), tmp_path / "fit.checkpoint"
    monkeypatch.setattr(PartitionedJudgements, "_gathered", None)  # one number per row would come to this process
    learner.fit(partitioned(Z, LABELS, WEIGHTS), checkpoint=path)
    again = cf.LinearMetricLearner(**PAPER).fit(Z, LABELS, WEIGHTS, checkpoint=path)
    close(again.predict_proba(Z), learner.predict_proba(Z), rtol=1e-8)
    with pytest.raises(ValueError, match="their order, have changed"):
        learner.fit(partitioned(Z[::-1].copy(), LABELS[::-1], WEIGHTS[::-1]), checkpoint=path)


def test_one_partition_is_not_several():
    learner = cf.LinearMetricLearner(**PAPER).fit(partitioned(Z, LABELS, n_partitions=1))
    assert learner.fit_.engine == "NumPy, 1 partition in this process"


def test_a_source_says_where_it_computes(rows):
    assert isinstance(rows, PartitionedRows)
    assert Trait.REMOTE in rows.traits
    assert rows.engine == "NumPy, 5 partitions in this process"
    mapped, _ = unit_free(rows, rows.row_array(np.full(N, 1.0 / N)))
    assert isinstance(mapped, PartitionedRows)
    assert cut(10, 2) == [(0, 4), (4, 10)]


def test_weights_of_classes_and_pairs_count_as_in_memory():
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=(60, 2)), rng.choice([-1, 1], 60, p=[0.7, 0.3])
    weights, chosen = rng.integers(0, 4, 60).astype(float), {-1: 0.5, 1: 3.0}
    learner = cf.LinearMetricLearner(**PAPER)
    there = PartitionedJudgements.load(learner, partitioned(z, labels, weights)).weighted(chosen)
    here = Judgements.read(learner, z, labels, weights).weighted(chosen)
    for found, expected in zip(there.totals, here.totals, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert there.effective_number == pytest.approx(here.effective_number, rel=1e-14)
    assert there.total_weight == pytest.approx(here.total_weight, rel=1e-14)
