"""How many passes over the pairs a fit takes: the solver that it chooses, and laws fitted to counted runs.

`benchmarks/cost.py` counts passes and compares them with these laws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from closefar.cost.size import RunSize
from closefar.noise import get_noise
from closefar.rows import BlockRows
from closefar.solve import CloseFar, Objective, Passes, choose_solver, share_for_hessian

__all__ = ["ExpectedPasses", "Work", "expected_work"]

# Below this number of pairs per parameter, labels may be separable, and the number of passes is hardly predictable.
FEW_PER_PARAMETER = 8.0

_SEPARABLE_PER_PARAMETER = 3.0

_MANY_COLUMNS = 128  # with more, a limited rank is fitted without the convex problem
COPY_BYTES = 1 << 27  # rows of this size in single precision are copied
_SCOUTED_BYTES = 1 << 26
_SCOUTED_SHARE = 0.125
_CURVED_FAR, _CURVED_NEAR = 64, 512

_REASONS = {
    "newton": "few columns: the Hessian of all {p:,} parameters is formed",
    "sampled": "enough pairs for the Hessian of a sample to stand for that of all, so that passes over all are few",
    "lowrank": "projections of the pairs fit into memory, and a step in a factor of M is cheaper than one in M",
    "fista": "projections of the pairs would take too much memory, and a sample would be too small",
}


@dataclass(frozen=True)
class ExpectedPasses:
    """Expected passes: each the loss and its gradient over all pairs, or as much arithmetic.

    Attributes
    ----------
    solver : str
        The solver that `fit` chooses.
    reason : str
        Why it does.
    sample : float
        Passes over a sample, `n_sampled` pairs of all, each as a pass over the sample.
    n_sampled : int
        The size of that sample.
    over_all : float
        Passes over all pairs before the proof.
    proof : float
        Passes that prove the gap.
    """

    solver: str
    reason: str
    sample: float
    n_sampled: int
    over_all: float
    proof: float


@dataclass(frozen=True)
class Work:
    """The operations of a fit: passes over all pairs or over the sample, and other work.

    `rough` and `narrow` passes are by projections; `likelihoods` are evaluations at known distances; `hessian_rows`
    are the rows of dense Hessians; `eigen` is the number of eigendecompositions of M; `driver` is other work on
    matrices of the size of the parameters, in multiplications; `uncertainty` is the factor of the range.
    """

    solver: str
    n_sampled: int
    sample: float = 0.0
    precise: float = 0.0
    rough: float = 0.0
    narrow: float = 0.0
    likelihoods: float = 0.0
    proof: float = 0.0
    rough_proof: float = 0.0
    hessian_rows: float = 0.0
    eigen: float = 0.0
    driver: float = 0.0
    uncertainty: float = 1.6

    def passes(self, size: RunSize) -> ExpectedPasses:
        """The passes, in units of a pass over all columns."""
        share = (size.rank or size.n_features) / size.n_features
        p, d = size.n_parameters, size.n_features
        hessian = self.hessian_rows / size.n_pairs * p**2 / (4.0 * d**2)
        reason = _REASONS[self.solver].format(p=p)
        over_all = self.precise + self.rough + share * self.narrow + hessian
        return ExpectedPasses(self.solver, reason, self.sample, self.n_sampled, over_all, self.proof + self.rough_proof)


class _PlannedRows(BlockRows):
    """Rows that do not exist, for which a solver is chosen."""

    def __init__(self, size: RunSize, *, is_remote: bool, can_fuse: bool) -> None:
        super().__init__(size.n_pairs, size.n_features)
        self._n_projected = size.n_pairs if size.n_points is None else size.n_points
        self._is_remote, self._can_fuse = is_remote, can_fuse

    @property
    def n_projected(self) -> int:
        return self._n_projected

    @property
    def is_remote(self) -> bool:
        return self._is_remote

    @property
    def can_fuse(self) -> bool:
        return self._can_fuse

    def read(self, where: slice) -> NoReturn:
        raise NotImplementedError("planned rows can't be read.")


def expected_work(size: RunSize, *, is_remote: bool = False, gpu: bool = False) -> Work:
    """The operations that a fit of this size takes, by the laws for the solver that it chooses."""
    nothing = np.zeros(0)
    rows = _PlannedRows(size, is_remote=is_remote, can_fuse=gpu)
    objective = Objective(rows, CloseFar(get_noise("logistic"), nothing, nothing), Passes())
    name = choose_solver(objective, is_limited=size.rank is not None)
    share = share_for_hessian(objective)
    law = {"newton": _newton, "sampled": _sampled, "lowrank": _low_rank, "fista": _fista}[name]
    work = law(size, share)
    starts_within_rank = name == "lowrank" and size.n_features > _MANY_COLUMNS
    return work if size.rank is None or starts_within_rank else _then_within_rank(work)


def _newton(size: RunSize, share: float) -> Work:
    n, d, p = size.n_pairs, size.n_features, size.n_parameters
    has_scouts = n >= 64 * p
    near = np.clip(40.0 * d**2 / p**2 * n, _CURVED_FAR * p, _CURVED_NEAR * p)
    curved = 5.0 * min(_CURVED_FAR * p, n) + 1.5 * min(near, n) if has_scouts else 6.0 * n
    return Work(
        "newton",
        n_sampled=int(min(_SCOUTED_SHARE * n, _SCOUTED_BYTES / (8 * d))) if has_scouts else 0,
        sample=4.0 if has_scouts else 0.0,
        precise=5.5 if has_scouts else 12.0,
        likelihoods=3.0,
        proof=1.5,
        hessian_rows=float(curved),
        eigen=60.0,
        driver=4e4 * p**2 + 2e8,
    )


def _sampled(size: RunSize, share: float) -> Work:
    return Work(
        "sampled",
        n_sampled=int(share * size.n_pairs),
        sample=90.0,
        precise=8.0,
        likelihoods=6.0,
        proof=6.0,
        eigen=200.0,
    )


def _low_rank(size: RunSize, share: float) -> Work:
    is_hard = size.pairs_per_parameter < FEW_PER_PARAMETER
    steps = 13.0 + 100.0 / size.pairs_per_parameter
    if is_hard:  # most at the edge of what can be separated
        steps = 180.0 if size.pairs_per_parameter > _SEPARABLE_PER_PARAMETER else 70.0
    in_single = size.dtype == "float32" or 4 * size.n_pairs * size.n_features <= COPY_BYTES
    if size.rank is not None and size.n_features > _MANY_COLUMNS:
        return Work("lowrank", 0, narrow=40.0, likelihoods=200.0, precise=3.0, eigen=60.0, uncertainty=2.5)
    return Work(
        "lowrank",
        0,
        precise=3.0 if in_single else 3.0 + steps,
        rough=steps if in_single else 0.0,
        likelihoods=5.0 * steps,
        proof=2.0,
        rough_proof=4.0 + 40.0 / size.pairs_per_parameter if not is_hard else 0.0,
        eigen=3.0 * steps,
        uncertainty=3.0 if is_hard else 1.8,
    )


def _fista(size: RunSize, share: float) -> Work:
    return Work("fista", 0, precise=45.0, likelihoods=150.0, proof=15.0, eigen=120.0, uncertainty=2.5)


def _then_within_rank(work: Work) -> Work:
    """The convex problem, then steps within the limited rank."""
    return replace(
        work, narrow=work.narrow + 40.0, likelihoods=work.likelihoods + 150.0, uncertainty=1.25 * work.uncertainty
    )
