"""The answer in a sentence, the key figures, and the certificate in words."""

from __future__ import annotations

from typing import Any

from closefar.fitting import Fit
from closefar.report.wording import count, percent, sentence

__all__ = ["answer", "certificate_words", "key_figures"]

_ALONE = ("truncated", "unknown")  # outcomes of a metric without its fit
_ACCURACY = {"out-of-fold": "Cross-validated accuracy", "given": "Accuracy", "in-sample": "Training accuracy"}


def answer(facts: dict[str, Any]) -> str:
    """Give the accuracy beside its baseline, and the share of wrong labels."""
    quality, pairs = facts["quality"], facts["pairs"]
    baseline = f"baseline {percent(quality['baseline'])}, always predicting {quality['likelier']}"
    if facts["fit"]["rank"] == 0:
        return f"No direction separates close from far: the metric is zero, and its accuracy is the {baseline}."
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
            "name": "Majority baseline",
            "value": percent(quality["baseline"]),
            "note": f"always predicting {quality['likelier']}",
        },
        {
            "name": "ROC AUC",
            "value": "none" if quality["auc"] is None else f"{quality['auc']:.3f}",
            "note": "nothing to separate" if quality["auc"] is None else "0.5 is chance, 1 is perfect",
        },
        _wrong_figure(wrong),
        {"name": "Threshold τ", "value": f"{fit['threshold']:.4g}", "note": "of the squared distance"},
        {"name": "Rank of M", "value": f"{fit['rank']} of {fit['n_features']}", "note": "directions used"},
        {
            "name": f"{'Evaluated' if facts['certificate']['outcome'] in _ALONE else 'Training'} {noun}s",
            "value": f"{fit['n_pairs']:,}",
            "note": f"{percent(fit['share_far'])} far" + (", weighted" if fit["parameters"]["class_weight"] else ""),
        },
    ]


def certificate_words(fit: Fit) -> dict[str, str]:
    """The outcome in a word, what to do, and what is proven."""
    certificate, settings = fit.certificate, fit.settings
    if fit.is_metric_alone:
        words = f"On the {count(fit.statistics.n_pairs, 'label')} given, its loss is {certificate.loss:.6g} per label."
        return {"outcome": str(certificate.outcome), "advice": sentence(certificate.advice), "words": words}
    others = "metric of any rank"
    if settings.fit_origin and fit.alpha == 0:
        others = "metric up to a thousand times the size of this one"
    words = (
        f"The fit reached an objective of {certificate.objective:.8g}. It is proven that no {others} has an objective "
        f"below {certificate.lower_bound:.8g}, so at most {certificate.gap:.1e} can be gained."
    )
    if fit.flip_rate > 0:
        words += (
            " This holds for the last step, in which each label's probability of being flipped is held fixed; the "
            "likelihood with flips may have other maxima."
        )
    return {"outcome": str(certificate.outcome), "advice": sentence(certificate.advice), "words": words}


def _accuracy(name: str, part: dict[str, Any]) -> dict[str, str]:
    return {"name": name, "value": percent(part["accuracy"]), "note": _interval(part, "accuracy")}


def _interval(part: dict[str, Any], name: str) -> str:
    return f"95% interval {percent(part[f'{name}_low'])} to {percent(part[f'{name}_high'])}"


def _wrong_figure(wrong: dict[str, Any]) -> dict[str, str]:
    if wrong["reason"] is not None:
        return {"name": "Wrong labels", "value": "unknown", "note": "can't be estimated here"}
    return {
        "name": "Wrong labels" if wrong["kind"] == "probability" else "Contradicting labels",
        "value": percent(wrong["share"]),
        "note": _interval(wrong, "share"),
    }


def _wrong(facts: dict[str, Any]) -> str:
    wrong = facts["wrong_labels"]
    if facts["quality"]["is_chance"]:
        return "this is not clearly better than chance"
    if facts["certificate"]["outcome"] in _ALONE:
        return "how many labels are wrong can't be estimated without a fit"
    if wrong["reason"] is not None or wrong["doubt"] is not None or facts["fit"]["alpha"] > 0:
        return "how many labels are wrong can't be estimated from this fit"
    if wrong["kind"] == "probability":
        return f"about {percent(wrong['share'])} of the labels are wrong"
    if facts["certificate"]["outcome"] == "separable":
        return "the metric gets every training label right, so how many of them are wrong can't be estimated"
    return f"by the fit's own estimate, {percent(facts['fit']['wrong_share'])} of its training labels are wrong"
