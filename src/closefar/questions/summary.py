"""The table that `summary` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import numpy as np

from closefar.arrays import FloatArray
from closefar.fitting import Fit, FitStatistics
from closefar.model import ZERO, Metric, loadings

__all__ = ["describe_directions", "summarize"]

_WIDTH = 78
_MOST_DIRECTIONS = 10
_MOST_LOADINGS = 5


def summarize(fit: Fit, say: Callable[[str], str] = str) -> str:
    """The text of `LinearMetricLearner.summary`; `say` puts advice in the words of another tool."""
    metric, certificate, statistics = fit.metric, fit.certificate, fit.statistics
    pseudo_r2 = 1.0 - certificate.loss / statistics.null_loss if statistics.null_loss > 0 else float("nan")
    accuracy = "Accuracy" if fit.is_metric_alone else "Training accuracy"
    cells = [
        ("Features (d)", f"{len(metric.factor)}", "Loss", f"{certificate.loss:.6f}"),
        ("Pairs (N)", f"{statistics.n_pairs}", "Null loss", f"{statistics.null_loss:.6f}"),
        ("Share far", f"{statistics.share_far:.4f}", "Pseudo-R2", f"{pseudo_r2:.4f}"),
        ("Noise", _noise(fit), "Proven gap", "none" if fit.is_metric_alone else f"{certificate.gap:.1e}"),
        ("Penalty", _penalty(fit), "Threshold (tau)", f"{metric.known_threshold:.6g}"),
        ("Rank of M", f"{metric.rank}", accuracy, f"{statistics.accuracy:.4f}"),
        ("Wrong labels", f"{statistics.wrong_share:.4f}", "Passes over data", f"{certificate.n_passes:.1f}"),
        ("Free parameters", f"{statistics.n_parameters}", "Uncertain labels", _uncertain(statistics)),
    ]
    lines = ["Linear metric learner".center(_WIDTH), "=" * _WIDTH]
    for left, left_value, right, right_value in cells:
        lines.append(f"{left}:{left_value:>{35 - len(left)}}    {right}:{right_value:>{37 - len(right)}}")
    if fit.engine:
        lines += textwrap.wrap(f"Engine: {fit.engine}", _WIDTH)
    lines += ["-" * _WIDTH, *textwrap.wrap(say(certificate.status), _WIDTH)]
    if fit.penalty_choice is not None:
        lines += textwrap.wrap(say(fit.penalty_choice.sentence), _WIDTH)
    lines += ["-" * _WIDTH]
    lines += [*describe_directions(metric), "-" * _WIDTH]
    lines += [*_loadings(metric, np.array(statistics.column_scales)), "=" * _WIDTH]
    return "\n".join(lines)


def _uncertain(statistics: FitStatistics) -> str:
    return f"{statistics.uncertain_per_parameter:.1f} per parameter"


def _penalty(fit: Fit) -> str:
    settings = fit.chosen
    scale = {0.0: "", 1.0: "columns"}.get(settings.blend, f"scale {settings.blend:g}")
    if settings.in_units and settings.blend > 0:
        scale = str(settings.alpha_scale)
    said = ", ".join(part for part in (scale, "identity" if settings.is_centred else "") if part)
    return f"{settings.alpha:g}" + (f" ({said})" if said else "")


def _noise(fit: Fit) -> str:
    name, rate = fit.metric.noise.name, fit.metric.one_flip_rate
    return f"{name}, {rate:.3f} flips" if rate > 0 or fit.settings.estimates_flips else name


def describe_directions(metric: Metric) -> list[str]:
    """One line per direction: the mean squared distance along it, and its share of the total."""
    found = metric.directions()
    if not np.any(found.values > 0.0):
        return [ZERO]
    cumulative = np.minimum(np.cumsum(found.shares), 1.0)
    lines = [f"{'Direction':<10}{found.measure.capitalize():>25}{'/ tau':>13}{'explains':>14}{'cumulative':>16}"]
    for index, value in enumerate(found.values[:_MOST_DIRECTIONS]):
        ratio = f"{value / metric.known_threshold:.6g}" if metric.known_threshold > 0 else "-"
        share, sum_of_shares = f"{found.shares[index]:.1%}", f"{cumulative[index]:.1%}"
        lines.append(f"{index + 1:<10}{value:>25.6g}{ratio:>13}{share:>14}{sum_of_shares:>16}")
    left = metric.rank - _MOST_DIRECTIONS
    return [*lines, f"... and {left} weaker"] if left > 0 else lines


def _loadings(metric: Metric, scales: FloatArray) -> list[str]:
    """The largest loadings of direction 1, for columns divided by their root mean squares."""
    if metric.rank == 0:
        return ["There are no directions."]
    found = metric.directions()
    direction = loadings(found.columns[:, :1], scales)[:, 0]
    order = np.argsort(-np.abs(direction), kind="stable")[:_MOST_LOADINGS]
    explains = f" explains {found.shares[0]:.1%} of the {found.measure}" if found.is_data_scale else ""
    lines = [f"Direction 1{explains}. Its largest loadings:"]
    return lines + [f"  {metric.column_names[index]:<50.50}{direction[index]:>+12.4f}" for index in order]
