"""The metric in other programs: an ONNX model, and a FAISS index."""

from __future__ import annotations

import json
import math
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from closefar.arrays import FloatArray
from closefar.noise import NOISES

if TYPE_CHECKING:
    from closefar.metric import Metric

__all__ = ["to_faiss", "to_onnx"]

# Opset 13 and IR version 7 are those of ONNX 1.8: every operator below is in it, and older readers read it.
_MODEL = '<ir_version: 7, opset_import: ["" : 13]> closefar ({inputs}) => ({outputs}) {{ {nodes} }}'

_JUDGEMENT = """
    mapped = MatMul(difference, factor)
    squared_distance = ReduceSumSquare <axes = [1], keepdims = 0> (mapped)
    distance = Sqrt(squared_distance)
    margin = Sub(squared_distance, threshold)
    is_far = GreaterOrEqual(margin, zero)
    {cdf}
    probability = Clip(cdf, zero, one)
    unflipped = Mul(probability, unflipped_share)
    probability_far = Add(unflipped, flip_rate)
"""
_JUDGEMENT_OUTPUTS = (
    "double[rows] squared_distance, double[rows] distance, double[rows] probability_far, bool[rows] is_far"
)

# The CDF of each noise at `margin`.  onnxruntime has no double kernel for Erf and Atan: there float32
# (Cast to 1) takes a number of moderate size and gives one that is right to 1e-7; all else is double (11).
_CDF_NODES = {
    # Not Sigmoid, which onnxruntime rounds to zero in the left tail.
    "logistic": """
        minus_margin = Neg(margin)
        odds_of_close = Exp(minus_margin)
        total = Add(one, odds_of_close)
        cdf = Reciprocal(total)
    """,
    "normal": """
        standard = Mul(margin, root_half)
        bounded = Clip(standard, lowest, highest)
        narrow = Cast <to = 1> (bounded)
        narrow_erf = Erf(narrow)
        erf = Cast <to = 11> (narrow_erf)
        half_erf = Mul(erf, half)
        cdf = Add(half_erf, half)
    """,
    "laplace": """
        below = Min(margin, zero)
        left = Exp(below)
        above = Max(margin, zero)
        minus_above = Neg(above)
        tail = Exp(minus_above)
        right = Sub(one, tail)
        twice = Add(left, right)
        cdf = Mul(twice, half)
    """,
    "hypsecant": """
        angle = Mul(margin, half_pi)
        bounded = Clip(angle, lowest, highest)
        odds = Exp(bounded)
        narrow = Cast <to = 1> (odds)
        narrow_arctan = Atan(narrow)
        arctan = Cast <to = 11> (narrow_arctan)
        cdf = Div(arctan, half_pi)
    """,
}
_CONSTANTS = {
    "zero": 0.0,
    "half": 0.5,
    "one": 1.0,
    "root_half": math.sqrt(0.5),
    "half_pi": 0.5 * math.pi,
    "lowest": -80.0,  # exp and erf of these are at their limits, and finite in float32
    "highest": 80.0,
}

_CHECKED_ROWS = 10_000  # of the points, to see what float32 does to them
_ROUNDING = 1e-3  # a shift that matters, as a share of the distance at which a pair becomes far


def to_onnx(metric: Metric, kind: str | None = None) -> Any:
    """Return the metric as an ONNX model; see `Metric.to_onnx`."""
    onnx = _import("onnx", needed_by="to_onnx")
    kind = kind or ("pairs" if metric.origin is None else "points")
    _check_kind(metric, kind)
    inputs, outputs, nodes = _graph(metric, kind)
    model = onnx.parser.parse_model(_MODEL.format(inputs=inputs, outputs=outputs, nodes=nodes))
    used = {name for node in model.graph.node for name in node.input}
    for name, value in _values(metric).items():
        if name in used:
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value, dtype=np.float64), name))
    model.producer_name, model.producer_version = "closefar", version("closefar")
    onnx.helper.set_model_props(model, _properties(metric, kind))
    onnx.checker.check_model(model, full_check=True)
    return model


def to_faiss(metric: Metric, points: Any = None) -> Any:
    """Return a FAISS index in which L2 search is the learned metric; see `Metric.to_faiss`."""
    faiss = _import("faiss", needed_by="to_faiss")
    d, k = metric.factor.shape
    if k == 0:
        raise ValueError(
            "to_faiss needs a metric of rank 1 or more; this one has rank 0, so every two points are at distance "
            "zero and none is nearer than another. Fit again with a smaller alpha, or truncate less."
        )
    rows = None if points is None else _check_points(metric, points)
    centre = np.mean(rows, axis=0) if rows is not None and len(rows) else metric.origin
    linear = faiss.LinearTransform(d, k, False)
    faiss.copy_array_to_vector(_single(metric.factor.T, "the metric's factor").ravel(), linear.A)
    linear.is_trained = True
    flat = faiss.IndexFlatL2(k)
    index = faiss.IndexPreTransform(linear, flat)
    if centre is not None:
        # Before the map, not by its bias: near the centre float32 subtracts without rounding.
        centring = faiss.CenteringTransform(d)
        faiss.copy_array_to_vector(_single(centre, "the centre of the points"), centring.mean)
        centring.is_trained = True
        index.prepend_transform(centring)
    if rows is not None:
        index.add(_single(rows, "points"))
        _warn_of_rounding(metric, flat, rows)
    return index


