"""The estimator for close/far labels: it passes its parameters on and keeps the fit, without any mathematics."""

from __future__ import annotations

import os
from typing import Any, Self

from closefar.judgements import Judgements, read_judgements
from closefar.learners.fitting_learner import FittingLearner
from closefar.model import Metric
from closefar.noise import Noise

__all__ = ["LinearMetricLearner"]


class LinearMetricLearner(FittingLearner):
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
    solver : {"auto", "newton", "lowrank", "fista", "factor"}, default="auto"
        "newton" suits few columns, "lowrank" many, "fista" many columns of very many pairs; "factor" is a
        nonconvex L-BFGS.
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
        self._store(locals())

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
            (`closefar.open_pairs`), or a row source (`closefar.rows.BlockRows`).  Dask arrays and frames, and
            pairs opened on a cluster, stay where they are: the current client of Dask computes with them or,
            without one, this process.
        y : array of n labels
            Close or far, as two distinct values.  Opened pairs with labels need none.
        sample_weight : array of n numbers >= 0, optional
            A weight of 2 is equivalent to repeating the pair.
        groups : array of shape (n,) or (n, 2), optional
            What is held out together when settings are chosen: a group per pair, or the ids of its two points.  By
            default points that pairs share are detected in (n, 2, d) data and in the index of `Tuples`.
        annotators : array of n ids, optional
            Who judged each pair.  Each annotator then has a strictness of their own, see `annotators_`.  A pair may
            be judged by several.
        comparisons : tuple (comparisons, y), array or Tuples, optional
            Triplets (n, 3, d) or quadruplets (n, 4, d) to learn from together with the pairs, as for
            `ComparisonMetricLearner.fit`, with +1 or -1 for each where some are reversed and, as a third
            element, their weights.
        comparison_noise : float or "estimate", default=1.0
            The noise of the comparisons relative to that of the pairs; "estimate" maximises the profile likelihood,
            see `comparison_noise_`.
        feature_names : sequence of d str, optional
            Names of the columns for output, if `X` is an array without names.
        checkpoint : path, optional
            A file that is written about once a second.  If the fit ends early, by a signal, a power failure,
            `max_time` or an interrupt, the next one with the same data, settings and checkpoint continues it and
            ends with the same result.  The file is kept: after a complete fit the next one only computes its result
            again.  A checkpoint of other data or settings is refused.
        max_time : float, optional
            Seconds, from when the pairs are validated, after which the fit ends with what it has, and the outcome is
            "unfinished".  There is always a metric, so finding coordinates and the first step may take longer.
        """
        more = {"annotators": annotators, "comparisons": comparisons}
        limits = {"comparison_noise": comparison_noise, "max_time": max_time}
        return self._fit(
            X, y, sample_weight, **more, groups=groups, names=feature_names, checkpoint=checkpoint, limits=limits
        )

    def _read(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        annotators: Any = None,
        comparisons: Any = None,
    ) -> Judgements:
        return read_judgements(
            estimator,
            X,
            y,
            sample_weight,
            far_label=self.far_label,
            annotators=annotators,
            comparisons=comparisons,
            stacklevel=5,
        )
