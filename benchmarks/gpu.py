"""Passes and fits on a GPU beside eager torch: python benchmarks/gpu.py [--pairs 10000000] [--fit-pairs 50000000].

All figures are ratios within one run.  *Read once* is the time of reading the rows once, at the bandwidth of a copy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import closefar as cf
from closefar.noise import NOISES
from closefar.rows import Differences, rows_of
from closefar.rows.fused import FAST, FINEST, KINDS, PRECISE, FusedPasses, Pass

# The paper's estimator: one fit, without choosing a penalty and flips.
PAPER: dict[str, Any] = {"alpha": 0.0, "flip_rate": 0.0}

CARD = "cuda"
LEVELS = {"fast": FAST, "precise": PRECISE, "finest": FINEST}
LOGISTIC = NOISES["logistic"]


def seconds(run: Callable[[], Any], repeats: int = 5, warm: int = 2) -> float:
    """The median time of a run that ends on the card."""
    times = []
    for _ in range(warm + repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return float(np.median(times[warm:]))


def make_rows(n: int, d: int, rank: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, np.ndarray, float]:
    """Normal rows in single precision, labels with logistic noise, the true factor and threshold."""
    generator = torch.Generator(device=CARD).manual_seed(seed)
    rows, labels = torch.empty(n, d, device=CARD), torch.empty(n, dtype=torch.int8, device=CARD)
    factor = torch.randn(d, rank, device=CARD, generator=generator)
    factor *= (5.0 / (2.0 * ((factor @ factor.T) ** 2).sum()).sqrt()).sqrt()
    threshold = float((factor * factor).sum())
    for start in range(0, n, 1 << 20):
        part = rows[start : start + (1 << 20)].normal_(generator=generator)
        uniform = torch.rand(len(part), device=CARD, generator=generator).clamp(1e-6, 1.0 - 1e-6)
        beyond = ((part @ factor) ** 2).sum(1) - threshold + torch.logit(uniform)
        labels[start : start + (1 << 20)] = torch.where(beyond > 0, 1, -1)
    return rows, labels, factor.double().cpu().numpy(), threshold


def eager(rows: torch.Tensor, signs: torch.Tensor, factor: torch.Tensor, threshold: float) -> tuple[torch.Tensor, ...]:
    """The pass in eager torch, single precision: loss, slope and gradient in the factor."""
    projected = rows @ factor
    margin = signs * ((projected * projected).sum(1) - threshold)
    pulled = torch.sigmoid(-margin) * signs
    loss = torch.nn.functional.softplus(-margin).sum(dtype=torch.float64)
    return loss, pulled.sum(dtype=torch.float64), rows.T @ (projected * pulled[:, None])


def bench_passes(n: int, d: int) -> None:
    rows, labels, factor, threshold = make_rows(n, d, d)
    other = torch.empty_like(rows)
    read_once = seconds(lambda: other.copy_(rows)) / 2.0
    fused, signs = Differences(rows).rough, labels.float()
    assert isinstance(fused.passes, FusedPasses), fused.engine
    weights = fused.row_array(np.broadcast_to(1.0 / n, n))
    print(f"\n{n:,} rows of {d} columns; read once: {1e3 * read_once:.2f} ms")
    point, used = factor @ factor.T, torch.from_numpy(factor).float().to(CARD)
    plain = seconds(lambda: eager(rows, signs, used, threshold))
    print(f"  eager torch {1e3 * plain:6.2f} ms, {plain / read_once:5.2f} x read once")
    for name, level in LEVELS.items():

        def run(level: int = level) -> None:
            for _ in range(10):
                Pass(fused.passes.rows, labels, None, point, threshold, KINDS["logistic"], 1.0, level).start()

        taken = seconds(run) / 10.0
        print(
            f"  {name:11s} {1e3 * taken:6.2f} ms, {taken / read_once:5.2f} x read once, "
            f"{plain / taken:4.1f} x faster than eager torch"
        )
    alone = seconds(lambda: fused.rough.margin_pass(LOGISTIC, labels, weights, point, threshold))
    print(f"  a precise pass with its sums on the host: {1e3 * alone:.2f} ms, {alone / read_once:.2f} x read once")


def exact(rows: torch.Tensor, signs: torch.Tensor, matrix: np.ndarray, threshold: float, noise: Any) -> float:
    """The loss in double precision."""
    total, point = 0.0, torch.from_numpy(matrix).to(CARD)
    for start in range(0, len(rows), 1 << 20):
        part = rows[start : start + (1 << 20)].double()
        margin = signs[start : start + (1 << 20)].double() * (((part @ point) * part).sum(1) - threshold)
        total += float(noise.derivatives(margin, 0)[0].sum())
    return total / len(rows)


def bench_errors(n: int, d: int) -> None:
    rows, labels, factor, threshold = make_rows(n, d, d)
    matrix = 1.02 * factor @ factor.T
    enormous = rows.clone()
    enormous[0] *= 1e4
    kinds = {
        "normal": rows,
        "rounded to 0.1": (10.0 * rows).round() / 10.0,
        "two values": torch.where(rows > 0, 0.7, 0.1),
        "one row times 1e4": enormous,
    }
    print("\nError of the loss of precise passes, relative to double precision")
    for kind, data in kinds.items():
        fused = Differences(data).rough
        weights = fused.row_array(np.broadcast_to(1.0 / n, n))
        at = threshold * float((data[:1000] ** 2).mean()) if kind == "two values" else threshold
        errors = []
        for noise in NOISES.values():
            found = fused.rough.margin_pass(noise, labels, weights, matrix, at)
            loss = exact(data, labels, matrix, at, noise)
            errors.append(f"{noise.name} {abs(found.loss - loss) / loss:.0e}" if found else f"{noise.name} not fused")
        print(f"  {kind:18s} {', '.join(errors)}")


def bench_index(n_points: int, n: int, d: int) -> None:
    generator = torch.Generator(device=CARD).manual_seed(0)
    points = torch.randn(n_points, d, device=CARD, generator=generator)
    index = torch.randint(n_points, (n, 2), device=CARD, generator=generator, dtype=torch.int32)
    factor = 0.05 * torch.randn(d, d, device=CARD, generator=generator)
    signs = torch.where(torch.rand(n, device=CARD, generator=generator) > 0.5, 1, -1).to(torch.int8)
    threshold = float(2.0 * (factor * factor).sum())

    def gathered() -> None:
        for start in range(0, n, 10_000_000):
            ends = index[start : start + 10_000_000].long()
            rows = points[ends[:, 0]] - points[ends[:, 1]]
            eager(rows, signs[start : start + 10_000_000].float(), factor, threshold)

    fused = rows_of(cf.Tuples(points, index)).rough
    weights = fused.row_array(np.broadcast_to(1.0 / n, n))
    matrix = (factor @ factor.T).double().cpu().numpy()
    plain = seconds(gathered, repeats=3, warm=1)
    taken = seconds(lambda: fused.margin_pass(LOGISTIC, signs, weights, matrix, threshold))
    print(
        f"\n{n:,} pairs of {n_points:,} points by index, {d} columns: {1e3 * taken:.1f} ms, "
        f"{plain / taken:.1f} x faster than an eager gather ({1e3 * plain:.0f} ms)"
    )


def bench_fit(n: int, d: int) -> None:
    rows, labels, *_ = make_rows(n, d, 30)
    torch.cuda.synchronize()
    fits = []
    print(f"\nFits to {n:,} rows of {d} columns that are on the card; the first one compiles the kernels")
    for _ in range(3):
        start = time.perf_counter()
        fits.append(cf.LinearMetricLearner(**PAPER).fit(rows, labels))
        taken, certificate = time.perf_counter() - start, fits[-1].certificate_
        print(f"  {taken:.2f} s: gap {certificate.gap:.1e}, {certificate.n_passes:.1f} passes, {certificate.outcome}")
    same = fits[1].metric_.factor.tobytes() == fits[2].metric_.factor.tobytes()
    print(f"  {fits[-1].fit_.engine}; the same bits twice: {same and fits[1].certificate_ == fits[2].certificate_}")


def bench_agreement(n: int, d: int) -> None:
    rows, labels, *_ = make_rows(n, d, 5)
    on_card, on_host = (cf.LinearMetricLearner(**PAPER, tol=1e-9) for _ in range(2))
    on_card.fit(rows, labels)
    on_host.fit(rows.cpu().numpy(), labels.cpu().numpy())
    probabilities = [each.predict_proba(rows[:100_000].cpu().numpy()) for each in (on_card, on_host)]
    print(
        f"\nGPU and CPU, {n:,} rows of {d} columns, tol=1e-9: losses differ by "
        f"{abs(on_card.certificate_.loss - on_host.certificate_.loss):.0e}, probabilities by "
        f"{np.abs(probabilities[0] - probabilities[1]).max():.0e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--fit-pairs", type=int, default=50_000_000)
    parser.add_argument("--features", type=int, default=100)
    given = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    bench_passes(given.pairs, given.features)
    bench_errors(min(given.pairs, 2_000_000), given.features)
    bench_index(100_000, given.fit_pairs, given.features)
    bench_fit(given.fit_pairs, given.features)
    bench_agreement(200_000, 20)


if __name__ == "__main__":
    main()
