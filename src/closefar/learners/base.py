"""What all metric learners have in common: fitting, predictions, transformation, analyses and report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from closefar import fitting, questions
from closefar.arrays import BoolArray, FloatArray, IndexArray, as_float64, is_source, like, to_numpy
from closefar.cluster import cluster_for
from closefar.fitting import Checkpoint, Fit, Settings, showing
from closefar.judgements import (
    Columns,
    Judgements,
    Kind,
    Partition,
    PartitionedJudgements,
    Partitions,
    Tuples,
    check_comparisons,
    check_pairs,
    is_partitioned,
    mapped_partitions,
    partitions_of,
    read_annotators,
    resolve_groups,
    unlabelled_partitions,
)
from closefar.judgements.checks import ALL_WEIGHTS_ARE_ZERO, check_columns, check_weights, refuse_partitions
from closefar.model import Metric
from closefar.noise import FlipRate
from closefar.rows import GraphRows, IndexedRows, pair_rows, rows_of
from closefar.solve import Certificate, FitStep

# ---------------------------------------------------------------------------------------------------------------------
# What a fit says of new judgements: a side, a level or the shorter leg of a comparison, with probabilities.


def _measured(learner: Any, X: Any, annotator: Any = None) -> tuple[FloatArray, Any]:
    """Return the squared distance of each pair, or the margin of each comparison, and the flip rate of its annotator.

    The distance is less the strictness of a named annotator; for a typical one, the flip rate is None.
    """
    fit: Fit = learner._fitted()
    compares = fit.kind is Kind.COMPARISONS
    squared = fit.metric.measure(_compared(learner, X) if compares else check_pairs(learner, X, fitting=False))
    if annotator is None:
        return squared, None
    strictness, flip_rate = _annotated(fit, annotator, len(squared))
    return squared - strictness, flip_rate


def _answers(learner: Any, X: Any, annotator: Any = None) -> IndexArray:
    """The number of each predicted answer, from 0, the closest; of comparisons, 1 if the first leg is the shorter."""
    (squared, _), metric = _measured(learner, X, annotator), learner.fit_.metric
    return metric.levels_at(squared) if metric.thresholds else (squared >= 0).astype(int)


def _far_is_first(fit: Fit) -> bool:
    """Whether the label that means far sorts first, so that scores and probabilities are reversed."""
    return fit.kind is Kind.CLOSE_FAR and not fit.sides.far_is_last


def _compared(learner: Any, X: Any) -> Any:
    """Comparisons that were checked; pairs are named as what they are."""
    shape = getattr(X, "shape", None) or np.shape(X)
    if len(shape) == 2 or (len(shape) == 3 and shape[1] == 2):
        raise ValueError(
            f"a metric learned from comparisons has no threshold, so it calls no pair close or far; got pairs of shape "
            f"{tuple(shape)}. Pass comparisons, (n, 3, d) or (n, 4, d), or fit a threshold with "
            "calibrate_threshold(pairs, labels)."
        )
    return check_comparisons(learner, X, fitting=False)


def _annotated(fit: Fit, annotator: Any, n: int) -> tuple[FloatArray, Any]:
    """The strictness and the flip rate of an annotator, or of the annotator of each of n pairs."""
    table = fit.annotators
    if table is None:
        raise ValueError(
            f"the fit must know annotators to predict for one; got annotator={annotator!r} for a fit without them. Fit "
            "with annotators=ids, or leave annotator out."
        )
    is_one = isinstance(annotator, str) or np.ndim(annotator) == 0
    who = read_annotators([annotator] * n if is_one else annotator, n, table.names).codes
    return table.strictness[who], None if table.flip_rates is None else table.flip_rates[who]


# ---------------------------------------------------------------------------------------------------------------------
# Answers on dask data: dask arrays, of which nothing is computed until they are.


_Result = TypeVar("_Result")
Method = Callable[..., NDArray[Any]]


def lazy_on_dask(method: Method) -> Method:
    """Make a method that returns something for each pair return a dask array where the pairs are dask's."""

    @wraps(method)
    def answer(learner: Any, X: Any, annotator: Any = None) -> Any:
        if not is_partitioned(X):
            return method(learner, X) if annotator is None else method(learner, X, annotator)
        partitions = unlabelled_partitions(X)
        fitted = _checked(learner, partitions)
        function = getattr(fitted, method.__name__)
        if annotator is not None:
            if not isinstance(annotator, str) and np.ndim(annotator) != 0:
                raise ValueError(
                    "annotator must be one id for all pairs of a dask collection; got "
                    f"{np.size(annotator)} values. Pass one, or pairs in memory."
                )
            function = partial(function, annotator=annotator)
        n_points = partitions.n_points
        # Points that differ, as no metric can compare a leg with itself.
        one = np.zeros((1, n_points, fitted.n_features_in_) if n_points > 1 else (1, fitted.n_features_in_))
        one[:, -1] = 1.0
        try:
            none = function(one)[:0]
        except ValueError as error:
            # The shape of the data, not of the row that stands for them.
            raise ValueError(str(error).replace(str(one.shape), str(getattr(X, "shape", one.shape)))) from None
        return _mapped(function, none, partitions)

    return answer


