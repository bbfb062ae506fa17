"""Long runs survive: a fit goes on from its checkpoint to the same optimum, and ends in time with what it has."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from typer.testing import CliRunner

import closefar as cf
from closefar.cli.app import app
from closefar.fitting import progress
from closefar.rows import blocks, streamed
from closefar.solve import SOLVERS, problem
from closefar.solve.newton import Newton
from closefar.tables import opened as opened_pairs
from paper_estimator import PAPER

WARNED = "ignore::sklearn.exceptions.ConvergenceWarning"


def pairs(n, d, seed, **more):
    return cf.datasets.make_pairs(n, d, random_state=seed, **more)[:2]


def flipped(n, d, seed):
    data, labels = pairs(n, d, seed)
    return data, np.where(np.random.default_rng(seed).random(n) < 0.1, -labels, labels)


def separable(n, d, seed):
    z = np.random.default_rng(seed).standard_normal((n, d))
    return z, np.where(np.sum(z[:, :2] ** 2, axis=1) > 2.0, 1, -1)


def points(n, d, seed):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, d)) + 1.0
    return z, np.where(np.sum(z**2, axis=1) + rng.logistic(size=n) > 4.0, 1, -1)


CHOSEN = {"alpha": "auto", "prior": "auto", "flip_rate": "auto"}
KINDS = {
    "newton": ({}, pairs(400, 4, 0)),
    "gradient steps": ({"solver": "sampled", "alpha": 0.01, "tol": 1e-8}, pairs(600, 8, 2)),  # no sample suffices
    "factors": ({"solver": "lowrank"}, pairs(600, 5, 3)),
    "low rank": ({"alpha": 0.02}, pairs(800, 40, 4)),
    "sampled": ({"solver": "sampled"}, pairs(8000, 8, 6)),
    "two stages": ({"rank": 2}, pairs(800, 6, 7)),
    "flips": ({"flip_rate": "estimate"}, flipped(1500, 4, 8)),
    "known flips": ({"flip_rate": 0.05, "rank": 3}, flipped(800, 6, 8)),
    "every noise": ({"noise": "auto"}, pairs(500, 3, 9)),
    "rank by cross-validation": ({"rank": "auto"}, pairs(300, 2, 10)),
    "the default": (CHOSEN, flipped(600, 8, 12)),
    "separable": ({}, separable(60, 6, 13)),
    "origin": ({"fit_origin": True}, points(600, 3, 15)),
    "centre": ({"alpha": 0.01, "prior": "standardized"}, pairs(500, 5, 16)),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def learner_of(kind, **more):
    return cf.LinearMetricLearner(**PAPER | KINDS[kind][0] | more)


def fitted(kind, **more):
    return learner_of(kind).fit(*KINDS[kind][1], **more)


@pytest.fixture
def always(monkeypatch):
    """Write after every step, however little time has passed."""
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    monkeypatch.setattr(progress, "_SHARE_OF_TIME", np.inf)
    monkeypatch.setattr("closefar.files.os.fsync", lambda number: None)  # no power fails here


def same_optimum(kind, one, other):
    """Whether two fits are of the same optimum, to within the gaps that they have proven."""
    first, second = one.certificate_, other.certificate_
    assert second.outcome is first.outcome
    if other.flip_rate_ == 0.0:
        assert second.objective == pytest.approx(first.objective, abs=2e-6)
    else:  # the proof is of the last step, at its probabilities of being flipped
        assert second.loss == pytest.approx(first.loss, abs=2e-5)
    assert other.flip_rate_ == pytest.approx(one.flip_rate_, abs=1e-4)
    assert second.converged is first.converged
    data = KINDS[kind][1][0]
    np.testing.assert_allclose(other.predict_proba(data), one.predict_proba(data), rtol=0, atol=2e-3)


def copying(path, folder, monkeypatch):
    """Keep a copy of the checkpoint as it is after each write."""
    copies, write = [], progress.replace_file

    def copy(to, content):
        write(to, content)
        copies.append(folder / str(len(copies)))
        shutil.copy(path, copies[-1])

    monkeypatch.setattr(progress, "replace_file", copy)
    return copies


# The same optimum


@kinds
@pytest.mark.filterwarnings(WARNED)
def test_a_fit_goes_on_from_any_write_to_the_same_optimum(kind, tmp_path, monkeypatch, always):
    plain, path = fitted(kind), tmp_path / "fit.checkpoint"
    with monkeypatch.context() as patch:
        copies = copying(path, tmp_path, patch)
        kept = fitted(kind, checkpoint=path)
    # Keeping states changes nothing.
    np.testing.assert_array_equal(kept.metric_.matrix, plain.metric_.matrix)
    assert len(copies) > 4
    for copy in (copies[0], copies[len(copies) // 2], copies[-1]):
        again = fitted(kind, checkpoint=copy)
        same_optimum(kind, plain, again)
        assert str(again.fit_.choice) == str(plain.fit_.choice)
    if kind != "two stages":  # whose convex stage is proven again
        assert again.certificate_.n_passes < plain.certificate_.n_passes  # from the last write


def test_comparisons_and_annotators_go_on_too(tmp_path, monkeypatch, always):
    data, labels = pairs(300, 3, 0)
    triplets = np.random.default_rng(1).normal(size=(200, 3, 3))
    far, near = (np.sum((triplets[:, 0] - triplets[:, k]) ** 2, axis=1) for k in (2, 1))
    answers = np.where(far - near + np.random.default_rng(2).logistic(size=200) > 0.0, 1, -1)
    given = {"annotators": np.arange(300) % 3, "comparisons": (triplets, answers), "comparison_noise": "estimate"}
    plain = cf.LinearMetricLearner(**PAPER).fit(data, labels, **given)
    copies = copying(tmp_path / "c", tmp_path, monkeypatch)
    cf.LinearMetricLearner(**PAPER).fit(data, labels, checkpoint=tmp_path / "c", **given)
    for copy in (copies[len(copies) // 2], copies[-1]):
        again = cf.LinearMetricLearner(**PAPER).fit(data, labels, checkpoint=copy, **given)
        assert again.certificate_.converged
        assert again.certificate_.loss == pytest.approx(plain.certificate_.loss, abs=1e-5)
        assert again.comparison_noise_.value == pytest.approx(plain.comparison_noise_.value, rel=1e-3)
        np.testing.assert_allclose(again.annotators_.strictness, plain.annotators_.strictness, atol=1e-2)


def test_the_same_settings_are_chosen_when_it_continues(tmp_path):
    first = fitted("the default", checkpoint=tmp_path / "c")
    again = fitted("the default", checkpoint=tmp_path / "c")
    assert again.choice_ == first.choice_
    assert again.baseline_.summary() == first.baseline_.summary()


@pytest.mark.parametrize("kind", ["newton", "gradient steps", "centre"])
def test_a_finished_fit_is_the_same_one_and_takes_no_steps(kind, tmp_path, monkeypatch):
    first = fitted(kind, checkpoint=tmp_path / "c")
    with monkeypatch.context() as patch:
        for solver in SOLVERS.values():
            patch.setattr(solver, "start", None)
            patch.setattr(solver, "step", None)
        again = fitted(kind, checkpoint=tmp_path / "c")
    np.testing.assert_allclose(again.metric_.matrix, first.metric_.matrix, rtol=0, atol=1e-12)
    assert again.certificate_.gap <= again.tol
    assert again.certificate_.lower_bound > 0.0


def test_a_gap_that_is_not_proven_here_is_not_believed(tmp_path, monkeypatch, always):
    copies = copying(tmp_path / "c", tmp_path, monkeypatch)
    plain = fitted("newton", checkpoint=tmp_path / "c")
    state = progress.Checkpoint.state
    monkeypatch.setattr(progress.Checkpoint, "state", lambda *given: replace(state(*given), objective=0.0))
    same_optimum("newton", plain, fitted("newton", checkpoint=copies[1]))


def test_short_fits_write_once(tmp_path, monkeypatch):
    copies = copying(tmp_path / "c", tmp_path, monkeypatch)
    monkeypatch.setattr(progress, "INTERVAL", 100.0)
    fitted("newton", checkpoint=tmp_path / "c")
    assert len(copies) == 1
    assert (tmp_path / "c").stat().st_size < 10_000
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_file_stays_small_with_many_pairs(tmp_path, always):
    fitted("sampled", checkpoint=tmp_path / "c")
    assert (tmp_path / "c").stat().st_size < 10_000


_PROGRAM = """
import sys, warnings
import closefar as cf
from closefar.fitting import progress
progress.INTERVAL, progress._SHARE_OF_TIME = 0.0, 1e9
warnings.simplefilter("ignore")
data, labels, *_ = cf.datasets.make_pairs(3000, 30, random_state=1)
write = progress.replace_file
def tell(path, content):
    write(path, content)
    print("written", flush=True)
