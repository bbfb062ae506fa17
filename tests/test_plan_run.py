"""Planned runs: sizes, passes, memory and network of fits that do not exist yet; times with fixed rates."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import fields, replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info
from typer.testing import CliRunner

import closefar as cf
from closefar.cli.app import app
from closefar.cost import H200, Network, Rates, RunSize, cards, measure_rates, parse_bytes, parse_count, plan
from closefar.cost.memory import working_bytes
from closefar.cost.network import measure_network
from closefar.cost.passes import expected_work
from closefar.cost.text import as_bytes, as_count, as_time
from closefar.noise import get_noise
from closefar.rows import rows_of, unit_free
from closefar.solve import CloseFar, Objective, Passes, choose_solver
from paper_estimator import PAPER

RATES = Rates(
    prepare=5e-7,
    precise=4e-7,
    rough=2e-7,
    narrow=1e-7,
    likelihood=1e-8,
    hessian=1e-6,
    point=1e-7,
    eigen=3e-4,
    products=4e10,
    bandwidth=2e10,
    n_threads=1,
)
NETWORK = Network(latency=5e-3, task=1e-4, bandwidth=1e9, how="fixed")


def planned(*args, **kwargs):
    return cf.plan_run(*args, rates=RATES, network=NETWORK, memory="1000TB", **kwargs)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e10", 10**10), ("10_000_000", 10**7), ("10M", 10**7), ("2.5k", 2500), ("1,000", 1000), (3, 3), (1e4, 10_000)],
)
def test_counts_are_written_in_several_ways(text, number):
    assert parse_count(text, "n_pairs") == number


@pytest.mark.parametrize("text", ["", "0", "-5", "1.5", "ten", "10X", "1e400", "nan", "1e30", True, float("inf")])
def test_nonsense_counts_are_refused(text):
    with pytest.raises(ValueError, match="n_pairs must be a whole number from 1 to"):
        parse_count(text, "n_pairs")


def test_bytes_have_units():
    assert [parse_bytes(text, "memory") for text in ("64GB", "1 GiB", "8e9", 5)] == [64 * 10**9, 1 << 30, 8 * 10**9, 5]
    with pytest.raises(ValueError, match="memory must be a number of bytes, such as 64GB"):
        parse_bytes("64 horses", "memory")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rank": 11}, "rank must be a whole number from 1 to the 10 features; got 11"),
        ({"n_points": 1}, "n_points must be at least 2"),
        ({"dtype": "int8"}, 'dtype must be "float64" or "float32"'),
        ({"n_workers": 0}, "n_workers must be a whole number from 1"),
    ],
)
def test_impossible_runs_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        planned(1000, 10, **changes)


@pytest.mark.parametrize("options", [{}, {"n_workers": 8}, {"gpu": True, "card": H200}, {"n_points": 100}])
def test_more_of_anything_costs_more(options):
    """Within one solver; another one may be cheaper."""
    for small, large in (((10**8, 50), (10**9, 50)), ((10**9, 40), (10**9, 80))):
        less, more = planned(*small, **options), planned(*large, **options)
        assert less.passes.solver == more.passes.solver
        assert less.seconds < more.seconds
        assert less.memory.data < more.memory.data
        assert less.memory.process <= more.memory.process


def test_workers_share_the_passes_and_add_traffic():
    plans = [planned(10**9, 50, n_workers=n) for n in (1, 4, 16, 64)]
    computing = [each.seconds - each.parts["network and scheduler"] for each in plans]
    assert computing == sorted(computing, reverse=True)
    traffic = [each.traffic.bytes_per_pass for each in plans]
    assert traffic == sorted(traffic)
    assert plans[-1].memory.worker < plans[0].memory.worker
    # M to each worker, and a gradient of the same size from each partition.
    few = planned(10**6, 50, n_workers=2, n_partitions=16).traffic
    assert few.bytes_per_pass == 8 * 50**2 * (2 + 16)


def test_a_slow_network_is_the_bottleneck():
    slow = cf.plan_run(10**7, 50, n_workers=64, rates=RATES, network=replace(NETWORK, latency=100.0), memory="1TB")
    assert slow.bottleneck == "network and scheduler"
    assert any("fewer workers" in each for each in slow.advice)


def test_data_beyond_memory_are_read_in_each_pass():
    large = cf.plan_run(10**9, 100, rates=RATES, memory="64GB")
    assert large.parts["reading from disk"] > 0
    assert any("do not fit into the 64 GB of this machine" in each for each in large.advice)
    assert "reading from disk" not in planned(10**9, 100).parts


def test_pairs_by_index_take_16_bytes_and_the_time_of_points():
    by_index = planned(10**9, 100, n_points=10**6)
    assert by_index.size.data_bytes == 16 * 10**9 + 8 * 10**8
    assert by_index.bottleneck == "gathering projections of points"
    assert any("by index" in each for each in planned(10**9, 100).advice)
    assert not any("by index" in each for each in by_index.advice)


def test_a_sample_is_advised_where_pairs_are_too_many():
    assert any("A random sample of 1,275,000 pairs is probably enough" in each for each in planned(10**8, 50).advice)
    assert any("pairs per parameter" in each for each in planned(10_000, 100).advice)
    assert planned(10**6, 50).advice[0].startswith("If pairs share points")


@pytest.mark.parametrize(
    ("n", "d", "rank"), [(3000, 5, None), (40_000, 24, None), (4000, 24, None), (60_000, 40, 5), (300, 200, None)]
)
def test_the_solver_is_the_one_that_a_fit_chooses(n, d, rank):
    rows, _ = unit_free(rows_of(np.random.default_rng(0).standard_normal((n, d))), np.full(n, 1.0 / n))
    objective = Objective(rows, CloseFar(get_noise("logistic"), np.ones(n), np.ones(n)), Passes())
    assert expected_work(RunSize(n, d, rank)).solver == choose_solver(objective, is_limited=rank is not None)


@pytest.mark.parametrize(("n", "d"), [(100_000, 8), (20_000, 24), (20_000, 40), (180_000, 36)])
def test_passes_are_about_those_counted(n, d):
    rng = np.random.default_rng(d)
    differences = rng.standard_normal((n, d))
    squared = np.square(differences[:, : d // 2]).sum(axis=1)
    labels = np.where(squared + 0.3 * squared.std() * rng.logistic(size=n) > np.median(squared), 1, -1)
    counted = cf.LinearMetricLearner(**PAPER).fit(differences, labels).certificate_.n_passes
    passes = planned(n, d, differences=True).passes
    expected = passes.sample * passes.n_sampled / n + passes.over_all + passes.proof
    assert 1 / 2.5 < expected / counted < 2.5


@pytest.mark.parametrize(("n", "d", "sides"), [(200_000, 10, 1), (100_000, 20, 2), (60_000, 40, 1)])
def test_memory_is_about_what_is_allocated(n, d, sides):
    rng = np.random.default_rng(0)
    data = rng.standard_normal((n, d) if sides == 1 else (n, 2, d))
    squared = np.square(data if sides == 1 else data[:, 0] - data[:, 1])[:, : d // 2].sum(axis=1)
    labels = np.where(squared + 0.3 * squared.std() * rng.logistic(size=n) > np.median(squared), 1, -1)
    learner = cf.LinearMetricLearner(**PAPER)
    tracemalloc.start()
    try:
        learner.fit(data, labels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    size = RunSize(n, d, are_differences=sides == 1)
    assert 0.5 < working_bytes(size, expected_work(size)) / peak < 2.0


@pytest.mark.parametrize("n_points", [None, 50])
def test_rates_are_measured_with_the_threads_of_a_fit(n_points):
    before = threadpool_info()
    rates = measure_rates(RunSize(5000, 12, n_points=n_points))
    assert rates.n_threads == 1
    assert all(getattr(rates, field.name) > 0 for field in fields(rates) if field.name != "point")
    assert (rates.point > 0) == (n_points is not None)
    assert threadpool_info() == before


def test_one_column_is_planned():
    assert cf.plan_run(1000, 1).seconds > 0.0


def test_a_round_trip_is_measured_on_the_current_client():
    distributed = pytest.importorskip("distributed", reason="needs distributed")
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"):
        network = measure_network()
    assert network.how == "measured on the current Dask client"
    assert network.latency > 0
    assert network.bandwidth > 0


def test_without_a_card_documented_figures_are_used_and_named(monkeypatch):
    monkeypatch.setattr(plan, "measure_card", lambda size: None)
    found = planned(10_000_000, 100, gpu=True, differences=True)
    assert found.engine == "NVIDIA H200"
    assert "not measured" in found.assumptions[0]
    assert any("The data fit on the card" in each for each in found.advice)
    assert any("do not fit on a card" in each for each in planned(10**10, 100, gpu=True).advice)
    # A pass in double precision over these rows was measured to take 29 ms.
    seconds = cards.card_seconds(found.size, H200)["double precision on the card"]
    assert seconds == pytest.approx(0.029 * (cards.DOUBLE_PASSES + cards.PREPARING_PASSES))


def test_a_card_that_cannot_hold_the_data_gets_them_in_each_pass():
    once, always = (cards.card_seconds(RunSize(10**6, 10), H200, fits=fits) for fits in (True, False))
    assert "copying to the card" not in once
    copying = cards.copying_seconds(RunSize(10**6, 10), H200)
    assert always["copying to the card"] == pytest.approx(cards.CARD_PASSES * copying)


def test_numbers_are_readable():
    assert [as_time(seconds) for seconds in (0.0042, 5.0, 150.0, 7200.0, 1e7)] == [
        "4.2 ms",
        "5 s",
        "2.5 min",
        "2 h",
        "116 days",
    ]
    assert [as_bytes(number) for number in (2000, 3.5e6, 2.4e11, 1.6e13)] == ["2 kB", "3.5 MB", "240 GB", "16 TB"]
    assert [as_count(number) for number in (1234567, 1e9, 2.5e10)] == ["1,234,567", "1e9", "2.5e10"]


def run(*arguments):
    return CliRunner().invoke(app, ["plan", *arguments])


def test_the_command_line_prints_a_plan():
    result = run("--pairs", "10M", "--features", "100", "--memory", "64GB")
    assert result.exit_code == 0, result.output
    for word in ("10,000,000 pairs x 100 features", "Solver   sampled", "Passes", "Time", "Memory", "Bottleneck"):
        assert word in result.output
    assert "--points" in result.output
    assert "n_points" not in result.output


def test_the_command_line_prints_json():
    result = run("--pairs", "1e10", "--features", "100", "--rank", "16", "--points", "1e5", "--json")
    facts = json.loads(result.output)
    assert facts["size"] == {
        "n_pairs": 10**10,
        "n_features": 100,
        "rank": 16,
        "n_points": 10**5,
        "dtype": "float64",
        "are_differences": False,
        "n_comparisons": 0,
    }
    assert facts["seconds_low"] < facts["seconds"] < facts["seconds_high"]
    assert facts["bottleneck"] in facts["parts"]
    assert facts["memory"]["worker"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pairs", "many", "--features", "10"], "--pairs must be a whole number from 1 to 1e+18"),
        (["--pairs", "10M", "--features", "0"], "--features must be a whole number"),
        (["--pairs", "10M", "--features", "10", "--rank", "12"], "--rank must be a whole number from 1 to the 10"),
        (["--pairs", "10M", "--features", "10", "--memory", "much"], "--memory must be a number of bytes"),
        (["--pairs", "10M", "--features", "10", "--partitions", "4"], "--partitions needs --workers"),
    ],
)
def test_the_command_line_refuses_nonsense(arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output
