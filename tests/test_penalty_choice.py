"""alpha="auto" with many columns: the weight and the scale of the penalty are chosen on held-out pairs."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

import closefar as cf
from closefar.cli.app import app
from closefar.fitting import PenaltyChoice, Settings, fit, is_wide, usual_penalty
from closefar.judgements import Judgements
from closefar.rows import Differences, find_coordinates

D = 64


def wide_pairs(n, *, seed=0, whitened=False, n_test=4000, d=D, rank=4):
    """Differences whose variances fall as 1/j along random directions, and labels of a metric of low rank."""
    rng = np.random.default_rng(seed)
    spread = np.arange(1, d + 1) ** -0.5
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    w = rng.standard_normal((n + n_test, d))
    factor = rng.standard_normal((d, rank)) if whitened else spread[:, None] * rng.standard_normal((d, rank))
    squared = np.sum((w @ factor) ** 2, axis=1)
    margin = 6.0 * (squared / np.median(squared) - 1.0)
    labels = np.where(margin + rng.logistic(size=n + n_test) > 0, 1, -1)
    z = (w * spread) @ turn.T
    return z[:n], labels[:n], z[n:], labels[n:]


def fitted(z, labels, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cf.LinearMetricLearner(**({"tol": 1e-4} | parameters)).fit(z, labels)


@pytest.fixture(scope="module")
def data():
    return wide_pairs(1500)


@pytest.fixture(scope="module")
def learner(data):
    return fitted(data[0], data[1], alpha="auto")


def test_columns_are_many_compared_with_the_pairs():
    assert is_wide(1000, 64)
    assert not is_wide(1000, 63)
    assert not is_wide(10 * (64 * 65 // 2 + 1), 64)
    assert not is_wide(10_000, 64, rank=4)


def test_few_columns_keep_the_rule():
    pairs, labels, *_ = cf.datasets.make_pairs(400, 5, rank=2, wrong_share=0.1, random_state=0)
    learner = cf.LinearMetricLearner(alpha="auto").fit(pairs, labels)
    assert learner.alpha_ in (0.1 / 20, 0.2 / 20)
    assert learner.alpha_scale_ == "columns"
    given = cf.LinearMetricLearner(alpha="auto", alpha_scale="data").fit(pairs, labels)
    assert given.alpha_scale_ == "data"
    assert learner.fit_.penalty_choice is None
    with pytest.raises(AttributeError, match='only with alpha="auto" and many columns'):
        _ = learner.penalty_choice_


def test_the_choice_predicts_as_well_as_the_best_of_a_grid(data, learner):
    z, labels, new, new_labels = data
    usual, scales = usual_penalty(Judgements.of_signs(z, labels))
    scores = [
        fitted(z, labels, alpha=multiple * usual, alpha_scale=scale).score(new, new_labels)
        for scale in (*scales, "columns")
        for multiple in (0.5, 1.0, 2.0)
    ]
    assert learner.score(new, new_labels) >= max(scores) - 0.01
    assert learner.score(new, new_labels) > fitted(z, labels).score(new, new_labels) + 0.02


def test_the_choice_is_one_of_the_table_and_every_gap_is_proven(learner):
    choice = learner.penalty_choice_
    assert (learner.alpha_, learner.alpha_scale_) == (choice.alpha, choice.alpha_scale)
    chosen = next(score for score in choice.table if score[:2] == (choice.alpha, choice.alpha_scale))
    lowest = min(score.loss for score in choice.table if score.alpha_scale == choice.alpha_scale)
    assert chosen.excess == pytest.approx(chosen.loss - lowest)
    assert chosen.excess <= chosen.standard_error
    assert choice.n_held_out == 300
    assert not choice.by_point
    assert all(0.0 <= score.gap <= 1e-2 * np.log(2.0) for score in choice.table)
    assert str(choice).count("*") == 1
    assert "held-out loss" in str(choice)


def test_the_final_fit_is_that_of_the_chosen_penalty(data, learner):
    z, labels, new, _ = data
    alone = fitted(z, labels, alpha=learner.alpha_, alpha_scale=learner.alpha_scale_)
    assert learner.certificate_.objective == pytest.approx(alone.certificate_.objective, abs=2e-4)
    assert learner.certificate_.gap <= 1e-4
    chosen = learner.fit_.chosen
    assert (chosen.alpha, chosen.alpha_scale) == (learner.alpha_, learner.alpha_scale_)
    assert np.abs(learner.predict_proba(new) - alone.predict_proba(new)).max() < 0.05


def test_directions_of_little_variance_are_shrunk_only_if_that_predicts_better():
    scales = {}
    for whitened in (False, True):
        z, labels, *_ = wide_pairs(3000, seed=5, whitened=whitened)
        scales[whitened] = fitted(z, labels, alpha="auto").alpha_scale_
    assert scales[False].startswith("units:")
    assert scales[True] == "data"


def test_columns_of_different_units_are_each_shrunk_in_their_own(data):
    z, labels, *_ = data
    units = np.logspace(-3, 3, D)
    left, right = (fitted(z * scale, labels, alpha="auto") for scale in (units, units[::-1] * 7.0))
    assert isinstance(left.alpha_scale_, float)
    assert left.alpha_scale_ == right.alpha_scale_
    assert left.alpha_ == pytest.approx(right.alpha_)
    assert left.certificate_.objective == pytest.approx(right.certificate_.objective, abs=2e-4)


def test_a_scale_that_was_set_is_kept(data):
    z, labels, *_ = data
    learner = fitted(z, labels, alpha="auto", alpha_scale="columns")
    assert learner.alpha_scale_ == "columns"
    assert {score.alpha_scale for score in learner.penalty_choice_.table} == {"columns"}


@pytest.mark.parametrize(
    "parameters",
    [{"rank": 3}, {"shrink_to": "identity"}, {"flip_rate": "estimate"}, {"class_weight": "balanced"}],
    ids=["rank", "identity", "flips", "balanced"],
)
def test_other_settings_combine_with_it(data, parameters):
    z, labels, new, new_labels = data
    learner = fitted(z, labels, alpha="auto", tol=1e-3, **parameters)
    assert learner.alpha_ > 0
    assert learner.score(new, new_labels) > 0.7
    assert learner.metric_.rank <= parameters.get("rank", D)


def test_a_learned_origin_combines_with_it(data):
    z, labels, *_ = data
    learner = fitted(z[:600] + 1.0, labels[:600], alpha="auto", fit_origin=True, tol=1e-2)
    assert learner.penalty_choice_.n_held_out == 120
    assert learner.metric_.origin is not None


def test_weights_count_where_pairs_are_held_out(data):
    z, labels, *_ = data
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(labels))
    once = Judgements.of_signs(z, labels, weights)
    thrice = Judgements.of_signs(z, labels, 3.0 * weights)
    settings = Settings(alpha="auto", tol=1e-3)
    left, right = (fit(judgements, settings).penalty_choice for judgements in (once, thrice))
    assert left.alpha == pytest.approx(right.alpha)
    assert [score.loss for score in left.table] == pytest.approx([score.loss for score in right.table], rel=1e-3)
    even = fit(Judgements.of_signs(z, labels), settings).penalty_choice
    assert left.table[0].loss != pytest.approx(even.table[0].loss, rel=1e-3)


def test_points_are_held_out_if_pairs_share_them():
    rng = np.random.default_rng(1)
    points = rng.standard_normal((200, D)) / np.sqrt(np.arange(1, D + 1))
    index = rng.integers(200, size=(3000, 2))
    index = index[index[:, 0] != index[:, 1]]
    squared = np.sum((points[index[:, 0], :3] - points[index[:, 1], :3]) ** 2, axis=1)
    labels = np.where(squared + 0.3 * rng.logistic(size=len(index)) > np.median(squared), 1, -1)
    choices = [
        fitted(pairs, labels, alpha="auto").penalty_choice_ for pairs in (points[index], cf.Tuples(points, index))
    ]
    assert all(choice.by_point for choice in choices)
    assert all(100 <= choice.n_held_out < len(index) // 5 for choice in choices)
    assert all("unseen points" in choice.sentence for choice in choices)


def test_too_few_pairs_to_hold_some_out_get_the_usual_penalty(data):
    z, labels, *_ = data
    learner = fitted(z[:80], labels[:80], alpha="auto")
    choice = learner.penalty_choice_
    assert choice.table == ()
    assert choice.alpha == pytest.approx(0.3 * np.sqrt(D / 80))
    assert "rule of thumb" in " ".join(learner.summary().split())
    assert str(choice) == choice.sentence


def test_the_summary_names_what_was_chosen(learner):
    text = " ".join(learner.summary().split())
    assert f"({learner.alpha_scale_})" in text
    assert f"alpha_scale='{learner.alpha_scale_}' by the loss of 300 held-out pairs" in text


@pytest.mark.parametrize("blend", [0.3, 1.0])
def test_coordinates_in_units_are_those_of_the_blend(blend):
    rng = np.random.default_rng(2)
    z = rng.standard_normal((50, 4)) @ rng.standard_normal((4, 4)) * [1.0, 10.0, 0.1, 3.0]
    weights = np.full(50, 0.02)
    moment = z.T @ z / 50
    blended = (1 - blend) * moment + blend * np.trace(moment) / 4 * np.eye(4)
    found = find_coordinates(Differences(z), weights, blend=blend, in_units=True)
    assert np.allclose(found.transform.T @ blended @ found.transform, np.eye(4), atol=1e-10)
    factor = rng.standard_normal((4, 2))
    assert np.allclose(found.to_units(found.from_units(factor)), factor)
    constant = find_coordinates(Differences(np.column_stack([z, np.zeros(50)])), weights, blend=blend, in_units=True)
    assert np.allclose(constant.transform[:4] @ constant.transform[:4].T, found.transform @ found.transform.T)
    assert not np.any(constant.transform[4])


def test_blends_with_units_are_what_they_say():
    assert (Settings(alpha=1.0, alpha_scale="units").blend, Settings(alpha=1.0, alpha_scale="units").in_units) == (
        1,
        True,
    )
    assert Settings(alpha=1.0, alpha_scale="units:0.25").blend == 0.25
    assert not Settings(alpha=1.0, alpha_scale="columns").in_units
    for scale in ("unit", "units:", "units:2", "units:x", True, None, 1.5):
        with pytest.raises(ValueError, match="alpha_scale must be"):
            cf.LinearMetricLearner(alpha=0.1, alpha_scale=scale).fit([[1.0], [2.0], [3.0]], [0, 1, 1])


def test_a_penalty_in_units_follows_a_rotation_but_not_the_unit_of_a_column():
    z, labels, *_ = wide_pairs(300, d=5, rank=2)
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((5, 5)))[0]
    scaled = z * [1.0, 5.0, 1.0, 1.0, 1.0]
    losses = [
        fitted(rows, labels, alpha=0.05, alpha_scale="units:0.5", tol=1e-8).certificate_.objective
        for rows in (z, 3.0 * z @ turn, scaled)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=2e-8)
    assert abs(losses[0] - losses[2]) > 1e-4


def test_a_separating_metric_of_many_columns_predicts():
    """In the scale of the data, in which all directions count the same, it would predict little."""
    z, labels, new, new_labels = wide_pairs(700, seed=7)
    better, plain = fitted(z, labels), fitted(z, labels, alpha_scale="data")
    assert better.certificate_.outcome == plain.certificate_.outcome == "separable"
    assert better.score(z, labels) == 1.0
    assert better.score(new, new_labels) > plain.score(new, new_labels) + 0.02
    assert 'Set alpha="auto"' in better.certificate_.status
    scaled = fitted(z * np.logspace(-2, 2, D), labels)
    assert np.mean(scaled.predict(new * np.logspace(-2, 2, D)) == better.predict(new)) > 0.99


def test_cross_validation_tries_these_scales(data):
    z, labels, *_ = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        searched = cf.LinearMetricLearnerCV(3, cv=2, shrink_to="zero", flip_rate=0.0, tol=1e-3).fit(
            z[:600], labels[:600]
        )
    usual, scales = usual_penalty(Judgements.of_signs(z[:600], labels[:600]))
    assert set(searched.cv_results_["param_alpha_scale"]) == set(scales)
    assert sorted(set(searched.cv_results_["param_alpha"]))[1:] == pytest.approx([usual / 8, usual, 8 * usual])
    assert searched.alpha_scale_.startswith("units:")


def test_the_command_line_chooses_saves_and_shows_it(data, tmp_path):
    z, labels, *_ = data
    names = [f"c{number}" for number in range(D)]
    rows = np.column_stack([z[:600].round(6), labels[:600]])
    table = tmp_path / "points.csv"
    np.savetxt(table, rows, delimiter=",", header=",".join([*names, "label"]), comments="", fmt="%.6g")
    model = tmp_path / "m.closefar"
    options = ["--points", str(table), "--label", "label", "--alpha", "auto", "--tol", "1e-3", "--json"]
    result = CliRunner().invoke(app, ["fit", *options, "--out", str(model)])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["alpha_scale"].startswith("units:")
    from closefar.learners import Model

    restored = Model.load(model).learner()
    assert isinstance(restored.penalty_choice_, PenaltyChoice)
    assert restored.penalty_choice_.table[0].alpha_scale == facts["alpha_scale"]
    assert (restored.alpha_, restored.alpha_scale_) == (facts["alpha"], facts["alpha_scale"])
    assert "--alpha-scale units:" in " ".join(Model.load(model).summary.split())
    wrong = CliRunner().invoke(app, ["fit", *options, "--alpha-scale", "units:3", "--out", str(model)])
    assert wrong.exit_code != 0
    assert "--alpha-scale must be" in wrong.output
