"""Every kind of judgement on every engine: whole fits that agree with those to arrays of NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import closefar as cf
from cards import count_tensors_as_on_gpu, device_of_kernels
from closefar.fitting import progress
from closefar.rows import fused, indexed
from closefar.solve.flips import LEAST_GAIN
from closefar.solve.loop import Solver
from paper_estimator import PAPER

N, N_COMPARED, D = 900, 500, 3
TOL = 1e-10
RNG = np.random.default_rng(5)
# Eighths are also what single precision holds, differences included.
POINTS = np.round(8.0 * RNG.standard_normal((150, D))) / 8.0
PAIRS = RNG.integers(150, size=(N, 2))
TRIPLETS = np.array([RNG.choice(150, 3, replace=False) for _ in range(N_COMPARED)])
TRUTH = np.array([1.5, 0.5, 0.0])


def squared(index: np.ndarray, left: int, right: int) -> np.ndarray:
    return np.asarray((POINTS[index[:, left]] - POINTS[index[:, right]]) ** 2 @ TRUTH)


SEEN = squared(PAIRS, 0, 1) + RNG.logistic(size=N)
LABELS = (SEEN > 3.0).astype(int)
HEARD = squared(TRIPLETS, 0, 2) - squared(TRIPLETS, 0, 1) + RNG.logistic(size=N_COMPARED)
ORDER = np.where(HEARD > 0.0, 1, -1)
WHO = RNG.integers(4, size=N)
SINGLE = POINTS[PAIRS[:, 0]] + np.array([1.0, -0.5, 0.0])
INSIDE = (POINTS[PAIRS[:, 0]] ** 2 @ TRUTH + RNG.logistic(size=N) > 1.5).astype(int)


class Given(NamedTuple):
    """What a learner is fitted to: tuples by index of points, or single points, and what is said of each."""

    learner: Any
    index: np.ndarray | None
    said: dict[str, np.ndarray]
    compared: tuple[np.ndarray, np.ndarray] | None = None

    def fitted(
        self, form: Callable[[Any], Any], said: Callable[[Any], Any] = lambda values: values, **more: Any
    ) -> Any:
        """The fit to these forms of the tuples and of what is said; `more` is also for the fit."""
        given = {name: said(values) for name, values in self.said.items()} | more
        if self.compared is not None:
            given["comparisons"] = form(self.compared[0]), said(self.compared[1])
        return clone(self.learner).fit(form(self.index), **given)

    @property
    def new(self) -> np.ndarray:
        """What is predicted: tuples of points that are not those of the fit, or points."""
        shape = (200, D) if self.index is None else (200, self.index.shape[1], D)
        return np.random.default_rng(6).standard_normal(shape)


LINEAR = cf.LinearMetricLearner(tol=TOL, **PAPER)
ESTIMATED = cf.LinearMetricLearner(tol=TOL, **PAPER | {"flip_rate": "estimate"})
ORIGIN = cf.LinearMetricLearner(tol=TOL, fit_origin=True, **PAPER)
ORDINAL = cf.OrdinalMetricLearner(tol=TOL, **PAPER)
COMPARISON = cf.ComparisonMetricLearner(tol=TOL, **PAPER)
KINDS = {
    "close/far": Given(LINEAR, PAIRS, {"y": LABELS}),
    "levels": Given(ORDINAL, PAIRS, {"y": np.digitize(SEEN, [1.0, 3.0, 6.0])}),
    "comparisons": Given(COMPARISON, TRIPLETS, {"y": ORDER}),
    "mixed": Given(LINEAR, PAIRS, {"y": LABELS}, (TRIPLETS, ORDER)),
    "annotators": Given(LINEAR, PAIRS, {"y": (SEEN - 0.5 * WHO > 2.0).astype(int), "annotators": WHO}),
    "flips": Given(ESTIMATED, PAIRS, {"y": np.where(RNG.random(N) < 0.1, 1 - LABELS, LABELS)}),
    "weights": Given(LINEAR, PAIRS, {"y": LABELS, "sample_weight": RNG.uniform(0.5, 2.0, N)}),
    "origin": Given(ORIGIN, None, {"y": INSIDE}),
}


def values_of(index: np.ndarray | None) -> np.ndarray:
    return SINGLE if index is None else POINTS[index]


@pytest.fixture(scope="module")
def expected():
    """The fits to arrays of NumPy, each made once."""
    return cache(lambda kind: KINDS[kind].fitted(values_of))


# Engines: functions from what is given to a fit.


def by_index(given, request):
    return given.fitted(lambda index: cf.Tuples(POINTS, index))


def in_file(given, request):
    folder = request.getfixturevalue("tmp_path")

    def saved(index):
        file = folder / f"{'points' if index is None else index.shape[1]}.npy"
        np.save(file, values_of(index))
        return np.load(file, mmap_mode="r")

    return given.fitted(saved)


def in_library(name):
    def fitted(given, request):
        xp = pytest.importorskip(name, reason=f"{name} is not installed; see the extra test-torch of pyproject.toml")
        return given.fitted(lambda index: xp.asarray(values_of(index)))

    return fitted


def as_on_a_card(given, request):
    """Tensors on the CPU, with blocks and steps as on a GPU that has no kernels; by index if there is one."""
    torch = pytest.importorskip("torch", reason="needs torch: run pip install -e '.[test-torch]'")
    patch = request.getfixturevalue("monkeypatch")
    count_tensors_as_on_gpu(patch)
    patch.setenv(fused.VARIABLE, "plain")
    points = torch.tensor(POINTS)
    return given.fitted(lambda index: torch.tensor(SINGLE) if index is None else cf.Tuples(points, torch.tensor(index)))


def on_dask(given, request):
    array = pytest.importorskip("dask.array", reason="dask is not installed: run pip install -e '.[test]'")
    return given.fitted(
        lambda index: array.from_array(values_of(index), chunks=(350, -1, -1)[: values_of(index).ndim]),
        lambda values: array.from_array(values, chunks=350),
    )


def by_index_on_dask(given, request):
    """Points that stay what they are, however few: passes map them, and not their differences."""
    array = pytest.importorskip("dask.array", reason="dask is not installed: run pip install -e '.[test]'")
    request.getfixturevalue("monkeypatch").setattr(indexed, "KEEP_BYTES", 0)
    return given.fitted(
        lambda index: cf.Tuples(POINTS, array.from_array(index, chunks=(350, -1))),
        lambda values: array.from_array(values, chunks=350),
    )


def resumed(given, request):
    """Interrupted before its third step, and continued from the checkpoint that this leaves."""
    patch, file = request.getfixturevalue("monkeypatch"), request.getfixturevalue("tmp_path") / "fit.checkpoint"
    patch.setattr(progress, "INTERVAL", 0.0)
    patch.setattr(progress, "_SHARE_OF_TIME", np.inf)
    steps, ending = count(), Solver._ending

    def interrupted(*where):
        if next(steps) == 2:
            raise KeyboardInterrupt
        return ending(*where)

    with patch.context() as within, warnings.catch_warnings():
        within.setattr(Solver, "_ending", staticmethod(interrupted))
        warnings.simplefilter("ignore", ConvergenceWarning)
        begun = given.fitted(values_of, checkpoint=file)
    assert begun.certificate_.outcome == "interrupted"
    return given.fitted(values_of, checkpoint=file)


ENGINES = {
    "index": by_index,
    "memory map": in_file,
    "array API": in_library("array_api_strict"),
    "torch": in_library("torch"),
    "as on a GPU": as_on_a_card,
    "dask": on_dask,
    "index on dask": by_index_on_dask,
    "checkpoint": resumed,
}


@pytest.mark.parametrize(
    ("kind", "engine"),
    [(kind, name) for kind in KINDS for name in ENGINES if not (kind == "origin" and "index" in name)],
)
def test_the_fit_is_the_same(kind, engine, expected, request):
    given, plain = KINDS[kind], expected(kind)
    found = ENGINES[engine](given, request)
    assert plain.certificate_.converged
    assert found.certificate_.converged
    assert abs(found.certificate_.loss - plain.certificate_.loss) <= 1e-8
    np.testing.assert_allclose(found.predict_proba(given.new), plain.predict_proba(given.new), rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", ["differences", "index"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_fit_on_a_gpu_is_the_same(kind, form, expected, monkeypatch):
    """By kernels, where there are some for such judgements."""
    given, plain, device = KINDS[kind], expected(kind), device_of_kernels(monkeypatch)
    if form == "index" and given.index is None:
        form = "differences"

    import torch

    points = torch.tensor(POINTS, dtype=torch.float32, device=device)

    def moved(index):
        if form == "index":
            return cf.Tuples(points, torch.tensor(index, device=device))
        return torch.tensor(values_of(index), dtype=torch.float32, device=device)

    settings = {"solver": "sampled", "tol": 1e-9}  # the other solvers do not use kernels to approach the optimum
    found = given._replace(learner=clone(given.learner).set_params(**settings)).fitted(moved)
    assert found.certificate_.converged
    assert "fused" in found.fit_.engine
    # A gap of 1e-9 is proven, from which sqrt(gap / 2) follows as root mean square of probabilities.  With flips it is
    # that of the last convex step, and the search ends once a round gains less than a constant.
    most = LEAST_GAIN if kind == "flips" else 0.0
    assert abs(found.certificate_.objective - plain.certificate_.objective) <= 1e-9 + TOL + 2.0 * most
    difference = found.predict_proba(given.new) - plain.predict_proba(given.new)
    assert np.sqrt(np.mean(difference**2)) <= 2.0 * np.sqrt(1e-9 / 2.0)
