"""The plots: what they draw is what was learned, where they draw it, and what they leave alone."""

import builtins
import copy
import dataclasses
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from scipy.stats import binomtest
from sklearn.exceptions import NotFittedError

import closefar as cf
from closefar.questions import check_noise_model
from closefar.report import summarize
from paper_estimator import PAPER

DATA = cf.datasets.make_pairs(3000, 5, metric_eigenvalues=[1.0, 0.5, 0.2], wrong_share=0.1, random_state=0)
PAIRS, LABELS = DATA.pairs[:2000], DATA.labels[:2000]
NEW_PAIRS, NEW_LABELS = DATA.pairs[2000:], DATA.labels[2000:]
DIFFERENCES = PAIRS[:, 0] - PAIRS[:, 1]
HOSTILE = ["$x^2$", "a very long name " * 20, "<script>alert(1)</script>", "two\nlines \udcff", r"\frac{%"]

RANDOM = np.random.default_rng(0)
POINTS = RANDOM.standard_normal((400, 3)) * [1.0, 10.0, 0.1] + [5.0, 0.0, 0.0]
INSIDE = np.where(((POINTS - [5.0, 0.0, 0.0]) ** 2) @ [1.0, 0.01, 0.0] < 1.5, "in", "out")


@pytest.fixture(scope="module")
def learner():
    return cf.LinearMetricLearner(**PAPER).fit(PAIRS, LABELS)


@pytest.fixture(scope="module")
def with_origin():
    flipped = np.where(np.random.default_rng(1).uniform(size=len(INSIDE)) < 0.05, "in", INSIDE)
    return cf.LinearMetricLearner(fit_origin=True, rank=2, far_label="out", **PAPER).fit(POINTS, flipped)


def line(ax, label):
    return next(each for each in ax.lines if each.get_label() == label)


def points_of(ax):
    return np.vstack([collection.get_offsets() for collection in ax.collections])


# Each plot


@pytest.mark.parametrize("scale", [None, "data", "units"])
def test_spectrum_shows_eigenvalues_and_their_sums(learner, scale):
    if scale == "units":
        expected = np.linalg.eigvalsh(learner.metric_.matrix)[::-1][: learner.metric_.rank]
    else:
        moment = DIFFERENCES.T @ DIFFERENCES / len(DIFFERENCES)
        expected = np.sort(np.linalg.eigvals(learner.metric_.matrix @ moment).real)[::-1][: learner.metric_.rank]
    ax = cf.plot.spectrum(learner, scale=scale)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], expected, rtol=1e-6, atol=1e-9)
    x, y = line(ax, "cumulative").get_data()
    np.testing.assert_array_equal(x, np.arange(1, len(expected) + 1))
    np.testing.assert_allclose(y, np.cumsum(expected), rtol=1e-6)
    ax.figure.draw_without_rendering()
    (shares,) = ax.child_axes
    np.testing.assert_allclose(shares.get_ylim(), np.array(ax.get_ylim()) / expected.sum(), rtol=1e-6)


def test_spectrum_of_a_metric_is_in_its_units_where_it_knows_no_other():
    ax = cf.plot.spectrum(cf.Metric.from_matrix(np.diag([1.0, 4.0]), 1.0))
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([4.0, 1.0])
    assert "units" in ax.get_ylabel()
    with pytest.raises(ValueError, match="needs the scale of the training data"):
        cf.plot.spectrum(cf.Metric.from_matrix(np.eye(2), 1.0), scale="data")


def test_loadings_are_in_units_of_the_spread_of_each_feature(learner):
    ax = cf.plot.loadings(learner, n_directions=2)
    drawn = ax.images[0].get_array()
    weights = learner.metric_.data_factor[:, :2] * np.sqrt(np.mean(DIFFERENCES**2, axis=0))[:, None]
    np.testing.assert_allclose(drawn, weights / np.linalg.norm(weights, axis=0), rtol=1e-12)
    units = np.array([1e-6, 1e6, 1.0, 1e3, 1e-3])
    other = cf.plot.loadings(cf.LinearMetricLearner(**PAPER).fit(PAIRS * units, LABELS), n_directions=2)
    np.testing.assert_allclose(np.abs(other.images[0].get_array()), np.abs(drawn), atol=1e-6)


