"""The search for flips: its steps, when they are dense, and where it ends."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from closefar.solve import SharedRate, State
from closefar.solve import flips as flips_module
from closefar.solve.flips import Alternating, FlipState
from closefar.solve.problem import moment_start
from random_problems import RandomProblem

RNG = np.random.default_rng


def climber(kind="close/far", *, rank=None, estimate=False, alpha=0.0, flipped=0.1):
    """Judgements with a tenth of their answers at random, a search at that rate, and where it begins."""
    judged = RandomProblem.of(kind, n=512, alpha=alpha, sharpness=2.0)
    is_flipped = RNG(1).random(512) < flipped
    n_answers = max(judged.kind.n_levels, 2)
    codes = np.where(is_flipped, n_answers - 1.0 - judged.codes, judged.codes)
    judged = replace(judged, codes=codes, floor=0.2 / n_answers, kept=0.8)
    given = judged.problem(likelihood=judged.likelihood.with_flips(SharedRate(np.array([0.2]))))
    solver = Alternating(given, RNG(0), estimate=estimate, rank=rank)
    without = given.with_likelihood(given.likelihood.with_flips(None))
    matrix, thresholds = moment_start(without)
    return judged, solver, solver.resume(State.at(matrix, *thresholds))


@pytest.mark.parametrize(("rank", "is_limited"), [(None, False), (2, True), (3, False), (4, False)])
@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("kind", ["close/far", "levels"])
def test_the_climb_descends_and_keeps_to_a_limited_rank(kind, rank, is_limited, alpha):
    judged, solver, begun = climber(kind, rank=rank, alpha=alpha)
    states = [begun]
    for _ in range(3):
        states.append(solver.step(states[-1]))
    values = [each.objective for each in states]
    np.testing.assert_allclose(values, [judged.value(each.matrix, each.thresholds) for each in states], rtol=1e-9)
    assert values[-1] < values[0] - 1e-4
    assert values[2] <= values[1] + 1e-12
    assert np.linalg.matrix_rank(states[1].matrix, tol=1e-9) <= (2 if is_limited else 3)
    assert [each.bound for each in states] == [0.0] * 4


@pytest.mark.parametrize(
    ("limit", "before", "after", "most", "is_dense"),
    [
        (None, 3, 3, 6, True),
        (None, 3, 3, 5, False),
        (2, 1, 2, 6, True),
        (2, 1, 2, 5, False),
        (2, 1, 3, 6, False),
        (2, 2, 2, 6, False),
    ],
)
def test_the_climb_takes_dense_steps_for_few_entries_of_m_while_they_keep_the_rank(
    limit, before, after, most, is_dense, monkeypatch
):
    monkeypatch.setattr(flips_module, "_MOST_DENSE_ENTRIES", most)  # M has six
    _, solver, _ = climber(rank=limit)
    dense = State.at(np.diag(1.0 + np.arange(3)) * (np.arange(3) < after), 3.0)
    newton = SimpleNamespace(renew=lambda state: state, advance=lambda state: dense)
    monkeypatch.setattr(flips_module, "Newton", lambda *_: newton)
    start = State.at(np.eye(3) * (np.arange(3) < before), 2.0)
    assert (solver._advance(solver.problem, start) is dense) == is_dense


def test_a_round_that_gains_less_than_1e_7_ends_the_climb_unless_it_is_the_first(monkeypatch):
    _, solver, begun = climber(alpha=0.01)
    first = solver.step(begun)
    monkeypatch.setattr(solver, "_advance", lambda problem, inner: inner)
    assert not first.stuck
    assert not solver.step(solver.resume(first)).stuck
    for gain, is_stuck in ((0.6e-7, True), (1.8e-7, False), (-1.0, True)):
        assert solver.step(replace(first, objective=first.objective + gain)).stuck == is_stuck


def test_the_climb_ends_where_no_label_seems_flipped():
    _, solver, _ = climber(estimate=True, flipped=0.0, alpha=0.01)
    certain = solver.resume(State.at(1e-3 * np.eye(3), 3e-3))
    solver._advance = lambda problem, inner: inner
    ended = solver.step(certain)
    assert ended.memory.likelihood.flips.rates.tolist() == [0.0]
    assert ended.stuck


@pytest.mark.parametrize(
    ("share", "alpha", "is_settled"), [(14 / 512, 0.0, True), (13 / 512, 0.0, False), (0.0, 0.01, True)]
)
def test_the_scale_is_settled_by_two_undecided_labels_for_each_unknown_or_a_penalty(share, alpha, is_settled):
    _, solver, _ = climber(alpha=alpha)  # M has six unknowns, and there is one threshold
    right, weights = np.where(np.arange(512) < 512 * share, 0.5, 1.0), np.full(512, 1.0 / 512)
    likelihood = SimpleNamespace(right=lambda *_: right, weights=weights)
    assert solver._is_settled(likelihood, None, State.at(np.eye(3), 1.0)) == is_settled
    assert FlipState(likelihood, None, None).is_settled
