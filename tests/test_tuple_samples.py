"""Random tuples of points."""

import itertools

import numpy as np
import pandas as pd
import pytest

import closefar as cf

POINTS = np.random.default_rng(0).standard_normal((7, 2))


def alike(index):
    """A tuple as what is judged of it."""
    if len(index) == 2:
        return frozenset(index)
    if len(index) == 3:
        return index[0], frozenset(index[1:])
    return frozenset([frozenset(index[:2]), frozenset(index[2:])])


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_tuples_are_drawn_once(size):
    every = {alike(each) for each in itertools.permutations(range(7), size)}
    found = cf.Tuples.sample(POINTS, len(every), size=size, random_state=0)
    assert {alike(tuple(each)) for each in found.index.tolist()} == every
    with pytest.raises(ValueError, match=f"1 to {len(every):,}"):
        cf.Tuples.sample(POINTS, len(every) + 1, size=size)


def test_all_tuples_are_equally_likely():
    counts = np.zeros(21)
    order = {each: place for place, each in enumerate(itertools.combinations(range(7), 2))}
    for seed in range(500):
        for each in cf.Tuples.sample(POINTS, 5, random_state=seed).index.tolist():
            counts[order[tuple(each)]] += 1
    expected = counts.sum() / 21
    assert np.sum((counts - expected) ** 2 / expected) < 45.0


def test_names_are_kept_and_seeds_repeat():
    frame = pd.DataFrame(POINTS, columns=["a", "b"])
    one, other = (cf.Tuples.sample(frame, 10, random_state=3) for _ in range(2))
    assert one == other
    assert one.feature_names == ("a", "b")


def test_errors():
    with pytest.raises(ValueError, match="size must be 2"):
        cf.Tuples.sample(POINTS, 3, size=5)
    with pytest.raises(ValueError, match="points must be finite"):
        cf.Tuples.sample(np.full((3, 2), np.nan), 3)