def test_loadings_of_points_use_their_standard_deviation(with_origin):
    drawn = cf.plot.loadings(with_origin).images[0].get_array()
    weights = with_origin.metric_.data_factor * POINTS.std(axis=0)[:, None]
    np.testing.assert_allclose(drawn, weights / np.linalg.norm(weights, axis=0), rtol=1e-9)


def test_loadings_show_the_features_that_load_most():
    factor = np.array([[0.1, 0.0], [3.0, 0.0], [0.0, 0.2], [0.0, 2.0]])
    names = ("a", "b", "c", "d")
    ax = cf.plot.loadings(cf.Metric.from_factor(factor, 1.0, feature_names=names), n_features=2)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["b", "d"]
    assert "2 largest of 4" in ax.get_title()
    swapped = cf.plot.loadings(
        cf.Metric.from_factor(factor, 1.0, feature_names=names), n_features=2, spread=[100.0, 1.0, 1.0, 1.0]
    )
    assert [tick.get_text() for tick in swapped.get_yticklabels()] == ["a", "d"]


@pytest.mark.parametrize("given", [False, True])
def test_margins_count_the_pairs_of_each_class(learner, given):
    pairs, labels = (NEW_PAIRS, NEW_LABELS) if given else (PAIRS, LABELS)
    ax = cf.plot.margins(learner, *((NEW_PAIRS, NEW_LABELS) if given else ()))
    squared = learner.pair_distance(pairs) ** 2
    threshold = learner.metric_.threshold
    assert line(ax, "threshold").get_xdata() == [threshold, threshold]
    for label, name in ((-1, "close (-1)"), (1, "far (1)")):
        counts, edges, _ = next(patch for patch in ax.patches if patch.get_label() == name).get_data()
        assert counts.sum() == np.sum(labels == label)  # those beyond are in the last bin
        inner = slice(0, -1)
        np.testing.assert_array_equal(counts[inner], np.histogram(squared[labels == label], edges)[0][inner])
    assert edges[-1] >= np.quantile(squared, 0.99) * (1 - 1e-12)
    agree = np.mean((squared >= threshold) == (labels == 1))
    assert f"{agree:.1%}" in ax.get_title()


def test_margins_weigh_pairs_as_the_fit_does(learner):
    weights = np.arange(1.0, len(NEW_LABELS) + 1)
    ax = cf.plot.margins(learner, NEW_PAIRS, NEW_LABELS, weights)
    for label, name in ((-1, "close (-1)"), (1, "far (1)")):
        counts = next(patch for patch in ax.patches if patch.get_label() == name).get_data()[0]
        assert counts.sum() == pytest.approx(weights[label == NEW_LABELS].sum())
    assert ax.get_ylabel() == "weight of pairs"


def test_margins_of_one_class_alone_can_be_drawn(learner):
    close = NEW_LABELS == -1
    ax = cf.plot.margins(learner, NEW_PAIRS[close], NEW_LABELS[close])
    counts = {patch.get_label(): patch.get_data()[0].sum() for patch in ax.patches}
    assert counts["close (-1)"] == close.sum()
    assert counts["far (1)"] == 0


def test_calibration_shows_shares_with_the_intervals_of_the_report(learner):
    ax = cf.plot.calibration(learner, NEW_PAIRS, NEW_LABELS, n_bins=5)
    expected, observed = line(ax, "these labels").get_data()
    probability = learner.predict_proba(NEW_PAIRS)[:, 1]
    parts = np.array_split(np.argsort(probability), 5)
    # An edge belongs to the bin above it, so neighbours may differ by a pair.
    np.testing.assert_allclose(expected, [probability[part].mean() for part in parts], atol=0.01)
    np.testing.assert_allclose(observed, [(NEW_LABELS[part] == 1).mean() for part in parts], atol=0.01)
    (lines,) = ax.collections
    ends = np.array([path.vertices for path in lines.get_paths()])
    np.testing.assert_allclose(ends[:, :, 0], np.column_stack([expected, expected]))
    for (low, high), share in zip(ends[:, :, 1], observed, strict=True):
        interval = binomtest(round(200 * share), 200).proportion_ci(method="wilson")
        assert (low, high) == pytest.approx((interval.low, interval.high), abs=0.01)
    shown = cf.plot.calibration(learner, NEW_PAIRS, NEW_LABELS, n_bins=10).collections[0].get_paths()
    bins = summarize(learner, NEW_PAIRS, NEW_LABELS)["calibration"]["bins"]
    expected_ends = [[[row["predicted"], row["low"]], [row["predicted"], row["high"]]] for row in bins]
    np.testing.assert_allclose([path.vertices for path in shown], expected_ends)


