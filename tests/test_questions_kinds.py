"""Questions about single labels, the noise and the certainty of a fit, asked of every kind of judgement."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm

import closefar as cf
from closefar import packed
from closefar.fitting import score
from closefar.model import Scores
from closefar.noise import NOISES
from closefar.questions.dependence import Dependence
from closefar.questions.intervals import Observed, sandwich
from closefar.questions.label_errors import Verdicts
from paper_estimator import PAPER

# In samples as small as these, two flip rates are estimated roughly.
pytestmark = pytest.mark.filterwarnings("ignore:the labels hardly determine the two flip rates")

D = 3
TRUE = np.array([[1.2, 0.4, 0.0], [0.4, 0.9, -0.2], [0.0, -0.2, 0.6]])
TAUS = np.array([1.0, 2.5, 5.0])


def squared(z):
    return np.einsum("ij,jk,ik->i", z, TRUE, z)


class Sample:
    """Pairs with levels and labels, triplets with answers, and annotators with a strictness each."""

    def __init__(self, n, seed, noise="logistic"):
        rng = np.random.default_rng(seed)
        is_gross = rng.uniform(size=n) < (0.12 if noise == "gross" else 0.0)

        def draw(size):
            return np.where(is_gross, 30.0 * rng.choice([-1, 1], size), rng.logistic(size=size))

        self.z = rng.standard_normal((n, D))
        self.squared = squared(self.z)
        self.felt = self.squared + draw(size=n)
        self.levels = np.searchsorted(TAUS, self.felt)
        self.far = self.felt > TAUS[1]
        self.triplets = rng.standard_normal((n, 3, D)) / np.sqrt(2.0)
        legs = self.triplets[:, :1] - self.triplets[:, 1:]
        self.margin = squared(legs[:, 1]) - squared(legs[:, 0])
        self.answers = np.where(self.margin + draw(size=n) > 0, 1, -1)
        self.who = rng.integers(8, size=n)
        self.strictness = 0.8 * rng.standard_normal(8)
        self.by_who = self.felt - self.strictness[self.who] > TAUS[1]
        self.random = rng.uniform(size=n) < 0.1
        self.rated_at_random = np.where(self.random, rng.integers(4, size=n), self.levels)


SAMPLE = Sample(1500, seed=2)


def fits(data, tol=1e-9):
    """A fit of each kind, by its name."""
    half = slice(len(data.z) // 2)
    compared = data.triplets[half], data.answers[half]
    flipped = np.where(data.far, np.roll(data.random, 5) < 0.5, data.random)
    return {
        "levels": lambda: cf.OrdinalMetricLearner(tol=tol, **PAPER).fit(data.z, data.levels),
        "comparisons": lambda: cf.ComparisonMetricLearner(tol=tol, **PAPER).fit(data.triplets, data.answers),
        "annotators": lambda: cf.LinearMetricLearner(tol=tol, **PAPER).fit(data.z, data.by_who, annotators=data.who),
        "mixed": lambda: cf.LinearMetricLearner(tol=tol, **PAPER).fit(
            data.z[half], data.far[half], comparisons=compared
        ),
        "rated and compared": lambda: cf.OrdinalMetricLearner(tol=tol, **PAPER).fit(
            data.z[half], data.levels[half], annotators=data.who[half], comparisons=compared
        ),
        "levels at random": lambda: cf.OrdinalMetricLearner(flip_rate="estimate", tol=tol, alpha=0.0).fit(
            data.z, data.rated_at_random
        ),
        "two flip rates": lambda: cf.LinearMetricLearner(flip_rate="two", tol=tol, alpha=0.0).fit(data.z, flipped),
    }


KINDS = list(fits(SAMPLE))


@pytest.fixture(scope="module")
def learners():
    return {kind: fit() for kind, fit in fits(SAMPLE).items()}


# The likelihood, and its derivatives


@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_is_that_of_the_fit_which_is_at_its_optimum(kind, learners):
    fit = learners[kind].fit_
    sample = Observed.of(fit, fit.judgements, None)
    terms = sample.likelihood.terms(sample.parameters)
    assert sample.likelihood.shares @ terms.loss == pytest.approx(fit.certificate.loss, rel=1e-9)
    slope = sample.likelihood.gradient(terms, sample.parameters, sample.likelihood.shares)
    np.testing.assert_allclose(slope, 0.0, atol=1e-4)


@pytest.mark.parametrize(
    ("learner", "labels"),
    [
        (cf.LinearMetricLearner(flip_rate=0.1, alpha=0.0), SAMPLE.far),
        (cf.LinearMetricLearner(flip_rate="two", alpha=0.0), SAMPLE.far ^ (SAMPLE.random & ~SAMPLE.far)),
        (cf.OrdinalMetricLearner(flip_rate=0.1, alpha=0.0), SAMPLE.levels),
        (cf.OrdinalMetricLearner(flip_rate="estimate", alpha=0.0), SAMPLE.rated_at_random),
    ],
    ids=["one rate", "two rates", "levels", "levels, estimated"],
)
def test_as_many_answers_to_comparisons_beside_pairs_are_at_random(learner, labels):
    learner.set_params(tol=1e-9)
    fit = learner.fit(SAMPLE.z, labels, comparisons=(SAMPLE.triplets, SAMPLE.answers)).fit_
    compared, share = fit.judgements.comparisons, fit.judgements.comparisons.total_weight / fit.judgements.total_weight
    loss = (1.0 - share) * score(fit, fit.judgements).loss + share * score(fit, compared).loss
    assert loss == pytest.approx(fit.certificate.loss, rel=1e-9)
    sample = Observed.of(fit, fit.judgements, None)
    terms = sample.likelihood.terms(sample.parameters)
    assert sample.likelihood.shares @ terms.loss == pytest.approx(fit.certificate.loss, rel=1e-9)
    found = cf.confidence(learner).probability_as_given(SAMPLE.triplets).estimate
    np.testing.assert_allclose(found, score(fit, fit.judgements.comparisons).probability_far, rtol=1e-9)
    # A comparison turned round is the same comparison.
    turned = SAMPLE.triplets[:, [0, 2, 1]], -SAMPLE.answers
    again = learner.fit(SAMPLE.z, labels, comparisons=turned).fit_
    assert again.certificate.loss == pytest.approx(fit.certificate.loss, rel=1e-8)
    np.testing.assert_allclose(again.flip_rate, fit.flip_rate, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_of_the_likelihood_are_those_of_finite_differences(kind, learners):
    fit = learners[kind].fit_
    sample = Observed.of(fit, fit.judgements, None)
    likelihood, shares = sample.likelihood, sample.likelihood.shares
    start = sample.parameters + 0.01 * np.sin(np.arange(len(sample.parameters)))

    def loss(parameters):
        return likelihood.loss(likelihood.terms(parameters), parameters, shares)

    def gradient(parameters):
        return likelihood.gradient(likelihood.terms(parameters), parameters, shares)

    steps = 1e-5 * np.eye(len(start))
    slopes = [(loss(start + step) - loss(start - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(gradient(start), slopes, atol=1e-8)
    curvatures = [(gradient(start + step) - gradient(start - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(likelihood.information(start, shares), curvatures, rtol=1e-5, atol=1e-7)
    scores = np.vstack([scores for _, scores in likelihood.scores(likelihood.terms(start))])
    prior = likelihood.gradient(likelihood.terms(start), start, 0.0 * shares)
    np.testing.assert_allclose(scores.sum(axis=0) + prior, gradient(start), atol=1e-12)


def test_the_expected_information_is_the_mean_of_squared_scores_over_all_outcomes(learners):
    """With flips the second derivative need not be positive definite; the Fisher information is."""
    fit = learners["levels at random"].fit_
    sample = Observed.of(fit, fit.judgements, None)
    likelihood, far_away = sample.likelihood, sample.parameters.copy()
    far_away[:-1] *= 20.0  # where most ratings can only be random
    expected, n = 0.0, len(sample.repeats)
    for code in range(4):
        other = replace(likelihood, codes=np.full(n, code))
        terms = other.terms(far_away)
        scores = n * np.vstack([scores for _, scores in other.scores(terms)])
        expected = expected + scores.T @ (scores * np.exp(-terms.loss)[:, None]) / n
    observed = likelihood._second(likelihood.terms(far_away), likelihood.shares)
    assert np.linalg.eigvalsh(observed)[0] < 0.0
    np.testing.assert_allclose(likelihood.information(far_away, likelihood.shares), expected, rtol=1e-9, atol=1e-12)


# Confidence


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_contain_the_truth_about_as_often_as_they_say(kind):
    """In standard errors, the errors of M / tr M, of thresholds and of probabilities are about standard normal."""
    errors = []
    for seed in range(8):
        data = Sample(1500, seed=100 + seed)
        learner = fits(data, tol=1e-6)[kind]()
        found = cf.confidence(learner)
        relative = (found.relative_matrix.estimate - TRUE / np.trace(TRUE)) / found.relative_matrix.standard_error
        entries = (found.matrix.estimate - TRUE) / found.matrix.standard_error
        taus = TAUS if len(learner.thresholds_) == 3 else TAUS[1:2][: len(learner.thresholds_)]
        thresholds = (found.thresholds.estimate - taus) / found.thresholds.standard_error
        upper = np.triu_indices(D)
        errors.append(np.concatenate([relative[upper], entries[upper], thresholds]))
    assert 0.6 < np.sqrt(np.mean(np.square(errors))) < 1.45


def test_two_levels_have_the_answers_of_close_and_far():
    two = cf.OrdinalMetricLearner(**PAPER).fit(SAMPLE.z, SAMPLE.far.astype(int))
    plain = cf.LinearMetricLearner(**PAPER).fit(SAMPLE.z, SAMPLE.far)
    found, expected = cf.confidence(two), cf.confidence(plain)
    assert found.statement == expected.statement
    for name in ("low", "high"):
        assert getattr(found.threshold, name) == pytest.approx(getattr(expected.threshold, name), abs=1e-7)
        np.testing.assert_allclose(
            getattr(found.probabilities(SAMPLE.z[:5]), name)[:, 1],
            getattr(expected.probability_far(SAMPLE.z[:5]), name),
            atol=1e-7,
        )
    assert cf.check_noise_model(two).p_value == pytest.approx(cf.check_noise_model(plain).p_value, abs=1e-5)
    errors, others = (
        cf.find_label_errors(learner, SAMPLE.z, labels, random_state=0)
        for learner, labels in ((two, SAMPLE.far.astype(int)), (plain, SAMPLE.far))
    )
    np.testing.assert_allclose(errors.probability, others.probability, atol=1e-6)
    np.testing.assert_array_equal(errors.contradicts, others.contradicts)
    np.testing.assert_array_equal(errors.expected == 1, others.margin >= 0)


def test_probabilities_of_levels_have_the_spread_of_their_parameters(learners):
    learner = learners["levels at random"]
    found = cf.confidence(learner).probabilities(SAMPLE.z[:40])
    np.testing.assert_allclose(found.estimate, learner.predict_proba(SAMPLE.z[:40]), atol=1e-12)
    assert np.all((found.low < found.estimate) & (found.estimate < found.high))
    fit = learner.fit_
    sample = Observed.of(fit, fit.judgements, None)
    root = sandwich(sample.likelihood, sample.parameters, sample.dependence, sample.repeats, D).root
    draws = sample.parameters[:, None] + 0.3 * root @ np.random.default_rng(0).standard_normal((root.shape[1], 4000))
    transform, size = sample.likelihood.moves.basis, D * (D + 1) // 2
    forms = packed.form_gradients(SAMPLE.z[:40] @ transform) @ draws[:size]
    beyond = NOISES["logistic"].cdf(forms[:, None, :] - draws[size : size + 3][None])
    chances = -np.diff(np.concatenate([np.ones((40, 1, 4000)), beyond, np.zeros((40, 1, 4000))], axis=1), axis=1)
    chances = draws[-1] / 3.0 + (1.0 - 4.0 / 3.0 * draws[-1]) * chances
    np.testing.assert_allclose(found.standard_error, chances.std(axis=2) / 0.3, rtol=0.1, atol=1e-4)


def test_comparisons_have_intervals_of_answers_and_no_threshold(learners):
    learner = learners["comparisons"]
    found = cf.confidence(learner)
    assert found.threshold is None
    assert found.thresholds.estimate.shape == (0,)
    assert "threshold" not in found.statement
    answers = found.probability_as_given(SAMPLE.triplets[:30])
    np.testing.assert_allclose(answers.estimate, learner.predict_proba(SAMPLE.triplets[:30])[:, 1])
    assert np.all((answers.low < answers.estimate) & (answers.estimate < answers.high))
    quadruplets = SAMPLE.triplets[:30][:, [0, 1, 0, 2]]
    np.testing.assert_allclose(found.probability_as_given(quadruplets).high, answers.high)
    for refused in (found.probability_far, found.probabilities):
        with pytest.raises(ValueError, match="calibrate_threshold"):
            refused(SAMPLE.z[:2])
    with pytest.raises(ValueError, match="must be triplets"):
        found.probability_as_given(SAMPLE.z)


def test_the_strictness_of_annotators_makes_the_threshold_less_certain(learners):
    learner = learners["annotators"]
    found = cf.confidence(learner)
    pooled = cf.confidence(cf.LinearMetricLearner(**PAPER).fit(SAMPLE.z, SAMPLE.by_who))
    assert found.threshold.standard_error > 2.0 * pooled.threshold.standard_error
    assert "The width of the annotators' strictness is treated as known." in found.statement
    again = cf.confidence(learner, SAMPLE.z, SAMPLE.by_who, annotators=SAMPLE.who)
    assert again.threshold.low == found.threshold.low


def test_flip_rates_of_annotators_leave_only_the_shape_of_the_metric_known():
    learner = cf.LinearMetricLearner(flip_rate="estimate", alpha=0.0).fit(
        SAMPLE.z, SAMPLE.by_who, annotators=SAMPLE.who
    )
    found = cf.confidence(learner)
    assert not found.valid
    assert "only relative_matrix, M / tr M, hardly does" in found.statement
    with pytest.raises(ValueError, match="can't be checked if each annotator has a flip rate"):
        cf.check_noise_model(learner)


@pytest.mark.parametrize("kind", ["levels", "comparisons", "annotators", "mixed"])
def test_a_weight_is_a_number_of_judgements_and_units_do_not_matter(kind):
    data, units = SAMPLE, np.array([1e6, 1.0, 1e-5])
    weights = np.random.default_rng(0).integers(1, 4, size=500)
    z, triplets, answers, who = data.z[:500], data.triplets[:500], data.answers[:500], data.who[:500]

    def fitted(scale, repeats, sample_weight):
        rows = np.repeat(np.arange(500), repeats)
        if kind == "comparisons":
            return cf.ComparisonMetricLearner(tol=1e-9, **PAPER).fit(
                triplets[rows] * scale, answers[rows], sample_weight
            )
        if kind == "levels":
            return cf.OrdinalMetricLearner(tol=1e-9, **PAPER).fit(
                z[rows] * scale, data.levels[:500][rows], sample_weight
            )
        more = {"annotators": who[rows]}
        if kind == "mixed":
            more = {"comparisons": (triplets[rows] * scale, answers[rows], sample_weight)}
        return cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(
            z[rows] * scale, data.by_who[:500][rows], sample_weight, **more
        )

    alone = np.arange(int(weights.sum()) * (2 if kind == "mixed" else 1))
    weighted = fitted(1.0, 1, weights.astype(float))
    found = cf.confidence(weighted, method="sandwich").matrix.standard_error
    repeated = cf.confidence(fitted(1.0, weights, None), method="sandwich", groups=alone).matrix.standard_error
    np.testing.assert_allclose(repeated, found, rtol=1e-6)
    in_units = fitted(units, 1, weights.astype(float))
    scaled = cf.confidence(in_units, method="sandwich").matrix.standard_error * np.outer(units, units)
    np.testing.assert_allclose(scaled, found, rtol=1e-6)
    assert cf.check_noise_model(in_units).p_value == pytest.approx(cf.check_noise_model(weighted).p_value, abs=1e-6)


def test_an_estimated_noise_of_comparisons_is_said_to_be_known():
    compared = {"comparisons": (SAMPLE.triplets, SAMPLE.answers), "comparison_noise": "estimate"}
    learner = cf.LinearMetricLearner(**PAPER).fit(SAMPLE.z, SAMPLE.far, **compared)
    found = cf.confidence(learner)
    assert "The noise of comparisons, which was estimated, is treated as known." in found.statement
    answers = found.probability_as_given(SAMPLE.triplets[:5])
    margin = squared_by(learner, SAMPLE.triplets[:5]) / learner.comparison_noise_.value
    np.testing.assert_allclose(answers.estimate, NOISES["logistic"].cdf(margin))


def squared_by(learner, triplets):
    near, far = (learner.metric_.squared_distance(triplets[:, 0] - triplets[:, k]) for k in (1, 2))
    return far - near


@pytest.mark.parametrize("kind", ["levels", "comparisons", "rated and compared"])
def test_the_jackknife_agrees_with_the_sandwich(kind):
    learner = fits(Sample(900, seed=3), tol=1e-6)[kind]()
    plain = cf.confidence(learner, method="sandwich")
    found = cf.confidence(learner, method="jackknife", random_state=0)
    assert found.method == "jackknife"
    ratio = found.matrix.standard_error / plain.matrix.standard_error
    assert 0.7 < np.median(ratio) < 1.5


# Points that judgements share


@pytest.mark.parametrize("k", [2, 3, 4])
def test_rows_that_share_points_count_once(k):
    rng = np.random.default_rng(0)
    ids, terms = rng.integers(12, size=(60, k)), rng.standard_normal((60, 2))
    shared = np.array([[len({*a} & {*b}) for b in ids] for a in ids])
    np.fill_diagonal(shared, 0)
    sums = Dependence(ids).cross_sums(terms)
    for n_points, found in enumerate(sums, start=1):
        np.testing.assert_allclose(found, terms.T @ (shared == n_points) @ terms, atol=1e-9)


def test_comparisons_of_few_points_have_wider_intervals():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((60, 2))
    index = np.array([rng.choice(60, 3, replace=False) for _ in range(3000)])
    z = [points[index[:, 0]] - points[index[:, k]] for k in (1, 2)]
    taste = 0.6 * rng.standard_normal(60)  # of points, so that answers about the same point are alike
    margin = np.sum(z[1] ** 2, axis=1) - np.sum(z[0] ** 2, axis=1) + taste[index[:, 2]] - taste[index[:, 1]]
    answers = np.where(margin + rng.logistic(size=3000) > 0, 1, -1)
    tuples = cf.Tuples(points, index)
    learner = cf.ComparisonMetricLearner(**PAPER).fit(tuples, answers)
    found, alone = cf.confidence(learner), cf.confidence(learner, groups=np.arange(3000))
    assert np.all(np.diag(found.matrix.standard_error) > 1.3 * np.diag(alone.matrix.standard_error))


def test_points_of_pairs_and_comparisons_are_found_together():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((50, 2))
    pairs, triplets = points[rng.integers(50, size=(400, 2))], points[rng.integers(50, size=(300, 3))]
    keep = ~np.all(triplets[:, 1] == triplets[:, 2], axis=1)
    triplets = triplets[keep]
    far = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2, axis=1) + rng.logistic(size=400) > 2.0
    learner = cf.LinearMetricLearner(**PAPER).fit(
        pairs, far, comparisons=(triplets, rng.choice([-1, 1], len(triplets)))
    )
    from closefar.questions.dependence import units_of_all

    with pytest.warns(cf.SharedPointsWarning):
        ids = units_of_all(None, learner.fit_.judgements)
    assert ids.shape == (400 + len(triplets), 3)
    numbers = {tuple(point): number for number, point in zip(ids[:400, 0], pairs[:, 0], strict=True)}
    assert all(numbers.get(tuple(row[1]), own) == own for row, own in zip(triplets, ids[400:, 1], strict=True))
    with pytest.raises(ValueError, match="one id for each of the 400 pairs and then each of the"):
        cf.confidence(learner, groups=np.arange(400))


# The noise model


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_is_tested_in_every_kind(kind, learners):
    found = cf.check_noise_model(learners[kind])
    assert found.p_value > 0.01
    if kind not in ("two flip rates", "levels at random"):  # these allow for labels that are wrong at any margin
        bad = fits(Sample(3000, seed=5, noise="gross"), tol=1e-6)[kind]()
        assert cf.check_noise_model(bad).p_value < 1e-3


def test_levels_are_tested_at_each_threshold(learners):
    found = cf.check_noise_model(learners["levels"])
    assert [part.question for part in found.parts] == ["level >= 1", "level >= 2", "level >= 3"]
    assert found.question == min(found.parts, key=lambda part: part.p_value).question
    assert min(part.p_value for part in found.parts) <= found.p_value
    assert "of 3 checks" in found.advice
    metric, dichotomy = learners["levels"].metric_, SAMPLE.levels >= 2
    binary = cf.LinearMetricLearner(**PAPER).fit(SAMPLE.z, dichotomy)
    assert metric.dichotomy(2).threshold == pytest.approx(binary.metric_.threshold, rel=0.2)
    assert found.parts[1].p_value == pytest.approx(cf.check_noise_model(binary).p_value, abs=0.02)
    for bins in (found.parts[1].bins, cf.check_noise_model(binary).bins):
        assert sum(row.count for row in bins) == pytest.approx(len(SAMPLE.z))
    mixed = cf.check_noise_model(learners["mixed"])
    assert [part.question for part in mixed.parts] == ["", "comparisons"]


def test_a_threshold_that_cannot_be_tested_is_named():
    rare = np.where(SAMPLE.levels == 3, 2, SAMPLE.levels)
    rare[np.argsort(SAMPLE.squared)[-4:]] = 3
    found = cf.check_noise_model(cf.OrdinalMetricLearner(**PAPER).fit(SAMPLE.z, rare))
    assert "Not checked: level >= 3, because" in found.advice
    assert len(found.parts) == 2


def test_a_comparison_turned_round_is_the_same_comparison():
    turn = np.arange(len(SAMPLE.z)) % 3 == 0
    triplets = np.where(turn[:, None, None], SAMPLE.triplets[:, [0, 2, 1]], SAMPLE.triplets)
    answers = np.where(turn, -SAMPLE.answers, SAMPLE.answers)
    given, turned = (
        cf.ComparisonMetricLearner(tol=1e-9, **PAPER).fit(*data)
        for data in ((SAMPLE.triplets, SAMPLE.answers), (triplets, answers))
    )
    assert cf.check_noise_model(turned).p_value == pytest.approx(cf.check_noise_model(given).p_value, abs=1e-6)
    found = [
        cf.find_label_errors(cf.ComparisonMetricLearner(**PAPER), *data, random_state=0)
        for data in ((SAMPLE.triplets, SAMPLE.answers), (triplets, answers))
    ]
    np.testing.assert_allclose(found[0].probability, found[1].probability, atol=1e-5)
    np.testing.assert_allclose(np.where(turn, -1, 1) * found[0].margin, found[1].margin, atol=1e-5)
    assert found[0].share == pytest.approx(found[1].share)


@pytest.mark.parametrize("kind", KINDS)
def test_a_diagnosis_finds_nothing_wrong_with_a_model_that_is_right(kind, learners, capsys):
    diagnosis = learners[kind].diagnose()
    assert diagnosis.findings == ()
    said = capsys.readouterr().out
    assert {"comparisons": "1500 comparisons", "levels": "rated on 4 levels", "annotators": "by 8 annotators"}.get(
        kind, "columns"
    ) in said


def test_a_diagnosis_finds_what_answers_depend_on_besides_distances(capsys):
    rng = np.random.default_rng(0)
    triplets = rng.standard_normal((2500, 3, 2))
    legs = triplets[:, :1] - triplets[:, 1:]
    margin = np.sum(legs[:, 1] ** 2 - legs[:, 0] ** 2, axis=1) + 1.0 * (triplets[:, 1, 0] - triplets[:, 2, 0])
    answers = np.where(margin + rng.logistic(size=2500) > 0, 1, -1)
    found = cf.ComparisonMetricLearner(**PAPER).fit(triplets, answers).diagnose().findings
    assert "linear" in [finding.kind for finding in found]
    assert "which of the compared points has the larger value" in " ".join(finding.sentence for finding in found)
    levels = np.searchsorted(TAUS, SAMPLE.squared + 1.5 * SAMPLE.z[:, 0] + rng.logistic(size=1500))
    found = cf.OrdinalMetricLearner(**PAPER).fit(SAMPLE.z, levels).diagnose().findings
    assert "linear" in [finding.kind for finding in found]
    capsys.readouterr()


# Wrong labels


def clear(n=1500, seed=7):
    """A sample whose noise is small beside the distances, and a few of whose judgements are wrong."""
    data = Sample(n, seed)
    rng = np.random.default_rng(seed)
    data.wrong = rng.uniform(size=n) < 0.03
    taus = 6.0 * TAUS
    felt = 6.0 * data.squared + rng.logistic(size=n)
    data.true = np.searchsorted(taus, 6.0 * data.squared)
    data.levels = np.searchsorted(taus, felt)
    data.levels = np.where(data.wrong, (data.levels + 2) % 4, data.levels)
    answers = np.where(6.0 * data.margin + rng.logistic(size=n) > 0, 1, -1)
    data.answers = np.where(data.wrong, -answers, answers)
    data.strictness *= 6.0
    far = felt - data.strictness[data.who] > taus[1]
    data.by_who = np.where(data.wrong, ~far, far)
    data.far = np.where(data.wrong, felt <= taus[1], felt > taus[1])
    return data


@pytest.mark.parametrize("method", ["auto", "out-of-fold"])
def test_wrong_ratings_are_found_with_the_level_that_is_expected(method):
    data = clear()
    found = cf.find_label_errors(cf.OrdinalMetricLearner(**PAPER), data.z, data.levels, method=method, random_state=0)
    assert found.reason is None
    assert found.meaning == "side"
    assert found.share_low < np.mean(data.levels != data.true) < found.share_high
    first = found.order[: int(0.7 * data.wrong.sum())]
    assert np.mean(data.wrong[first]) > 0.9
    assert np.mean(found.expected == data.true) > 0.97
    np.testing.assert_array_equal(found.contradicts, found.expected != data.levels)
    assert np.mean((found.probability > 0.5) == (data.levels != data.true)) > 0.97
    row = found.table(1)[0]
    assert row["label"] != row["expected"]
    assert "expected" in found.summary()
    assert found.unseen_share == pytest.approx(np.mean(data.levels != data.true), abs=0.03)


def test_wrong_answers_to_comparisons_are_found():
    data = clear()
    found = cf.find_label_errors(cf.ComparisonMetricLearner(**PAPER), data.triplets, data.answers, random_state=0)
    contradicting = (data.margin > 0) != (data.answers > 0)
    assert found.share_low < np.mean(contradicting) < found.share_high
    assert np.mean(found.contradicts == contradicting) > 0.98
    assert np.mean(data.wrong[found.order[: data.wrong.sum() // 2]]) > 0.8
    assert found.expected is None


def test_judgements_are_compared_with_the_threshold_of_their_annotator():
    data = clear()
    found = cf.find_label_errors(
        cf.LinearMetricLearner(**PAPER), data.z, data.by_who, annotators=data.who, method="out-of-fold", random_state=0
    )
    true = 6.0 * data.squared - data.strictness[data.who] > 6.0 * TAUS[1]
    assert np.mean(found.contradicts == (true != data.by_who)) > 0.96
    pooled = cf.find_label_errors(cf.LinearMetricLearner(**PAPER), data.z, data.by_who, random_state=0)
    assert pooled.n_contradicting > 1.5 * found.n_contradicting


@pytest.mark.parametrize("judged", ["pairs", "comparisons"])
def test_either_part_of_a_mix_can_be_judged(judged):
    data = clear()
    given = {"comparisons": (data.triplets[:700], data.answers[:700]), "random_state": 0, "judged": judged}
    found = cf.find_label_errors(cf.LinearMetricLearner(**PAPER), data.z[:900], data.far[:900], **given)
    assert len(found.probability) == (900 if judged == "pairs" else 700)
    truth = data.squared[:900] > TAUS[1] if judged == "pairs" else data.margin[:700] > 0
    labels = data.far[:900] if judged == "pairs" else data.answers[:700] > 0
    assert np.mean(found.contradicts == (truth != labels)) > 0.97
    assert found.unseen_share == pytest.approx(np.mean(truth != labels), abs=0.03)


def test_a_level_is_wrong_beyond_either_of_its_ends():
    """The rating is in the middle of three levels, and the squared distance normal around 1.5, by brute force."""
    noise, taus, error = NOISES["logistic"], np.array([1.0, 3.0]), 0.8
    levels = cf.OrdinalMetricLearner().read(np.arange(3.0)[:, None], np.arange(3))

    def judged(code, squared, *, is_new):
        scores = Scores(levels.take(np.array([code])), (squared - taus)[None], noise, 0.0)
        return Verdicts.of(scores, np.full((1, 2), error), np.array([is_new]))

    seen, new = (judged(1, 1.5, is_new=is_new).probability for is_new in (False, True))
    assert seen[0] == pytest.approx(norm.cdf(1.0, 1.5, error) + norm.sf(3.0, 1.5, error))
    grid = np.linspace(-3.0, 6.0, 20_001)
    posterior = norm.pdf(grid, 1.5, error) * (noise.cdf(grid - 1.0) - noise.cdf(grid - 3.0))
    exact = posterior[(grid < 1.0) | (grid >= 3.0)].sum() / posterior.sum()
    assert new[0] == pytest.approx(exact, abs=1e-3)
    assert new[0] < seen[0]
    for beyond in (0.3, 1.4, 2.5):  # as far from the middle of the level, on either side
        below, above = (judged(1, x, is_new=True).probability for x in (2 - beyond, 2 + beyond))
        assert below == pytest.approx(above)
    for code, agreement, margin in ((0, -0.5, 0.5), (1, 0.5, 0.5), (2, -1.5, -1.5)):
        found = judged(code, 1.5, is_new=False)
        assert (found.margin[0], found.agreement[0]) == pytest.approx((margin, agreement))


# Refusals


def test_what_makes_no_sense_for_a_kind_is_refused_in_a_sentence(learners):
    annotated = learners["annotators"]
    with pytest.raises(ValueError, match="this fit has annotators, so their ids must be given"):
        cf.confidence(annotated, SAMPLE.z, SAMPLE.by_who)
    with pytest.raises(ValueError, match="annotators must be those of the fit"):
        cf.check_noise_model(annotated, SAMPLE.z, SAMPLE.by_who, annotators=np.full(1500, 99))
    with pytest.raises(ValueError, match="this fit has no annotators"):
        cf.confidence(learners["levels"], SAMPLE.z, SAMPLE.levels, annotators=SAMPLE.who)
    with pytest.raises(ValueError, match="belong to pairs"):
        cf.check_noise_model(learners["comparisons"], SAMPLE.triplets, SAMPLE.answers, annotators=SAMPLE.who)
    with pytest.raises(ValueError, match="must be given with their pairs"):
        cf.confidence(annotated, annotators=SAMPLE.who)
    with pytest.raises(ValueError, match=r"Use dichotomy\(k\)"):
        cf.confidence(learners["levels"]).probability_far(SAMPLE.z[:2])
    for judged in ("triplets", "comparisons"):
        with pytest.raises(ValueError, match=r'judged must be "pairs" or, with both pairs and comparisons'):
            cf.find_label_errors(cf.LinearMetricLearner(**PAPER), SAMPLE.z, SAMPLE.far, judged=judged)
    with pytest.raises(ValueError, match="class_weight must be None"):
        cf.find_label_errors(cf.OrdinalMetricLearner(class_weight="balanced", **PAPER), SAMPLE.z, SAMPLE.levels)


def test_few_comparisons_give_no_share_of_wrong_answers():
    found = cf.find_label_errors(
        cf.ComparisonMetricLearner(**PAPER), SAMPLE.triplets[:30], SAMPLE.answers[:30], random_state=0
    )
    assert found.share is None
    assert "30 comparisons are too few for" in found.reason


def test_answers_that_agree_depend_on_no_side():
    """Sets of points that rows share, of every size, are numbered without a clash."""
    ids = np.array([[0, 1, 2], [2, 1, 0], [3, 1, 5], [0, 1, 9]])
    pairs = {frozenset(pair) for row in ids for pair in combinations(row.tolist(), 2)}
    assert len(pairs) == 8
    shared = Dependence(ids)._shared[1]
    assert len(np.unique(shared[shared >= 0])) == 3
