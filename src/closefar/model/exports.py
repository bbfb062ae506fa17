"""The metric as an ONNX model."""

from __future__ import annotations

import json
import math
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np

from closefar.arrays import FloatArray
from closefar.model.thresholds import level_flips
from closefar.noise import NOISES, FlipRate, Noise

# ---------------------------------------------------------------------------------------------------------------------
# What exports to other programs need: the parts of a metric, and optional packages.


class Exported(Protocol):
    """The parts of a metric that exports contain."""

    @property
    def factor(self) -> FloatArray: ...

    @property
    def components(self) -> FloatArray: ...

    @property
    def thresholds(self) -> tuple[float, ...]: ...

    @property
    def noise(self) -> Noise: ...

    @property
    def feature_names(self) -> tuple[str, ...] | None: ...

    @property
    def origin(self) -> FloatArray | None: ...

    @property
    def flip_rate(self) -> FlipRate: ...


def import_extra(name: str, needed_by: str) -> Any:
    """Import a package from the extra of the same name; the error says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{needed_by} needs {name}: run pip install 'closefar[{name}]'.") from error


# ---------------------------------------------------------------------------------------------------------------------
# The metric as a FAISS index.


_CHECKED_ROWS = 10_000  # points that are checked for rounding in float32
_ROUNDING = 1e-3  # a shift that matters, relative to the distance at which a pair is no longer the closest


def to_faiss(metric: Exported, points: Any = None) -> Any:
    """Return a FAISS index in which L2 search is the learned metric; see `Metric.to_faiss`."""
    faiss = import_extra("faiss", needed_by="to_faiss")
    d, k = metric.factor.shape
    if k == 0:
        raise ValueError(
            "to_faiss needs a metric of rank 1 or more; got rank 0, where all distances are zero. Fit again with a "
            "smaller alpha, or truncate less."
        )
    rows = None if points is None else _check_points(metric, points)
    centre = np.mean(rows, axis=0) if rows is not None and len(rows) else metric.origin
    linear = faiss.LinearTransform(d, k, False)
    faiss.copy_array_to_vector(_single(metric.components, "the metric's components").ravel(), linear.A)
    linear.is_trained = True
    flat = faiss.IndexFlatL2(k)
    index = faiss.IndexPreTransform(linear, flat)
    if centre is not None:
        # Subtracted before the map, not by its bias: near the centre, float32 subtraction is exact.
        centring = faiss.CenteringTransform(d)
        faiss.copy_array_to_vector(_single(centre, "the centre of the points"), centring.mean)
        centring.is_trained = True
        index.prepend_transform(centring)
    if rows is not None:
        index.add(_single(rows, "points"))
        _warn_of_rounding(metric, flat, rows)
    return index


def _check_points(metric: Exported, points: Any) -> FloatArray:
    rows = np.asarray(points, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != len(metric.factor):
        raise ValueError(f"points must have the metric's {len(metric.factor)} columns; got shape {rows.shape}.")
    if not np.all(np.isfinite(rows)):
        raise ValueError("points must be finite; got NaN or infinity. Leave those rows out, or fill them in.")
    return rows


def _single(values: FloatArray, what: str) -> Any:
    """The values as float32, the only type that FAISS supports."""
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(values, dtype=np.float32)
    if not np.all(np.isfinite(single)):
        largest = np.max(np.abs(values))
        raise ValueError(
            f"FAISS works in float32, whose largest number is 3.4e38; got {largest:.3g} in {what}. Choose other "
            "units, and convert the metric with Metric.change_units."
        )
    return single


def _warn_of_rounding(metric: Exported, stored: Any, rows: FloatArray) -> None:
    """Warn if float32 moves points noticeably, because a column has a large offset and little spread."""
    if len(rows) < 2:
        return
    sample = np.arange(0, len(rows), max(1, len(rows) // _CHECKED_ROWS))
    shift = stored.reconstruct_batch(sample) - (rows[sample] - np.mean(rows, axis=0)) @ metric.components.T
    shift -= np.mean(shift, axis=0)  # a common shift changes no distance
    largest = float(np.sqrt(np.max(np.sum(shift * shift, axis=1))))
    reach = math.sqrt(min((threshold for threshold in metric.thresholds if threshold > 0), default=1.0))
    if largest > _ROUNDING * reach:
        warnings.warn(
            f"float32 moves some of these points by {largest:.2g}, while a distance of {reach:.2g} matters: "
            "a column has a large offset for its spread. Subtract the same numbers, such as points.mean(axis=0), from "
            "points and queries in float64 first; distances do not change.",
            UserWarning,
            stacklevel=4,
        )


# Opset 13 and IR version 7 are those of ONNX 1.8: they have every operator below, and old runtimes support them.
_MODEL = '<ir_version: 7, opset_import: ["" : 13]> closefar ({inputs}) => ({outputs}) {{ {nodes} }}'

_DISTANCE = """
    mapped = MatMul(difference, factor)
    squared_distance = ReduceSumSquare <axes = [1], keepdims = 0> (mapped)
    distance = Sqrt(squared_distance)
