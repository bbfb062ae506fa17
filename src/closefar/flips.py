"""Labels that are flipped whatever the distance: P(label) = q + (1 - 2q) Phi(l margin).

The likelihood is not convex, so it is climbed from the convex optimum of q = 0, with
Fisher's information for a Hessian and q maximised out along the way.  The last step is
one of expectation-maximisation: with each label's probability of being flipped held
fixed, the problem is convex again, and the certificate is about that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import Array, FloatArray
from closefar.noise import Noise, label_losses, with_flips
from closefar.objective import Pointwise, Risk
from closefar.packed import packed_size
from closefar.pairs import Rows
from closefar.problem import Cone, Problem
from closefar.solvers import Solution, solve
from closefar.solvers.factor import Factor
from closefar.solvers.history import FitStep, Recorder
from closefar.solvers.loop import State, Watch
from closefar.solvers.newton import Newton

__all__ = ["best_flip_rate", "solve_with_flips"]

_LARGEST_RATE = 0.499
_MOST_ROUNDS = 100

# A round that gains less than this, of the mean log-likelihood, ends the climb.
_LEAST_GAIN = 1e-7

# Packed unknowns up to which a dense Hessian is formed.
_MOST_DENSE = 600

# L-BFGS steps between two estimates of q, where a dense Hessian is too large.
_STEPS_PER_ROUND = 20


class FlippedRisk(Risk):
    """The mean of -log(q + (1 - 2q) Phi(l m)); its curvature is Fisher's information, which is never negative."""

    def __init__(self, rows: Rows, noise: Noise, flip_rate: float) -> None:
        super().__init__(rows, noise)
        self.flip_rate = flip_rate

    def _pointwise(self, forms: Array, where: slice, threshold: float, order: int) -> Pointwise:
        signs, weights = self.rows.signs[where], self.rows.weights[where]
        margin = signs * (forms - threshold)
        loss, slope = self.noise.derivatives(margin, 1)
        right = np.exp(-loss)
        probability = with_flips(right, self.flip_rate)
        density = -(1.0 - 2.0 * self.flip_rate) * slope * right
        pull = -weights * signs * density / probability
        wrong = with_flips(np.exp(-self.noise.neg_log_cdf(-margin)), self.flip_rate) if order == 2 else None
        return Pointwise(
            loss=-float(np.sum(weights * np.log(probability))),
            threshold_slope=-float(np.sum(pull)),
            least_margin=-np.inf,  # a flipped label is on the wrong side, and rightly so
            pull=pull,
            curvature=weights * density**2 / (probability * wrong) if order == 2 else None,
        )


class SoftRisk(Risk):
    """The risk of labels of which each is flipped with a known probability: convex."""

    def __init__(self, rows: Rows, noise: Noise, flipped: FloatArray) -> None:
        super().__init__(rows, noise)
        self.flipped = flipped

    def _pointwise(self, forms: Array, where: slice, threshold: float, order: int) -> Pointwise:
        signs, weights, flipped = self.rows.signs[where], self.rows.weights[where], self.flipped[where]
        margin = signs * (forms - threshold)
        kept = self.noise.derivatives(margin, order)
        turned = self.noise.derivatives(-margin, order)
        pull = weights * signs * ((1.0 - flipped) * kept[1] - flipped * turned[1])
        return Pointwise(
            loss=float(np.sum(weights * ((1.0 - flipped) * kept[0] + flipped * turned[0]))),
            threshold_slope=-float(np.sum(pull)),
            least_margin=-np.inf,
            pull=pull,
            curvature=weights * ((1.0 - flipped) * kept[2] + flipped * turned[2]) if order == 2 else None,
        )


def solve_with_flips(risk: Risk, flip_rate: float | None, **options: Any) -> tuple[Solution, float]:
    """Maximise the likelihood with flips over M and tau, and over q where `flip_rate` is None.

    `options` are those of `solve`.  Returns the solution and q.
    """
    plain = solve(risk, **options)
    margin = risk.rows.signs * plain.margin
    rate = best_flip_rate(risk.noise.cdf(margin), risk.rows.weights) if flip_rate is None else flip_rate
    if rate == 0.0 or plain.certificate.status.startswith("interrupted"):
        return plain, rate
    cone = Cone(risk.n_directions, options["has_constant"] and options["alpha"] == 0.0)
    flipped = FlippedRisk(risk.rows, risk.noise, rate)
    flipped.n_passes = risk.n_passes
    recorder = Recorder(flipped, options["watch"])
    problem = Problem(flipped, options["alpha"], cone)
    state, scale_is_settled, n_rounds = _climb(problem, _free_corner(plain, cone), flip_rate is None, recorder)
    margin = risk.rows.signs * (flipped.quadratic_forms_of(state.matrix) - state.threshold)
    risk.n_passes = flipped.n_passes
    options["start"] = (state.matrix, state.threshold)
    solution, rate, loss = _maximise_expectations(risk, margin, flipped.flip_rate, flip_rate is None, options)
    status = (
        f"{solution.certificate.status} That is for flipped labels as this model says, a share of {rate:.3g} of them."
    )
    if not scale_is_settled:
        status += (
            " Nearly all others are right, so the scale of M and tau, and with it how sharply probabilities change at "
            "the threshold, is not determined; M / tau is."
        )
    penalty = solution.certificate.objective - solution.certificate.loss
    certificate = replace(solution.certificate, loss=loss, status=status, globally_optimal=False)
    # What was proven on the way is about other problems than the last.
    steps = [replace(step, gap=np.inf) for step in (*plain.history, *recorder.steps)]
    last = FitStep(certificate.n_passes, loss + penalty, certificate.gap)
    n_iter = plain.n_iter + n_rounds + solution.n_iter
    return replace(solution, certificate=certificate, n_iter=n_iter, history=(*steps, last)), rate


