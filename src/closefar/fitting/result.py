"""A fit: its settings, its result, and its training data."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from closefar.fitting.annotators import AnnotatorTable
from closefar.fitting.choices import Baseline, Choice, ComparisonNoise, NoiseChoice
from closefar.fitting.settings import Settings
from closefar.fitting.statistics import FitStatistics, IdentifiabilityWarning
from closefar.judgements import Columns, Judgements, Kind, Sides
from closefar.model import Metric
from closefar.noise import FlipRate
from closefar.solve import Certificate, FitStep, Outcome, OutOfTime, supervisor

_WARNED_OF = (Outcome.UNFINISHED, Outcome.STALLED, Outcome.SEPARABLE, Outcome.QUASI_SEPARABLE)


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """The result of fitting, the basis of all analyses.

    Attributes
    ----------
    settings : Settings
        The settings as given.
    known : Settings
        The same with what was chosen.
    metric : Metric
    certificate : Certificate
    history : tuple of FitStep
    n_iter : int
    statistics : FitStatistics
        Statistics of the training pairs.
    problems : tuple of str
        What the data do not determine, with advice.
    rank : int or None
        The largest rank that was set or chosen.
    sides : Sides
        The labels that mean close and far.
    columns : Columns
    judgements : Judgements or None
        The training pairs, copied only if they were not floats; None if the fit was loaded or copied
        without them.
    kind : Kind
        Whether they are close/far labels, levels or comparisons.
    comparison_noise : ComparisonNoise, optional
        The noise of comparisons relative to that of pairs, if both were judged.
    annotators : AnnotatorTable, optional
        What is known of each annotator, if judgements have annotators.
    noise_choice : NoiseChoice, optional
        How the noise was chosen, if that was by the likelihood of the training pairs.
    choice : Choice, optional
        How settings were chosen on held-out judgements, if they were.
    baseline : Baseline, optional
        The plain distance beside the learned one, on the same held-out judgements.
    engine : str
        What computed the passes over the data, and where; empty if that is not known.
    """

    settings: Settings
    known: Settings
    metric: Metric
    certificate: Certificate
    history: tuple[FitStep, ...]
    n_iter: int
    statistics: FitStatistics
    problems: tuple[str, ...]
    rank: int | None
    sides: Sides
    columns: Columns
    judgements: Judgements | None
    kind: Kind = Kind.CLOSE_FAR
    comparison_noise: ComparisonNoise | None = None
    annotators: AnnotatorTable | None = None
    noise_choice: NoiseChoice | None = None
    choice: Choice | None = None
    baseline: Baseline | None = None
    engine: str = ""

    @classmethod
    def of(cls, fitted: Any) -> Fit:
        """Return the fit of a fitted learner; a fit is returned as it is."""
        if isinstance(fitted, Fit):
            return fitted
        check_is_fitted(fitted, "fit_")
        fit: Fit = fitted.fit_
        return fit

    def __repr__(self) -> str:
        return f"Fit({self.metric!r}, {self.certificate.outcome})"

    @property
    def alpha(self) -> float:
        """The weight of the penalty that was set or chosen."""
        return self.known.known_alpha

    @property
    def prior(self) -> str | Metric:
        """What M is shrunk to; zero without a penalty."""
        return "zero" if self.alpha == 0.0 else self.known.prior

    @property
    def chose_rank(self) -> bool:
        return self.settings.chooses_rank

    @property
    def flip_rate(self) -> FlipRate:
        return self.metric.flip_rate

    @property
    def relative_noise(self) -> float:
        """The noise of comparisons relative to that of pairs; one where there is only one of them."""
        return 1.0 if self.comparison_noise is None else self.comparison_noise.value

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The thresholds of a typical annotator, lowest first: none for comparisons."""
        return self.metric.thresholds

    @property
    def is_separable(self) -> bool:
        """Whether the metric gets every label right, so that the scale of the margins is arbitrary."""
        return self.certificate.outcome is Outcome.SEPARABLE

    @property
    def is_quasi_separable(self) -> bool:
        """Whether one direction explains some labels without exception, so that M is arbitrarily large along it."""
        return self.certificate.outcome is Outcome.QUASI_SEPARABLE

    @property
    def was_interrupted(self) -> bool:
        return self.certificate.outcome is Outcome.INTERRUPTED

    @property
    def is_metric_alone(self) -> bool:
        """Whether the metric was truncated or stored without its fit; the statistics are then of the given pairs."""
        return self.certificate.outcome in (Outcome.TRUNCATED, Outcome.UNKNOWN)

    def unless_interrupted(self) -> Fit:
        """Return the fit; if it was interrupted, or its time is over, so is that of the computation it is part of."""
        if self.was_interrupted:
            raise KeyboardInterrupt
        if supervisor().timed_out:
            raise OutOfTime(self.metric)
        return self

    @property
    def chosen(self) -> Settings:
        """The settings with the chosen noise, rank, penalty, flip rate and width of the prior on strictness.

        Flip rates of annotators are estimated again.
        """
        noise, annotators = self.comparison_noise, self.annotators
        has_own_rates = annotators is not None and annotators.flip_rates is not None
        return self.known.but(
            noise=self.metric.noise,
            flip_rate=self.known.flip_rate if has_own_rates else self.flip_rate,
            strictness_width=self.known.strictness_width if annotators is None else self._solved_width(annotators),
            comparison_noise=self.known.comparison_noise if noise is None else noise.value,
            verbose=0,
        )

    def _solved_width(self, annotators: AnnotatorTable) -> float | str:
        """The width of the prior on strictness before the metric was scaled."""
        return annotators.width / self.known.scale if annotators.width > 0 else "estimate"

    def read(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, annotators: Any = None, comparisons: Any = None
    ) -> Judgements:
        """Validate judgements for an analysis: they must have the columns, the labels and the annotators of the fit.

        `X` may also be judgements that are already validated.
        """
        if isinstance(X, Judgements):
            return X
        if self.kind is Kind.COMPARISONS:
            return Judgements.read_comparisons(self.columns, X, y, sample_weight, fitting=False)
        known = None if self.annotators is None else self.annotators.names
        read = Judgements.read_more(
            self.columns, X, y, sample_weight, sides=self.sides, annotators=annotators, known_annotators=known
        )
        return read if comparisons is None else read.with_comparisons(self.columns, comparisons)

    def read_or_training(self, X: Any = None, y: Any = None, sample_weight: Any = None) -> Judgements:
        """Validate the given pairs, or return the training pairs if none are given."""
        return self.training() if X is None else self.read(X, y, sample_weight)

    def training(self) -> Judgements:
        """Return the training pairs; those on a cluster come to this process, and of more than 100,000 a sample."""
        if self.judgements is None:
            raise ValueError("this learner was copied or loaded without its training pairs. Pass pairs and labels.")
        found = self.judgements.in_memory()
        if len(found) < len(self.judgements):
            warnings.warn(
                f"the training pairs are in partitions: this uses {len(found):,} of {len(self.judgements):,}, chosen "
                "at random. Pass pairs and labels to use others.",
                UserWarning,
                stacklevel=3,
            )
        return found

    def without_judgements(self) -> Fit:
        """The fit without its training pairs, which may be large or confidential."""
        return replace(self, judgements=None)

    def warn(self, stacklevel: int) -> None:
        """Emit the warnings of this fit: its noise model, its outcome, and what the data do not determine."""
        if self.noise_choice is not None and self.noise_choice.warning is not None:
            warnings.warn(self.noise_choice.warning, IdentifiabilityWarning, stacklevel=stacklevel + 1)
        # What was chosen needs no advice to choose otherwise.
        is_chosen = self.settings.chooses_alpha and self.certificate.outcome is Outcome.STALLED
        if self.certificate.outcome in _WARNED_OF and not is_chosen:
            warnings.warn(self.certificate.status, ConvergenceWarning, stacklevel=stacklevel + 1)
        for problem in self.problems:
            warnings.warn(problem, IdentifiabilityWarning, stacklevel=stacklevel + 1)


# ---------------------------------------------------------------------------------------------------------------------
# The interface of estimators that analyses rely on.


class Fitted(Protocol):
    """A fitted estimator: it has a `Fit`."""

    @property
    def fit_(self) -> Fit: ...


class Learner(Protocol):
    """An estimator, fitted or not, that can learn from judgements."""

    far_label: Any
    class_weight: Any

    def read(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, annotators: Any = None, comparisons: Any = None
    ) -> Judgements: ...

    def learn(self, judgements: Judgements) -> Fit: ...

    def get_params(self, deep: bool = ...) -> dict[str, Any]: ...