def test_calibration_is_of_the_probability_with_flips(rng):
    flips = np.where(rng.uniform(size=len(LABELS)) < 0.1, -LABELS, LABELS)
    learner = cf.LinearMetricLearner(flip_rate=0.1, alpha=0.0).fit(PAIRS, flips)
    expected, observed = line(cf.plot.calibration(learner), "these labels").get_data()
    probability = learner.predict_proba(PAIRS)[:, 1]
    assert expected.min() >= probability.min() > 0.09
    np.testing.assert_allclose(expected, observed, atol=0.06)


def test_weight_two_calibrates_as_a_pair_given_twice(learner):
    once = cf.plot.calibration(learner, NEW_PAIRS, NEW_LABELS, np.full(len(NEW_LABELS), 2.0))
    twice = cf.plot.calibration(learner, np.repeat(NEW_PAIRS, 2, axis=0), np.repeat(NEW_LABELS, 2))
    for left, right in zip(line(once, "these labels").get_data(), line(twice, "these labels").get_data(), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12)


def test_truncation_path_shows_the_losses_of_its_steps(learner):
    path = learner.truncation_path(held_out=(NEW_PAIRS, NEW_LABELS))
    ax = cf.plot.truncation_path(path)
    for label, name in (
        ("truncated", "loss"),
        ("truncated and refitted", "refit_loss"),
        ("truncated, held out", "held_out_loss"),
        ("truncated and refitted, held out", "refit_held_out_loss"),
    ):
        ranks, losses = line(ax, label).get_data()
        np.testing.assert_array_equal(ranks, range(len(path)))
        np.testing.assert_allclose(losses, [getattr(step, name) for step in path])
    assert line(ax, "truncated").get_ydata()[-1] == pytest.approx(learner.certificate_.loss)
    whole = cf.plot.truncation_path(learner, held_out=(NEW_PAIRS, NEW_LABELS), scale="units")
    assert len(whole.lines) == 4
    assert "units" in whole.get_xlabel()
    with pytest.raises(ValueError, match="must be passed with a learner; got a path"):
        cf.plot.truncation_path(path, scale="units")


def test_embedding_keeps_the_learned_distances(learner):
    metric = learner.metric_.truncate(2)
    points = PAIRS[:50, 0]
    ax = cf.plot.embedding(metric, points)
    drawn = points_of(ax)
    expected = metric.distance(points[:1], points)
    np.testing.assert_allclose(np.linalg.norm(drawn - drawn[0], axis=1), expected, rtol=1e-9, atol=1e-12)
    assert ax.get_aspect() == 1.0
    np.testing.assert_allclose(
        points_of(cf.plot.embedding(learner, points)), learner.transform(points)[:, :2], rtol=1e-12
    )
    np.testing.assert_allclose(
        points_of(cf.plot.embedding(learner, points, scale="units")), points @ learner.metric_.factor[:, :2], rtol=1e-12
    )


def test_embedding_shows_the_threshold_around_a_learned_origin(with_origin):
    ax = cf.plot.embedding(with_origin, POINTS, INSIDE)
    circle = np.column_stack(ax.lines[-1].get_data())
    np.testing.assert_allclose(np.sum(circle**2, axis=1), with_origin.metric_.threshold)
    inside = np.sum(points_of(ax) ** 2, axis=1) < with_origin.metric_.threshold
    ordered = np.concatenate([POINTS[name == INSIDE] for name in ("in", "out")])
    np.testing.assert_array_equal(np.where(inside, "in", "out"), with_origin.predict(ordered))


