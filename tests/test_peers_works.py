"""The works of the benchmark on comparisons, levels, wrong labels and annotators: their data and their figures."""

import sys
from pathlib import Path

import numpy as np
import pytest

import closefar as cf

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from peers.adapters.product_features import matrix_of, products  # noqa: E402
from peers.peers import ADAPTERS, peers_of  # noqa: E402
from peers.works import load_work  # noqa: E402

WORKS = ("comparisons", "levels", "wrong_labels", "annotators")


def setting_of(work, name):
    return next(each for each in work.SETTINGS if each.name.startswith(name))


@pytest.mark.parametrize("name", WORKS)
def test_a_work_is_complete(name):
    work, peers = load_work(name), peers_of(name)
    assert peers[0].name == "closefar"
    assert len({setting.name for setting in work.SETTINGS}) == len(work.SETTINGS)
    assert sum(setting.quick for setting in work.SETTINGS) == 1
    assert all(setting.work == name and setting.description.endswith(".") for setting in work.SETTINGS)
    for peer in peers:
        assert f'"{peer.name}"' in (ADAPTERS / peer.adapter).read_text()


@pytest.mark.parametrize("name", WORKS)
def test_data_depend_on_the_seed_alone(name):
    work = load_work(name)
    setting = next(setting for setting in work.SETTINGS if setting.quick)
    first, again, other = (work.make(setting, seed, {}) for seed in (0, 0, 1))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


def test_the_true_metric_agrees_with_all_true_answers():
    work = load_work("comparisons")
    data = work.make(setting_of(work, "triplets, d=10"), 0, {})
    metric = data.truth["metric"]
    legs = {f"{name}.farness": _squared(metric, pairs) for name, pairs in data.asked.items()}
    found = work.figures(data, {"metric": 3.0 * metric, "turned_share": np.asarray(0.0), **legs})
    assert found["true_agreement"] == 1.0
    assert found["metric_error"] == pytest.approx(0.0, abs=1e-12)
    assert found["noisy_agreement"] == pytest.approx(0.9, abs=0.02)
    turned = {name: legs[name.replace("near", "FAR").replace("far_", "near_").replace("FAR", "far")] for name in legs}
    assert work.figures(data, turned)["true_agreement"] == 0.0


def _squared(metric, pairs):
    z = pairs[:, 0] - pairs[:, 1]
    return np.einsum("ij,jk,ik->i", z, metric, z)


def test_known_objects_are_judged_by_their_places_and_new_ones_by_their_columns():
    work = load_work("comparisons")
    data = work.make(work.SETTINGS[-2], 0, {})
    assert data.train["index"].max() < len(data.train["points"]) == 150
    values, vectors = np.linalg.eigh(data.truth["metric"])
    places = data.train["points"] @ (vectors * np.sqrt(np.maximum(values, 0.0)))
    found = work.figures(data, {"embedding": places})
    assert found["true_agreement"] == 1.0
    assert "new_agreement" not in found
    legs = {f"{name}.farness": _squared(data.truth["metric"], pairs) for name, pairs in data.asked.items()}
    assert work.figures(data, legs)["new_agreement"] == 1.0


def test_levels_of_the_true_metric():
    work = load_work("levels")
    data = work.make(setting_of(work, "5 levels, d=10"), 0, {})
    made = cf.datasets.make_judgements(
        len(data.train["levels"]) + len(data.truth["levels"]),
        10,
        kind="levels",
        n_levels=5,
        metric_eigenvalues=(0.32, 0.89, 0.59, 0.13, 0.14),
        covariance_eigenvalues=(0.73, 0.70, 0.68, 0.59, 0.47, 0.45, 0.21, 0.19, 0.11, 0.04),
        random_state=0,
    )
    farness = _squared(made.metric.matrix, data.asked["pairs"])
    sure = np.eye(5)[data.truth["levels"]]
    answers = {"thresholds": np.array(made.thresholds), "pairs.farness": farness, "pairs.probability": sure.ravel()}
    found = work.figures(data, {**answers, "metric": made.metric.matrix})
    assert (found["true_accuracy"], found["mean_error"], found["log_loss"]) == (1.0, 0.0, 0.0)
    assert found["metric_error"] == pytest.approx(0.0, abs=1e-12)


def test_suspicion_of_the_wrong_labels_alone_is_perfect():
    work = load_work("wrong_labels")
    data = work.make(setting_of(work, "wine, 10"), 0, {})
    is_wrong = data.truth["is_wrong"]
    assert np.mean(is_wrong) == pytest.approx(0.1, abs=0.03)
    assert work.figures(data, {"suspicion": is_wrong.astype(float)}) == {"average_precision": 1.0, "first_hundred": 1.0}
    assert work.figures(data, {"suspicion": -is_wrong.astype(float)})["first_hundred"] == 0.0


def test_annotators_who_are_named():
    work = load_work("annotators")
    data = work.make(work.SETTINGS[1], 0, {})
    at_random, metric = data.truth["at_random"], data.truth["metric"]
    answers = {"metric": metric, "threshold": np.asarray(1.0), "pairs.farness": _squared(metric, data.asked["pairs"])}
    found = work.figures(data, {**answers, "named": at_random})
    assert (found["true_accuracy"], found["named"]) == (1.0, 1.0)
    assert found["spectral_error"] == pytest.approx(0.0, abs=1e-12)
    assert work.figures(data, {**answers, "named": ~at_random})["named"] == 0.0
    assert np.all(np.bincount(data.train["pair_of"]) == 5)


def test_products_have_the_matrix_of_their_coefficients():
    rng = np.random.default_rng(0)
    z, coefficients = rng.normal(size=(7, 4)), rng.normal(size=10)
    metric = matrix_of(coefficients)
    np.testing.assert_allclose(products(z) @ coefficients, np.einsum("ij,jk,ik->i", z, metric, z))
