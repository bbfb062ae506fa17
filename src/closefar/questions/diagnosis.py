"""Problems of a fit and its data, with advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from closefar.fitting import Fit, FitStatistics
from closefar.judgements import Kind
from closefar.model import ZERO
from closefar.questions.findings import Finding, find_misfit
from closefar.questions.vocabulary import in_words_of

__all__ = ["Diagnosis", "describe_evidence", "diagnose"]

# Uncertain labels per parameter below which intervals and tests are rough, and below which they are unreliable.
_ROUGH = 10.0
_TOO_FEW = 4.0


@dataclass(frozen=True)
class Diagnosis:
    """The problems of a fit, most urgent first, each with advice.

    Attributes
    ----------
    facts : tuple of str
        Key figures of the fit.
    problems : tuple of str
        One or more sentences with advice per problem, those of `findings` last.
    findings : tuple of Finding
        The kinds of misfit that the tests found, with their p-values.
    """

    facts: tuple[str, ...]
    problems: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, fit: Fit, problems: Sequence[str], findings: Sequence[Finding] = (), untested: str = "") -> Diagnosis:
        """Collect the problems, the certificate's status unless it is good, and the reason if nothing was tested."""
        certificate = fit.certificate
        is_good = certificate.converged and not (fit.is_separable or fit.is_quasi_separable)
        every = [*([] if is_good else [certificate.status]), *problems, *(finding.sentence for finding in findings)]
        said = tuple(in_words_of(fit.kind, sentence) for sentence in every)
        facts = _facts(fit) + ((untested,) if untested else ())
        return cls(tuple(in_words_of(fit.kind, fact) for fact in facts), said, tuple(findings))

    def __str__(self) -> str:
        found = [f"* {problem}" for problem in self.problems] or ["No problems found."]
        return "\n".join([*self.facts, "", *found])

    def __repr__(self) -> str:
        return f"Diagnosis({len(self.problems)} problems)"


def diagnose(fit: Fit, groups: Any = None) -> Diagnosis:
    """Report the problems of a fit, its data and its noise, and whether labels depend on more than a distance.

    `groups` is as for `find_misfit`.
    """
    problems = list(fit.problems)
    if fit.metric.rank == 0 and fit.alpha > 0 and not fit.settings.chooses_alpha:
        problems.append(f"{ZERO} Lower alpha.")
    elif fit.metric.rank == 0 and not problems:  # a problem may be that the labels are reversed
        problems.append(f"{ZERO} Check the labels, and which label means far.")
    if fit.judgements is None:
        problems.append("This copy has no training pairs: check its noise model with check_noise_model(pairs, labels).")
        return Diagnosis.of(fit, problems)
    try:
        return Diagnosis.of(fit, problems, find_misfit(fit, groups))
    except ValueError as error:
        return Diagnosis.of(fit, problems, untested=f"Not tested: {error}")


def _facts(fit: Fit) -> tuple[str, ...]:
    statistics = fit.statistics
    return (
        _data(fit),
        f"The metric has rank {fit.metric.rank} and a training accuracy of {statistics.accuracy:.1%} "
        f"(majority baseline {_baseline(fit):.1%}).",
        *_comparisons(statistics),
        f"The model estimates that {statistics.wrong_share:.1%} of the labels are wrong.",
        describe_evidence(fit),
    )


def _data(fit: Fit) -> str:
    statistics = fit.statistics
    found = f"{statistics.n_pairs} pairs with {len(fit.metric.factor)} columns"
    annotators = "" if fit.annotators is None else f", by {len(fit.annotators)} annotators"
    if fit.kind is Kind.COMPARISONS:
        return f"{found}."
    if fit.kind is Kind.LEVELS:
        return f"{found}, rated on {len(fit.sides.classes)} levels{annotators}."
    return f"{found}, {statistics.share_far:.1%} labelled far{annotators}."


def _baseline(fit: Fit) -> float:
    """The accuracy of the most frequent label; a comparison can be given either way round."""
    if fit.kind is Kind.COMPARISONS:
        return 0.5
    share = fit.statistics.share_far
    return max(fit.statistics.level_shares or (share, 1.0 - share))


def _comparisons(statistics: FitStatistics) -> tuple[str, ...]:
    """What is known of comparisons that were fitted with the pairs."""
    if statistics.comparison_accuracy is None:
        return ()
    return (f"It agrees with {statistics.comparison_accuracy:.1%} of {statistics.n_comparisons} comparisons.",)


def describe_evidence(fit: Fit) -> str:
    """State the number of uncertain labels per parameter, and whether it is enough for intervals and tests."""
    if fit.is_metric_alone:
        return "Intervals and tests need a fit; this metric was truncated, or stored without its fit."
    found = fit.statistics.uncertain_per_parameter
    if found >= _ROUGH:
        meaning = "enough for intervals and tests."
    elif found >= _TOO_FEW:
        meaning = "so intervals and tests are approximate."
    else:
        meaning = "too few for intervals and tests. Label more pairs, or limit the rank."
    return (
        f"{found:.1f} uncertain labels per parameter ({fit.statistics.uncertain_labels:,.0f} for "
        f"{fit.statistics.n_parameters:,} parameters), {meaning}"
    )