def test_embedding_colours_by_label(learner):
    points = DATA.pairs[:, 0]
    groups = np.array(["$a$", "b", "c"], dtype=object)[np.arange(len(points)) % 3]
    ax = cf.plot.embedding(learner, points, groups)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["$a$", "b", "c"]
    assert not any(text.get_parse_math() for text in ax.get_legend().get_texts())
    assert len({tuple(each.get_facecolor()[0]) for each in ax.collections}) == 3
    np.testing.assert_allclose(
        ax.collections[1].get_offsets(), points[groups == "b"] @ learner.metric_.data_factor[:, :2], rtol=1e-12
    )
    numbers = cf.plot.embedding(learner, points, points[:, 0])
    np.testing.assert_array_equal(numbers.collections[0].get_array(), points[:, 0])
    many = cf.plot.embedding(learner, points, [f"g{min(index, 12)}" for index in range(len(points))])
    assert many.get_legend().get_texts()[0].get_text() == "3 others"


def test_embedding_draws_a_part_of_many_points(learner):
    points = np.random.default_rng(1).standard_normal((200_000, 5))
    ax = cf.plot.embedding(learner, points, max_points=2000)
    drawn = points_of(ax)
    assert len(drawn) == 2000
    rows = np.linspace(0, 199_999, 2000).round().astype(int)
    np.testing.assert_allclose(drawn, points[rows] @ learner.metric_.data_factor[:, :2], rtol=1e-12)
    assert ax.get_title("right") == "2,000 of 200,000 points"
    assert ax.collections[0].get_rasterized()


def test_embedding_of_rank_one_is_a_line_and_of_rank_zero_a_sentence(learner):
    points = PAIRS[:50, 0]
    ax = cf.plot.embedding(learner.metric_.truncate(1), points)
    np.testing.assert_allclose(points_of(ax)[:, 0], points @ learner.metric_.data_factor[:, 0], rtol=1e-12)
    assert len(ax.get_yticks()) == 0
    for draw in (cf.plot.spectrum, cf.plot.loadings, lambda metric: cf.plot.embedding(metric, points)):
        empty = draw(learner.metric_.truncate(0))
        assert empty.texts[0].get_text() == "M is zero: no direction separates close from far."


def test_noise_check_is_that_of_the_pairs(learner):
    check = check_noise_model(learner, NEW_PAIRS, NEW_LABELS)
    for ax in (cf.plot.noise_check(check), cf.plot.noise_check(learner, NEW_PAIRS, NEW_LABELS), check.plot()):
        x, y = line(ax, "these labels").get_data()
        np.testing.assert_allclose(x, [row.margin for row in check.bins])
        np.testing.assert_allclose(y, [row.observed - row.expected for row in check.bins], atol=1e-15)
        corners = ax.collections[0].get_paths()[0].vertices
        assert corners[:, 1].max() == pytest.approx(1.96 * max(row.error for row in check.bins))
    with pytest.raises(ValueError, match="must be passed with a learner; got a check"):
        cf.plot.noise_check(check, NEW_PAIRS, NEW_LABELS)


@pytest.mark.parametrize("parameters", [{}, {"alpha": 0.01, "solver": "sampled"}, {"rank": 1}])
def test_convergence_shows_the_history(parameters):
    learner = cf.LinearMetricLearner(**{**PAPER, **parameters}).fit(PAIRS, LABELS)
    ax = cf.plot.convergence(learner)
    twin = ax.figure.axes[-1]
    assert twin.get_label() == "gap"
    passes = [step.passes for step in learner.history_]
    x, objective = line(ax, "objective").get_data()
    np.testing.assert_array_equal(x, passes)
    np.testing.assert_array_equal(objective, [step.objective for step in learner.history_])
    _, above = line(twin, "gap to the final bound").get_data()
    np.testing.assert_array_equal(above, objective - learner.certificate_.lower_bound)
    _, proven = line(twin, "gap proven at this step").get_data()
    np.testing.assert_array_equal(proven, [step.gap if np.isfinite(step.gap) else np.nan for step in learner.history_])
    assert np.all(proven[np.isfinite(proven)] >= above[np.isfinite(proven)])
    assert proven[-1] == learner.certificate_.gap


