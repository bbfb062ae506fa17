"""Passes and fits on a GPU beside eager torch: python benchmarks/gpu.py [--pairs 10000000] [--fit-pairs 50000000].

benchmarks/gpu.txt is its output on an H200.
All figures are ratios within one run.  *Read once* is the time of reading the rows once, at the bandwidth of a copy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import closefar as cf
from closefar.noise import NOISES
from closefar.rows import Differences, RowSource, rows_of
from closefar.rows.fused import FAST, FINEST, KINDS, PRECISE, FusedPasses, Pass
from closefar.solve import Answers, Likelihood, Problem

# The paper's estimator: one fit, without choosing a penalty and flips.
PAPER: dict[str, Any] = {"alpha": 0.0, "flip_rate": 0.0}

CARD = "cuda"
LEVELS = {"fast": FAST, "precise": PRECISE, "finest": FINEST}


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
    """Normal rows in single precision, 1 for far and 0 for close with logistic noise, the true factor and threshold."""
    generator = torch.Generator(device=CARD).manual_seed(seed)
    rows, codes = torch.empty(n, d, device=CARD), torch.empty(n, dtype=torch.int8, device=CARD)
    factor = torch.randn(d, rank, device=CARD, generator=generator)
    factor *= (5.0 / (2.0 * ((factor @ factor.T) ** 2).sum()).sqrt()).sqrt()
    threshold = float((factor * factor).sum())
    for start in range(0, n, 1 << 20):
        part = rows[start : start + (1 << 20)].normal_(generator=generator)
        uniform = torch.rand(len(part), device=CARD, generator=generator).clamp(1e-6, 1.0 - 1e-6)
        beyond = ((part @ factor) ** 2).sum(1) - threshold + torch.logit(uniform)
        codes[start : start + (1 << 20)] = beyond > 0
    return rows, codes, factor.double().cpu().numpy(), threshold


def eager(rows: torch.Tensor, signs: torch.Tensor, factor: torch.Tensor, threshold: float) -> tuple[torch.Tensor, ...]:
    """The pass in eager torch, single precision: loss, slope and gradient in the factor."""
    projected = rows @ factor
    margin = signs * ((projected * projected).sum(1) - threshold)
    pulled = torch.sigmoid(-margin) * signs
    loss = torch.nn.functional.softplus(-margin).sum(dtype=torch.float64)
    return loss, pulled.sum(dtype=torch.float64), rows.T @ (projected * pulled[:, None])


def problem_of(rows: RowSource, codes: torch.Tensor, noise: str = "logistic") -> Problem:
    """The problem of these answers, 0 and 1, of equal weight."""
    n = rows.n_rows
    return Problem.of(
        rows, Likelihood(NOISES[noise], Answers.of(2), codes, rows.row_array(np.broadcast_to(1.0 / n, n)))
    )


def bench_passes(n: int, d: int) -> None:
    rows, codes, factor, threshold = make_rows(n, d, d)
    other = torch.empty_like(rows)
    read_once = seconds(lambda: other.copy_(rows)) / 2.0
    fused, signs = Differences(rows).rough, 2.0 * codes.float() - 1.0
    assert isinstance(fused.passes, FusedPasses), fused.engine
    print(f"\n{n:,} rows of {d} columns; read once: {1e3 * read_once:.2f} ms")
    point, used = factor @ factor.T, torch.from_numpy(factor).float().to(CARD)
    plain = seconds(lambda: eager(rows, signs, used, threshold))
    print(f"  eager torch {1e3 * plain:6.2f} ms, {plain / read_once:5.2f} x read once")
    times = pass_times(fused.passes.rows, codes, point, threshold)
    for name, taken in times.items():
        print(
            f"  {name:11s} {1e3 * taken:6.2f} ms, {taken / read_once:5.2f} x read once, "
            f"{plain / taken:4.1f} x faster than eager torch"
        )
    precise, at = problem_of(fused.rough, codes), np.array([threshold])
    alone = seconds(lambda: precise.at(point, at))
    print(f"  a precise pass with its sums on the host: {1e3 * alone:.2f} ms, {alone / read_once:.2f} x read once")
    inner = threshold * np.array([0.2, 0.6, 1.0, 1.5])
    levels = torch.randint(5, (n,), device=CARD).to(torch.int8)
    ends = np.array([[-np.inf, *inner], [*inner, np.inf]])
    print_beside("five levels", pass_times(fused.passes.rows, levels, point, 0.0, ends), times)
    legs = Differences(torch.randn(n, 3, d, device=CARD)).rough
    assert isinstance(legs.passes, FusedPasses), legs.engine
    print_beside("triplets", pass_times(legs.passes.rows, codes, point, 0.0), times)


def pass_times(
    rows: Any, codes: torch.Tensor, point: np.ndarray, threshold: float, ends: np.ndarray | None = None
) -> dict[str, float]:
    """The time of a pass at each level, of ten in a row."""

    def run(level: int) -> None:
        for _ in range(10):
            Pass(rows, codes, None, point, threshold, KINDS["logistic"], 1.0, level, ends).start()

    return {name: seconds(partial(run, level)) / 10.0 for name, level in LEVELS.items()}


def print_beside(what: str, times: dict[str, float], plain: dict[str, float]) -> None:
    found = ", ".join(f"{name} {1e3 * times[name]:.2f} ms ({times[name] / plain[name]:.2f} x)" for name in times)
    print(f"  as many {what}, beside close/far: {found}")


def bench_products(n: int, d: int, k: int) -> None:
    """What passes over more columns than kernels have are made of: torch's products in single precision."""
    rows, codes, factor, threshold = make_rows(n, d, 30)
    other = torch.empty_like(rows)
    read_once = seconds(lambda: other.copy_(rows)) / 2.0
    plain, rough = Differences(rows), Differences(rows).rough
    some, weights = factor[:, :k], rough.row_array(np.full(n, 1.0 / n))
    projections = rough.forward(some)
    problem, at = problem_of(rough, codes), np.array([threshold])
    times = {
        f"projections on {k} columns": seconds(lambda: rough.forward(some)),
        "their derivative": seconds(lambda: rough.backward(projections, weights)),
        "a pass over M": seconds(lambda: problem.at(factor @ factor.T, at)),
        "exact forms": seconds(lambda: plain.forms(factor @ factor.T)),
    }
    print(f"\n{n:,} rows of {d} columns by torch's own products; read once: {1e3 * read_once:.2f} ms")
    for name, taken in times.items():
        print(f"  {name:26s} {1e3 * taken:7.2f} ms, {taken / read_once:5.1f} x read once")


