"""The history of a fit: true to what the solver would have returned at each step, and to the certificate."""

import dataclasses
import math
import pickle

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import closefar as cf
from closefar.solve import SOLVERS, Passes
from closefar.solve.loop import FitStep, Recorder, State
from paper_estimator import PAPER

DATA = cf.datasets.make_pairs(1000, 5, rank=3, wrong_share=0.1, random_state=0)
FLIPS = np.where(np.random.default_rng(0).uniform(size=1000) < 0.1, -DATA.labels, DATA.labels)


def fit(labels=DATA.labels, **parameters):
    return cf.LinearMetricLearner(**PAPER | parameters).fit(DATA.pairs, labels)


def check_order(history):
    passes = [step.passes for step in history]
    assert passes == sorted(passes)
    assert all(step.gap >= 0 and math.isfinite(step.objective) for step in history)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_it_ends_at_the_certificate(solver, alpha):
    learner = fit(solver=solver, alpha=alpha)
    history, certificate = learner.history_, learner.certificate_
    check_order(history)
    assert (history[-1].passes, history[-1].objective, history[-1].gap) == (
        certificate.n_passes,
        certificate.objective,
        certificate.gap,
    )
    assert len(history) == learner.n_iter_ + 2  # the start, each step, and the end
    assert history[0].gap == math.inf
    # Every gap that was proven on the way holds.
    assert all(step.objective - step.gap <= certificate.objective + 1e-12 for step in history)


@pytest.mark.parametrize("solver", SOLVERS)
def test_each_step_is_what_the_fit_would_have_returned(solver):
    whole = fit(solver=solver, alpha=0.01)
    for n_steps in range(1, min(whole.n_iter_, 6)):
        with pytest.warns(ConvergenceWarning, match="unfinished"):
            short = fit(solver=solver, alpha=0.01, max_iter=n_steps)
        assert whole.history_[: n_steps + 1] == short.history_[:-1]
        assert whole.history_[n_steps].objective == pytest.approx(short.certificate_.objective, abs=1e-9)


def test_a_limited_rank_goes_on_from_the_convex_optimum():
    free, limited = fit(), fit(rank=1)
    check_order(limited.history_)
    n = len(free.history_) - 1
    assert limited.history_[:n] == free.history_[:-1]
    assert limited.history_[n].objective > free.certificate_.objective
    assert limited.history_[-1].gap == limited.certificate_.gap > 0.01


def test_steps_with_other_penalties_are_left_out():
    data = cf.datasets.make_pairs(250, 4, rank=3, noise=None, random_state=4)
    with pytest.warns(ConvergenceWarning, match="separable"):
        learner = cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels)
    check_order(learner.history_)
    objectives = [step.objective for step in learner.history_[:-1]]
    assert objectives == sorted(objectives, reverse=True)
    assert len(learner.history_) < learner.n_iter_
    assert learner.history_[-1].passes == learner.certificate_.n_passes


@pytest.mark.parametrize("parameters", [{"flip_rate": "estimate"}, {"flip_rate": 0.1, "alpha": 0.001}])
def test_with_flips_the_objective_accounts_for_them(parameters):
    learner = fit(FLIPS, **parameters)
    history, metric = learner.history_, learner.metric_
    check_order(history)
    right = metric.noise.cdf(np.where(FLIPS > 0, 1.0, -1.0) * learner.decision_function(DATA.pairs))
    penalty = learner.alpha * np.diag(metric.matrix) @ np.square(learner.fit_statistics_.column_scales)
    rate = learner.flip_rate_
    expected = -np.mean(np.log(rate + (1.0 - 2.0 * rate) * right)) + penalty
    assert history[-1].objective == pytest.approx(expected, abs=1e-9)
    assert history[-1].passes == learner.certificate_.n_passes
    assert history[-1].gap == learner.certificate_.gap
    assert all(step.gap == math.inf for step in history[:-1])
    assert history[-1].objective < min(step.objective for step in history[:3])


def test_a_recorder_keeps_and_passes_on():
    passes, seen = Passes(), []
    recorder = Recorder(passes, lambda iteration, state: seen.append((iteration, state)))
    state = State(np.eye(2), np.ones(1), objective=0.5, bound=0.3, least_margin=-1.0, memory=None)
    passes.add(2.5)
    recorder(3, state)
    assert recorder.steps == [FitStep(2.5, 0.5, state.gap)]
    assert seen == [(3, state)]
    recorder(4, dataclasses.replace(state, bound=0.0))
    assert recorder.steps[-1].gap == math.inf


def test_copies_keep_it():
    learner = fit()
    assert pickle.loads(pickle.dumps(learner)).history_ == learner.history_


def test_of_several_noises_it_is_that_of_the_chosen_one():
    with pytest.warns(cf.IdentifiabilityWarning):
        chosen = fit(noise="auto")
    assert chosen.history_ == fit(noise=chosen.metric_.noise.name).history_
