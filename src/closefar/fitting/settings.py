"""The settings of a fit: the parameters of the learners, validated in one place."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from closefar.errors import InvalidValueError, either, setting
from closefar.judgements import Judgements, Kind, PartitionedJudgements
from closefar.model import Metric
from closefar.noise import NOISES, FlipRate, Noise, get_noise
from closefar.rows import RowSource, check_device
from closefar.solve import SOLVERS, Likelihood, Passes, Problem, SolverSettings

# The tolerance of fits that prove nothing; L-BFGS then ends within about a hundredth of it of the optimum.
_APPROXIMATE_TOL = 1e-3

# What M is shrunk to, by name; the last two are c times the identity, in the units of the data and of each column.
PRIORS = ("zero", "euclidean", "standardized")
CENTRES = PRIORS[1:]

_INTERNAL = ("comparison_noise", "strictness_width", "max_time", "proves", "scale", "shifts", "price", "whitens")

# The parameters that only learners of some kinds of judgement have.
_OF_SOME_KINDS = ("fit_origin", "class_weight")


@dataclass(frozen=True)
class Settings(SolverSettings):
    """The settings of a fit: those parameters of `LinearMetricLearner` that affect the fit, with the same meaning.

    The others are arguments of `LinearMetricLearner.fit` (`comparison_noise`, `max_time`) or internal: what solvers
    know besides (`closefar.solve.SolverSettings`); `strictness_width`, the standard deviation of the strictness of
    annotators, or "estimate"; `scale`, which multiplies M and its thresholds, and `shifts`, which are added to these,
    so that probabilities suit held-out judgements in spite of the penalty; `price`, a small one of the multiple of the
    centre (see `closefar.fitting.choose`); and whether the penalty is measured by the mean squared distance (it
    `whitens`), not column by column.
    """

    noise: str | Noise = "logistic"
    alpha: float | str = "auto"
    prior: str | Metric = "auto"
    flip_rate: float | str | tuple[float, float] = "auto"
    fit_origin: bool = False
    class_weight: Any = None
    device: Any = None
    random_state: Any = None
    verbose: int = 0
    comparison_noise: float | str = 1.0
    strictness_width: float | str = "estimate"
    max_time: float | None = None
    scale: float = 1.0
    shifts: tuple[float, ...] = ()
    price: float = 0.0
    whitens: bool = False

    @classmethod
    def of(cls, estimator: Any, **more: Any) -> Self:
        """Take the settings from the parameters of an estimator; those of some kinds of judgement may be missing."""
        parameters = estimator.get_params(deep=False)
        names = [field.name for field in fields(cls) if field.name not in _INTERNAL]
        names = [name for name in names if name in parameters or name not in _OF_SOME_KINDS]
        missing = [name for name in names if name not in parameters]
        if missing:
            raise TypeError(
                f"learner must be a LinearMetricLearner; got {type(estimator).__name__}, which has no parameter "
                f"{missing[0]!r}. Pass the best_estimator_ of the search."
            )
        return cls(**{name: parameters[name] for name in names}, **more)

    def but(self, **changes: Any) -> Self:
        """The same settings with these replaced."""
        return replace(self, **changes)

    def roughly(self) -> Self:
        """The same settings for a fit that is only compared with others, without a certificate."""
        return self.but(proves=False, tol=max(float(self.tol), _APPROXIMATE_TOL))

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of a learner with these settings."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _INTERNAL}

    @property
    def has_choice(self) -> bool:
        """Whether something is to be chosen on held-out judgements."""
        chooses_prior = self.prior_is("auto") and self.alpha != 0
        chooses_noise = _is(self.noise, "auto") and self.alpha != 0
        return self.chooses_alpha or _is(self.flip_rate, "auto") or self.chooses_rank or chooses_prior or chooses_noise

    @property
    def candidates(self) -> list[Noise]:
        """The noises to fit."""
        return list(NOISES.values()) if _is(self.noise, "auto") else [get_noise(self.noise)]

    @property
    def chooses_rank(self) -> bool:
        return _is(self.rank, "auto")

    @property
    def known_rank(self) -> int | None:
        """The largest rank, if it is a number or unlimited."""
        return None if self.rank is None else int(self.rank)

    @property
    def estimates_flips(self) -> bool:
        return _is(self.flip_rate, "estimate") or _is(self.flip_rate, "two")

    @property
    def has_two_rates(self) -> bool:
        """Whether close pairs that are called far and far pairs that are called close have a flip rate each."""
        return _is(self.flip_rate, "two") or isinstance(self.flip_rate, tuple)

    @property
    def known_flip_rate(self) -> FlipRate | None:
        """The flip rate, or both, if it is not estimated."""
        if isinstance(self.flip_rate, tuple):
            return self.flip_rate
        return None if self.estimates_flips else float(self.flip_rate)

    @property
    def estimates_comparison_noise(self) -> bool:
        return _is(self.comparison_noise, "estimate")

    @property
    def known_comparison_noise(self) -> float:
        """The noise of comparisons relative to that of pairs, if it is not estimated; one until it is."""
        return 1.0 if self.estimates_comparison_noise else float(self.comparison_noise)

    @property
    def known_width(self) -> float | None:
        """The width of the prior on the strictness of annotators, if it is not estimated."""
        return None if _is(self.strictness_width, "estimate") else float(self.strictness_width)

    @property
    def chooses_alpha(self) -> bool:
        return _is(self.alpha, "auto")

    @property
    def known_alpha(self) -> float:
        """The weight of the penalty, if it is a number."""
        return float(self.alpha)

    def prior_is(self, name: str) -> bool:
        return _is(self.prior, name)

    @property
    def is_centred(self) -> bool:
        """Whether the penalty shrinks M to a multiple of a centre, not to zero."""
        return self.alpha != 0 and not (self.prior_is("zero") or self.prior_is("auto"))

    def problem(self, rows: RowSource, likelihood: Likelihood, passes: Passes | None = None) -> Problem:
        """What is minimised."""
        return Problem.of(rows, likelihood, self.known_alpha, has_constant=self.fit_origin, passes=passes)

    def rng(self) -> np.random.Generator:
        """Random numbers that are the same each time, unless `random_state` is a RandomState."""
        return np.random.default_rng(check_random_state(self.random_state or 0).randint(2**31))

    def check(self, judgements: Judgements) -> None:
        """Raise an error for settings that are invalid, in general or for these judgements."""
        if not _is(self.noise, "auto"):
            get_noise(self.noise)
        d = judgements.n_columns
        is_valid = {
            "rank": self.rank is None or self.chooses_rank or (_is_integer(self.rank) and 1 <= int(self.rank) <= d),
            "alpha": self.chooses_alpha or (_is_number(self.alpha) and float(self.alpha) >= 0),
            "tol": _is_number(self.tol) and self.tol >= 0,
            "max_iter": _is_integer(self.max_iter) and self.max_iter >= 1,
            "max_time": self.max_time is None or (_is_number(self.max_time) and self.max_time > 0),
            "flip_rate": self.estimates_flips or _is(self.flip_rate, "auto") or _is_rate(self.flip_rate),
            "comparison_noise": _is_estimated_or_positive(self.comparison_noise),
            "strictness_width": _is_estimated_or_positive(self.strictness_width),
            "solver": self.solver in ("auto", *SOLVERS),
        }
        for name in (name for name, holds in is_valid.items() if not holds):
            raise InvalidValueError(name, _rules(d)[name], getattr(self, name))
        self._check_prior(d)
        self._check_kind(judgements)
        check_device(self.device, is_here=not isinstance(judgements, PartitionedJudgements))

    def _check_prior(self, n_columns: int) -> None:
        if isinstance(self.prior, Metric):
            if len(self.prior.factor) != n_columns or self.prior.rank == 0:
                rule = f"must be a metric of the {n_columns} columns of the data that is not zero"
                raise InvalidValueError("prior", rule, self.prior, "Fit it to the same columns.")
        elif self.prior not in ("auto", *PRIORS):
            words = ("auto", *PRIORS)
            rule = either(f"must be one of {list(words)} or a Metric", f"must be one of {', '.join(words)}")
            raise InvalidValueError("prior", rule, self.prior)
        if self.rank is not None and (isinstance(self.prior, Metric) or self.prior in CENTRES):
            given = setting("rank") + " must be None with " + setting(prior=self.prior)
            given += ", which gives M full rank; got " + setting(rank=self.rank)
            raise ValueError(given + ". Use " + setting(prior="zero") + ", or leave the rank out.")

    def _check_kind(self, judgements: Judgements) -> None:
        """Raise an error for settings that make no sense for these judgements."""
        has_two_sides, data = judgements.kind is Kind.CLOSE_FAR, judgements.data
        if not has_two_sides and self.has_two_rates:
            rule = f"two flip rates, of close and of far pairs, need close/far labels; got {judgements.kind} and "
            given, remedy = setting(flip_rate=self.flip_rate), setting(flip_rate="estimate")
            raise ValueError(rule + given + ". Use " + remedy + ".")
        found = [] if has_two_sides else [str(judgements.kind)]
        found += [] if judgements.annotators is None else ["annotators"]
        found += [] if judgements.comparisons is None else ["comparisons"]
        if not (found or (data.ndim == 2 and getattr(data, "is_single", True))):
            found = [f"pairs of shape {tuple(data.shape)}"]
        if self.fit_origin and found:
            raise ValueError(
                setting("fit_origin")
                + " needs close/far labels of single points, as an (n, d) array, without annotators and comparisons; "
                f"got {' and '.join(found)}. Differences of pairs have no origin: leave "
                + setting("fit_origin")
                + " out, or pass points."
            )


def _is_rate(rate: Any) -> bool:
    if isinstance(rate, tuple):
        return len(rate) == 2 and all(map(_is_number, rate)) and min(rate) >= 0.0 and sum(rate) < 1.0
    return isinstance(rate, numbers.Real) and 0 <= float(rate) < 0.5


def _is(value: Any, word: str) -> bool:
    return isinstance(value, str) and value == word


def _is_estimated_or_positive(value: Any) -> bool:
    return _is(value, "estimate") or (_is_number(value) and float(value) > 0)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _rules(n_columns: int) -> dict[str, str]:
    """What settings must be."""
    positive = either('must be "estimate"', "must be estimate") + " or a number > 0"
    return {
        "rank": either('must be None, "auto" or', "must be auto or")
        + f" a whole number from 1 to the {n_columns} columns",
        "alpha": "must be a finite number >= 0" + either(' or "auto"', " or auto"),
        "tol": "must be a finite number >= 0",
        "max_iter": "must be a whole number >= 1",
        "max_time": either("must be None or", "must be") + " a number of seconds > 0",
        "flip_rate": either('must be "auto", "estimate", "two"', "must be auto, estimate, two")
        + " or a number from 0 to below 0.5 (or two numbers >= 0 with a sum below 1: P(called far | close) "
        "and P(called close | far))",
        "comparison_noise": positive,
        "strictness_width": positive,
        "solver": f"must be one of {['auto', *SOLVERS]}",
    }