"""
_CLOSE_OR_FAR = """
    margin = Sub(squared_distance, threshold)
    is_far = GreaterOrEqual(margin, zero)
    {cdf}
    probability = Clip(cdf, zero, one)
    unflipped = Mul(probability, unflipped_share)
    probability_far = Add(unflipped, flip_rate)
"""
# Column k of `cdf` is the probability of level k + 1 or higher.
_LEVELS = """
    squared_column = Unsqueeze(squared_distance, one_axis)
    margin = Sub(squared_column, threshold)
    {cdf}
    higher = Clip(cdf, zero, one)
    from_level = Pad(higher, pad_before, one)
    above_level = Pad(higher, pad_after, zero)
    signed = Sub(from_level, above_level)
    probability = Max(signed, zero)
    level = ArgMax <axis = 1, keepdims = 0, select_last_index = 1> (probability)
    unflipped = Mul(probability, unflipped_share)
    probabilities = Add(unflipped, flip_rate)
"""
_COMPARISON = """
    near_mapped = MatMul(near, factor)
    near_squared = ReduceSumSquare <axes = [1], keepdims = 0> (near_mapped)
    far_mapped = MatMul(far, factor)
    far_squared = ReduceSumSquare <axes = [1], keepdims = 0> (far_mapped)
    margin = Sub(far_squared, near_squared)
    {cdf}
    clipped = Clip(cdf, zero, one)
    unflipped = Mul(clipped, unflipped_share)
    probability = Add(unflipped, flip_rate)
