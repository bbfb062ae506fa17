"""What a fit has reached and what proves it: the facts, and the sentence that says what to do about them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Certificate", "Outcome", "advise"]


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
    """How good a fit is, and what proves it.

    Attributes
    ----------
    loss : float
        The mean negative log-likelihood R(M, tau) of the labels.  (Where labels may be flipped,
        `loss` accounts for that; `objective`, `lower_bound` and `gap` are of the convex problem
        in which each label's probability of being flipped is held fixed.)
    gap : float
        A proven upper bound on the objective minus its minimum.  The objective is the
        loss, or the loss plus the trace penalty where alpha > 0.  (Where no strictly feasible
        dual point exists, as with a learned origin and alpha = 0, it bounds the gain of every
        metric up to a thousand times the size of this one.)
    converged : bool
        Whether `gap` is at most the tolerance asked for or, where `rank` is fixed, no small
        change improves the metric.
    outcome : Outcome
        How the fit ended: "converged", "restricted" (no metric of the rank asked for is near and
        better, but one of a higher rank may be), "separable" (every label is right, so there is no
        finite optimum), "quasi-separable" (there is none either, since one direction explains
        some labels without a single exception), "stalled", "unfinished" or "interrupted".  Of a
        metric without its fit: "truncated" or "unknown".
    advice : str
        What that means, and what to do.
    n_passes : float
        Passes over the data; one is a loss with its gradient.
    objective, lower_bound : float
        What `gap` is the difference of.
    threshold_multiplier : float
        dR/dtau, the multiplier of tau >= 0: zero where tau > 0.  (Of several thresholds, the sum.)
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
        """Of a metric of that rank without its fit: it has a loss on some pairs, and nothing is proven."""
        advice = advise(outcome, gap=math.inf, is_proven=False, tol=0.0, rank=rank, max_iter=0)
        return cls(loss, math.inf, False, outcome, advice, 0.0, loss, -math.inf, 0.0, False)

    @property
    def status(self) -> str:
        """The outcome and the advice: a word, a colon, and a sentence to act on."""
        return f"{self.outcome}: {self.advice}"


def advise(outcome: Outcome, *, gap: float, is_proven: bool, tol: float, rank: int | None, max_iter: int) -> str:
    """Say what an outcome means, and what to do about it."""
    left = f"the proven gap is {gap:.1e}" if is_proven else "no gap is proven yet"
    match outcome:
        case Outcome.SEPARABLE:
            return (
                "this metric gets every label right, so the likelihood has no finite maximum and the scale of "
                "M and tau (hence the probabilities) is arbitrary; M / tau has a wide margin. "
                "Set alpha > 0 (try 0.01) or label more pairs."
            )
        case Outcome.QUASI_SEPARABLE:
            return (
                "one direction explains some labels without a single exception: the likelihood has no finite maximum."
            )
        case Outcome.INTERRUPTED:
            return f"stopped by hand; {left}. The metric is usable."
        case Outcome.CONVERGED:
            also = f" Rank {rank} costs nothing: no metric of higher rank is better." if rank else ""
            return f"the objective is within a proven {gap:.1e} of its global minimum.{also}"
        case Outcome.RESTRICTED:
            return (
                f"no small change of this rank-{rank} metric improves it, but metrics of higher rank may be "
                f"better, by at most {gap:.1e}. Raise rank, or leave it out, to close the gap."
            )
        case Outcome.UNFINISHED:
            return (
                f"max_iter={max_iter} steps did not reach tol={tol:.1e}; {left}. "
                "The metric is usable; raise max_iter, tol or alpha."
            )
        case Outcome.TRUNCATED:
            return (
                f"directions were cut from this metric after its fit, so it is not the best of rank {rank} and nothing "
                f"is proven about it. Fit with rank={rank} for the best one."
            )
        case Outcome.UNKNOWN:
            return (
                "this is a metric without its fit, so what it was learned from is not known and nothing is proven "
                "about it. Fit to learn more."
            )
        case Outcome.STALLED:
            return (
                f"further steps gain nothing, but tol={tol:.1e} is not proven; {left}. The optimum may lie at "
                "infinity (as with 0/1 columns and fit_origin). The metric is usable; raise alpha (try 0.001) or tol."
            )
