"""The table that `summary` prints."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable

import numpy as np

from closefar.arrays import FloatArray
from closefar.errors import Sentence, command_words, either
from closefar.fitting import AnnotatorVerdict, Fit
from closefar.judgements import Kind
from closefar.model import ZERO, Metric, loadings

# Limits of the display: characters, which fit into a terminal of 80, and lines.
_SUMMARY_WIDTH = 78
_DIRECTIONS_SHOWN = 10  # lines
_LOADINGS_SHOWN = 5  # lines

# The share of judgements other than the most probable one; a neighbouring level is no mistake.
_WRONG = {Kind.LEVELS: "Expected error rate"}
_TITLES = {
    Kind.CLOSE_FAR: "Linear metric learner",
    Kind.LEVELS: "Ordinal metric learner",
    Kind.COMPARISONS: "Comparison metric learner",
}


def describe_fit(fit: Fit) -> Sentence:
    """The text of `LinearMetricLearner.summary`."""
    return either(_summarize(fit, str), _summarize(fit, command_words))


def _summarize(fit: Fit, say: Callable[[str], str]) -> str:
    metric, certificate, statistics = fit.metric, fit.certificate, fit.statistics
    pseudo_r2 = 1.0 - certificate.loss / statistics.null_loss if statistics.null_loss > 0 else float("nan")
    accuracy, term = "Accuracy" if fit.is_metric_alone else "Training accuracy", fit.kind.term
    wrong = _WRONG.get(fit.kind, f"Wrong {term}s")
    cells = [
        ("Features (d)", f"{len(metric.factor)}", "Loss", f"{certificate.loss:.6f}"),
        (f"{fit.kind.noun.capitalize()}s (N)", f"{statistics.n_pairs}", "Null loss", f"{statistics.null_loss:.6f}"),
        (*_answers(fit), "Pseudo-R2", f"{pseudo_r2:.4f}"),
        ("Noise", _noise(fit), "Proven gap", "none" if fit.is_metric_alone else f"{certificate.gap:.1e}"),
        ("Penalty", _penalty(fit), *_threshold(metric)),
        ("Rank of M", f"{metric.rank}", accuracy, f"{statistics.accuracy:.4f}"),
        (wrong, f"{statistics.wrong_share:.4f}", "Passes over data", f"{certificate.n_passes:.1f}"),
        (
            "Free parameters",
            f"{statistics.n_parameters}",
            f"Uncertain {term}s",
            f"{statistics.uncertain_per_parameter:.1f} per parameter",
        ),
    ]
    lines = [_TITLES[fit.kind].center(_SUMMARY_WIDTH), "=" * _SUMMARY_WIDTH]
    for left, left_value, right, right_value in cells:
        lines.append(f"{left}:{left_value:>{35 - len(left)}}    {right}:{right_value:>{37 - len(right)}}")
    for sentence in _more_sentences(fit):
        lines += textwrap.wrap(sentence, _SUMMARY_WIDTH)
    if fit.engine:
        lines += textwrap.wrap(f"Engine: {fit.engine}", _SUMMARY_WIDTH)
    lines += ["-" * _SUMMARY_WIDTH, *textwrap.wrap(say(certificate.status), _SUMMARY_WIDTH)]
    for result in (fit.choice, fit.baseline):
        lines += [] if result is None else textwrap.wrap(say(result.sentence), _SUMMARY_WIDTH)
    lines += ["-" * _SUMMARY_WIDTH]
    lines += [*describe_directions(metric), "-" * _SUMMARY_WIDTH]
    lines += [*_loadings(metric, np.array(statistics.column_scales)), "=" * _SUMMARY_WIDTH]
    return "\n".join(lines)


def _penalty(fit: Fit) -> str:
    if fit.alpha == 0.0:
        return "none"
    return f"{fit.alpha:.3g}, prior {fit.prior if isinstance(fit.prior, str) else 'metric'}"


def _noise(fit: Fit) -> str:
    name, rate = fit.metric.noise.name, fit.metric.flip_rate
    if isinstance(rate, tuple):
        return f"{name}, {rate[0]:.3f}/{rate[1]:.3f} flips"
    return f"{name}, {rate:.3f} flips" if rate > 0 or fit.known.estimates_flips else name


def _answers(fit: Fit) -> tuple[str, str]:
    """What the judgements say, in a cell."""
    if fit.kind is Kind.LEVELS:
        return "Levels (K)", f"{fit.metric.n_levels}"
    if fit.kind is Kind.COMPARISONS:
        return "Accuracy of guesses", "0.5000"
    return "Share far", f"{fit.statistics.share_far:.4f}"


def _threshold(metric: Metric) -> tuple[str, str]:
    thresholds = metric.thresholds
    if len(thresholds) == 1:
        return "Threshold (tau)", f"{thresholds[0]:.6g}"
    return ("Thresholds", f"{len(thresholds)}, below") if thresholds else ("Threshold", "none")


def _more_sentences(fit: Fit) -> list[str]:
    """Several thresholds, two flip rates, comparisons of a mixed fit and annotators, in a sentence each."""
    found = []
    if len(fit.metric.thresholds) > 1:
        above = zip(fit.sides.classes.tolist()[1:], fit.metric.thresholds, strict=True)
        said = ", ".join(f"{level} from {threshold:.6g}" for level, threshold in above)
        found.append(f"Thresholds of the squared distance: {said}.")
    if isinstance(fit.metric.flip_rate, tuple):
        called_far, called_close = fit.metric.flip_rate
        found.append(
            f"Flips: {called_far:.1%} of close pairs are called far, and {called_close:.1%} of far pairs close."
        )
    if fit.statistics.n_comparisons:
        found.append(describe_comparisons(fit))
    if fit.annotators is not None:
        table, counts = fit.annotators, Counter(fit.annotators.verdicts)
        said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in AnnotatorVerdict if counts[verdict])
        found.append(f"Annotators: {len(table)}, standard deviation of strictness {table.width:.3g}; verdicts: {said}.")
    return found


def describe_comparisons(fit: Fit) -> str:
    """The comparisons of a mixed fit, and their noise, in two sentences."""
    statistics, noise = fit.statistics, fit.comparison_noise
    agreed = statistics.comparison_accuracy or 0.0
    said = f"The metric agrees with {agreed:.1%} of the {statistics.n_comparisons:,} comparisons of the fit."
    if noise is None:
        return said
    if noise.interval is None:
        how = "that of the pairs" if noise.value == 1.0 else f"{noise.value:.3g} times that of the pairs"
        return f"{said} Their noise is taken to be {how}."
    low, high = noise.interval
    between = f" (95% interval {low:.3g} to {high:.3g})"
    return f"{said} Their noise is {noise.value:.3g} times that of the pairs{between}."


def describe_directions(metric: Metric) -> list[str]:
    """One line per direction: the mean squared distance along it, and its share of the total."""
    found = metric.directions()
    if not np.any(found.values > 0.0):
        return [ZERO]
    cumulative = np.minimum(np.cumsum(found.shares), 1.0)
    tau = "" if not metric.thresholds else "/ tau" if len(metric.thresholds) == 1 else "/ tau_1"
    first = metric.thresholds[0] if metric.thresholds else 0.0
    lines = [f"{'Direction':<10}{found.measure.capitalize():>25}{tau:>13}{'explains':>14}{'cumulative':>16}"]
    for index, value in enumerate(found.values[:_DIRECTIONS_SHOWN]):
        ratio = f"{value / first:.6g}" if first > 0 else "-" if tau else ""
        share, sum_of_shares = f"{found.shares[index]:.1%}", f"{cumulative[index]:.1%}"
        lines.append(f"{index + 1:<10}{value:>25.6g}{ratio:>13}{share:>14}{sum_of_shares:>16}")
    left = metric.rank - _DIRECTIONS_SHOWN
    return [*lines, f"... and {left} weaker"] if left > 0 else lines


def _loadings(metric: Metric, scales: FloatArray) -> list[str]:
    """The largest loadings of direction 1, for columns divided by their root mean squares."""
    if metric.rank == 0:
        return ["There are no directions."]
    found = metric.directions()
    direction = loadings(found.columns[:, :1], scales)[:, 0]
    order = np.argsort(-np.abs(direction), kind="stable")[:_LOADINGS_SHOWN]
    explains = f" explains {found.shares[0]:.1%} of the {found.measure}" if found.is_data_scale else ""
    lines = [f"Direction 1{explains}. Its largest loadings:"]
    return lines + [f"  {metric.column_names[index]:<50.50}{direction[index]:>+12.4f}" for index in order]
