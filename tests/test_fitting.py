"""Fitting as a function: settings, the result and what is asked of it, origins, and fits within directions."""

import pickle
import warnings
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logit
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV

import closefar as cf
from closefar.fitting import Fit, NoiseChoice, RankChoice, Scorer, Settings, fit, refit, refit_leading, score
from closefar.fitting.explain import find_problems
from closefar.fitting.fitting import find_origin
from closefar.judgements import Columns, Judgements
from closefar.model import Directions, Metric
from closefar.noise import NOISES, Normal
from closefar.rows import Differences, find_coordinates
from closefar.solve import Outcome, SolverSettings, solve
from paper_estimator import PAPER

DATA = cf.datasets.make_pairs(1500, 4, metric_eigenvalues=[1.0, 0.5, 0.2], wrong_share=0.1, random_state=0)
JUDGEMENTS = Judgements.of_signs(DATA.pairs, DATA.labels)


@pytest.fixture(scope="module")
def found():
    return fit(JUDGEMENTS, Settings(tol=1e-9, **PAPER))


# Settings


def test_settings_of_an_estimator():
    learner = cf.LinearMetricLearner(rank=2, alpha=0.1, prior="zero", far_label=1, warm_start=True, flip_rate=0.0)
    settings = Settings.of(learner)
    assert settings == Settings(rank=2, alpha=0.1, prior="zero", flip_rate=0.0)
    assert settings.but(alpha=0.0) == Settings(rank=2, **PAPER)
    with pytest.raises(TypeError, match=r"got GridSearchCV, which has no parameter 'solver'"):
        Settings.of(GridSearchCV(learner, {"alpha": [0.0, 0.1]}))


def test_settings_that_nobody_chose_are_those_of_the_learner():
    assert Settings.of(cf.LinearMetricLearner()) == Settings()


def test_what_settings_mean():
    plain = Settings(**PAPER)
    assert plain.candidates == [NOISES["logistic"]]
    assert (plain.known_rank, plain.known_flip_rate) == (None, 0.0)
    assert not plain.chooses_rank
    assert not plain.estimates_flips
    assert Settings(noise=Normal(), **PAPER).candidates == [Normal()]
    assert Settings(noise="auto", **PAPER).candidates == list(NOISES.values())
    assert Settings(rank="auto", **PAPER).chooses_rank
    assert Settings(rank=3, **PAPER).known_rank == 3
    estimated = Settings(flip_rate="estimate", alpha=0.0)
    assert estimated.estimates_flips
    assert estimated.known_flip_rate is None
    assert Settings(alpha=0.1, prior="standardized", flip_rate=0.0).is_centred
    assert Settings(alpha=0.1, prior=cf.Metric(np.eye(4), 1.0), flip_rate=0.0).is_centred
    assert not Settings(alpha=0.1, prior="zero", flip_rate=0.0).is_centred
    assert not Settings(alpha=0.0, prior="standardized").is_centred
    for known in (plain, Settings(alpha=0.0, flip_rate=0.0), Settings(alpha=0.1, prior="euclidean", flip_rate="two")):
        assert not known.has_choice
    for open_ in ({"alpha": "auto"}, {"flip_rate": "auto"}, {"rank": "auto"}, {"alpha": 0.1, "prior": "auto"}):
        assert Settings(**PAPER | open_).has_choice
    # What solvers need to know is a part of the settings.
    assert isinstance(plain, SolverSettings)
    rough = Settings(tol=1e-9, **PAPER).roughly()
    assert (rough.proves, rough.tol) == (False, 1e-3)
    assert Settings(tol=0.1, **PAPER).roughly().tol == 0.1


def test_random_numbers_are_the_same_each_time():
    assert (
        Settings(**PAPER).rng().random()
        == Settings(random_state=0, **PAPER).rng().random()
        != Settings(random_state=1, **PAPER).rng().random()
    )
    assert len({Settings(random_state=seed, **PAPER).rng().random() for seed in range(200)}) == 200


@pytest.mark.parametrize(
    "good",
    [
        {"rank": 1},
        {"rank": 4},
        {"rank": "auto"},
        {"alpha": 0.0},
        {"alpha": 0.1, "prior": "standardized"},
        {"prior": cf.Metric(np.eye(4), 1.0)},
        {"noise": "auto", "alpha": 0.1},
        {"tol": 0.0},
        {"max_iter": 1},
        {"flip_rate": 0.0},
        {"flip_rate": 0.499},
        {"flip_rate": "estimate"},
        {"noise": "auto"},
        {"solver": "newton"},
    ],
)
def test_the_ends_of_what_is_allowed(good):
    Settings(**good).check(JUDGEMENTS)


