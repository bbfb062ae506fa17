"""The comparison with other packages: trials have limits, nothing that a peer does ends the run, tables are right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT / "benchmarks"))

from peers import environments, options, report, results, runner, summary, table  # noqa: E402
from peers.environments import ENVIRONMENTS, Environment, Interpreters  # noqa: E402
from peers.peers import PEERS, Peer  # noqa: E402
from peers.plots import plot  # noqa: E402
from peers.problems import Plan  # noqa: E402
from peers.trial import Limits  # noqa: E402
from peers.worker import Learned, answers_of  # noqa: E402
from peers.works import Data, Measure, Setting  # noqa: E402
from peers.works import pairs as pairs_work  # noqa: E402

# Every system that the comparison promises, as a pattern of names in the register, and the work where it is.
_PROMISED = {
    "pairs": [
        "closefar", "LogisticRegression on products", "LogisticRegression on absolute differences", "Euclidean", "MMC",
        "ITML", "SDML", r"DML-eig \(pyDML\)", r"DML-eig \(ours\)", "gradient descent", r"cvxpy \(Clarabel\)",
        r"cvxpy \(SCS\)", "PyTorch Adam", "PyTorch L-BFGS", r"PyTorch Adam \(GPU\)", r"PyTorch L-BFGS \(GPU\)",
    ],
    "classes": [
        "closefar", "metric-learn NCA", "metric-learn LMNN", "metric-learn LFDA", "metric-learn RCA", "pyDML LDML",
        "pyDML DMLMJ", "pyDML LSI", "pyDML NCA", "pyDML LMNN", "scikit-learn NCA", "scikit-learn LDA", ".*FLRML",
        ".*Jin",
    ],
    "comparisons": ["closefar", "SCML", "LSML", "SOE", "STE", "CKL"],
    "levels": ["closefar", "OrderedModel on products", "Logistic.* on products"],
    "wrong_labels": ["closefar", "cleanlab"],
    "annotators": ["closefar", "DawidSkene"],
}  # fmt: skip

_FAKES = """
import os, sys, time
import numpy as np
from peers.worker import Learned, NotApplicableError

def good(train):
    return Learned(answers={"mean": train["points"].mean(axis=0)}, claim="exact")

def broken(train):
    raise RuntimeError("no solution\\nand more lines")

def slow(train):
    time.sleep(60)

def hungry(train):
    held = []
    while True:
        held.append(np.ones(4_000_000))

def unsuited(train):
    raise NotApplicableError("It needs a GPU.")

def crashing(train):
    print("the last words", file=sys.stderr, flush=True)
    os._exit(3)

def garbage(train):
    return Learned(answers={"mean": np.array(["what", "is"])})

def nothing(train):
    return None

