"""The answer in a sentence, the key figures, and the certificate in words."""

from __future__ import annotations

from typing import Any

from closefar.fitting import Fit
from closefar.report.wording import count, percent, sentence

__all__ = ["answer", "certificate_words", "key_figures"]

_HOW = {
    "out-of-fold": "{}, each with its {} unseen",
    "given": "the {} given",
    "in-sample": "{}, those of its fit",
}


def answer(facts: dict[str, Any]) -> str:
    """Say how well it works, beside doing nothing, and how many labels are wrong."""
    quality, pairs = facts["quality"], facts["pairs"]
    if facts["fit"]["rank"] == 0:
        return (
            "No direction tells close from far: the metric is zero, and always saying "
            f"{quality['likelier']} agrees with {percent(quality['always_likelier'])} of the labels."
        )
    unseen = {"pair": "label", "group": "group", "point": "points"}[pairs["unseen"]]
    known = ""
    if quality["known"] is not None:
        accuracy = percent(quality["known"]["accuracy"])
        known = f" (and with {accuracy} of those of new {pairs['noun']}s of known {pairs['unseen']}s)"
    return (
        f"The learned distance agrees with {percent(quality['accuracy'])} of the labels of "
        f"{_HOW[pairs['source']].format(count(pairs['n_pairs'], pairs['noun']), unseen)}{known}, where always saying "
        f"{quality['likelier']} would agree with {percent(quality['always_likelier'])}; {_wrong(facts)}."
    )


def key_figures(facts: dict[str, Any]) -> list[dict[str, str]]:
    """Return name, value and a note for each number to see first."""
    quality, fit, wrong = facts["quality"], facts["fit"], facts["wrong_labels"]
    known, unseen = quality["known"], facts["pairs"]["unseen"]
    return [
        _agreement("Labels agreed with" if known is None else f"Agreed with, new {unseen}s", quality),
        *([] if known is None else [_agreement(f"Agreed with, known {unseen}s", known)]),
        {
            "name": "ROC area",
            "value": "none" if quality["auc"] is None else f"{quality['auc']:.3f}",
            "note": "nothing to tell apart" if quality["auc"] is None else "0.5 is chance, 1 is perfect",
        },
        _wrong_figure(wrong),
        {"name": "Threshold τ", "value": f"{fit['threshold']:.4g}", "note": "on the squared distance"},
        {
            "name": "Directions used",
            "value": f"{fit['rank']} of {fit['n_features']}",
            "note": "the rank of M",
        },
        {
            "name": f"{facts['pairs']['noun'].capitalize()}s fitted to",
            "value": f"{fit['n_pairs']:,}",
            "note": f"{percent(fit['share_far'])} far" + (", weighted" if fit["parameters"]["class_weight"] else ""),
        },
    ]


def certificate_words(fit: Fit) -> dict[str, str]:
    """The outcome in a word, what to do, and what is proven."""
    certificate, settings = fit.certificate, fit.settings
    others = "metric of any rank"
    if settings.fit_origin and fit.alpha == 0:
        others = "metric up to a thousand times the size of this one"
    words = (
        f"The fit reached an objective of {certificate.objective:.8g}. It is proven that no {others} reaches "
        f"less than {certificate.lower_bound:.8g}, so there is at most {certificate.gap:.1e} left to gain."
    )
    if fit.flip_rate > 0:
        words += (
            " This is about the last step, in which each label's probability of being flipped is held fixed; the "
            "likelihood with flips may have other maxima."
        )
    return {"outcome": str(certificate.outcome), "advice": sentence(certificate.advice), "words": words}


def _agreement(name: str, part: dict[str, Any]) -> dict[str, str]:
    return {
        "name": name,
        "value": percent(part["accuracy"]),
        "note": f"{percent(part['accuracy_low'])} to {percent(part['accuracy_high'])}",
    }


def _wrong_figure(wrong: dict[str, Any]) -> dict[str, str]:
    if wrong["reason"] is not None:
        return {"name": "Wrong labels", "value": "unknown", "note": "can't be told here"}
    return {
        "name": "Wrong labels" if wrong["kind"] == "probability" else "Contradicting labels",
        "value": percent(wrong["share"]),
        "note": f"{percent(wrong['share_low'])} to {percent(wrong['share_high'])}",
    }


def _wrong(facts: dict[str, Any]) -> str:
    wrong = facts["wrong_labels"]
    if facts["quality"]["is_chance"]:
        return "that is not clearly better than chance"
    if wrong["reason"] is not None or facts["fit"]["parameters"]["alpha"] > 0:
        return "how many labels are wrong can't be told from this fit"
    if wrong["kind"] == "probability":
        return f"about {percent(wrong['share'])} of the labels are wrong"
    if facts["certificate"]["outcome"] == "separable":
        return "it gets every label right that it was fitted to, so how many of those are wrong can't be told"
    return f"by its own estimate {percent(facts['fit']['wrong_share'])} of the labels that it was fitted to are wrong"
