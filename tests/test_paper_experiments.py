"""Every experiment of the paper, in tiny: its section is complete, explains its differences, and fits the page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.utils import Bunch

import closefar as cf
from paper import combustion, flames, single_points
from paper.__main__ import EXPERIMENTS
from paper.page import write_page
from paper.sections import compare
from paper.synthetic import PAPER, accuracies, fit, fit_penalised, paper_pairs, recovery, relative_errors
from paper.trials import MissingDataError, Run

PUBLISHED = Path(os.environ.get("CLOSEFAR_DATA") or "not given")
needs_published = pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason="CLOSEFAR_DATA names no folder with the published data"
)

_MOST = {"n_train": 400, "n_test": 200, "n_iter": 30}
# Enough for both labels to occur at the ends of the thresholds, and for a penalty to leave something of the metric.
_MORE = {"unbalanced": {"n_train": 3_000, "n_test": 2_000}, "high_noise": {"n_train": 3_000}}

_RATINGS = (
    "Inflight wifi service", "Departure/Arrival time convenient", "Ease of Online booking", "Gate location",
    "Food and drink", "Online boarding", "Seat comfort", "Inflight entertainment", "On-board service",
    "Leg room service", "Baggage handling", "Checkin service", "Inflight service", "Cleanliness",
)  # fmt: skip
_AIRLINE_HEADER = (
    "", "id", "Gender", "Customer Type", "Age", "Type of Travel", "Class", "Flight Distance", *_RATINGS,
    "Departure Delay in Minutes", "Arrival Delay in Minutes", "satisfaction",
)  # fmt: skip
_SPECIES = ("T", "H", "H2", "O", "OH", "H2O", "O2", "HO2", "H2O2")


def _tiny(name: str, data: Path | None = None) -> Run:
    """Return a run of small trials, one seed per case."""
    most = _MOST | _MORE.get(name, {})

    class Tiny(Run):
        def repeat(
            self, trial: Callable[..., dict[str, Any]], cases: Sequence[dict[str, Any]], n_trials: int, **places: Any
        ) -> list[list[dict[str, Any]]]:
            small = [
                {key: min(value, most[key]) if key in most else value for key, value in each.items()} for each in cases
            ]
            by_case = {json.dumps(each): each for each in small}
            kept = dict(zip(by_case, super().repeat(trial, list(by_case.values()), 1, **places), strict=True))
            return [kept[json.dumps(each)] * n_trials for each in small]

    return Tiny(data=data)


def _states(n: int, seed: int) -> tuple[Any, Any]:
    """Smooth curves of nine columns in three dimensions and of unlike sizes, as flames are, and a mixture fraction."""
    rng = np.random.default_rng(seed)
    fraction, strain = rng.uniform(size=(2, n))
    latent = np.column_stack([fraction, strain * np.sin(np.pi * fraction), strain * fraction**2])
    states = latent @ rng.uniform(0.1, 1.0, size=(3, 9)) + 1e-3 * rng.uniform(size=(n, 9))
    return states * np.array([2e3, 1e-3, 1.0, 1e-2, 1e-2, 0.25, 0.23, 1e-4, 1e-5]), fraction


def _write_airline(folder: Path, n: int = 300) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    lines = [",".join(_AIRLINE_HEADER)]
    for number in range(n):
        ratings = rng.integers(0, 6, size=len(_RATINGS))
        delay = int(rng.exponential(15.0))
        fields = [
            number, 1000 + number, rng.choice(["Female", "Male"]), rng.choice(["Loyal Customer", "disloyal Customer"]),
            rng.integers(7, 86), rng.choice(["Business travel", "Personal Travel"]),
            rng.choice(["Eco", "Eco Plus", "Business"]), rng.integers(50, 4_000), *ratings,
            delay, "" if number == 7 else float(delay + rng.integers(0, 5)),
            "satisfied" if ratings.mean() + 0.3 * rng.standard_normal() > 2.5 else "neutral or dissatisfied",
        ]  # fmt: skip
        lines.append(",".join(map(str, fields)))
    (folder / "train.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_combustion(folder: Path, n: int = 600) -> None:
    states, fraction = _states(n, 0)
    folder.mkdir()
    np.savetxt(folder / "h2-state-space.csv", states, delimiter=",")
    np.savetxt(folder / "h2-mixture-fraction.csv", fraction, delimiter=",")
    np.savetxt(folder / "h2-basis-9x3.csv", np.random.default_rng(1).standard_normal((9, 3)), delimiter=",")
    (folder / "h2-state-space-names.csv").write_text("\n".join(_SPECIES) + "\n", encoding="utf-8")


def _no_cantera(*_: Any, **__: Any) -> Bunch:
    raise ImportError("simulating flames needs Cantera.")


def _fake_flames(n: int, *_: Any, **__: Any) -> Bunch:
    states, fraction = _states(600, 2)
    return Bunch(data=states, target=fraction, feature_names=list(_SPECIES), transformation=None)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    _write_airline(folder / "airline")
    _write_combustion(folder / "combustion")
    return folder


def _shrink(patch: pytest.MonkeyPatch) -> None:
    """Make small what settings don't hold; flames come from published files alone."""
    make_pairs = cf.datasets.make_pairs

    def make_narrow_pairs(n: int, n_features: int, *, rank: int | None = None, **options: Any) -> Any:
        return make_pairs(n, min(n_features, 10), rank=None if rank is None else min(rank, 5), **options)

    def load_narrow(*, return_X_y: bool) -> tuple[Any, Any]:
        X, y = load_breast_cancer(return_X_y=return_X_y)
        return X[:, :6], y

    patch.setattr(cf.datasets, "make_pairs", make_narrow_pairs)
    patch.setattr(flames, "simulate_flames", _no_cantera)
    patch.setattr(single_points, "load_breast_cancer", load_narrow)
    patch.setattr(single_points, "_FACTORS", (0.4,))
    patch.setattr(combustion, "_N_TRAIN", 400)
    patch.setattr(combustion, "_N_TEST", 200)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    _shrink(monkeypatch)


