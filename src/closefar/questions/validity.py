"""Whether intervals can be trusted, and the sentences that say so."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from closefar.fitting.identifiability import name_columns
from closefar.noise import FlipRate
from closefar.questions.observed import Observed
from closefar.questions.open_direction import least_informed_direction
from closefar.questions.refits import JACKKNIFE_PARTS
from closefar.questions.sandwich import Sandwich

__all__ = [
    "CONTRADICTED_MODEL",
    "CONTRADICTED_RANK",
    "FARTHEST",
    "NOT_WITHOUT_PARTS",
    "NO_FREE_OPTIMUM",
    "Evidence",
    "boundary_of",
    "find_flaws",
    "state",
    "state_bootstrap",
    "state_flaws",
    "undetermined_statement",
]

# An eigenvalue, a threshold or a flip rate this many standard errors above zero is away from the boundary.
_AWAY = 3.0

# A fit further than the first number from its optimum, in standard errors, shifts the intervals visibly; they can be
# centred at a new optimum unless the fit is further than the second number: then it was fitted to other pairs.
FARTHEST = 0.1
_ELSEWHERE = 1.0

_FEWEST_UNITS = 30

# Uncertain labels per parameter: below the first number no interval is valid, according to simulations with 80 to 5000
# pairs of 2 to 20 columns; from the second (or the number of parameters) on, the bias is small beside a standard error.
_FEWEST = 3.0
_MANY = 25.0
_WITH_FLIPS = 2.0  # times as many, since flipped labels carry no information


NO_FREE_OPTIMUM = (
    "M is on the boundary of the positive semidefinite matrices, and without that constraint the labels do not "
    "determine it. Label more pairs, leave columns out, or set the rank."
)

CONTRADICTED_MODEL = (
    "The labels contradict the model: an M with negative eigenvalues, which is not a metric, explains them far better. "
    "Check which label means far, and see diagnose(). With rank=..., intervals are for the best metric of that rank."
)
CONTRADICTED_RANK = (
    "The labels contradict it, so intervals are for the best metric of that rank, not for the M that generated them."
)
_KNOWN_RATES = (
    "The flip rates of annotators are estimated, but intervals treat them as known, and the scale of M, of thresholds "
    "and of probabilities depends on them; only relative_matrix, M / tr M, hardly does. For the others, leave out "
    "annotators who answer at random, and fit with flip_rate=0."
)
NOT_WITHOUT_PARTS = (
    f"With {1.0 / JACKKNIFE_PARTS:.0%} of the pairs left out, there is no finite optimum, so the fit depends on a few "
    "labels. Label more pairs."
)


@dataclass(frozen=True)
class Evidence:
    """The number of uncertain labels and of parameters; dependent labels count for less.

    `n_units` is the number of groups or points that make pairs dependent.
    """

    uncertain: float
    n_parameters: int
    n_observations: float
    estimates_flips: bool = False
    n_units: float = math.inf

    @classmethod
    def of(cls, sample: Observed, facts: Sandwich, *, keeps_rank: bool) -> Evidence:
        uncertain = sample.count_uncertain() * facts.independence
        n_parameters = sample.count_parameters(keeps_rank=keeps_rank)
        n_units = math.inf if sample.dependence.n_units is None else float(sample.dependence.n_units)
        n, flips = float(sample.repeats.sum()), sample.fit.known.estimates_flips
        return cls(uncertain, n_parameters, n, flips, n_units)

    @property
    def per_parameter(self) -> float:
        return self.uncertain / self.n_parameters

    @property
    def many(self) -> float:
        """The uncertain labels per parameter from which on the sandwich alone is enough."""
        return max(_MANY, float(self.n_parameters)) * (_WITH_FLIPS if self.estimates_flips else 1.0)

    @property
    def is_plenty(self) -> bool:
        return min(self.uncertain, self.n_units) >= self.many * self.n_parameters

    def flaw(self, method: str) -> str | None:
        """Why there are too few labels for the intervals of a method; None if there are enough."""
        if self.is_plenty or (method == "jackknife" and self.per_parameter >= _FEWEST):
            return None
        if self.per_parameter >= _FEWEST:
            return (
                f"The {method} needs at least {self.many:.0f} uncertain labels (and groups or points, if any) per "
                f"parameter; got {min(self.uncertain, self.n_units) / self.n_parameters:.1f}. Use "
                'method="jackknife".'
            )
        needed = self.n_observations * _FEWEST / max(self.per_parameter, 1e-3)
        return (
            f"Intervals need at least {_FEWEST:g} uncertain labels per parameter; got {self.per_parameter:.1f} "
            f"({self.uncertain:,.0f}, the sum of 4 p (1 - p), for {self.n_parameters:,} parameters; weights count as "
            f"repeats{', dependent labels for less' if math.isfinite(self.n_units) else ''}). Label about "
            f"{_rounded_up(needed):,} pairs in total, or leave columns out."
        )


def boundary_of(facts: Sandwich, largest_rank: int) -> str | None:
    """Why the optimum may lie on the boundary of the feasible set; None if it is interior."""
    if facts.rank < largest_rank:
        return f"M has rank {facts.rank} of {largest_rank}"
    if not facts.smallest > _AWAY:
        return f"the smallest eigenvalue of M is only {facts.smallest:.1f} standard errors above zero"
    if not facts.threshold > _AWAY:
        return f"the threshold is only {facts.threshold:.1f} standard errors above zero"
    return None


def find_flaws(
    sample: Observed, facts: Sandwich, evidence: Evidence, method: str, *, keeps_rank: bool
) -> tuple[str, ...]:
    """The reasons why a method can't be valid, one sentence each; no refit helps."""
    flaws = []
    fit, dependence = sample.fit, sample.dependence
    if not fit.certificate.converged:
        flaws.append("The fit did not converge; see certificate_.status.")
    elif not facts.distance <= (FARTHEST if keeps_rank or method == "bootstrap" else _ELSEWHERE):
        flaws.append(
            f"The fit is {facts.distance:.2g} standard errors from the optimum. Pass the pairs, labels and weights "
            "that it was fitted to, or fit with a smaller tol."
        )
    rate = float(np.min(fit.metric.flip_rate))
    if sample.estimates_rates and not (rate > 0 and facts.flip_rate > _AWAY):
        flaws.append(_flaw_of_rates(fit.metric.flip_rate))
    if sample.has_annotator_rates:
        flaws.append(_KNOWN_RATES)
    if method == "bootstrap" and fit.chose_rank:
        flaws.append('The bootstrap treats the rank as known, but it was chosen from these labels. Use method="auto".')
    too_few = evidence.flaw(method)
    if too_few is not None:
        flaws.append(too_few)
    if dependence.n_units is not None and dependence.n_units < _FEWEST_UNITS:
        what = "points" if dependence.by_points else "groups"
        flaws.append(f"Intervals need at least {_FEWEST_UNITS} {what}; got {dependence.n_units}. Add more {what}.")
    return tuple(flaws)


