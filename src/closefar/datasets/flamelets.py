"""Hydrogen/air flames simulated with Cantera: a free substitute for the published combustion data."""

from __future__ import annotations

import errno
import io
import numbers
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import Bunch, check_random_state

from closefar.arrays import FloatArray
from closefar.files import replace_file

__all__ = ["make_combustion"]

FEATURES = ("T", "H", "H2", "O", "OH", "H2O", "O2", "HO2", "H2O2")

# A flame has 157 to 187 grid points in the mixing layer.
ROWS_PER_FLAME = 150
# With this many the strain rate grows less than twofold from one flame to the next, which keeps them burning.
FEWEST_FLAMES = 16
# In 1/s.  The weakest flame burns close to equilibrium; flames are extinguished between 14,400 and 14,500.
WEAKEST_STRAIN, STRONGEST_STRAIN = 4.0, 14_000.0
# Mixture fractions closer than this to 0 or 1 are the inflowing gases, which are the same in each flame.
PURE = 1e-4
# Part of the name of the cache file; increase it when the simulation changes.
RECIPE = 1


class Flamelets(NamedTuple):
    """The grid points of a series of flames, flame after flame, each from the fuel side to the air side."""

    states: FloatArray
    mixture_fraction: FloatArray
    strain_rate: FloatArray
    cantera: str


def make_combustion(n: int = 13_650, *, data_home: Any = None, random_state: Any = None) -> Bunch:
    """Simulate states of hydrogen/air flames, similar to the data of `load_combustion`.

    Steady counterflow diffusion flames of hydrogen against air (300 K, 1 atm, all Lewis
    numbers 1) are solved from a strain rate of 4/s, close to equilibrium, up to 14,000/s,
    just before extinction.  There are max(16, n / 150) flames, so that more rows mean more flames.
    The rows are `n` different grid points of these flames, without interpolation.

    The flames are stored in a file, so that only the first call is slow (5 to 20 s for
    the default `n`).  This needs Cantera: ``pip install 'closefar[combustion]'``.

    Parameters
    ----------
    n : int
        The number of rows.
    data_home : path, optional
        The folder of that file; by default the environment variable ``CLOSEFAR_DATA`` or, if it is
        not set, ``~/.cache/closefar``.
    random_state : int, RandomState or None
        Seed of the choice of grid points.

    Returns
    -------
    Bunch
        ``data`` (n, 9): the temperature in K and 8 mass fractions, named in
        ``feature_names``; ``target`` (n,): Bilger's mixture fraction; ``strain_rate`` (n,)
        in 1/s, which identifies the flame; ``transformation``: None; ``DESCR``.
        Rows are ordered by flame, and within a flame from hydrogen to air.
    """
    if not (isinstance(n, numbers.Integral) and n >= 1):
        raise ValueError(f"n must be a whole number >= 1; got {n!r}.")
    n_flames = max(FEWEST_FLAMES, -(-int(n) // ROWS_PER_FLAME))
    flames = _stored_or_simulated(n_flames, _cache_folder(data_home) / f"flamelets-{RECIPE}-{n_flames}.npz")
    if n > len(flames.states):
        raise RuntimeError(
            f"n must be at most the number of grid points of the {n_flames} flames, {len(flames.states)}; got {n}, as "
            f"some flames went out. Use fewer rows, or another version of Cantera (this is {flames.cantera})."
        )
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    rows = np.sort(rng.choice(len(flames.states), size=n, replace=False))
    return Bunch(
        data=flames.states[rows],
        target=flames.mixture_fraction[rows],
        strain_rate=flames.strain_rate[rows],
        feature_names=list(FEATURES),
        transformation=None,
        DESCR=f"{n} states of {len(np.unique(flames.strain_rate))} steady counterflow diffusion flames of hydrogen and "
        f"air at 300 K and 1 atm, strain rates {flames.strain_rate[0]:g} to {flames.strain_rate[-1]:g} 1/s, Lewis "
        f"numbers 1; simulated with Cantera {flames.cantera}, mechanism h2o2.yaml.",
    )


def _cache_folder(data_home: Any) -> Path:
    return Path(data_home or os.environ.get("CLOSEFAR_DATA") or "~/.cache/closefar").expanduser()


def _stored_or_simulated(n_flames: int, path: Path) -> Flamelets:
    if path.exists():
        try:
            return _read(path)
        except (
            Exception
        ) as error:  # a damaged file can fail in many ways: in the zip, the compression, a header, the values
            warnings.warn(
                f"the stored flames in {path} can't be read ({error}), so they are simulated again.", stacklevel=3
            )
    ct = _import_cantera()
    _make_folder(path.parent)
    flames = _simulate(ct, n_flames, path)
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **flames._asdict())
    replace_file(path, content.getvalue())
    return flames


def _read(path: Path) -> Flamelets:
    # Opened here, because NumPy does not close a file whose zip is damaged.
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
        states, mixture_fraction, strain_rate = (stored[name] for name in Flamelets._fields[:3])
        cantera = str(stored["cantera"])
    m = len(states)
    if not (states.shape == (m, len(FEATURES)) and mixture_fraction.shape == strain_rate.shape == (m,)):
        raise ValueError(f"shapes {states.shape}, {mixture_fraction.shape} and {strain_rate.shape} don't agree")
    if not all(np.all(np.isfinite(values)) for values in (states, mixture_fraction, strain_rate)):
        raise ValueError("not all values are finite")
    return Flamelets(states, mixture_fraction, strain_rate, cantera)


def _import_cantera() -> Any:
    try:
        import cantera
    except ImportError as error:
        raise ImportError(
            "simulating flames needs Cantera: run pip install 'closefar[combustion]'. "
            "load_combustion reads published states without it."
        ) from error
    return cantera


def _make_folder(folder: Path) -> None:
    """Create the folder before the simulation, whose result would otherwise be lost."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise OSError(
            f"the folder of simulated flames must be writable; {folder} is not ({error.strerror}). "
            "Set another with data_home=... or the environment variable CLOSEFAR_DATA."
        ) from error


def _simulate(ct: Any, n_flames: int, path: Path) -> Flamelets:
    parts = []
    with _progress(n_flames, path) as advance:
        flame = _first_flame(ct)
        for strain in np.geomspace(WEAKEST_STRAIN, STRONGEST_STRAIN, n_flames):
            _strain(flame, strain)
            if flame.T.max() < 1000.0:  # extinguished, as are all stronger ones
                break
            parts.append(_mixing_layer(flame, strain))
            advance()
    states, mixture_fraction, strain_rate = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Flamelets(states, mixture_fraction, strain_rate, ct.__version__)


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


@contextmanager
def _progress(n_flames: int, path: Path) -> Iterator[Callable[[], None]]:
    """Announce the simulation, with a progress bar if rich is installed and stderr is a terminal."""
    print(f"Simulating {n_flames} hydrogen/air flames with Cantera, once; storing {path}.", file=sys.stderr, flush=True)
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda: None
        return
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("flames", total=n_flames)
        yield lambda: bar.advance(task)