progress.replace_file = tell
learner = cf.LinearMetricLearner(alpha=0.005, prior="zero", flip_rate=0.0, solver="sampled")
learner.fit(data, labels, checkpoint=sys.argv[1])
"""


def test_a_killed_process_continues(tmp_path):
    path = tmp_path / "c"
    with subprocess.Popen([sys.executable, "-c", _PROGRAM, str(path)], stdout=subprocess.PIPE) as process:
        for _ in range(8):
            assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    data, labels = pairs(3000, 30, 1)
    learner = cf.LinearMetricLearner(alpha=0.005, prior="zero", solver="sampled", flip_rate=0.0)
    plain = learner.fit(data, labels).certificate_
    later = learner.fit(data, labels, checkpoint=path).certificate_
    assert later.objective == pytest.approx(plain.objective, abs=2e-6)
    assert later.n_passes < plain.n_passes


@pytest.mark.filterwarnings(WARNED)
@pytest.mark.parametrize("kind", ["newton", "two stages", "flips"])
def test_an_interrupted_fit_continues(kind, tmp_path, monkeypatch):
    calls, show = [], progress.ShownSteps.__call__

    def interrupting(self, iteration, state):
        calls.append(iteration)
        if len(calls) == 3:
            raise KeyboardInterrupt
        show(self, iteration, state)

    with monkeypatch.context() as patch:
        patch.setattr(progress.ShownSteps, "__call__", interrupting)
        early = fitted(kind, checkpoint=tmp_path / "c")
    assert early.certificate_.outcome == "interrupted"
    same_optimum(kind, fitted(kind), fitted(kind, checkpoint=tmp_path / "c"))


@pytest.mark.filterwarnings(WARNED)
def test_an_error_keeps_what_was_computed(tmp_path, monkeypatch):
    plain, calls, start = fitted("every noise"), [], Newton.start

    def failing(self):
        calls.append(self)
        if len(calls) == 3:
            raise OSError("the network is down")
        return start(self)

    with monkeypatch.context() as patch:
        patch.setattr(Newton, "start", failing)
        with pytest.raises(OSError, match="network"):
            fitted("every noise", checkpoint=tmp_path / "c")
    calls.clear()
    monkeypatch.setattr(Newton, "start", lambda self: calls.append(self) or start(self))
    later = fitted("every noise", checkpoint=tmp_path / "c")
    assert len(calls) == len(cf.noise.NOISES) - 2  # the others go on
    assert later.noise_comparison_["normal"]["loss"] == pytest.approx(plain.noise_comparison_["normal"]["loss"])


# What is refused


def refusal(path, data, labels, weights=None, *, names=None, **settings):
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises((ValueError, OSError)) as caught:
        cf.LinearMetricLearner(**PAPER | settings).fit(data, labels, weights, feature_names=names, checkpoint=path)
    assert before is None or path.read_bytes() == before  # somebody's file is not overwritten
    return str(caught.value)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    path = tmp_path_factory.mktemp("kept") / "fit.checkpoint"
    data, labels = KINDS["newton"][1]
    cf.LinearMetricLearner(alpha=0.1, prior="zero", flip_rate=0.0).fit(data, labels, checkpoint=path)
    return path, data, labels


@pytest.mark.parametrize(
    ("settings", "difference"),
    [
        ({"alpha": 0.01}, "alpha is 0.01 here and 0.1 in the checkpoint"),
        ({"noise": "normal"}, "noise is 'normal' here and 'logistic' in the checkpoint"),
        ({"rank": 2}, "rank is 2 here and None in the checkpoint"),
        ({"class_weight": {-1: 1, 1: 2}}, "class_weight is {-1: 1, 1: 2} here and None in the checkpoint"),
    ],
)
def test_other_settings_are_refused_by_name(kept, settings, difference):
    path, data, labels = kept
    message = refusal(path, data, labels, **{"alpha": 0.1, **settings})
    assert message.startswith(f"{path} is the checkpoint of another fit: {difference}. ")
    assert "another checkpoint" in message


def test_other_data_are_refused(kept):
    path, data, labels = kept
    same = {"alpha": 0.1}
    assert "the number of pairs is 399 here and 400 in the" in refusal(path, data[1:], labels[1:], **same)
    assert "the number of columns is 3 here and 4 in the" in refusal(path, data[..., :3], labels, **same)
    assert "the list of columns is ('a', 'b', 'c', 'd') here" in refusal(path, data, labels, names=list("abcd"), **same)
    assert "the label for close is 1 here and -1 in the" in refusal(path, data, labels, far_label=-1, **same)
    swapped = np.array(labels)
    first, second = np.flatnonzero(labels == 1)[0], np.flatnonzero(labels == -1)[0]
    swapped[[first, second]] = -1, 1
    changed = np.array(data)
    changed[7] *= 1.001
    weights = np.ones(len(labels))
    weights[3] = 1.01
    for given in ((data, swapped), (changed, labels), (data[::-1], labels[::-1]), (data, labels, weights)):
        assert "the pairs, labels or weights, or their order, have changed" in refusal(path, *given, **same)
    # What does not change the result may differ.
    cf.LinearMetricLearner(**PAPER | same).fit(data, labels, np.ones(len(labels)), checkpoint=path, max_time=60)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content.replace(b"alpha", b"Alpha"),
        lambda content: b"x1,x2,label\n1,2,far\n",
        lambda content: os.urandom(4000),
    ],
)
def test_other_files_are_neither_read_nor_overwritten(kept, tmp_path, spoil):
    path, data, labels = kept
    spoilt = tmp_path / "c"
    spoilt.write_bytes(spoil(path.read_bytes()))
    message = refusal(spoilt, data, labels, alpha=0.1)
    assert message.startswith(f"{spoilt} is not a closefar checkpoint, or it is damaged")
    assert "Remove it to begin again, or choose another name." in message


def test_models_and_arrays_are_no_checkpoints(kept, tmp_path):
    _, data, labels = kept
    fitted("newton").metric_.save(tmp_path / "m.closefar")
    np.savez(tmp_path / "own.npz", text=np.arange(3))
    np.save(tmp_path / "own.npy", np.arange(3))
    for name in ("m.closefar", "own.npz", "own.npy"):
        assert "is not a closefar checkpoint" in refusal(tmp_path / name, data, labels)


def test_another_format_is_refused(kept, tmp_path, monkeypatch):
    _, data, labels = kept
    with monkeypatch.context() as patch:
        patch.setattr(progress, "CHECKPOINT_VERSION", 7)
        fitted("newton", checkpoint=tmp_path / "c")
    assert "is a checkpoint of format 7, and this version of closefar continues format 2" in refusal(
        tmp_path / "c", data, labels
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a user who may not write everywhere")
def test_a_folder_that_is_read_only_is_refused_at_once(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="can't write"):
        cf.LinearMetricLearner(**PAPER).fit(None, None, checkpoint=tmp_path / "c")


@pytest.mark.parametrize("name", ["missing/c", "."])
def test_what_can_not_be_written_is_refused_before_the_data_are_read(tmp_path, name):
    with pytest.raises(OSError, match="can't write"):
        cf.LinearMetricLearner(**PAPER).fit(None, None, checkpoint=tmp_path / name)


def test_a_pipe_is_no_checkpoint(tmp_path):
    os.mkfifo(tmp_path / "c")
    with pytest.raises(ValueError, match="not a regular file"):
        cf.LinearMetricLearner(**PAPER).fit(None, None, checkpoint=tmp_path / "c")


def test_a_full_disk_does_not_end_the_fit(tmp_path, monkeypatch, always):
    def full(path, content):
        raise OSError(f"can't write {path}: No space left on device.")

    monkeypatch.setattr(progress, "replace_file", full)
    with pytest.warns(UserWarning, match="No space left on device. The fit goes on without it") as caught:
        learner = cf.LinearMetricLearner(**PAPER).fit(*KINDS["newton"][1], checkpoint=tmp_path / "c")
    assert len(caught) == 1
    assert learner.certificate_.converged


# The time


class Clock:
    """A clock that advances by a second whenever it is looked at."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now


