"""The options of a fit; each command offers those that it can use, and refuses wrong ones before it reads a file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.options import names_in
from closefar.cli.parsing import any_of, check_positive, check_range, number
from closefar.cli.sources import Files
from closefar.noise import NOISES

if TYPE_CHECKING:
    from closefar.learners import MetricLearner

__all__ = ["Learning", "LongLearning", "PenalisedLearning"]

_PANEL = "Learning"
_PRIORS = ("auto", "zero", "euclidean", "standardized")
_NOT_OF_ALL: dict[str, tuple[str, Any, str]] = {  # parameters that not every learner has, with their defaults
    "fit_origin": ("--origin", False, "close/far labels of single points"),
    "class_weight": ("--balanced", None, "labels of pairs"),
}


@dataclass(frozen=True)
class Learning:
    """What every fit can be asked for; by itself, maximum likelihood, which the theory of sample sizes is about."""

    far: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="The label that means far, unless it is obvious.", rich_help_panel=_PANEL),
    ] = None
    levels: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Levels of labels in their order, from closest to farthest. More than two numbers are levels by "
            "themselves, the smallest closest.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    noise: Annotated[
        str,
        typer.Option(
            metavar="NOISE",
            help=f"Noise model: {', '.join(NOISES)}, or auto for the one that predicts best.",
            rich_help_panel=_PANEL,
        ),
    ] = "logistic"
    rank: Annotated[
        str | None,
        typer.Option(
            metavar="K",
            help="Largest rank of M, or auto to choose it on held-out judgements. Default: no limit.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    tol: Annotated[
        float, typer.Option(metavar="GAP", help="Stop once the proven gap is below this.", rich_help_panel=_PANEL)
    ] = 1e-6
    max_iter: Annotated[
        int, typer.Option(metavar="N", help="Largest number of solver steps.", rich_help_panel=_PANEL)
    ] = 1000

    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="Where to compute: cpu, cuda, or cuda:1 for another GPU. Default: cpu.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def check(self, files: Files) -> None:
        """Refuse wrong values, and those that these files have no use for."""
        self._check_labels(files)
        if self.noise not in (*NOISES, "auto"):
            raise ValueError(f"--noise must be {any_of(*NOISES, 'auto')}; got {self.noise!r}.")
        rank = number(self.rank, int, "--rank", "auto")
        if isinstance(rank, int) and rank < 1:
            raise ValueError(f"--rank must be auto or a whole number >= 1; got {rank}.")
        check_range("--tol", self.tol)
        if self.max_iter < 1:
            raise ValueError(f"--max-iter must be a whole number >= 1; got {self.max_iter}.")
        if self.device is not None:
            from closefar.fitting import check_device  # slow to import

            check_device(self.device)

    def _check_labels(self, files: Files) -> None:
        levels = self.levels_in_order
        for option, value in (("--far", self.far), ("--levels", levels)):
            if value is not None and files.are_comparisons:
                raise ValueError(f"{option} is about the labels of --pairs, and comparisons have none. Leave it out.")
        if levels is not None and (len(levels) < 2 or not all(levels) or len(set(levels)) < len(levels)):
            raise ValueError(
                "--levels must list each label once, two or more of them, from closest to farthest, such as "
                f"same,similar,other; got {self.levels!r}."
            )
        if levels is not None and self.far is not None:
            raise ValueError("--levels says already which label is far: the last one. Leave --far out.")

    @property
    def levels_in_order(self) -> tuple[str, ...] | None:
        """The levels from closest to farthest, where they were given."""
        return None if self.levels is None else names_in(self.levels)

    def parameters(self) -> dict[str, Any]:
        """The parameters of the learner."""
        return {
            "alpha": 0.0,
            "flip_rate": 0.0,
            "noise": self.noise,
            "rank": number(self.rank, int, "--rank", "auto"),
            "tol": self.tol,
            "max_iter": self.max_iter,
            "device": self.device,
        }

    def fit_options(self) -> dict[str, Any]:
        """What `fit` of the learner is given besides judgements."""
        return {}

    def learner(self, words: tuple[str, ...], *, verbose: bool) -> MetricLearner:
        """The learner; `words` are the labels from closest to farthest, and comparisons have none."""
        from closefar.learners import ComparisonMetricLearner, LinearMetricLearner, OrdinalMetricLearner

        parameters = {**self.parameters(), "verbose": int(verbose)}
        kind: Any = {0: ComparisonMetricLearner, 2: LinearMetricLearner}.get(len(words), OrdinalMetricLearner)
        if len(words) == 2:
            parameters["far_label"] = words[1]
        elif words:
            parameters["levels"] = words
        return kind(**_known_to(kind, parameters))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class PenalisedLearning(Learning):
    """A fit that may have a penalty, flipped labels and an origin."""

    alpha: Annotated[
        str,
        typer.Option(
            metavar="WEIGHT",
            help="Weight of the penalty, which shrinks M to its prior. auto chooses it on held-out judgements; 0 is "
            "maximum likelihood.",
            rich_help_panel=_PANEL,
        ),
    ] = "auto"
    prior: Annotated[
        str,
        typer.Option(
            metavar="PRIOR",
            help="What the penalty shrinks M to: zero, or the plain distance, euclidean (in the units of the data) or "
            "standardized (of standardized columns). auto chooses one of them.",
            rich_help_panel=_PANEL,
        ),
    ] = "auto"
    flip_rate: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="Share of labels flipped at random, regardless of distance. auto estimates it where that predicts "
            "held-out labels better; estimate always does, with annotators for each of them; two estimates one share "
            "for close and one for far.",
            rich_help_panel=_PANEL,
        ),
    ] = "auto"
    origin: Annotated[
        bool,
        typer.Option("--origin", help="For single points: learn the point to measure from.", rich_help_panel=_PANEL),
    ] = False

    def check(self, files: Files) -> None:
        super().check(files)
        alpha = number(self.alpha, float, "--alpha", "auto")
        if isinstance(alpha, float):
            check_range("--alpha", alpha)
        if self.prior not in _PRIORS:
            raise ValueError(f"--prior must be {any_of(*_PRIORS)}; got {self.prior!r}.")
        rate = number(self.flip_rate, float, "--flip-rate", "auto", "estimate", "two")
        if isinstance(rate, float) and not 0 <= rate < 0.5:
            raise ValueError(f"--flip-rate must be auto, estimate, two or a number from 0 to below 0.5; got {rate:g}.")
        if self.rank is not None and self.prior in ("euclidean", "standardized"):
            raise ValueError(
                f"--prior {self.prior} gives M full rank, so its rank can't be limited; got --rank {self.rank}. Use "
                "--prior zero, or leave --rank out."
            )
        if self.origin and not files.are_single:
            raise ValueError("--origin needs single points, as the difference of a pair has no origin. Leave it out.")

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {
            "alpha": number(self.alpha, float, "--alpha", "auto"),
            "prior": self.prior,
            "flip_rate": number(self.flip_rate, float, "--flip-rate", "auto", "estimate", "two"),
            "fit_origin": self.origin,
        }


@dataclass(frozen=True)
class LongLearning(PenalisedLearning):
    """A fit in which both labels may count the same, and comparisons otherwise than pairs, and which may take long."""

    comparison_noise: Annotated[
        str | None,
        typer.Option(
            metavar="SCALE",
            help="With --pairs and --comparisons: noise of the comparisons relative to that of the pairs, or estimate. "
            "Default: 1.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    balanced: Annotated[
        bool,
        typer.Option("--balanced", help="Give all labels the same total weight.", rich_help_panel=_PANEL),
    ] = False
    max_time: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="End the fit after this time, with what it has by then.", rich_help_panel=_PANEL
        ),
    ] = None
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep what has been computed in a file, from which the same command continues.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def check(self, files: Files) -> None:
        super().check(files)
        check_positive("--comparison-noise", self.comparison_noise)
        if self.comparison_noise is not None and (files.pairs is None or files.comparisons is None):
            raise ValueError(
                "--comparison-noise is relative to the noise of pairs, so it needs --pairs and --comparisons. "
                "Leave it out."
            )
        if self.max_time is not None and not (math.isfinite(self.max_time) and self.max_time > 0):
            raise ValueError(f"--max-time must be a number of seconds > 0; got {self.max_time:g}.")

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"class_weight": "balanced" if self.balanced else None}

    def fit_options(self) -> dict[str, Any]:
        noise = number(self.comparison_noise, float, "--comparison-noise", "estimate")
        given = {"comparison_noise": noise, "max_time": self.max_time, "checkpoint": self.checkpoint}
        return super().fit_options() | {name: value for name, value in given.items() if value is not None}


def _known_to(kind: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that a learner has; others must be left at their defaults."""
    known = kind().get_params()
    for name, (option, default, needed) in _NOT_OF_ALL.items():
        if name not in known and parameters.get(name, default) != default:
            noun = "comparisons" if "levels" not in known else "levels"
            raise ValueError(f"{option} is for {needed}, and these are {noun}. Leave it out.")
    return {name: value for name, value in parameters.items() if name in known}
