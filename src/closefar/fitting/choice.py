"""The settings that were chosen on held-out judgements, and the plain distance beside the learned metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from closefar.model import Metric
from closefar.plain import data_frame, format_table

__all__ = ["Baseline", "Choice", "Tried"]


class Tried(NamedTuple):
    """A candidate: its settings, and the mean loss and the accuracy of fits on judgements that were held out.

    `alpha` is infinite for the plain distance alone.  `standard_error` is that of the difference from the loss of the
    chosen candidate, judgement by judgement, and allows for points that judgements share.
    """

    prior: str
    alpha: float
    flip_rate: float
    rank: int | None
    noise: str
    loss: float
    standard_error: float
    accuracy: float


@dataclass(frozen=True)
class Choice:
    """The settings that were chosen on held-out judgements, and all that were tried.

    Attributes
    ----------
    alpha : float
        The weight of the penalty.
    prior : str
        What it shrinks M to: "zero", "euclidean", "standardized", or "metric" for a metric that was given.
    flip_rate : float
        The share of answers that are wrong regardless of distance.
    rank : int, optional
        The largest rank; None if it is not limited.
    noise : str
    scale : float
        The factor that calibrates squared distances, so that probabilities suit held-out judgements.
    is_plain : bool
        Whether the result is the plain distance alone, because nothing learned was better.
    n_held_out, n_used, n_judgements : int
        The numbers of judgements that were held out at least once, that were used for choosing, and of all.
    held_out : str
        What was held out: "points", "groups", "judgements" or "nothing".
    table : tuple of Tried
        All candidates, in the order in which they were tried.

    Examples
    --------
    >>> import closefar as cf
    >>> pairs, labels, *_ = cf.datasets.make_pairs(300, 4, rank=2, wrong_share=0.1, random_state=0)
    >>> choice = cf.LinearMetricLearner().fit(pairs, labels).choice_
    >>> choice.held_out
    'judgements'
    >>> len(choice.table) == len(choice.to_frame())
    True
    """

    alpha: float
    prior: str
    flip_rate: float
    rank: int | None
    noise: str
    scale: float
    is_plain: bool
    n_held_out: int
    n_used: int
    n_judgements: int
    held_out: str
    table: tuple[Tried, ...]

    @property
    def sentence(self) -> str:
        """One sentence on what was chosen, and why."""
        if not self.table:
            return (
                f"Chosen without held-out judgements, as {self.n_judgements:,} are too few: the plain distance with a "
                "fitted threshold."
            )
        unseen = {"points": "judgements of unseen points", "groups": "judgements of unseen groups"}.get(
            self.held_out, "held-out judgements"
        )
        if self.is_plain:
            what = f"{_PLAIN_NAMES[self.prior]}, as no learned metric was clearly better"
        else:
            what = f"alpha={self.alpha:.3g}, prior={self.prior!r}"
            what += f", flip_rate={self.flip_rate:.3f}" if self.flip_rate > 0 else ""
            what += f", rank={self.rank}" if any(each.rank is not None for each in self.table) else ""
            what += f", noise={self.noise!r}" if len({each.noise for each in self.table}) > 1 else ""
        return f"Chosen by the loss of {self.n_held_out:,} {unseen}, among {len(self.table)} candidates: {what}."

    def summary(self) -> str:
        """Return the sentence and a table of all candidates."""
        return f"{self.sentence}\n{self}" if self.table else self.sentence

    def __str__(self) -> str:
        columns = [
            ("prior", ""),
            ("alpha", ".4g"),
            ("flip rate", ".3f"),
            ("rank", ""),
            ("noise", ""),
            ("held-out loss", ".5f"),
            ("std. error", ".5f"),
            ("accuracy", ".4f"),
        ]
        rows = [[*each[:3], "" if each.rank is None else str(each.rank), *each[4:]] for each in self.table]
        return format_table(columns, rows)

    def to_frame(self) -> Any:
        """Return the candidates as a pandas DataFrame."""
        columns = {name: [getattr(each, name) for each in self.table] for name in Tried._fields}
        return data_frame(columns, "table")


_PLAIN_NAMES = {
    "euclidean": "the plain distance (Euclidean, in the units of the data)",
    "standardized": "the plain distance (Euclidean, of standardized columns)",
    "metric": "the given metric",
}


@dataclass(frozen=True)
class Baseline:
    """The most frequent answer, the plain distance and the learned metric, on the same held-out judgements.

    Attributes
    ----------
    plain : str
        The plain distance that predicts better, "euclidean" or "standardized"; "metric" if a metric was given as prior.
    majority_accuracy, majority_loss : float
        Accuracy of the most frequent answer, and log loss of the best constant probabilities; for comparisons, those
        of a guess.
    plain_accuracy, plain_loss : float
        Accuracy and log loss of the plain distance with a fitted threshold.
    learned_accuracy, learned_loss : float
        Accuracy and log loss of the learned metric, with the chosen settings.
    gain, standard_error : float
        The log loss of the plain distance minus that of the learned metric, and the standard error of the difference.
    n_held_out : int
        The number of held-out judgements.
    metric : Metric, optional
        The plain distance with thresholds fitted to the judgements that were used for choosing; None if an
        origin is learned.
    """

    plain: str
    majority_accuracy: float
    majority_loss: float
    plain_accuracy: float
    plain_loss: float
    learned_accuracy: float
    learned_loss: float
    gain: float
    standard_error: float
    n_held_out: int
    metric: Metric | None = None

    @property
    def is_better(self) -> bool:
        """Whether the learned metric is better than the plain distance by more than two standard errors."""
        return self.gain > 2.0 * self.standard_error and self.gain > 0.0

    @property
    def sentence(self) -> str:
        """One or two sentences: the figures, and a verdict where the learned metric is not clearly better."""
        figures = (
            f"Held-out accuracy {self.learned_accuracy:.3f} ({self._plain_name} {self.plain_accuracy:.3f}, most "
            f"frequent answer {self.majority_accuracy:.3f}); log loss {self.learned_loss:.3f} ({self.plain_loss:.3f}, "
            f"{self.majority_loss:.3f}), on {self.n_held_out:,} judgements."
        )
        if self.is_better:
            return figures
        if self.gain == 0.0:
            return f"{figures} The result is the {self._plain_name} itself."
        verdict = "not better" if self.gain <= 0.0 else "not clearly better"
        return f"{figures} The learned metric is {verdict} than the {self._plain_name}."

    def summary(self) -> str:
        """Return a table of the three, and the sentence."""
        rows = [[name, accuracy, loss] for name, accuracy, loss in self._rows]
        table = format_table([("held out", ""), ("accuracy", ".4f"), ("log loss", ".4f")], rows)
        return f"{table}\n{self.sentence}"

    def to_frame(self) -> Any:
        """Return the three rows as a pandas DataFrame."""
        names, accuracies, losses = zip(*self._rows, strict=True)
        return data_frame({"predictor": names, "accuracy": accuracies, "log_loss": losses}, "summary()")

    @property
    def _plain_name(self) -> str:
        return "given metric" if self.plain == "metric" else "plain distance"

    @property
    def _rows(self) -> list[tuple[str, float, float]]:
        plain = self._plain_name if self.plain == "metric" else f"plain distance ({self.plain})"
        return [
            ("most frequent answer", self.majority_accuracy, self.majority_loss),
            (plain, self.plain_accuracy, self.plain_loss),
            ("learned metric", self.learned_accuracy, self.learned_loss),
        ]