def test_convergence_with_flips_claims_no_bound_for_earlier_steps(rng):
    flips = np.where(rng.uniform(size=len(LABELS)) < 0.1, -LABELS, LABELS)
    learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(PAIRS, flips)
    twin = cf.plot.convergence(learner).figure.axes[-1]
    assert [each.get_label() for each in twin.lines] == ["gap proven at this step", "tol"]
    assert np.isfinite(twin.lines[0].get_ydata()).sum() == 1


def test_convergence_without_a_history_says_so(learner):
    restored = copy.copy(learner)
    restored.fit_ = dataclasses.replace(learner.fit_, history=())
    with pytest.raises(ValueError, match="no history_"):
        cf.plot.convergence(restored)


# All plots

ANNOTATED = cf.LinearMetricLearner(**PAPER).fit(PAIRS, LABELS, annotators=np.arange(len(PAIRS)) % 4)
DRAW = {
    "annotators": lambda learner, **options: cf.plot.annotators(
        ANNOTATED if hasattr(learner, "fit_") else learner, **options
    ),
    "spectrum": cf.plot.spectrum,
    "loadings": cf.plot.loadings,
    "margins": cf.plot.margins,
    "calibration": cf.plot.calibration,
    "truncation_path": cf.plot.truncation_path,
    "embedding": lambda learner, **options: cf.plot.embedding(learner, PAIRS[:, 0], LABELS, **options),
    "noise_check": cf.plot.noise_check,
    "convergence": cf.plot.convergence,
}
plots = pytest.mark.parametrize("name", DRAW)


def test_every_plot_is_tested():
    assert sorted(DRAW) == sorted(cf.plot.__all__)


@plots
def test_the_given_axes_are_used_and_nothing_else_is_changed(learner, name, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *_: pytest.fail("a plot must not show itself"))
    figure, (left, right) = plt.subplots(1, 2, sharex=True, sharey=True, layout="constrained")
    plt.sca(left)
    settings, figures = dict(mpl.rcParams), plt.get_fignums()
    assert DRAW[name](learner, ax=right) is right
    figure.canvas.draw()
    assert dict(mpl.rcParams) == settings
    assert plt.get_fignums() == figures
    assert not left.has_data()


@plots
def test_without_axes_a_figure_is_made(learner, name):
    before = set(plt.get_fignums())
    ax = DRAW[name](learner)
    assert len(set(plt.get_fignums()) - before) == 1
    assert ax.figure.get_layout_engine() is not None
    ax.figure.canvas.draw()


@plots
def test_a_learner_that_chose_is_drawn(name):
    learner = cf.LinearMetricLearner().fit(PAIRS, LABELS)
    assert DRAW[name](learner).has_data()


@plots
def test_what_can_not_be_drawn_is_named(name):
    with pytest.raises(NotFittedError):
        DRAW[name](cf.LinearMetricLearner(**PAPER))
    with pytest.raises(TypeError, match="got ndarray"):
        DRAW[name](np.eye(2))


@plots
def test_hostile_names_are_drawn_as_they_are(name):
    frame = pd.DataFrame(DIFFERENCES, columns=pd.Index(HOSTILE, dtype=object))
    learner = cf.LinearMetricLearner(far_label="$far$", **PAPER).fit(frame, np.where(LABELS > 0, "$far$", "clo$e"))
    draw = {**DRAW, "embedding": lambda each: cf.plot.embedding(each, frame, np.where(LABELS > 0, "$a", "$b$"))}[name]
    ax = draw(learner)
    ax.figure.canvas.draw()
    if name == "loadings":
        shown = [tick.get_text() for tick in ax.get_yticklabels()]
        assert shown[0] == HOSTILE[0]
        assert max(map(len, shown)) <= 28
        assert shown[3] == "two lines ?"
        assert shown[4] == HOSTILE[4]
        assert not any(tick.get_parse_math() for tick in ax.get_yticklabels())
    if name == "margins":
        assert [text.get_text() for text in ax.get_legend().get_texts()][:2] == ["close (clo$e)", "far ($far$)"]


