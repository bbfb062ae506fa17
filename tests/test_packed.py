"""Symmetric matrices as vectors: inner products, rotations and derivatives are kept."""

import numpy as np
import pytest

from closefar import packed


def symmetric(d, seed=0):
    matrix = np.random.default_rng(seed).standard_normal((d, d))
    return matrix + matrix.T


@pytest.fixture(params=[1, 2, 3, 6])
def d(request):
    return request.param


def test_the_inner_product_is_that_of_the_trace(d):
    left, right = symmetric(d, 0), symmetric(d, 1)
    assert packed.pack(left) @ packed.pack(right) == pytest.approx(np.trace(left @ right))
    assert packed.pack(left).shape == (packed.packed_size(d),) == (d * (d + 1) // 2,)


def test_unpacking_undoes_packing(d):
    matrix = symmetric(d)
    np.testing.assert_allclose(packed.unpack(packed.pack(matrix), d), matrix, rtol=1e-14)


def test_packing_without_the_weights(d):
    matrix = symmetric(d)
    np.testing.assert_array_equal(packed.pack_plain(matrix) * packed.weights(d), packed.pack(matrix))
    np.testing.assert_array_equal(packed.pack_plain(matrix), matrix[np.triu_indices(d)])


def test_further_numbers_are_joined_and_split(d):
    matrix, more = symmetric(d), np.array([3.0, -1.0])
    vector = packed.join(matrix, more)
    assert len(vector) == packed.packed_size(d) + 2
    back, rest = packed.split(vector, d)
    np.testing.assert_allclose(back, matrix, rtol=1e-14)
    np.testing.assert_array_equal(rest, more)


def test_a_rotation_acts_on_packed_matrices(d):
    rotation = np.linalg.qr(symmetric(d, 2))[0]
    turn = packed.packed_rotation(rotation)
    np.testing.assert_allclose(turn @ packed.pack(symmetric(d)), packed.pack(rotation @ symmetric(d) @ rotation.T))
    np.testing.assert_allclose(turn @ turn.T, np.eye(len(turn)), atol=1e-12)


def test_derivatives_of_forms(d):
    left, right = np.random.default_rng(3).standard_normal((2, 4, d))
    matrix = symmetric(d)
    forms = packed.form_gradients(left, right) @ packed.pack(matrix)
    np.testing.assert_allclose(forms, np.einsum("ij,jk,ik->i", left, matrix, right))
    np.testing.assert_array_equal(packed.form_gradients(left), packed.form_gradients(left, left))


def test_products_fill_the_first_lines(d):
    columns, scale = np.random.default_rng(4).standard_normal((d, 5)), np.arange(1.0, 6.0)
    out = np.full((packed.packed_size(d) + 1, 5), np.nan)
    packed.fill_products(columns, scale, out)
    i, j = np.triu_indices(d)
    np.testing.assert_allclose(out[:-1], columns[i] * columns[j] * scale)
    assert np.isnan(out[-1]).all()
