"""Advice in the words of the tool that its reader uses: sentences name parameters, the command line has options."""

from __future__ import annotations

import re
import shlex

__all__ = ["for_command_line"]

_OPTIONS = {
    "alpha": "--alpha",
    "alpha_scale": "--alpha-scale",
    "class_weight": "--balanced",
    "far_label": "--far",
    "fit_origin": "--origin",
    "flip_rate": "--flip-rate",
    "groups": "--group",
    "max_iter": "--max-iter",
    "noise": "--noise",
    "rank": "--rank",
    "sample_weight": "--weight",
    "shrink_to": "--shrink-to",
    "tol": "--tol",
}
_SWITCHES = {"class_weight", "fit_origin"}  # options without a value

# These are words of English as well: they are parameters only where they are given a value or are to be changed.
_ENGLISH = {"groups", "noise", "rank"}

_PHRASES = {
    "diagnose() says what else the labels depend on": "the warnings of the report say what else the labels depend on",
    "see diagnose()": "see the warnings of the report",
    "class_weight must be None": "--balanced must be left out",
    "alpha > 0 (try 0.01)": "--alpha 0.01",
    "alpha (try 0.001)": "--alpha (try 0.001)",
    "find_label_errors": "closefar label-errors",
    "check_noise_model doubts": "The noise check doubts",
}

# Not a part of another word or option, nor inside the quotes around a name of the user's.
_START = r"(?<![\w'\"=-])"
_GIVEN = re.compile(rf"{_START}({'|'.join(_OPTIONS)})=('[^']*'|\"[^\"]*\"|[\w.+-]*\w)")
_CHANGED = re.compile(rf"(?i)\b(raise|lower|increase|set) ({'|'.join(_ENGLISH)})\b(?!=)")
_NAMED = re.compile(rf"{_START}({'|'.join(sorted(set(_OPTIONS) - _ENGLISH))})\b(?!['\"=])")


def for_command_line(words: str) -> str:
    """Return a sentence of advice with options in place of parameters.

    Examples
    --------
    >>> from closefar.advice import for_command_line
    >>> print(for_command_line("Try flip_rate='estimate', or raise max_iter."))
    Try --flip-rate estimate, or raise --max-iter.
    """
    for phrase, other in _PHRASES.items():
        words = words.replace(phrase, other)
    words = _GIVEN.sub(_option, words)
    words = _CHANGED.sub(lambda found: f"{found[1]} {_OPTIONS[found[2]]}", words)
    return _NAMED.sub(lambda found: _OPTIONS[found[1]], words)


def _option(found: re.Match[str]) -> str:
    name, value = found[1], found[2].strip("'\"")
    return _OPTIONS[name] if name in _SWITCHES else f"{_OPTIONS[name]} {shlex.quote(value)}"