@pytest.fixture(scope="module")
def sections(data: Path) -> dict[str, Any]:
    """Sections by experiment, each run when it is first asked for."""

    class Sections(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            _, experiment = EXPERIMENTS[name]
            with pytest.MonkeyPatch.context() as patch:
                _shrink(patch)
                self[name] = experiment(_tiny(name, data))
            return self[name]

    return Sections()


def _rows(section: Any) -> list[Any]:
    return [row for table in section["tables"] if table["kind"] == "comparison" for row in table["rows"]]


# Every experiment


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_section_is_complete(name: str, sections: dict[str, Any]) -> None:
    section = sections[name]
    assert json.loads(json.dumps(section)).keys() == {"headline", "settings", "tables", "figures", "notes", "quoted"}
    assert section["headline"].endswith(".")
    assert section["settings"].endswith(".")
    assert "nan" not in section["headline"].split()
    assert section["tables"] or section["figures"]
    assert all(note.strip() for note in section["notes"])
    for table in section["tables"]:
        assert table["caption"]
        assert table["rows"]
        if table["kind"] == "grid":
            assert {len(row) for row in table["rows"]} == {len(table["columns"])}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_difference_from_the_paper_is_explained(name: str, sections: dict[str, Any]) -> None:
    for row in _rows(sections[name]):
        assert np.isfinite(row["ours"]), row
        if row["paper"] is None:
            assert row["difference"] is row["why"] is None
        elif abs(row["difference"]) > max(row["spread"], 1e-9 * abs(row["paper"])):
            assert row["why"], row


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_panels_are_labelled(name: str, sections: dict[str, Any]) -> None:
    for figure in sections[name]["figures"]:
        assert figure["caption"]
        assert figure["panels"]
        titles = [panel["title"] for panel in figure["panels"]]
        assert len(set(titles)) == len(titles)
        for panel in figure["panels"]:
            assert panel["x_label"]
            assert panel["y_label"]
            assert panel["series"]
            labels = [each["label"] for each in (*panel["series"], *panel["lines"])]
            assert all(labels)
            assert len(set(labels)) == len(labels)
            for series in panel["series"]:
                assert len(series["x"]) == len(series["y"]) > 0
                assert np.isfinite(series["y"]).any()


def test_all_sections_make_a_page(sections: dict[str, Any], tmp_path: Path) -> None:
    entries = [
        {"name": name, "title": title, "status": "done", "reason": None, "section": sections[name]}
        for name, (title, _) in EXPERIMENTS.items()
    ]
    created = "2026-03-04T05:06:07+00:00"
    write_page({"version": "1", "full": False, "seed": 0, "created": created, "experiments": entries}, tmp_path)
    page = (tmp_path / "paper.html").read_text(encoding="utf-8")
    names = [figure["name"] for section in sections.values() for figure in section["figures"]]
    assert sorted(file.stem for file in (tmp_path / "figures").iterdir()) == sorted(names)
    assert len(names) >= 10
    assert page.count("<img ") == len(names)
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["experiments"][0]["name"] == "noises"


# Data that can't be shipped


@pytest.mark.parametrize("folder", [None, "empty"])
def test_airline_without_data_says_how_to_get_it(folder: str | None, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"Kaggle.*folder airline/.*--data"):
        single_points.airline(_tiny("airline", None if folder is None else tmp_path))


@pytest.mark.usefixtures("small")
def test_flames_of_neither_source_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"pip install 'closefar\[paper\]'.*--data"):
        combustion.combustion(_tiny("combustion", tmp_path))


