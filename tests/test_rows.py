"""Row sources: each sum against plain NumPy, in blocks of any size, in any array library, kept or mapped anew."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from closefar import packed
from closefar.rows import (
    BlockRows,
    Coordinates,
    Differences,
    RowSource,
    StreamedRows,
    Trait,
    blocks,
    factor_in_rows,
    find_coordinates,
    rows_of,
    source,
    unit_free,
)
from closefar.rows.blocks import features_of
from row_functions import Pull

N, D, K = 1500, 5, 3
RNG = np.random.default_rng(0)
Z = RNG.standard_normal((N, D)) @ RNG.standard_normal((D, D)) + 0.3
FACTOR = RNG.standard_normal((D, K))
STEP = RNG.standard_normal((D, D))
STEP = 0.5 * (STEP + STEP.T)
C, SHIFT, CROSS = RNG.standard_normal((3, N))
ROOT = RNG.uniform(0.1, 2.0, N)


class Computed(BlockRows):
    """Rows that are computed when they are read."""

    def __init__(self):
        super().__init__(N, D)

    def read(self, where):
        return Z[where].T


def memory_map(tmp_path):
    np.save(tmp_path / "z.npy", Z)
    return Differences(np.load(tmp_path / "z.npy", mmap_mode="r"))


def of_library(name):
    xp = pytest.importorskip(name, reason=f"{name} is not installed; see the extra test-torch of pyproject.toml")
    return Differences(xp.asarray(Z))


def of_pairs():
    right = np.random.default_rng(1).standard_normal((N, D))
    return Differences(np.stack([Z + right, right], axis=1))


class Operator(RowSource):
    """Rows of which nothing is known but the operator and its adjoint."""

    def __init__(self, z):
        super().__init__(*z.shape)
        self.z = z

    def forms(self, matrix):
        return np.sum((self.z @ matrix) * self.z, axis=1)

    def outer(self, coefficients):
        total = (self.z * coefficients[:, None]).T @ self.z
        return 0.5 * (total + total.T)

    def take_rows(self, indices):
        return Operator(self.z[indices])

    def in_coordinates(self, coordinates):
        return Operator(self.z @ coordinates.transform)

    def row_array(self, values):
        return values


SOURCES = ["differences", "pairs", "memory map", "computed", "from an origin", "array_api_strict", "torch"]


def make(kind, tmp_path):
    if kind in ("array_api_strict", "torch"):
        return of_library(kind)
    return {
        "differences": lambda: Differences(Z),
        "pairs": of_pairs,
        "memory map": lambda: memory_map(tmp_path),
        "computed": Computed,
        "from an origin": lambda: rows_of(Z + np.arange(D), np.arange(float(D))),
        "operator": lambda: Operator(Z),
    }[kind]()


@pytest.fixture(params=SOURCES)
def blocked(request, tmp_path):
    return make(request.param, tmp_path)


@pytest.fixture(params=[*SOURCES, "operator"])
def rows(request, tmp_path):
    return make(request.param, tmp_path)


@pytest.fixture(params=["one block", "many blocks"], autouse=True)
def block_size(request, monkeypatch):
    if request.param == "many blocks":
        monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
        monkeypatch.setattr(source, "PART_ROWS", 400)
    return request.param


def close(result, expected, rtol=1e-11):
    """Relative to the largest entry."""
    expected = np.asarray(expected)
    assert np.shape(result) == expected.shape
    np.testing.assert_allclose(np.asarray(result), expected, rtol=0, atol=rtol * np.abs(expected).max())


def divide(n, size):
    return [min(size, n - start) for start in range(0, n, size)]


def handle(rows, values):
    return rows.row_array(values)


def test_blocks_are_all_rows_in_order(blocked, block_size):
    found = list(blocked.blocks())
    assert (len(found) > 1) == (block_size == "many blocks")
    assert [where.start for where, _ in found] == [0, *(where.stop for where, _ in found[:-1])]
    close(np.hstack([np.asarray(block) for _, block in found]), Z.T, rtol=1e-14)
    assert (blocked.n_rows, blocked.n_columns, blocked.ndim) == (N, D, 2)


def test_a_block_holds_as_many_rows_as_fit_into_its_bytes(monkeypatch):
    for size, n_rows in ((8 * D * 600, 600), (8 * D * 601 - 1, 600), (8 * D * 1400, 1400)):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", size)
        assert [block.shape[1] for _, block in Computed().blocks()] == [n_rows, *divide(N - n_rows, n_rows)]


def test_the_products_of_entries_fill_half_a_block(monkeypatch):
    n_entries = packed.packed_size(D)
    for size, n_rows in ((16 * n_entries * 300, 300), (16 * n_entries * 301 - 1, 300)):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", size)
        assert Computed().n_features_at_once == n_rows
        features = features_of(Computed().blocks(), ROOT, (C,), n_rows)
        assert [part.shape for part in features] == [(n_entries + 1, n_rows)] * 5


def test_projected_rows(blocked):
    close(blocked.projected(FACTOR), Z @ FACTOR)
    assert type(blocked.projected(FACTOR)) is np.ndarray


def test_squared_distances_and_forms(rows):
    close(rows.squared_distances(FACTOR), np.sum((Z @ FACTOR) ** 2, axis=1))
    close(rows.squared_distances(np.empty((D, 0))), np.zeros(N))
    close(rows.forms(STEP), np.sum((Z @ STEP) * Z, axis=1))


def test_outer_sums(rows):
    outer = rows.outer(handle(rows, C))
    close(outer, (Z * C[:, None]).T @ Z)
    np.testing.assert_array_equal(outer, outer.T)


def test_rotated_moments(rows):
    basis = np.linalg.qr(STEP)[0]
    squares = (Z @ basis) ** 2
    fourth, sums = rows.rotated_moments(handle(rows, C), (handle(rows, CROSS), handle(rows, SHIFT)), basis)
    close(fourth, squares.T @ (squares * C[:, None]))
    close(sums, np.column_stack([squares.T @ C, squares.T @ CROSS, squares.T @ SHIFT]))
    close(rows.rotated_moments(handle(rows, C), (), basis)[1], (squares.T @ C)[:, None])


@pytest.mark.parametrize("n_borders", [0, 1, 2])
def test_sum_of_squares(rows, n_borders):
    borders = [CROSS, SHIFT][:n_borders]
    features = np.array(
        [
            np.append(packed.pack(np.outer(z, z)) * r, b)
            for z, r, b in zip(Z, ROOT, np.reshape(np.array(borders), (n_borders, N)).T, strict=True)
        ]
    )
    found = rows.sum_of_squares(handle(rows, ROOT), tuple(handle(rows, border) for border in borders))
    close(found, features.T @ features)


def test_a_sweep_evaluates_and_sums(rows):
    found, gradient = rows.sweep(Pull(), STEP, handle(rows, C))
    squared = np.sum((Z @ STEP) * Z, axis=1)
    close(found.sums, [C @ squared, N], rtol=1e-10)
    assert found.least == pytest.approx(squared.min(), rel=1e-10)
    close(rows.gather(found.arrays[0]), squared)
    close(gradient, (Z * (C * squared)[:, None]).T @ Z)
    assert found.pull is None  # it is summed, and takes as much memory as a column of the rows


def test_a_function_of_known_numbers_is_called_with_each_part_of_them(rows):
    found = rows.each(Pull(), handle(rows, SHIFT), handle(rows, C))
    close(found.sums, [C @ SHIFT, N], rtol=1e-10)
    assert found.least == SHIFT.min()
    close(rows.gather(found.pull), C * SHIFT)
    close(rows.gather(found.arrays[0]), SHIFT, rtol=0.0)


def test_projections_stand_for_a_factor(rows):
    """They are k numbers for each row or, of rows that know their operator alone, the factor."""
    other = np.random.default_rng(1).standard_normal((D, K))
    left, right = rows.forward(FACTOR), rows.forward(other)
    close(rows.gather(rows.inner(left, right)), np.sum((Z @ FACTOR) * (Z @ other), axis=1))
    close(rows.gather(rows.inner(left, left)), np.sum((Z @ FACTOR) ** 2, axis=1))
    close(rows.backward(left, handle(rows, C)), (Z * C[:, None]).T @ (Z @ FACTOR))
    assert rows.projected_bytes == (8 * N if Trait.PROJECTIONS in rows.traits else 0)


def test_sums_by_group(rows):
    groups = np.arange(N) % 4  # the last of which is in no group
    found = rows.grouped_outers(handle(rows, C), handle(rows, groups.astype(float)), 3)
    outer = [(Z * np.where(groups == group, C, 0.0)[:, None]).T @ Z for group in range(3)]
    close(found, np.array([packed.pack(each) for each in outer]))


def test_row_arrays(rows):
    array = handle(rows, C)
    close(rows.gather(array), C, rtol=0.0)
    assert type(rows.gather(array)) is np.ndarray
    assert rows.total(array) == pytest.approx(C.sum(), rel=1e-12)
    assert rows.extremes(array) == (C.min(), C.max())
    indices = np.array([0, 3, 700, N - 1])
    close(rows.pick(array, indices), C[indices], rtol=0.0)
    close(rows.gather(rows.product(array, handle(rows, SHIFT))), C * SHIFT)
    assert rows.dot(array, handle(rows, SHIFT)) == pytest.approx(C @ SHIFT, rel=1e-10)
    np.testing.assert_array_equal(rows.find(lambda values: values > 1.0, array), np.flatnonzero(C > 1.0))
    np.testing.assert_array_equal(rows.gather(rows.row_numbers()), np.arange(N))
    sums = rows.parts(lambda left, right: float(sum(np.asarray(left) * np.asarray(right))), array, handle(rows, SHIFT))
    assert sum(sums) == pytest.approx(C @ SHIFT, rel=1e-10)


def test_taken_rows(rows):
    indices = np.flatnonzero(np.arange(N) % 7 == 3)
    taken = rows.take_rows(indices)
    assert (taken.n_rows, taken.n_columns) == (len(indices), D)
    again, (picked,) = rows.take(indices, handle(rows, C))
    close(again.forms(STEP), taken.forms(STEP), rtol=0.0)
    close(picked, C[indices], rtol=0.0)
    close(taken.squared_distances(FACTOR), np.sum((Z[indices] @ FACTOR) ** 2, axis=1))


@pytest.mark.parametrize("with_constant", [False, True])
def test_mapped_rows_are_the_same_kept_or_not(blocked, with_constant, monkeypatch):
    coordinates = find_coordinates(blocked, np.full(N, 1.0 / N), with_constant=with_constant)
    kept = blocked.in_coordinates(coordinates)
    monkeypatch.setattr(blocks, "KEEP_BYTES", 0)
    anew = blocked.in_coordinates(coordinates)
    expected = Z @ coordinates.transform
    if with_constant:
        expected = np.column_stack([expected + coordinates.offset, np.ones(N)])
    for mapped in (kept, anew):
        assert (mapped.n_rows, mapped.n_columns) == (N, D + with_constant)
        close(mapped.read(slice(0, N)), expected.T)
        close(mapped.read(slice(10, 13)), expected[10:13].T)


def test_the_limit_for_keeping_rows_is_their_size(monkeypatch):
    coordinates = find_coordinates(Differences(Z), np.full(N, 1.0 / N))
    for limit, keeps in ((blocks.KEEP_BYTES, True), (8 * N * D, True), (8 * N * D - 1, False)):
        monkeypatch.setattr(blocks, "KEEP_BYTES", limit)
        mapped = Differences(Z).in_coordinates(coordinates)
        reads = []
        monkeypatch.setattr(Differences, "read", lambda self, where, reads=reads: reads.append(where) or Z[where].T)
        mapped.read(slice(0, 5))
        monkeypatch.undo()
        assert (reads == []) == keeps


def test_a_factor_is_found_again_in_the_coordinates_of_rows(blocked):
    weights = np.arange(1.0, N + 1.0)
    weights = blocked.row_array(weights / weights.sum())
    mapped, coordinates = unit_free(blocked, weights)
    factor = factor_in_rows(mapped, blocked, weights, FACTOR)
    close(mapped.squared_distances(factor), np.sum((Z @ FACTOR) ** 2, axis=1), rtol=1e-10)
    close(coordinates.to_units(factor), FACTOR, rtol=1e-8)


def test_a_factor_in_fewer_coordinates_is_that_of_weighted_least_squares(blocked):
    weights = np.arange(1.0, N + 1.0)
    mapped = blocked.in_coordinates(Coordinates(STEP[:, :2], None, np.empty((D, 0)), np.ones(D)))
    root = np.sqrt(weights)[:, None]
    expected = np.linalg.lstsq(root * (Z @ STEP[:, :2]), root * (Z @ FACTOR), rcond=None)[0]
    close(factor_in_rows(mapped, blocked, blocked.row_array(weights), FACTOR), expected, rtol=1e-9)


def test_only_blocks_that_are_wanted_are_read(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
    source, reads = Computed(), []
    monkeypatch.setattr(Computed, "read", lambda self, where: reads.append(where) or Z[where].T)
    close(source.take_rows(np.array([N - 1, 3])).projected(FACTOR), Z[[N - 1, 3]] @ FACTOR)
    assert [where.start for where in reads if where.stop] == [0, 1024]


def test_rows_that_are_no_blocks_are_refused():
    with pytest.raises(TypeError, match=r"readable in blocks to find their coordinates; got Operator\. Derive it"):
        rows_of(Operator(Z))


def test_numbers_that_are_not_finite_are_refused():
    for wrong in (np.nan, np.inf, -np.inf):
        spoiled = Z.copy()
        spoiled[7, 2] = wrong
        with pytest.raises(ValueError, match=r"rows must be finite; got NaN or infinity\."):
            unit_free(Differences(spoiled), np.full(N, 1.0 / N))


def test_zero_rows_are_refused():
    with pytest.raises(ValueError, match="differences must not all be zero"):
        unit_free(Differences(np.zeros((10, 2))), np.full(10, 0.1))


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("n", [0, 1, 5, 6, 7])
def test_slices_are_all_indices_in_order(n, size):
    found = [list(range(n))[where] for where in source.slices(n, size)]
    assert [index for part in found for index in part] == list(range(n))
    assert [len(part) for part in found] == (divide(n, size) or [0])


def test_nothing_to_read_gives_nothing():
    empty = Differences(np.empty((0, D)))
    assert empty.squared_distances(FACTOR).shape == (0,)
    assert empty.projected(FACTOR).shape == (0, K)
    nothing = np.array([], dtype=np.intp)
    assert empty.take_rows(nothing).shape == (0, D)
    assert Computed().take_rows(nothing).shape == (0, D)
    assert empty.row_array(np.empty(0)).shape == (0,)


def test_single_precision_is_read_in_double():
    rows = Differences(Z.astype(np.float32))
    assert rows.read(slice(0, 3)).dtype == np.float64
    pairs = Differences(np.stack([Z, Z * 0.5], axis=1).astype(np.float32))
    expected = Z[:3].astype(np.float32).astype(float) - (Z[:3] * 0.5).astype(np.float32).astype(float)
    np.testing.assert_array_equal(pairs.read(slice(0, 3)), expected.T)


def test_coordinates_are_plain():
    coordinates = Coordinates(np.eye(2), None, np.empty((2, 0)), np.ones(2))
    assert not coordinates.has_constant
    assert coordinates.n_directions == 2
    with pytest.raises(FrozenInstanceError):
        coordinates.offset = np.zeros(2)


class StoredChunks:
    """Rows of a file in two chunks, which are read from the first on."""

    def __init__(self, rows):
        self.rows, self.shape, self.dtype, self.starts = rows, rows.shape, rows.dtype, np.array([0])

    def read_from(self, start):
        half = len(self.rows) // 2
        yield from (self.rows[start:half].T, self.rows[half:].T)

    def close(self):
        pass


def test_a_file_in_single_precision_can_be_read_as_it_is_stored():
    stored = Z.astype(np.float32)
    rows = StreamedRows(StoredChunks(stored))
    single, where = rows.in_single(), slice(1, N - 1)
    assert (rows.read(where).dtype, single.read(where).dtype) == (np.float64, np.float32)
    np.testing.assert_array_equal(single.read(where).T, stored[where])
    np.testing.assert_array_equal(rows.read(where).T, stored[where])
    assert StreamedRows(StoredChunks(Z)).in_single() is None