@pytest.mark.parametrize("kind", ["newton", "low rank", "two stages", "flips", "every noise", "the default"])
@pytest.mark.filterwarnings(WARNED)
def test_a_fit_ends_in_time_and_continues(kind, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(problem, "time", Clock())
        early = fitted(kind, checkpoint=tmp_path / "c", max_time=8)
    certificate = early.certificate_
    assert (certificate.outcome, certificate.converged) == ("unfinished", False)
    assert certificate.advice.startswith("max_time=8 seconds ended the fit before it was complete; ")
    assert certificate.advice.endswith("or call fit again with the same checkpoint to continue.")
    assert np.all(np.isfinite(early.predict_proba(KINDS[kind][1][0])))
    same_optimum(kind, fitted(kind), fitted(kind, checkpoint=tmp_path / "c"))


@pytest.mark.filterwarnings(WARNED)
def test_time_ends_a_fit_at_any_step(monkeypatch):
    """Whatever the time, there is a metric, and a proof that ends early proves nothing wrong."""
    settings, (data, labels) = KINDS["gradient steps"]
    best = cf.LinearMetricLearner(**PAPER | settings).fit(data, labels).certificate_
    outcomes = set()
    for seconds in (1, 20, 80, 1000):
        monkeypatch.setattr(problem, "time", Clock())
        certificate = cf.LinearMetricLearner(**PAPER | settings).fit(data, labels, max_time=seconds).certificate_
        outcomes.add(str(certificate.outcome))
        assert certificate.gap >= certificate.objective - best.objective - 1e-12
        assert certificate.lower_bound <= best.objective + 1e-12
    assert outcomes == {"unfinished", "converged"}


def test_the_end_of_the_time_is_warned_of(monkeypatch):
    monkeypatch.setattr(problem, "time", Clock())
    with pytest.warns(ConvergenceWarning, match="unfinished: max_time=3 seconds .* give fit a checkpoint to continue"):
        cf.LinearMetricLearner(**PAPER).fit(*KINDS["newton"][1], max_time=3)


@pytest.mark.parametrize("wrong", [0, -1.0, np.inf, "long"])
def test_wrong_times_are_refused(wrong):
    with pytest.raises(ValueError, match="max_time must be None or a number of seconds > 0"):
        cf.LinearMetricLearner(**PAPER).fit(*KINDS["newton"][1], max_time=wrong)


@pytest.mark.filterwarnings(WARNED)
@pytest.mark.parametrize("seconds", [1, 10, 100])
def test_the_choice_ends_in_time_with_the_best_so_far(monkeypatch, seconds):
    monkeypatch.setattr(problem, "time", Clock())
    data, labels = KINDS["the default"][1]
    learner = cf.LinearMetricLearner().fit(data, labels, max_time=seconds)
    assert learner.certificate_.outcome == "unfinished"
    assert 1 <= len(learner.choice_.table) <= 8
    assert np.all(np.isfinite(learner.predict_proba(data)))


# Progress


def test_stages_that_take_long_are_named(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_QUIET", 0.01)
    with progress.showing(1) as shown:
        with shown.stage("finding unit-free coordinates"):
            deadline = time.monotonic() + 20.0
            while not (err := capsys.readouterr().err) and time.monotonic() < deadline:
                time.sleep(0.01)
        with progress.showing(2) as inner:
            assert inner is shown
    assert err == "finding unit-free coordinates ...\n"
    with progress.showing(0) as silent, silent.stage("nothing"):
        assert silent.verbose == 0
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer) and thread.is_alive()]