def test_published_flames_alone_are_enough(sections: dict[str, Any]) -> None:
    captions = " ".join(table["caption"] for table in sections["combustion"]["tables"])
    assert "published flamelets" in captions
    assert "Cantera" not in captions
    assert len(sections["combustion"]["tables"]) == 3
    assert any(row["paper"] is not None for row in _rows(sections["combustion"]))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("published", [False, True])
def test_simulated_flames_are_not_compared_with_the_paper(
    published: bool, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flames, "simulate_flames", _fake_flames)
    section = combustion.combustion(_tiny("combustion", data if published else None))
    simulated = [table for table in section["tables"] if "simulated with Cantera" in table["caption"]]
    assert len(simulated) == 3
    assert len(section["tables"]) == (6 if published else 3)
    assert all(row["paper"] is None for table in simulated for row in table["rows"])
    assert ("published flamelets" if published else "simulated with Cantera") in section["headline"]


@pytest.mark.usefixtures("small")
def test_engineered_labels_are_learned_from_all_columns(data: Path) -> None:
    by_columns = {
        columns: combustion.engineered(None, columns, 0, data / "combustion")
        for columns in ("raw", "normalised", "covariance")
    }
    for found in by_columns.values():
        assert found["train"] == 1.0
        assert found["test"] > 0.9
        assert not found["derived"]
        # A* has rank 3: a fourth direction brings nothing but the rest of an imperfect fit.
        assert found["truncated"]["test"][2] == pytest.approx(found["test"], abs=0.05)
    # What is learned does not depend on the units.
    assert by_columns["raw"]["test"] == pytest.approx(by_columns["normalised"]["test"], abs=0.02)


# The parts


def test_compare_takes_mean_and_spread() -> None:
    row = compare("x", [1.0, 2.0, 6.0], 3.5, "because", percent=True)
    assert (row["label"], row["percent"], row["n_trials"]) == ("x", True, 3)
    assert (row["ours"], row["paper"], row["difference"]) == (3.0, 3.5, -0.5)
    assert row["spread"] == pytest.approx(np.sqrt(7.0))
    assert row["why"] is None


@pytest.mark.parametrize(
    ("values", "paper", "why"),
    [([1.0, 3.0], 4.0, "because"), ([1.0, 3.0], 3.0, None), ([1.0, 3.0], None, None), (1.0, 1.5, "because"),
     (1.0, 1.0, None), (0.1 + 0.2, 0.3, None)],
)  # fmt: skip
def test_compare_explains_only_what_exceeds_the_spread(values: Any, paper: float | None, why: str | None) -> None:
    row = compare("x", values, paper, "because")
    assert row["why"] == why
    assert (row["difference"] is None) == (paper is None)
    assert json.loads(json.dumps(row)) == row


def _echo(**settings: Any) -> dict[str, Any]:
    return settings


