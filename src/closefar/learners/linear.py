"""The estimator: parameters in, a fit out. No mathematics."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from closefar.fitting import Fit, Settings, fit
from closefar.judgements import Columns, Judgements, resolve_folds
from closefar.learners.base import MetricLearner
from closefar.model import Metric
from closefar.noise import Noise

__all__ = ["LinearMetricLearner"]


class LinearMetricLearner(MetricLearner):
    """Learn a Mahalanobis metric and a threshold from pairs with noisy close/far labels.

    Minimises the mean of -log P(label) over M positive semidefinite and tau >= 0, where
    P(far) = Phi(z'Mz - tau) and Phi is the CDF of the noise, and proves how near to the
    global minimum it came.  Columns may have any units: they never need normalising.

    Parameters
    ----------
    noise : {"logistic", "normal", "laplace", "hypsecant", "auto"} or Noise, default="logistic"
        The distribution of the noise that makes labels wrong.  "auto" fits all of `closefar.noise.NOISES`
        and takes the likeliest.
    rank : int or "auto", optional
        Largest rank of M.  The certificate then says what the restriction may cost.  "auto"
        chooses it by the loss of held-out labels (see `closefar.choose_rank`).
    alpha : float or "auto", default=0.0
        Weight of a trace penalty in unit-free coordinates.  0 is the maximum-likelihood estimator of
        the paper, which overfits few pairs.  "auto" is 0 where there are at least ten uncertain labels
        per parameter (see `FitStatistics`), and otherwise 0.1 / sqrt(n), or twice that where there are
        fewer than two: at most two fits.  Cross-validation (`LinearMetricLearnerCV`) finds a better one.
    alpha_scale : {"data", "columns"} or float, default="data"
        The coordinates that the penalty is measured in.  "data": those in which the second
        moment of the rows is the identity, so that the penalty is the mean of z'Mz and follows
        every linear change of units.  "columns": each column over its root mean square (its
        standard deviation with `fit_origin`), which follows the units of each column.  Choose
        it where columns are nearly collinear and rows few: it also shrinks the directions in
        which the data hardly varies.  A number b from 0 ("data") to 1 ("columns") blends their second
        moments: the penalty is alpha times the trace of M ((1 - b) Sigma + b diag(Sigma)).
    shrink_to : {"zero", "identity"}, default="zero"
        Where the penalty takes M as alpha grows.  "identity": to c times the identity in the coordinates
        of the penalty, with the best c >= 0; the penalty is then on the trace of M - c I, which is
        positive semidefinite.  Choose it where all directions may count; with alpha_scale="columns" a
        large alpha gives the Euclidean distance of standardised columns.  It has no low rank.
    flip_rate : float or "estimate", default=0.0
        The share of labels that are wrong whatever the distance, beside those that the noise
        makes wrong near the threshold: P(far) = q + (1 - 2q) Phi(z'Mz - tau).  The likelihood is
        then not convex; it is climbed from the optimum of q = 0, and the certificate is about
        the last step, with each label's probability of being flipped held fixed.
    fit_origin : bool, default=False
        For single points: learn the point that distances are measured from.
    solver : {"auto", "newton", "fista", "factor"}, default="auto"
        "newton" for few columns, "fista" for many, "factor" for a nonconvex L-BFGS.
    tol : float, default=1e-6
        Stop when the objective is proven to be this near to its minimum.
    max_iter : int, default=1000
        Largest number of solver steps.
    class_weight : dict or "balanced", optional
        Weights of the two classes, as in scikit-learn.
    far_label : label, optional
        The label that means far.  By default the one that sorts last: 1 of {0, 1} and of
        {-1, 1}, True, "far".
    warm_start : bool, default=False
        Start from the metric of the last fit, where there is one and no origin is learned: faster
        along a path of `alpha`, or where labels are added.
    random_state : int, RandomState or None, default=None
        Chooses the rows of the first steps; None always chooses the same.  The result does
        not depend on it beyond `tol`.
    verbose : int, default=0
        1 shows progress, 2 every step.

    Attributes
    ----------
    metric_ : Metric
        The learned metric, in the units of the data.
    certificate_ : Certificate
        The loss, the proven gap to its minimum, and a status to act on.
    history_ : tuple of FitStep
        The `objective` (the loss plus the penalty) and the proven `gap` after so many `passes` over
        the data, step by step; the gap is infinite where nothing was proven yet.  The last is that
        of `certificate_`.  (Where labels may be flipped, the objective accounts for that, which
        `certificate_.objective` does not, and nothing is proven before the last step.)
    classes_ : array of two labels, sorted
    far_label_ : label
        Which of them means far.
    components_ : array of shape (k, n_features)
        The directions, in order of the mean squared distance that each explains on the training
        pairs; ``transform(X) = X @ components_.T``.
    n_features_in_, feature_names_in_, n_iter_
        As in scikit-learn.
    rank_ : int or None
        The largest rank that was asked for or chosen; with "auto" `rank_choice_` has the table.
    noise_comparison_ : dict
        With noise="auto": for each noise its loss, the difference to the chosen one's, and z.
    alpha_ : float
        The weight of the penalty that was given or chosen.
    flip_rate_ : float
        The share of flipped labels that was given or estimated.
    fit_statistics_ : FitStatistics
        What `summary` says of the training pairs.
    fit_ : Fit
        All of these in one, as `closefar.fitting.fit` returns it.

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
        alpha_scale: float | str = "data",
        shrink_to: str = "zero",
        flip_rate: float | str = 0.0,
        fit_origin: bool = False,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        class_weight: Any = None,
        far_label: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.noise = noise
        self.rank = rank
        self.alpha = alpha
        self.alpha_scale = alpha_scale
        self.shrink_to = shrink_to
        self.flip_rate = flip_rate
        self.fit_origin = fit_origin
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.far_label = far_label
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, feature_names: Any = None) -> Self:
        """Learn from pairs.

        Parameters
        ----------
        X : array or frame of shape (n, d), or array of shape (n, 2, d)
            Differences x - y (or points, measured from the origin), or pairs of points.  NumPy
            arrays and memory maps, frames, and arrays of other libraries (torch, array-api-strict),
            which stay what they are.  Or a row source (`closefar.rows.BlockRows`).
        y : array of n labels
            Close or far; two distinct values.
        sample_weight : array of n numbers >= 0, optional
            A weight of 2 counts as the pair given twice.
        feature_names : sequence of d str, optional
            Names of the columns for what is shown of the metric, where `X` is an array without any.
        """
        judgements = Judgements.read(self, X, y, sample_weight, far_label=self.far_label)
        last = self.fit_.metric if self.warm_start and hasattr(self, "fit_") else None
        start = None if last is None or len(last.factor) != self.n_features_in_ else last
        self.fit_to(judgements, start=start, columns=Columns.of(self, feature_names))
        if self.fit_.rank_choice is not None:
            resolve_folds(5, judgements, None, seed=0)  # says so where the folds were by point
        self.fit_.warn(stacklevel=2)
        return self

    def fit_to(
        self,
        judgements: Judgements,
        *,
        start: Metric | None = None,
        columns: Columns | None = None,
        approximate: bool = False,
    ) -> Self:
        """Learn from judgements that are checked already; warn of nothing, and if `approximate` prove nothing."""
        self.fit_ = fit(judgements, Settings.of(self).but(approximate=approximate), start=start, columns=columns)
        self.n_features_in_ = judgements.n_columns
        if columns is not None and columns.names_in_data is not None:
            self.feature_names_in_ = np.array(columns.names_in_data, dtype=object)
        return self

    def learn(self, judgements: Judgements) -> Fit:
        """Return the fit to judgements that are checked already, and keep nothing of it."""
        return fit(judgements, Settings.of(self))