@pytest.mark.parametrize(
    "bad",
    [
        {"rank": 0},
        {"rank": 5},
        {"rank": True},
        {"rank": 2.0},
        {"rank": "many"},
        {"alpha": -1e-9},
        {"alpha": "much"},
        {"tol": np.nan},
        {"max_iter": 2.0},
        {"max_iter": True},
        {"flip_rate": "often"},
        {"prior": None},
        {"alpha": np.inf},
        {"tol": -1.0},
        {"max_iter": 0},
        {"flip_rate": 0.5},
        {"flip_rate": -1e-9},
        {"prior": "rows"},
        {"prior": cf.Metric(np.eye(3), 1.0)},
        {"prior": "euclidean", "rank": 2},
        {"solver": "best"},
        {"noise": "white"},
        {"fit_origin": True},
    ],
)
def test_what_is_not_allowed(bad):
    with pytest.raises(ValueError, match=r"must|needs|compares"):
        Settings(**bad).check(JUDGEMENTS)


# The result


def test_a_fit_answers_for_itself(found):
    assert found.judgements is JUDGEMENTS
    assert found.training() is JUDGEMENTS
    assert found.read_or_training() is JUDGEMENTS
    assert found.read(JUDGEMENTS) is JUDGEMENTS
    assert not found.is_separable
    assert not found.was_interrupted
    assert repr(found) == f"Fit({found.metric!r}, converged)"
    assert repr(JUDGEMENTS) == f"Judgements(1500 of 4 columns, {np.sum(DATA.labels == 1)} far)"
    assert found.flip_rate == 0.0
    assert found.n_iter >= 1
    chosen = found.chosen
    assert (chosen.noise, chosen.rank, chosen.flip_rate, chosen.verbose) == (NOISES["logistic"], None, 0.0, 0)
    bare = found.without_judgements()
    with pytest.raises(ValueError, match="without its training pairs"):
        bare.training()
    assert Fit.of(found) is found
    with pytest.raises(NotFittedError):
        Fit.of(cf.LinearMetricLearner(**PAPER))


def test_results_cannot_be_changed(found):
    scores = RankChoice(1, "best", ())
    noises = NoiseChoice("normal", {}, None)
    for result, name in (
        (found, "rank"), (found.settings, "rank"), (found.statistics, "accuracy"), (scores, "rank"), (noises, "name")
    ):  # fmt: skip
        with pytest.raises(FrozenInstanceError):
            setattr(result, name, 3)
    # Two fits are the same where they are one.
    assert len({found, found, replace(found)}) == 2


def test_statistics_are_those_of_the_training_pairs(found):
    margin = found.metric.measure(DATA.pairs) - found.metric.threshold
    statistics = found.statistics
    assert statistics.n_pairs == 1500
    assert statistics.share_far == pytest.approx(np.mean(DATA.labels == 1))
    assert statistics.accuracy == pytest.approx(np.mean((margin >= 0) == (DATA.labels == 1)))
    assert statistics.wrong_share == pytest.approx(np.mean(NOISES["logistic"].cdf(-np.abs(margin))))
    z = DATA.pairs[:, 0] - DATA.pairs[:, 1]
    np.testing.assert_allclose(statistics.column_scales, np.sqrt(np.mean(z**2, axis=0)), rtol=1e-9)


def test_pickles_leave_the_training_pairs_out(found):
    learner = cf.LinearMetricLearner(**PAPER).fit(DATA.pairs, DATA.labels)
    copy = pickle.loads(pickle.dumps(learner))
    assert copy.fit_.judgements is None
    assert learner.fit_.judgements is not None
    assert copy.metric_ == learner.metric_


def test_what_a_fit_warns_of(found):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.warn(stacklevel=1)
    for outcome in (Outcome.UNFINISHED, Outcome.STALLED, Outcome.SEPARABLE):
        bad = replace(found, certificate=replace(found.certificate, outcome=outcome))
        with pytest.warns(ConvergenceWarning, match=outcome):
            bad.warn(stacklevel=1)
    with pytest.warns(cf.IdentifiabilityWarning, match="a column is dull"):
        replace(found, problems=("a column is dull",)).warn(stacklevel=1)


