"""The result of a fit: the metric with its certificate, statistics, choices and annotators."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from closefar.arrays import FloatArray, IndexArray
from closefar.errors import setting
from closefar.fitting.settings import Settings
from closefar.judgements import Columns, Judgements, Kind, Sides
from closefar.model import Metric, Scores
from closefar.noise import FlipRate
from closefar.plain import data_frame, format_table
from closefar.solve import Certificate, FitStep, Outcome, OutOfTime, supervisor

# ---------------------------------------------------------------------------------------------------------------------
# Statistics of the training pairs


def count_parameters(
    n_directions: int, rank: int | None, *, has_origin: bool = False, with_flips: int = 0, n_thresholds: int = 1
) -> int:
    """The number of free parameters: M of at most that rank, thresholds and, if estimated, origin and flip rates."""
    k = min(rank or n_directions, n_directions)
    return n_directions * k - k * (k - 1) // 2 + n_thresholds + n_directions * int(has_origin) + int(with_flips)


def count_uncertain(scored: Scores, repeats: FloatArray | None = None) -> float:
    """The sum of 4 p (1 - p), with p the probability of a label without flips; one at even odds counts as one.

    For levels, p is that of the threshold in most doubt.

    `repeats` is the number of observations that each judgement represents; by default only the ratios
    of the weights matter, and they count as (sum w)^2 / sum w^2 observations.
    """
    if repeats is None:
        repeats = scored.judgements.effective_number * scored.judgements.shares
    return float(repeats @ scored.in_doubt)


@dataclass(frozen=True)
class FitStatistics:
    """Statistics of the training pairs, weighted as in the fit.

    `null_loss` is the loss of the best constant probability; `wrong_share` is the expected
    share of labels on the wrong side of the threshold, under the fitted noise; `column_scales`
    are the root mean squares of the columns of the differences (with a learned origin, the standard
    deviations).  `n_parameters` is the number of free parameters.  `uncertain_labels` is the sum of
    4 p (1 - p) over the labels, with p the probability of each: labels that are almost certain carry
    almost no information.

    With levels, `share_far` is the share of all levels but the closest, `accuracy` that of levels that are the most
    probable one, `wrong_share` the expected share of others, and `level_shares` are the shares of all levels.  With
    comparisons alone, they are what `n_pairs` counts, and `null_loss` is that of even odds.  With both, `n_comparisons`
    and `comparison_accuracy` are those of the comparisons.
    """

    n_pairs: int
    share_far: float
    null_loss: float
    accuracy: float
    wrong_share: float
    column_scales: tuple[float, ...]
    n_parameters: int
    uncertain_labels: float
    level_shares: tuple[float, ...] = ()
    n_comparisons: int = 0
    comparison_accuracy: float | None = None

    @property
    def uncertain_per_parameter(self) -> float:
        """Uncertain labels per parameter; below about ten, large-sample approximations may fail."""
        return self.uncertain_labels / self.n_parameters


class IdentifiabilityWarning(ConvergenceWarning):  # type: ignore[misc]
    """The data do not determine part of the metric, however well the fit converged.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> import closefar as cf
    >>> pairs, labels, *_ = cf.datasets.make_pairs(500, 2, random_state=0)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", cf.IdentifiabilityWarning)
    ...     learner = cf.LinearMetricLearner(alpha=0).fit(np.pad(pairs, ((0, 0), (0, 0), (0, 1))), labels)
    >>> print(str(caught[0].message).split(",")[0])
    column 'x2' does not vary in these pairs
    """


# ---------------------------------------------------------------------------------------------------------------------
# The settings that were chosen on held-out judgements, and the plain distance beside the learned metric.


class Tried(NamedTuple):
    """A candidate: its settings, and the mean loss and the accuracy of fits on judgements that were held out.

    `alpha` is infinite for the plain distance alone.  `standard_error` is that of the difference from the loss of the
    chosen candidate, judgement by judgement, and allows for points that judgements share.
    """

    prior: str
    alpha: float
    flip_rate: float
    rank: int | None
    noise: str
    loss: float
    standard_error: float
    accuracy: float


@dataclass(frozen=True)
class Choice:
    """The settings that were chosen on held-out judgements, and all that were tried.

    Attributes
    ----------
    alpha : float
        The weight of the penalty.
    prior : str
        What it shrinks M to: "zero", "euclidean", "standardized", or "metric" for a metric that was given.
    flip_rate : float
        The share of answers that are wrong regardless of distance.
    rank : int, optional
        The largest rank; None if it is not limited.
    noise : str
    scale : float
        The factor that calibrates squared distances, so that probabilities suit held-out judgements.
    is_plain : bool
        Whether the result is the plain distance alone, because nothing learned was better.
    n_held_out, n_used, n_judgements : int
        The numbers of judgements that were held out at least once, that were used for choosing, and of all.
    held_out : str
        What was held out: "points", "groups", "judgements" or "nothing".
    table : tuple of Tried
        All candidates, in the order in which they were tried.

    Examples
    --------
    >>> import closefar as cf
    >>> pairs, labels, *_ = cf.datasets.make_pairs(300, 4, rank=2, wrong_share=0.1, random_state=0)
    >>> choice = cf.LinearMetricLearner().fit(pairs, labels).choice_
    >>> choice.held_out
    'judgements'
    >>> len(choice.table) == len(choice.to_frame())
    True
    """

    alpha: float
    prior: str
    flip_rate: float
    rank: int | None
    noise: str
    scale: float
    is_plain: bool
    n_held_out: int
    n_used: int
    n_judgements: int
    held_out: str
    table: tuple[Tried, ...]

    @property
    def sentence(self) -> str:
        """One sentence on what was chosen, and why."""
        if not self.table:
            return (
                f"Chosen without held-out judgements, as {self.n_judgements:,} are too few: the plain distance with a "
                "fitted threshold."
            )
        unseen = {"points": "judgements of unseen points", "groups": "judgements of unseen groups"}.get(
            self.held_out, "held-out judgements"
        )
        if self.is_plain:
            what: str = f"{_PLAIN_NAMES[self.prior]}, as no learned metric was clearly better"
        else:
            what = setting("alpha", format(self.alpha, ".3g")) + ", " + setting(prior=self.prior)
            what += (", " + setting("flip_rate", format(self.flip_rate, ".3f"))) if self.flip_rate > 0 else ""
            what += (", " + setting(rank=self.rank)) if any(each.rank is not None for each in self.table) else ""
            what += (", " + setting(noise=self.noise)) if len({each.noise for each in self.table}) > 1 else ""
        return f"Chosen by the loss of {self.n_held_out:,} {unseen}, among {len(self.table)} candidates: " + what + "."

    def summary(self) -> str:
        """Return the sentence and a table of all candidates."""
        return self.sentence + f"\n{self}" if self.table else self.sentence

    def __str__(self) -> str:
        columns = [
            ("prior", ""),
            ("alpha", ".4g"),
            ("flip rate", ".3f"),
            ("rank", ""),
            ("noise", ""),
            ("held-out loss", ".5f"),
            ("std. error", ".5f"),
            ("accuracy", ".4f"),
        ]
        rows = [[*each[:3], "" if each.rank is None else str(each.rank), *each[4:]] for each in self.table]
        return format_table(columns, rows)

    def to_frame(self) -> Any:
        """Return the candidates as a pandas DataFrame."""
        columns = {name: [getattr(each, name) for each in self.table] for name in Tried._fields}
        return data_frame(columns, "table")


_PLAIN_NAMES = {
    "euclidean": "the plain distance (Euclidean, in the units of the data)",
    "standardized": "the plain distance (Euclidean, of standardized columns)",
    "metric": "the given metric",
}


@dataclass(frozen=True)
class Baseline:
    """The most frequent answer, the plain distance and the learned metric, on the same held-out judgements.

    Attributes
    ----------
    plain : str
        The plain distance that predicts better, "euclidean" or "standardized"; "metric" if a metric was given as prior.
    majority_accuracy, majority_loss : float
        Accuracy of the most frequent answer, and log loss of the best constant probabilities; for comparisons, those
        of a guess.
    plain_accuracy, plain_loss : float
        Accuracy and log loss of the plain distance with a fitted threshold.
    learned_accuracy, learned_loss : float
        Accuracy and log loss of the learned metric, with the chosen settings.
    gain, standard_error : float
        The log loss of the plain distance minus that of the learned metric, and the standard error of the difference.
    n_held_out : int
        The number of held-out judgements.
    metric : Metric, optional
        The plain distance with thresholds fitted to the judgements that were used for choosing; None if an
        origin is learned.
    """

    plain: str
    majority_accuracy: float
    majority_loss: float
    plain_accuracy: float
    plain_loss: float
    learned_accuracy: float
    learned_loss: float
    gain: float
    standard_error: float
    n_held_out: int
    metric: Metric | None = None

    @property
    def is_better(self) -> bool:
        """Whether the learned metric is better than the plain distance by more than two standard errors."""
        return self.gain > 2.0 * self.standard_error and self.gain > 0.0

    @property
    def sentence(self) -> str:
        """One or two sentences: the figures, and a verdict where the learned metric is not clearly better."""
        figures = (
            f"Held-out accuracy {self.learned_accuracy:.3f} ({self._plain_name} {self.plain_accuracy:.3f}, most "
            f"frequent answer {self.majority_accuracy:.3f}); log loss {self.learned_loss:.3f} ({self.plain_loss:.3f}, "
            f"{self.majority_loss:.3f}), on {self.n_held_out:,} judgements."
        )
        if self.is_better:
            return figures
        if self.gain == 0.0:
            return f"{figures} The result is the {self._plain_name} itself."
        verdict = "not better" if self.gain <= 0.0 else "not clearly better"
        return f"{figures} The learned metric is {verdict} than the {self._plain_name}."

    def summary(self) -> str:
        """Return a table of the three, and the sentence."""
        rows = [[name, accuracy, loss] for name, accuracy, loss in self._rows]
        table = format_table([("held out", ""), ("accuracy", ".4f"), ("log loss", ".4f")], rows)
        return f"{table}\n{self.sentence}"

    def to_frame(self) -> Any:
        """Return the three rows as a pandas DataFrame."""
        names, accuracies, losses = zip(*self._rows, strict=True)
        return data_frame({"predictor": names, "accuracy": accuracies, "log_loss": losses}, "summary()")

    @property
    def _plain_name(self) -> str:
        return "given metric" if self.plain == "metric" else "plain distance"

    @property
    def _rows(self) -> list[tuple[str, float, float]]:
        plain = self._plain_name if self.plain == "metric" else f"plain distance ({self.plain})"
        return [
            ("most frequent answer", self.majority_accuracy, self.majority_loss),
            (plain, self.plain_accuracy, self.plain_loss),
            ("learned metric", self.learned_accuracy, self.learned_loss),
        ]


# ---------------------------------------------------------------------------------------------------------------------
# The choice of the noise model that describes the labels best, and whether it is clearly better than the others.


@dataclass(frozen=True)
class NoiseChoice:
    """The noise model with the highest likelihood, and how clearly it is better than the others.

    Attributes
    ----------
    name : str
        The model with the lowest mean loss.
    comparison : dict
        For each model its mean ``loss``, the ``difference`` from the loss of the chosen model, and
        ``z``, that difference divided by its standard error.
    warning : str or None
        A sentence if the chosen model is not clearly better than some other.
    """

    name: str
    comparison: dict[str, dict[str, float]]
    warning: str | None


@dataclass(frozen=True)
class ComparisonNoise:
    """The standard deviation of the noise of comparisons, divided by that of pairs.

    Attributes
    ----------
    value : float
        Set, or the one with the highest likelihood.
    interval : tuple of two float, optional
        The 95% interval by the profile likelihood, if it was estimated; zero or infinite at an end where the
        judgements do not bound it.
    """

    value: float
    interval: tuple[float, float] | None = None

    @property
    def problem(self) -> str | None:
        """What the judgements do not determine, with advice."""
        if self.interval is None or (self.interval[0] > 0.0 and math.isfinite(self.interval[1])):
            return None
        side = "above" if math.isinf(self.interval[1]) else "below"
        return (
            f"the noise of comparisons relative to that of pairs is not bounded {side} (estimate "
            f"{self.value:.3g}): too few comparisons, or pairs, are uncertain. Set "
            + setting("comparison_noise")
            + " to a number, or collect more of both."
        )


# ---------------------------------------------------------------------------------------------------------------------
# What a fit says about each annotator: strictness, flip rate, agreement, and a verdict


_MOST_ANNOTATORS_SHOWN = 40  # annotators in a printed table, which fits a screen

# The columns of a printed table and their formats.
_ANNOTATOR_COLUMNS = {
    "annotator": "<",
    "judgements": "",
    "strictness": "+z.2f",
    "95% interval": "",
    "flip rate": ".2f",
    "agreement": ".0%",
    "kappa": ".2f",
    "verdict": "<",
}


class AnnotatorVerdict(StrEnum):
    """What the answers of an annotator show, in words."""

    TYPICAL = "typical"
    STRICTER = "stricter than most"
    MORE_LENIENT = "more lenient than most"
    AT_RANDOM = "answers at random"
    OFTEN_AT_RANDOM = "often answers at random"
    THE_OTHER_WAY_ROUND = "answers the other way round"
    ALWAYS_THE_SAME = "always gives the same answer"
    TOO_FEW = "too few judgements to tell"

    @property
    def is_doubtful(self) -> bool:
        """Whether the answers depend on something else than the distance."""
        usual = (self.TYPICAL, self.STRICTER, self.MORE_LENIENT, self.TOO_FEW)
        return self not in usual


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatorTable:
    """One row per annotator, in the order of their ids.

    Attributes
    ----------
    names : tuple
        The ids.
    judgements : array of R integers
        How many judgements each annotator made.
    strictness : array of R numbers
        What each annotator adds to the thresholds: a strict one calls far only what is far indeed.  It is relative to
        the typical annotator, in the unit of the thresholds.
    strictness_errors : array of R numbers
        Its standard error, which includes that of the thresholds and of the metric.
    flip_rates : array of R numbers, optional
        The share of answers of each that are wrong since they are given at random; of close/far labels it is 0.5 if
        all are.  None unless each has their own rate (`flip_rate="estimate"`).
    agreement : array of R numbers
        The share of answers that the metric gives as well, for the typical annotator.
    kappa : array of R numbers
        Cohen's kappa of the answers of each and those of others to the same pairs, with quadratic weights for levels;
        NaN if no pair was judged by others too, or if all these answers are the same.
    information : array of R numbers
        The slope of the answers on those that the metric expects: 1 for answers as expected, 0 for answers at random.
    verdicts : tuple of AnnotatorVerdict
    width : float
        The standard deviation of the prior on strictness, set or estimated.

    Examples
    --------
    >>> import numpy as np, closefar as cf
    >>> data = cf.datasets.make_pairs(2000, 3, random_state=0)
    >>> who = np.repeat(["ann", "bea", "cem", "dag"], 500)
    >>> answers = np.where(who == "dag", np.random.default_rng(0).choice([-1, 1], 2000), data.labels)
    >>> learner = cf.LinearMetricLearner(flip_rate="estimate").fit(data.pairs, answers, annotators=who)
    >>> str(learner.annotators_.verdict_of("dag"))
    'answers at random'
    """

    names: tuple[Any, ...]
    judgements: IndexArray
    strictness: FloatArray
    strictness_errors: FloatArray
    flip_rates: FloatArray | None
    agreement: FloatArray
    kappa: FloatArray
    information: FloatArray
    verdicts: tuple[AnnotatorVerdict, ...]
    width: float

    def __len__(self) -> int:
        return len(self.names)

    def strictness_of(self, ids: Any) -> FloatArray:
        """Return the strictness of these annotators."""
        return self.strictness[[self._place(name) for name in ids]]

    def strictness_interval(self, level: float = 0.95) -> FloatArray:
        """Return the lower and the upper end of the interval of each strictness, shape (R, 2)."""
        reach = float(norm.ppf(0.5 + 0.5 * level)) * self.strictness_errors
        return np.column_stack([self.strictness - reach, self.strictness + reach])

    def verdict_of(self, name: Any) -> AnnotatorVerdict:
        """Return the verdict on an annotator."""
        return self.verdicts[self._place(name)]

    def named(self, verdict: AnnotatorVerdict | str) -> list[Any]:
        """Return the annotators with this verdict."""
        if verdict not in list(AnnotatorVerdict):
            known = ", ".join(repr(str(each)) for each in AnnotatorVerdict)
            raise ValueError(f"the verdict must be one of {known}; got {verdict!r}.")
        return [name for name, each in zip(self.names, self.verdicts, strict=True) if each == verdict]

    def _place(self, name: Any) -> int:
        if name not in self.names:
            raise ValueError(
                f"the annotator must be one of the {len(self.names)} of the fit; got {name!r}. See `names`."
            )
        return self.names.index(name)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns as lists; None where a number is undefined."""
        interval = self.strictness_interval()
        columns: dict[str, list[Any]] = {
            "annotator": list(self.names),
            "judgements": self.judgements.tolist(),
            "strictness": self.strictness.tolist(),
            "strictness_low": interval[:, 0].tolist(),
            "strictness_high": interval[:, 1].tolist(),
        }
        if self.flip_rates is not None:
            columns["flip_rate"] = self.flip_rates.tolist()
        return columns | {
            "agreement": self.agreement.tolist(),
            "kappa": [None if np.isnan(value) else value for value in self.kappa.tolist()],
            "verdict": [str(verdict) for verdict in self.verdicts],
        }

    def to_frame(self) -> Any:
        """Return the table as a pandas data frame."""
        return data_frame(self.to_dict(), "to_dict()")

    def __repr__(self) -> str:
        return f"AnnotatorTable({len(self)} annotators)"

    def __str__(self) -> str:
        columns = {name.replace("_", " "): values for name, values in self.to_dict().items()}
        ends = zip(columns["strictness low"], columns["strictness high"], strict=True)
        columns["95% interval"] = [f"{low:+z.2f} to {high:+z.2f}" for low, high in ends]
        columns["annotator"] = list(map(str, self.names))
        shown = [(name, form) for name, form in _ANNOTATOR_COLUMNS.items() if name in columns]
        rows = list(zip(*(columns[name][:_MOST_ANNOTATORS_SHOWN] for name, _ in shown), strict=True))
        left = len(self) - _MOST_ANNOTATORS_SHOWN
        return format_table(shown, rows) + (f"\n... and {left} more annotators" if left > 0 else "")


# ---------------------------------------------------------------------------------------------------------------------
# The fit


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
        width = self.known.strictness_width
        if annotators is not None:  # before the metric was scaled
            width = annotators.width / self.known.scale if annotators.width > 0 else "estimate"
        return self.known.but(
            noise=self.metric.noise,
            flip_rate=self.known.flip_rate if has_own_rates else self.flip_rate,
            strictness_width=width,
            comparison_noise=self.known.comparison_noise if noise is None else noise.value,
            verbose=0,
        )

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
        others = {"annotators": annotators, "known_annotators": known, "comparisons": comparisons}
        return Judgements.read(self.columns, X, y, sample_weight, sides=self.sides, **others)

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

    def get_params(self, deep: bool = ...) -> dict[str, Any]: ...
