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
_SCALES = ("data", "columns", "units")
_NOT_OF_ALL: dict[str, tuple[str, Any, str]] = {  # parameters that not every learner has, with their defaults
    "shrink_to": ("--shrink-to identity", "zero", "close/far labels"),
    "fit_origin": ("--origin", False, "close/far labels of single points"),
    "class_weight": ("--balanced", None, "labels of pairs"),
}


@dataclass(frozen=True)
class Learning:
    """What every fit can be asked for."""

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
    comparison_noise: Annotated[
        str | None,
        typer.Option(
            metavar="SCALE",
            help="With --pairs and --comparisons: noise of the comparisons relative to that of the pairs, or estimate. "
            "Default: 1.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    strictness_width: Annotated[
        str | None,
        typer.Option(
            metavar="WIDTH",
            help="How much the strictness of annotators differs (standard deviation, in squared distance). "
            "Default: estimate.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    noise: Annotated[
        str,
        typer.Option(
            metavar="NOISE",
            help=f"Noise model: {', '.join(NOISES)}, or auto for the likeliest.",
            rich_help_panel=_PANEL,
        ),
    ] = "logistic"
    rank: Annotated[
        str | None,
        typer.Option(
            metavar="K",
            help="Largest rank of M, or auto for cross-validation. Default: no limit.",
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
        check_positive("--comparison-noise", self.comparison_noise)
        check_positive("--strictness-width", self.strictness_width)
        if self.comparison_noise is not None and (files.pairs is None or files.comparisons is None):
            raise ValueError(
                "--comparison-noise is relative to the noise of pairs, so it needs --pairs and --comparisons. "
                "Leave it out."
            )
        if self.strictness_width is not None and (files.no_annotators or files.are_comparisons):
            raise ValueError("--strictness-width is for annotators of pairs, and there are none. Leave it out.")

    @property
    def levels_in_order(self) -> tuple[str, ...] | None:
        """The levels from closest to farthest, where they were given."""
        return None if self.levels is None else names_in(self.levels)

    def check_many_fits(self) -> None:
        """Refuse what is for one fit where many are compared."""

    @property
    def chooses_alpha(self) -> bool:
        return False

    def parameters(self) -> dict[str, Any]:
        """The parameters of the learner."""
        given = {
            "comparison_noise": number(self.comparison_noise, float, "--comparison-noise", "estimate"),
            "strictness_width": number(self.strictness_width, float, "--strictness-width", "estimate"),
        }
        return {
            "noise": self.noise,
            "rank": number(self.rank, int, "--rank", "auto"),
            "tol": self.tol,
            "max_iter": self.max_iter,
            "device": self.device,
            **{name: value for name, value in given.items() if value is not None},
        }

    def learner(self, words: tuple[str, ...], *, verbose: bool, shape: tuple[int, ...] = ()) -> MetricLearner:
        """The learner for data of this shape: with many columns, cross-validation would take too long.

        `words` are the labels from closest to farthest; comparisons have none.
        """
        from closefar.fitting import is_wide
        from closefar.learners import (
            ComparisonMetricLearner,
            LinearMetricLearner,
            LinearMetricLearnerCV,
            OrdinalMetricLearner,
        )

        parameters = {**self.parameters(), "verbose": int(verbose)}
        kind: Any = {0: ComparisonMetricLearner, 2: LinearMetricLearner}.get(len(words), OrdinalMetricLearner)
        if len(words) == 2:
            parameters["far_label"] = words[1]
        elif words:
            parameters["levels"] = words
        parameters = _known_to(kind, parameters)
        if not self.chooses_alpha or (shape and is_wide(shape[0], shape[-1], parameters["rank"])):
            return kind(**parameters)  # type: ignore[no-any-return]
        self.check_many_fits()
        parameters.pop("alpha")
        noise, rank = parameters.pop("noise"), parameters.pop("rank")
        search = LinearMetricLearnerCV(noises=(noise,), ranks=(rank,), random_state=0)
        searched = search.get_params()
        own = {name: value for name, value in parameters.items() if name not in searched}
        search.set_params(**{name: value for name, value in parameters.items() if name in searched})
        is_plain = kind is LinearMetricLearner and not own
        return search if is_plain else search.set_params(learner=kind(**own))


@dataclass(frozen=True)
class PenalisedLearning(Learning):
    """A fit that may have a penalty, flipped labels and an origin."""

    alpha: Annotated[
        str,
        typer.Option(
            metavar="WEIGHT",
            help="Weight of the penalty, which favours low rank; auto cross-validates it, and the next three. "
            "With many columns, auto chooses it and its scale on held-out pairs.",
            rich_help_panel=_PANEL,
        ),
    ] = "0"
    alpha_scale: Annotated[
        str | None,
        typer.Option(
            metavar="SCALE",
            help="Scale of the penalty: data, columns, or a number from 0 (data) to 1 (columns); "
            "for many columns of one unit units, or units:0.5 and such for a blend with data.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    shrink_to: Annotated[
        str | None,
        typer.Option(
            metavar="MATRIX", help="Matrix that the penalty shrinks M to: zero or identity.", rich_help_panel=_PANEL
        ),
    ] = None
    flip_rate: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Share of labels flipped at random, whatever the distance, or estimate, with annotators "
            "for each of them; two estimates one share for close and one for far.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    origin: Annotated[
        bool,
        typer.Option("--origin", help="For single points: learn the point to measure from.", rich_help_panel=_PANEL),
    ] = False

    @property
    def chooses_alpha(self) -> bool:
        return self.alpha == "auto"

    def check(self, files: Files) -> None:
        super().check(files)
        alpha = number(self.alpha, float, "--alpha", "auto")
        if not self.chooses_alpha:
            check_range("--alpha", alpha)
        scale = self.alpha_scale
        blend = number(scale and scale.removeprefix("units:"), float, "--alpha-scale", *_SCALES)
        if isinstance(blend, float) and not 0 <= blend <= 1:
            raise ValueError(f"--alpha-scale must be {any_of(*_SCALES, 'a number from 0 to 1')}; got {scale}.")
        if self.shrink_to not in (None, "zero", "identity"):
            raise ValueError(f"--shrink-to must be zero or identity; got {self.shrink_to!r}.")
        rate = number(self.flip_rate, float, "--flip-rate", "estimate", "two")
        if isinstance(rate, float) and not 0 <= rate < 0.5:
            raise ValueError(f"--flip-rate must be estimate, two or a number from 0 to below 0.5; got {rate:g}.")
        if self.noise == "auto" and alpha != 0:
            raise ValueError(
                f"--noise auto compares likelihoods, which a penalty distorts; got --alpha {self.alpha}. Choose a "
                "noise, or leave --alpha out."
            )
        if self.chooses_alpha and self.rank == "auto":
            raise ValueError("--alpha auto and --rank auto can't be combined. Leave one of them out.")
        if self.shrink_to == "identity" and self.rank is not None:
            raise ValueError(
                "--shrink-to identity gives every direction a weight, so the rank can't be limited. Leave --rank out."
            )
        if self.origin and not files.are_single:
            raise ValueError("--origin needs single points, as the difference of a pair has no origin. Leave it out.")

    def parameters(self) -> dict[str, Any]:
        given = {
            "alpha": number(self.alpha, float, "--alpha", "auto"),
            "alpha_scale": _scale(self.alpha_scale),
            "shrink_to": self.shrink_to,
            "flip_rate": number(self.flip_rate, float, "--flip-rate", "estimate", "two"),
            "fit_origin": self.origin,
        }
        return super().parameters() | {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class LongLearning(PenalisedLearning):
    """A fit in which both labels may count the same, and which may take long."""

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
        if self.max_time is not None and not (math.isfinite(self.max_time) and self.max_time > 0):
            raise ValueError(f"--max-time must be a number of seconds > 0; got {self.max_time:g}.")

    def check_many_fits(self) -> None:
        for option, value in (("--checkpoint", self.checkpoint), ("--max-time", self.max_time)):
            if value is not None:
                raise ValueError(
                    f"{option} is for one fit, and --alpha auto compares many by cross-validation. Choose a weight "
                    f"with --alpha, or leave {option} out."
                )

    def parameters(self) -> dict[str, Any]:
        balanced = {"class_weight": "balanced" if self.balanced else None}
        return super().parameters() | balanced | ({} if self.max_time is None else {"max_time": self.max_time})


def _known_to(kind: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that a learner has; others must be left at their defaults."""
    known = kind().get_params()
    for name, (option, default, needed) in _NOT_OF_ALL.items():
        if name not in known and parameters.get(name, default) != default:
            noun = "comparisons" if "levels" not in known else "levels"
            raise ValueError(f"{option} is for {needed}, and these are {noun}. Leave it out.")
    return {name: value for name, value in parameters.items() if name in known}


def _scale(text: str | None) -> Any:
    is_blend = text is not None and text.startswith("units:")
    return text if is_blend else number(text, float, "--alpha-scale", *_SCALES)