def test_warnings_point_at_who_asked_for_the_fit(found):
    bad = replace(
        found,
        noise_choice=NoiseChoice("logistic", {}, "noises look alike"),
        certificate=replace(found.certificate, outcome=Outcome.STALLED),
        problems=("a column is dull", "another one too"),
    )
    with pytest.warns(ConvergenceWarning) as caught:
        bad.warn(stacklevel=1)
    messages = [str(each.message) for each in caught]
    assert messages[0] == "noises look alike"
    assert messages[1].startswith("stalled")
    assert messages[2:] == ["a column is dull", "another one too"]
    assert {each.filename for each in caught} == {__file__}


def test_an_interrupted_refit_ends_what_it_is_part_of(monkeypatch, found):
    broken = replace(found, certificate=replace(found.certificate, outcome=Outcome.INTERRUPTED))
    monkeypatch.setattr("closefar.fitting.fitting._fit_once", lambda *args, **kwargs: broken)
    with pytest.raises(KeyboardInterrupt):
        refit(JUDGEMENTS, Settings(**PAPER))


def test_a_part_without_one_of_the_labels_is_refused():
    with pytest.raises(ValueError, match="no pairs of class 1"):
        refit(JUDGEMENTS.take(np.flatnonzero(DATA.labels < 0)), Settings(**PAPER))


def test_a_fit_that_is_good_enough_from_the_start_counts_as_one_step():
    assert fit(JUDGEMENTS, Settings(tol=10.0, **PAPER)).n_iter == 1


def test_a_chosen_rank_is_kept_beside_the_settings_that_asked_for_it():
    few = JUDGEMENTS.take(np.arange(300))
    chosen = fit(few, Settings(rank="auto", tol=1e-9, **PAPER))
    assert (chosen.settings.rank, chosen.rank) == ("auto", chosen.choice.rank)
    assert chosen.judgements is few
    known = fit(few, Settings(rank=chosen.rank, tol=1e-9, **PAPER))
    assert known.choice is None
    np.testing.assert_allclose(chosen.metric.matrix, known.metric.matrix, rtol=1e-9)


def test_noises_are_compared_by_the_losses_of_their_fits():
    chosen = fit(JUDGEMENTS, Settings(noise="auto", tol=1e-9, **PAPER))
    losses = {name: fit(JUDGEMENTS, Settings(noise=name, tol=1e-9, **PAPER)).certificate.loss for name in NOISES}
    assert {name: row["loss"] for name, row in chosen.noise_choice.comparison.items()} == pytest.approx(losses)
    assert chosen.metric.noise.name == chosen.noise_choice.name == min(losses, key=losses.get)
    assert chosen.certificate.loss == pytest.approx(min(losses.values()))
    assert fit(JUDGEMENTS, Settings(noise="normal", **PAPER)).noise_choice is None


