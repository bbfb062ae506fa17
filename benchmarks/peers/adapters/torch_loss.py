"""The same loss in PyTorch, minimised by Adam or L-BFGS over a full factor A of M = AA' and tau, on a CPU or a GPU.

Both get what they need to be fast: whitened differences, in which L-BFGS needs a third of the passes, and single
precision, in which a pass takes a quarter of the time, for as long as it lowers the loss.  They end at `target_loss` if
the training data has one, and otherwise once the loss no longer falls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from peers.worker import Learned, NotApplicableError, Train

START = 0.1  # A begins as this multiple of the identity
HISTORY = 100
LEARNING_RATE, PATIENCE = 0.1, 10  # of Adam; the rate is halved after so many steps that do not lower the loss
LEAST_GAIN = 1e-7  # the loss no longer falls if some steps lower it by no more than this share
SEPARATED = 1e-6  # a loss that only a metric with every label right has: it would fall forever
MOST_SECONDS = 200.0  # of CPU time; the metric at its end is the answer


FORKS = False  # neither the threads of autograd nor a GPU in use survive a fork


def warm_up() -> None:
    """Import what a first fit imports, and start the libraries of a GPU."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    train = {"pairs": rng.normal(size=(50, 2, 2)), "labels": np.arange(50) % 2, "target_loss": np.array(0.68)}
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        for method in IDLE:
            fit(train, method, device)


class Loss:
    """R(AA', tau) of whitened differences, on a device and in a precision."""

    def __init__(self, differences: torch.Tensor, signs: torch.Tensor, factor: torch.Tensor, tau: torch.Tensor) -> None:
        self.differences, self.signs = differences, signs
        self.factor = factor.to(differences).requires_grad_()
        self.tau = tau.to(differences).requires_grad_()

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [self.factor, self.tau]

    def value(self) -> torch.Tensor:
        mapped = self.differences @ self.factor
        margins = self.signs * ((mapped * mapped).sum(dim=1) - self.tau)
        return torch.nn.functional.softplus(-margins).mean()

    def in_double(self, differences: torch.Tensor, signs: torch.Tensor) -> Loss:
        return Loss(differences, signs, self.factor.detach(), self.tau.detach())


def lbfgs(loss: Loss) -> Iterator[float]:
    """Steps with a line search for the strong Wolfe conditions; gives the loss after each."""
    optimiser = torch.optim.LBFGS(
        loss.parameters,
        max_iter=1,
        max_eval=25,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        history_size=HISTORY,
        line_search_fn="strong_wolfe",
    )
    lowest = np.inf

    def evaluate() -> torch.Tensor:
        nonlocal lowest
        optimiser.zero_grad()
        value = loss.value()
        value.backward()
        lowest = min(lowest, float(value))
        return value

    while True:
        optimiser.step(evaluate)
        yield lowest


def adam(loss: Loss) -> Iterator[float]:
    """Steps with all pairs; gives the loss before each."""
    optimiser = torch.optim.Adam(loss.parameters, lr=LEARNING_RATE)
    rate = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=0.5, patience=PATIENCE, threshold=0.0)
    while True:
        optimiser.zero_grad()
        value = loss.value()
        value.backward()
        optimiser.step()
        rate.step(float(value))
        yield float(value)


# So many steps that hardly lower the loss are the last ones; those of Adam go up and down.
IDLE = {lbfgs: 10, adam: 100}


def minimise(loss: Loss, method: Callable[[Loss], Iterator[float]], target: float, end: float) -> float:
    """Step until the target is reached, the loss no longer falls, or the time is over."""
    lowest, before, idle = np.inf, np.inf, 0
    for value in method(loss):
        lowest = min(lowest, value)
        idle = 0 if lowest < (1.0 - LEAST_GAIN) * before else idle + 1
        before = lowest if idle == 0 else before
        is_over = time.process_time() > end or not np.isfinite(value)
        if lowest <= max(target, SEPARATED) or idle >= IDLE[method] or is_over:
            break
    return lowest


def whitening(differences: np.ndarray) -> np.ndarray:
    """Return W for which the second moment of the rows of ZW is the identity."""
    scales = np.sqrt(np.einsum("ij,ij->j", differences, differences) / len(differences))
    scaled = differences / scales
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    return np.asarray(vectors / np.sqrt(np.maximum(values, 1e-12 * values[-1])) / scales[:, None])


def fit(
    train: Train, method: Callable[[Loss], Iterator[float]], device: str, first: torch.dtype = torch.float32
) -> Learned:
    """Minimise in the first precision, and then in double precision where that is not enough."""
    if device == "cuda" and not torch.cuda.is_available():
        raise NotApplicableError("There is no GPU on this machine.")
    target = float(train.get("target_loss", -np.inf))
    differences = train["pairs"][:, 0] - train["pairs"][:, 1]
    to_white = whitening(differences)
    rows = torch.from_numpy(differences @ to_white).to(device)
    signs = torch.from_numpy(np.where(train["labels"] > 0, 1.0, -1.0)).to(device)
    d = rows.shape[1]
    start = START * torch.eye(d, device=device), torch.tensor(START**2 * d, device=device)
    end = time.process_time() + MOST_SECONDS
    rough = Loss(rows.to(first), signs.to(first), *start)
    minimise(rough, method, target, end)
    precise = rough.in_double(rows, signs)
    reached = float(precise.value())
    if not reached <= max(target, SEPARATED):
        reached = min(reached, minimise(precise, method, target, end))
    return _learned(precise, to_white, reached, target)


def _learned(loss: Loss, to_white: np.ndarray, reached: float, target: float) -> Learned:
    factor = to_white @ loss.factor.detach().cpu().numpy()
    metric, threshold = factor @ factor.T, float(loss.tau.detach())

    def probability(pairs: np.ndarray) -> np.ndarray:
        mapped = (pairs[:, 0] - pairs[:, 1]) @ factor
        return np.asarray(1.0 / (1.0 + np.exp(np.clip(threshold - np.square(mapped).sum(axis=1), -700.0, 700.0))))

    missed = "" if reached <= target or target == -np.inf else f"ended {reached - target:.0e} above the target loss"
    return Learned(metric=metric, threshold=threshold, probability=probability, note=missed)


PEERS: dict[str, Any] = {
    "PyTorch Adam": partial(fit, method=adam, device="cpu"),
    "PyTorch L-BFGS": partial(fit, method=lbfgs, device="cpu"),
    "PyTorch Adam (GPU)": partial(fit, method=adam, device="cuda"),
    "PyTorch L-BFGS (GPU)": partial(fit, method=lbfgs, device="cuda"),
}