def test_repeat_returns_a_list_of_results_a_case() -> None:
    cases = [{"size": 5}, {"size": 3}]
    found = Run().repeat(_echo, cases, 3)
    assert [[each["size"] for each in trials] for trials in found] == [[5] * 3, [3] * 3]
    seeds = [[each["seed"] for each in trials] for trials in found]
    assert seeds[0] == seeds[1]  # cases are compared on the same draws
    assert len(set(seeds[0])) == 3
    assert cases == [{"size": 5}, {"size": 3}]


def test_seeds_of_trials_follow_the_seed() -> None:
    by_seed = [{each["seed"] for each in Run(seed=seed).repeat(_echo, [{}], 20)[0]} for seed in range(3)]
    assert len(set.union(*by_seed)) == 60
    assert by_seed[1] == {each["seed"] for each in Run(seed=1).repeat(_echo, [{}], 20)[0]}


def test_choose_and_data_folder(tmp_path: Path) -> None:
    assert (Run().choose(1, 2), Run(full=True).choose(1, 2)) == (1, 2)
    (tmp_path / "here").mkdir()
    (tmp_path / "file").touch()
    assert Run(data=tmp_path).data_folder("here", "advice") == tmp_path / "here"
    for run, name in ((Run(data=tmp_path), "there"), (Run(data=tmp_path), "file"), (Run(), "here")):
        with pytest.raises(MissingDataError, match=r"^advice$"):
            run.data_folder(name, "advice")