def test_choosing_and_long_steps_are_shown(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_QUIET", 0.0)
    cf.LinearMetricLearner(rank="auto", verbose=2, **PAPER).fit(*KINDS["rank by cross-validation"][1])
    err = capsys.readouterr().err
    assert re.search(r"^choosing the penalty on held-out judgements \.\.\.$", err, re.MULTILINE)
    assert re.search(r"the next step is under way  passes \d", err)


def test_what_is_continued_is_said(tmp_path, capsys):
    path, (data, labels) = tmp_path / "c", KINDS["newton"][1]
    learner_of("newton").fit(data, labels, checkpoint=path)
    assert capsys.readouterr().err == ""
    learner_of("newton", verbose=1).fit(data, labels, checkpoint=path)
    assert re.search(rf"continuing from {path} \(proven gap \d.\de-\d\d\)\n", capsys.readouterr().err)


# Files that are lost


def spoil_at(step, spoil, monkeypatch):
    calls, show = [], progress.ShownSteps.__call__

    def spoiling(self, iteration, state):
        calls.append(iteration)
        if len(calls) == step:
            spoil()
        show(self, iteration, state)

    monkeypatch.setattr(progress.ShownSteps, "__call__", spoiling)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "can't be read: No such file or directory"),
        (lambda path: os.truncate(path, path.stat().st_size // 2), "has changed since it was opened"),
        (lambda path: os.replace(shutil.copy(path, f"{path}.new"), path), "has changed since it was opened"),
    ],
)
@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_a_file_that_is_lost_while_it_is_read_is_named(kind, spoil, words, tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "HELD_FILE_BYTES", 0)
    monkeypatch.setattr(blocks, "KEEP_BYTES", 0)
    monkeypatch.setattr(opened_pairs, "CHUNK_BYTES", 1 << 16)
    data, labels = pairs(20_000, 6, 1)
    z = data[:, 0] - data[:, 1] if data.ndim == 3 else data
    path = tmp_path / f"z.{kind}"
    if kind == "npy":
        np.save(path, z)
        opened = cf.open_pairs(path, labels=labels)
    else:
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        frame = pandas.DataFrame(z, columns=[f"f{k}" for k in range(6)]).assign(label=labels)
        frame.to_parquet(path, row_group_size=5000)
        opened = cf.open_pairs(points=path)
    with monkeypatch.context() as patch:
        spoil_at(2, lambda: spoil(path), patch)
        with pytest.raises(ValueError, match=f"{path.name} {words}"):
            cf.LinearMetricLearner(**PAPER).fit(opened, checkpoint=tmp_path / "c")
    assert not [thread for thread in threading.enumerate() if "read-ahead" in thread.name]
    # Once the data are there again, the fit goes on.
    frame = z if kind == "npy" else frame.drop(columns="label")
    later = cf.LinearMetricLearner(**PAPER).fit(
        frame, labels, feature_names=opened.feature_names, checkpoint=tmp_path / "c"
    )
    assert later.certificate_.converged


