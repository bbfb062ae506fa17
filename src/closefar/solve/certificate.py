"""The certificate of a fit: what it reached, what is proven, and what to do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from closefar.errors import either, setting


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
