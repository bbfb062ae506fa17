"""The settings of a fit: the parameters of the learners, validated in one place."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, fields, replace
from typing import Any, Self, cast

import numpy as np
from sklearn.utils import check_random_state

from closefar.judgements import Judgements, Kind, PartitionedJudgements
from closefar.noise import NOISES, FlipRate, Noise, get_noise
from closefar.rows import check_device
from closefar.solve import SOLVERS, Options

__all__ = ["Settings"]


# The tolerance of approximate fits; L-BFGS then ends within about a hundredth of it of the optimum.
_ROUGH = 1e-3

_BLENDS = {"auto": 0.0, "data": 0.0, "columns": 1.0, "units": 1.0}
_UNITS = "units:"

# The parameters that only learners of some kinds of judgement have.
_OF_SOME_KINDS = (
    "fit_origin",
    "shrink_to",
    "relax_threshold",
    "class_weight",
    "comparison_noise",
    "strictness_width",
)


@dataclass(frozen=True)
class Settings:
    """The settings of a fit: those parameters of `LinearMetricLearner` that affect the fit, with the same meaning.

    `approximate` fits are for comparing held-out scores: they have no certificate, and flips are
    estimated from where a fit starts.
    """

    noise: str | Noise = "logistic"
    rank: int | str | None = None
    alpha: float | str = 0.0
    alpha_scale: float | str = "auto"
    shrink_to: str = "zero"
    relax_threshold: bool = False
    flip_rate: float | str | tuple[float, float] = 0.0
    comparison_noise: float | str = 1.0
    strictness_width: float | str = "estimate"
    fit_origin: bool = False
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 1000
    max_time: float | None = None
    device: Any = None
    class_weight: Any = None
    random_state: Any = None
    verbose: int = 0
    approximate: bool = False

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Take the settings from the parameters of an estimator; those of some kinds of judgement may be missing."""
        parameters, names = estimator.get_params(deep=False), _parameters(cls)
        names = [name for name in names if name in parameters or name not in _OF_SOME_KINDS]
        missing = [name for name in names if name not in parameters]
        if missing:
            raise TypeError(
                f"learner must be a LinearMetricLearner; got {type(estimator).__name__}, which has no parameter "
                f"{missing[0]!r}. Pass the best_estimator_ of the search."
            )
        return cls(**{name: parameters[name] for name in names})

    def but(self, **changes: Any) -> Self:
        """The same settings with these replaced."""
        return replace(self, **changes)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of a learner with these settings."""
        return {name: getattr(self, name) for name in _parameters(type(self))}

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

    @property
    def chooses_scale(self) -> bool:
        """Whether the scale of the penalty is chosen with its weight, if there are many columns."""
        return self.chooses_alpha and _is(self.alpha_scale, "auto")

    @property
    def known_scale(self) -> float | str:
        """The scale of the penalty, if it is not chosen on held-out pairs.

        A penalty that few labels call for also has to shrink directions in which the data hardly vary.
        """
        if not _is(self.alpha_scale, "auto"):
            return self.alpha_scale
        return "columns" if self.chooses_alpha else "data"

    @property
    def blend(self) -> float:
        """The scale of the penalty, from that of the data (0) to that of the columns, or of their units (1)."""
        return 0.0 if self.alpha == 0 else _blend(self.alpha_scale)

    @property
    def in_units(self) -> bool:
        """Whether the scale of the penalty is blended with the units of the data, not with the columns."""
        return isinstance(self.alpha_scale, str) and self.alpha_scale.startswith("units")

    @property
    def is_centred(self) -> bool:
        """Whether the penalty shrinks to a multiple of the identity."""
        return self.alpha != 0 and self.shrink_to == "identity"

    @property
    def options(self) -> Options:
        """The solver's options."""
        return Options(
            alpha=self.known_alpha,
            rank=self.known_rank,
            has_constant=self.fit_origin,
            solver="factor" if self.approximate and self.solver == "auto" else self.solver,
            tol=max(float(self.tol), _ROUGH) if self.approximate else float(self.tol),
            max_iter=int(self.max_iter),
            proves=not self.approximate,
        )

    def rng(self) -> np.random.Generator:
        """Random numbers that are the same each time, unless `random_state` is a RandomState."""
        return np.random.default_rng(check_random_state(self.random_state or 0).randint(2**31))

    def check(self, judgements: Judgements) -> None:
        """Raise an error for settings that are invalid, in general or for these judgements."""
        if not _is(self.noise, "auto"):
            get_noise(self.noise)
        d = judgements.n_columns
        if not (self.rank is None or self.chooses_rank or (_is_integer(self.rank) and 1 <= int(self.rank) <= d)):
            raise ValueError(
                f'rank must be None, "auto" or a whole number from 1 to the {d} columns; got {self.rank!r}.'
            )
        for name, value, word in (("alpha", self.alpha, ' or "auto"'), ("tol", self.tol, "")):
            if not ((_is_number(value) and float(value) >= 0) or (word and _is(value, "auto"))):
                raise ValueError(f"{name} must be a finite number >= 0{word}; got {value!r}.")
        if not (_is_integer(self.max_iter) and self.max_iter >= 1):
            raise ValueError(f"max_iter must be a whole number >= 1; got {self.max_iter!r}.")
        if self.max_time is not None and not (_is_number(self.max_time) and float(self.max_time) > 0):
            raise ValueError(f"max_time must be None or a number of seconds > 0; got {self.max_time!r}.")
        self._check_rates()
        if _is(self.noise, "auto") and self.alpha != 0:
            raise ValueError(
                'noise="auto" needs alpha=0, since it compares likelihoods, which a penalty changes by different '
                f"amounts; got alpha={self.alpha!r}. Use alpha=0, or LinearMetricLearnerCV(noises=...)."
            )
        if not _is_scale(self.alpha_scale):
            raise ValueError(
                'alpha_scale must be "auto", "data", "columns", a number from 0 (data) to 1 (columns), "units", or a '
                f'blend from "units:0" (data) to "units:1"; got {self.alpha_scale!r}.'
            )
        self._check_kind(judgements)
        if self.shrink_to not in ("zero", "identity"):
            raise ValueError(f'shrink_to must be "zero" or "identity"; got {self.shrink_to!r}.')
        if self.shrink_to == "identity" and self.rank is not None:
            raise ValueError(
                'shrink_to="identity" gives M full rank, so rank must not be limited; got '
                f"rank={self.rank!r}. Leave one of them out."
            )
        if self.solver not in ("auto", *SOLVERS):
            raise ValueError(f"solver must be one of {['auto', *SOLVERS]}; got {self.solver!r}.")
        check_device(self.device, is_here=not isinstance(judgements, PartitionedJudgements))
        if self.fit_origin and not (judgements.data.ndim == 2 and getattr(judgements.data, "is_single", True)):
            raise ValueError(
                "fit_origin needs single points as an (n, d) array, since differences of pairs have no origin; got "
                f"pairs of shape {tuple(judgements.data.shape)}. Leave fit_origin out, or pass points."
            )

    def _check_rates(self) -> None:
        if not (self.estimates_flips or _is_rate(self.flip_rate)):
            raise ValueError(
                'flip_rate must be "estimate", "two" or a number from 0 to below 0.5 (or two numbers >= 0 with a sum '
                f"below 1: P(called far | close) and P(called close | far)); got {self.flip_rate!r}."
            )
        for name, value in (("comparison_noise", self.comparison_noise), ("strictness_width", self.strictness_width)):
            if not (_is(value, "estimate") or (_is_number(value) and float(value) > 0)):
                raise ValueError(f'{name} must be "estimate" or a number > 0; got {value!r}.')

    def _check_kind(self, judgements: Judgements) -> None:
        """Raise an error for settings that make no sense for these kinds of judgement."""
        has_two_sides = judgements.kind is Kind.CLOSE_FAR
        if not has_two_sides and self.has_two_rates:
            raise ValueError(
                f"two flip rates, of close and of far pairs, need close/far labels; got {judgements.kind} and "
                f'flip_rate={self.flip_rate!r}. Use flip_rate="estimate".'
            )
        found = [] if has_two_sides else [str(judgements.kind)]
        found += [] if judgements.annotators is None else ["annotators"]
        found += [] if judgements.comparisons is None else ["comparisons"]
        if self.fit_origin and found:
            raise ValueError(
                "fit_origin needs close/far labels of single points, without annotators and comparisons; got "
                f"{' and '.join(found)}. Leave fit_origin out."
            )
        if self.relax_threshold and found:
            raise ValueError(
                "relax_threshold needs close/far labels without annotators and comparisons; got "
                f"{' and '.join(found)}. Leave relax_threshold out."
            )
        if self.shrink_to == "identity" and found:
            raise ValueError(
                'shrink_to="identity" needs close/far labels without annotators and comparisons; got '
                f'{" and ".join(found)}. Use shrink_to="zero".'
            )


def _parameters(kind: type[Settings]) -> list[str]:
    """The names of the settings that are parameters of learners."""
    return [field.name for field in fields(kind) if field.name != "approximate"]


def _blend(scale: float | str) -> float:
    if not isinstance(scale, str):
        return float(scale)
    return float(scale.removeprefix(_UNITS)) if scale.startswith(_UNITS) else _BLENDS[scale]


def _is_scale(scale: Any) -> bool:
    if isinstance(scale, bool) or not isinstance(scale, numbers.Real | str):
        return False
    try:
        return 0.0 <= _blend(cast("float | str", scale)) <= 1.0
    except (KeyError, ValueError):  # another word, or no number after the colon
        return False


def _is_rate(rate: Any) -> bool:
    if isinstance(rate, tuple):
        return len(rate) == 2 and all(map(_is_number, rate)) and min(rate) >= 0.0 and sum(rate) < 1.0
    return isinstance(rate, numbers.Real) and 0 <= float(rate) < 0.5


def _is(value: Any, word: str) -> bool:
    return isinstance(value, str) and value == word


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
