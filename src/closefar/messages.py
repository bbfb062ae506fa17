"""Messages in the words of the command line, and text that is safe to show on a terminal."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["as_options", "printable"]

# The parameters of learners and questions, and the options that set them.
_OPTIONS = {
    "alpha": "--alpha",
    "alpha_scale": "--alpha-scale",
    "class_weight": "--balanced",
    "delta": "--delta",
    "far_label": "--far",
    "fit_origin": "--origin",
    "flip_rate": "--flip-rate",
    "max_iter": "--max-iter",
    "measure": "--measure",
    "noise": "--noise",
    "rank": "--rank",
    "sample_weight": "--weight",
    "scale": "--scale",
    "shrink_to": "--shrink-to",
    "target_error": "--target-error",
    "tol": "--tol",
}
_SWITCHES = {"fit_origin", "class_weight"}
_PYTHON_ONLY = {
    "diagnose()": "the report",
    "learner.report": "the report",
    "groups must be": "--group must name",
    "Give groups to say": "Use --group to say",
    'None, "auto" or a': "auto or a",
    "Set fewer folds (cv), or label": "Label",
    "max_iter, tol or alpha": "--max-iter, --tol or --alpha",
    "(try 0.001) or tol": "(try 0.001) or --tol",
}

_NAMES = "|".join(sorted(_OPTIONS, key=len, reverse=True))
_LONG_NAMES = "|".join(name for name in _OPTIONS if "_" in name)
# Values that a parameter may have: names of features, as ward=south, are left alone.
_VALUE = r"""(?:"[a-z]+"|'[a-z]+'|None|True|\.\.\.|-?\d[\d.]*(?:e[-+]?\d+)?)"""
_SETTING = re.compile(rf"(?<![\w'\".=-])({_NAMES}) ?= ?({_VALUE})(?![\w'\"])")
_LONG_NAME = re.compile(rf"(?<![\w'\".=-])({_LONG_NAMES})(?![\w'\"=])")
_SUBJECT = re.compile(
    rf"(^|[.;:]\s|[Rr]aise\s|[Ll]ower\s|Set\s|smaller\s|larger\s)({_NAMES})(?=\smust|[.,]\s|\.$|\sor\s|\s>\s|\s\()"
)


def as_options(text: str) -> str:
    """Name the options of the command line where a message of the library names Python parameters.

    Examples
    --------
    >>> from closefar.messages import as_options
    >>> as_options('Set alpha="auto", or raise max_iter.')
    'Set --alpha auto, or raise --max-iter.'
    """
    for python, words in _PYTHON_ONLY.items():
        text = text.replace(python, words)
    text = _SETTING.sub(_setting, text)
    text = _LONG_NAME.sub(lambda found: _OPTIONS[found[1]], text)
    return _SUBJECT.sub(lambda found: found[1] + _OPTIONS[found[2]], text)


def printable(text: str) -> str:
    r"""Escape what could control a terminal: control characters but line ends, and those that turn text around.

    Examples
    --------
    >>> from closefar.messages import printable
    >>> print(printable("a\x1b[31m red name"))
    a\x1b[31m red name
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(letter if _is_harmless(letter) else _escaped(letter) for letter in text)


def _setting(found: re.Match[str]) -> str:
    option, value = _OPTIONS[found[1]], found[2].strip("\"'")
    if found[1] in _SWITCHES or value == "...":
        return option
    return f"no {option}" if value == "None" else f"{option} {value}"


def _is_harmless(letter: str) -> bool:
    if letter in "\n\t\u200c\u200d":  # the last two join letters, in Persian and in emoji
        return True
    return unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "backslashreplace").decode("ascii")
