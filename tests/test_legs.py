"""Rows of comparisons, and of pairs with comparisons: each sum against plain NumPy, in every array library."""

from dataclasses import dataclass

import numpy as np
import pytest

import closefar as cf
from closefar import packed
from closefar.arrays import to_numpy
from closefar.fitting import Settings, fit
from closefar.judgements import Judgements
from closefar.rows import (
    Differences,
    LegRows,
    Trait,
    blocks,
    column_scales,
    factor_in_rows,
    find_coordinates,
    indexed,
    judged_rows,
    pair_rows,
    rows_of,
    second_moment,
    source,
    unit_free,
)
from closefar.rows.legs import legs_of
from paper_estimator import PAPER
from row_functions import Pull

N, P, D, K, NOISE = 700, 301, 4, 2, 1.6
RNG = np.random.default_rng(0)
MIX = RNG.standard_normal((D, D))
POINTS = RNG.standard_normal((90, D)) @ MIX + 3.0
INDEX = np.array([RNG.choice(90, 4, replace=False) for _ in range(N)])
PAIRS = np.array([RNG.choice(90, 2, replace=False) for _ in range(P)])
STEP = RNG.standard_normal((D, D))
STEP = 0.5 * (STEP + STEP.T)
FACTOR = RNG.standard_normal((D, K))
NUMBERS = RNG.standard_normal((3, P + N))
LIBRARIES = ["numpy", "array_api_strict", "torch"]


def in_library(name, values):
    xp = pytest.importorskip(name, reason=f"{name} is not installed; see the extra test-torch of pyproject.toml")
    return xp.asarray(values)


def comparisons_of(kind, library):
    """Triplets or quadruplets, as an array or by index, in an array library."""
    index = INDEX[:, :3] if kind.startswith("triplets") else INDEX
    if kind.endswith("by index"):
        return cf.Tuples(in_library(library, POINTS), index)
    return in_library(library, POINTS[index])


def legs(kind):
    chosen = [0, 1, 0, 2] if kind.startswith("triplets") else [0, 1, 2, 3]
    a, b, c, e = (POINTS[INDEX[:, point]] for point in chosen)
    return a - b, c - e


KINDS = ["triplets", "quadruplets", "triplets by index", "quadruplets by index"]
CASES = [
    (kind, library, mixed)
    for kind in KINDS
    for library in LIBRARIES
    for mixed in (False, True)
    if not (kind.endswith("by index") and library == "array_api_strict")
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}, {case[1]}{', mixed' if case[2] else ''}")
def case(request, monkeypatch):
    """The rows, in blocks of odd sizes, and F of each as a plain array."""
    kind, library, mixed = request.param
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 8 * D * 513)  # of an odd number of rows
    monkeypatch.setattr(source, "PART_ROWS", 128)
    monkeypatch.setattr(indexed, "PART_ROWS", 128)
    compared = comparisons_of(kind, library)
    near, far = legs(kind)
    forms = (np.einsum("ni,nj->nij", far, far) - np.einsum("ni,nj->nij", near, near)) / NOISE
    if not mixed:
        judged = Judgements.read_comparisons(Columns(), compared, fitting=False)
        return judged_rows(judged, NOISE), forms
    pairs = POINTS[PAIRS]
    data = cf.Tuples(in_library(library, POINTS), PAIRS) if kind.endswith("by index") else in_library(library, pairs)
    judged = Judgements.of_signs(data, np.where(NUMBERS[0, :P] > 0, 1.0, -1.0))
    z = pairs[:, 0] - pairs[:, 1]
    rows = judged_rows(judged.with_comparisons(Columns(), compared), NOISE)
    return rows, np.concatenate([np.einsum("ni,nj->nij", z, z), forms])


@dataclass
class Columns:
    """An estimator that was fitted to as many columns."""

    n_features_in_: int = D


def same(found, expected):
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_the_operator_and_its_adjoint(case):
    rows, forms = case
    c = NUMBERS[0, : len(rows)]
    assert rows.shape == (len(forms), D)
    same(rows.forms(STEP), np.einsum("nij,ij->n", forms, STEP))
    same(rows.squared_distances(FACTOR), np.einsum("nij,ij->n", forms, FACTOR @ FACTOR.T))
    same(rows.outer(rows.row_array(c)), np.einsum("nij,n->ij", forms, c))


