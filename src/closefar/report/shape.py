"""What the metric weighs: its spectrum, what each rank costs, its directions and its matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from closefar.arrays import FloatArray
from closefar.fitting import Fit
from closefar.judgements import Judgements
from closefar.model import ZERO, Metric, loadings
from closefar.questions import TruncationPath, truncation_of
from closefar.report.effort import Effort
from closefar.report.evidence import has_sides, noun_of
from closefar.report.wording import listed, loading, number, percent, points, short

__all__ = ["directions", "matrix", "spectrum", "truncation"]

_MOST_DIRECTIONS = 8
_MOST_FEATURES = 30
_MOST_MATRIX_FEATURES = 10  # so that every entry has room for its number
_MOST_RAW_FEATURES = 500  # a larger matrix is not written out

# Ranks in the table: all up to here, and as many again in equal ratios up to the whole.
_FIRST_RANKS = 10

_MOST = 0.9  # "carry most of the distance"
_NEGLIGIBLE = 0.005  # of the labels
_NEGLIGIBLE_LOSS = 0.1  # of the loss
_NAMED = 0.35  # a loading at least this large is named in the reading


def spectrum(metric: Metric) -> dict[str, Any]:
    """The mean squared distance along each direction, which no unit changes, and the eigenvalues of M in its units."""
    found = metric.directions()
    columns = (found.values, found.shares, np.minimum(np.cumsum(found.shares), 1.0))
    rows = [
        {"value": value, "share": share, "cumulative": cumulative}
        for value, share, cumulative in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return {"rows": rows, "eigenvalues_in_units": metric.eigenvalues.tolist(), "reading": _spectrum_reading(rows)}


def truncation(fit: Fit, judgements: Judgements, *, is_training: bool, seed: int) -> dict[str, Any]:
    """What keeping directions 1 to k costs on these pairs; refitted where they are those of the fit."""
    effort = Effort.of(fit)
    used = judgements.sample(effort.pairs_to_truncate(len(judgements)), seed)
    refits = is_training and effort.can_refit_truncated(len(used))
    path = truncation_of(fit, used, scale="data", refits=refits, is_rough=effort.has_many_features)
    rows = [
        {
            "k": step.k,
            "cut_off": step.gamma,
            "loss": step.loss,
            "lost": step.lost,
            "bound": step.bound,
            "accuracy": step.accuracy,
            "refit_loss": step.refit_loss,
            "refit_accuracy": step.refit_accuracy,
        }
        for step in (path[k] for k in _shown_ranks(len(path) - 1))
        if not refits or step.refit_loss is not None
    ]
    reading = f"All of these {noun_of(fit)}s have the same label."
    if has_sides(used):
        reading = _truncation_reading(path, refits)
    if fit.settings.class_weight is not None:
        reading += " Labels count with the class weights of the fit."
    return {"rows": rows, "n_pairs": len(used), "refitted": refits, "reading": reading}


def directions(metric: Metric, names: list[str], scales: FloatArray) -> dict[str, Any]:
    """The directions of M, each a score that weighs the columns, in their own standard deviations."""
    found = metric.directions()
    weights, shares = found.columns[:, :_MOST_DIRECTIONS], found.shares
    unit = loadings(weights, scales)
    importance = unit**2 @ shares[: unit.shape[1]]
    shown = np.sort(np.argsort(-importance, kind="stable")[:_MOST_FEATURES])
    total = float(importance.sum()) or 1.0
    return {
        "features": [names[index] for index in shown],
        "columns": shown.tolist(),
        "n_features": len(names),
        "n_directions": metric.rank,
        "left_out_share": max(1.0 - float(importance[shown].sum()) / total, 0.0),
        "rows": [
            {
                "share": float(share),
                "loadings": unit[shown, index].tolist(),
                "weights": weights[shown, index].tolist(),
            }
            for index, share in enumerate(shares[: unit.shape[1]])
        ],
        "reading": _direction_reading(names, unit, shares),
    }


def matrix(metric: Metric, names: list[str], scales: FloatArray) -> dict[str, Any]:
    """M with each column measured in its own root mean square difference, largest diagonal first; and M itself."""
    whole = metric.matrix
    scaled = whole * np.outer(scales, scales)
    diagonal = np.diag(scaled)
    shown = np.argsort(-diagonal, kind="stable")[:_MOST_MATRIX_FEATURES]
    return {
        "features": [names[index] for index in shown],
        "columns": shown.tolist(),
        "n_features": len(names),
        "largest": float(np.max(np.abs(scaled[np.ix_(shown, shown)]), initial=0.0)) or 1.0,
        "scaled": scaled[np.ix_(shown, shown)].tolist(),
        "scales": scales.tolist(),
        "all_features": names,
        "raw": whole.tolist() if len(names) <= _MOST_RAW_FEATURES else None,
        "reading": _matrix_reading(names, scaled, metric),
    }


def _shown_ranks(rank: int) -> list[int]:
    if rank <= 2 * _FIRST_RANKS:
        return list(range(rank + 1))
    later = np.geomspace(_FIRST_RANKS, rank, _FIRST_RANKS + 1).round().astype(int).tolist()
    return sorted({*range(_FIRST_RANKS), *later})


def _spectrum_reading(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ZERO
    if len(rows) == 1:
        return "One direction explains all of the distance."
    enough = next(k for k, row in enumerate(rows, start=1) if row["cumulative"] >= _MOST)
    if enough == len(rows):
        all_of_them = "Both" if enough == 2 else f"All {enough}"
        return f"{all_of_them} directions are needed for {_MOST:.0%} of the mean squared distance."
    joined = "and" if enough == 2 else "to"
    first = "Direction 1 explains" if enough == 1 else f"Directions 1 {joined} {enough} of {len(rows)} explain"
    return f"{first} {percent(rows[enough - 1]['cumulative'])} of the mean squared distance."


def _truncation_reading(path: TruncationPath, refitted: bool) -> str:
    rank, whole = len(path) - 1, path[-1].accuracy
    if rank == 0:
        return ZERO
    kept = [step for step in path if step.k >= 1 and (not refitted or step.refit_loss is not None)]
    accuracies = {step.k: step.refit_accuracy if refitted else step.accuracy for step in kept}
    losses = {step.k: step.refit_loss if refitted else step.loss for step in kept}
    most = (1.0 + _NEGLIGIBLE_LOSS) * path[-1].loss
    least = min(
        k
        for k in accuracies
        if ((accuracies[k] or 0.0) >= whole - _NEGLIGIBLE and (losses[k] or 0.0) <= most) or k == rank
    )
    if least == rank:
        return (
            f"{'Both' if rank == 2 else f'All {rank:,}'} directions matter: with one fewer, accuracy or loss is worse."
            if rank > 1
            else "The metric has one direction only, so it can't be truncated."
        )
    how = " and refitted" if refitted else ""
    change = points((accuracies[least] or 0.0) - whole)
    return (
        f"Truncated to rank {least}{how}, the metric has an accuracy of {percent(accuracies[least] or 0.0)} "
        f"({'the same as' if change.startswith('±') else f'{change} compared with'} rank {rank})."
    )


def _direction_reading(names: list[str], unit: FloatArray, shares: FloatArray) -> str:
    if unit.shape[1] == 0:
        return ZERO
    first = unit[:, 0]
    order = np.argsort(-np.abs(first), kind="stable")
    named = [index for index in order[:3] if abs(first[index]) >= _NAMED] or order[:1].tolist()
    words = listed([f"{short(names[index])} ({loading(float(first[index]))})" for index in named])
    share = percent(float(shares[0]))
    largest = "largest loading is" if len(named) == 1 else "largest loadings are"
    return f"Direction 1 explains {share} of the mean squared distance; its {largest} {words}."


def _matrix_reading(names: list[str], scaled: FloatArray, metric: Metric) -> str:
    if metric.rank == 0:
        return ZERO
    first = int(np.argmax(np.diag(scaled)))
    most = float(scaled[first, first])
    words = f"A typical difference in {short(names[first])} alone adds {number(most)} to the squared distance"
    first_threshold = metric.thresholds[0] if metric.thresholds else 0.0
    if first_threshold > 0:
        which = "threshold" if len(metric.thresholds) == 1 else "lowest threshold"
        words += f", {number(most / first_threshold)} times the {which}"
    return f"{words}.{_strongest_interaction(names, scaled)}"


def _strongest_interaction(names: list[str], scaled: FloatArray) -> str:
    off = np.triu(scaled, 1)
    if len(names) < 2 or not np.any(off):
        return ""
    i, j = (int(index) for index in np.unravel_index(np.argmax(np.abs(off)), off.shape))
    how = "adds to" if off[i, j] > 0 else "takes from"
    return (
        f" The strongest interaction is that of {short(names[i])} and {short(names[j])}: a difference in both with the "
        f"same sign {how} the distance."
    )