@pytest.mark.filterwarnings("ignore:.* noise describes the labels best, but not clearly")
@pytest.mark.parametrize("flip_rate", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["pairs", "levels", "triplets"])
def test_noises_of_each_kind_are_compared_by_the_losses_of_judgements(kind, flip_rate):
    learners = {"pairs": cf.LinearMetricLearner, "levels": cf.OrdinalMetricLearner}
    data = cf.datasets.make_judgements(600, 3, kind=kind, random_state=0)

    def learned(noise):
        settings = {**PAPER, "noise": noise, "flip_rate": flip_rate, "tol": 1e-9}
        return learners.get(kind, cf.ComparisonMetricLearner)(**settings).fit(data.tuples, data.labels).fit_

    losses = {name: score(fitted, fitted.judgements).loss for name in NOISES for fitted in [learned(name)]}
    comparison = learned("auto").noise_choice.comparison
    assert {name: row["loss"] for name, row in comparison.items()} == pytest.approx(losses, rel=1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_many_columns_separate_few_labels_in_a_scale_that_ranks_new_pairs():
    points, digits = load_digits(return_X_y=True)
    pairs, labels = cf.datasets.pairs_from_points(points[:900], digits[:900], 400, random_state=0)
    unseen, truth = cf.datasets.pairs_from_points(points[900:], digits[900:], 2000, random_state=0)
    learner = cf.LinearMetricLearner(**PAPER).fit(pairs, labels)
    assert learner.certificate_.outcome == "separable"
    assert roc_auc_score(truth, learner.decision_function(unseen)) > 0.8  # in the scale of the data 0.66


def test_weights_of_zero_do_not_count():
    weights = np.where(np.arange(1500) < 500, 0.0, 1.0)
    part = fit(Judgements.of_signs(DATA.pairs, DATA.labels, weights), Settings(tol=1e-9, **PAPER))
    alone = fit(Judgements.of_signs(DATA.pairs[500:], DATA.labels[500:]), Settings(tol=1e-9, **PAPER))
    np.testing.assert_allclose(part.metric.matrix, alone.metric.matrix, rtol=1e-8)
    assert part.statistics.n_pairs == 1000


def test_a_start_near_the_solution_saves_steps(found):
    again = fit(JUDGEMENTS, Settings(tol=1e-9, **PAPER), start=found.metric)
    assert again.n_iter < found.n_iter
    np.testing.assert_allclose(again.metric.matrix, found.metric.matrix, rtol=1e-4, atol=1e-6)
    # Where an origin is learned it is of no use, and no harm.
    points = Judgements.of_signs(DATA.pairs[:, 0], DATA.labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert fit(points, Settings(fit_origin=True, **PAPER), start=found.metric).metric.origin is not None


@pytest.mark.parametrize("threshold", [-0.5, 0.7])
def test_a_start_is_the_metric_in_the_coordinates_of_the_rows(monkeypatch, threshold):
    seen = []

    def spy(problem, settings, *, start, **more):
        seen.append((problem, start))
        return solve(problem, settings, start=start, **more)

    monkeypatch.setattr("closefar.solve.solve", spy)
    root = np.random.default_rng(0).standard_normal((4, 2))
    fit(JUDGEMENTS, Settings(**PAPER), start=Metric.from_factor(root, threshold, origin=np.zeros(4)))
    ((problem, start),) = seen
    z = DATA.pairs[:, 0] - DATA.pairs[:, 1]
    np.testing.assert_allclose(problem.rows.forms(start.matrix), np.sum((z @ root) ** 2, axis=1), rtol=1e-8)
    np.testing.assert_array_equal(start.thresholds, [max(threshold, 0.0)])


def test_class_weights_are_part_of_the_fit():
    weighted = fit(JUDGEMENTS, Settings(class_weight={1: 3.0, -1: 1.0}, tol=1e-9, **PAPER))
    by_hand = fit(
        Judgements.of_signs(DATA.pairs, DATA.labels, np.where(DATA.labels == 1, 3.0, 1.0)), Settings(tol=1e-9, **PAPER)
    )
    np.testing.assert_allclose(weighted.metric.matrix, by_hand.metric.matrix, rtol=1e-9)


def test_names_come_with_the_columns():
    named = fit(JUDGEMENTS, Settings(**PAPER), columns=Columns(4, ("a", "b", "c", "d")))
    assert named.metric.feature_names == ("a", "b", "c", "d")


# What the data leave open

MANY = np.tile([True, False], 50)


def counted(is_far):
    """The numbers of pairs that are labelled close and far."""
    return int(np.sum(~is_far)), int(np.sum(is_far))


@pytest.mark.parametrize(("rank", "k"), [(None, 4), (1, 1), (3, 3), (9, 4)])
@pytest.mark.parametrize("has_origin", [False, True])
def test_unknowns_are_the_directions_in_which_a_metric_can_move(rank, k, has_origin):
    factor = np.random.default_rng(0).standard_normal((4, k))
    moves = [np.outer(row, column) for row in np.eye(4) for column in np.eye(k)]
    tangents = [(factor @ move.T + move @ factor.T).ravel() for move in moves]
    unknowns = np.linalg.matrix_rank(tangents) + 1 + 4 * has_origin
    limits = {"rank": rank, **({"has_origin": True} if has_origin else {})}
    enough = find_problems("abcd", np.zeros((4, 0)), counted(MANY[:unknowns]), 4, **limits)
    assert not any("parameters (M" in problem for problem in enough)
    few = find_problems("abcd", np.zeros((4, 0)), counted(MANY[: unknowns - 1]), 4, **limits)[-1]
    assert few.startswith(
        f"there are {unknowns - 1} pairs for {unknowns} parameters (M with 4 directions and rank {k},"
    )
    assert few.endswith(f"label at least {4 * unknowns} pairs.")


@pytest.mark.parametrize(("rarer", "is_rare"), [(3, True), (4, False), (5, False)])
@pytest.mark.parametrize("label", ["far", "close"])
def test_each_label_is_needed_as_often_as_there_are_directions(rarer, is_rare, label):
    is_far = (np.arange(100) < rarer) == (label == "far")
    problems = find_problems("abcd", np.zeros((4, 0)), counted(is_far), 4)
    assert [problem.split(",")[0] for problem in problems] == [
        f"only {rarer} of 100 pairs are labelled {label}"
    ] * is_rare


def test_a_combination_names_the_columns_that_have_a_share_in_it():
    def named(*direction):
        names = [f"x{index}" for index in range(len(direction))]
        (problem,) = find_problems(names, np.array(direction)[:, None], counted(MANY), 2)
        return problem.split(" in these pairs")[0]

    assert named(0.0, 7.0) == "column 'x1' does not vary"
    assert named(100.0, 4.9) == "column 'x0' does not vary"
    assert named(-0.1, 0.0051) == "a combination of the columns 'x0', 'x1' does not vary"
    assert named(1.0, -3.0, 0.0, 2.0) == "a combination of the columns 'x1', 'x3', 'x0' does not vary"
    six = ", ".join(f"'x{index}'" for index in range(6))
    assert named(*np.ones(6)) == f"a combination of the columns {six} does not vary"
    assert named(*np.ones(7)) == f"a combination of the columns {six} and 1 more does not vary"
    assert named(*np.ones(9)) == f"a combination of the columns {six} and 3 more does not vary"


@pytest.mark.parametrize("n", [1, 3, 4, 6])
def test_three_combinations_are_named_and_the_others_counted(n):
    problems = find_problems([f"x{index}" for index in range(8)], np.eye(8)[:, :n], counted(MANY), 8 - n)
    assert [problem.split()[1] for problem in problems[:3]] == [f"'x{index}'" for index in range(min(n, 3))]
    more = {4: ["1 more combination of columns does"], 6: ["3 more combinations of columns do"]}
    assert [problem.split(" not vary;")[0] for problem in problems[3:]] == more.get(n, [])


@pytest.mark.parametrize(("alpha", "n_problems"), [(0.0, 1), (0.01, 0)])
def test_a_penalty_makes_up_for_missing_pairs(alpha, n_problems):
    few = JUDGEMENTS.take(np.concatenate([np.flatnonzero(DATA.labels == label)[:5] for label in (-1, 1)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(fit(few, Settings(alpha=alpha, prior="zero", flip_rate=0.0)).problems) == n_problems


def test_only_directions_that_vary_are_unknown():
    few = JUDGEMENTS.take(np.concatenate([np.flatnonzero(DATA.labels == label)[:5] for label in (-1, 1)]))
    dull = few.with_data((few.data[:, 0] - few.data[:, 1]) * [1.0, 1.0, 1.0, 0.0])
    (problem,) = fit(dull, Settings(**PAPER)).problems  # ten pairs are enough for seven unknowns, not for eleven
    assert problem.startswith("column 'x3' does not vary")


# The origin


def test_the_origin_completes_the_square():
    rng = np.random.default_rng(1)
    points = rng.standard_normal((50, 3)) @ rng.standard_normal((3, 3)) + 4.0
    shares = rng.uniform(0.5, 1.5, 50)
    shares /= shares.sum()
    for k in (1, 2, 3, 4):
        factor = rng.standard_normal((4, k))
        origin, slack = find_origin(Differences(points), shares, factor)
        whole = np.sum((np.column_stack([points, np.ones(50)]) @ factor) ** 2, axis=1)
        np.testing.assert_allclose(np.sum(((points - origin) @ factor[:-1]) ** 2, axis=1) + slack, whole, rtol=1e-8)
        assert slack >= 0.0
        assert (slack > 1e-6) == (k == 4)
        # Of all such origins it is the nearest to the mean, in the points' own covariance.
        mean = shares @ points
        covariance = (points - mean).T @ ((points - mean) * shares[:, None])
        null = np.linalg.svd(factor[:-1].T)[2][k:].T
        inverse = np.linalg.inv(covariance)

        def length(shift, origin=origin, null=null, mean=mean, inverse=inverse):
            step = origin + null @ shift - mean
            return step @ inverse @ step

        if null.shape[1]:
            assert minimize(length, np.zeros(null.shape[1])).fun >= length(np.zeros(null.shape[1])) - 1e-6


@pytest.fixture(scope="module")
def around():
    """Points, and whether they are far from (2, -1, 0) in two of three columns."""
    rng = np.random.default_rng(4)
    points = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 3)) + [2.0, 1.0, 5.0]
    distance = (points[:, 0] - 2.0) ** 2 + 0.5 * (points[:, 1] + 1.0) ** 2
    far = distance + 0.5 * rng.logistic(size=400) * np.median(distance) > np.median(distance)
    return Judgements.of_signs(points, np.where(far, 1.0, -1.0), rng.uniform(0.5, 2.0, 400))


@pytest.mark.parametrize("fit_origin", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 0.003])
@pytest.mark.parametrize("prior", ["zero", "standardized", "euclidean"])
def test_the_metric_is_the_solution_in_the_units_of_the_data(around, fit_origin, alpha, prior):
    result = fit(around, Settings(alpha=alpha, prior=prior, fit_origin=fit_origin, tol=1e-9, flip_rate=0.0))
    metric, points = result.metric, around.data
    squared = np.sum(((points - (metric.origin if fit_origin else 0.0)) @ metric.factor) ** 2, axis=1)
    losses = np.logaddexp(0.0, -around.signs * (squared - metric.threshold))
    assert np.average(losses, weights=around.weights) == pytest.approx(result.certificate.loss, abs=1e-9)
    # The eigenvalues in the scale of the data are those of M times the data's moment.
    centre = np.average(points, weights=around.weights, axis=0) if fit_origin else np.zeros(3)
    moment = (points - centre).T @ ((points - centre) * around.shares[:, None])
    expected = np.sort(np.linalg.eigvals(metric.matrix @ moment).real)[::-1][: metric.rank]
    np.testing.assert_allclose(metric.data_eigenvalues, expected, rtol=1e-6)


def refitted_within(judgements, settings, metric, directions, k):
    return refit_leading(judgements, settings, Scorer(metric), directions, k).metric


def test_a_refit_within_directions_moves_the_origin_too(around):
    settings = Settings(fit_origin=True, tol=1e-9, **PAPER)
    whole = fit(around, settings).metric
    directions = whole.directions()
    best = refitted_within(around, settings, whole, directions, 1)
    assert best.rank == 1
    mapped = fit(around.with_data(around.data @ directions.columns[:, :1]), settings).metric
    expected = (around.data @ directions.columns[:, :1] - mapped.origin) ** 2 @ mapped.matrix - mapped.threshold
    squared = np.sum(((around.data - best.origin) @ best.factor) ** 2, axis=1)
    np.testing.assert_allclose(squared - best.threshold, expected[:, 0], atol=1e-4)


# Coordinates


def test_columns_are_scaled_one_by_one_where_they_are_not_mixed():
    rng = np.random.default_rng(2)
    z = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 3)) * [1e-3, 1.0, 1e5]
    weights = rng.uniform(0.5, 1.5, 300)
    weights /= weights.sum()
    coordinates = find_coordinates(Differences(np.column_stack([z, np.zeros(300)])), weights, blend=1.0)
    rms = np.sqrt(weights @ z**2)
    np.testing.assert_allclose(coordinates.transform[:3], np.diag(1.0 / rms), rtol=1e-12)
    np.testing.assert_array_equal(coordinates.transform[3], 0.0)
    np.testing.assert_allclose(coordinates.scales, [*rms, 0.0], rtol=1e-12)
    np.testing.assert_array_equal(coordinates.null_directions, np.eye(4)[:, 3:])
    mixed = find_coordinates(Differences(z), weights)
    np.testing.assert_allclose(mixed.scales, rms, rtol=1e-12)