def _maximise_expectations(
    risk: Risk, margin: Array, rate: float, estimate: bool, options: dict[str, Any]
) -> tuple[Solution, float, float]:
    """Take the last, certified step; several where the rank is limited, of which the climb knows nothing.

    Returns the solution, q and the mean negative log-likelihood.
    """
    weights, loss, n_passes = risk.rows.weights, np.inf, risk.n_passes
    for _ in range(1 if options["rank"] is None else _MOST_ROUNDS):
        right = risk.noise.cdf(margin)
        soft = SoftRisk(risk.rows, risk.noise, rate * (1.0 - right) / with_flips(right, rate))
        soft.n_passes = n_passes
        solution = solve(soft, **options)
        n_passes, margin = soft.n_passes, risk.rows.signs * solution.margin
        right = risk.noise.cdf(margin)
        rate = best_flip_rate(right, weights) if estimate else rate
        before, loss = loss, float(np.sum(weights * label_losses(risk.noise, margin, rate)))
        if before - loss < _LEAST_GAIN:
            break
    return solution, rate, loss


def best_flip_rate(right: Array, weights: Array) -> float:
    """Maximise the mean log(q + (1 - 2q) Phi) over 0 <= q < 1/2, for `right` = Phi(l m): concave in q."""
    xp = array_namespace(right)

    def slope(rate: float) -> float:
        return float(xp.sum(weights * (1.0 - 2.0 * right) / with_flips(right, rate)))

    floor = 1e-300  # a margin that is hopelessly wrong has Phi = 0
    right = xp.where(right > floor, right, floor)
    if slope(0.0) <= 0.0:
        return 0.0
    low, high = 0.0, _LARGEST_RATE
    if slope(high) >= 0.0:
        return high
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) > 0.0 else (low, middle)
    return 0.5 * (low + high)


def _climb(problem: Problem, start: State, estimate: bool, watch: Watch) -> tuple[State, bool, int]:
    """Take steps and estimates of q in turn, until they gain nothing or the scale is no longer determined.

    Returns the state, whether the scale is determined, and the number of rounds.  An interrupt
    keeps the last state.
    """
    risk: Any = problem.risk
    size = packed_size(problem.cone.size) + 1
    take_round = _newton_rounds(problem) if size <= _MOST_DENSE else _factor_rounds(problem)
    state, objective, number = start, np.inf, 0
    for number in range(1, _MOST_ROUNDS + 1):
        try:
            state = take_round(state)
        except KeyboardInterrupt:
            break
        watch(number, state)
        forms = risk.quadratic_forms_of(state.matrix)
        right = risk.noise.cdf(risk.rows.signs * (forms - state.threshold))
        if estimate:
            risk.flip_rate = best_flip_rate(right, risk.rows.weights)
        # Where all labels but the flipped ones are right, the scale grows without end.  It is settled by the rows
        # near the threshold; as soon as there are hardly more of them than parameters they are being overfitted.
        # A penalty settles it in any case.
        undecided = 4.0 * len(risk.rows) * float(np.sum(risk.rows.weights * right * (1.0 - right)))
        before, objective = objective, problem.value(risk.pointwise(forms, state.threshold), state.matrix)
        if problem.alpha == 0.0 and undecided < 2.0 * size:
            return state, False, number
        if risk.flip_rate == 0.0 or before - objective < _LEAST_GAIN:
            break
    return state, True, number


def _newton_rounds(problem: Problem) -> Callable[[State], State]:
    solver = Newton(problem, _LEAST_GAIN, np.random.default_rng(0))

    def take_round(state: State) -> State:
        return solver.advance(solver.renew(state))

    return take_round


def _factor_rounds(problem: Problem) -> Callable[[State], State]:
    solver = Factor(problem, 0.0, np.random.default_rng(0))

    def take_round(state: State) -> State:
        state = solver.resume(state)
        for _ in range(_STEPS_PER_ROUND):
            state = solver.step(state)
            if state.stuck:
                break
        return state

    return take_round


def _free_corner(solution: Solution, cone: Cone) -> State:
    """The solution as a state; with free linear terms the corner of M belongs to the threshold."""
    matrix, threshold = solution.factor @ solution.factor.T, solution.threshold
    if cone.has_constant:
        threshold -= float(matrix[-1, -1])
        matrix[-1, -1] = 0.0
    return State(matrix, threshold, np.inf, 0.0, -np.inf, memory=None)
