"""The choice of the penalty, the rank and the sample size for levels, comparisons, mixed fits and annotators."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import closefar as cf
from closefar import plan_run
from closefar.fitting import Scorer, Settings, cross_validate_rank, fit, refit_leading, score
from closefar.judgements import Judgements

PLAIN: dict[str, Any] = {"flip_rate": 0.0, "alpha_scale": "data"}


def simulated(kind: str, n: int = 300, d: int = 4, **options: Any) -> Any:
    return cf.datasets.make_judgements(n, d, kind=kind, rank=2, wrong_share=0.1, random_state=1, **options)


LEVELS, TRIPLETS, PAIRS = simulated("levels"), simulated("triplets"), simulated("pairs")
ANNOTATED = simulated("pairs", n_annotators=5, strictness_spread=1.0)


def search(learner: Any = None, **options: Any) -> cf.LinearMetricLearnerCV:
    return cf.LinearMetricLearnerCV([0.0, 0.005, 0.05], cv=3, learner=learner, **{**PLAIN, **options})


# The penalty


@pytest.mark.parametrize("scoring", ["neg_log_loss", "accuracy"])
def test_levels_are_searched_by_the_score_of_held_out_ones(scoring: str) -> None:
    found = search(cf.OrdinalMetricLearner(), scoring=scoring).fit(LEVELS.tuples, LEVELS.labels)
    assert isinstance(found.best_estimator_, cf.OrdinalMetricLearner)
    assert found.alpha_ == found.cv_results_["params"][int(np.argmax(found.cv_results_["mean_test_score"]))]["alpha"]
    judgements = found.fit_.judgements
    from closefar.judgements import split_judgements

    train, test = split_judgements(3, judgements)[0]
    alone = cf.OrdinalMetricLearner(alpha=0.005, alpha_scale="data").fit_to(judgements.take(train))
    probabilities = alone.predict_proba(judgements.take(test).data)
    codes = judgements.codes[test]
    expected = np.mean(np.log(probabilities[np.arange(len(test)), codes]))
    if scoring == "accuracy":
        expected = np.mean(np.argmax(probabilities, axis=1) == codes)
    row = [each["alpha"] for each in found.cv_results_["params"]].index(0.005)
    assert found.cv_results_["split0_test_score"][row] == pytest.approx(expected, abs=1e-5)
    np.testing.assert_array_equal(found.predict(LEVELS.tuples), found.best_estimator_.predict(LEVELS.tuples))


def test_two_levels_are_searched_like_close_and_far() -> None:
    codes = (PAIRS.labels > 0).astype(int)
    ordinal = search(cf.OrdinalMetricLearner()).fit(PAIRS.tuples, codes)
    plain = search(shrink_to="zero", relax_threshold=False).fit(PAIRS.tuples, codes)
    assert ordinal.alpha_ == plain.alpha_
    np.testing.assert_allclose(ordinal.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"], rtol=1e-5)


def test_comparisons_are_searched_and_scored_by_agreement() -> None:
    found = search(cf.ComparisonMetricLearner(noise="normal", tol=1e-7)).fit(TRIPLETS.tuples, TRIPLETS.labels)
    chosen = found.best_estimator_
    assert (found.noise_, chosen.noise, chosen.tol) == ("normal", "normal", 1e-7)
    assert found.score(TRIPLETS.tuples, TRIPLETS.labels) == chosen.score(TRIPLETS.tuples, TRIPLETS.labels)
    answered = search(cf.ComparisonMetricLearner(noise="normal", tol=1e-7))
    answered.fit(cf.Tuples(TRIPLETS.points, TRIPLETS.answered))
    np.testing.assert_allclose(answered.cv_results_["mean_test_score"], found.cv_results_["mean_test_score"], atol=1e-5)


def test_what_is_set_here_wins_and_the_rest_is_the_learners() -> None:
    learner = cf.OrdinalMetricLearner(noise="normal", alpha_scale=0.3, max_iter=77, tol=1e-5)
    found = cf.LinearMetricLearnerCV([0.01], ["laplace"], cv=2, flip_rate=0.0, learner=learner, max_iter=88)
    found.fit(LEVELS.tuples, LEVELS.labels)
    chosen = found.best_estimator_
    assert (chosen.noise, chosen.alpha_scale, chosen.max_iter, chosen.tol) == ("laplace", 0.3, 88, 1e-5)
    assert (learner.noise, learner.max_iter) == ("normal", 77)
    assert clone(found).get_params()["learner__max_iter"] == 77


def test_comparisons_stay_in_every_training_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    from closefar.learners import trials

    seen = []

    def watched(fitted: Any, test: Any) -> Any:
        seen.append((fitted.judgements.comparisons, len(test)))
        return score(fitted, test)

    monkeypatch.setattr(trials, "score", watched)
    found = search().fit(PAIRS.tuples, PAIRS.labels, comparisons=(TRIPLETS.tuples, TRIPLETS.labels))
    assert {len(compared) for compared, _ in seen} == {300}
    assert sum(n for _, n in seen) == 300 * len(found.cv_results_["params"])
    assert found.fit_.statistics.n_comparisons == 300


def test_annotators_are_scored_by_their_own_strictness() -> None:
    by_people = search().fit(ANNOTATED.tuples, ANNOTATED.labels, annotators=ANNOTATED.annotators)
    pooled = search().fit(ANNOTATED.tuples, ANNOTATED.labels)
    assert by_people.best_score_ > pooled.best_score_ + 0.01
    assert by_people.annotators_.names == tuple(ANNOTATED.panel.names)


@pytest.mark.parametrize(
    ("learner", "options", "message"),
    [
        (cf.LinearMetricLearnerCV(), {}, "learner must be a LinearMetricLearner, an OrdinalMetricLearner or"),
        (
            cf.ComparisonMetricLearner(),
            {"fit_origin": True},
            "fit_origin is not a parameter of ComparisonMetricLearner",
        ),
    ],
)
def test_a_search_says_which_learners_it_takes(learner: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        search(learner, **options).fit(TRIPLETS.tuples, TRIPLETS.labels)


def test_a_level_that_a_split_lacks_is_named() -> None:
    levels = np.where(np.arange(300) < 2, 2, np.arange(300) % 2)
    learner = cf.LinearMetricLearnerCV(
        [0.01], cv=[(np.arange(2, 200), np.arange(200, 300))], learner=cf.OrdinalMetricLearner()
    )
    with pytest.raises(ValueError, match=r"every level and test on a pair; split 0 trains on 99 of 0, 99 of 1, 0 of 2"):
        learner.fit(PAIRS.tuples, levels)
    with pytest.raises(ValueError, match="annotators belong to pairs, not to comparisons"):
        search(cf.ComparisonMetricLearner()).fit(TRIPLETS.tuples, TRIPLETS.labels, annotators=np.zeros(300))


@pytest.mark.parametrize("kind", ["levels", "triplets"])
def test_the_penalty_of_many_columns_is_chosen_on_held_out_judgements(kind: str) -> None:
    data = simulated(kind, 500, 64)
    learner = (cf.OrdinalMetricLearner if kind == "levels" else cf.ComparisonMetricLearner)(alpha="auto")
    learner.fit(data.tuples, data.labels)
    choice = learner.penalty_choice_
    assert choice.n_held_out >= 100
    assert learner.alpha_ == choice.alpha > 0
    assert min(row.loss for row in choice.table) < (np.log(5) if kind == "levels" else np.log(2))


def test_the_light_penalty_counts_pairs_and_comparisons() -> None:
    pairs, triplets = cf.Tuples(PAIRS.points, PAIRS.index[:40]), cf.Tuples(TRIPLETS.points, TRIPLETS.index[:60])
    learner = cf.LinearMetricLearner(alpha="auto")
    learner.fit(pairs, PAIRS.labels[:40], comparisons=(triplets, TRIPLETS.labels[:60]))
    assert round(learner.alpha_, 12) in (0.01, 0.02)  # 0.1 or 0.2 over the root of a hundred


# The rank


@pytest.mark.parametrize("kind", ["levels", "quadruplets"])
def test_the_rank_of_the_truth_is_chosen(kind: str) -> None:
    data = simulated(kind, 1500)
    learner = (cf.OrdinalMetricLearner if kind == "levels" else cf.ComparisonMetricLearner)()
    choice = cf.choose_rank(learner, data.tuples, data.labels)
    assert choice.rank == 2
    auto = clone(learner).set_params(rank="auto").fit(data.tuples, data.labels)
    assert auto.rank_choice_.table == choice.table
    assert auto.metric_.rank == 2


def test_ranks_of_mixes_and_annotators_are_scored_on_pairs() -> None:
    mixed = cf.choose_rank(
        cf.LinearMetricLearner(), PAIRS.tuples, PAIRS.labels, comparisons=(TRIPLETS.tuples, TRIPLETS.labels)
    )
    assert mixed.rank == 2
    own = cf.choose_rank(cf.LinearMetricLearner(), ANNOTATED.tuples, ANNOTATED.labels, annotators=ANNOTATED.annotators)
    pooled = cf.choose_rank(cf.LinearMetricLearner(), ANNOTATED.tuples, ANNOTATED.labels)
    assert min(row.loss for row in own.table) < min(row.loss for row in pooled.table)


def judged(kind: str) -> Judgements:
    if kind == "levels":
        return cf.OrdinalMetricLearner().read(LEVELS.tuples, LEVELS.labels)
    if kind == "triplets":
        return cf.ComparisonMetricLearner().read(TRIPLETS.tuples, TRIPLETS.labels)
    return cf.LinearMetricLearner().read(PAIRS.tuples, PAIRS.labels, comparisons=(TRIPLETS.tuples, TRIPLETS.labels))


@pytest.mark.parametrize("kind", ["levels", "triplets", "mixed"])
@pytest.mark.parametrize("scale", ["data", "units"])
def test_a_refit_within_directions_is_the_best_there(kind: str, scale: str) -> None:
    """As good as a fit to the points in these directions alone."""
    judgements, settings = judged(kind), Settings(tol=1e-9)
    whole = Scorer.of(fit(judgements, settings))
    directions = whole.metric.directions(scale)
    best = refit_leading(judgements, settings, whole, directions, 1)
    kept = directions.columns[:, :1]

    def within(data: cf.Tuples) -> cf.Tuples:
        return cf.Tuples(data.points @ kept, data.index)

    compared = judgements.comparisons
    alone = judgements.with_data(within(judgements.data))
    if compared is not None:
        from dataclasses import replace

        alone = replace(alone, comparisons=compared.with_data(within(compared.data)))
    expected = fit(alone, settings)
    assert best.whole_loss(judgements) == pytest.approx(expected.certificate.loss, abs=1e-6)
    assert best.metric.thresholds == pytest.approx(expected.thresholds, rel=1e-3)
    assert best.metric.rank == 1


@pytest.mark.parametrize("kind", ["levels", "triplets", "mixed"])
def test_what_truncation_costs_is_bounded(kind: str) -> None:
    judgements = judged(kind)
    learner = {"levels": cf.OrdinalMetricLearner, "triplets": cf.ComparisonMetricLearner}.get(
        kind, cf.LinearMetricLearner
    )
    found = learner().fit_to(judgements)
    path = found.truncation_path()
    assert len(path) == found.metric_.rank + 1
    for step in path:
        assert step.lost <= step.bound + 1e-12 <= step.guarantee + 1e-9
        assert step.metric.thresholds == found.metric_.thresholds
    assert path[-1].loss == pytest.approx(score(found.fit_, judgements).loss)
    if kind != "mixed":
        assert path[-1].loss == pytest.approx(found.certificate_.loss, abs=1e-9)
        assert all(step.refit_loss <= step.loss + 1e-6 for step in path)


def test_without_directions_levels_are_as_frequent_as_they_are() -> None:
    rng = np.random.default_rng(0)
    levels = rng.choice(4, 1000, p=[0.6, 0.2, 0.15, 0.05])
    judgements = cf.OrdinalMetricLearner().read(rng.normal(size=(1000, 2)), levels)
    metric = cf.Metric.from_matrix(np.eye(2), [1.0, 2.0, 3.0])
    nothing = refit_leading(judgements, Settings(), Scorer(metric), metric.directions(), 0)
    shares = np.bincount(levels) / 1000
    np.testing.assert_allclose(nothing.metric.probabilities(np.zeros((1, 2)))[0], shares, atol=1e-9)
    # A threshold is at least zero, so that the closest level has at least half; the others keep their ratios.
    turned = refit_leading(
        cf.OrdinalMetricLearner().read(rng.normal(size=(1000, 2)), 3 - levels),
        Settings(),
        Scorer(metric),
        metric.directions(),
        0,
    )
    found = turned.metric.probabilities(np.zeros((1, 2)))[0]
    assert found[0] == pytest.approx(0.5)
    np.testing.assert_allclose(found[1:] / found[1:].sum(), shares[::-1][1:] / shares[::-1][1:].sum(), atol=1e-9)


def test_few_comparisons_can_not_choose_a_rank() -> None:
    one = cf.ComparisonMetricLearner().read(TRIPLETS.tuples, TRIPLETS.labels).take(np.arange(1))
    with pytest.raises(ValueError, match=r"at least 2 folds and 2 comparisons; got cv=5 and 1 of them"):
        cross_validate_rank(one, Settings())


# The sample size


@pytest.mark.parametrize("kind", ["triplets", "quadruplets", "levels"])
def test_the_errors_of_plans_are_those_of_fits(kind: str) -> None:
    eigenvalues = [1.0, 0.7, 0.5]  # of full rank: otherwise it depends on the rank that a pilot happens to find
    data = cf.datasets.make_judgements(
        10_000, 3, kind=kind, wrong_share=0.1, metric_eigenvalues=eigenvalues, random_state=1
    )
    learner = cf.OrdinalMetricLearner if kind == "levels" else cf.ComparisonMetricLearner
    truth = data.metric.matrix / np.trace(data.metric.matrix)
    planned, found = [], []
    for start in range(0, 10_000, 1000):
        some = slice(start, start + 1000)
        fitted = learner().fit(cf.Tuples(data.points, data.index[some]), data.labels[some])
        planned.append(cf.plan_sample_size(fitted, target_error=0.1, measure="spectral").expected_error(1000))
        matrix = fitted.metric_.matrix / np.trace(fitted.metric_.matrix)
        found.append(np.linalg.norm(matrix - truth, 2) / np.linalg.norm(truth, 2))
    assert np.mean(planned) == pytest.approx(np.mean(found), rel=0.3)


def test_effective_parameters_of_full_rank_are_all_of_them() -> None:
    """If the model is correct: tr(H^-1 V) is the number of free parameters."""
    for kind, learner, n_thresholds in (
        ("levels", cf.OrdinalMetricLearner, 4),
        ("triplets", cf.ComparisonMetricLearner, 0),
    ):
        data = cf.datasets.make_judgements(6000, 3, kind=kind, wrong_share=0.15, random_state=0)
        fitted = learner().fit(data.tuples, data.labels)
        assert fitted.metric_.rank == 3
        plan = cf.plan_sample_size(fitted, target_error=0.01)
        assert plan.n_parameters == pytest.approx(6 + n_thresholds, rel=0.1)
        assert plan.worst_case is None
        noun = "comparisons" if kind == "triplets" else "pairs"
        assert plan.sentence.startswith(f"About {plan.n_pairs:,} {noun} are needed for an expected excess loss of 0.01")
        assert "theorem" not in plan.sentence


def test_pilots_of_mixes_annotators_and_two_flip_rates_are_refused() -> None:
    mixed = cf.LinearMetricLearner().fit(PAIRS.tuples, PAIRS.labels, comparisons=(TRIPLETS.tuples, TRIPLETS.labels))
    people = cf.LinearMetricLearner().fit(ANNOTATED.tuples, ANNOTATED.labels, annotators=ANNOTATED.annotators)
    two = cf.LinearMetricLearner(flip_rate=(0.1, 0.05)).fit(PAIRS.tuples, PAIRS.labels)
    for learner, message in (
        (mixed, "judgements of one kind.* got a fit with comparisons"),
        (people, "got a fit with annotators"),
        (two, re.escape("got a flip rate of 0.1 and 0.05")),
    ):
        with pytest.raises(ValueError, match=message):
            cf.plan_sample_size(learner, target_error=0.01)


def test_a_comparison_costs_as_much_as_two_pairs() -> None:
    rates = plan_run(1000, 5).rates
    pairs, compared = plan_run("2M", 20, rates=rates), plan_run(None, 20, n_comparisons="1M", rates=rates)
    assert compared.seconds == pytest.approx(pairs.seconds, rel=0.3)
    assert compared.memory.data == pairs.memory.data
    assert str(compared).startswith("1,000,000 comparisons x 20 features")
    assert str(plan_run("2M", 20, n_comparisons="1M", rates=rates)).startswith("2,000,000 pairs and 1,000,000 comp")
    with pytest.raises(ValueError, match="a plan needs n_pairs or n_comparisons"):
        plan_run(None, 20, rates=rates)
    with pytest.raises(ValueError, match="comparisons can't be fitted on workers; got n_workers=4"):
        plan_run(None, 20, n_comparisons=1000, n_workers=4, rates=rates)