def exact(rows: torch.Tensor, codes: torch.Tensor, matrix: np.ndarray, threshold: float, noise: Any) -> float:
    """The loss in double precision."""
    total, point = 0.0, torch.from_numpy(matrix).to(CARD)
    for start in range(0, len(rows), 1 << 20):
        part = rows[start : start + (1 << 20)].double()
        signs = 2.0 * codes[start : start + (1 << 20)].double() - 1.0
        margin = signs * (((part @ point) * part).sum(1) - threshold)
        total += float(noise.derivatives(margin, 0)[0].sum())
    return total / len(rows)


def bench_errors(n: int, d: int) -> None:
    rows, codes, factor, threshold = make_rows(n, d, d)
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
        fused = Differences(data).rough.rough
        at = threshold * float((data[:1000] ** 2).mean()) if kind == "two values" else threshold
        errors = []
        for name, noise in NOISES.items():
            loss = exact(data, codes, matrix, at, noise)
            found = problem_of(fused, codes, name).at(matrix, np.array([at])).value
            errors.append(f"{name} {abs(found - loss) / loss:.0e}")
        print(f"  {kind:18s} {', '.join(errors)}")


def bench_index(n_points: int, n: int, d: int) -> None:
    generator = torch.Generator(device=CARD).manual_seed(0)
    points = torch.randn(n_points, d, device=CARD, generator=generator)
    index = torch.randint(n_points, (n, 2), device=CARD, generator=generator, dtype=torch.int32)
    factor = 0.05 * torch.randn(d, d, device=CARD, generator=generator)
    codes = (torch.rand(n, device=CARD, generator=generator) > 0.5).to(torch.int8)
    threshold = float(2.0 * (factor * factor).sum())

    def gathered() -> None:
        for start in range(0, n, 10_000_000):
            ends = index[start : start + 10_000_000].long()
            rows = points[ends[:, 0]] - points[ends[:, 1]]
            eager(rows, 2.0 * codes[start : start + 10_000_000].float() - 1.0, factor, threshold)

    problem, at = problem_of(rows_of(cf.Tuples(points, index)).rough, codes), np.array([threshold])
    matrix = (factor @ factor.T).double().cpu().numpy()
    plain = seconds(gathered, repeats=3, warm=1)
    taken = seconds(lambda: problem.at(matrix, at))
    print(
        f"\n{n:,} pairs of {n_points:,} points by index, {d} columns: {1e3 * taken:.1f} ms, "
        f"{plain / taken:.1f} x faster than an eager gather ({1e3 * plain:.0f} ms)"
    )


def bench_fit(n: int, d: int, **settings: Any) -> None:
    rows, labels, *_ = make_rows(n, d, 30)
    torch.cuda.synchronize()
    fits = []
    with_these = "".join(f", {name}={value}" for name, value in settings.items())
    print(f"\nFits to {n:,} rows of {d} columns that are on the card{with_these}; the first one compiles the kernels")
    for _ in range(3):
        start = time.perf_counter()
        fits.append(cf.LinearMetricLearner(**PAPER | settings).fit(rows, labels))
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
    bench_fit(given.fit_pairs, given.features, rank=16)
    bench_fit(given.fit_pairs // 25, 384, alpha=0.01, prior="zero", tol=1e-4)
    for width in (384, 768):
        bench_products(given.fit_pairs // 50, width, 32)
    bench_agreement(200_000, 20)


if __name__ == "__main__":
    main()
