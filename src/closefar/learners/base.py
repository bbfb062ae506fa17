"""What every learner of a metric offers once it is fitted: predictions, the map, the questions and the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from closefar.arrays import FloatArray, as_float64, is_source, like, to_numpy
from closefar.fitting import Fit, FitStatistics, RankChoice
from closefar.judgements import check_pairs
from closefar.model import Metric
from closefar.noise import with_flips
from closefar.questions import (
    Diagnosis,
    NoiseCheck,
    TruncationPath,
    check_noise_model,
    diagnose,
    summarize,
    truncation_of,
)
from closefar.rows import rows_of
from closefar.solve import Certificate, FitStep

__all__ = ["MetricLearner"]


class MetricLearner(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """An estimator whose fit is `fit_`; all that it says follows from that."""

    fit_: Fit
    n_features_in_: int

    @property
    def metric_(self) -> Metric:
        """The learned metric, in the units of the data."""
        return self._fitted().metric

    @property
    def certificate_(self) -> Certificate:
        """The loss, the proven gap to its minimum, and what to do."""
        return self._fitted().certificate

    @property
    def history_(self) -> tuple[FitStep, ...]:
        """The objective and the proven gap after each step."""
        return self._fitted().history

    @property
    def classes_(self) -> NDArray[Any]:
        """The two labels, sorted."""
        return self._fitted().sides.classes

    @property
    def far_label_(self) -> Any:
        """The label that means far."""
        return self._fitted().sides.far

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
        """The largest rank that was asked for or chosen."""
        return self._fitted().rank

    @property
    def alpha_(self) -> float:
        """The weight of the penalty that was given or chosen."""
        return self._fitted().alpha

    @property
    def flip_rate_(self) -> float:
        """The share of flipped labels that was given or estimated."""
        return self._fitted().flip_rate

    @property
    def fit_statistics_(self) -> FitStatistics:
        """What `summary` says of the training pairs."""
        return self._fitted().statistics

    @property
    def noise_comparison_(self) -> dict[str, dict[str, float]]:
        """With noise="auto": how the noises compare."""
        choice = self._fitted().noise_choice
        if choice is None:
            raise AttributeError('the noise was given, not chosen: noise_comparison_ is there with noise="auto".')
        return choice.comparison

    @property
    def rank_choice_(self) -> RankChoice:
        """With rank="auto": the table from which the rank was chosen."""
        choice = self._fitted().rank_choice
        if choice is None:
            raise AttributeError('the rank was given, not chosen: rank_choice_ is there with rank="auto".')
        return choice

    @property
    def data_problems(self) -> tuple[str, ...]:
        """What the data of the fit leave open, a sentence with advice each."""
        return self._fitted().problems

    @property
    def _n_features_out(self) -> int:
        return self.metric_.rank

    def decision_function(self, X: Any) -> FloatArray:
        """Return the margin z'Mz - tau of each pair, positive where the label is the last of `classes_`.

        That is the one for far; where `far_label` sorts first, it is minus the margin.
        """
        margin = self._margin(X)
        return margin if self.fit_.sides.far_is_last else -margin

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likelier label of each pair."""
        far = self._margin(X) >= 0
        labels: NDArray[Any] = self.classes_[(far == self.fit_.sides.far_is_last).astype(int)]
        return labels

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each label, in the order of `classes_`."""
        margin, cdf = self._margin(X), self.metric_.noise.cdf
        close_and_far = np.column_stack([cdf(-margin), cdf(margin)])
        probabilities: FloatArray = with_flips(close_and_far, self.flip_rate_)
        return probabilities if self.fit_.sides.far_is_last else probabilities[:, ::-1]

    def transform(self, X: Any) -> FloatArray:
        """Map points, or both sides of pairs, to where the metric is Euclidean: ``X @ components_.T``.

        Column k is the place along direction k, in order of the mean squared distance that each
        explains on the training pairs.
        """
        directions = self.metric_.components.T
        data = check_pairs(self, X, fitting=False)
        if is_source(data):
            return rows_of(data).projected(directions)
        mapped: FloatArray = to_numpy(as_float64(data) @ like(data, directions))
        return mapped

    def pair_distance(self, X: Any) -> FloatArray:
        """Return the distance of each pair, or the length of each difference."""
        return np.sqrt(self._squared_distances(X))

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
        """Return a table of what was learned, how well, and how surely."""
        return summarize(self._fitted())

    def truncation_path(
        self, X: Any = None, y: Any = None, sample_weight: Any = None, *, scale: str | None = None, held_out: Any = None
    ) -> TruncationPath:
        """Say what cutting the metric to each rank costs, beside refitting in the directions that are kept.

        Parameters
        ----------
        X, y, sample_weight
            Pairs, labels and weights as for `fit`; by default those of the fit, as they are now.
        scale : {"data", "units"}, optional
            As for `Metric.truncate`.
        held_out : tuple (pairs, labels), optional
            Labels that the fit has not seen, to say what is lost on those.
        """
        fit = self._fitted()
        others = None if held_out is None else fit.read(*held_out)
        return truncation_of(fit, fit.read_or_training(X, y, sample_weight), scale=scale, held_out=others)

    def check_noise_model(
        self, X: Any = None, y: Any = None, sample_weight: Any = None, *, groups: Any = None
    ) -> NoiseCheck:
        """Test whether labels are as frequent at each margin as the fitted noise says.

        Of the pairs of the fit by default; see `closefar.check_noise_model`.
        """
        return check_noise_model(self, X, y, sample_weight, groups=groups)

    def diagnose(self, *, groups: Any = None) -> Diagnosis:
        """Print what speaks against the fit and what its data leave open, with advice, and return it.

        Score tests ask whether labels depend on more than a distance: on the sign of differences, on
        products of columns, on absolute differences, on place, on flips that are not symmetric, on
        noise of another kind.  All together they doubt a right model in at most 5 % of the cases.

        `groups` says which pairs of the fit are not independent, as for `closefar.check_noise_model`.
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
        """Write a page, JSON or text that shows what was learned, how good it is and how to go on.

        Parameters
        ----------
        path : str or Path
            Its suffix says what to write: .html (extra `report`), .json, .txt or .md.
        X, y, sample_weight : optional
            Pairs, labels and weights as for `fit`.  By default those of the fit, each evaluated
            by a fit that has not seen it; others are evaluated by this one.
        title : str, optional
            The headline.
        model : str or Path, optional
            The file that the metric is saved in, for the report to name.
        ids : array of shape (n,) or (n, 2), optional
            Names of the pairs, or of their points, to show suspicious pairs by.
        groups : array of shape (n,) or (n, 2), optional
            Which pairs depend on each other: a group for each, or the ids of its two points.  By
            default the points of `ids`, or those that the data shows to be shared.
        random_state, n_bootstrap, watch
            As for `closefar.report.summarize`.
        """
        from closefar.report import Provenance, write_report  # few need it, and it takes a while to import

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
        tags.classifier_tags.poor_score = not self.fit_origin  # points around another centre than zero
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Leave the training pairs out of a pickle: they may be large, and secret."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "fit_" in state:
            state["fit_"] = state["fit_"].without_judgements()
        return state

    def _fitted(self) -> Fit:
        check_is_fitted(self, "fit_")
        return self.fit_

    def _squared_distances(self, X: Any) -> FloatArray:
        self._fitted()
        return self.metric_.measure(check_pairs(self, X, fitting=False))

    def _margin(self, X: Any) -> FloatArray:
        return self._squared_distances(X) - self.metric_.threshold
