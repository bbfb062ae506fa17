"""The metric as an ONNX model."""

from __future__ import annotations

import json
import math
from importlib.metadata import version
from typing import Any

import numpy as np

from closefar.arrays import FloatArray
from closefar.model.exported import Exported, import_extra
from closefar.noise import NOISES

__all__ = ["to_onnx"]

# Opset 13 and IR version 7 are those of ONNX 1.8: they have every operator below, and old runtimes support them.
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


def _check_kind(metric: Exported, kind: str) -> None:
    if kind not in ("pairs", "points", "transform"):
        raise ValueError(f'kind must be "pairs", "points" or "transform"; got {kind!r}.')
    if kind == "pairs" and metric.origin is not None:
        raise ValueError(
            'kind="pairs" needs a threshold for pairs; got a metric with an origin, whose threshold applies to the '
            'distance of single points from it. Use kind="points", or kind="transform" and Euclidean distance.'
        )
    exportable = [noise.name for noise in NOISES.values() if noise.onnx_cdf]
    if kind != "transform" and not (metric.noise.name in exportable and NOISES[metric.noise.name] == metric.noise):
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
    nodes = _JUDGEMENT.format(cdf=metric.noise.onnx_cdf)
    if kind == "pairs":
        return f"double[n, {d}] x, double[m, {d}] y", _JUDGEMENT_OUTPUTS, "difference = Sub(x, y)" + nodes
    return f"double[n, {d}] x", _JUDGEMENT_OUTPUTS, "difference = Sub(x, origin)" + nodes


def _values(metric: Exported) -> dict[str, Any]:
    """The constants that the nodes of a model may use."""
    return {
        **_CONSTANTS,
        **vars(metric.noise),
        "factor": _map_of(metric),
        "origin": np.zeros(len(metric.factor)) if metric.origin is None else metric.origin,
        "threshold": metric.threshold,
        "flip_rate": metric.flip_rate,
        "unflipped_share": 1.0 - 2.0 * metric.flip_rate,
    }


def _map_of(metric: Exported) -> FloatArray:
    """The directions; for rank 0 a column of zeros, because some runtimes reject tensors without columns."""
    directions = metric.components.T
    return np.ascontiguousarray(directions) if directions.shape[1] else np.zeros((len(metric.factor), 1))


def _properties(metric: Exported, kind: str) -> dict[str, str]:
    names = {} if metric.feature_names is None else {"feature_names": json.dumps(metric.feature_names)}
    numbers = {"threshold": metric.threshold, "flip_rate": metric.flip_rate}
    return {"kind": kind, "noise": metric.noise.name, **{name: repr(value) for name, value in numbers.items()}, **names}
