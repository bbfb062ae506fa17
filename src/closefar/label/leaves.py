"""Something to judge in the demo: simulated leaves, measured and drawn."""

from __future__ import annotations

import colorsys
import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Trees: length and width in millimetres, where the leaf is widest (from its base, as a share), and its hue in degrees.
_TREES = np.array(
    [
        [62.0, 40.0, 0.36, 95.0],
        [88.0, 26.0, 0.45, 110.0],
        [74.0, 46.0, 0.55, 82.0],
        [48.0, 34.0, 0.42, 62.0],
        [92.0, 44.0, 0.32, 35.0],
        [55.0, 18.0, 0.60, 120.0],
    ]
)
_SPREAD = np.array([7.0, 4.0, 0.04, 9.0])
_LOWEST, _HIGHEST = np.array([30.0, 10.0, 0.22, 8.0]), np.array([112.0, 60.0, 0.72, 140.0])

_WIDTH, _HEIGHT = 168, 280  # pixels
_SCALE = 2.2  # pixels per millimetre
_STALK = 22  # pixels


class Leaves(NamedTuple):
    """A table of leaves, and the pictures that its last column names."""

    columns: dict[str, NDArray[Any]]
    pictures: dict[str, bytes]


def make_leaves(n: int = 160, *, random_state: int = 0) -> Leaves:
    """Generate leaves of a few trees, with a picture of each."""
    rng = np.random.default_rng(random_state)
    measured = _TREES[rng.integers(len(_TREES), size=n)] + _SPREAD * rng.standard_normal((n, 4))
    length, width, widest, hue = np.clip(measured, _LOWEST, _HIGHEST).T
    names = [f"photos/leaf{number:03d}.png" for number in range(1, n + 1)]
    columns: dict[str, NDArray[Any]] = {
        "id": np.array([f"L{number:03d}" for number in range(1, n + 1)]),
        "length_mm": np.round(length, 1),
        "width_mm": np.round(width, 1),
        "widest_at": np.round(widest, 2),
        "hue": np.round(hue),
        "photo": np.array(names),
    }
    shapes = zip(names, length, width, widest, hue, strict=True)
    return Leaves(columns, {name: _png(_drawn(*shape)) for name, *shape in shapes})


def _drawn(length: float, width: float, widest: float, hue: float) -> NDArray[np.uint8]:
    """A leaf as red, green, blue and opacity of each pixel, its base below."""
    along = (_HEIGHT - _STALK - np.arange(_HEIGHT, dtype=np.float64)[:, np.newaxis]) / (_SCALE * length)  # 1 at the tip
    across = np.abs(np.arange(_WIDTH) - (_WIDTH - 1) / 2) / _SCALE
    rise, fall = 3.0 * widest, 3.0 * (1.0 - widest)  # a curve whose peak is where the leaf is widest
    inside = np.clip(along, 0.0, 1.0)
    half = width / 2 * inside**rise * (1 - inside) ** fall / (widest**rise * (1 - widest) ** fall)
    is_leaf = (along > 0) & (along < 1) & (across <= half)
    is_stalk = (along <= 0.1) & (across < 0.7)
    veins = np.abs((along - 0.5 * across / max(width, 1.0)) * 9 % 1 - 0.5) < 0.06
    light, dark = (np.array(colorsys.hls_to_rgb(hue / 360, each, 0.55)) * 255 for each in (0.42, 0.27))
    picture = np.zeros((_HEIGHT, _WIDTH, 4), dtype=np.uint8)
    picture[is_leaf] = [*light.astype(np.uint8), 255]
    picture[(is_leaf & (veins | (across < 0.7))) | is_stalk] = [*dark.astype(np.uint8), 255]
    return picture


def _png(picture: NDArray[np.uint8]) -> bytes:
    height, width, _ = picture.shape
    lines = np.concatenate([np.zeros((height, 1), dtype=np.uint8), picture.reshape(height, -1)], axis=1)
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes())),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
