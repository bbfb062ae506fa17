"""The table that `summary` prints."""

from __future__ import annotations

import textwrap

import numpy as np

from closefar.arrays import FloatArray
from closefar.fitting import Fit
from closefar.model import ZERO, Directions, Metric, loadings

__all__ = ["summarize"]

_WIDTH = 78
_MOST_EIGENVALUES = 10
_MOST_LOADINGS = 5


def summarize(fit: Fit) -> str:
    """The text of `LinearMetricLearner.summary`."""
    metric, certificate, statistics = fit.metric, fit.certificate, fit.statistics
    pseudo_r2 = 1.0 - certificate.loss / statistics.null_loss
    cells = [
        ("Features (d)", f"{len(metric.factor)}", "Loss", f"{certificate.loss:.6f}"),
        ("Pairs (N)", f"{statistics.n_pairs}", "Null loss", f"{statistics.null_loss:.6f}"),
        ("Share far", f"{statistics.share_far:.4f}", "Pseudo-R2", f"{pseudo_r2:.4f}"),
        ("Noise", _noise(metric), "Proven gap", f"{certificate.gap:.1e}"),
        ("Penalty alpha", _penalty(fit), "Threshold (tau)", f"{metric.threshold:.6g}"),
        ("Rank of M", f"{metric.rank}", "Training accuracy", f"{statistics.accuracy:.4f}"),
        ("Wrong labels", f"{statistics.wrong_share:.4f}", "Passes over data", f"{certificate.n_passes:.1f}"),
        (
            "Free parameters",
            f"{statistics.n_parameters}",
            "Uncertain / param.",
            f"{statistics.uncertain_per_parameter:.1f}",
        ),
    ]
    lines = ["Linear metric learner".center(_WIDTH), "=" * _WIDTH]
    for left, left_value, right, right_value in cells:
        lines.append(f"{left + ':':<18}{left_value:>18}    {right + ':':<19}{right_value:>19}")
    lines += ["-" * _WIDTH, *textwrap.wrap(certificate.status, _WIDTH), "-" * _WIDTH]
    lines += [*_spectrum(metric), "-" * _WIDTH, *_loadings(metric, np.array(statistics.column_scales)), "=" * _WIDTH]
    return "\n".join(lines)


def _penalty(fit: Fit) -> str:
    settings = fit.chosen
    scale = {0.0: "", 1.0: "columns"}.get(settings.blend, f"scale {settings.blend:g}")
    said = ", ".join(part for part in (scale, "identity" if settings.is_centred else "") if part)
    return f"{settings.alpha:g}" + (f" ({said})" if said else "")


def _noise(metric: Metric) -> str:
    return f"{metric.noise.name}, {metric.flip_rate:.3f} flips" if metric.flip_rate > 0 else metric.noise.name


def _spectrum(metric: Metric) -> list[str]:
    values = metric.eigenvalues
    total = values.sum()
    if total == 0.0:
        return [ZERO]
    lines = [f"{'Eigenvalue of M':<18}{'value':>18}{'/ tau':>20}{'cumulative share':>22}"]
    for index, value in enumerate(values[:_MOST_EIGENVALUES], start=1):
        ratio = f"{value / metric.threshold:.6g}" if metric.threshold > 0 else "-"
        share = values[:index].sum() / total
        lines.append(f"{index:<18}{value:>18.6g}{ratio:>20}{share:>22.4f}")
    left = len(values) - _MOST_EIGENVALUES
    return [*lines, f"... and {left} smaller"] if left > 0 else lines


def _loadings(metric: Metric, scales: FloatArray) -> list[str]:
    """The direction of which the mean of z'Mz has most, its columns over their root mean squares."""
    if metric.rank == 0:
        return ["No direction to show."]
    direction = loadings(Directions.of(metric).columns[:, :1], scales)[:, 0]
    order = np.argsort(-np.abs(direction), kind="stable")[:_MOST_LOADINGS]
    lines = ["Strongest direction, its largest loadings (on typical differences):"]
    return lines + [f"  {metric.column_names[index]:<50.50}{direction[index]:>+12.4f}" for index in order]
