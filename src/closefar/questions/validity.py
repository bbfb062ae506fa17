"""Whether intervals can be trusted, and the sentences that say so."""

from __future__ import annotations

import math
from dataclasses import dataclass

from closefar.fitting.identifiability import name_columns
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

# A fit further than this from its optimum, in standard errors, moves the intervals visibly; they can be around an
# optimum that is found anew, unless the fit is further than the second number: then it is one to other pairs.
FARTHEST = 0.1
_ELSEWHERE = 1.0

_FEWEST_UNITS = 30

# Uncertain labels per parameter: below the first number nothing is claimed, by simulation with 80 to 5000 pairs of
# 2 to 20 columns; from the second on, or the number of parameters, the bias is small beside a standard error.
_FEWEST = 3.0
_MANY = 25.0
_WITH_FLIPS = 2.0  # times as many: labels that are flipped tell nothing


NO_FREE_OPTIMUM = (
    "M is on the boundary of the positive semidefinite matrices, and without that constraint the labels do not "
    "determine it: label more pairs, leave columns out, or give the rank."
)

CONTRADICTED_MODEL = (
    "The labels contradict the model: an M with negative eigenvalues, which is no metric, explains them far better. "
    "Check which label means far, and see diagnose(); with rank=..., intervals are for the best metric of that rank."
)
CONTRADICTED_RANK = (
    "The labels contradict it, so intervals are for the best metric of that rank, not for the M that they came from."
)
NOT_WITHOUT_PARTS = (
    f"Without {1.0 / JACKKNIFE_PARTS:.0%} of the pairs the others have no finite optimum, so that a few labels decide: "
    "label more pairs."
)


@dataclass(frozen=True)
class Evidence:
    """How many uncertain labels there are for how many parameters; dependent ones count for less.

    `n_units` is the number of groups or points that pairs depend on each other through.
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
        n, flips = float(sample.repeats.sum()), sample.fit.settings.estimates_flips
        return cls(uncertain, n_parameters, n, flips, n_units)

    @property
    def per_parameter(self) -> float:
        return self.uncertain / self.n_parameters

    @property
    def many(self) -> float:
        """From here on the sandwich alone is enough."""
        return max(_MANY, float(self.n_parameters)) * (_WITH_FLIPS if self.estimates_flips else 1.0)

    @property
    def is_plenty(self) -> bool:
        return min(self.uncertain, self.n_units) >= self.many * self.n_parameters

    def flaw(self, method: str) -> str | None:
        """Why these labels are too few for the intervals of a method; None where they are enough."""
        if self.is_plenty or (method == "jackknife" and self.per_parameter >= _FEWEST):
            return None
        if self.per_parameter >= _FEWEST:
            return (
                f"The {method} needs {self.many:.0f} uncertain labels (and groups, or points, where there are any) per "
                f"parameter, and there are {min(self.uncertain, self.n_units) / self.n_parameters:.1f}: use "
                'method="jackknife".'
            )
        needed = self.n_observations * _FEWEST / max(self.per_parameter, 1e-3)
        return (
            f"There are only {self.per_parameter:.1f} uncertain labels per parameter ({self.uncertain:,.0f}, the sum "
            f"of 4 p (1 - p), for {self.n_parameters:,}; weights count as repeats"
            f"{', dependent labels for less' if math.isfinite(self.n_units) else ''}), and intervals need "
            f"{_FEWEST:g}: label about {_rounded_up(needed):,} pairs, or leave columns out."
        )


def boundary_of(facts: Sandwich, largest_rank: int) -> str | None:
    """Why the optimum may lie on the boundary of the feasible set; None where it is interior."""
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
    """Why a method can't be valid, a sentence each: no refit cures it."""
    flaws = []
    fit, dependence = sample.fit, sample.dependence
    if not fit.certificate.converged:
        flaws.append("The fit did not converge: see certificate_.status.")
    elif not facts.distance <= (FARTHEST if keeps_rank or method == "bootstrap" else _ELSEWHERE):
        flaws.append(
            f"The fit is {facts.distance:.2g} standard errors from the optimum: give the pairs, labels and weights "
            "that it was fitted to, or fit with a smaller tol."
        )
    if fit.settings.estimates_flips and not (fit.flip_rate > 0 and facts.flip_rate > _AWAY):
        flaws.append(
            f"The estimated flip rate, {fit.flip_rate:.2g}, is within {_AWAY:g} standard errors of zero, its boundary. "
            "Label more pairs; if labels are never flipped, fit with flip_rate=0."
        )
    if method == "bootstrap" and fit.rank_choice is not None:
        flaws.append('The bootstrap takes the rank as known, but it was chosen from these labels: use method="auto".')
    too_few = evidence.flaw(method)
    if too_few is not None:
        flaws.append(too_few)
    if dependence.n_units is not None and dependence.n_units < _FEWEST_UNITS:
        what = "points" if dependence.by_points else "groups"
        flaws.append(f"{dependence.n_units} {what} are too few: at least {_FEWEST_UNITS} are needed.")
    return tuple(flaws)


