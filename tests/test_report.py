"""The dict of a report: its numbers are those of the functions that it names, and each gap has a reason."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import accuracy_score, auc, confusion_matrix, log_loss, roc_auc_score

import closefar as cf
from closefar.report import N_PARTS, Provenance, render, summarize
from closefar.report import facts as sections
from closefar.report.page import _learning_chart
from paper_estimator import PAPER

DATA = cf.datasets.make_pairs(3000, 4, wrong_share=0.1, random_state=7)
PAIRS, LABELS = DATA.pairs[:2000], DATA.labels[:2000]
OTHERS, OTHER_LABELS = DATA.pairs[2000:], DATA.labels[2000:]
DIFFERENCES = PAIRS[:, 0] - PAIRS[:, 1]


@pytest.fixture(scope="module")
def learner() -> cf.LinearMetricLearner:
    return cf.LinearMetricLearner(**PAPER).fit(PAIRS, LABELS)


@pytest.fixture(scope="module")
def facts(learner: cf.LinearMetricLearner) -> dict[str, Any]:
    return summarize(learner)


@pytest.fixture(scope="module")
def other_facts(learner: cf.LinearMetricLearner) -> dict[str, Any]:
    return summarize(learner, OTHERS, OTHER_LABELS)


def _small(n: int = 300, **parameters: Any) -> cf.LinearMetricLearner:
    return cf.LinearMetricLearner(**{**PAPER, **parameters}).fit(PAIRS[:n], LABELS[:n])


def test_other_pairs_agree_with_scikit_learn(learner: cf.LinearMetricLearner, other_facts: dict[str, Any]) -> None:
    predicted, quality = learner.predict(OTHERS), other_facts["quality"]
    assert other_facts["pairs"]["source"] == "given"
    assert quality["accuracy"] == accuracy_score(OTHER_LABELS, predicted)
    assert quality["confusion"] == {"labels": ["-1", "1"], "counts": confusion_matrix(OTHER_LABELS, predicted).tolist()}
    assert quality["auc"] == pytest.approx(roc_auc_score(OTHER_LABELS, learner.decision_function(OTHERS)), abs=1e-14)
    assert quality["loss"] == pytest.approx(log_loss(OTHER_LABELS, learner.predict_proba(OTHERS)), rel=1e-9)
    assert quality["accuracy_low"] < quality["accuracy"] < quality["accuracy_high"]
    (roc,) = other_facts["roc"]["curves"]
    assert auc(roc["false_far"], roc["true_far"]) == pytest.approx(quality["auc"], abs=1e-3)
    close_right, far_right = np.diag(confusion_matrix(OTHER_LABELS, predicted, normalize="true"))
    assert roc["at_threshold"] == pytest.approx({"false_far": 1.0 - close_right, "true_far": far_right})


def test_ties_count_half_in_the_roc() -> None:
    z = np.repeat([[0.0], [1.0], [2.0]], 40, axis=0)
    labels = np.array([-1] * 40 + [-1, 1] * 20 + [1] * 30 + [-1] * 10)
    learner = cf.LinearMetricLearner(**PAPER).fit(z, labels)
    found = summarize(learner, z[::2], labels[::2])["quality"]["auc"]
    assert found == pytest.approx(roc_auc_score(labels[::2], z[::2, 0]))
    assert found < 1.0


def test_a_weight_of_two_is_the_pair_twice(learner: cf.LinearMetricLearner) -> None:
    weights = np.arange(len(OTHERS)) % 3
    rows = np.repeat(np.arange(len(OTHERS)), weights)
    weighted = summarize(learner, OTHERS, OTHER_LABELS, weights)
    repeated = summarize(learner, OTHERS[rows], OTHER_LABELS[rows])
    assert weighted["pairs"]["weighted"]
    for name in ("accuracy", "auc", "loss", "shares"):
        assert weighted["quality"][name] == pytest.approx(repeated["quality"][name])
    assert weighted["quality"]["confusion"] == repeated["quality"]["confusion"]
    bars = [part["distances"]["rows"][1]["counts"] for part in (weighted, repeated)]
    assert bars[0] == pytest.approx(bars[1], abs=60)
    assert sum(bars[0]) == pytest.approx(sum(bars[1]))
    assert weighted["wrong_labels"]["share"] == pytest.approx(repeated["wrong_labels"]["share"])


def test_pairs_of_the_fit_are_judged_by_fits_that_have_not_seen_them(facts: dict[str, Any]) -> None:
    seed = int(np.random.RandomState(0).randint(2**31))
    plain = cf.LinearMetricLearner(flip_rate=1e-12, alpha=0.0)  # given, so that none is estimated
    unseen = cf.find_label_errors(plain, PAIRS, LABELS, method="out-of-fold", random_state=seed)
    assert facts["pairs"]["source"] == "out-of-fold"
    assert facts["quality"]["accuracy"] == np.mean(~unseen.contradicts)
    errors = cf.find_label_errors(cf.LinearMetricLearner(**PAPER), PAIRS, LABELS, random_state=seed)
    wrong = facts["wrong_labels"]
    assert (wrong["share"], wrong["share_low"], wrong["share_high"]) == (
        errors.share,
        errors.share_low,
        errors.share_high,
    )
    assert [row["row"] for row in wrong["rows"]] == errors.order[:25].tolist()
    assert wrong["rows"][0]["margin"] == errors.margin[errors.order[0]]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_where_the_model_is_doubted_labels_contradict_and_are_not_wrong() -> None:
    rng = np.random.default_rng(0)
    z = rng.standard_normal((600, 3))
    labels = np.where(np.abs(z[:, 0] * z[:, 1]) + 0.3 * rng.logistic(size=600) > 0.5, 1, -1)
    facts = summarize(cf.LinearMetricLearner(**PAPER).fit(z, labels))
    wrong = facts["wrong_labels"]
    assert wrong["kind"] == "contradiction"
    assert "explains too little" in wrong["doubt"]
    assert f"can't be told: {wrong['doubt']}." in wrong["reading"]
    assert "How many labels are wrong can't be estimated" in facts["sentence"]
    assert all(row["probability_wrong"] is None for row in wrong["rows"])


def test_labels_that_mean_nothing_are_not_agreed_with() -> None:
    rng = np.random.default_rng(3)
    z, labels = rng.normal(size=(120, 10)), rng.permutation([-1, 1] * 60)
    learner = cf.LinearMetricLearner(alpha=1e-3, prior="zero", flip_rate=0.0).fit(z, labels)
    assert learner.fit_statistics_.accuracy > 0.7
    assert 0.4 < summarize(learner)["quality"]["accuracy"] < 0.6


def test_pairs_of_the_fit_are_known_when_given(learner: cf.LinearMetricLearner, facts: dict[str, Any]) -> None:
    assert summarize(learner, PAIRS, LABELS) == facts
    assert summarize(pickle.loads(pickle.dumps(learner)), PAIRS, LABELS) == facts


def test_a_learner_without_its_pairs_needs_some(learner: cf.LinearMetricLearner, other_facts: dict[str, Any]) -> None:
    bare = pickle.loads(pickle.dumps(learner))
    with pytest.raises(ValueError, match=r"without its training pairs. Pass pairs and labels"):
        summarize(bare)
    found = summarize(bare, OTHERS, OTHER_LABELS)
    assert found["quality"] == other_facts["quality"]
    assert "pairs of the fit" in found["intervals"]["reason"]
    assert other_facts["intervals"]["reason"] is None
    assert found["learning_curve"]["n_pool"] == len(OTHERS)
    assert other_facts["learning_curve"]["n_pool"] == len(PAIRS)


@pytest.fixture(scope="module")
def chosen() -> cf.LinearMetricLearner:
    return cf.LinearMetricLearner().fit(PAIRS[:300], LABELS[:300])


def test_what_was_chosen_and_what_was_tried_is_told(chosen: cf.LinearMetricLearner) -> None:
    facts = summarize(chosen)
    choice, said = facts["choice"], chosen.choice_
    assert choice["sentence"] == said.sentence
    assert len(choice["table"]) == len(said.table)
    page, text = render(facts, "html"), render(facts, "text")
    for words in (page, text):
        assert "Settings that were tried" in words
        assert all(f"{each.loss:.4f}" in words for each in said.table)
    assert said.sentence in " ".join(text.split())
    assert json.loads(render(facts, "json")) == facts


def test_the_plain_distance_is_shown_beside_the_learned_one(chosen: cf.LinearMetricLearner) -> None:
    facts, known = summarize(chosen), chosen.baseline_
    rows = [(row["accuracy"], row["loss"]) for row in facts["baseline"]["rows"]]
    assert rows == [
        (known.majority_accuracy, known.majority_loss),
        (known.plain_accuracy, known.plain_loss),
        (known.learned_accuracy, known.learned_loss),
    ]
    for format in ("html", "text"):
        assert "Compared with the plain distance" in render(facts, format)
        assert f"{known.plain_loss:.4f}" in render(facts, format)


@pytest.mark.parametrize(
    ("gain", "error", "is_plain", "words"),
    [
        (0.1, 0.02, False, "The learned metric is better than the plain distance"),
        (0.1, 0.09, False, "The learned metric is not clearly better than the plain distance"),
        (-0.1, 0.02, False, "The learned metric is not better than the plain distance"),
        (0.0, 0.0, True, "The result is the plain distance itself"),
    ],
)
def test_a_learned_metric_that_is_not_better_is_called_so(
    chosen: cf.LinearMetricLearner, gain: float, error: float, is_plain: bool, words: str
) -> None:
    fit = chosen.fit_
    known = dataclasses.replace(fit.baseline, gain=gain, standard_error=error)
    choice = dataclasses.replace(fit.choice, is_plain=is_plain)
    found = sections._held_out(dataclasses.replace(fit, baseline=known, choice=choice))
    assert found["reading"].startswith(words)


def test_without_a_choice_nothing_is_said_of_one(facts: dict[str, Any]) -> None:
    assert facts["choice"] is facts["baseline"] is None
    for format in ("html", "text"):
        assert "plain distance" not in render(facts, format)


def test_a_flat_learning_curve_and_one_loss_that_is_far_worse_are_drawn() -> None:
    for losses in ([0.5, 0.5, 0.5], [9.0, 0.4, 0.3], [0.0, 0.0, 0.0], [3.0, 0.0, 0.0]):
        rows = [
            {"n_pairs": 100 * 2**step, "accuracy": 1.0, "loss": loss} | {"accuracy_low": 1.0, "accuracy_high": 1.0}
            for step, loss in enumerate(losses)
        ]
        rows = [{**row, "loss_low": row["loss"], "loss_high": 1.1 * row["loss"]} for row in rows]
        drawn = _learning_chart({"rows": rows}, {"noun": "pair", "term": "label"})
        assert "nan" not in drawn
        assert "inf" not in drawn
        places = [float(part.split('"')[0]) for part in drawn.split('cy="')[1:]]
        assert len(places) == 6
        assert all(28.0 <= place <= 158.0 for place in places[:3])
        assert all(204.0 <= place <= 334.0 for place in places[3:])


def test_dict_survives_json_and_names_itself(facts: dict[str, Any], learner: cf.LinearMetricLearner) -> None:
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert json.loads(render(facts, "json")) == facts
    assert facts["certificate"]["gap"] == learner.certificate_.gap
    assert facts["fit"]["wrong_share"] == learner.fit_statistics_.wrong_share
    assert facts["fit"]["summary"] == learner.summary()
    assert facts["matrix"]["raw"] == learner.metric_.matrix.tolist()
    assert f"{facts['quality']['accuracy']:.1%}" in facts["sentence"]


def test_the_same_seed_gives_the_same_report(learner: cf.LinearMetricLearner, facts: dict[str, Any]) -> None:
    assert summarize(learner, random_state=0) == facts
    assert summarize(learner, random_state=1)["quality"] != facts["quality"]


def test_watch_hears_of_each_part() -> None:
    heard: list[str] = []
    summarize(_small(), watch=heard.append)
    assert heard == ["cross-validation", "truncation", "noise check", "learning curve", "intervals"]
    assert len(heard) == N_PARTS


def test_calibration_bins_partition_the_pairs(learner: cf.LinearMetricLearner, other_facts: dict[str, Any]) -> None:
    bins = other_facts["calibration"]["bins"]
    counts = np.array([row["count"] for row in bins])
    assert len(bins) == 10
    assert np.all(np.abs(counts - 100) <= 1)
    predicted, observed = ([row[name] for row in bins] for name in ("predicted", "observed"))
    assert np.average(predicted, weights=counts) == pytest.approx(np.mean(learner.predict_proba(OTHERS)[:, 1]))
    assert np.average(observed, weights=counts) == pytest.approx(np.mean(OTHER_LABELS == 1))
    assert all(row["low"] <= row["observed"] <= row["high"] for row in bins)


def test_equal_probabilities_share_a_bin(learner: cf.LinearMetricLearner) -> None:
    bins = summarize(learner, np.repeat(OTHERS[:1], 40, axis=0), [-1] * 20 + [1] * 20)["calibration"]["bins"]
    assert [(row["count"], row["observed"]) for row in bins] == [(40, 0.5)]


def test_histogram_holds_every_pair_and_says_how_many_are_beyond(
    learner: cf.LinearMetricLearner, other_facts: dict[str, Any]
) -> None:
    part = other_facts["distances"]
    squared = learner.pair_distance(OTHERS) ** 2
    close, far = part["rows"]
    assert (close["label"], far["label"]) == ("-1", "1")
    assert sum(close["counts"]) == close["n"] == np.sum(OTHER_LABELS < 0)
    assert sum(far["counts"]) == far["n"] == np.sum(OTHER_LABELS > 0)
    assert part["beyond"] == np.mean(squared > part["edges"][-1])
    first = (squared < part["edges"][1]) & (OTHER_LABELS < 0)
    assert close["counts"][0] == np.sum(first)
    assert part["thresholds"] == [learner.metric_.threshold]


def test_spectrum_truncation_and_noise_are_the_learners(learner: cf.LinearMetricLearner, facts: dict[str, Any]) -> None:
    rows = facts["spectrum"]["rows"]
    assert [row["value"] for row in rows] == learner.metric_.data_eigenvalues.tolist()
    assert rows[-1]["cumulative"] == pytest.approx(1.0)
    path = learner.truncation_path()
    assert [row["loss"] for row in facts["truncation"]["rows"]] == pytest.approx([step.loss for step in path])
    assert [row["refit_accuracy"] for row in facts["truncation"]["rows"]] == [step.refit_accuracy for step in path]
    check = learner.check_noise_model()
    assert facts["noise_check"]["p_value"] == check.p_value
    assert [row["z"] for row in facts["noise_check"]["bins"]] == [row.z for row in check.bins]


def test_intervals_are_those_of_confidence(learner: cf.LinearMetricLearner, facts: dict[str, Any]) -> None:
    seed = int(np.random.RandomState(0).randint(2**31))
    intervals = cf.confidence(learner, PAIRS, LABELS, random_state=seed)
    part = facts["intervals"]
    assert part["method"] == intervals.method
    assert part["statement"].startswith(intervals.statement)
    assert [(row["low"], row["high"]) for row in part["thresholds"]] == [
        (intervals.threshold.low, intervals.threshold.high)
    ]
    assert [row["high"] for row in part["directions"]] == intervals.directions.high.tolist()
    corner = next(row for row in part["entries"] if (row["left"], row["right"]) == ("x0", "x3"))
    assert corner["low"] == intervals.matrix.low[0, 3]
    assert len(part["entries"]) == 10


def test_what_is_shown_of_the_metric_does_not_depend_on_units(facts: dict[str, Any]) -> None:
    units = np.array([1e-9, 1.0, 1e6, 40.0])
    names = ["length", "width", "mass", "age"]
    frame = pd.DataFrame(DIFFERENCES * units, columns=names)
    other = summarize(cf.LinearMetricLearner(**PAPER).fit(frame, LABELS))
    assert other["directions"]["features"] == names
    for row, same in zip(other["directions"]["rows"][:2], facts["directions"]["rows"], strict=False):
        assert np.sum(np.square(row["loadings"])) == pytest.approx(1.0)
        sign = np.sign(row["loadings"][0] * same["loadings"][0])
        np.testing.assert_allclose(sign * np.array(row["loadings"]), same["loadings"], atol=0.01)
    np.testing.assert_allclose(other["matrix"]["scaled"], facts["matrix"]["scaled"], atol=0.05)
    assert np.abs(np.array(other["matrix"]["raw"])).max() > 1e9


def test_suspicious_pairs_are_named_by_their_ids_though_some_have_no_weight() -> None:
    weights = np.where(np.arange(600) % 2 == 0, 1.0, 0.0)
    learner = cf.LinearMetricLearner(**PAPER).fit(PAIRS[:600], LABELS[:600], sample_weight=weights)
    ids = np.array([[f"a{row}", f"b{row}"] for row in range(600)])
    part = summarize(learner, ids=ids)["wrong_labels"]
    assert part["id_columns"] == 2
    assert len(part["rows"]) == 25
    for row in part["rows"]:
        assert row["row"] % 2 == 0
        assert row["ids"] == [f"a{row['row']}", f"b{row['row']}"]
        assert row["label"] == str(LABELS[row["row"]])
    assert summarize(learner, ids=np.arange(600))["wrong_labels"]["rows"][0]["ids"] == [str(part["rows"][0]["row"])]


def test_labels_of_other_pairs_are_suspicious_where_they_contradict(
    learner: cf.LinearMetricLearner, other_facts: dict[str, Any]
) -> None:
    part = other_facts["wrong_labels"]
    agreement = OTHER_LABELS * learner.decision_function(OTHERS)
    assert part["kind"] == "contradiction"
    assert [row["row"] for row in part["rows"]] == np.argsort(agreement)[:25].tolist()
    assert part["share"] == pytest.approx(1.0 - other_facts["quality"]["accuracy"])
    first = part["rows"][0]
    probability = learner.predict_proba(OTHERS)[first["row"], int(OTHER_LABELS[first["row"]] > 0)]
    assert first["probability_of_label"] == pytest.approx(probability)
    assert first["predicted"] == str(learner.predict(OTHERS)[first["row"]]) != first["label"]
    assert first["squared_distance"] == pytest.approx(learner.pair_distance(OTHERS)[first["row"]] ** 2)


def test_learning_curve_falls_and_says_what_more_pairs_bring(facts: dict[str, Any]) -> None:
    part = facts["learning_curve"]
    sizes = [row["n_pairs"] for row in part["rows"]]
    assert sizes == [200, 400, 800, 1600]
    assert part["rows"][0]["loss"] > part["rows"][-1]["loss"]
    assert all(row["loss_low"] <= row["loss"] <= row["loss_high"] for row in part["rows"])
    assert part["reading"].startswith("From 800 to 1,600 pairs, the loss on unseen labels")


_POINTS = np.random.default_rng(0).normal(5.0, 1.0, size=(400, 2))
_INSIDE = np.where(np.sum((_POINTS - 5.0) ** 2, axis=1) > np.random.default_rng(1).uniform(0.5, 3.0, 400), 1, 0)


@pytest.mark.filterwarnings("ignore:.*not clearly better than:closefar.IdentifiabilityWarning")
@pytest.mark.parametrize(
    ("learner", "part", "reason"),
    [
        (lambda: _small(class_weight="balanced"), "noise_check", "class_weight must be None"),
        (lambda: _small(alpha=0.01), "intervals", None),
        (lambda: _small(flip_rate="estimate"), "intervals", "The estimated flip rate"),
        (
            lambda: cf.LinearMetricLearner(fit_origin=True, **PAPER).fit(_POINTS, _INSIDE),
            "intervals",
            "fit_origin=True",
        ),
        (lambda: _small(alpha=10.0), "wrong_labels", "metric is zero"),
        (lambda: _small(rank=1), "roc", None),
        (lambda: _small(noise="auto", rank="auto"), "noise_check", None),
    ],
    ids=["balanced", "alpha", "flips", "origin", "rank 0", "rank 1", "auto"],
)
def test_what_can_not_be_computed_has_a_reason(learner: Any, part: str, reason: str | None) -> None:
    facts = summarize(learner())
    found = facts[part]["reason"]
    assert found is None if reason is None else reason in found
    assert facts["pairs"]["source"] == "out-of-fold"
    for format in ("html", "text", "json"):
        assert reason is None or reason in " ".join(render(facts, format).split())


def test_separable_labels_give_no_estimate_of_wrong_ones() -> None:
    clean = cf.datasets.make_pairs(20, 2, noise=None, random_state=7)
    with pytest.warns(ConvergenceWarning, match="separable"):
        learner = cf.LinearMetricLearner(**PAPER).fit(clean.pairs, clean.labels)
    facts = summarize(learner)
    assert "can't be estimated" in facts["sentence"]
    assert facts["wrong_labels"]["kind"] == "contradiction"
    assert facts["problems"][0].startswith("Separable")
    assert "gets every label right" in facts["noise_check"]["reason"]
    assert "Not valid" in facts["intervals"]["reason"]


def test_one_pair_of_a_label_is_judged_by_the_fit_itself() -> None:
    labels = np.array([1] + [-1] * 19)
    learner = cf.LinearMetricLearner(alpha=0.1, flip_rate=0.0).fit(DIFFERENCES[:20], labels)
    facts = summarize(learner)
    assert facts["pairs"]["source"] == "in-sample"
    assert "only 1 pair has the rarer label" in facts["pairs"]["words"]


def test_one_pair_of_one_label_will_do(learner: cf.LinearMetricLearner) -> None:
    facts = summarize(pickle.loads(pickle.dumps(learner)), OTHERS[:1], OTHER_LABELS[:1])
    assert "same label" in facts["roc"]["reason"]
    assert facts["learning_curve"]["reason"] == "There are too few pairs for a learning curve: 1."
    assert facts["calibration"]["bins"][0]["count"] == 1
    assert "on the 1 pair given" in facts["pairs"]["words"]


def test_many_pairs_are_sampled_and_the_report_says_so(
    learner: cf.LinearMetricLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sections, "_LIMIT", 1e4)
    monkeypatch.setattr(sections, "_MOST_NUMBERS", 1e3)
    monkeypatch.setattr(sections, "_FEWEST_JUDGED", 500)
    facts = summarize(learner)
    assert facts["pairs"]["n_pairs"] == 500
    assert "a random sample of 500 of the 2,000 pairs" in facts["pairs"]["words"]
    assert facts["truncation"]["n_pairs"] == facts["noise_check"]["n_pairs"] == 500
    assert not facts["truncation"]["refitted"]
    assert facts["learning_curve"]["n_pool"] == 500
    assert "take long" in facts["intervals"]["reason"]
    assert summarize(learner) == facts
    for row in facts["wrong_labels"]["rows"]:
        assert row["label"] == str(LABELS[row["row"]])


def test_many_columns_and_directions_are_cut() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(150, 40)) * np.r_[np.full(35, 1.0), np.full(5, 1e-3)]
    labels = np.where(np.sum(z**2, axis=1) + rng.normal(size=150) > 35, 1, -1)
    learner = cf.LinearMetricLearner(alpha=5.0, flip_rate=0.0).fit(z, labels)
    metric = cf.Metric.from_matrix(np.diag(np.arange(40.0, 0.0, -1.0)), threshold=1.0)
    learner.fit_ = dataclasses.replace(learner.fit_, metric=metric)
    facts = summarize(learner, z[:50], labels[:50])
    assert len(facts["directions"]["features"]) == 30
    assert len(facts["directions"]["rows"]) == 8
    weights = np.arange(40.0, 0.0, -1.0) * np.square(learner.fit_statistics_.column_scales)
    assert facts["matrix"]["columns"] == np.argsort(-weights)[:10].tolist()
    np.testing.assert_allclose(np.diag(facts["matrix"]["scaled"]), np.sort(weights)[:-11:-1])
    assert len(facts["matrix"]["raw"]) == 40
    assert [row["k"] for row in facts["truncation"]["rows"]][:11] == list(range(11))
    assert len(facts["truncation"]["rows"]) <= 21
    html = render(facts, "html")
    assert "The 20 largest are shown" in html
    assert "The first 8 of 40 directions are shown" in html
    assert "The 30 of 40 columns with the largest weights are shown" in html
    assert "The 10 of 40 columns with the largest diagonal entries are shown" in html


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([-1] * 9, "got 9 labels for 10 pairs"),
        ([-1] * 9 + [3], r"of the fit, -1 and 1; 1 of 10 are not, such as 3"),
        (None, "y is None: give one"),
    ],
)
def test_labels_must_be_the_learners(learner: cf.LinearMetricLearner, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        summarize(learner, OTHERS[:10], labels)


def test_ids_must_be_one_or_two_a_pair(learner: cf.LinearMetricLearner) -> None:
    with pytest.raises(ValueError, match=r"shape \(2000,\) or \(2000, 2\), .* got shape \(7,\)"):
        summarize(learner, ids=range(7))


def test_a_learner_must_be_fitted_and_a_format_known(facts: dict[str, Any]) -> None:
    with pytest.raises(NotFittedError):
        summarize(cf.LinearMetricLearner(**PAPER))
    with pytest.raises(ValueError, match=r"format must be one of \['html', 'json', 'text'\]; got 'pdf'"):
        render(facts, "pdf")


@pytest.mark.parametrize("single", [False, True])
def test_code_to_copy_runs(single: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    learner = cf.LinearMetricLearner(fit_origin=True, **PAPER).fit(_POINTS, _INSIDE) if single else _small()
    names: dict[str, Any] = {"learner": learner}
    for step in summarize(learner)["next_steps"]:
        assert step["language"] == "python"
        exec(step["code"], names)
    assert names["metric"] == learner.metric_
    learner.metric_.save("saved.closefar")
    steps = summarize(learner, provenance=Provenance(model="saved.closefar"))["next_steps"]
    exec(steps[0]["code"], {})  # needs no learner where the model has a file


# What is said stays true where a fit is bad


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_labels_made_at_random_are_no_success(seed: int) -> None:
    rng = np.random.default_rng(seed)
    learner = cf.LinearMetricLearner(**PAPER).fit(rng.normal(size=(600, 4)), rng.integers(0, 2, 600))
    facts = summarize(learner)
    assert facts["quality"]["is_chance"]
    assert "not clearly better than chance" in facts["sentence"]
    assert "not clearly better than chance" in facts["problems"][0]
    assert "not clearly better than chance" in facts["wrong_labels"]["reason"]
    assert facts["wrong_labels"]["rows"] == []


def test_class_weights_and_penalties_say_nothing_of_wrong_labels() -> None:
    data = cf.datasets.make_pairs(600, 3, wrong_share=0.1, random_state=2)
    weighted = cf.LinearMetricLearner(class_weight={-1: 5.0, 1: 1.0}, **PAPER).fit(data.pairs, data.labels)
    facts = summarize(weighted)
    assert "Class weights" in facts["wrong_labels"]["reason"]
    assert "can't be estimated" in facts["sentence"]
    assert facts["key_figures"][-1]["note"].endswith("weighted")
    penalised = cf.LinearMetricLearner(alpha=0.1, flip_rate=0.0).fit(data.pairs, data.labels)
    facts = summarize(penalised)
    assert facts["wrong_labels"]["kind"] == "contradiction"
    assert "are wrong" not in facts["sentence"].replace("How many labels are wrong", "")
    assert "alpha" in facts["calibration"]["reading"]


def test_pairs_that_share_points_are_told() -> None:
    data = cf.datasets.make_pairs(300, 3, wrong_share=0.1, random_state=2)
    learner = cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels)
    own = np.arange(600).reshape(300, 2)
    assert "share points" not in summarize(learner, ids=own)["pairs"]["words"]
    assert "share points" in summarize(learner, ids=own // 4)["pairs"]["words"]


@pytest.fixture(scope="module")
def linked() -> tuple[Any, ...]:
    """Pairs of 90 points whose labels depend on a property of each that its columns do not tell."""
    rng = np.random.default_rng(0)
    points, ids = rng.standard_normal((90, 4)), rng.integers(90, size=(700, 2))
    hidden = rng.standard_normal(90)
    squared = (points[ids[:, 0], 0] - points[ids[:, 1], 0]) ** 2
    labels = np.where(squared + 1.5 * hidden[ids].sum(axis=1) + rng.logistic(size=700) > 1.5, 1, -1)
    return cf.LinearMetricLearner(**PAPER).fit(points[ids], labels), points[ids], labels, ids


def test_figures_are_for_new_points_first(linked: tuple[Any, ...]) -> None:
    learner = linked[0]
    facts = summarize(learner)
    independent = summarize(learner, groups=range(700))
    quality, known = facts["quality"], facts["quality"]["known"]
    assert (facts["pairs"]["unseen"], independent["pairs"]["unseen"]) == ("point", "pair")
    assert independent["quality"]["known"] is None
    assert known["accuracy"] == independent["quality"]["accuracy"]
    assert known["n_pairs"] == 700 == independent["pairs"]["n_pairs"] > facts["pairs"]["n_pairs"]
    # All pairs can be suspicious, not only those of points that were left out together.
    rows = [[row["row"] for row in part["wrong_labels"]["rows"]] for part in (facts, independent)]
    assert rows[0] == rows[1] != []
    assert known["accuracy_high"] - known["accuracy_low"] > 1.1 * (
        independent["quality"]["accuracy_high"] - independent["quality"]["accuracy_low"]
    )
    assert "for new pairs of known points (baseline" in facts["sentence"]
    assert "new pairs of known points" in facts["learning_curve"]["reading"]
    names = [item["name"] for item in facts["key_figures"][:2]]
    assert names == ["Accuracy, new points", "Accuracy, known points"]
    for form in ("text", "html", "json"):
        assert "has not seen its points" in " ".join(render(facts, form).split())
    for form in ("text", "html"):
        assert "Accuracy, known points" in render(facts, form)
    assert quality["accuracy_low"] < quality["accuracy"] < quality["accuracy_high"]


def test_points_are_known_by_ids_or_groups(linked: tuple[Any, ...]) -> None:
    learner, pairs, labels, ids = linked
    differences = cf.LinearMetricLearner(**PAPER).fit(pairs[:, 0] - pairs[:, 1], labels)
    assert summarize(differences)["pairs"]["unseen"] == "pair"  # which do not show their points
    by_ids = summarize(differences, ids=ids)
    assert by_ids["pairs"]["unseen"] == "point"
    sessions = summarize(learner, groups=np.arange(700) // 20)
    assert sessions["pairs"]["unseen"] == "group"
    assert sessions["pairs"]["n_pairs"] == 700
    assert "new pairs of known groups" in sessions["sentence"]
    with pytest.raises(ValueError, match=r"groups must hold one group id per pair.*got shape \(3,\)"):
        summarize(learner, groups=[1, 2, 3])


def test_no_fit_that_judges_has_seen_the_points(linked: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    learner, _, _, ids = linked
    seen = []

    def watched(fitted: Any, judgements: Any) -> Any:
        seen.append({*ids[judgements.numbers].ravel().tolist()})
        return refit_part(fitted, judgements)

    refit_part = sections.fitting.refit_part
    monkeypatch.setattr(sections.fitting, "refit_part", watched)
    judged = sections._judge(learner.fit_, learner.fit_.judgements, has_seen=True, seed=0, groups=ids)
    tested = ids[judged.judgements.numbers]
    assert np.all(np.isfinite(judged.scored.margin))
    assert len(np.unique(judged.judgements.numbers)) == len(tested) < 700
    for pair in tested:
        assert any(not {*pair.tolist()} & points for points in seen)


def test_points_that_cannot_be_left_out_are_told() -> None:
    rng = np.random.default_rng(0)
    others = rng.standard_normal((200, 3))
    labels = np.where(others[:, 0] ** 2 + 0.3 * rng.logistic(size=200) > 1, 1, -1)
    star = np.stack([np.zeros((200, 3)), others], axis=1)
    facts = summarize(cf.LinearMetricLearner(**PAPER).fit(star, labels))
    assert facts["pairs"]["unseen"] == "pair"
    assert "too few points can be left out together" in facts["pairs"]["words"]
    assert facts["pairs"]["n_pairs"] == 200


def test_other_pairs_that_share_points_have_wider_intervals(linked: tuple[Any, ...]) -> None:
    pairs, labels = linked[1:3]
    other = cf.LinearMetricLearner(**PAPER).fit(PAIRS, LABELS)
    facts = summarize(other, pairs, labels)
    plain = summarize(other, pairs, labels, groups=range(700))
    assert facts["pairs"]["source"] == plain["pairs"]["source"] == "given"
    assert "They share points" in facts["pairs"]["words"]
    assert facts["quality"]["accuracy"] == plain["quality"]["accuracy"]
    assert facts["quality"]["accuracy_low"] < plain["quality"]["accuracy_low"]


def test_what_is_proven_of_flips_and_of_a_free_origin() -> None:
    data = cf.datasets.make_pairs(600, 3, noise="flips", wrong_share=0.1, random_state=2)
    flipped = cf.LinearMetricLearner(flip_rate=0.1, alpha=0.0).fit(data.pairs, data.labels)
    assert "flipped is held fixed" in summarize(flipped)["certificate"]["words"]
    rng = np.random.default_rng(0)
    points = rng.normal(2.0, 1.0, (400, 2))
    labels = np.sum((points - 2.0) ** 2, axis=1) + rng.logistic(0.0, 0.4, 400) > 1.4
    single = cf.LinearMetricLearner(fit_origin=True, **PAPER).fit(points, labels)
    assert "thousand times the size" in summarize(single)["certificate"]["words"]


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([0.40, 0.50], "rises"),
        ([0.500, 0.498], "likely to gain little"),
        ([0.9, 0.5], "too few to say how much"),
        ([0.60, 0.54, 0.50], "Twice as many pairs should lower it by about half as much again, 0.02"),
        ([0.50, 0.54, 0.50], "too few to say how much"),
    ],
)
def test_the_learning_curve_promises_what_it_can(losses: list[float], words: str) -> None:
    scores = np.array([[[loss, 0.9] for loss in losses]] * 3)
    assert words in sections._learning_reading([100 * 2**index for index in range(len(losses))], scores, "pair")


def test_given_pairs_of_one_label_are_not_judged_by_it() -> None:
    data = cf.datasets.make_pairs(600, 3, wrong_share=0.1, random_state=2)
    learner = cf.LinearMetricLearner(**PAPER).fit(data.pairs, data.labels)
    facts = summarize(learner, data.pairs[data.labels > 0], data.labels[data.labels > 0])
    for part in ("calibration", "truncation"):
        assert facts[part]["reading"].startswith("All of these pairs have the same label")
    assert facts["key_figures"][2] == {"name": "ROC AUC", "value": "none", "note": "nothing to separate"}


def test_distances_by_fits_of_other_scales_are_on_one_scale() -> None:
    """A fit that has M and tau five times as large judges the same; a fit with flips often has."""
    fitted = _small().fit_
    judged = sections._judge(fitted, fitted.judgements, has_seen=True, seed=0)
    tau = fitted.metric.threshold
    squared = judged.squared_distances(tau)
    assert np.array_equal(squared >= tau, judged.scored.margin >= 0)
    assert squared.min() >= 0.0
    scales = np.where(np.arange(300) % 2 == 0, 1.0, 5.0)
    scored = dataclasses.replace(judged.scored, margins=scales[:, None] * judged.scored.margins)
    other = dataclasses.replace(judged, scored=scored, thresholds=scales * judged.thresholds)
    np.testing.assert_allclose(other.squared_distances(tau), squared, rtol=1e-12)
    by_one = sections._judge(fitted, fitted.judgements, has_seen=False, seed=0)
    np.testing.assert_allclose(by_one.squared_distances(tau), fitted.metric.measure(PAIRS[:300]), atol=1e-12)
    without = dataclasses.replace(judged, thresholds=np.zeros(300))
    assert np.array_equal(without.squared_distances(tau), np.maximum(judged.scored.margin + tau, 0.0))


def test_the_histogram_shows_the_sides_that_the_reading_counts() -> None:
    data = cf.datasets.make_pairs(1500, 3, noise="flips", wrong_share=0.1, random_state=4)
    learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(data.pairs, data.labels)
    facts = summarize(learner)
    part = facts["distances"]
    edges, (tau,) = np.array(part["edges"]), part["thresholds"]
    counts = [np.array(row["counts"]) for row in part["rows"]]
    for code, where in enumerate((edges[1:] <= tau, edges[:-1] >= tau)):
        share = facts["quality"]["confusion"]["counts"][code]
        right = share[code] / sum(share)
        bars = counts[code]
        at_the_threshold = bars[(edges[:-1] < tau) & (tau < edges[1:])].sum()
        assert bars[where].sum() <= right * sum(share) + 1e-9 <= bars[where].sum() + at_the_threshold + 1e-9
    # Close pairs of a true distance near zero are drawn near zero, however the scale of a fold is.
    squared = learner.pair_distance(data.pairs) ** 2
    expected = np.histogram(np.minimum(squared, edges[-1]), edges)[0]
    assert np.abs(np.cumsum(sum(counts)) - np.cumsum(expected)).max() < 0.05 * 1500