def _mapped(function: Callable[[Any], NDArray[Any]], none: NDArray[Any], partitions: Partitions) -> Any:
    """The answers to partitions, as chunks of a dask array; `none` are those to no pairs."""
    parts = mapped_partitions(partitions, partial(_to_partition, function, none))
    import dask.array as da

    counts = partitions.n_rows or (np.nan,) * len(partitions)
    arrays = [
        da.from_delayed(part, (count, *none.shape[1:]), meta=none) for part, count in zip(parts, counts, strict=True)
    ]
    return da.concatenate(arrays, allow_unknown_chunksizes=True)


def _to_partition(function: Callable[[Any], NDArray[Any]], none: NDArray[Any], partition: Partition) -> NDArray[Any]:
    return function(partition.data) if len(partition) else none


def _count_right(learner: Any, partition: Partition) -> FloatArray:
    n = len(partition)
    if n == 0:
        return np.zeros(2)
    weights = check_weights(partition.weights, n, may_be_zero=True)
    is_right = learner._are_right(partition.data, partition.labels)[1]
    return np.array([np.sum(weights[is_right]), np.sum(weights)])


def _checked(learner: Any, partitions: Partitions) -> Any:
    """The learner as it is now, without its training pairs and the names of columns, once these have its columns."""
    fit = learner._fitted()
    check_columns(learner, partitions.n_columns, None, fitting=False)
    if partitions.feature_names is not None or partitions.n_points == 1:
        Columns.of(learner).check_names(partitions.feature_names)
    fitted = copy(learner)
    fitted.fit_ = fit.without_judgements()
    vars(fitted).pop("feature_names_in_", None)
    return fitted


def store_parameters(learner: BaseEstimator, given: dict[str, Any]) -> None:
    """Keep the arguments of `__init__` under their names, which is all that scikit-learn allows there."""
    vars(learner).update({name: given[name] for name in learner._get_param_names()})


def _existing(result: _Result | None, when: str) -> _Result:
    """A result that not every fit has."""
    if result is None:
        raise AttributeError(when)
    return result


