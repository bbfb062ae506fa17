"""States of hydrogen/air flames: read as published, or simulated with Cantera, which is free for everybody."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch, check_random_state

FloatArray = NDArray[np.float64]

FEATURES = ("T", "H", "H2", "O", "OH", "H2O", "O2", "HO2", "H2O2")

# A flame has 157 to 187 grid points in the mixing layer.
ROWS_PER_FLAME = 150
# With this many the strain rate grows less than twofold from one flame to the next, which keeps them burning.
FEWEST_FLAMES = 16
# In 1/s.  The weakest flame burns close to equilibrium; flames are extinguished between 14,400 and 14,500.
WEAKEST_STRAIN, STRONGEST_STRAIN = 4.0, 14_000.0
# Mixture fractions closer than this to 0 or 1 are the inflowing gases, which are the same in each flame.
PURE = 1e-4


def load_flames(folder: Path) -> Bunch:
    """Read states of hydrogen/air flames, such as those of Zdybał et al. (2022).

    Parameters
    ----------
    folder : path
        A folder with the files, plain or as .csv.gz, ``*state-space.csv`` (one state per row),
        ``*state-space-names.csv`` (the names of its columns), ``*mixture-fraction.csv`` (one number per state) and
        optionally ``*basis*.csv`` (one row per column of the states); numbers without a header.

    Returns
    -------
    Bunch
        ``data`` (n, 9): the temperature and 8 mass fractions, named in ``feature_names``; ``target`` (n,): the mixture
        fraction; ``transformation`` (9, 3): the engineered map to fewer features, or None.
    """
    states = _read_numbers(_only_file(folder, "*state-space.csv"))
    names = np.loadtxt(_only_file(folder, "*state-space-names.csv"), dtype=str, delimiter=",").ravel().tolist()
    fraction = _read_numbers(_only_file(folder, "*mixture-fraction.csv")).ravel()
    has_basis = any(folder.glob("*basis*.csv*"))
    transformation = _read_numbers(_only_file(folder, "*basis*.csv")) if has_basis else None
    n_rows = None if transformation is None else len(transformation)
    if states.shape != (len(fraction), len(names)) or n_rows not in (None, len(names)):
        raise ValueError(
            f"{folder} must have one mixture fraction per state, and one name and one row of the basis per column; got "
            f"states of shape {states.shape}, {len(fraction)} fractions, {len(names)} names and {n_rows} rows."
        )
    return Bunch(data=states, target=fraction, feature_names=names, transformation=transformation)


def _only_file(folder: Path, pattern: str) -> Path:
    found = sorted([*folder.glob(pattern), *folder.glob(f"{pattern}.gz")])
    if len(found) != 1:
        raise ValueError(
            f"{folder} must contain one file {pattern} or {pattern}.gz; got {[path.name for path in found] or 'none'}."
        )
    return found[0]


def _read_numbers(path: Path) -> FloatArray:
    try:
        numbers = np.loadtxt(path, delimiter=",", ndmin=2, encoding="utf-8-sig")
    except ValueError as error:
        raise ValueError(f"{path} must contain comma-separated numbers without a header: {error}") from error
    if not np.all(np.isfinite(numbers)):
        row = int(np.flatnonzero(~np.isfinite(numbers).all(axis=1))[0])
        raise ValueError(f"{path} must contain finite numbers; row {row} is {numbers[row].tolist()}.")
    return numbers


class _Grid(NamedTuple):
    """The grid points of a series of flames, flame after flame, each from the fuel side to the air side."""

    states: FloatArray
    mixture_fraction: FloatArray
    strain_rate: FloatArray


def simulate_flames(n: int, folder: Path, *, random_state: Any = None) -> Bunch:
    """Simulate states of hydrogen/air flames, similar to the published ones.

    Steady counterflow diffusion flames of hydrogen against air (300 K, 1 atm, all Lewis numbers 1) are solved from a
    strain rate of 4/s, close to equilibrium, up to 14,000/s, just before extinction.  There are max(16, n / 150)
    flames: more rows mean more flames.  The rows are `n` different grid points of these flames, without interpolation.

    Parameters
    ----------
    n : int
        The number of rows.
    folder : path
        The flames are stored here, so that only the first call is slow (5 to 20 s for 13,650 rows) and needs Cantera.
    random_state : int, RandomState or None
        Seed of the choice of grid points.

    Returns
    -------
    Bunch
        ``data`` (n, 9): the temperature in K and 8 mass fractions, named in ``feature_names``; ``target`` (n,):
        Bilger's mixture fraction; ``strain_rate`` (n,) in 1/s, which identifies the flame; ``transformation``: None.
        Rows are ordered by flame, and within a flame from hydrogen to air.
    """
    n_flames = max(FEWEST_FLAMES, -(-n // ROWS_PER_FLAME))
    path = folder / f"flames-{n_flames}.npz"
    if not path.exists():
        flames = _simulate(n_flames)
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part.npz")
        np.savez_compressed(unfinished, allow_pickle=False, **flames._asdict())
        os.replace(unfinished, path)
    with np.load(path, allow_pickle=False) as stored:
        flames = _Grid(*(stored[name] for name in _Grid._fields))
    if not 1 <= n <= len(flames.states):
        raise ValueError(f"n must be from 1 to the number of grid points, {len(flames.states)}; got {n}.")
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    rows = np.sort(rng.choice(len(flames.states), size=n, replace=False))
    return Bunch(
        data=flames.states[rows], target=flames.mixture_fraction[rows], strain_rate=flames.strain_rate[rows],
        feature_names=list(FEATURES), transformation=None,
    )  # fmt: skip


def _simulate(n_flames: int) -> _Grid:
    try:
        import cantera as ct
    except ImportError as error:
        raise ImportError("simulating flames needs Cantera: run pip install 'closefar[paper]'.") from error
    print(f"Simulating {n_flames} hydrogen/air flames with Cantera, once.", file=sys.stderr, flush=True)
    parts = []
    flame = _first_flame(ct)
    for strain in np.geomspace(WEAKEST_STRAIN, STRONGEST_STRAIN, n_flames):
        _strain(flame, strain)
        if flame.T.max() < 1000.0:  # extinguished, as are all stronger ones
            break
        parts.append(_mixing_layer(flame, strain))
    return _Grid(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _first_flame(ct: Any) -> Any:
    gas = ct.Solution("h2o2.yaml")
    gas.TP = 300.0, ct.one_atm
    flame = ct.CounterflowDiffusionFlame(gas, width=0.1)
    # As in flamelet models: all elements then diffuse alike, and the mixture fraction depends on mixing alone.
    flame.transport_model = "unity-Lewis-number"
    flame.P = ct.one_atm
    flame.fuel_inlet.X, flame.fuel_inlet.T, flame.fuel_inlet.mdot = "H2:1", 300.0, 0.025
    flame.oxidizer_inlet.X, flame.oxidizer_inlet.T, flame.oxidizer_inlet.mdot = "O2:0.21, N2:0.79", 300.0, 0.125
    flame.set_refine_criteria(ratio=3.0, slope=0.06, curve=0.1, prune=0.02)
    flame.flame.set_steady_tolerances(default=(1e-6, 1e-12))
    flame.flame.set_transient_tolerances(default=(1e-6, 1e-12))
    flame.solve(loglevel=0, auto=True)
    return flame


def _strain(flame: Any, strain: float) -> None:
    """Solve the flame at another mean strain rate, starting from the current solution.

    Thickness is proportional to strain^-1/2 and velocity to strain^1/2, so a scaled grid fits the
    new flame.
    """
    scale = np.sqrt(strain / flame.strain_rate("mean"))
    flame.flame.grid = flame.flame.grid / scale
    flame.fuel_inlet.mdot *= scale
    flame.oxidizer_inlet.mdot *= scale
    flame.solve(loglevel=0)


def _mixing_layer(flame: Any, strain: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    fraction = flame.mixture_fraction("Bilger")
    inside = (fraction > PURE) & (fraction < 1.0 - PURE)
    species = [flame.gas.species_index(name) for name in FEATURES[1:]]
    # Within the solver's tolerance, mass fractions of zero can be -1e-16.
    states = np.column_stack([flame.T, np.clip(flame.Y[species].T, 0.0, 1.0)])
    return states[inside], fraction[inside], np.full(int(np.sum(inside)), strain)