def outlying(length, d=4, n=800):
    """Rows with unit second moment, and one more of squared length `length` along the first axis."""
    z = np.random.default_rng(3).standard_normal((n, d))
    z = z @ np.linalg.inv(np.linalg.cholesky(z.T @ z / n)).T
    return np.vstack([z, np.sqrt(length) * np.eye(d)[:1]])


def test_a_large_row_counts_as_it_is():
    z = outlying(150.0)  # in coordinates of its own it is shorter: below 50 d
    weights = np.full(801, 1.0 / 801)
    mapped = find_coordinates(Differences(z), weights).apply(z.T)
    np.testing.assert_allclose(mapped @ mapped.T / 801, np.eye(4), atol=1e-10)


def test_an_enormous_row_counts_as_ten_times_a_usual_one():
    z = outlying(1e8)
    weights = np.full(801, 1.0 / 801)
    mapped = find_coordinates(Differences(z), weights).apply(z.T)
    rest = mapped[:, :-1] @ mapped[:, :-1].T / 800
    # Along that row the moment of one is made up of the others' and of what the row counts for, 10 d / n.
    direction = mapped[:, -1] / np.linalg.norm(mapped[:, -1])
    assert direction @ rest @ direction == pytest.approx(1.0 - 40.0 / 801, abs=0.01)
    others = np.linalg.svd(direction[None])[2][1:]
    np.testing.assert_allclose(others @ rest @ others.T, np.eye(3), atol=0.01)