class MetricLearner(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """An estimator that fits with its own parameters, and whose results all follow from its fit, `fit_`."""

    fit_: Fit
    n_features_in_: int
    warm_start: bool
    verbose: int

    @contextmanager
    def _reading(
        self,
        noun: str,
        *given: Any,
        groups: Any,
        feature_names: Any,
        checkpoint: str | os.PathLike[str] | None,
        **judged: Any,
    ) -> Iterator[tuple[Judgements, dict[str, Any]]]:
        """Read judgements and, within this, show the progress of a fit to them; beside them are its further arguments.

        It starts from the last metric if that is asked for.
        """
        kept = None if checkpoint is None else Checkpoint(checkpoint)  # what can't be written is refused first
        with showing(int(self.verbose)) as shown:
            with shown.stage(f"reading the {noun}"):
                judgements = self._read(*given, **judged)
            groups = None if groups is None else resolve_groups(groups, judgements.data)
            columns, start = Columns.of(self, feature_names), self._start(judgements) if self.warm_start else None
            yield judgements, {"start": start, "columns": columns, "groups": groups, "checkpoint": kept}

    def _start(self, judgements: Judgements) -> Metric | None:
        """The metric of the last fit, if it has the columns and the thresholds of these judgements."""
        last = self.fit_.metric if hasattr(self, "fit_") else None
        if last is None or len(last.factor) != self.n_features_in_ or len(last.thresholds) != judgements.n_thresholds:
            return None
        return last

    def learn(self, judgements: Judgements) -> Fit:
        """Return the fit to validated judgements, without storing it."""
        return fitting.fit(judgements, Settings.of(self))

    def read(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, annotators: Any = None, comparisons: Any = None
    ) -> Judgements:
        """Validate judgements in memory to learn from."""
        refuse_partitions(X)
        return self._read(X, y, sample_weight, annotators=annotators, comparisons=comparisons)

    @property
    def _meaning(self) -> dict[str, Any]:
        """What labels mean, as for `read_judgements`."""
        return {}

    def _read(self, X: Any, y: Any, sample_weight: Any, **judged: Any) -> Judgements:
        """Validate judgements, called by a method that the user calls; those in partitions stay there."""
        if not is_partitioned(X):
            return Judgements.read(self, X, y, sample_weight, **self._meaning, **judged, stacklevel=6)
        return PartitionedJudgements.load(self, X, y, sample_weight, **self._meaning, **judged, stacklevel=6)

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
    def annotators_(self) -> fitting.AnnotatorTable:
        """With annotators: how strict each is, and how far each agrees."""
        return _existing(
            self._fitted().annotators, "annotators_ exists only after fit(..., annotators=ids); here there were none."
        )

    @property
    def comparison_noise_(self) -> fitting.ComparisonNoise:
        """With comparisons beside pairs: their noise relative to that of the pairs, set or estimated."""
        return _existing(
            self._fitted().comparison_noise,
            "comparison_noise_ exists only for pairs with comparisons, fit(..., comparisons=...).",
        )

    @property
    def fit_statistics_(self) -> fitting.FitStatistics:
        """Statistics of the fit on its training pairs, as in `summary`."""
        return self._fitted().statistics

    @property
    def noise_comparison_(self) -> dict[str, dict[str, float]]:
        """With noise="auto": the comparison of the noises."""
        return _existing(
            self._fitted().noise_choice, 'noise_comparison_ exists only with noise="auto"; here the noise was set.'
        ).comparison

    @property
    def choice_(self) -> fitting.Choice:
        """What "auto" tried on held-out judgements, and what it chose."""
        return _existing(self._fitted().choice, 'choice_ exists only if a setting was "auto"; here all were set.')

    @property
    def baseline_(self) -> fitting.Baseline:
        """The most frequent answer, the plain distance and the learned metric, on the same held-out judgements."""
        return _existing(
            self._fitted().baseline,
            "baseline_ exists only if judgements were held out to choose a setting; here all were set, or there "
            "were too few judgements. `closefar evaluate` and the report compare with the plain distance as well.",
        )

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

        This is the margin z'Mz - tau or, if `far_label` sorts first, minus the margin.  Of levels it is the squared
        distance, to compare with `thresholds_`, and of comparisons the squared distance of the second leg less that of
        the first.

        Parameters
        ----------
        X
            Pairs or comparisons, as for `fit`.
        annotator : id, or array of n ids, optional
            Whose judgements to predict: those of one annotator of the fit, or of one for each pair.  By default
            those of a typical annotator.
        """
        (squared, _), fit = _measured(self, X, annotator), self.fit_
        margin = squared - fit.metric.known_threshold if fit.kind is Kind.CLOSE_FAR else squared
        return -margin if _far_is_first(fit) else margin

    @lazy_on_dask
    def predict(self, X: Any, annotator: Any = None) -> NDArray[Any]:
        """Return the most probable label of each pair; `annotator` is as for `decision_function`.

        That of comparisons is +1 where the first leg is the shorter one, as the points are given, and -1 elsewhere.
        """
        answers = _answers(self, X, annotator)
        labels: NDArray[Any] = self.classes_[1 - answers if _far_is_first(self.fit_) else answers]
        return labels

    @lazy_on_dask
    def predict_proba(self, X: Any, annotator: Any = None) -> FloatArray:
        """Return the probability of each label, in the order of `classes_`; `annotator` is as for `predict`."""
        (squared, flip_rate), metric = _measured(self, X, annotator), self.metric_
        if not metric.thresholds:
            return np.column_stack([metric.probability_at(-squared), metric.probability_at(squared)])
        probabilities = metric.probabilities_at(squared, flip_rate)
        return probabilities[:, ::-1] if _far_is_first(self.fit_) else probabilities

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
        return np.sqrt(self.metric_.measure(check_pairs(self, X, fitting=False)))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict`, weighted if there are weights; opened pairs may have their own labels.

        For comparisons, this is the share that the metric agrees with.
        """
        if is_partitioned(X):
            compares = self._fitted().kind is Kind.COMPARISONS
            partitions = partitions_of(X, y, sample_weight, compares=compares)
            tasks = mapped_partitions(partitions, partial(_count_right, _checked(self, partitions)))
            right, total = np.sum(cluster_for(partitions.client).compute(tasks), axis=0)
            if total == 0.0:
                raise ValueError(ALL_WEIGHTS_ARE_ZERO)
            return float(right / total)
        given, are_right = self._are_right(X, y, sample_weight)
        return given.mean(are_right)

    def _are_right(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[Judgements, BoolArray]:
        """Read judgements, and return whether the prediction of each is right."""
        if self._fitted().kind is Kind.COMPARISONS:
            given = self.fit_.read(X, y, sample_weight)
        else:
            given = Judgements.read(self, X, y, sample_weight, sides=self.fit_.sides)
        return given, _answers(self, X) == given.codes  # as given: a frame has names of columns

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
        return questions.describe_fit(self._fitted())

    def truncation_path(
        self, X: Any = None, y: Any = None, sample_weight: Any = None, *, scale: str | None = None, held_out: Any = None
    ) -> questions.TruncationPath:
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
        return questions.truncation_of(fit, fit.read_or_training(X, y, sample_weight), scale=scale, held_out=others)

    def check_noise_model(
        self,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        annotators: Any = None,
        comparisons: Any = None,
        groups: Any = None,
    ) -> questions.NoiseCheck:
        """Test whether the share of far labels at each margin agrees with the fitted model.

        By default on the training judgements; see `closefar.check_noise_model`.
        """
        given = {"annotators": annotators, "comparisons": comparisons, "groups": groups}
        return questions.check_noise_model(self, X, y, sample_weight, **given)

    def diagnose(self, *, groups: Any = None) -> questions.Diagnosis:
        """Print the problems of the fit and its data, with advice, and return them.

        Score tests check whether labels depend on more than a distance: on the sign of differences,
        products of columns, absolute differences, place, asymmetric flips, or noise of another kind.
        Together they reject a correct model in at most 5% of cases.

        `groups` are the training pairs that are not independent, as for `closefar.check_noise_model`.
        """
        diagnosis = questions.diagnose(self._fitted(), groups)
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
        random_state, watch
            As for `closefar.report.summarize`.
        """
        from closefar.report import Provenance, write_report  # rarely needed, and slow to import

        provenance = Provenance(model=None if model is None else str(model))
        rest = {"ids": ids, "groups": groups, "random_state": random_state, "watch": watch}
        write_report(self._fitted(), path, X, y, sample_weight, title=title, provenance=provenance, **rest)

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