def _flaw_of_rates(flip_rate: FlipRate) -> str:
    """What to do about an estimated flip rate close to zero."""
    if isinstance(flip_rate, tuple):
        known = tuple(round(rate, 3) if rate > min(flip_rate) else 0.0 for rate in flip_rate)
        return (
            f"The smaller of both flip rates, {min(flip_rate):.2g}, is within {_AWAY:g} standard errors of zero, its "
            f"boundary. Label more pairs, or set both, such as flip_rate={known}; they are then treated as known."
        )
    return (
        f"The estimated flip rate, {flip_rate:.2g}, is within {_AWAY:g} standard errors of zero, its boundary. "
        "Label more pairs or, if labels are never flipped, fit with flip_rate=0."
    )


def undetermined_statement(sample: Observed, *, has_penalty: bool) -> str:
    """State what the labels do not determine; `has_penalty` is about the fit that was asked about."""
    remark = "" if has_penalty else " A penalty (alpha > 0) gives a metric, but no intervals."
    if sample.fit.is_quasi_separable and has_penalty:
        return (
            "Not valid, and every interval is unbounded: one direction explains some labels without exception, so that "
            "without the penalty M grows without bound along it. Label more pairs."
        )
    if sample.fit.is_quasi_separable:
        return f"Not valid, and every interval is unbounded: {sample.fit.certificate.advice}{remark}"
    where, why, there = "", "all labels can be explained without error", ""
    if not sample.fit.is_separable:
        direction = least_informed_direction(sample.likelihood, sample.parameters, sample.optimum.coordinates)
        where = f" along {name_columns(sample.fit.metric.column_names, direction)}"
        why, there = (
            "no label is informative there, or all that are can be explained without error",
            " that differ there",
        )
    return (
        f"Not valid: the pairs do not determine the metric{where} ({why}), so every interval is unbounded. Label more "
        f"pairs{there}, or leave columns out.{remark}"
    )


