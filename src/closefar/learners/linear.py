"""The estimator for close/far labels: it passes its parameters on and keeps the fit, without any mathematics."""

from __future__ import annotations

import os
from typing import Any, Self

from closefar.judgements import Judgements, read_judgements
from closefar.learners.fitting_learner import FittingLearner
from closefar.noise import Noise

__all__ = ["LinearMetricLearner"]


class LinearMetricLearner(FittingLearner):
    """Learn a Mahalanobis metric and a threshold from pairs with noisy close/far labels.

    Minimises the mean of -log P(label) over M positive semidefinite and tau >= 0, where
    P(far) = Phi(z'Mz - tau) and Phi is the CDF of the noise, and proves how close the result is to
    the global minimum.  Columns may have any units; they never need to be normalised.

    Parameters
    ----------
    noise : {"logistic", "normal", "laplace", "hypsecant", "auto"} or Noise, default="logistic"
        The distribution of the label noise.  "auto" fits all of `closefar.noise.NOISES` and chooses
        the one with the highest likelihood.
    rank : int or "auto", optional
        Largest rank of M.  The certificate then states what the restriction may cost, as far as it is proven: with
        more than 128 columns and alpha=0 nothing is.  "auto"
        chooses it by cross-validation (see `closefar.choose_rank`).
    alpha : float or "auto", default=0.0
        Weight of a trace penalty in unit-free coordinates.  0 is the maximum-likelihood estimator of
        the paper, which overfits if there are few pairs.  "auto" is 0.1 / sqrt(n), twice that if there are
        fewer than two uncertain labels per parameter (see `FitStatistics`), and 0.03 / sqrt(n) if there are
        ten or more; with a hundred labels per parameter, fewer than a tenth of which are uncertain, it is
        0.001 / sqrt(n).  It needs at most two fits.  Cross-validation (`LinearMetricLearnerCV`) chooses better.
        With 64 columns or more, and fewer than ten pairs per parameter, "auto" chooses the weight and the
        scale of the penalty on held-out pairs (held-out points, if pairs share points), along a path of fits
        from a large alpha down, which together takes about as long as three fits; see `penalty_choice_`.
    alpha_scale : {"auto", "data", "columns", "units", "units:B"} or float, default="auto"
        The coordinates that the penalty is measured in.  "data": those in which the second
        moment of the rows is the identity, so that the penalty is the mean of z'Mz and follows
        every linear change of units.  "columns": each column divided by its root mean square (its
        standard deviation with `fit_origin`), which follows the units of each column.  Choose
        it if columns are nearly collinear and there are few rows: it also shrinks the directions in
        which the data hardly vary.  A number b from 0 ("data") to 1 ("columns") blends their second
        moments: the penalty is alpha times the trace of M ((1 - b) Sigma + b diag(Sigma)).  "units": the
        units of the data, in which the mean square of the columns is one on average; "units:0.5", say,
        is the blend (1 - b) Sigma + b v I with b = 0.5 and v that mean.  Choose it if there are many
        columns of one unit, such as embeddings or pixels; it does not follow a change of the units of some
        columns.  "auto" is "data" or, with alpha="auto", "columns", unless that chooses it.  (With alpha=0 and
        fewer pairs than parameters, where the labels are separable, the margin is then measured in a blend with
        "columns".)
    shrink_to : {"zero", "identity"}, default="zero"
        The matrix that the penalty shrinks M to as alpha grows.  "identity": c times the identity in the
        coordinates of the penalty, with the best c >= 0; the penalty is then on the trace of M - c I, which
        is positive semidefinite.  Choose it if all directions may matter; with alpha_scale="columns" a
        large alpha gives the Euclidean distance of standardised columns.  M then has full rank.
    relax_threshold : bool, default=False
        Move the threshold of a penalised fit to where it would be without the penalty: tau becomes b / a, where
        a z'Mz - b are the most likely margins of this M.  M and the certificate, which is that of the penalised
        fit, do not change.  More pairs are then classified correctly if squared distances are skewed or many labels
        are wrong; probabilities hardly change.
    flip_rate : float, (float, float), "estimate" or "two", default=0.0
        The share of labels that are flipped whatever the distance, in addition to those that are wrong
        near the threshold because of noise: P(far) = q + (1 - 2q) Phi(z'Mz - tau).  The negative
        log-likelihood is then not convex: the fit descends from the optimum of q = 0, and the certificate
        is that of the last step, with each label's probability of being flipped held fixed.  Two rates a and b are
        those of the sides, P(called far | close) and P(called close | far); "two" estimates them.  With
        annotators, "estimate" is a rate for each of them.
    comparison_noise : float or "estimate", default=1.0
        The noise of comparisons relative to that of pairs, if `fit` has both; "estimate" maximises the
        profile likelihood, see `comparison_noise_`.
    strictness_width : float or "estimate", default="estimate"
        The standard deviation of the strictness of annotators, in the unit of the threshold: the smaller, the more
        are they taken to be alike.
    fit_origin : bool, default=False
        Learn the point that distances are measured from; for single points only.
    solver : {"auto", "newton", "lowrank", "fista", "factor"}, default="auto"
        "newton" suits few columns, "lowrank" many, "fista" many columns of very many pairs; "factor" is a
        nonconvex L-BFGS.
    tol : float, default=1e-6
        Stop once the proven gap of the objective to its minimum is below this.
    max_iter : int, default=1000
        Largest number of solver steps.
    max_time : float, optional
        Seconds, from when the pairs are validated, after which the fit ends with what it has, and the outcome is
        "unfinished".  There is always a metric, so finding coordinates and the first step may take longer.
    device : {"cpu", "cuda", "cuda:1", ...}, optional
        Where passes over the data are computed.  None is where the data is: a tensor on a GPU stays there.  "cuda"
        takes arrays, opened files and pairs by index to the GPU once, in the precision that they are stored in
        (extra `gpu`).
    class_weight : dict or "balanced", optional
        Weights of the two classes, as in scikit-learn.
    far_label : label, optional
        The label that means far.  By default the one that sorts last: 1 of {0, 1} and of
        {-1, 1}, True, "far".
    warm_start : bool, default=False
        Start from the metric of the last fit, if there is one and no origin is learned.  This is
        faster along a path of `alpha`, or if labels are added.
    random_state : int, RandomState or None, default=None
        Seed of the rows used in the first steps; None always uses the same.  The result does
        not depend on it beyond `tol`.
    verbose : int, default=0
        1 shows progress, 2 shows every step.

    Attributes
    ----------
    metric_ : Metric
        The learned metric, in the units of the data.
    certificate_ : Certificate
        The loss, the proven gap to its minimum, and a status to act on.
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
    rank_ : int or None
        The largest rank that was set or chosen; with "auto", `rank_choice_` is the table of ranks.
    noise_comparison_ : dict
        With noise="auto": for each noise its loss, the difference from the loss of the chosen noise, and z.
    alpha_ : float
        The weight of the penalty that was set or chosen.
    alpha_scale_ : float or str
        The scale of the penalty that was set or chosen.
    penalty_choice_ : PenaltyChoice
        With alpha="auto" and many columns: the penalties that were tried, each with the loss and the
        accuracy on held-out pairs and a proven gap.
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
        rank: int | str | None = None,
        alpha: float | str = 0.0,
        alpha_scale: float | str = "auto",
        shrink_to: str = "zero",
        relax_threshold: bool = False,
        flip_rate: float | str | tuple[float, float] = 0.0,
        comparison_noise: float | str = 1.0,
        strictness_width: float | str = "estimate",
        fit_origin: bool = False,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        max_time: float | None = None,
        device: Any = None,
        class_weight: Any = None,
        far_label: Any = None,
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
        annotators: Any = None,
        comparisons: Any = None,
        feature_names: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
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
        annotators : array of n ids, optional
            Who judged each pair.  Each annotator then has a strictness of their own, see `annotators_`.  A pair may
            be judged by several.
        comparisons : tuple (comparisons, y), array or Tuples, optional
            Triplets (n, 3, d) or quadruplets (n, 4, d) to learn from together with the pairs, as for
            `ComparisonMetricLearner.fit`, with +1 or -1 for each where some are turned round and, as a third
            element, their weights.
        feature_names : sequence of d str, optional
            Names of the columns for output, if `X` is an array without names.
        checkpoint : path, optional
            A file that is written about once a second.  If the fit ends early, by a signal, a power failure,
            `max_time` or an interrupt, the next one with the same data, settings and checkpoint continues it and
            ends with the same result.  The file is kept: after a complete fit the next one only computes its result
            again.  A checkpoint of other data or settings is refused.
        """
        more = {"annotators": annotators, "comparisons": comparisons}
        return self._fit(X, y, sample_weight, **more, feature_names=feature_names, checkpoint=checkpoint)

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
