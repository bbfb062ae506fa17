"""The answer in a sentence, the key figures, and the certificate in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from closefar.fitting import Fit
from closefar.judgements import Kind
from closefar.report.doubts import ANOTHER_LEVEL, OFF
from closefar.report.wording import count, digits, percent, sentence, short

__all__ = ["answer", "certificate_words", "key_figures"]

_ALONE = ("truncated", "unknown")  # outcomes of a metric without its fit
_ACCURACY = {"out-of-fold": "Cross-validated accuracy", "given": "Accuracy", "in-sample": "Training accuracy"}


def answer(facts: dict[str, Any]) -> str:
    """Give the accuracy beside its baseline, and the share of wrong labels."""
    quality, pairs = facts["quality"], facts["pairs"]
    baseline = f"baseline {percent(quality['baseline'])}, {_baseline(quality)}"
    if facts["fit"]["rank"] == 0:
        sides = "close from far" if pairs["kind"] == Kind.CLOSE_FAR else "the answers"
        return f"No direction separates {sides}: the metric is zero, and its accuracy is the {baseline}."
    shown, noun, unit = count(pairs["n_pairs"], pairs["noun"]), pairs["noun"], pairs["unseen"]
    if quality["known"] is None:
        where = f"on {shown}: {percent(quality['accuracy'])}"
    else:
        known = f"{percent(quality['known']['accuracy'])} for new {noun}s of known {unit}s"
        where = f"for new {unit}s: {percent(quality['accuracy'])} on {shown}; {known}"
    return f"{_ACCURACY[pairs['source']]} {where} ({baseline}). {sentence(_wrong(facts))}."


def key_figures(facts: dict[str, Any]) -> list[dict[str, str]]:
    """Return name, value and a note for each number to see first."""
    quality, fit, wrong = facts["quality"], facts["fit"], facts["wrong_labels"]
    known, unseen, noun = quality["known"], facts["pairs"]["unseen"], facts["pairs"]["noun"]
    return [
        _accuracy("Accuracy" if known is None else f"Accuracy, new {unseen}s", quality),
        *([] if known is None else [_accuracy(f"Accuracy, known {unseen}s", known)]),
        {
            "name": "Majority baseline" if quality["likelier"] else "Baseline",
            "value": percent(quality["baseline"]),
            "note": _baseline(quality),
        },
        *([] if facts["pairs"]["kind"] == Kind.COMPARISONS else [_area(quality["auc"])]),
        _wrong_figure(wrong, facts["pairs"]),
        *_thresholds(facts),
        {"name": "Rank of M", "value": f"{fit['rank']} of {fit['n_features']}", "note": "directions used"},
        {
            "name": f"{'Evaluated' if facts['certificate']['outcome'] in _ALONE else 'Training'} {noun}s",
            "value": f"{fit['n_pairs']:,}",
            "note": _counted(facts) + (", weighted" if fit["parameters"]["class_weight"] else ""),
        },
        *_others(facts),
    ]


def _baseline(quality: dict[str, Any]) -> str:
    return f"always predicting {short(quality['likelier'])}" if quality["likelier"] else "by guessing"


def _area(auc: float | None) -> dict[str, str]:
    return {
        "name": "ROC AUC",
        "value": "none" if auc is None else f"{auc:.3f}",
        "note": "nothing to separate" if auc is None else "0.5 is chance, 1 is perfect",
    }


def _thresholds(facts: dict[str, Any]) -> list[dict[str, str]]:
    """The threshold or, with levels, all of them; comparisons have none."""
    thresholds = facts["fit"]["thresholds"]
    if not thresholds:
        return []
    if len(thresholds) == 1:
        return [{"name": "Threshold τ", "value": f"{thresholds[0]:.4g}", "note": "of the squared distance"}]
    values = ", ".join(digits(threshold) for threshold in thresholds)
    return [{"name": "Thresholds", "value": values, "note": f"between {len(thresholds) + 1} levels"}]


def _counted(facts: dict[str, Any]) -> str:
    kind = facts["pairs"]["kind"]
    if kind == Kind.LEVELS:
        return count(len(facts["pairs"]["labels"]), "level")
    return "which leg is shorter" if kind == Kind.COMPARISONS else f"{percent(facts['fit']['share_far'])} far"


def _others(facts: dict[str, Any]) -> list[dict[str, str]]:
    """The comparisons of a mixed fit, and the annotators."""
    found = []
    if facts["comparisons"] is not None:
        note = f"agreement {percent(facts['comparisons']['accuracy'])} in training"
        found.append({"name": "Training comparisons", "value": f"{facts['comparisons']['n']:,}", "note": note})
    if facts["annotators"] is not None:
        doubtful = facts["annotators"]["n_doubtful"]
        note = f"{doubtful} to look at" if doubtful else "none stands out"
        found.append({"name": "Annotators", "value": f"{facts['annotators']['n']:,}", "note": note})
    return found


def certificate_words(fit: Fit) -> dict[str, str]:
    """The outcome in a word, what to do, and what is proven."""
    certificate, settings = fit.certificate, fit.settings
    if fit.is_metric_alone:
        term = fit.kind.term
        words = f"On the {count(fit.statistics.n_pairs, term)} given, its loss is {certificate.loss:.6g} per {term}."
        return {"outcome": str(certificate.outcome), "advice": sentence(certificate.advice), "words": words}
    others = "metric of any rank"
    if settings.fit_origin and fit.alpha == 0:
        others = "metric up to a thousand times the size of this one"
    words = (
        f"The fit reached an objective of {certificate.objective:.8g}. It is proven that no {others} has an objective "
        f"below {certificate.lower_bound:.8g}, so at most {certificate.gap:.1e} can be gained."
    )
    if np.any(fit.flip_rate):
        words += (
            f" This holds for the last step, in which each {fit.kind.term}'s probability of being flipped is held "
            "fixed; the likelihood with flips may have other maxima."
        )
    return {"outcome": str(certificate.outcome), "advice": sentence(certificate.advice), "words": words}


def _accuracy(name: str, part: dict[str, Any]) -> dict[str, str]:
    return {"name": name, "value": percent(part["accuracy"]), "note": _interval(part, "accuracy")}


def _interval(part: dict[str, Any], name: str) -> str:
    return f"95% interval {percent(part[f'{name}_low'])} to {percent(part[f'{name}_high'])}"


def _wrong_figure(wrong: dict[str, Any], pairs: dict[str, Any]) -> dict[str, str]:
    term = pairs["term"]
    name = "Rated as another level" if pairs["kind"] == Kind.LEVELS else f"Wrong {term}s"
    if wrong["reason"] is not None:
        return {"name": name, "value": "unknown", "note": "can't be estimated here"}
    contradicting = "Labels far off" if wrong.get("is_off") else f"Contradicting {term}s"
    return {
        "name": name if wrong["kind"] == "probability" else contradicting,
        "value": percent(wrong["share"]),
        "note": _interval(wrong, "share"),
    }


def _wrong(facts: dict[str, Any]) -> str:
    wrong, term = facts["wrong_labels"], facts["pairs"]["term"]
    if facts["quality"]["is_chance"]:
        return "this is not clearly better than chance"
    if facts["certificate"]["outcome"] in _ALONE:
        return f"how many {term}s are wrong can't be estimated without a fit"
    if wrong["reason"] is not None or wrong["doubt"] is not None:
        return f"how many {term}s are wrong can't be estimated from this fit"
    if wrong["kind"] == "probability" and facts["pairs"]["kind"] == Kind.LEVELS:
        return f"about {percent(wrong['share'])} of the pairs were {ANOTHER_LEVEL}"
    if wrong["kind"] == "probability":
        return f"about {percent(wrong['share'])} of the {term}s are wrong"
    if facts["certificate"]["outcome"] == "separable":
        return f"the metric gets every training {term} right, so how many of them are wrong can't be estimated"
    if facts["pairs"]["kind"] == Kind.LEVELS:
        return f"{percent(wrong['share'])} of the labels are {OFF}"
    if facts["fit"]["alpha"] > 0:  # a penalty makes margins, and so the share of labels that noise explains, uncertain
        return f"how many {term}s are wrong can't be estimated from this fit"
    return f"by the fit's own estimate, {percent(facts['fit']['wrong_share'])} of its training {term}s are wrong"
