"""BLAS threads: no more than the work can share, and restored whatever happens."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import closefar as cf
from closefar import arrays
from closefar.arrays import threads_for
from paper_estimator import PAPER


class Library:
    def __init__(self, num_threads):
        self.num_threads = num_threads
        self.n_changes = 0

    def set_num_threads(self, number):
        self.num_threads = number
        self.n_changes += 1


@pytest.fixture
def libraries(monkeypatch):
    found = (Library(8), Library(3), Library(1))
    monkeypatch.setattr(arrays, "_libraries", lambda: found)
    return found


def numbers(libraries):
    return [library.num_threads for library in libraries]


@pytest.mark.parametrize(
    ("n", "d", "within"),
    [(300, 5, [1, 1, 1]), (60_000, 100, [6, 3, 1]), (20_000, 100, [2, 2, 1]), (10**7, 50, [8, 3, 1])],
)
def test_the_number_follows_from_the_size_of_the_work_and_is_never_raised(libraries, n, d, within):
    with threads_for(n, d):
        assert numbers(libraries) == within
    assert numbers(libraries) == [8, 3, 1]
    assert libraries[2].n_changes == 0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_numbers_are_restored_after_an_error(libraries, error):
    with pytest.raises(error), threads_for(300, 5):
        raise error
    assert numbers(libraries) == [8, 3, 1]


def test_the_numbers_are_restored_after_an_interrupt_while_they_are_lowered(libraries, monkeypatch):
    def interrupted(number):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(libraries[1], "set_num_threads", interrupted)
        with pytest.raises(KeyboardInterrupt), threads_for(300, 5):
            pass
    assert numbers(libraries) == [8, 3, 1]
    with threads_for(300, 5):
        assert numbers(libraries) == [1, 1, 1]
    assert numbers(libraries) == [8, 3, 1]


def test_the_last_of_several_threads_restores_the_numbers(libraries):
    def compute(_):
        with threads_for(300, 5):
            return numbers(libraries)

    with ThreadPoolExecutor(4) as pool:
        assert all(each == [1, 1, 1] for each in pool.map(compute, range(200)))
    assert numbers(libraries) == [8, 3, 1]


def test_a_computation_within_another_changes_nothing(libraries):
    with threads_for(300, 5):
        with threads_for(10**7, 50):
            assert numbers(libraries) == [1, 1, 1]
        assert numbers(libraries) == [1, 1, 1]
        assert [library.n_changes for library in libraries] == [1, 1, 0]
    assert numbers(libraries) == [8, 3, 1]


def test_a_small_fit_uses_one_thread(libraries, monkeypatch):
    seen = []
    data = cf.datasets.make_pairs(300, 3, random_state=0)
    change = Library.set_num_threads
    monkeypatch.setattr(Library, "set_num_threads", lambda *given: (change(*given), seen.append(numbers(libraries))))
    cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels)
    assert [1, 1, 1] in seen
    assert numbers(libraries) == [8, 3, 1]


def test_the_libraries_of_this_process_are_left_as_they_were():
    before = numbers(arrays._libraries())
    with threads_for(100, 2):
        assert all(number == 1 for number in numbers(arrays._libraries()))
        assert np.isfinite(np.eye(3) @ np.eye(3)).all()
    assert numbers(arrays._libraries()) == before
