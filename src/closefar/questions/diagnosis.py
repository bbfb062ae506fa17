"""What a fit and its data leave open, told with advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from closefar.fitting import Fit
from closefar.model import ZERO
from closefar.questions.noise_check import DOUBT, check_noise_model

__all__ = ["Diagnosis", "diagnose"]


@dataclass(frozen=True)
class Diagnosis:
    """What was found, most pressing first, each with advice; `facts` are the figures behind it."""

    facts: tuple[str, ...]
    problems: tuple[str, ...]

    @classmethod
    def of(cls, fit: Fit, problems: Sequence[str]) -> Diagnosis:
        """Put together what was found, and what the certificate says where that is not good."""
        metric, certificate, statistics = fit.metric, fit.certificate, fit.statistics
        likelier = max(statistics.share_far, 1.0 - statistics.share_far)
        is_good = certificate.converged and not (fit.is_separable or fit.is_quasi_separable)
        facts = (
            f"{statistics.n_pairs} pairs of {len(metric.factor)} columns, {statistics.share_far:.1%} labelled far.",
            f"The metric has rank {metric.rank} and gets {statistics.accuracy:.1%} of the labels right, where always "
            f"the likelier one gets {likelier:.1%}.",
            f"By its own estimate {statistics.wrong_share:.1%} of the labels are wrong.",
        )
        return cls(facts, tuple(problems if is_good else [certificate.status, *problems]))

    def __str__(self) -> str:
        found = [f"* {problem}" for problem in self.problems] or ["Nothing speaks against this fit."]
        return "\n".join([*self.facts, "", *found])

    def __repr__(self) -> str:
        return f"Diagnosis({len(self.problems)} problems)"


def diagnose(fit: Fit) -> Diagnosis:
    """Find out what the fit, its data and its noise leave open."""
    return Diagnosis.of(fit, [*fit.problems, *_noise_problems(fit)])


def _noise_problems(fit: Fit) -> list[str]:
    if fit.metric.rank == 0:
        advice = "Lower alpha." if fit.settings.alpha > 0 else "Check the labels, and which of them means far."
        return [f"{ZERO} {advice}"]
    if fit.judgements is None:
        return ["This copy is without its training pairs: check its noise with check_noise_model(pairs, labels)."]
    try:
        check = check_noise_model(fit)
    except ValueError as error:
        return [str(error)]
    return [check.advice] if check.p_value < DOUBT else []