def test_projections(case):
    rows, forms = case
    c, other = rows.row_array(NUMBERS[0, : len(rows)]), RNG.standard_normal((D, K))
    assert Trait.PROJECTIONS in rows.traits
    left, right = rows.forward(FACTOR), rows.forward(other)
    assert left.shape == (rows.projected_bytes // 8, K)
    same(rows.inner(left, right), np.einsum("nij,jk,ik->n", forms, FACTOR, other))
    same(rows.inner(left, left), np.einsum("nij,jk,ik->n", forms, FACTOR, FACTOR))
    same(rows.backward(left, c), np.einsum("nij,n,jk->ik", forms, NUMBERS[0, : len(rows)], FACTOR))


def test_a_sweep_calls_the_function_with_the_arrays_of_each_row(case):
    rows, forms = case
    margins, c = np.einsum("nij,ij->n", forms, STEP), NUMBERS[0, : len(rows)]
    found, total = rows.sweep(Pull(), STEP, rows.row_array(c))
    same(found.sums, np.array([margins @ c, len(rows)]))
    assert found.least == pytest.approx(margins.min(), rel=1e-9)
    same(found.arrays[0], margins)
    same(total, np.einsum("nij,n->ij", forms, margins * c))


def test_moments_and_sums_of_squares(case):
    rows, forms = case
    curvature, cross, root = np.abs(NUMBERS[:, : len(rows)])
    handles = [rows.row_array(each) for each in (curvature, cross, root)]
    basis = np.linalg.qr(STEP)[0]
    q = np.einsum("nij,ik,jk->nk", forms, basis, basis)
    fourth, sums = rows.rotated_moments(handles[0], (handles[1],), basis)
    same(fourth, (q * curvature[:, None]).T @ q)
    same(sums, np.column_stack([q.T @ curvature, q.T @ cross]))
    features = np.array([packed.pack(form) for form in forms]) * root[:, None]
    features = np.column_stack([features, cross])
    same(rows.sum_of_squares(handles[2], (handles[1],)), features.T @ features)
    rough = rows.sum_of_squares(handles[2], (handles[1],), rough=True)
    np.testing.assert_allclose(rough, features.T @ features, rtol=1e-4, atol=1e-4 * np.abs(rough).max())


def test_sums_by_group(case):
    rows, forms = case
    c, groups = NUMBERS[0, : len(rows)], RNG.integers(6, size=len(rows))  # those of the last number are in no group
    found = rows.grouped_outers(rows.row_array(c), rows.row_array(groups), 5)
    expected = [packed.pack(np.einsum("nij,n->ij", forms[groups == group], c[groups == group])) for group in range(5)]
    same(found, np.array(expected))


def test_some_rows(case):
    rows, forms = case
    c = rows.row_array(NUMBERS[0, : len(rows)])
    for indices in (np.arange(3, len(rows), 7), np.arange(len(rows) - 5, len(rows)), np.arange(0)):
        part, (picked,) = rows.take(indices, c)
        assert len(part) == len(indices)
        np.testing.assert_array_equal(to_numpy(picked), NUMBERS[0, indices])
        if len(indices):
            same(part.forms(STEP), np.einsum("nij,ij->n", forms[indices], STEP))
            same(part.outer(picked), np.einsum("nij,n->ij", forms[indices], NUMBERS[0, indices]))


def test_coordinates_are_those_of_the_legs(case):
    rows, forms = case
    weights = np.abs(NUMBERS[0, : len(rows)])
    weights /= weights.sum()
    shares = rows.row_array(weights)
    moment = second_moment(rows, shares)
    assert np.linalg.eigvalsh(moment)[0] > 0.0
    mapped, coordinates = unit_free(rows, shares, signs=rows.row_array(np.sign(NUMBERS[1, : len(rows)])))
    same(second_moment(mapped, shares), np.eye(D))
    same(column_scales(rows, shares), np.sqrt(np.diag(moment)))
    transformed = np.einsum("nij,ik,jl->nkl", forms, coordinates.transform, coordinates.transform)
    same(mapped.forms(STEP), np.einsum("nij,ij->n", transformed, STEP))
    found = factor_in_rows(mapped, rows, shares, FACTOR)
    same(coordinates.to_units(found), FACTOR)
    same(rows.in_coordinates(coordinates).forms(STEP), to_numpy(mapped.forms(STEP)))


@pytest.mark.parametrize("by_index", [False, True])
def test_a_quadruplet_with_a_common_point_is_a_triplet_in_every_bit(by_index):
    triplets, quadruplets = INDEX[:, :3], INDEX[:, [0, 1, 0, 2]]
    if by_index:
        few, many = rows_of(cf.Tuples(POINTS, triplets)), rows_of(cf.Tuples(POINTS, quadruplets))
    else:
        few, many = rows_of(POINTS[triplets]), rows_of(POINTS[quadruplets])
    shares = np.broadcast_to(1.0 / N, N)
    (few, _), (many, _) = unit_free(few, shares), unit_free(many, shares)
    np.testing.assert_array_equal(few.forms(STEP), many.forms(STEP))
    np.testing.assert_array_equal(few.outer(NUMBERS[0, :N]), many.outer(NUMBERS[0, :N]))
    np.testing.assert_array_equal(few.sum_of_squares(NUMBERS[0, :N], ()), many.sum_of_squares(NUMBERS[0, :N], ()))


def test_legs_are_read_block_by_block_from_any_row():
    triplets = np.random.default_rng(1).standard_normal((9, 3, 2))
    legs = legs_of(triplets)
    expected = np.stack([triplets[:, 0] - triplets[:, 1], triplets[:, 0] - triplets[:, 2]], axis=1).reshape(18, 2)
    for start, stop in ((0, 18), (1, 4), (3, 3), (5, 6), (17, 18)):
        np.testing.assert_array_equal(legs.read(slice(start, stop)), expected[start:stop].T)


def test_single_precision_is_that_of_the_data(tmp_path):
    np.save(tmp_path / "quadruplets.npy", POINTS[INDEX].astype(np.float32))
    mapped = np.load(tmp_path / "quadruplets.npy", mmap_mode="r")
    legs = Differences(mapped)
    assert legs.model.dtype == np.float64
    assert legs.in_single().model.dtype == np.float32
    exact, rough = LegRows(legs, 0, N), LegRows(legs.in_single(), 0, N)
    np.testing.assert_allclose(rough.forms(STEP), exact.forms(STEP), rtol=1e-3, atol=1e-3)
    copied = Differences(POINTS[INDEX]).in_single()
    assert copied.model.dtype == np.float32
    assert copied.n_together == 2


def test_many_columns_are_computed_with_in_single_precision_at_first():
    triplets = np.random.default_rng(2).standard_normal((400, 3, 40))
    rows, _ = unit_free(rows_of(triplets), np.broadcast_to(1.0 / 400, 400))
    assert rows.rough is not rows
    (_, total), (_, rough_total) = (each.sweep(Pull(), np.eye(40), NUMBERS[0, :400]) for each in (rows, rows.rough))
    np.testing.assert_allclose(rough_total, total, rtol=1e-4, atol=1e-4 * np.abs(total).max())


def test_enormous_legs_are_rows():
    triplets = np.random.default_rng(3).standard_normal((300, 3, 2))
    triplets[17, 1] = 1e8  # the near leg
    triplets[40, 2] = 1e8  # the far leg
    coordinates = find_coordinates(rows_of(triplets), np.full(300, 1 / 300), signs=lambda: np.ones(300))
    assert coordinates.enormous.tolist() == [17, 40]


def test_what_needs_pairs_refuses_comparisons():
    with pytest.raises(ValueError, match=r"needs pairs.*\(700, 3, 4\)"):
        pair_rows(POINTS[INDEX[:, :3]])
    with pytest.raises(ValueError, match="pairs must be taken before comparisons"):
        LegRows.mixed(pair_rows(POINTS[PAIRS]), legs_of(POINTS[INDEX]), 1.0).take_rows(np.array([P + 1, 0]))
    with pytest.raises(ValueError, match="one per pair and two per comparison"):
        LegRows(legs_of(POINTS[INDEX]), 0, N - 1)


# Fits; tests/test_every_engine.py has those from other sources.

N_FITTED = 300
TRUTH = np.diag([1.0, 0.5, 0.0, 0.2])
FITTED = RNG.standard_normal((60, D))
TRIPLES = np.array([RNG.choice(60, 3, replace=False) for _ in range(N_FITTED)])


def felt(index, first, second):
    z = FITTED[index[:, first]] - FITTED[index[:, second]]
    return np.einsum("ni,ij,nj->n", z, TRUTH, z)


ANSWERS = np.where(felt(TRIPLES, 0, 2) - felt(TRIPLES, 0, 1) + RNG.logistic(size=N_FITTED) > 0.0, 1, -1)


@pytest.fixture
def judgements():
    return Judgements.read_comparisons(Columns(), FITTED[TRIPLES], ANSWERS, fitting=True)


def test_a_fit_to_quadruplets_with_a_common_point_is_that_to_triplets_in_every_bit(judgements):
    quadruplets = judgements.with_data(FITTED[TRIPLES[:, [0, 1, 0, 2]]])
    found, other = (fit(each, Settings(**PAPER)) for each in (judgements, quadruplets))
    np.testing.assert_array_equal(found.metric.factor, other.metric.factor)
    assert found.certificate.loss == other.certificate.loss


@pytest.mark.parametrize("alpha", [0.0, 0.02])
def test_units_do_not_matter_to_comparisons(alpha, judgements):
    """Of any directions or, as a penalty is measured in columns, of columns."""
    change = 10.0 ** np.arange(-2, 2) * (np.eye(D) if alpha else np.random.default_rng(7).standard_normal((D, D)))
    moved = judgements.with_data(FITTED[TRIPLES] @ change)
    found, other = (
        fit(each, Settings(alpha=alpha, prior="zero", tol=1e-11, flip_rate=0.0)).metric for each in (judgements, moved)
    )
    np.testing.assert_allclose(change @ other.matrix @ change.T, found.matrix, rtol=0, atol=1e-6)


def test_comparisons_that_are_turned_round_and_repeated_are_the_same(judgements):
    turned = np.where((ANSWERS < 0)[:, None, None], FITTED[TRIPLES[:, [0, 2, 1]]], FITTED[TRIPLES])
    weights = np.arange(N_FITTED) % 3 + 1
    several = np.repeat(np.arange(N_FITTED), weights)
    expected = fit(judgements.with_weights(weights.astype(float)), Settings(tol=1e-10, **PAPER))
    for data in (turned[several], turned[several][::-1]):
        found = fit(Judgements.read_comparisons(Columns(), data, fitting=True), Settings(tol=1e-10, **PAPER))
        assert found.certificate.loss == pytest.approx(expected.certificate.loss, abs=1e-9)
        np.testing.assert_allclose(found.metric.matrix, expected.metric.matrix, rtol=0, atol=1e-4)
