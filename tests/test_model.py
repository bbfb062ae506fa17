"""A model file holds what a table needs, and refuses what does not fit together."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import closefar as cf
from closefar.errors import command_words
from closefar.fitting import Settings
from closefar.learners import Model
from closefar.model import modelfile
from closefar.model.metric import contents_of, load_with_header
from closefar.questions import describe_fit
from closefar.tables import PairTable, Source, read_pairs


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("tables")
    points, pairs, _ = cf.datasets.make_patients(80, 400, random_state=2)
    pd.DataFrame(points).to_csv(folder / "points.csv", index=False)
    pd.DataFrame(pairs).to_csv(folder / "pairs.csv", index=False)
    return Source(points=folder / "points.csv", pairs=folder / "pairs.csv", left="patient", right="other")


@pytest.fixture(scope="module")
def table(files: Source) -> PairTable:
    return read_pairs(files, labelled=True)


@pytest.fixture(scope="module")
def learner(table: PairTable) -> cf.LinearMetricLearner:
    learner = cf.LinearMetricLearner(far_label="far")
    return learner.fit(table.data, table.labels, feature_names=table.encoding.feature_names)


@pytest.fixture
def path(learner: cf.LinearMetricLearner, table: PairTable, files: Source, tmp_path: Path) -> Path:
    path = tmp_path / "model.closefar"
    path.write_bytes(Model.of(learner, table, files).to_bytes())
    return path


def test_round_trip(path: Path, learner: cf.LinearMetricLearner, table: PairTable, files: Source) -> None:
    model = Model.load(path)
    assert model == Model.of(learner, table, files)
    assert model.metric == learner.metric_ == cf.load(path)
    assert model.encoding == table.encoding
    assert model.classes == ("close", "far")
    assert model.is_fitted_to(table)


def test_what_was_chosen_is_remembered(path: Path, learner: cf.LinearMetricLearner) -> None:
    again = Model.load(path).learner()
    assert (again.alpha, again.prior, again.flip_rate) == ("auto", "auto", "auto")
    assert again.choice_ == learner.choice_
    assert again.baseline_ == learner.baseline_
    assert again.baseline_.metric == learner.baseline_.metric is not None
    assert again.fit_.known == learner.fit_.known
    assert again.fit_.chosen == learner.fit_.chosen
    assert again.alpha_ == learner.alpha_


@pytest.mark.parametrize(
    "settings",
    [
        {"alpha": 0.0, "flip_rate": 0.0},
        {"alpha": 0.01, "prior": "standardized", "flip_rate": (0.1, 0.05)},
        {"alpha": 0.0, "flip_rate": "two"},
        {"rank": "auto", "flip_rate": "estimate"},
        {"noise": "auto"},
    ],
    ids=str,
)
def test_settings_are_remembered(table: PairTable, files: Source, tmp_path: Path, settings: dict[str, Any]) -> None:
    learner = cf.LinearMetricLearner(far_label="far", **settings)
    learner.fit(table.data, table.labels, feature_names=table.encoding.feature_names)
    path = tmp_path / "model.closefar"
    path.write_bytes(Model.of(learner, table, files).to_bytes())
    again = Model.load(path).learner()
    assert again.get_params() == learner.get_params()
    assert again.fit_.known.but(noise="") == learner.fit_.known.but(noise="")
    assert get_noise_name(again.fit_.known) == get_noise_name(learner.fit_.known)
    assert again.fit_.choice == learner.fit_.choice
    assert again.summary() == learner.summary()


def get_noise_name(settings: Settings) -> str:
    return settings.noise if isinstance(settings.noise, str) else settings.noise.name


def test_a_metric_to_shrink_to_is_remembered(table: PairTable, files: Source, tmp_path: Path) -> None:
    d = len(table.encoding.feature_names)
    prior = cf.Metric.from_matrix(np.diag(np.arange(1.0, d + 1.0)), 1.0)
    learner = cf.LinearMetricLearner(prior=prior, far_label="far")
    learner.fit(table.data, table.labels, feature_names=table.encoding.feature_names)
    path = tmp_path / "model.closefar"
    path.write_bytes(Model.of(learner, table, files).to_bytes())
    again = Model.load(path)
    assert again.learner().prior == prior
    assert again.learner().fit_.known.prior == prior
    assert again.learner(table).fit(table.data, table.labels).alpha_ == learner.alpha_
    assert again.truncate(1).fit_on(table).known.prior == prior


def test_columns_are_remembered_where_they_are_there(path: Path, files: Source, tmp_path: Path) -> None:
    model, other = Model.load(path), tmp_path / "other.csv"
    assert model.source(Source(points=files.points, pairs=files.pairs)).left == "patient"
    assert model.source(Source(pairs=files.pairs, left="mine", right="yours")).right == "yours"
    other.write_text("patient,second,label\na,b,far\n")
    found = model.source(Source(pairs=other))
    assert (found.left, found.right) == (None, None)


def test_the_restored_learner_is_the_fitted_one(path: Path, learner: cf.LinearMetricLearner, table: PairTable) -> None:
    restored = Model.load(path).learner()
    np.testing.assert_array_equal(restored.predict_proba(table.data), learner.predict_proba(table.data))
    np.testing.assert_array_equal(restored.predict(table.data), learner.predict(table.data))
    assert restored.get_params() == learner.get_params()
    assert restored.certificate_ == learner.certificate_
    assert restored.fit_statistics_ == learner.fit_statistics_
    assert restored.summary() == learner.summary()
    with pytest.raises(ValueError, match="Pass pairs and labels"):
        restored.check_noise_model()
    again = Model.load(path).learner(table)
    none = np.arange(len(table.labels))
    assert again.check_noise_model(groups=none) == learner.check_noise_model(groups=none)


def test_other_pairs_are_not_those_of_the_fit(path: Path, files: Source, table: PairTable) -> None:
    model = Model.load(path)
    labels = table.labels.copy()
    labels[0] = "far" if labels[0] == "close" else "close"
    assert not model.is_fitted_to(replace(table, labels=labels))
    assert not model.is_fitted_to(replace(table, index=table.index[:-1], labels=labels[:-1]))


def test_truncation_leaves_the_figures_of_the_fit_behind(path: Path) -> None:
    small = Model.load(path).truncate(1)
    assert small.metric.rank == 1
    assert small.fit is None
    with pytest.raises(ValueError, match="truncated"):
        small.learner()


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["close"]},
        {"classes": None},
        {"encoding": {}},
        {"encoding": []},
        {"encoding": None},
        {"names": 3},
        {"fit": {}},
        {"fit": {"parameters": {"noise": "logistic", "colour": 1}}},
        {"fit": "good"},
        {"classes": [1, 2]},
        {"names": {"id": 5}},
        {"names": {"sides": 3}},
        {"names": {"sides": ["left_"]}},
    ],
    ids=str,
)
def test_a_file_that_does_not_fit_together_is_refused(path: Path, change: dict[str, Any]) -> None:
    metric, beside, header = load_with_header(path)
    header = {name: value for name, value in header.items() if name not in ("format_version", "library_version")}
    arrays, _ = contents_of(metric, beside)
    modelfile.write(path, arrays, {**header, **change})
    assert cf.load(path) == metric
    with pytest.raises(cf.ModelFileError, match="does not describe a model"):
        Model.load(path)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("certificate", {"advice": 3}),
        ("certificate", {"outcome": "splendid"}),
        ("certificate", {"gap": "small"}),
        ("statistics", {"accuracy": None}),
        ("statistics", {"column_scales": "wide"}),
        ("statistics", {"column_scales": [1.0]}),
        ("problems", 3),
        ("fingerprint", None),
        ("rank", "two"),
        ("known", {"alpha": "auto"}),
        ("known", {"scale": "small"}),
        ("known", {"prior": "metric"}),
        ("choice", {"table": [["zero", "small"]]}),
        ("choice", {"alpha": "small"}),
        ("baseline", {"plain_loss": None}),
        ("summary", 3),
        ("parameters", {"noise": "logistic", "colour": 1}),
    ],
    ids=str,
)
def test_a_fit_of_the_wrong_kinds_is_refused(path: Path, table: PairTable, part: str, value: Any) -> None:
    metric, beside, header = load_with_header(path)
    header = {name: value for name, value in header.items() if name not in ("format_version", "library_version")}
    changed = {**header["fit"][part], **value} if isinstance(header["fit"][part], dict) else value
    fit = {**header["fit"], part: changed}
    arrays, _ = contents_of(metric, beside)
    modelfile.write(path, arrays, {**header, "fit": fit})
    with pytest.raises(cf.ModelFileError, match=r"does not describe a (model|fit)"):
        Model.load(path).learner()
    modelfile.write(path, arrays, {**header, "fit": None, "truncated": {"rank": 3, "fit": fit}})
    with pytest.raises(cf.ModelFileError, match=r"does not describe a (model|fit)"):
        Model.load(path).fit_on(table)


def test_a_model_is_read_without_scikit_learn(path: Path) -> None:
    code = (
        "import sys; from closefar.learners import Model; model = Model.load(sys.argv[1]); model.summary;"
        "print({'sklearn', 'scipy', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_summary_of_a_file_is_that_of_its_fit(path: Path) -> None:
    model = Model.load(path)
    assert model.summary == command_words(describe_fit(model.learner().fit_))
    assert model.truncate(1).summary is None


def test_a_metric_saved_by_itself(tmp_path: Path) -> None:
    cf.Metric([[1.0], [0.5]], 1.0).save(tmp_path / "metric")
    model = Model.load(tmp_path / "metric")
    assert model.encoding.feature_names == ("x0", "x1")
    assert model.fit is None
