"""The certificate of a fit: what it reached, what is proven, and what to do; and the proof."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from closefar.arrays import TINY, BoolArray, FloatArray
from closefar.errors import either, setting
from closefar.solve.likelihood import Curvature
from closefar.solve.problem import Point, Problem


class Outcome(StrEnum):
    """How a fit ended."""

    CONVERGED = "converged"
    RESTRICTED = "restricted"
    SEPARABLE = "separable"
    QUASI_SEPARABLE = "quasi-separable"
    STALLED = "stalled"
    UNFINISHED = "unfinished"
    INTERRUPTED = "interrupted"
    TRUNCATED = "truncated"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Certificate:
    """The quality of a fit, and the proof of it.

    Attributes
    ----------
    loss : float
        The mean negative log-likelihood R(M, tau) of the labels.  (With flips, `loss` accounts for
        them; `objective`, `lower_bound` and `gap` are those of the convex problem in which each
        label's probability of being flipped is held fixed.)
    gap : float
        A proven upper bound on the objective minus its minimum.  The objective is the
        loss or, if alpha > 0, the loss plus the trace penalty.  (If no strictly feasible
        dual point exists, as with a learned origin and alpha = 0, it bounds the improvement by any
        metric up to a thousand times the size of this one.)
    converged : bool
        Whether `gap` is at most the tolerance or, if `rank` is fixed, no small change improves the
        metric.
    outcome : Outcome
        How the fit ended: "converged", "restricted" (no small change improves the metric within its
        rank, but a metric of higher rank may be better), "separable" (the metric gets every label
        right, so there is no finite optimum), "quasi-separable" (there is no finite optimum either,
        since one direction explains some labels without exception), "stalled", "unfinished" or
        "interrupted".  For a metric without its fit: "truncated" or "unknown".
    advice : str
        What the outcome means, and what to do.
    n_passes : float
        The number of passes over the data; one pass computes a loss with its gradient.
    objective, lower_bound : float
        Their difference is `gap`.
    threshold_multiplier : float
        dR/dtau, the multiplier of tau >= 0: zero if tau > 0.  (For several thresholds, the sum.)
    globally_optimal : bool
        Whether no metric of any rank is better by more than the tolerance.

    Examples
    --------
    >>> import closefar as cf
    >>> pairs, labels, *_ = cf.datasets.make_pairs(2000, 4, random_state=0)
    >>> certificate = cf.LinearMetricLearner().fit(pairs, labels).certificate_
    >>> certificate.converged, certificate.gap <= 1e-6, str(certificate.outcome)
    (True, True, 'converged')
    """

    loss: float
    gap: float
    converged: bool
    outcome: Outcome
    advice: str
    n_passes: float
    objective: float
    lower_bound: float
    threshold_multiplier: float
    globally_optimal: bool

    @classmethod
    def without_fit(cls, outcome: Outcome, loss: float, rank: int) -> Certificate:
        """The certificate of a metric of that rank without its fit: a loss on some pairs, and no proof."""
        advice = advise_outcome(outcome, gap=math.inf, is_proven=False, rank=rank)
        return cls(loss, math.inf, False, outcome, advice, 0.0, loss, -math.inf, 0.0, False)

    @property
    def status(self) -> str:
        """The outcome and the advice: a word, a colon, and a sentence to act on."""
        return f"{self.outcome}: " + self.advice


def advise_outcome(
    outcome: Outcome,
    *,
    gap: float,
    is_proven: bool,
    tol: float = 0.0,
    rank: int | None = None,
    max_iter: int = 0,
    has_thresholds: bool = True,
) -> str:
    """State what an outcome means, and what to do; comparisons alone have no thresholds."""
    left = _left(gap, is_proven)
    match outcome:
        case Outcome.SEPARABLE:
            return _separable(has_thresholds)
        case Outcome.QUASI_SEPARABLE:
            said = "labels" if has_thresholds else "answers"
            return f"one direction explains some {said} without exception, so the likelihood has no finite maximum."
        case Outcome.INTERRUPTED:
            return f"the fit was interrupted; {left}. The metric is usable."
        case Outcome.CONVERGED:
            also = f" Rank {rank} costs nothing: no metric of higher rank is better." if rank else ""
            return f"the objective is within a proven {gap:.1e} of its global minimum.{also}"
        case Outcome.RESTRICTED:
            by = f"by at most {gap:.1e}" if is_proven else "and nothing is proven about by how much"
            return (
                f"no small change of this rank-{rank} metric improves it, but metrics of higher rank may be "
                f"better, {by}. Raise " + setting("rank") + ", or leave it out, to close the gap."
            )
        case Outcome.UNFINISHED:
            return _filled(
                f"@ steps did not reach @; {left}. The metric is usable; raise @, @ or @.",
                setting(max_iter=max_iter),
                setting("tol", format(tol, ".1e")),
                *map(setting, ("max_iter", "tol", "alpha")),
            )
        case Outcome.TRUNCATED:
            return (
                "directions were removed from this metric after its fit, so it is not the best of rank "
                f"{rank}, and nothing is proven. Fit with " + setting(rank=rank) + " for the best one."
            )
        case Outcome.UNKNOWN:
            return (
                "this metric was stored without its fit, so its training data are unknown, and nothing is proven. "
                "Fit again for a certificate."
            )
        case Outcome.STALLED:
            return _filled(
                f"further steps bring no improvement, but @ is not proven; {left}. The optimum may lie at infinity (as "
                "with 0/1 columns and @). The metric is usable; raise @ (try 0.001) or @.",
                setting("tol", format(tol, ".1e")),
                *map(setting, ("fit_origin", "alpha", "tol")),
            )


def advise_in_time(max_time: float | None, *, has_checkpoint: bool, gap: float, is_proven: bool, tol: float) -> str:
    """State what it means that the time was over, and what to do."""
    later = (
        either("call fit again with the same checkpoint to continue", "run the same command again to continue")
        if has_checkpoint
        else either("give fit a checkpoint to continue", "add --checkpoint to continue it later")
    )
    return _filled(
        f"@ seconds ended the fit before it was complete; {_left(gap, is_proven)} (@). The metric is usable; raise @ "
        "or @, or @.",
        setting("max_time", format(max_time, "g")),
        setting("tol", format(tol, ".1e")),
        *map(setting, ("max_time", "tol")),
        later,
    )


def _filled(text: str, *words: str) -> str:
    """The text with words in place of each @, which keep their form on the command line."""
    said, *pieces = text.split("@")
    for word, piece in zip(words, pieces, strict=True):
        said = said + word + piece
    return said


def _separable(has_thresholds: bool) -> str:
    agrees, scale, ratio, more = (
        ("gets every label right", "M and tau", "M / tau", "label more pairs")
        if has_thresholds
        else ("agrees with every comparison", "M", "M / tr M", "collect more comparisons")
    )
    return (
        f"this metric {agrees}, so the likelihood has no finite maximum and the scale of {scale} (hence the "
        f"probabilities) is arbitrary; {ratio} has a wide margin. Set " + setting(alpha="auto") + f", or {more}."
    )


def _left(gap: float, is_proven: bool) -> str:
    return f"the proven gap is {gap:.1e}" if is_proven else "no gap is proven yet"


# ---------------------------------------------------------------------------------------------------------------------
# The proof.
#
# For any symmetric M' and tau' whose gradient is dual feasible, that is with
# dR/dM + alpha I positive semidefinite and dR/dtau >= 0, convexity gives for every
# feasible (M, tau)
#
#     R(M, tau) + alpha tr M >= R(M', tau') - <dR/dM, M'> - tau' dR/dtau
#
# with tau' measured from the least feasible value of tau.  The right side is a proven lower
# bound on the optimum: the Fenchel dual value.  A threshold delta with a penalty p delta^2 / 2 in
# R needs no sign of dR/ddelta: it lowers the bound by (dR/ddelta)^2 / (2 p).


# (matrix, thresholds, which thresholds are held, residual) -> (matrix, thresholds)
HessianSolve = Callable[[FloatArray, FloatArray, BoolArray, float], tuple[FloatArray, FloatArray]]

# In unit-free coordinates gradients are of order one; their sums over rows are wrong by up to about 1e-13.
DUAL_ROUNDING = 1e-13

# If no strictly feasible dual point exists (free parameters, or a direction of M that only shifts tau), a
# gradient that is feasible up to rounding still bounds the loss of everything within this multiple of the solution.
REACH = 1e3

# A longer step of the proof leaves the region where the Hessian is informative.
_LONGEST_PROOF_STEP = 10.0
_MOST_PROOF_ROUNDS = 4  # of solving with the Hessian; each halves what is left, or the proof is given up


def proven_bound(point: Point, ceiling: float) -> float:
    """The lower bound that the gradient at `point` proves; minus infinity if there is none.

    `ceiling` is the objective of a feasible point.  With a penalty, alpha tr M <= ceiling at
    the optimum, so the cost of a gradient outside the dual cone is bounded.
    """
    problem = point.problem
    below, rest = problem.cone.violations(point.gradient, point.unpaid_slopes)
    size = 1.0 + float(np.abs(point.matrix).sum()) + float(np.abs(point.thresholds).sum())
    if rest > DUAL_ROUNDING or (below > DUAL_ROUNDING and problem.alpha == 0.0):
        return -np.inf
    trace = REACH * size if below <= DUAL_ROUNDING else ceiling / problem.alpha
    # The rounding error of margins, and so of the gradient, is about eps * size, and it is multiplied by M.
    rounding = np.finfo(np.float64).eps * problem.rows.condition * size * (1.0 + size)
    bound = point.dual_value - below * trace - rest * REACH * size - rounding
    return float(bound) if bound <= ceiling else -np.inf


def lower_bound(point: Point, solve: HessianSolve, target: float) -> float:
    """Prove a lower bound on the optimum, within about `target` of it if `point` is that close.

    Newton steps with fixed active constraints move the gradient onto the dual cone, and slightly
    into it; the result is verified, not assumed.  `solve` takes a right-hand side (matrix and
    thresholds), the thresholds to hold fixed, and the residual that it may leave.
    """
    cone, ceiling = point.problem.cone, point.value
    # M can do what the multiple of a centre does. With both free the Hessian is singular, and conjugate gradients that
    # are to raise the slopes of both would go on along what they have in common.
    doubled = np.zeros(len(point.thresholds), dtype=bool)
    doubled[-1:] = point.problem.likelihood.lengths is not None
    bound = max(0.0, proven_bound(point, ceiling))
    size = cone.trace(point.matrix) + float(point.thresholds[doubled].sum())
    inside = max(target, 1e-12) / (2.0 * max(size, 1.0))
    goal = _slack(point) + inside * cone.identity
    residual = DUAL_ROUNDING if cone.has_constant else 0.9 * inside
    longest = _LONGEST_PROOF_STEP * (1.0 + float(np.linalg.norm(point.matrix)))
    violation = np.inf
    for _ in range(_MOST_PROOF_ROUNDS):
        held = doubled | cone.are_held(point.thresholds, point.slopes)
        allowed = max(target, 1e-12) / (8.0 * (1.0 + np.abs(point.thresholds)))
        rise = np.where(held | np.isneginf(cone.least), 0.0, allowed)
        step, shift = solve(goal - point.gradient, rise - point.slopes, held, residual)
        if not float(np.linalg.norm(step)) <= longest:
            break
        point = _move(point, step, shift, np.where(doubled, np.inf, 2.0 * rise))
        bound = max(bound, proven_bound(point, ceiling))
        before, violation = violation, max(cone.violations(point.gradient, point.unpaid_slopes))
        if ceiling - bound <= target or not 0.0 < violation < 0.5 * before:
            break
    return bound


def _move(point: Point, step: FloatArray, shift: FloatArray, most: FloatArray) -> Point:
    """The point at the end of a step; thresholds with a slope below zero or above `most` are minimised."""
    problem = point.problem
    matrix, thresholds = point.matrix + step, np.maximum(point.thresholds + shift, problem.cone.least)
    squared = problem.forms(matrix)
    evaluation = problem.evaluate(squared, thresholds)
    held = problem.cone.are_held(thresholds, evaluation.slopes)
    if not np.all(held | ((evaluation.slopes >= 0.0) & (evaluation.slopes <= most))):
        del evaluation  # and its numbers of all rows
        thresholds, evaluation = problem.minimise_threshold(squared, thresholds, tol=0.1 * DUAL_ROUNDING)
    return problem.known(matrix, thresholds, evaluation)


def _slack(point: Point) -> FloatArray:
    """The positive part of the gradient on the null space of M."""
    values, vectors = point.problem.cone.eigen(point.matrix)
    null = vectors[:, values <= 1e-9 * max(values[-1], 0.0)]
    slack, turn = np.linalg.eigh(null.T @ point.gradient @ null)
    root: FloatArray = (null @ turn) * np.sqrt(np.maximum(slack, 0.0))
    return root @ root.T


# ---------------------------------------------------------------------------------------------------------------------
# Solving with the Hessian of the risk in (M, thresholds) if it is too large to form


_MOST_CONJUGATE_STEPS = 60  # each is a pass; a proof that needs more comes sooner after another step

Step = tuple[FloatArray, FloatArray]

Preconditioner = Callable[[BoolArray], Callable[[FloatArray, FloatArray], Step]]


@dataclass(frozen=True)
class HessianSolver:
    """Solve H[S, t] = (matrix, thresholds) by conjugate gradients; each product is one pass.

    `preconditioner` returns an approximate inverse of the Hessian for held thresholds, which need not be linear.
    A residual of `share` of the right-hand side is always small enough.
    """

    problem: Problem
    curvature: Curvature
    preconditioner: Preconditioner
    share: float = 0.0

    def __call__(self, matrix: FloatArray, thresholds: FloatArray, held: BoolArray, residual: float) -> Step:
        """Iterate until the spectral norm of the residual is at most `residual`; `held` thresholds are fixed."""
        precondition = self.preconditioner(held)
        residual = max(residual, self.share * float(np.linalg.norm(matrix, 2)))
        solution, shift = np.zeros_like(matrix), np.zeros_like(thresholds)
        left, left_t = matrix, thresholds
        step, step_t = precondition(left, left_t)
        size = float(np.sum(left * step) + left_t @ step_t)
        for _ in range(_MOST_CONJUGATE_STEPS):
            if np.linalg.norm(left, 2) <= residual:
                break
            image, image_t = self.problem.hessian_product(step, step_t, self.curvature)
            curved = float(np.sum(step * image) + step_t @ image_t)
            if not curved > 0.0:
                break
            length = size / curved
            solution, shift = solution + length * step, shift + length * step_t
            before, before_t = left, left_t
            left, left_t = left - length * image, left_t - length * image_t
            ahead, ahead_t = precondition(left, left_t)
            # Polak and Ribiere's rule allows for a preconditioner that is not quite linear.
            turn = (float(np.sum((left - before) * ahead) + (left_t - before_t) @ ahead_t)) / size
            size = float(np.sum(left * ahead) + left_t @ ahead_t)
            step, step_t = ahead + turn * step, ahead_t + turn * step_t
        return solution, shift


def prove_bound(point: Point, target: float) -> float:
    """A proven lower bound on the optimum, by conjugate gradients from a nearly optimal point.

    The bound is verified in full precision, so the steps that lead to it may be rough.
    """
    basis = np.linalg.eigh(point.matrix)[1]
    problem, curvature, bound = point.problem, point.evaluation.curvature, 0.0
    rough = problem.rough
    for each in (problem,) if rough is problem else (rough, problem):
        solve = HessianSolver(each, curvature, diagonal_model(each, curvature, basis))
        bound = max(bound, lower_bound(point, solve, target))
        if point.value - bound <= target:
            break
    return bound


def sample_model(problem: Problem, curvature: Curvature, basis: FloatArray, share: float) -> Preconditioner:
    """The inverse Hessian of a sample of the judgements, up to a residual of this share."""
    solve = HessianSolver(problem, curvature, diagonal_model(problem, curvature, basis), share)
    return lambda held: partial(solve, held=held, residual=0.0)


def diagonal_model(problem: Problem, curvature: Curvature, basis: FloatArray) -> Preconditioner:
    """The inverse Hessian if only squares of the coordinates in `basis` (eigenvectors of M) were correlated."""
    d = problem.n_directions
    fourth, border = problem.rotated_moments(curvature, basis)
    diagonal = np.block([[fourth, border], [border.T, curvature.thresholds]])
    ridge = 1e-10 * np.trace(diagonal) / len(diagonal) + TINY
    diagonal[np.diag_indices(len(diagonal))] += ridge
    # Of comparisons with normal legs, the derivatives in the other entries follow from those of the squares.
    squares = np.diag(fourth)
    off_diagonal = (np.sqrt(np.outer(squares, squares)) if problem.rows.compares else 2.0 * fourth) + ridge

    def holding(held: BoolArray) -> Callable[[FloatArray, FloatArray], Step]:
        free = np.append(np.ones(d, dtype=bool), ~held)
        inverse = np.linalg.inv(diagonal[np.ix_(free, free)])

        def apply(matrix: FloatArray, thresholds: FloatArray) -> Step:
            rotated = basis.T @ matrix @ basis
            on = np.zeros(len(diagonal))
            on[free] = inverse @ np.append(np.diag(rotated), thresholds)[free]
            scaled = rotated / off_diagonal
            scaled[np.diag_indices(d)] = on[:d]
            return basis @ scaled @ basis.T, on[d:]

        return apply

    return holding