def undetermined_statement(sample: Observed) -> str:
    """What the labels leave open."""
    if sample.fit.is_quasi_separable:
        advice = sample.fit.certificate.advice
        return f"Not valid, and every interval is unbounded: {advice} A penalty gives a metric, but no intervals."
    where, why, there = "", "all labels can be explained without error", ""
    if not sample.fit.is_separable:
        direction = least_informed_direction(sample.likelihood, sample.parameters, sample.optimum.coordinates)
        where = f" along {name_columns(sample.fit.metric.column_names, direction)}"
        why, there = "no label tells of it there, or all that do can be explained without error", " that differ there"
    return (
        f"Not valid: the pairs do not determine the metric{where} ({why}), so every interval is unbounded. Label more "
        f"pairs{there}, or leave columns out; alpha > 0 gives a metric, but no intervals."
    )


def state_flaws(flaws: tuple[str, ...], method: str, *, skipped: bool = False) -> str:
    """Why the intervals do not hold."""
    ending = f"The standard errors are the {method}'s."
    return " ".join(
        ["Not valid.", *flaws, ending, *(["Refits could not cure it, so there are none."] if skipped else [])]
    )


def state(sample: Observed, facts: Sandwich, evidence: Evidence, method: str, boundary: str | None) -> str:
    """What valid intervals of the sandwich or the jackknife rest on."""
    grouped = math.isfinite(evidence.n_units)
    if method == "jackknife":
        found, enough = f"{evidence.per_parameter:.1f} uncertain labels per parameter", f"{evidence.many:.0f}"
        if grouped:
            units = "points" if sample.dependence.by_points else "groups"
            found = f"{evidence.n_units / evidence.n_parameters:.1f} {units} and {found} (dependent labels count less)"
            enough += " of each"
        statement = (
            f"Each interval covers the sandwich interval and that of a jackknife of {JACKKNIFE_PARTS} fits, each "
            f"without one part of the pairs, which corrects for the bias of a fit to {found}; from {enough} on, the "
            "sandwich is enough."
        )
    else:
        interior = (
            f": the optimum is interior (the smallest eigenvalue of M is {facts.smallest:.1f} standard errors above "
            f"zero, the threshold {facts.threshold:.1f})"
        )
        statement = f"Sandwich standard errors from the observed information{interior if boundary is None else ''}."
    chosen = sample.fit.rank_choice is not None and sample.largest_rank < sample.optimum.size
    if boundary is not None or chosen:
        reason = boundary if boundary is not None else "the rank was chosen from these labels"
        statement += (
            f" Since {reason}, intervals are around the optimum over all symmetric matrices, which has no boundary, "
            "and contain the fit's own estimate too."
        )
    elif sample.knows_rank:
        statement += f" The rank {sample.largest_rank} counts as known."
    return statement


def state_bootstrap(sample: Observed, boundary: str | None, n_bootstrap: int) -> str:
    """What valid intervals of the bootstrap rest on."""
    statement = f"Bootstrap standard errors from {n_bootstrap} refits"
    if boundary is None:
        statement += ": the optimum is interior, where the sandwich is as good and faster."
    else:
        statement += (
            f", or the sandwich's where those are larger: {boundary}, so the optimum is on the boundary or near "
            "it, where neither is exact. They hold approximately for the threshold, probabilities, distances, and "
            "entries and eigenvalues clearly not zero. Nothing is claimed for eigenvalues at zero and distances along "
            "their directions."
        )
    if sample.dependence.by_points:
        statement += " With points resampled they are too wide, by a factor of about two where few pairs share a point."
    return statement


def _rounded_up(number: float) -> int:
    """To two digits."""
    unit = 10 ** max(int(math.log10(max(number, 1.0))) - 1, 0)
    return int(math.ceil(number / unit) * unit)