def _import(name: str, needed_by: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{needed_by} needs {name}: run pip install 'closefar[{name}]'.") from error


def _check_kind(metric: Metric, kind: str) -> None:
    if kind not in ("pairs", "points", "transform"):
        raise ValueError(f'kind must be "pairs", "points" or "transform"; got {kind!r}.')
    if kind == "pairs" and metric.origin is not None:
        raise ValueError(
            'kind="pairs" needs a threshold for pairs; got a metric with an origin, whose threshold is for the '
            'distance of single points from it. Use kind="points", or kind="transform" and Euclidean distance.'
        )
    if kind != "transform" and NOISES.get(metric.noise.name) != metric.noise:
        raise ValueError(
            f"only the noise models of closefar.noise, {list(NOISES)}, can be exported; got {metric.noise!r}. "
            'Use kind="transform" for the linear map alone.'
        )


def _graph(metric: Metric, kind: str) -> tuple[str, str, str]:
    """The inputs, outputs and nodes of the model in ONNX's own text form."""
    d = len(metric.factor)
    if kind == "transform":
        return (
            f"double[n, {d}] x",
            f"double[n, {_map_of(metric).shape[1]}] transformed",
            "transformed = MatMul(x, factor)",
        )
    nodes = _JUDGEMENT.format(cdf=_CDF_NODES[metric.noise.name])
    if kind == "pairs":
        return f"double[n, {d}] x, double[m, {d}] y", _JUDGEMENT_OUTPUTS, "difference = Sub(x, y)" + nodes
    return f"double[n, {d}] x", _JUDGEMENT_OUTPUTS, "difference = Sub(x, origin)" + nodes


def _values(metric: Metric) -> dict[str, Any]:
    """The constants that the nodes of a model may name."""
    return {
        **_CONSTANTS,
        "factor": _map_of(metric),
        "origin": np.zeros(len(metric.factor)) if metric.origin is None else metric.origin,
        "threshold": metric.threshold,
        "flip_rate": metric.flip_rate,
        "unflipped_share": 1.0 - 2.0 * metric.flip_rate,
    }


def _map_of(metric: Metric) -> FloatArray:
    """The factor; of rank 0 a column of zeros, because a tensor without columns is refused by some runtimes."""
    return metric.factor if metric.rank else np.zeros((len(metric.factor), 1))


def _properties(metric: Metric, kind: str) -> dict[str, str]:
    names = {} if metric.feature_names is None else {"feature_names": json.dumps(metric.feature_names)}
    numbers = {"threshold": metric.threshold, "flip_rate": metric.flip_rate}
    return {"kind": kind, "noise": metric.noise.name, **{name: repr(value) for name, value in numbers.items()}, **names}


def _check_points(metric: Metric, points: Any) -> FloatArray:
    rows = np.asarray(points, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != len(metric.factor):
        raise ValueError(f"points must be rows of the metric's {len(metric.factor)} columns; got shape {rows.shape}.")
    if not np.all(np.isfinite(rows)):
        raise ValueError("points must be finite; got NaN or infinity. Leave those rows out, or fill them in.")
    return rows


def _single(values: FloatArray, what: str) -> Any:
    """The values as float32, the only numbers that FAISS knows."""
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(values, dtype=np.float32)
    if not np.all(np.isfinite(single)):
        largest = np.max(np.abs(values))
        raise ValueError(
            f"FAISS works in float32, whose largest number is 3.4e38; {what} has {largest:.3g}. Choose other "
            "units, and change the metric to them with Metric.change_units."
        )
    return single


def _warn_of_rounding(metric: Metric, stored: Any, rows: FloatArray) -> None:
    """Say so where float32 moved the points by what matters: a column has a large offset and little spread."""
    if len(rows) < 2:
        return
    sample = np.arange(0, len(rows), max(1, len(rows) // _CHECKED_ROWS))
    shift = stored.reconstruct_batch(sample) - (rows[sample] - np.mean(rows, axis=0)) @ metric.factor
    shift -= np.mean(shift, axis=0)  # what all points share changes no distance
    largest = float(np.sqrt(np.max(np.sum(shift * shift, axis=1))))
    reach = math.sqrt(metric.threshold) if metric.threshold > 0 else 1.0
    if largest > _ROUNDING * reach:
        warnings.warn(
            f"float32 moves some of these points by {largest:.2g}, where a pair is far from {reach:.2g} on: a column "
            "has a large offset for its spread. Subtract the same numbers, such as points.mean(axis=0), from points "
            "and queries in float64 first; no distance changes.",
            UserWarning,
            stacklevel=4,
        )