def state_flaws(flaws: tuple[str, ...], method: str, *, skipped: bool = False) -> str:
    """State why the intervals are not valid."""
    ending = f"The standard errors are those of the {method}."
    return " ".join(
        ["Not valid.", *flaws, ending, *(["No refits were made, since they would not help."] if skipped else [])]
    )


def state(sample: Observed, facts: Sandwich, evidence: Evidence, method: str, boundary: str | None) -> str:
    """State what valid intervals of the sandwich or the jackknife are based on."""
    grouped = math.isfinite(evidence.n_units)
    if method == "jackknife":
        found, enough = f"{evidence.per_parameter:.1f} uncertain labels per parameter", f"{evidence.many:.0f}"
        if grouped:
            units = "points" if sample.dependence.by_points else "groups"
            found = f"{evidence.n_units / evidence.n_parameters:.1f} {units} and {found} (dependent labels count less)"
            enough += " of each"
        statement = (
            f"Each interval contains that of the sandwich and that of a jackknife of {JACKKNIFE_PARTS} fits, which "
            f"corrects the bias with only {found}; from {enough} on the sandwich is enough."
        )
    else:
        threshold = f", the threshold {facts.threshold:.1f}" if math.isfinite(facts.threshold) else ""
        interior = (
            f": the optimum is interior (the smallest eigenvalue of M is {facts.smallest:.1f} standard errors above "
            f"zero{threshold})"
        )
        statement = f"Sandwich standard errors from the observed information{interior if boundary is None else ''}."
    chosen = sample.fit.chose_rank and sample.largest_rank < sample.optimum.size
    if boundary is not None or chosen:
        reason = boundary if boundary is not None else "the rank was chosen from these labels"
        statement += (
            f" Since {reason}, intervals are centred at the optimum over all symmetric matrices, which has no "
            "boundary, and extended to contain the fit's own estimate."
        )
    elif sample.knows_rank:
        statement += f" Rank {sample.largest_rank} is treated as known."
    return statement


def state_bootstrap(sample: Observed, boundary: str | None, n_bootstrap: int) -> str:
    """State what valid intervals of the bootstrap are based on."""
    statement = f"Bootstrap standard errors from {n_bootstrap} refits"
    if boundary is None:
        statement += ": the optimum is interior, so the sandwich is as good, and faster."
    else:
        statement += (
            f", or those of the sandwich if they are larger: {boundary}, so the optimum is on or near the boundary, "
            "where neither is exact. Intervals are approximately valid for the threshold, probabilities, distances, "
            "and entries and eigenvalues clearly different from zero, but not for eigenvalues at zero or distances "
            "along their directions."
        )
    if sample.dependence.by_points:
        statement += " Since points are resampled, they are too wide, about twofold if few pairs share a point."
    return statement


def _rounded_up(number: float) -> int:
    """Round up to two digits."""
    unit = 10 ** max(int(math.log10(max(number, 1.0))) - 1, 0)
    return int(math.ceil(number / unit) * unit)
