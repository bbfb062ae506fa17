"""Answers on dask data are dask arrays with the numbers of NumPy, and nothing is computed before they are."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

import closefar as cf
from paper_estimator import PAPER
from partitions import PARAMETERS, on_dask

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

DATA = cf.datasets.make_pairs(600, 3, rank=2, wrong_share=0.1, random_state=0)
PAIRS, LABELS = DATA.pairs, np.where(DATA.labels > 0, "far", "close")
Z = PAIRS[:, 0] - PAIRS[:, 1]
FRAME = pd.DataFrame(Z, columns=["age", "mass", "height"])
POINTS = np.random.default_rng(1).standard_normal((40, 3))
INDEX = np.random.default_rng(2).integers(0, 40, (600, 2))
ANSWERS = ["predict", "predict_proba", "decision_function", "transform", "pair_distance", "pair_score"]


@pytest.fixture(scope="module")
def learner() -> cf.LinearMetricLearner:
    return cf.LinearMetricLearner(**PAPER).fit(PAIRS, LABELS)


@pytest.fixture(scope="module")
def named() -> cf.LinearMetricLearner:
    return cf.LinearMetricLearner(**PAPER).fit(FRAME, LABELS)


def lazy_pairs() -> Any:
    return da.from_array(PAIRS, chunks=(170, 1, 2))


FORMS = {
    "pairs": (PAIRS, lazy_pairs()),
    "differences": (Z, da.from_array(Z, chunks=(170, 2))),
    "index pairs": (cf.Tuples(POINTS, INDEX), cf.Tuples(POINTS, da.from_array(INDEX, chunks=(170, 1)))),
    "points of dask": (
        cf.Tuples(POINTS, INDEX),
        cf.Tuples(da.from_array(POINTS, chunks=(30, 2)), da.from_array(INDEX, chunks=170)),
    ),
}


def check_answer(lazy: Any, expected: np.ndarray, chunks: tuple[int, ...] | None) -> None:
    assert isinstance(lazy, da.Array)
    assert lazy.dtype == expected.dtype
    assert lazy.shape[1:] == expected.shape[1:]
    assert chunks is None or lazy.chunks[0] == chunks
    found = lazy.compute()
    assert found.dtype == expected.dtype
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("form", FORMS)
def test_answers_are_lazy_and_those_of_numpy(form, answer, learner):
    plain, lazy = FORMS[form]
    check_answer(getattr(learner, answer)(lazy), getattr(learner, answer)(plain), (170, 170, 170, 90))


@pytest.mark.parametrize("answer", ANSWERS)
def test_frames_get_arrays(answer, named):
    frame = dd.from_pandas(FRAME, npartitions=3)
    check_answer(getattr(named, answer)(frame), getattr(named, answer)(FRAME), None)
    some = frame[frame["age"] > 0.5]  # of unknown row counts
    check_answer(getattr(named, answer)(some), getattr(named, answer)(FRAME[FRAME["age"] > 0.5]), None)
    nothing = getattr(named, answer)(frame[frame["age"] > 1e9]).compute()
    assert nothing.shape == (0, *getattr(named, answer)(FRAME).shape[1:])


# The learner of each other kind of judgement, and which of its methods answer for such data.
OTHER_KINDS = {
    "levels": (cf.OrdinalMetricLearner, ANSWERS),
    "triplets": (cf.ComparisonMetricLearner, ANSWERS[:3]),
    "quadruplets": (cf.ComparisonMetricLearner, ANSWERS[:3]),
}


@pytest.fixture(scope="module", params=OTHER_KINDS)
def other(request) -> tuple[Any, Any, tuple[str, ...]]:
    """Another kind of judgement, the learner that was fitted to it, and what it answers."""
    learner, answers = OTHER_KINDS[request.param]
    data = cf.datasets.make_judgements(400, 3, kind=request.param, n_points=60, random_state=0)
    return data, learner(**PARAMETERS).fit(data.tuples, data.labels), answers


@pytest.mark.parametrize("form", ["by index", "array"])
def test_answers_for_levels_and_comparisons_are_lazy_and_those_of_numpy(other, form):
    data, learner, answers = other
    plain = data.tuples if form == "by index" else np.asarray(data.tuples)
    lazy = on_dask(plain)
    for answer in answers:
        check_answer(getattr(learner, answer)(lazy), getattr(learner, answer)(plain), (101, 101, 101, 97))
    weights = np.arange(400.0)
    expected = learner.score(plain, data.labels, weights)
    assert learner.score(lazy, on_dask(data.labels, 3), weights) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("other", ["triplets", "quadruplets"], indirect=True)
def test_comparisons_have_no_distance_and_need_no_answers(other):
    data, learner, answers = other
    lazy = on_dask(data.tuples)
    for answer in ANSWERS[len(answers) :]:
        with pytest.raises(ValueError, match=rf"pairs must have shape \(n, 2, d\).*got \(400, {lazy.shape[1]}, 3\)"):
            getattr(learner, answer)(lazy)
    assert learner.score(lazy) == pytest.approx(learner.score(data.tuples), abs=1e-12)


def test_the_answers_of_one_annotator():
    data = cf.datasets.make_judgements(600, 3, n_annotators=4, strictness_spread=1.0, random_state=0)
    learner = cf.LinearMetricLearner(**PARAMETERS).fit(data.tuples, data.labels, annotators=data.annotators)
    who = data.annotators[0]
    expected = learner.predict_proba(data.tuples, annotator=who)
    assert np.abs(expected - learner.predict_proba(data.tuples)).max() > 0.01
    check_answer(learner.predict_proba(on_dask(data.tuples), annotator=who), expected, None)
    with pytest.raises(ValueError, match="annotator must be one id for all pairs of a dask collection; got 600 values"):
        learner.predict(on_dask(data.tuples), annotator=data.annotators)


def test_nothing_is_computed(learner):
    def explode(block):
        raise AssertionError("computed")

    lazy = lazy_pairs().map_blocks(explode, dtype=float, meta=np.empty((0, 0, 0)))
    for answer in ANSWERS:
        getattr(learner, answer)(lazy)


def test_an_answer_is_that_of_the_learner_at_the_time(learner):
    other = cf.LinearMetricLearner(**PAPER).fit(PAIRS, LABELS)
    lazy = other.decision_function(lazy_pairs())
    other.fit(PAIRS * 3.0, LABELS[::-1])
    np.testing.assert_allclose(lazy.compute(), learner.decision_function(PAIRS), rtol=1e-12)


def test_answers_do_not_carry_the_training_pairs():
    pairs = np.random.default_rng(0).standard_normal((20_000, 3))
    learner = cf.LinearMetricLearner(**PAPER).fit(pairs, np.sum(pairs**2, axis=1) + pairs[:, 0] > 3)
    lazy = learner.predict(da.zeros((10, 3), chunks=5))
    assert len(pickle.dumps(lazy)) < 100_000


@pytest.mark.parametrize("weights", [None, np.arange(600.0)], ids=["plain", "weighted"])
@pytest.mark.parametrize("form", FORMS)
def test_a_score_is_one_number(form, weights, learner):
    plain, lazy = FORMS[form]
    expected = learner.score(plain, LABELS, weights)
    assert learner.score(lazy, da.from_array(LABELS, chunks=77), weights) == pytest.approx(expected, abs=1e-12)


def test_columns_must_be_those_of_the_fit(learner, named):
    with pytest.raises(ValueError, match="must have the 3 columns that LinearMetricLearner was fitted with; got 2"):
        learner.predict(lazy_pairs()[:, :, :2])
    frame = dd.from_pandas(FRAME, npartitions=2)
    with pytest.raises(ValueError, match="columns must be those of the fit, in its order"):
        named.predict(frame[["mass", "age", "height"]])
    with pytest.warns(UserWarning, match="X has no feature names"):
        named.predict(da.from_array(Z))
    with pytest.raises(ValueError, match="contains NaN"):
        learner.predict(da.where(lazy_pairs() > 2, np.nan, lazy_pairs())).compute()
    with pytest.raises(AttributeError, match="not fitted"):
        cf.LinearMetricLearner(**PAPER).predict(lazy_pairs())


@pytest.fixture(scope="module")
def fitted() -> cf.LinearMetricLearner:
    """A learner that was fitted to dask data."""
    return cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(lazy_pairs(), da.from_array(LABELS, chunks=100))


def test_questions_about_a_fit_to_dask_data_use_its_training_pairs(fitted, tmp_path, capsys):
    plain = cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(PAIRS, LABELS)
    assert fitted.check_noise_model().p_value == pytest.approx(plain.check_noise_model().p_value, rel=1e-4)
    losses = [[step.loss for step in each.truncation_path()] for each in (fitted, plain)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-7)
    assert fitted.diagnose().problems == plain.diagnose().problems
    for learner, name in ((fitted, "lazy.txt"), (plain, "plain.txt")):
        learner.report(tmp_path / name, random_state=0)
    assert len((tmp_path / "lazy.txt").read_text()) > 1000


def test_questions_about_very_many_pairs_use_a_sample_and_say_so(fitted, monkeypatch):
    from closefar.judgements import partitioned

    monkeypatch.setattr(partitioned, "MOST_IN_MEMORY", 400)
    with pytest.warns(UserWarning, match="this uses 400 of 600, chosen at random"):
        check = fitted.check_noise_model()
    assert sum(row.count for row in check.bins) == 400


def test_a_rank_is_chosen_by_pairs_in_memory(monkeypatch):
    from closefar.judgements import partitioned

    lazy = cf.LinearMetricLearner(rank="auto", **PAPER).fit(lazy_pairs(), LABELS)
    plain = cf.LinearMetricLearner(rank="auto", **PAPER).fit(PAIRS, LABELS)
    assert lazy.rank_ == plain.rank_
    losses = [[row.loss for row in each.choice_.table] for each in (lazy, plain)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    monkeypatch.setattr(partitioned, "MOST_IN_MEMORY", 400)
    sampled = cf.LinearMetricLearner(rank="auto", **PAPER).fit(lazy_pairs(), LABELS)
    assert [row.loss for row in sampled.choice_.table] != losses[0]
    assert sampled.fit_statistics_.n_pairs == 600


def test_a_learner_is_copied_and_saved_without_its_cluster(fitted, tmp_path):
    again = pickle.loads(pickle.dumps(fitted))
    assert again.fit_.judgements is None
    np.testing.assert_array_equal(again.predict(PAIRS), fitted.predict(PAIRS))
    fitted.metric_.save(tmp_path / "model.closefar")
    np.testing.assert_array_equal(cf.load(tmp_path / "model.closefar").factor, fitted.metric_.factor)


NOISES = {"flips": (0.1, "flipped"), "logistic": (0.1, "side")}


@pytest.fixture(scope="module", params=NOISES)
def judged(request) -> tuple[Any, Any, Any, str]:
    """Pairs with wrong labels, what is found in memory, and how dask data are judged."""
    wrong_share, meaning = NOISES[request.param]
    data = cf.datasets.make_pairs(3000, 3, noise=request.param, wrong_share=wrong_share, random_state=0)
    expected = cf.find_label_errors(cf.LinearMetricLearner(), data.pairs, data.labels, random_state=0)
    lazy = da.from_array(data.pairs, chunks=(700, 2, 3)), da.from_array(data.labels, chunks=900)
    return data, expected, lazy, meaning


def test_label_errors_are_lazy_and_those_of_numpy(judged):
    _, expected, lazy, meaning = judged
    found = cf.find_label_errors(cf.LinearMetricLearner(), *lazy, random_state=0)
    assert found.meaning == expected.meaning == meaning
    for name in ("share", "share_low", "share_high", "unseen_share", "unseen_low", "unseen_high"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-5)
    for name in ("probability", "margin", "error", "contradicts", "labels", "order"):
        lazy_column, column = getattr(found, name), getattr(expected, name)
        assert isinstance(lazy_column, da.Array)
        assert lazy_column.dtype == column.dtype
        assert lazy_column.shape == column.shape
    for name in ("probability", "margin", "error"):
        column = getattr(expected, name)
        np.testing.assert_allclose(getattr(found, name).compute(), column, atol=1e-4 * np.abs(column).max())
    np.testing.assert_array_equal(found.labels.compute(), expected.labels)
    np.testing.assert_array_equal(found.contradicts.compute(), expected.contradicts)
    order = found.order.compute()
    assert len(set(order[:50].tolist()) & set(expected.order[:50].tolist())) >= 48
    assert [row["index"] for row in found.table(7)] == order[:7].tolist()
    assert found.table(3)[0].keys() == expected.table(3)[0].keys()
    assert found.n_contradicting == expected.n_contradicting
    assert found.headline().split(";")[0] == expected.headline().split(";")[0]
    assert repr(found) == repr(expected)
    assert len(found.summary().splitlines()) == len(expected.summary().splitlines())


def test_label_errors_of_very_many_pairs_are_judged_by_a_sample(judged, monkeypatch):
    from closefar.questions import label_errors as label_search

    data, expected, lazy, meaning = judged
    monkeypatch.setattr(label_search, "_MOST_GATHERED", 1500)
    found = cf.find_label_errors(cf.LinearMetricLearner(), *lazy, random_state=0)
    assert found.meaning == meaning
    assert found.share == pytest.approx(expected.share, abs=0.03)
    assert found.share_high - found.share_low > expected.share_high - expected.share_low
    np.testing.assert_allclose(found.margin.compute(), expected.margin, atol=1e-4 * np.abs(expected.margin).max())
    assert np.corrcoef(found.probability.compute(), expected.probability)[0, 1] > 0.99
    wrong = data.labels != data.true_labels
    assert np.mean(wrong[[row["index"] for row in found.table(20)]]) > 0.9


def test_label_errors_of_frames(named):
    frame = dd.from_pandas(FRAME, npartitions=3)
    expected = cf.find_label_errors(named, FRAME, LABELS, random_state=0)
    found = cf.find_label_errors(named, frame, pd.Series(LABELS), random_state=0)
    np.testing.assert_allclose(found.probability.compute(), expected.probability, atol=1e-4)


def test_label_errors_of_index_pairs_and_weights():
    rng = np.random.default_rng(5)
    points, index = rng.standard_normal((500, 2)), rng.integers(0, 500, (3000, 2))
    squared = np.sum((points[index[:, 0]] - points[index[:, 1]]) ** 2, axis=1)
    labels = np.where(squared + rng.logistic(size=3000) > 3, "far", "close")
    weights = rng.integers(0, 3, 3000).astype(float)
    learner = cf.LinearMetricLearner(tol=1e-9, **PAPER)
    expected = cf.find_label_errors(learner, cf.Tuples(points, index), labels, sample_weight=weights, random_state=0)
    lazy = cf.Tuples(points, da.from_array(index, chunks=700))
    found = cf.find_label_errors(learner, lazy, labels, sample_weight=weights, random_state=0)
    assert (found.meaning, found.share) == (expected.meaning, pytest.approx(expected.share, abs=1e-5))
    np.testing.assert_allclose(found.probability.compute(), expected.probability, atol=1e-4)


def test_what_is_not_asked_of_labels_on_a_cluster(judged):
    _, _, lazy, _ = judged
    for more in ({"method": "out-of-fold"}, {"groups": np.arange(3000)}):
        with pytest.raises(ValueError, match=r"judged by one fit to all of them, without groups; got (method|groups)"):
            cf.find_label_errors(cf.LinearMetricLearner(**PAPER), *lazy, **more)


@pytest.mark.parametrize(
    "ask",
    [
        lambda learner, X, y: learner.check_noise_model(X, y),
        lambda learner, X, y: learner.truncation_path(X, y),
        lambda learner, X, y: learner.report("report.txt", X, y),
        lambda learner, X, y: cf.confidence(learner, X, y),
        lambda learner, X, y: cf.choose_rank(learner, X, y),
        lambda learner, X, y: cf.plan_sample_size(learner, X, y, target_error=0.1),
        lambda learner, X, y: cf.plot.calibration(learner, X, y),
    ],
    ids=["noise", "truncation", "report", "confidence", "rank", "planning", "plot"],
)
@pytest.mark.parametrize("form", ["pairs", "index pairs"])
def test_questions_that_need_pairs_in_memory_say_what_to_pass(form, ask, learner):
    sample = {"pairs": r"X\[:100_000\].compute\(\)", "index pairs": r"closefar.Tuples\(points, index\[:100_000\]"}[form]
    with pytest.raises(ValueError, match=f"needs pairs in memory; got .* Pass a sample: {sample}"):
        ask(learner, FORMS[form][1], LABELS)