# Within leading directions


@pytest.mark.parametrize("scale", ["data", "units"])
def test_a_refit_within_directions_is_the_best_there(found, scale):
    directions = found.metric.directions(scale)
    z = DATA.pairs[:, 0] - DATA.pairs[:, 1]
    for k in (1, 2):
        best = refitted_within(JUDGEMENTS, Settings(tol=1e-9, **PAPER), found.metric, directions, k)
        kept = directions.columns[:, :k]
        # The metric lies within the directions, and no other there is better.
        residual = best.matrix - kept @ np.linalg.lstsq(kept, best.matrix, rcond=None)[0]
        np.testing.assert_allclose(residual, 0.0, atol=1e-8 * np.abs(best.matrix).max())
        mapped = cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(z @ kept, DATA.labels)
        np.testing.assert_allclose(best.probability_far(z), mapped.predict_proba(z @ kept)[:, 1], atol=1e-5)
        moment = z.T @ z / len(z)
        np.testing.assert_allclose(
            best.data_factor.T @ moment @ best.data_factor, np.diag(best.data_eigenvalues), atol=1e-6
        )
    assert refitted_within(JUDGEMENTS, Settings(**PAPER), found.metric, directions, found.metric.rank) is found.metric


def test_without_directions_every_pair_is_as_far(found):
    nothing = refitted_within(JUDGEMENTS, Settings(**PAPER), found.metric, found.metric.directions(), 0)
    assert nothing.rank == 0
    share = np.mean(DATA.labels == 1)
    expected = share if share <= 0.5 else 0.5  # a threshold of pairs is at least 0
    assert nothing.probability_far(np.ones((1, 4)))[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("share", "flip_rate", "has_origin", "expected"),
    [
        (0.3, 0.0, False, 0.3),
        (0.3, 0.1, False, 0.25),  # 0.25 * 0.9 + 0.75 * 0.1 are labelled far
        (0.8, 0.1, False, 0.5),
        (0.8, 0.1, True, 0.875),
        (0.05, 0.1, True, 1e-12),
        (0.95, 0.1, True, 1.0 - 1e-12),
    ],
)
def test_a_metric_of_nothing_makes_the_labels_as_likely_as_they_are(found, share, flip_rate, has_origin, expected):
    labels = np.where(np.arange(100) < 100 * share, 1.0, -1.0)
    judgements = Judgements.of_signs(DATA.pairs[:100, 0], labels)
    metric = replace(found.metric, flip_rate=flip_rate, origin=np.ones(4) if has_origin else None)
    nothing = refitted_within(judgements, Settings(**PAPER), metric, metric.directions(), 0)
    assert nothing.threshold == pytest.approx(-logit(expected), abs=1e-3)
    assert nothing.threshold >= 0.0 or has_origin