PEERS = {f.__name__: f for f in (good, broken, slow, hungry, unsuited, crashing, garbage, nothing)}
"""


class _Means:
    """A work for tests: the mean of points."""

    TITLE = "Means"
    SETTINGS = (Setting("means", "small"), Setting("means", "large", smaller="small"))
    MEASURES = (Measure("error", "error", False, lambda value: f"{value:.2f}"),)

    @staticmethod
    def make(setting, seed, options):
        if setting.name == "no data":
            raise ValueError("The file of the data is missing.")
        points = np.random.default_rng(seed).normal(size=(50, 2))
        return Data({"points": points}, {}, {"mean": points.mean(axis=0)})

    @staticmethod
    def figures(data, answers):
        return {"error": float(np.abs(answers["mean"] - data.truth["mean"]).max())}


@pytest.fixture
def adapter(tmp_path):
    path = tmp_path / "fakes.py"
    path.write_text(_FAKES)
    return path


def _peer(adapter: Path, name: str, **more: str) -> Peer:
    return Peer(name, ("means",), more.pop("environment", "closefar"), str(adapter), **more)


_AMPLE = Limits(60.0, 4.0)


def _run(path: Path, plans: list[Plan], limits: Limits = _AMPLE, jobs: int = 1) -> list[dict]:
    runner.Runner(results.Results(path), Interpreters(), limits, jobs=jobs).run(plans)
    return json.loads(path.read_text())["records"]


def _plan(peer: Peer, setting: Setting = _Means.SETTINGS[0], seed: int = 0) -> Plan:
    return Plan(_Means, setting, seed, peer)


def test_whatever_a_peer_does_is_a_record(adapter, tmp_path):
    missing = tmp_path / "missing.py"
    missing.write_text("import no_such_package\n")
    names = ["good", "broken", "unsuited", "crashing", "garbage", "nothing"]
    plans = [_plan(_peer(adapter, name)) for name in names] + [_plan(_peer(missing, "missing"))]
    records = {record["peer"]: record for record in _run(tmp_path / "results.json", plans, jobs=2)}
    assert records["good"]["status"] == "ok"
    assert records["good"]["figures"] == {"error": 0.0}
    assert records["good"]["claim"] == "exact"
    assert records["good"]["cpu"] >= 0
    assert records["good"]["memory"] >= 0
    said = {name: (record["status"], record["reason"]) for name, record in records.items() if name != "good"}
    assert said["broken"] == ("failed", "RuntimeError: no solution")
    assert said["unsuited"] == ("not applicable", "It needs a GPU.")
    assert said["crashing"] == ("failed", "Its process ended with exit code 3: the last words")
    assert said["missing"] == ("not installed", "The package no_such_package is not installed.")
    assert said["garbage"][0] == said["nothing"][0] == "failed"


@pytest.mark.parametrize(
    ("name", "limits", "status", "reason"),
    [
        ("slow", Limits(2.0, 4.0), "out of time", "It was not done after 2 s."),
        ("hungry", Limits(60.0, 0.3), "out of memory", "It needed more than 0.3 GiB."),
    ],
)
def test_a_limit_ends_a_trial_and_spares_the_others(name, limits, status, reason, adapter, tmp_path):
    plans = [_plan(_peer(adapter, name), setting, seed) for seed in (0, 1) for setting in _Means.SETTINGS]
    records = _run(tmp_path / "results.json", plans, limits)
    assert {record["status"] for record in records} == {status}
    elsewhere = f"It ran {status} at the smaller setting 'small'."
    assert [record["reason"] for record in records] == [reason, elsewhere, *[f"It ran {status} with another seed."] * 2]


def test_a_second_call_goes_on_where_the_first_stopped(adapter, tmp_path, capsys):
    path = tmp_path / "results.json"
    first = _run(path, [_plan(_peer(adapter, "good"))])
    again = _run(path, [_plan(_peer(adapter, "good"), seed=seed) for seed in (0, 1)])
    assert again[0] == first[0]
    assert [record["seed"] for record in again] == [0, 1]
    assert "1 kept" in capsys.readouterr().out
    adapter.write_text(_FAKES + "\n# changed\n")
    changed = _run(path, [_plan(_peer(adapter, "good"))])
    assert changed[0]["fingerprint"] != first[0]["fingerprint"]
    assert len(changed) == 2


def test_a_limit_that_is_raised_is_tried_again(tmp_path):
    kept = results.Results(tmp_path / "results.json")
    record = {"work": "w", "setting": "s", "seed": 0, "peer": "p", "data": "d", "fingerprint": "f"}
    limits = {"time_limit": 10.0, "memory_limit": 1.0}
    kept.add({**record, **limits, "status": "out of time", "reason": "", "trial_seconds": 10.0})
    assert kept.has({**record, **limits})
    assert kept.has({**record, **limits, "memory_limit": 2.0})
    assert not kept.has({**record, **limits, "time_limit": 20.0})
    assert not kept.has({**record, **limits, "data": "other"})
    assert kept.limit_met({**record, **limits, "seed": 1}) == "out of time"
    assert kept.limit_met({**record, **limits, "time_limit": 20.0}) is None
    kept.add({**record, **limits, "status": "not installed", "reason": "", "trial_seconds": 0.0})
    assert not kept.has({**record, **limits})


def test_records_of_another_machine_are_not_mixed(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    kept = results.Results(path)
    kept.add({"work": "w", "setting": "s", "seed": 0, "peer": "p", "status": "ok"})
    assert len(results.Results(path).records()) == 1
    monkeypatch.setattr(results, "machine", lambda: {"id": "another"})
    assert results.Results(path).records() == []
    path.write_text("[1, 2")
    with pytest.raises(ValueError, match="--fresh"):
        results.Results(path)


def test_a_work_without_data_is_a_record(adapter, tmp_path):
    [record] = _run(tmp_path / "results.json", [_plan(_peer(adapter, "good"), Setting("means", "no data"))])
    assert (record["status"], record["reason"]) == ("not applicable", "The file of the data is missing.")


def test_an_interrupt_ends_trials_and_keeps_records(adapter, tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    outcomes = []

    def wait(running, return_when):
        if path.exists():  # the first is recorded, and the second is on its way
            raise KeyboardInterrupt
        return true_wait(running, return_when=return_when)

    def run_trial(*arguments):
        outcomes.append(true_trial(*arguments))
        return outcomes[-1]

    true_wait, true_trial = runner.wait, runner.run_trial
    monkeypatch.setattr(runner, "wait", wait)
    monkeypatch.setattr(runner, "run_trial", run_trial)
    with pytest.raises(KeyboardInterrupt):
        _run(path, [_plan(_peer(adapter, "good")), _plan(_peer(adapter, "slow"))])
    assert [outcome["status"] for outcome, _ in outcomes] == ["ok", "stopped"]
    assert [record["peer"] for record in json.loads(path.read_text())["records"]] == ["good"]


def test_a_failing_installation_is_the_reason_in_the_row(adapter, tmp_path, monkeypatch):
    def fail(command, stdout, **_):
        stdout.write("Collecting x\nERROR: No matching distribution found for x\n")
        stdout.flush()
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setitem(ENVIRONMENTS, "fake", Environment("fake", ("x",)))
    monkeypatch.setattr(environments.venv, "create", lambda *_, **__: None)
    monkeypatch.setattr(environments.subprocess, "run", fail)
    kept = results.Results(tmp_path / "results.json")
    interpreters = Interpreters(folder=tmp_path / "environments")
    plans = [_plan(_peer(adapter, "good", environment="fake"), seed=seed) for seed in (0, 1)]
    runner.Runner(kept, interpreters, Limits()).run(plans)
    assert [record["status"] for record in kept.records()] == ["not installed"] * 2
    reason = "pip can't install fake: ERROR: No matching distribution found for x"
    assert {record["reason"] for record in kept.records()} == {reason}


def test_answers_follow_from_the_metric():
    metric = np.diag([4.0, 0.0])
    pairs = np.array([[[0.0, 0.0], [1.0, 5.0]], [[1.0, 1.0], [1.0, 0.0]]])
    given = dict(answers_of(Learned(metric=metric, threshold=2.0), {"pairs": pairs}, {"points": pairs[:, 0]}))
    assert given["train_pairs.farness"].tolist() == [4.0, 0.0]
    assert given["threshold"] == 2.0
    distances = np.square(given["points.transformed"][0] - given["points.transformed"][1]).sum()
    assert distances == pytest.approx(4.0)
    by_points = Learned(transform=lambda points: 2.0 * points[:, :1])
    assert dict(answers_of(by_points, {}, {"pairs": pairs}))["pairs.farness"].tolist() == [4.0, 0.0]


def test_the_best_threshold_is_that_of_a_full_search():
    rng = np.random.default_rng(3)
    for n in (1, 2, 7, 30):
        farness = rng.integers(0, 6, size=n).astype(float)
        labels = rng.choice([-1, 1], size=n)
        found = np.mean(np.where(farness >= pairs_work.best_threshold(farness, labels), 1, -1) == labels)
        best = max(np.mean(np.where(farness >= t, 1, -1) == labels) for t in [*farness, np.inf])
        assert found == best


def test_figures_of_the_truth_are_perfect():
    setting = next(each for each in pairs_work.SETTINGS if each.name == "no noise, d=10")
    small = Setting("pairs", setting.name, {**setting.parameters, "n_pairs": 200})
    data = pairs_work.make(small, 0, {})
    truth = Learned(metric=3.0 * data.truth["metric"], threshold=3.0)
    found = pairs_work.figures(data, dict(answers_of(truth, data.train, data.asked)))
    assert found["true_accuracy"] == found["noisy_accuracy"] == 1.0
    assert found["spectral_error"] < 1e-12
    assert "log_loss" not in found
    without_threshold = Learned(metric=data.truth["metric"], threshold=0.0)
    lost = pairs_work.figures(data, dict(answers_of(without_threshold, data.train, data.asked)))
    assert lost["spectral_error"] == np.inf


def _records(values: dict[str, list[float]]) -> list[dict]:
    base = {"work": "means", "setting": "small", "status": "ok", "reason": "", "note": "", "claim": "", "versions": ""}
    return [
        {**base, "peer": peer, "seed": seed, "figures": {"error": value}, "cpu": 0.5, "memory": 3.0}
        for peer, each in values.items()
        for seed, value in enumerate(each)
    ]


@pytest.fixture
def register(monkeypatch):
    names = ("closefar", "rival", "equal", "absent")
    peers = [Peer(name, ("means",), "closefar", "x.py", flaws="It is a fake." * (name == "rival")) for name in names]
    for module in (summary, sys.modules["peers.plots"]):
        monkeypatch.setattr(module, "peers_of", lambda work: peers)


@pytest.mark.usefixtures("register")
def test_a_table_has_means_marks_and_reasons():
    records = _records({"closefar": [2.0, 3.0], "rival": [1.0, 1.9], "equal": [1.0, 4.1]})
    failed = {"status": "failed", "reason": "It | broke.", "figures": {}, "peer": "absent", "seed": 0}
    text = table.tables({"means": _Means}, [*records, {**records[0], **failed}], {"cpu": "a CPU", "system": "Linux"})
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    assert "| 2.50 ± 0.50 | 0.5 | 3 |" in rows["closefar"]
    assert "| **1.45 ± 0.45** ▲ | 0.5 (1x) |" in rows["rival [1]"]
    assert "▲" not in rows["equal"]
    assert "—" in rows["absent [2]"]
    assert "[1] It is a fake." in text
    assert r"[2] failed: It \| broke." in text
    assert "| small | error | 2.50 ± 0.50 | 1.45 ± 0.45 (rival) | **behind** |" in text
    assert "a CPU (Linux)" in text


@pytest.mark.usefixtures("register")
@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ([1.0, 1.0], [1.0, 2.0], summary.Verdict.FIRST),
        ([2.0, 3.0], [1.0, 3.9], summary.Verdict.WITHIN),
        ([2.0, 3.0], [1.0, 2.1], summary.Verdict.BEHIND),
        ([2.0], [1.0], summary.Verdict.BEHIND),
        ([2.0], [], summary.Verdict.ALONE),
        ([], [1.0], summary.Verdict.ABSENT),
    ],
)
def test_verdicts_compare_seed_by_seed(ours, theirs, verdict):
    [found] = summary.standings(
        SimpleNamespace(SETTINGS=_Means.SETTINGS[:1], MEASURES=_Means.MEASURES),
        _records({"closefar": ours, "rival": theirs}),
    )
    assert found.verdict is verdict


@pytest.mark.usefixtures("register")
def test_plots_have_no_background():
    drawn = plot("means", _Means, _records({"closefar": [2.0, 3.0], "rival": [1.0, 1.9]}))
    assert drawn is not None
    assert b"<svg" in drawn
    assert b"fill: #ffffff" not in drawn
    assert plot("means", _Means, []) is None


def test_rows_without_figures_are_filled_from_another_machine(tmp_path):
    here, there = _records({"closefar": [2.0], "rival": [1.0]}), _records({"closefar": [9.0], "rival": [3.0]})
    here[1] = {**here[1], "status": "not applicable", "reason": "It needs a GPU."}
    for name, records in (("results.json", here), ("results-gpu.json", there)):
        content = {"machine": {"cpu": name, "system": "Linux"}, "records": records}
        (tmp_path / name).write_text(json.dumps(content))
    found, machine = report.with_other_machines(tmp_path / "results.json")
    assert machine["cpu"] == "results.json"
    assert [record["figures"]["error"] for record in found] == [2.0, 3.0]
    assert found[1]["note"] == "measured on another machine (results-gpu.json)"


def test_the_page_keeps_what_is_around_the_tables(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    assert table.insert(page, "new") == f"before\n{table.BEGIN}\n\nnew\n\n{table.END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match=r"page\.md"):
        table.insert(page, "new")


@pytest.mark.skipif(not (_ROOT / "benchmarks" / "results.json").exists(), reason="needs results of a run")
def test_the_page_has_the_tables_of_the_results():
    """Rewrite it with `python benchmarks/peers --report --docs`."""
    found = report.docs_page(_ROOT / "benchmarks" / "results.json")
    assert found == report.PAGE.read_text(encoding="utf-8")
    assert all((report.PAGE.parent / name).exists() for name in re.findall(r"\]\((images/.*?)\)", found))


@pytest.mark.parametrize(("work", "pattern"), [(work, name) for work, names in _PROMISED.items() for name in names])
def test_every_promised_system_is_in_the_register(work, pattern):
    assert [peer for peer in PEERS if work in peer.works and re.match(pattern, peer.name)]


def test_the_register_is_sound():
    keys = [(work, peer.name) for peer in PEERS for work in peer.works]
    assert len(keys) == len(set(keys))
    assert {peer.environment for peer in PEERS} <= set(ENVIRONMENTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--work", "pears"], "--work must be among pairs"),
        (["--peers", "nobody"], "--peers must be among closefar"),
        (["--seeds", "0"], "--seeds must be at least 1; got 0."),
        (["--seeds", "few"], "invalid int value: 'few'."),
        (["--time-limit", "nan"], "--time-limit must be above 0 and finite; got nan."),
        (["--combustion", "no/such/file"], "--combustion must be a folder"),
        (["--out", "no/such/folder"], "--out must be a folder"),
    ],
)
def test_bad_options_are_refused_in_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        options.read_options(arguments)
    said = capsys.readouterr().err
    assert exit_.value.code == 2
    assert message in said
    assert said.count("\n") == 1


def test_names_of_peers_may_have_commas():
    given = "ITML,closefar, annotators pooled,closefar"
    assert options.read_options(["--peers", given]).peers == ["ITML", "closefar, annotators pooled", "closefar"]


def test_the_plan_has_all_seeds_of_a_peer_in_a_row():
    plans = options.plans_of(options.read_options(["--work", "pairs", "--seeds", "2", "--quick", "--first-seed", "7"]))
    assert [plan.seed for plan in plans] == [7, 8] * (len(plans) // 2)
    assert [plan.peer for plan in plans[::2]] == [plan.peer for plan in plans[1::2]]
    assert {plan.seed for plan in plans} == {7, 8}
    assert all(plan.setting.quick for plan in plans)
    assert {plan.peer.name for plan in plans} == {peer.name for peer in PEERS if "pairs" in peer.works}
