"""The methods of all fitted metric learners: predictions, transformation, analyses and report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from closefar.arrays import FloatArray, as_float64, is_source, like, to_numpy
from closefar.fitting import AnnotatorTable, Baseline, Choice, ComparisonNoise, Fit, FitStatistics
from closefar.judgements import Kind, Tuples, check_pairs, is_partitioned, own_labels
from closefar.learners.answers import answers_to, measured
from closefar.learners.lazy import accuracy_on_cluster, lazy_on_dask
from closefar.model import Metric
from closefar.noise import FlipRate
from closefar.questions import (
    Diagnosis,
    NoiseCheck,
    TruncationPath,
    check_noise_model,
    diagnose,
    summarize,
    truncation_of,
)
from closefar.rows import GraphRows, IndexedRows, pair_rows, rows_of
from closefar.solve import Certificate, FitStep

__all__ = ["MetricLearner"]


class MetricLearner(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """An estimator whose results all follow from its fit, `fit_`."""

    fit_: Fit
    n_features_in_: int

    @property
    def metric_(self) -> Metric:
        """The learned metric, in the units of the data."""
        return self._fitted().metric

    @property
    def certificate_(self) -> Certificate:
        """The loss, the proven gap to its minimum, and a status to act on."""
        return self._fitted().certificate

    @property
    def history_(self) -> tuple[FitStep, ...]:
        """The objective and the proven gap after each step."""
        return self._fitted().history

    @property
    def classes_(self) -> NDArray[Any]:
        """The two labels, sorted; or the levels, from the closest to the farthest."""
        return self._fitted().sides.classes

    @property
    def far_label_(self) -> Any:
        """The label that means far."""
        if self._fitted().kind is not Kind.CLOSE_FAR:
            raise AttributeError("far_label_ exists only for close/far labels; see classes_.")
        return self.fit_.sides.far

    @property
    def thresholds_(self) -> FloatArray:
        """The thresholds on the squared distance, lowest first: one for close/far, K - 1 for K levels."""
        return np.array(self.metric_.thresholds)

    @property
    def components_(self) -> FloatArray:
        """The directions of M, (rank, n_features), in order of the mean squared distance that each explains."""
        return np.array(self.metric_.components)

    @property
    def n_iter_(self) -> int:
        """The number of solver steps."""
        return self._fitted().n_iter

    @property
    def rank_(self) -> int | None:
        """The largest rank that was set or chosen."""
        return self._fitted().rank

    @property
    def alpha_(self) -> float:
        """The weight of the penalty that was set or chosen."""
        return self._fitted().alpha

    @property
    def prior_(self) -> str | Metric:
        """What M is shrunk to, set or chosen; "zero" without a penalty."""
        return self._fitted().prior

    @property
    def flip_rate_(self) -> FlipRate:
        """The flip rate that was set or estimated; with flip_rate="two" that of close and that of far pairs."""
        return self._fitted().flip_rate

    @property
    def annotators_(self) -> AnnotatorTable:
        """With annotators: how strict each is, and how far each agrees."""
        table = self._fitted().annotators
        if table is None:
            raise AttributeError("annotators_ exists only after fit(..., annotators=ids); here there were none.")
        return table

    @property
    def comparison_noise_(self) -> ComparisonNoise:
        """With comparisons beside pairs: their noise relative to that of the pairs, set or estimated."""
        noise = self._fitted().comparison_noise
        if noise is None:
            raise AttributeError("comparison_noise_ exists only for pairs with comparisons, fit(..., comparisons=...).")
        return noise

    @property
    def fit_statistics_(self) -> FitStatistics:
        """Statistics of the fit on its training pairs, as in `summary`."""
        return self._fitted().statistics

    @property
    def noise_comparison_(self) -> dict[str, dict[str, float]]:
        """With noise="auto": the comparison of the noises."""
        choice = self._fitted().noise_choice
        if choice is None:
            raise AttributeError('noise_comparison_ exists only with noise="auto"; here the noise was set.')
        return choice.comparison

    @property
    def choice_(self) -> Choice:
        """What "auto" tried on held-out judgements, and what it chose."""
        choice = self._fitted().choice
        if choice is None:
            raise AttributeError('choice_ exists only if a setting was "auto"; here all were set.')
        return choice

    @property
    def baseline_(self) -> Baseline:
        """The most frequent answer, the plain distance and the learned metric, on the same held-out judgements."""
        baseline = self._fitted().baseline
        if baseline is None:
            raise AttributeError(
                "baseline_ exists only if judgements were held out to choose a setting; here all were set, or there "
                "were too few judgements. `closefar evaluate` and the report compare with the plain distance as well."
            )
        return baseline

    @property
    def data_problems(self) -> tuple[str, ...]:
        """The problems of the training data, each with advice."""
        return self._fitted().problems

    @property
    def _n_features_out(self) -> int:
        return self.metric_.rank

    @lazy_on_dask
    def decision_function(self, X: Any, annotator: Any = None) -> FloatArray:
        """Return a score for each pair that is positive if the last of `classes_` is predicted.

        This is the margin z'Mz - tau or, if `far_label` sorts first, minus the margin.

        Parameters
        ----------
        X
            Pairs, as for `fit`.
        annotator : id, or array of n ids, optional
            Whose judgements to predict: those of one annotator of the fit, or of one for each pair.  By default
            those of a typical annotator.
        """
        return answers_to(self, X, annotator).decision()

    @lazy_on_dask
    def predict(self, X: Any, annotator: Any = None) -> NDArray[Any]:
        """Return the more probable label of each pair; `annotator` is as for `decision_function`."""
        return answers_to(self, X, annotator).labels()

    @lazy_on_dask
    def predict_proba(self, X: Any, annotator: Any = None) -> FloatArray:
        """Return the probability of each label, in the order of `classes_`; `annotator` is as for `predict`."""
        return answers_to(self, X, annotator).probabilities()

    @lazy_on_dask
    def transform(self, X: Any) -> FloatArray:
        """Map points, or both sides of pairs, to a space where the metric is Euclidean: ``X @ components_.T``.

        Column k is the coordinate along direction k.  Directions are ordered by the mean squared
        distance that each explains on the training pairs.
        """
        directions = self.metric_.components.T
        data = check_pairs(self, X, fitting=False)
        if isinstance(data, Tuples):
            rows = rows_of(data)
            assert isinstance(rows, IndexedRows | GraphRows)
            return rows.sides(directions)
        if is_source(data):
            return pair_rows(data).projected(directions)
        mapped: FloatArray = to_numpy(as_float64(data) @ like(data, directions))
        return mapped

    @lazy_on_dask
    def pair_distance(self, X: Any) -> FloatArray:
        """Return the distance of each pair, or the length of each difference."""
        return np.sqrt(measured(self, X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict`, weighted if there are weights; opened pairs may have their own labels."""
        if is_partitioned(X):
            return accuracy_on_cluster(self, X, y, sample_weight)
        y, sample_weight = own_labels(X, y, sample_weight)
        accuracy: float = super().score(X, y, sample_weight=sample_weight)
        return accuracy

    def pair_score(self, X: Any) -> FloatArray:
        """Return minus the distance of each pair: larger is closer, as in metric-learn."""
        return -self.pair_distance(X)

    def get_metric(self) -> Callable[[Any, Any], float]:
        """Return a function of two points, for scikit-learn's ``metric=``.

        Mapping the points with `transform` and using Euclidean distance is much faster.
        """
        return self._fitted().metric.distance

    def get_mahalanobis_matrix(self) -> FloatArray:
        """Return M."""
        return self._fitted().metric.matrix

    def to_onnx(self, kind: str | None = None) -> Any:
        """Return the learned metric as an ONNX model; see `Metric.to_onnx`."""
        return self._fitted().metric.to_onnx(kind)

    def to_faiss(self, points: Any = None) -> Any:
        """Return a FAISS index in which L2 search is the learned metric; see `Metric.to_faiss`."""
        return self._fitted().metric.to_faiss(points)

    def summary(self) -> str:
        """Return a table of the fit as text: data, loss, certificate, accuracy and directions."""
        return summarize(self._fitted())

    def truncation_path(
        self, X: Any = None, y: Any = None, sample_weight: Any = None, *, scale: str | None = None, held_out: Any = None
    ) -> TruncationPath:
        """Compute the cost of truncating the metric to each rank, with and without refitting.

        Parameters
        ----------
        X, y, sample_weight
            Pairs, labels and weights as for `fit`; by default the training pairs.
        scale : {"data", "units"}, optional
            As for `Metric.truncate`.
        held_out : tuple (pairs, labels), optional
            Pairs that the fit has not seen, to evaluate each rank on.
        """
        fit = self._fitted()
        others = None if held_out is None else fit.read(*held_out)
        return truncation_of(fit, fit.read_or_training(X, y, sample_weight), scale=scale, held_out=others)

    def check_noise_model(
        self,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        annotators: Any = None,
        comparisons: Any = None,
        groups: Any = None,
    ) -> NoiseCheck:
        """Test whether the share of far labels at each margin agrees with the fitted model.

        By default on the training judgements; see `closefar.check_noise_model`.
        """
        return check_noise_model(
            self, X, y, sample_weight, annotators=annotators, comparisons=comparisons, groups=groups
        )

    def diagnose(self, *, groups: Any = None) -> Diagnosis:
        """Print the problems of the fit and its data, with advice, and return them.

        Score tests check whether labels depend on more than a distance: on the sign of differences,
        products of columns, absolute differences, place, asymmetric flips, or noise of another kind.
        Together they reject a correct model in at most 5% of cases.

        `groups` are the training pairs that are not independent, as for `closefar.check_noise_model`.
        """
        diagnosis = diagnose(self._fitted(), groups)
        print(diagnosis)
        return diagnosis

    def report(
        self,
        path: str | Path,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        title: str | None = None,
        model: str | Path | None = None,
        ids: Any = None,
        groups: Any = None,
        random_state: Any = 0,
        n_bootstrap: int | None = None,
        watch: Callable[[str], None] | None = None,
    ) -> None:
        """Write a report on what was learned, how good it is and what to do next, as HTML, JSON or text.

        Parameters
        ----------
        path : str or Path
            The output file; its suffix selects the format: .html (extra `report`), .json, .txt or .md.
        X, y, sample_weight : optional
            Pairs, labels and weights as for `fit`.  The training pairs, which are the default, are
            cross-validated; other pairs are evaluated with this fit.
        title : str, optional
            The headline.
        model : str or Path, optional
            The model file to name in the report.
        ids : array of shape (n,) or (n, 2), optional
            Ids of the pairs, or of their points, that identify suspicious pairs in the report.
        groups : array of shape (n,) or (n, 2), optional
            Which pairs are not independent: a group id per pair, or the ids of its two points.  By
            default the points of `ids`, or shared points that are detected in the data.
        random_state, n_bootstrap, watch
            As for `closefar.report.summarize`.
        """
        from closefar.report import Provenance, write_report  # rarely needed, and slow to import

        write_report(
            self._fitted(),
            path,
            X,
            y,
            sample_weight,
            title=title,
            provenance=Provenance(model=None if model is None else str(model)),
            ids=ids,
            groups=groups,
            random_state=random_state,
            n_bootstrap=n_bootstrap,
            watch=watch,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = not getattr(
            self, "fit_origin", False
        )  # scikit-learn's test points are not centred at zero
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Leave the training pairs out of a pickle: they may be large or confidential."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "fit_" in state:
            state["fit_"] = state["fit_"].without_judgements()
        return state

    def _fitted(self) -> Fit:
        check_is_fitted(self, "fit_")
        return self.fit_
