"""The estimators for close/far labels, for levels and for comparisons: their parameters, and what differs."""

from __future__ import annotations

import os
from typing import Any, Self

from closefar.fitting import CalibratedThreshold, Settings, calibrate_threshold, fit
from closefar.judgements import Judgements, PartitionedJudgements, is_partitioned
from closefar.learners.base import MetricLearner, store_parameters
from closefar.model import Metric
from closefar.noise import Noise


class PairLearner(MetricLearner):
    """An estimator of labelled pairs."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        annotators: Any = None,
        comparisons: Any = None,
        comparison_noise: float | str = 1.0,
        feature_names: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        max_time: float | None = None,
    ) -> Self:
        """Learn from pairs.

        Parameters
        ----------
        X : array or frame of shape (n, d), or array of shape (n, 2, d)
            Differences x - y (or points, measured from the origin), or pairs of points: NumPy
            arrays and memory maps, data frames, arrays of other libraries (torch, array-api-strict),
            which are used without conversion, pairs by index (`closefar.Tuples`), pairs in a file
            (`closefar.open_pairs`), or a row source (`closefar.rows.BlockRows`).  Dask arrays and frames,
            pairs by a dask index, and pairs opened on a cluster stay where they are: the current client of Dask
            computes with them or, without one, this process.
        y : array of n labels
            Close or far, as two distinct values.  For `OrdinalMetricLearner`, levels: numbers, an ordered categorical
            of pandas, or words in the order of the parameter `levels`; each level must have been used.  Opened pairs
            with labels need none.
        sample_weight : array of n numbers >= 0, optional
            A weight of 2 is equivalent to repeating the pair.
        groups : array of shape (n,) or (n, 2), optional
            What is held out together when settings are chosen: a group per pair, or the ids of its two points.  By
            default points that pairs share are detected in (n, 2, d) data and in the index of `Tuples`.
        annotators : array of n ids, optional
            Who judged each pair.  Each annotator then has a strictness of their own, see `annotators_`.  A pair may
            be judged by several.  Beside pairs of Dask these, labels and weights may be dask arrays or in memory.
        comparisons : tuple (comparisons, y), array or Tuples, optional
            Triplets (n, 3, d) or quadruplets (n, 4, d) to learn from together with the pairs, as for
            `ComparisonMetricLearner.fit`, with +1 or -1 for each where some are reversed and, as a third
            element, their weights.  They are of the array library of the pairs; beside pairs of Dask they may be in
            memory.
        comparison_noise : float or "estimate", default=1.0
            The noise of the comparisons relative to that of the pairs; "estimate" maximises the profile likelihood,
            see `comparison_noise_`.
        feature_names : sequence of d str, optional
            Names of the columns for output, if `X` is an array without names.
        checkpoint : path, optional
            A file with the last state of the fit, written about once a second.  If the fit ends early, by a signal, a
            power failure, `max_time` or an interrupt, the next one with the same data, settings and checkpoint goes on
            from there and ends within the same tolerance.  The file is kept: after a complete fit the next one only
            proves its gap again.  A checkpoint of other data or settings is refused.
        max_time : float, optional
            Seconds, from when the pairs are validated, after which the fit ends with what it has, and the outcome is
            "unfinished".  There is always a metric, so finding coordinates and the first step may take longer.
        """
        given = X, y, sample_weight
        judged: dict[str, Any] = {"annotators": annotators, "comparisons": comparisons}
        judged |= {"groups": groups, "feature_names": feature_names, "checkpoint": checkpoint}
        with self._reading("pairs", *given, **judged) as (judgements, rest):
            settings = Settings.of(self, comparison_noise=comparison_noise, max_time=max_time)
            self.fit_ = fit(judgements, settings, **rest)
        self.fit_.warn(stacklevel=2)
        return self


class LinearMetricLearner(PairLearner):
    """Learn a Mahalanobis metric and a threshold from pairs with noisy close/far labels.

    Minimises the mean of -log P(label) over M positive semidefinite and tau >= 0, where
    P(far) = Phi(z'Mz - tau) and Phi is the CDF of the noise, and proves how close the result is to
    the global minimum.  Columns may have any units; they never need to be normalised.

    Without arguments it chooses a penalty on M, what that shrinks M to, and whether labels are flipped at random, on
    held-out points; where nothing that is learned is better, the result is the plain distance with a fitted threshold.
    `LinearMetricLearner(alpha=0, flip_rate=0)` is the estimator of the paper.

    Parameters
    ----------
    noise : {"logistic", "normal", "laplace", "hypsecant", "auto"} or Noise, default="logistic"
        The distribution of the label noise.  "auto" chooses among `closefar.noise.NOISES` by the loss of held-out
        labels or, with alpha=0, by the likelihood.
    alpha : float or "auto", default="auto"
        The weight of a penalty on what M adds to its prior: alpha times its trace, in the units of each column
        (divided by its root mean square) or, with prior="euclidean", in the units of the data.  0 is
        maximum likelihood, which overfits if there are few pairs.  "auto" chooses it on
        held-out points, along a path of fits, see `choice_`; M is then scaled, and the threshold shifted, so that
        probabilities suit held-out pairs in spite of the penalty.
    prior : {"auto", "zero", "euclidean", "standardized"} or Metric, default="auto"
        What M is shrunk to as alpha grows: zero, or a multiple c >= 0 of a centre, where c is learned without a
        penalty.  The centre is the plain distance in the units of the data ("euclidean") or on columns divided by
        their root mean squares ("standardized"), or a metric of yours.  "auto" chooses among the first three, and
        returns the plain distance with a fitted threshold if nothing that is learned is better.  A centre gives M
        full rank.
    rank : int or "auto", optional
        Largest rank of M.  The certificate then states what the restriction may cost, as far as it is proven: with
        more than 128 columns and alpha=0 nothing is.  "auto" chooses the smallest rank whose held-out loss is within
        one standard error of the lowest.
    flip_rate : "auto", float, (float, float), "estimate" or "two", default="auto"
        The share of labels that are flipped regardless of the distance, in addition to those that are wrong
        near the threshold because of noise: P(far) = q + (1 - 2q) Phi(z'Mz - tau).  "auto" takes a rate only if it
        predicts held-out labels better, and "estimate" always maximises the likelihood; with annotators, it estimates
        a rate for each of them.  Two rates a and b are those of the sides, P(called far | close) and
        P(called close | far); "two" estimates both.  With flips the negative log-likelihood is not convex: the fit
        descends from the optimum of q = 0, and the certificate is that of the last step, with each label's probability
        of being flipped held fixed.
    fit_origin : bool, default=False
        Learn the point that distances are measured from; for single points only.
    class_weight : dict or "balanced", optional
        Weights of the two classes, as in scikit-learn.
    far_label : label, optional
        The label that means far.  By default the one that sorts last: 1 of {0, 1} and of
        {-1, 1}, True, "far".
    solver : {"auto", "newton", "lowrank", "sampled"}, default="auto"
        "newton" suits few columns, "lowrank" many, "sampled" many columns of very many pairs.  "auto" chooses by the
        numbers of columns and pairs, and by where the pairs are.
    tol : float, default=1e-6
        Stop once the proven gap of the objective to its minimum is below this.
    max_iter : int, default=1000
        Largest number of solver steps.
    device : {"cpu", "cuda", "cuda:1", ...}, optional
        Where passes over the data are computed.  None is where the data is: a tensor on a GPU stays there.  "cuda"
        takes arrays, opened files and pairs by index to the GPU once, in the precision that they are stored in
        (extra `gpu`).
    warm_start : bool, default=False
        Start from the metric of the last fit, if there is one and no origin is learned.  This is
        faster along a path of `alpha`, or if labels are added.
    random_state : int, RandomState or None, default=None
        Seed of the folds on which settings are chosen, and of the rows used in the first steps; None always uses
        the same seed.  If nothing is "auto", the result does not depend on it beyond `tol`.
    verbose : int, default=0
        1 shows progress, 2 shows every step.

    Attributes
    ----------
    metric_ : Metric
        The learned metric, in the units of the data.
    certificate_ : Certificate
        The loss, the proven gap of the objective to its minimum, and a status to act on.  It is about the chosen
        problem, before probabilities are calibrated.
    history_ : tuple of FitStep
        For each step the `objective` (the loss plus the penalty), the proven `gap`, and the number
        of `passes` over the data so far.  The gap is infinite until one is proven; the last gap is
        that of `certificate_`.  (With flips, the objective accounts for them, which
        `certificate_.objective` does not, and no gap is proven before the last step.)
    classes_ : array of two labels, sorted
    far_label_ : label
        The label that means far.
    components_ : array of shape (k, n_features)
        The directions, in order of the mean squared distance that each explains on the training
        pairs; ``transform(X) = X @ components_.T``.
    n_features_in_, feature_names_in_, n_iter_
        As in scikit-learn.
    choice_ : Choice
        What "auto" tried, with the held-out loss of each candidate, and what was chosen.
    baseline_ : Baseline
        The most frequent answer, the plain distance with a fitted threshold and the learned metric, on the same
        held-out pairs.
    alpha_, prior_, rank_
        The penalty, what it shrinks M to, and the largest rank, set or chosen.
    noise_comparison_ : dict
        With noise="auto" and alpha=0, for each noise its loss, the difference from the loss of the chosen noise, and z.
    flip_rate_ : float or (float, float)
        The flip rate, or both of them, that was set or estimated.
    thresholds_ : array
        The threshold.
    annotators_ : AnnotatorTable
        With annotators: the strictness, flip rate and agreement of each, and a verdict.
    comparison_noise_ : ComparisonNoise
        With comparisons: their noise relative to that of pairs, with an interval if it was estimated.
    fit_statistics_ : FitStatistics
        Statistics of the fit on its training pairs, as in `summary`.
    fit_ : Fit
        The complete fit, as returned by `closefar.fitting.fit`.

    Examples
    --------
    >>> import closefar as cf
    >>> pairs, labels, *_ = cf.datasets.make_pairs(2000, 4, rank=2, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(pairs, labels)
    >>> learner.certificate_.gap < 1e-6
    True
    >>> learner.predict(pairs[:3]).tolist()
    [1, 1, 1]
    """

    def __init__(
        self,
        noise: str | Noise = "logistic",
        *,
        alpha: float | str = "auto",
        prior: str | Metric = "auto",
        rank: int | str | None = None,
        flip_rate: float | str | tuple[float, float] = "auto",
        fit_origin: bool = False,
        class_weight: Any = None,
        far_label: Any = None,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        device: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        store_parameters(self, locals())

    @property
    def _meaning(self) -> dict[str, Any]:
        return {"far_label": self.far_label}


# ---------------------------------------------------------------------------------------------------------------------
# The estimator for levels of pairs.


class OrdinalMetricLearner(PairLearner):
    """Learn a Mahalanobis metric and thresholds from pairs that were rated on a scale of levels.

    Minimises the mean of -log P(level) over M positive semidefinite and thresholds
    0 <= tau_1 <= ... <= tau_{K-1}, where P(level k) = Phi(z'Mz - tau_k) - Phi(z'Mz - tau_{k+1}) and level 0
    is the closest (a cumulative link model), and proves how close the result is to the global minimum.
    With two levels this is `LinearMetricLearner`.

    Parameters
    ----------
    levels : sequence, optional
        The levels from the closest to the farthest.  By default numbers are in their order, and an ordered
        categorical has its own; words need an order.
    noise : {"logistic", "normal", "laplace", "hypsecant", "auto"} or Noise, default="logistic"
        The distribution of the noise.  Logistic noise gives the proportional-odds model.
    flip_rate : "auto", float or "estimate", default="auto"
        The share of answers that were drawn from all levels with equal probability, in addition to those that are
        wrong because of noise.
    class_weight : dict or "balanced", optional
        Weights of the levels, as in scikit-learn.
    alpha, prior, rank, solver, tol, max_iter, device, warm_start, random_state, verbose
        As in `LinearMetricLearner`.

    Attributes
    ----------
    classes_ : array of K levels, from the closest to the farthest
        The columns of `predict_proba` are in this order.  Scorers of probabilities in scikit-learn need levels that
        also sort in it, as numbers do.
    thresholds_ : array of K - 1 numbers
        The thresholds on the squared distance.
    metric_, certificate_, history_, components_, n_iter_, choice_, baseline_, alpha_, prior_, rank_, flip_rate_, \
annotators_, comparison_noise_, fit_statistics_, fit_
        As in `LinearMetricLearner`.

    Examples
    --------
    >>> import numpy as np
    >>> import closefar as cf
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.normal(size=(2000, 2, 3))
    >>> squared = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2, axis=1) + rng.logistic(size=2000)
    >>> ratings = np.digitize(squared, [2.0, 5.0, 9.0])
    >>> learner = cf.OrdinalMetricLearner().fit(pairs, ratings)
    >>> learner.thresholds_.shape
    (3,)
    >>> learner.predict(pairs[:5]).tolist()
    [0, 3, 1, 1, 1]
    """

    def __init__(
        self,
        levels: Any = None,
        noise: str | Noise = "logistic",
        *,
        alpha: float | str = "auto",
        prior: str | Metric = "auto",
        rank: int | str | None = None,
        flip_rate: float | str = "auto",
        class_weight: Any = None,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        device: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        store_parameters(self, locals())

    @property
    def _meaning(self) -> dict[str, Any]:
        return {"levels": self.levels, "is_graded": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags


# ---------------------------------------------------------------------------------------------------------------------
# The estimator for comparisons: triplets and quadruplets.


class ComparisonMetricLearner(MetricLearner):
    """Learn a Mahalanobis metric from comparisons of distances.

    A triplet (a, b, c) says that a is closer to b than to c, and a quadruplet (a, b, c, e) that a and b are
    closer than c and e.  Minimises the mean of -log Phi(q(far) - q(near)) over M positive semidefinite, where
    q(z) = z'Mz and Phi is the CDF of the noise, and proves how close the result is to the global minimum.
    There is no threshold: `calibrate_threshold` fits one to labelled pairs.

    Parameters
    ----------
    noise : {"logistic", "normal", "laplace", "hypsecant", "auto"} or Noise, default="logistic"
        The distribution of the noise.
    flip_rate : "auto", float or "estimate", default="auto"
        The share of answers that are reversed regardless of the distances, in addition to those that are wrong
        because of noise.
    alpha, prior, rank, solver, tol, max_iter, device, warm_start, random_state, verbose
        As in `LinearMetricLearner`.

    Attributes
    ----------
    classes_ : array([-1, 1])
        +1 is a comparison as its points are given, and -1 a reversed one.
    metric_, certificate_, history_, components_, n_iter_, choice_, baseline_, alpha_, prior_, rank_, flip_rate_, \
fit_statistics_, fit_
        As in `LinearMetricLearner`; ``metric_.threshold`` is None.

    Examples
    --------
    >>> import numpy as np
    >>> import closefar as cf
    >>> rng = np.random.default_rng(0)
    >>> triplets = rng.normal(size=(2000, 3, 2))
    >>> near, far = (np.sum((triplets[:, 0] - triplets[:, k]) ** 2 * [1.0, 4.0], axis=1) for k in (1, 2))
    >>> answers = np.where(far - near + rng.logistic(size=2000) >= 0, 1, -1)
    >>> learner = cf.ComparisonMetricLearner().fit(triplets, answers)
    >>> bool(learner.score(triplets, answers) > 0.9)
    True
    >>> learner.predict(triplets[:5]).tolist()
    [1, -1, 1, 1, -1]
    """

    def __init__(
        self,
        noise: str | Noise = "logistic",
        *,
        alpha: float | str = "auto",
        prior: str | Metric = "auto",
        rank: int | str | None = None,
        flip_rate: float | str = "auto",
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        device: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        store_parameters(self, locals())

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        feature_names: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        max_time: float | None = None,
    ) -> Self:
        """Learn from comparisons.

        Parameters
        ----------
        X : array of shape (n, 3, d) or (n, 4, d), or Tuples
            Triplets or quadruplets of points, in an array or by index (`closefar.Tuples` with three or four
            columns); dask arrays, and a dask index, stay where they are.
        y : array of n numbers +1 or -1, optional
            Whether each comparison is as its points are given (+1), or reversed (-1); by default all are as given.
        sample_weight : array of n numbers >= 0, optional
            A weight of 2 is equivalent to repeating the comparison.
        groups : array of shape (n,), (n, 3) or (n, 4), optional
            What is held out together when settings are chosen: a group per comparison, or the ids of its points.
        feature_names, checkpoint, max_time
            As for `LinearMetricLearner.fit`.
        """
        given = X, y, sample_weight
        judged: dict[str, Any] = {"groups": groups, "feature_names": feature_names, "checkpoint": checkpoint}
        with self._reading("comparisons", *given, **judged) as (judgements, rest):
            self.fit_ = fit(judgements, Settings.of(self, max_time=max_time), **rest)
        self.fit_.warn(stacklevel=2)
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any, **judged: Any) -> Judgements:
        for given in [name for name, value in judged.items() if value is not None]:
            raise ValueError(
                f"{given} belong to pairs, not to comparisons; got {given} for a ComparisonMetricLearner. Leave them "
                "out, or fit pairs with a LinearMetricLearner."
            )
        if is_partitioned(X):
            return PartitionedJudgements.load(self, X, y, sample_weight, compares=True)
        return Judgements.read_comparisons(self, X, y, sample_weight, fitting=True)

    def calibrate_threshold(
        self, pairs: Any, labels: Any, sample_weight: Any = None, far_label: Any = None
    ) -> CalibratedThreshold:
        """Fit a threshold to pairs with close/far labels; the metric stays what it is.

        This is a convex problem in one unknown.  The labels are assumed to have the noise of the comparisons, and no
        flips; a `LinearMetricLearner` that is fitted to the pairs and the comparisons together needs neither.

        Parameters
        ----------
        pairs : array of shape (n, 2, d) or (n, d)
            Pairs or differences with the columns of the comparisons.
        labels : array of n labels
            Close or far, as two distinct values.
        sample_weight : array of n numbers >= 0, optional
            A weight of 2 is equivalent to repeating the pair.
        far_label : label, optional
            The label that means far; by default the one that sorts last.

        Returns
        -------
        CalibratedThreshold
            With the `threshold`, its `interval`, a proven `gap` and the `metric` with that threshold.

        Examples
        --------
        >>> import numpy as np
        >>> import closefar as cf
        >>> rng = np.random.default_rng(0)
        >>> triplets, pairs = rng.normal(size=(3000, 3, 2)), rng.normal(size=(300, 2, 2))
        >>> near, far = (np.sum((triplets[:, 0] - triplets[:, k]) ** 2, axis=1) for k in (1, 2))
        >>> answers = np.where(far - near + rng.logistic(size=3000) >= 0, 1, -1)
        >>> learner = cf.ComparisonMetricLearner().fit(triplets, answers)
        >>> labels = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2, axis=1) + rng.logistic(size=300) >= 3.0
        >>> found = learner.calibrate_threshold(pairs, labels)
        >>> found.interval[0] < 3.0 < found.interval[1]
        True
        >>> found.metric.threshold == found.threshold
        True
        """
        return calibrate_threshold(self._fitted(), pairs, labels, sample_weight, far_label=far_label)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.target_tags.required = False
        return tags