def test_a_direction_of_no_length_is_left_out_and_a_short_one_is_not(found):
    whole = found.metric.directions()
    one = np.array([1.0, 0.0])
    flat = Directions(1e-3 * whole.columns[:, :2] * one, 1e-6 * whole.values[:2] * one, True)
    cut = refitted_within(JUDGEMENTS, Settings(tol=1e-9, **PAPER), found.metric, flat, 2)
    expected = refitted_within(JUDGEMENTS, Settings(tol=1e-9, **PAPER), found.metric, whole, 1)
    np.testing.assert_allclose(cut.matrix, expected.matrix, rtol=1e-9)
    none = Directions(0.0 * flat.columns, 0.0 * flat.values, True)
    assert refitted_within(JUDGEMENTS, Settings(**PAPER), found.metric, none, 2).rank == 0


def test_a_penalty_in_columns_is_refitted_with_its_rank(found):
    settings = Settings(alpha=0.01, prior="zero", tol=1e-8, flip_rate=0.0)
    whole = fit(JUDGEMENTS, settings).metric
    cut = refitted_within(JUDGEMENTS, settings, whole, whole.directions(), 1)
    expected = fit(JUDGEMENTS, settings.but(rank=1)).metric
    np.testing.assert_allclose(cut.matrix, expected.matrix, rtol=1e-9)
    assert refitted_within(JUDGEMENTS, settings, whole, whole.directions(), 0).rank == 0


