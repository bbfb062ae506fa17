"""What a fit says of its own limits, and the questions that it answers about its training pairs."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import closefar as cf
from closefar.fitting.explain import find_problems
from closefar.questions.goodness_of_fit import Diagnosis, diagnose
from closefar.solve import Outcome
from paper_estimator import PAPER

DATA = cf.datasets.make_pairs(3000, 4, rank=2, wrong_share=0.1, random_state=0)
Z, LABELS = DATA.pairs[:, 0] - DATA.pairs[:, 1], DATA.labels
NAMES = ["length", "width", "mass", "age"]


@pytest.fixture(scope="module")
def learner():
    return cf.LinearMetricLearner(**PAPER).fit(pd.DataFrame(Z, columns=NAMES), LABELS)


def test_a_column_that_does_not_vary_is_named():
    frame = pd.DataFrame(Z, columns=NAMES).assign(colour=0.0)
    with pytest.warns(cf.IdentifiabilityWarning, match=r"column 'colour' does not vary.*Leave a column out"):
        cf.LinearMetricLearner(**PAPER).fit(frame, LABELS)


@pytest.mark.parametrize("parameters", [{}, {"rank": 2}], ids=str)
def test_a_combination_that_does_not_vary_is_named(parameters):
    frame = pd.DataFrame(Z, columns=NAMES).assign(total=1e6 * (Z[:, 0] + Z[:, 2]))
    with pytest.warns(cf.IdentifiabilityWarning, match="a combination of the columns") as caught:
        cf.LinearMetricLearner(**{**PAPER, **parameters}).fit(frame, LABELS)
    (message,) = {str(warning.message) for warning in caught}
    named = message.split(" does not vary")[0]
    assert {name for name in [*NAMES, "total"] if repr(name) in named} == {"length", "mass", "total"}


def counted(is_far):
    """The numbers of pairs that are labelled close and far."""
    return int(np.sum(~is_far)), int(np.sum(is_far))


def test_few_labels_of_a_class_and_few_pairs():
    is_far = np.array([True] * 2 + [False] * 8)
    balance, size = find_problems(NAMES, np.zeros((4, 0)), counted(is_far), 4, penalised=False)
    assert balance.startswith("only 2 of 10 pairs are labelled far, for 4 directions of M.")
    assert size.startswith("there are 10 pairs for 11 parameters")
    assert find_problems(NAMES, np.eye(4)[:, :1], counted(is_far), 4, penalised=True) == []
    other = find_problems(NAMES, np.zeros((4, 0)), counted(~is_far), 4, penalised=False)
    assert other[0].startswith("only 2 of 10 pairs are labelled close, for 4 directions of M. Label more close pairs.")
    assert find_problems(NAMES, np.zeros((4, 0)), counted(np.tile([True, False], 50)), 4, penalised=False) == []


def test_diagnose_prints_facts_and_finds_nothing_in_a_good_fit(learner, capsys):
    diagnosis = learner.diagnose()
    assert diagnosis.problems == ()
    printed = capsys.readouterr().out
    assert printed.strip() == str(diagnosis)
    assert "3000 pairs with 4 columns" in printed
    assert "No problems found." in printed


def test_diagnose_finds_flips_and_separable_labels(capsys):
    flipped = cf.datasets.make_pairs(8000, 4, rank=2, noise="flips", wrong_share=0.1, random_state=1)
    problems = cf.LinearMetricLearner(**PAPER).fit(flipped.pairs, flipped.labels).diagnose().problems
    assert any("flip_rate" in problem for problem in problems)
    with pytest.warns(ConvergenceWarning, match="separable"):
        few = cf.LinearMetricLearner(**PAPER).fit(Z[:30], DATA.true_labels[:30])
    assert few.diagnose().problems[0].startswith("separable")
    capsys.readouterr()


def test_questions_about_the_training_pairs(learner):
    path, check = learner.truncation_path(), learner.check_noise_model()
    assert len(path) == learner.metric_.rank + 1
    assert path[len(path) - 1].loss == pytest.approx(learner.certificate_.loss, abs=1e-9)
    again = learner.truncation_path(
        pd.DataFrame(Z, columns=NAMES), LABELS, held_out=(pd.DataFrame(Z, columns=NAMES), LABELS)
    )
    assert again[1].loss == path[1].loss == pytest.approx(again[1].held_out_loss)
    assert 0.0 <= check.p_value <= 1.0
    assert learner.check_noise_model(pd.DataFrame(Z, columns=NAMES), LABELS) == check


def test_a_copy_has_no_training_pairs(learner):
    copy = pickle.loads(pickle.dumps(learner))
    assert len(pickle.dumps(learner)) < Z.nbytes / 2
    np.testing.assert_array_equal(
        copy.predict(pd.DataFrame(Z, columns=NAMES)), learner.predict(pd.DataFrame(Z, columns=NAMES))
    )
    with pytest.raises(ValueError, match="Pass pairs and labels"):
        copy.check_noise_model()


@pytest.mark.filterwarnings("ignore:.*not clearly better than:closefar.IdentifiabilityWarning")
def test_noise_is_chosen_by_likelihood():
    data = cf.datasets.make_pairs(20_000, 3, noise="laplace", wrong_share=0.2, random_state=2)
    learner = cf.LinearMetricLearner("auto", **PAPER).fit(data.pairs, data.labels)
    losses = {
        name: cf.LinearMetricLearner(name, **PAPER).fit(data.pairs, data.labels).certificate_.loss
        for name in cf.noise.NOISES
    }
    assert learner.metric_.noise.name == min(losses, key=losses.get) == "laplace"
    assert {name: row["loss"] for name, row in learner.noise_comparison_.items()} == pytest.approx(losses, abs=1e-9)


def test_noises_that_look_alike_are_told():
    with pytest.warns(cf.IdentifiabilityWarning, match="not clearly better than"):
        cf.LinearMetricLearner("auto", **PAPER).fit(Z[:500], LABELS[:500])


def test_rank_is_chosen_and_kept():
    learner = cf.LinearMetricLearner(rank="auto", **PAPER).fit(Z, LABELS)
    assert learner.rank_ == learner.choice_.rank == learner.metric_.rank == 2
    assert cf.LinearMetricLearner(rank=3, **PAPER).fit(Z, LABELS).rank_ == 3


def test_metric_knows_the_scale_of_the_data(learner):
    metric = learner.metric_
    assert np.sum(metric.data_eigenvalues) == pytest.approx(np.mean(metric.squared_distance(Z)), rel=1e-9)
    units = 10.0 ** np.arange(-6, 6, 3)
    other = cf.LinearMetricLearner(**PAPER).fit(Z * units, LABELS).metric_.truncate(2)
    np.testing.assert_allclose(other.margin(Z * units), metric.truncate(2).margin(Z), rtol=1e-6, atol=1e-6)
    columns = cf.LinearMetricLearner(alpha=0.01, prior="standardized", flip_rate=0.0).fit(Z, LABELS).metric_
    assert np.sum(columns.data_eigenvalues) == pytest.approx(np.mean(columns.squared_distance(Z)), rel=1e-9)


def test_noise_is_chosen_on_held_out_pairs_under_a_penalty():
    learner = cf.LinearMetricLearner("auto").fit(Z, LABELS)
    assert {each.noise for each in learner.choice_.table} == set(cf.noise.NOISES)
    assert learner.choice_.noise == learner.metric_.noise.name
    assert not hasattr(learner, "noise_comparison_")


@pytest.mark.filterwarnings("ignore:.*not clearly better than:closefar.IdentifiabilityWarning")
def test_nothing_is_left_of_an_earlier_fit():
    learner = cf.LinearMetricLearner("auto", **PAPER).fit(Z, LABELS)
    assert learner.noise_comparison_
    learner.set_params(noise="logistic", rank="auto").fit(Z, LABELS)
    assert not hasattr(learner, "noise_comparison_")
    assert learner.choice_
    learner.set_params(rank=None).fit(Z, LABELS)
    assert not hasattr(learner, "noise_comparison_")
    assert not hasattr(learner, "choice_")


def test_class_weights_count_in_the_truncation_path():
    learner = cf.LinearMetricLearner(class_weight={-1: 5.0, 1: 1.0}, **PAPER).fit(Z, LABELS)
    path = learner.truncation_path()
    assert path[len(path) - 1].loss == pytest.approx(learner.certificate_.loss, abs=1e-9)
    assert all(step.refit_loss >= learner.certificate_.loss - 1e-6 for step in path[1:])


def test_a_diagnosis_is_given_in_every_case(learner, capsys):
    assert "has no training pairs" in pickle.loads(pickle.dumps(learner)).diagnose().problems[-1]
    chosen = cf.LinearMetricLearner().fit(Z, LABELS)
    assert chosen.alpha_ > 0
    assert chosen.diagnose().problems == ()
    assert len(chosen.truncation_path()) == chosen.metric_.rank + 1
    capsys.readouterr()


def test_what_is_set_already_is_not_advised(capsys):
    """The default chooses a penalty and flips, so nobody is told to."""
    flipped = cf.datasets.make_pairs(3000, 4, rank=2, noise="flips", wrong_share=0.1, random_state=1)
    few = cf.LinearMetricLearner().fit(Z[:30], DATA.true_labels[:30])
    estimated = cf.LinearMetricLearner(flip_rate="estimate").fit(flipped.pairs, flipped.labels)
    for learner in (cf.LinearMetricLearner().fit(flipped.pairs, flipped.labels), few, estimated):
        said = " ".join([*learner.diagnose().problems, *learner.data_problems, learner.summary()])
        assert 'alpha="auto"' not in said
        assert "flip_rate='estimate'" not in said
    capsys.readouterr()


def test_many_combinations_are_counted():
    problems = find_problems([f"x{i}" for i in range(9)], np.eye(9)[:, :7], counted(np.tile([True, False], 50)), 2)
    assert len(problems) == 4
    assert problems[-1].startswith("4 more combinations of columns do not vary")


def test_a_limited_rank_and_an_origin_change_the_number_of_unknowns():
    is_far = np.tile([True, False], 20)
    assert find_problems([], np.zeros((20, 0)), counted(is_far), 20, rank=1) == []
    (problem,) = find_problems([], np.zeros((20, 0)), counted(is_far), 20, rank=1, has_origin=True)
    assert problem.startswith("there are 40 pairs for 41 parameters")


def test_a_metric_of_zero_is_told_with_advice(capsys):
    pairs, labels, *_ = cf.datasets.make_pairs(300, 3, random_state=0)
    (problem,) = cf.LinearMetricLearner(alpha=100.0, prior="zero", flip_rate=0.0).fit(pairs, labels).diagnose().problems
    assert problem == "M is zero: no direction separates close from far. Lower alpha."
    assert problem in capsys.readouterr().out


@pytest.mark.parametrize(
    ("alpha", "advice"), [(0.0, "Check the labels, and which label means far."), (1e-3, "Lower alpha.")]
)
def test_a_metric_of_zero_is_blamed_on_the_penalty_where_there_is_one(learner, alpha, advice):
    settings = learner.fit_.settings.but(alpha=alpha)
    zero = replace(learner.fit_, metric=cf.Metric(np.zeros((4, 0)), 1.0), settings=settings, known=settings)
    assert diagnose(zero).problems == (f"M is zero: no direction separates close from far. {advice}",)


@pytest.mark.parametrize(("share_far", "majority"), [(0.3, "70.0%"), (0.9, "90.0%")])
def test_facts_are_the_figures_of_the_fit(learner, share_far, majority):
    statistics = replace(learner.fit_.statistics, share_far=share_far, accuracy=0.8125, wrong_share=0.25)
    first, second, third, _ = Diagnosis.of(replace(learner.fit_, statistics=statistics), []).facts
    assert first == f"3000 pairs with 4 columns, {share_far:.1%} labelled far."
    assert second == (
        f"The metric has rank {learner.metric_.rank} and a training accuracy of 81.2% (majority baseline {majority})."
    )
    assert third == "The model estimates that 25.0% of the labels are wrong."


@pytest.mark.parametrize(
    ("converged", "outcome", "is_good"),
    [
        (True, Outcome.CONVERGED, True),
        (True, Outcome.SEPARABLE, False),
        (False, Outcome.UNFINISHED, False),
        (False, Outcome.SEPARABLE, False),
    ],
)
def test_how_the_fit_ended_comes_first_unless_it_ended_well(learner, converged, outcome, is_good):
    certificate = replace(learner.certificate_, converged=converged, outcome=outcome, advice="Do something.")
    diagnosis = Diagnosis.of(replace(learner.fit_, certificate=certificate), ["One.", "Two."])
    assert diagnosis.problems == (() if is_good else (f"{outcome}: Do something.",)) + ("One.", "Two.")
    assert str(diagnosis).splitlines()[5:] == [f"* {problem}" for problem in diagnosis.problems]
    assert repr(diagnosis) == f"Diagnosis({len(diagnosis.problems)} problems)"


@pytest.mark.parametrize(
    ("uncertain", "meaning"),
    [
        (110.0, "enough for intervals"),
        (109.0, "are approximate"),
        (44.0, "are approximate"),
        (43.0, "too few for intervals"),
    ],
)
def test_uncertain_labels_are_counted(learner, uncertain, meaning):
    statistics = replace(learner.fit_.statistics, uncertain_labels=uncertain, n_parameters=11)
    fact = Diagnosis.of(replace(learner.fit_, statistics=statistics), []).facts[3]
    assert fact.startswith(f"{uncertain / 11:.1f} uncertain labels per parameter ({uncertain:.0f} for 11 parameters), ")
    assert meaning in fact