"""
_LEGS = {
    "triplets": (("a", "b", "c"), "near = Sub(a, b) far = Sub(a, c)"),
    "quadruplets": (("a", "b", "c", "e"), "near = Sub(a, b) far = Sub(c, e)"),
}
_DISTANCES = "double[rows] squared_distance, double[rows] distance"

# The constants that the nodes of a noise may use, besides its own parameters.
_CONSTANTS = {
    "zero": 0.0,
    "half": 0.5,
    "one": 1.0,
    "root_half": math.sqrt(0.5),
    "half_pi": 0.5 * math.pi,
    "lowest": -80.0,  # exp and erf of these are at their limits, and finite in float32
    "highest": 80.0,
}


def to_onnx(metric: Exported, kind: str | None = None) -> Any:
    """Return the metric as an ONNX model; see `Metric.to_onnx`."""
    onnx = import_extra("onnx", needed_by="to_onnx")
    usual = "pairs" if metric.thresholds else "triplets"
    kind = kind or (usual if metric.origin is None else "points")
    _check_kind(metric, kind)
    inputs, outputs, nodes = _graph(metric, kind)
    model = onnx.parser.parse_model(_MODEL.format(inputs=inputs, outputs=outputs, nodes=nodes))
    used = {name for node in model.graph.node for name in node.input}
    for name, value in _values(metric).items():
        if name in used:
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    model.producer_name, model.producer_version = "closefar", version("closefar")
    onnx.helper.set_model_props(model, _properties(metric, kind))
    onnx.checker.check_model(model, full_check=True)
    return model


def _check_kind(metric: Exported, kind: str) -> None:
    if kind not in ("pairs", "points", *_LEGS, "transform"):
        raise ValueError(f'kind must be "pairs", "points", "triplets", "quadruplets" or "transform"; got {kind!r}.')
    if kind == "pairs" and metric.origin is not None:
        raise ValueError(
            'kind="pairs" needs a threshold for pairs; got a metric with an origin, whose threshold applies to the '
            'distance of single points from it. Use kind="points", or kind="transform" and Euclidean distance.'
        )
    if kind in _LEGS and metric.thresholds:
        raise ValueError(
            f'kind="{kind}" needs a metric that was learned from comparisons alone; got one with a threshold, whose '
            'noise is that of pairs. Use kind="pairs" and compare its distances.'
        )
    is_distance_alone = kind == "transform" or not (metric.thresholds or kind in _LEGS)
    exportable = [noise.name for noise in NOISES.values() if noise.onnx_cdf]
    if not is_distance_alone and not (metric.noise.name in exportable and NOISES[metric.noise.name] == metric.noise):
        raise ValueError(
            f"only the noise models of closefar.noise ({exportable}) can be exported; got {metric.noise!r}. "
            'Use kind="transform" for the linear map alone.'
        )


def _graph(metric: Exported, kind: str) -> tuple[str, str, str]:
    """The inputs, outputs and nodes of the model in the text format of ONNX."""
    d = len(metric.factor)
    if kind == "transform":
        return (
            f"double[n, {d}] x",
            f"double[n, {_map_of(metric).shape[1]}] transformed",
            "transformed = MatMul(x, factor)",
        )
    if kind in _LEGS:
        points, differences = _LEGS[kind]
        inputs = ", ".join(f"double[n_{point}, {d}] {point}" for point in points)
        nodes = differences + _COMPARISON.format(cdf=metric.noise.onnx_cdf)
        return inputs, "double[rows] margin, double[rows] probability", nodes
    outputs, nodes = _judgement(metric)
    if kind == "pairs":
        return f"double[n, {d}] x, double[m, {d}] y", outputs, "difference = Sub(x, y)" + nodes
    return f"double[n, {d}] x", outputs, "difference = Sub(x, origin)" + nodes


def _judgement(metric: Exported) -> tuple[str, str]:
    """The outputs and nodes of a judgement of one difference."""
    n_levels = len(metric.thresholds) + 1
    if n_levels == 1:
        return _DISTANCES, _DISTANCE
    if n_levels == 2:
        outputs = f"{_DISTANCES}, double[rows] probability_far, bool[rows] is_far"
        return outputs, _DISTANCE + _CLOSE_OR_FAR.format(cdf=metric.noise.onnx_cdf)
    outputs = f"{_DISTANCES}, double[rows, {n_levels}] probabilities, int64[rows] level"
    return outputs, _DISTANCE + _LEVELS.format(cdf=metric.noise.onnx_cdf)


def _values(metric: Exported) -> dict[str, Any]:
    """The constants that the nodes of a model may use."""
    thresholds, rate = np.array(metric.thresholds), metric.flip_rate
    if isinstance(rate, tuple):
        least, unflipped_share = rate[0], 1.0 - rate[0] - rate[1]
    else:
        least, unflipped_share = level_flips(rate, max(len(thresholds) + 1, 2))
    numbers = {
        **_CONSTANTS,
        **vars(metric.noise),
        "factor": _map_of(metric),
        "origin": np.zeros(len(metric.factor)) if metric.origin is None else metric.origin,
        "threshold": thresholds[0] if len(thresholds) == 1 else thresholds,
        "flip_rate": least,
        "unflipped_share": unflipped_share,
    }
    axes = {"one_axis": [1], "pad_before": [0, 1, 0, 0], "pad_after": [0, 0, 0, 1]}
    return {name: np.asarray(value, dtype=np.float64) for name, value in numbers.items()} | {
        name: np.asarray(value, dtype=np.int64) for name, value in axes.items()
    }


def _map_of(metric: Exported) -> FloatArray:
    """The directions; for rank 0 a column of zeros, because some runtimes reject tensors without columns."""
    directions = metric.components.T
    return np.ascontiguousarray(directions) if directions.shape[1] else np.zeros((len(metric.factor), 1))


def _properties(metric: Exported, kind: str) -> dict[str, str]:
    names = {} if metric.feature_names is None else {"feature_names": json.dumps(metric.feature_names)}
    if len(metric.thresholds) == 1:
        thresholds = {"threshold": repr(metric.thresholds[0])}
    else:
        thresholds = {"thresholds": json.dumps(metric.thresholds)}
    return {"kind": kind, "noise": metric.noise.name, **thresholds, "flip_rate": json.dumps(metric.flip_rate), **names}