# The shape of the penalty, and its weight


def few_labels(n, d, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    is_far = rng.logistic(size=n) + z[:, 0] ** 2 > np.median(z[:, 0] ** 2)
    return Judgements.of_signs(z, np.where(is_far, 1.0, -1.0))


@pytest.mark.parametrize("proves", [True, False])
def test_a_centre_that_is_not_told_from_the_threshold(proves):
    """All rows have the same length, so that c and tau could grow together."""
    rng = np.random.default_rng(0)
    z = rng.choice([-1.0, 1.0], size=(200, 30))
    labels = np.where((z[:, 0] + z[:, 1] > 0) ^ (rng.random(200) < 0.2), 1, -1)
    judgements = cf.LinearMetricLearner(**PAPER).read(z, labels)
    settings = Settings(alpha=0.02, prior="standardized", flip_rate=0.2, proves=proves)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fit(judgements, settings)
    assert np.isfinite(found.metric.threshold)


@pytest.mark.parametrize("prior", ["zero", "standardized"])
@pytest.mark.parametrize("flip_rate", [0.0, 0.1])
def test_both_priors_follow_the_units_of_columns(prior, flip_rate):
    judgements, units = few_labels(150, 3), np.array([1e-5, 1.0, 1e7])
    settings = Settings(alpha=0.03, prior=prior, flip_rate=flip_rate, tol=1e-9)
    plain = fit(judgements, settings)
    scaled = fit(Judgements.of_signs(judgements.data * units, judgements.signs), settings)
    assert plain.certificate.converged
    np.testing.assert_allclose(
        scaled.metric.margin(judgements.data * units), plain.metric.margin(judgements.data), atol=1e-4
    )


def test_a_large_penalty_leaves_the_plain_distance_and_a_threshold():
    judgements = few_labels(300, 4)
    plain = fit(judgements, Settings(alpha=10.0, prior="euclidean", flip_rate=0.0)).metric.matrix
    np.testing.assert_allclose(plain, plain[0, 0] * np.eye(4), atol=1e-9 * plain[0, 0])
    known = cf.Metric(np.diag([3.0, 2.0, 1.0, 0.0]), 5.0)
    multiple = fit(judgements, Settings(alpha=10.0, prior=known, flip_rate=0.0)).metric.matrix
    np.testing.assert_allclose(multiple, multiple[2, 2] * known.matrix, atol=1e-9 * multiple[0, 0])
    found = fit(judgements, Settings(alpha=10.0, prior="standardized", flip_rate=0.0))
    inner = found.metric.matrix * np.outer(found.statistics.column_scales, found.statistics.column_scales)
    np.testing.assert_allclose(inner, inner[0, 0] * np.eye(4), atol=1e-9 * inner[0, 0])
    assert fit(judgements, Settings(alpha=10.0, prior="zero", flip_rate=0.0)).metric.rank == 0


def test_a_centre_has_no_limited_rank():
    with pytest.raises(ValueError, match='rank must be None with prior="standardized"'):
        fit(few_labels(50, 3), Settings(alpha=0.1, prior="standardized", rank=2, flip_rate=0.0))


def test_few_uncertain_labels_call_for_a_penalty():
    few = {"uncertain_per_parameter": 0.9}
    (problem,) = find_problems("abcd", np.zeros((4, 0)), counted(MANY), 4, **few)
    assert "only 0.9 uncertain labels" in problem
    assert 'Set alpha="auto"' in problem
    assert find_problems("abcd", np.zeros((4, 0)), counted(MANY), 4, penalised=True, **few) == []
    assert find_problems("abcd", np.zeros((4, 0)), counted(MANY), 4, uncertain_per_parameter=1.0) == []
