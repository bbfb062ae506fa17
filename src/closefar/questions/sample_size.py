"""How many pairs to label to reach a target error, estimated from a pilot fit.

The estimate is asymptotic, for maximum likelihood under constraints.  Let H and V be
the Hessian of the loss and the covariance of its gradient for one pair.  If M has rank
k < d, the fit moves in the tangent space of the matrices of rank k, which has
d k - k (k - 1) / 2 dimensions, plus one for each threshold.  In that space the loss has the Hessian
H + C: turning M = A A' towards a direction in its null space has a cost given by the multiplier
of that direction.  C is g_j / lambda_i for the entry that connects eigenvalue lambda_i of M
to eigenvalue g_j of dR/dM.  Then N times the expected excess loss tends to
tr((H + C)^-1 V) / 2, half the effective number of parameters.

With few labels the error is larger.  The factor depends on the uncertain labels per parameter, U,
which are proportional to N: 1 + a / U + b / U^2 below was measured in some 2,500 fits of 2 to 8
columns (normal, t(3), lognormal and 0/1) with 5 to 20% wrong close/far labels.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from sklearn.utils import check_random_state

from closefar import packed
from closefar.arrays import FloatArray
from closefar.errors import InvalidValueError, either, setting
from closefar.fitting import Fit, Fitted, without_penalty
from closefar.judgements import Kind, find_points
from closefar.model import Metric
from closefar.model.metric import root_of
from closefar.noise import has_flips
from closefar.questions.likelihood import LabelLikelihood, Moves, RankMoves
from closefar.theory import parameter_bound, sample_size

_DRAWS = 1000  # a quantile of 95% is then one of 93.6 to 96.4%
_PLANNED_UNCERTAIN = 1.0  # uncertain labels per parameter of a pilot: with fewer, no plan is possible
_ROUGH_UNCERTAIN = 5.0  # with fewer, a plan is rough: the factor below is 1.4 for the loss

# The error falls as N to minus this power; with U uncertain labels per parameter it is 1 + a / U + b / U^2 times that.
_RATES = {"loss": 1.0, "spectral": 0.5}
_EXCESS = {"loss": (1.0, 5.0), "spectral": (0.4, 1.0)}
_WORDS = {"loss": "excess loss", "spectral": "relative spectral error of M / {scale}"}


@dataclass(frozen=True)
class SampleSizePlan:
    """How many pairs are needed for a target error, estimated from the pilot and guaranteed by the theorem.

    Attributes
    ----------
    measure : {"loss", "spectral"}
    target_error : float
    delta : float
    pilot_n : int
        The number of pairs in the pilot.
    n_parameters : float
        The effective number of parameters, tr((H + C)^-1 V).
    uncertain_per_parameter : float
        U, the uncertain labels of the pilot (the sum of 4 p (1 - p)) per free parameter.
    n_pairs : int
        The number of pairs, including the pilot, at which the expected error is `target_error`.
    n_pairs_likely : int
        The number of pairs at which the error is at most `target_error` with probability 1 - delta.
    worst_case : float or None
        The number of pairs that the paper's theorem requires, with the pilot's largest eigenvalue and
        longest difference as its bounds; infinite beyond about 1e300.  None for levels and comparisons, which
        the theorem does not cover.
    expected_coefficient, likely_coefficient : float
        N (loss) or sqrt(N) (spectral) times the errors of fits to very many pairs N.  With few uncertain
        labels per parameter errors are larger; `expected_error` and `likely_error` allow for that.
    shares_points : bool
        Whether pairs of the pilot share points.  Then more pairs are needed than if they were
        independent.
    kind : Kind
        What is planned: with comparisons, all numbers of pairs are numbers of comparisons.
    """

    measure: str
    target_error: float
    delta: float
    pilot_n: int
    n_parameters: float
    uncertain_per_parameter: float
    n_pairs: int
    n_pairs_likely: int
    worst_case: float | None
    expected_coefficient: float
    likely_coefficient: float
    shares_points: bool = False
    kind: Kind = Kind.CLOSE_FAR

    def expected_error(self, n: float) -> float:
        """Return the expected error of a fit to `n` pairs."""
        return self.expected_coefficient * _decay(n, self.measure, self.uncertain_per_parameter / self.pilot_n)

    def likely_error(self, n: float) -> float:
        """Return the error that a fit to `n` pairs stays below with probability 1 - delta."""
        return self.likely_coefficient * _decay(n, self.measure, self.uncertain_per_parameter / self.pilot_n)

    @property
    def sentence(self) -> str:
        """How many pairs to label, and the number that the theorem requires."""
        more, uncertain = self.n_pairs - self.pilot_n, self.uncertain_per_parameter
        noun, get = _words(self.kind)
        # What M is divided by, so that its error does not depend on the noise.
        error = _WORDS[self.measure].format(scale="tau" if self.kind is Kind.CLOSE_FAR else "tr M")
        parts = [
            f"About {self.n_pairs:,} {noun} are needed for an expected {error} of {self.target_error:g}:",
            f"{get.lower()} {more:,} more." if more > 0 else "the pilot is large enough.",
            f"With the {self.pilot_n:,} {noun} of the pilot it is {self.expected_error(self.pilot_n):.2g};",
            f"with {self.n_pairs_likely:,} it is at most the target with probability {1.0 - self.delta:g}.",
        ]
        if self.worst_case is not None:
            theorem = "more than 1e+300 pairs"
            if math.isfinite(self.worst_case):
                orders = math.floor(math.log10(self.worst_case / self.n_pairs))
                theorem = f"{self.worst_case:.0e} pairs ({orders} orders of magnitude more)"
            parts.append(f"The theorem's worst-case guarantee needs {theorem}, too many to plan with.")
        if uncertain < _ROUGH_UNCERTAIN:
            parts.append(
                f"The pilot has only {uncertain:.1f} uncertain {self.kind.term}s per parameter, so this plan is rough. "
                f"Plan again with about {math.ceil(self.pilot_n * _ROUGH_UNCERTAIN / uncertain):,} {noun}."
            )
        if self.shares_points:
            parts.append(f"The plan assumes independent {noun}; these share points, so more are needed.")
        return " ".join(parts)


def plan_sample_size(
    learner: Fit | Fitted,
    pairs: Any = None,
    labels: Any = None,
    *,
    target_error: float,
    measure: str = "loss",
    delta: float = 0.05,
    random_state: Any = 0,
) -> SampleSizePlan:
    """Estimate from a pilot fit how many pairs to label, or how many comparisons to collect, for a target error.

    The plan assumes that the noise model is correct (see `check_noise_model`), that further pairs
    come from the same population as the pilot, and that pairs are independent.  If pairs share
    points, or one person labels many of them, more are needed.

    Parameters
    ----------
    learner : LinearMetricLearner, OrdinalMetricLearner or ComparisonMetricLearner
        A learner fitted to the pilot without `fit_origin`, sample weights, annotators and
        comparisons in addition to pairs.  If it has a penalty, the plan is for fits without it, since a penalty
        adds an error that no sample size removes.
    pairs, labels : arrays, optional
        The pilot, needed only if `learner` was copied or loaded without its training pairs.
    target_error : float
        The error to reach.
    measure : {"loss", "spectral"}, default="loss"
        "loss": R(M, tau) - R(M*, tau*), the expected loss on a new pair in excess of the best
        possible, in nats.  "spectral": the spectral norm of M / tau - M* / tau* relative to
        that of M* / tau*, in the units of the data; for levels and comparisons, M / tr M.
    delta : float, default=0.05
        The probability of missing the target, for `n_pairs_likely` and for the theorem.
    random_state : int, RandomState or None, default=0
        Seed of the draws from the asymptotic normal distribution.

    Examples
    --------
    >>> import closefar as cf
    >>> pilot = cf.datasets.make_pairs(1000, 3, wrong_share=0.1, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(pilot.pairs, pilot.labels)
    >>> plan = cf.plan_sample_size(learner, target_error=0.002)
    >>> plan.pilot_n < plan.n_pairs < plan.n_pairs_likely < plan.worst_case
    True
    """
    _check_request(target_error, measure, delta)
    fit = Fit.of(learner)
    pilot = fit.read_or_training(pairs, labels)
    pilot = pilot.with_weights(np.ones(len(pilot)))
    if not fit.settings.fit_origin:
        fit = without_penalty(fit, pilot, class_weight=fit.settings.class_weight)
    pilot = pilot.weighted(fit.settings.class_weight)  # and those of the fit alone
    _check_fit(fit, measure)
    likelihood, parameters = LabelLikelihood.of(fit, pilot, Moves.of(fit, pilot, keeps_rank=False, is_complete=True))
    _check_pilot(fit, float(likelihood.shares @ likelihood.terms(parameters).loss))
    moves, hessian, covariance = _local_model(likelihood, parameters, fit.metric.rank)
    n, p, uncertain = len(pilot), moves.shape[1], fit.statistics.uncertain_per_parameter
    if uncertain < _PLANNED_UNCERTAIN:
        noun, get = _words(fit.kind)
        raise ValueError(
            f"the pilot must have at least {_PLANNED_UNCERTAIN:g} uncertain label per parameter; got {uncertain:.2f} "
            f"(the sum of 4 p (1 - p) over {n:,} labels, over the number of parameters). {get} more {noun} first, "
            f"about {math.ceil(2.0 * n * _PLANNED_UNCERTAIN / max(uncertain, 0.1)):,} in total, or fit with a smaller "
            "rank."
        )
    inverse = np.linalg.pinv(hessian, hermitian=True)
    n_parameters = float(np.sum(inverse * covariance))
    normal = np.random.default_rng(check_random_state(random_state).randint(2**31)).standard_normal((p, _DRAWS))
    steps = inverse @ root_of(covariance).T @ normal
    if measure == "loss":
        errors = 0.5 * np.einsum("ij,ij->j", steps, hessian @ steps)
        mean = 0.5 * n_parameters
    else:
        errors = _spectral_errors(moves @ steps, likelihood.moves.basis, fit.metric, fit.kind)
        mean = float(errors.mean())
    worst = None
    if fit.kind is Kind.CLOSE_FAR:
        rows, basis, largest = likelihood.rows, np.eye(pilot.n_columns), float(fit.metric.eigenvalues[0])
        if measure == "loss":  # which is the same in all units
            basis, largest = likelihood.moves.basis, float(likelihood.moves.values[0])
        longest = rows.extremes(rows.squared_distances(basis))[1]
        worst = _worst_case(fit.metric, measure, float(target_error), float(delta), largest * longest)
    likely = float(np.quantile(errors, 1.0 - delta))
    return SampleSizePlan(
        measure=measure,
        target_error=float(target_error),
        delta=float(delta),
        pilot_n=n,
        n_parameters=n_parameters,
        uncertain_per_parameter=uncertain,
        n_pairs=_pairs_for(target_error / mean, measure, uncertain / n),
        n_pairs_likely=_pairs_for(target_error / likely, measure, uncertain / n),
        worst_case=worst,
        expected_coefficient=mean,
        likely_coefficient=likely,
        shares_points=find_points(pilot.data) is not None,
        kind=fit.kind,
    )


def _decay(n: float, measure: str, uncertain: float) -> float:
    """The error of n pairs over its coefficient; one pair has `uncertain` uncertain labels per parameter."""
    first, second = _EXCESS[measure]
    u = uncertain * n
    return float((1.0 + first / u + second / u**2) / n ** _RATES[measure])


def _pairs_for(decay: float, measure: str, uncertain: float) -> int:
    """The number of pairs with this decay."""
    low = float(decay ** (-1.0 / _RATES[measure]))  # without the factor for few labels
    high = 2.0 * low
    while _decay(high, measure, uncertain) > decay:
        high *= 2.0
    return math.ceil(float(brentq(lambda n: _decay(n, measure, uncertain) - decay, low, high)))


def _words(kind: Kind) -> tuple[str, str]:
    """What is planned, and how one gets more."""
    return f"{kind.noun}s", "Collect" if kind is Kind.COMPARISONS else "Label"


def _check_pilot(fit: Fit, loss: float) -> None:
    """Raise an error if this is not the loss of the fit, so that these are not its training pairs."""
    fitted = fit.certificate.loss
    if abs(loss - fitted) > 1e-7 * (1.0 + fitted):
        raise ValueError(
            "pairs and labels must be the whole pilot that the learner was fitted to, without sample weights; got a "
            f"loss of {loss:.6g} on them, and {fitted:.6g} in the fit. Pass the pilot, or fit again."
        )


def _local_model(
    likelihood: LabelLikelihood, parameters: FloatArray, rank: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A basis of the tangent space in (packed M, thresholds); H + C and V in that basis."""
    terms, shares = likelihood.terms(parameters), likelihood.shares
    matrix, thresholds = packed.split(parameters, likelihood.moves.size)
    gradient, _ = packed.split(likelihood.gradient(terms, parameters, shares), len(matrix))
    moves = RankMoves.at(matrix, gradient, len(thresholds), rank)
    hessian = moves.information(likelihood.information(parameters, shares, terms))
    alongs = (scores @ moves.basis for _, scores in likelihood.scores(terms))
    covariance = len(shares) * np.asarray(sum(along.T @ along for along in alongs))
    # A threshold held at zero does not move.
    free = np.append(np.ones(len(hessian) - len(thresholds), dtype=bool), thresholds > 0)
    return moves.basis[:, free], hessian[np.ix_(free, free)], covariance[np.ix_(free, free)]


def _spectral_errors(steps: FloatArray, transform: FloatArray, metric: Metric, kind: Kind) -> FloatArray:
    """The relative spectral norm of the change of M / tau, or of M / tr M, to first order.

    For each step in (packed M, thresholds).
    """
    d, whole = transform.shape[1], metric.matrix
    n = packed.packed_size(d)
    changes = transform @ packed.unpack(steps[:n].T, d) @ transform.T
    if kind is Kind.CLOSE_FAR:
        scales = steps[n] / metric.known_threshold
    else:
        scales = np.trace(changes, axis1=1, axis2=2) / np.trace(whole)
    errors = np.abs(np.linalg.eigvalsh(changes - scales[:, None, None] * whole)).max(axis=1)
    return np.asarray(errors / float(metric.eigenvalues[0]))


def _worst_case(metric: Metric, measure: str, target: float, delta: float, radius: float) -> float:
    """The theorem's number of pairs, in units in which the longest difference has length one (F = 1, beta = radius).

    The radius is the largest eigenvalue times the longest squared difference of the pilot.
    A relative error of at most e in M / tau follows from a parameter distance of at most
    e tau / (e + max(tau / beta, 1)).
    """
    tau, d, excess = metric.known_threshold, len(metric.factor), target
    if measure == "spectral":
        distance = target * tau / (target + max(tau / radius, 1.0))
        bound = parameter_bound(1.0, n_features=d, radius=max(radius, tau), noise=metric.noise)
        excess = (distance / bound) ** 2
    if excess < 1e-150:
        return math.inf
    return sample_size(
        0.5 * excess,
        delta,
        n_features=d,
        max_eigenvalue=radius,
        max_squared_length=1.0,
        max_threshold=max(radius, tau),
        noise=metric.noise,
    )


def _check_request(target_error: Any, measure: Any, delta: Any) -> None:
    for name, value, largest in (("target_error", target_error, math.inf), ("delta", delta, 1.0)):
        if not (isinstance(value, numbers.Real) and 0 < float(value) < largest):
            rule = "a finite number > 0" if largest == math.inf else "between 0 and 1"
            raise ValueError(f"{name} must be {rule}; got {value!r}. Try 0.05.")
    if measure not in _RATES:
        raise InvalidValueError("measure", f"must be one of {list(_RATES)}", measure)


def _check_fit(fit: Fit, measure: str) -> None:
    settings, metric, judgements, (noun, get) = fit.settings, fit.metric, fit.judgements, _words(fit.kind)
    if fit.statistics.n_comparisons or (judgements is not None and judgements.annotators is not None):
        raise ValueError(
            "the pilot must have judgements of one kind, by one annotator or people who are not told apart; got "
            + (
                "a fit with comparisons. Use "
                if fit.statistics.n_comparisons
                else either("a fit with annotators. Use ", "annotators. Use --no-annotators, or ")
            )
            + "the learning curve of "
            + either("learner.report", "the report")
            + "."
        )
    if has_flips(fit.flip_rate):
        rates = " and ".join(f"{rate:.3g}" for rate in np.ravel(fit.flip_rate))
        raise ValueError(
            f"the pilot must be fitted without flips; got a flip rate of {rates}. If "
            "labels are flipped, do not fit with "
            + setting(flip_rate=0)
            + " instead: that estimates another metric, and the plan would be wrong. Use the learning "
            "curve of " + either("learner.report", "the report") + "."
        )
    if settings.fit_origin:
        raise ValueError(
            "the pilot must consist of pairs; got " + setting(fit_origin=True) + ". Fit differences without it."
        )
    if fit.is_separable or fit.is_quasi_separable:
        raise ValueError(
            "the pilot must determine the size of M without a penalty; got labels that a metric explains without "
            f"error, at least in one direction. {get} more {noun}."
        )
    if not fit.certificate.converged:
        raise ValueError(f"the pilot's fit must have converged; got {fit.certificate.status!r}")
    if metric.rank == 0 or (measure == "spectral" and fit.kind is Kind.CLOSE_FAR and metric.known_threshold == 0):
        raise ValueError(
            f"the pilot must have a rank of at least 1 and, for the error of M / tau, a threshold > 0; got {metric!r}. "
            f"{get} more {noun}."
        )