@pytest.mark.parametrize("n_rows", [0, 300])
def test_the_penalty_is_chosen_among_factors_of_the_root_of_n(n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    split = paper_pairs(900, 10, wrong_share=0.4, seed=0)
    sizes = []
    fit_once = cf.LinearMetricLearner.fit

    def fit_and_note(self: cf.LinearMetricLearner, X: Any, y: Any, **options: Any) -> Any:
        sizes.append((len(X), self.alpha))
        return fit_once(self, X, y, **options)

    monkeypatch.setattr(cf.LinearMetricLearner, "fit", fit_and_note)
    factors = (0.0, 0.5, 2.0)
    given = cf.LinearMetricLearner(noise="normal", **PAPER)
    learner = fit_penalised(given, split.train, split.noisy_train, cv=3, factors=factors, n_rows=n_rows)
    assert any(learner.alpha * np.sqrt(900) == pytest.approx(factor) for factor in factors)
    assert learner.alpha > 0  # with 40% wrong labels and so few pairs a penalty helps
    assert learner.noise == "normal"
    assert given.alpha == 0
    assert not hasattr(given, "metric_")
    searched = n_rows or 900
    assert sizes[-1] == (900, learner.alpha)
    assert {size for size, _ in sizes[:-1]} == {searched * 2 // 3}
    assert sorted({alpha * np.sqrt(searched) for _, alpha in sizes[:-1]}) == pytest.approx(factors)


def test_fit_keeps_quiet_about_separable_labels() -> None:
    split = paper_pairs(50, 10, noise=None, seed=0)
    learner = fit(cf.LinearMetricLearner(**PAPER), split.train, split.noisy_train)
    assert learner.score(split.train, split.noisy_train) == 1.0


def test_relative_errors_by_hand() -> None:
    learned = cf.Metric.from_matrix(np.diag([6.0, 2.0, 0.0]), 2.0)  # M / tau: 3, 1, 0
    true = cf.Metric.from_matrix(np.diag([4.0, 0.0, 3.0]), 1.0)
    found = relative_errors(learned, true)
    assert found["spectral_error"] == pytest.approx(3.0 / 4.0)
    assert found["frobenius_error"] == pytest.approx(np.sqrt(1 + 1 + 9) / 5.0)
    assert relative_errors(true, true) == {"spectral_error": 0.0, "frobenius_error": 0.0}


def test_accuracies_are_those_of_predict() -> None:
    split = paper_pairs(300, 200, wrong_share=0.2, seed=1)
    learner = fit(cf.LinearMetricLearner(**PAPER), split.train, split.noisy_train)
    called = {"train": learner.predict(split.train), "test": learner.predict(split.test)}
    assert accuracies(learner.metric_, split) == {
        "train_noisy": np.mean(called["train"] == split.noisy_train),
        "train_true": np.mean(called["train"] == split.true_train),
        "test_noisy": np.mean(called["test"] == split.noisy_test),
        "test_true": np.mean(called["test"] == split.true_test),
    }
    assert accuracies(split.metric, split)["test_true"] == 1.0


def test_paper_pairs_are_the_papers() -> None:
    split = paper_pairs(4_000, 1_000, seed=3)
    assert split.train.shape == (4_000, 10)
    assert split.test.shape == (1_000, 10)
    assert split.metric.threshold == 1.3
    np.testing.assert_allclose(split.metric.eigenvalues[:5], [0.89, 0.59, 0.32, 0.14, 0.13])
    np.testing.assert_allclose(split.metric.eigenvalues[5:], 0.0, atol=1e-12)
    wrong = np.concatenate([split.noisy_train != split.true_train, split.noisy_test != split.true_test])
    assert np.mean(wrong) == pytest.approx(0.1, abs=0.015)
    again = paper_pairs(4_000, 1_000, seed=3)
    np.testing.assert_array_equal(again.train, split.train)
    np.testing.assert_array_equal(again.noisy_test, split.noisy_test)


def test_a_noise_scale_replaces_the_share_of_wrong_labels() -> None:
    shares = []
    for scale in (1e-9, 0.2, 50.0):
        split = paper_pairs(4_000, 10, noise_scale=scale, wrong_share=0.3, seed=0)
        shares.append(np.mean(split.noisy_train != split.true_train))
    assert shares[0] == 0.0
    assert 0.02 < shares[1] < 0.2
    assert shares[2] == pytest.approx(0.5, abs=0.03)
    margins = split.metric.margin(split.train)
    scale = cf.datasets.solve_noise_scale(margins, "logistic", 0.3)
    split = paper_pairs(4_000, 10, noise_scale=scale, seed=0)
    assert np.mean(split.noisy_train != split.true_train) == pytest.approx(0.3, abs=0.02)


def test_pairs_without_noise_have_their_true_labels() -> None:
    split = paper_pairs(500, 100, noise=None, seed=0)
    np.testing.assert_array_equal(split.noisy_train, split.true_train)
    np.testing.assert_array_equal(split.noisy_test, split.true_test)


def test_recovery_is_repeatable() -> None:
    settings = {"n_train": 400, "noise": "laplace", "wrong_share": 0.1, "model": "normal"}
    first = recovery(**settings, seed=5)
    assert recovery(**settings, seed=5) == first
    assert recovery(**settings, seed=6) != first
    assert len(first["eigenvalues"]) == len(first["true_eigenvalues"]) == 10


@pytest.mark.usefixtures("small")
def test_all_trials_draw_from_the_same_simulated_flames(monkeypatch: pytest.MonkeyPatch) -> None:
    states = []

    def note_states(n: int, folder: Path, *, random_state: Any = None) -> Bunch:
        states.append(random_state)
        return _fake_flames(n)

    monkeypatch.setattr(flames, "simulate_flames", note_states)
    for seed in (3, 4):
        combustion.mixture(600, "raw", seed, Path("unused"))
    assert states[0] is not None  # else the rows differ from run to run
    assert len(set(states)) == 1


# Learned on real data


def test_breast_cancer_needs_the_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_points, "_FACTORS", (0.4,))  # what is chosen; all six take long
    penalised, plain = (single_points.breast_cancer_trial(given, 0) for given in (True, False))
    assert penalised["test_all"] >= 0.95
    assert penalised["test_all"] > plain["test_all"]
    assert plain["train_all"] == 1.0
    assert penalised["test_all"] == pytest.approx(
        (82 * penalised["test_benign"] + 37 * penalised["test_malignant"]) / 119
    )


@needs_published
@pytest.mark.parametrize("learn", [combustion.engineered, combustion.mixture])
def test_published_flames_are_learned_from_raw_columns(learn: Any) -> None:
    found = learn(None, "raw", 0, PUBLISHED / "combustion")
    assert found["train"] == 1.0
    assert found["test"] >= 0.995


@needs_published
def test_published_airline_passengers_are_learned_with_an_origin() -> None:
    found = single_points.airline_trial("logistic", "learned", 0, PUBLISHED / "airline")
    assert found["test"] >= 0.925
    assert len(found["feature_names"]) == 22