# The command line


@pytest.fixture
def table(tmp_path):
    z, labels = points(300, 3, 1)
    lines = [
        ",".join([*(f"{value:.6f}" for value in row), "far" if label > 0 else "close"])
        for row, label in zip(z, labels, strict=True)
    ]
    path = tmp_path / "points.csv"
    path.write_text("\n".join(["a,b,c,label", *lines]))
    return path


def command(table, *options):
    out = str(table.parent / "m.closefar")
    return CliRunner().invoke(app, ["fit", "--points", str(table), "--out", out, "--force", *options])


def test_the_command_line_keeps_a_checkpoint(table, tmp_path):
    path = tmp_path / "c"
    assert command(table, "--checkpoint", str(path)).exit_code == 0
    assert command(table, "--checkpoint", str(path)).exit_code == 0
    done = command(table, "--checkpoint", str(path), "--alpha", "0.1")
    assert done.exit_code == 2
    assert "--alpha is 0.1 here and 'auto' in the checkpoint" in done.stderr
    before = table.read_bytes()
    assert command(table, "--checkpoint", str(table)).exit_code == 2  # whose name is that of the data
    assert table.read_bytes() == before
    done = command(table, "--max-time", "0")
    assert "--max-time must be a finite number > 0; got 0." in done.stderr


def test_the_command_line_ends_in_time(table, monkeypatch):
    monkeypatch.setattr(problem, "time", Clock())
    done = command(table, "--max-time", "3")
    assert done.exit_code == 1
    assert "--max-time 3 seconds ended the fit before it was complete" in done.stderr
    assert "or add --checkpoint to continue it later." in done.stderr
    assert Path(table.parent / "m.closefar").exists()


def test_an_interrupted_command_says_how_to_continue(table, tmp_path, monkeypatch):
    def interrupting(self, iteration, state):
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(progress.ShownSteps, "__call__", interrupting)
    done = command(table)
    assert done.exit_code == 130
    assert "interrupted; nothing was written." in done.stderr
    done = command(table, "--checkpoint", str(tmp_path / "c"))
    assert done.exit_code == 130
    assert f"interrupted; the same command continues from {tmp_path / 'c'}." in done.stderr.replace("\n", "")
