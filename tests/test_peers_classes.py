"""The comparison on points with classes: what peers learn from, what they are asked, and how they are judged."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT / "benchmarks"))

from peers.adapters.columns import Columns, transformer  # noqa: E402
from peers.peers import ADAPTERS, peers_of  # noqa: E402
from peers.worker import Learned, answers_of, answers_of_folds, load_adapter, squared_distances, without_fold  # noqa: E402
from peers.works import Data, classes  # noqa: E402

_PROMISED = {
    "closefar", "closefar, low rank (as FLRML)", "closefar, fixed alpha (as Jin et al. 2009)", "Euclidean",
    "LogisticRegression on products", "LogisticRegression on absolute differences", "scikit-learn NCA",
    "scikit-learn LDA", "metric-learn NCA", "metric-learn LMNN", "metric-learn LFDA", "metric-learn RCA", "pyDML LDML",
    "pyDML DMLMJ", "pyDML LSI", "pyDML NCA", "pyDML LMNN",
}  # fmt: skip


def _setting(table: str, wrong: int):
    return next(s for s in classes.SETTINGS if s.parameters == {"table": table, "wrong": wrong / 100})


def _figures(data: Data, fit) -> dict[str, float]:
    learned = fit(data.train)
    answers = dict(answers_of(learned, data.train, data.asked))
    answers.update(answers_of_folds(fit, data.train, learned))
    return classes.figures(data, answers)


@pytest.fixture(scope="module")
def wine() -> Data:
    return classes.make(_setting("wine", 10), 0, {})


def test_every_system_has_a_row_and_an_adapter():
    found = peers_of("classes")
    assert {peer.name for peer in found} >= _PROMISED
    for peer in found:
        assert f'"{peer.name}": ' in (ADAPTERS / peer.adapter).read_text()


@pytest.mark.parametrize("table", ["wine", "breast cancer", "digits"])
def test_only_training_classes_are_wrong(table):
    right, wrong = (classes.make(_setting(table, share), 3, {}) for share in (0, 30))
    np.testing.assert_array_equal(right.train["points"], wrong.train["points"])
    np.testing.assert_array_equal(right.truth["classes"], wrong.truth["classes"])
    n = len(right.train["classes"])
    assert np.sum(right.train["classes"] != wrong.train["classes"]) == round(0.3 * n)
    shares = [np.bincount(c) / len(c) for c in (right.train["classes"], right.truth["classes"])]
    np.testing.assert_allclose(shares[0], shares[1], atol=0.03)
    assert n + len(right.truth["classes"]) == len(
        np.unique(np.vstack([right.train["points"], right.asked["points"]]), axis=0)
    )


def test_a_seed_gives_the_same_data_and_another_one_others():
    first, again, other = (classes.make(_setting("wine", 10), seed, {}) for seed in (1, 1, 2))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


def test_pairs_are_different_and_half_of_them_close(wine):
    index, labels = wine.train["pairs_index"], wine.train["labels"]
    assert (labels == 1).sum() == (labels == -1).sum() > 1_000
    assert len(np.unique(np.sort(index, axis=1), axis=0)) == len(index)
    same = wine.train["classes"][index[:, 0]] == wine.train["classes"][index[:, 1]]
    np.testing.assert_array_equal(same, labels == -1)
    np.testing.assert_array_equal(wine.train["pairs"], wine.train["points"][index])


def test_without_a_fold_pairs_have_both_points(wine):
    rest = without_fold(wine.train, 1)
    assert len(rest["points"]) == len(rest["classes"]) == (wine.train["point_folds"] != 1).sum()
    np.testing.assert_array_equal(rest["pairs"], rest["points"][rest["pairs_index"]])
    expected = (wine.train["point_folds"][wine.train["pairs_index"]] != 1).all(axis=1).sum()
    assert len(rest["pairs"]) == len(rest["labels"]) == expected


def test_combustion_needs_its_folder(tmp_path):
    setting = _setting("combustion", 10)
    with pytest.raises(ValueError, match="--combustion must name their folder"):
        classes.make(setting, 0, {"combustion": None})
    with pytest.raises(ValueError, match=r"has no file hydrogen-air-state-space.csv.gz"):
        classes.make(setting, 0, {"combustion": tmp_path})
    rng = np.random.default_rng(0)
    for name, columns in (("state-space", 9), ("mixture-fraction", 1)):
        with gzip.open(tmp_path / f"hydrogen-air-{name}.csv.gz", "wt") as file:
            np.savetxt(file, rng.uniform(size=(1_600, columns)), delimiter=",")
    classes._combustion.cache_clear()
    made = classes.make(setting, 0, {"combustion": tmp_path})
    classes._combustion.cache_clear()
    assert len(made.train["points"]) + len(made.asked["points"]) == 1_500
    np.testing.assert_allclose(np.bincount(made.truth["classes"]) / len(made.truth["classes"]), 0.25, atol=0.03)


def test_votes_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    points, new = rng.normal(size=(200, 3)), rng.normal(size=(80, 3))
    names = np.where(points[:, 0] + rng.normal(size=200) > 0, "a", "b")
    for k in (1, 5, 51):
        expected = KNeighborsClassifier(k).fit(points, names).predict(new)
        np.testing.assert_array_equal(classes.vote(classes.nearest(points, new), names, k), expected)


def test_of_equally_frequent_classes_the_nearer_one_wins():
    assert classes.vote(np.array([[2, 0, 3, 1]]), np.array([0, 0, 1, 1]), 4) == 1


def test_figures_of_a_perfect_and_of_a_useless_transform(wine):
    names = np.vstack([wine.train["points"], wine.asked["points"]])
    found = np.concatenate([classes.make(_setting("wine", 0), 0, {}).train["classes"], wine.truth["classes"]])
    places = {point.tobytes(): float(name) for point, name in zip(names, found, strict=True)}

    def perfect(train) -> Learned:
        return Learned(transform=lambda points: np.array([[places[point.tobytes()]] for point in points]))

    def useless(train) -> Learned:
        return Learned(transform=lambda points: np.random.default_rng(0).normal(size=(len(points), 2)))

    figures = _figures(wine, perfect)
    assert figures["pair_accuracy"] == figures["knn_chosen"] == 1.0
    assert figures["knn_5"] > 0.8
    figures = _figures(wine, useless)
    assert all(figures[name] < 0.65 for name in ("knn_5", "knn_chosen", "pair_accuracy"))


def test_wrong_classes_need_more_neighbours():
    chosen = [
        _figures(classes.make(_setting("breast cancer", share), 0, {}), transformer(lambda train: _Unchanged()))
        for share in (0, 30)
    ]
    assert chosen[1]["neighbours"] > chosen[0]["neighbours"]
    assert chosen[1]["knn_chosen"] > chosen[1]["knn_5"]


class _Unchanged:
    def fit(self, points, names):
        return self

    def transform(self, points):
        return points


def test_answers_that_are_not_finite_are_refused(wine):
    def broken(train) -> Learned:
        return Learned(transform=lambda points: np.full((len(points), 2), np.nan))

    with pytest.raises(ValueError, match="not finite"):
        _figures(wine, broken)


def test_a_metric_returns_to_the_units_of_the_data(wine):
    columns = Columns.of(wine.train)
    rng = np.random.default_rng(0)
    root = rng.normal(size=(13, 13))
    standardised = squared_distances(root @ root.T, columns.standardise(wine.asked["pairs"]))
    np.testing.assert_allclose(squared_distances(columns.metric(root @ root.T), wine.asked["pairs"]), standardised)


def test_columns_with_the_same_unit_keep_their_proportions():
    points = np.random.default_rng(0).normal(size=(50, 2)) * [1.0, 10.0]
    scale = Columns.of({"points": points, "same_units": np.array(True)}).scale
    assert scale[0] == scale[1]
    scale = Columns.of({"points": points, "same_units": np.array(False)}).scale
    np.testing.assert_allclose(scale, points.std(axis=0))


def test_principal_components_leave_out_what_does_not_vary():
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.normal(size=(60, 2)), np.ones(60)])
    train = {"points": np.column_stack([points, points[:, 0]]), "classes": np.arange(60) % 2}
    learned = transformer(lambda train: _Unchanged(), least_variance=1e-4)(train)
    assert learned.transform(train["points"]).shape == (60, 2)


@pytest.mark.parametrize(
    ("adapter", "name", "least"),
    [
        ("scikit_learn_classes.py", "Euclidean", {"knn_5": 0.9, "knn_chosen": 0.9, "pair_accuracy": 0.75}),
        ("scikit_learn_classes.py", "scikit-learn LDA", {"knn_5": 0.9, "knn_chosen": 0.9, "pair_accuracy": 0.85}),
        ("scikit_learn_classes.py", "LogisticRegression on products", {"pair_accuracy": 0.85}),
        ("scikit_learn_classes.py", "LogisticRegression on absolute differences", {"pair_accuracy": 0.8}),
        ("closefar_classes.py", "closefar, fixed alpha (as Jin et al. 2009)", {"knn_5": 0.9, "pair_accuracy": 0.85}),
    ],
)
def test_adapters_learn_from_wine(wine, adapter, name, least):
    figures = _figures(wine, load_adapter(ADAPTERS / adapter).PEERS[name])
    assert all(figures[measure] >= value for measure, value in least.items())