@pytest.mark.parametrize("draw", [cf.plot.margins, cf.plot.calibration])
def test_labels_must_be_those_of_the_fit(learner, draw):
    with pytest.raises(ValueError, match=r"labels must be those of the fit, -1 and 1; [\d,]+ of [\d,]+ are not"):
        draw(learner, NEW_PAIRS, np.where(NEW_LABELS > 0, 1, 0))
    with pytest.raises(ValueError, match="one close/far label or level per pair"):
        draw(learner, NEW_PAIRS)
    with pytest.raises(ValueError, match="999 labels for 1000 pairs"):
        draw(learner, NEW_PAIRS, NEW_LABELS[1:])
    with pytest.raises(ValueError, match="n_bins must be a whole number >= 1; got 0"):
        draw(learner, n_bins=0)


def test_wrong_shapes_and_counts_are_named(learner):
    with pytest.raises(ValueError, match=r"an \(n, 5\) array; got shape \(3, 4\)"):
        cf.plot.embedding(learner.metric_, np.zeros((3, 4)))
    with pytest.raises(ValueError, match="one label per point"):
        cf.plot.embedding(learner, PAIRS[:, 0], LABELS[1:])
    with pytest.raises(ValueError, match="max_points must be"):
        cf.plot.embedding(learner, PAIRS[:, 0], max_points=0.5)
    with pytest.raises(ValueError, match="n_directions must be"):
        cf.plot.loadings(learner, n_directions=0)
    with pytest.raises(ValueError, match="spread must be 5 finite numbers"):
        cf.plot.loadings(learner, spread=[1.0])


@plots
def test_without_matplotlib_the_extra_is_named(learner, name, monkeypatch):
    find = builtins.__import__

    def no_matplotlib(module, *args, **kwargs):
        if module.startswith("matplotlib"):
            raise ImportError(module)
        return find(module, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    with pytest.raises(ImportError, match=r"closefar\.plot needs matplotlib: run pip install 'closefar\[plot\]'"):
        DRAW[name](learner)


def test_importing_plot_does_not_import_matplotlib():
    code = "import sys, closefar as cf; cf.plot.spectrum; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pairs_of_weight_zero_are_not_drawn(learner):
    weights = np.repeat([1.0, 0.0], 500)
    for draw in (cf.plot.calibration, cf.plot.margins):
        left, right = draw(learner, NEW_PAIRS, NEW_LABELS, weights), draw(learner, NEW_PAIRS[:500], NEW_LABELS[:500])
        assert left.get_title() == right.get_title()
        for one, other in zip(left.lines, right.lines, strict=True):
            np.testing.assert_allclose(one.get_xydata(), other.get_xydata())


def test_points_of_another_array_library_are_drawn(learner):
    strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
    drawn, expected = (cf.plot.embedding(learner, points) for points in (strict.asarray(PAIRS[:, 0]), PAIRS[:, 0]))
    np.testing.assert_allclose(drawn.collections[0].get_offsets(), expected.collections[0].get_offsets())


def test_annotators_show_their_strictness_and_flip_rates():
    data = cf.datasets.make_judgements(
        1500, 3, n_annotators=5, strictness_spread=0.3, n_random_annotators=1, random_state=0
    )
    learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(
        data.tuples, data.labels, annotators=data.annotators
    )
    table, ax = learner.annotators_, cf.plot.annotators(learner)
    shown = [text.get_text() for text in ax.get_yticklabels()]
    assert shown == [table.names[place] for place in np.argsort(table.strictness)]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["answers at random"]
    assert sum(text.get_text().strip().endswith("%") for text in ax.texts) == 5
    assert "2 of 5 annotators" in cf.plot.annotators(learner, n_annotators=2).get_title()
    plain = cf.LinearMetricLearner(**PAPER).fit(data.tuples, data.labels)
    with pytest.raises(ValueError, match="this plot needs a fit with annotators"):
        cf.plot.annotators(plain)
