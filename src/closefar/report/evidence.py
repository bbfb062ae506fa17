"""The pairs that a report shows, and the margin of each: by a fit that has not seen its label wherever there is one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils import check_random_state

from closefar.arrays import FloatArray
from closefar.fitting import Fit, fit
from closefar.judgements import Judgements, Split, find_points, split_judgements
from closefar.model import Scored
from closefar.questions import LabelErrors, judge_labels, with_care
from closefar.report.effort import Effort
from closefar.report.wording import count

__all__ = ["Judged", "is_training", "judge", "noun_of"]

_FOLDS = 5


@dataclass(frozen=True)
class Judged:
    """Pairs with the margins that they are judged by.

    Attributes
    ----------
    scored : Scored
    source : {"out-of-fold", "given", "in-sample"}
        Of which kind the margins are.
    words : str
        The same in a sentence.
    noun : str
        What one of them is called.
    errors : LabelErrors or None
        Where the fits that judged also say how probably each label is wrong.
    """

    scored: Scored
    source: str
    words: str
    noun: str
    errors: LabelErrors | None = None

    @property
    def judgements(self) -> Judgements:
        return self.scored.judgements


def noun_of(fitted: Fit) -> str:
    """With a learned origin it is about single points."""
    return "pair" if fitted.metric.origin is None else "point"


def judge(fitted: Fit, judgements: Judgements, *, has_seen: bool, seed: int) -> Judged:
    """Judge each pair by the fit or, where it `has_seen` the labels, by fits to the others."""
    noun = noun_of(fitted)
    if not has_seen:
        words = (
            f"Judged by the model as it is on the {count(len(judgements), noun)} given: "
            "optimistic if it was fitted to some of them."
        )
        return Judged(Scored.by(fitted.metric, judgements), "given", words, noun)
    effort = Effort.of(fitted)
    judged = judgements.sample(effort.pairs_to_judge(len(judgements)), seed)
    n_folds = min(effort.folds(len(judged), _FOLDS), judged.n_rarer)
    if n_folds < 2:
        reason = f"only {count(judged.n_rarer, noun)} {'has' if judged.n_rarer == 1 else 'have'} the rarer label"
        return _by_the_fit_itself(fitted, judged, reason)
    splits = split_judgements(n_folds, judged, seed=check_random_state(seed).randint(2**31))
    try:
        margin = _out_of_fold(fitted, judged, splits)
        scored = Scored(judged, margin, fitted.metric.noise, fitted.flip_rate)
        errors = _label_errors(fitted, scored)
    except ValueError as error:  # a part of few or odd pairs can't be fitted
        return _by_the_fit_itself(fitted, judged, f"fits to parts of them failed ({error})")
    words = f"Every {noun} is judged by a fit that has not seen its label ({n_folds} fits, each without its own part)."
    if len(judged) < len(judgements):
        words += f" To save time this is done for {len(judged):,} of the {len(judgements):,} {noun}s, chosen at random."
    return Judged(scored, "out-of-fold", words, noun, errors)


def is_training(fitted: Fit, judgements: Judgements) -> bool:
    """Whether these are the pairs of the fit: as many, with the very loss that it ended with."""
    if len(judgements) != fitted.statistics.n_pairs or judgements.n_rarer == 0:
        return False
    loss = Scored.by(fitted.metric, judgements.weighted(fitted.settings.class_weight)).loss
    return abs(loss - fitted.certificate.loss) <= 1e-7 * (1.0 + fitted.certificate.loss)


def _out_of_fold(fitted: Fit, judgements: Judgements, splits: list[Split]) -> FloatArray:
    """The margin of each pair by a fit that has not seen its label."""
    margin = np.empty(len(judgements))
    for train, test in splits:
        part = fit(judgements.take(train), fitted.chosen).unless_interrupted()
        margin[test] = Scored.by(part.metric, judgements.take(test)).margin
    return margin


def _label_errors(fitted: Fit, unseen: Scored) -> LabelErrors | None:
    """How probably each label is wrong; class weights move the threshold, and then it can't be told."""
    if fitted.settings.class_weight is not None:
        return None
    judgements = unseen.judgements
    careful = fitted.chosen.but(**with_care(vars(fitted.chosen), judgements))
    return judge_labels(fit(judgements, careful), judgements, unseen, groups=find_points(judgements.data))


def _by_the_fit_itself(fitted: Fit, judgements: Judgements, reason: str) -> Judged:
    noun = noun_of(fitted)
    words = f"Judged by the fit itself, which has seen these labels, since {reason}: new {noun}s will do worse."
    return Judged(Scored.by(fitted.metric, judgements), "in-sample", words, noun)
