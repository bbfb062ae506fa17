"""Messages in the words of the command line or of Python, and text that is safe to show on a terminal."""

from __future__ import annotations

import re
import shlex
import unicodedata

__all__ = ["as_arguments", "as_options", "printable"]

# The parameters of learners and questions, and the options that set them.
_OPTIONS = {
    "alpha": "--alpha",
    "annotators": "--annotator",
    "class_weight": "--balanced",
    "comparison_noise": "--comparison-noise",
    "delta": "--delta",
    "device": "--device",
    "far_label": "--far",
    "fit_origin": "--origin",
    "flip_rate": "--flip-rate",
    "groups": "--group",
    "levels": "--levels",
    "max_iter": "--max-iter",
    "max_time": "--max-time",
    "measure": "--measure",
    "noise": "--noise",
    "prior": "--prior",
    "rank": "--rank",
    "sample_weight": "--weight",
    "scale": "--scale",
    "target_error": "--target-error",
    "tol": "--tol",
    "wrong_share": "--wrong-share",
}
_SWITCHES = {"class_weight", "fit_origin"}  # options without a value

# These are English words as well: they are parameters only where they have a value, or are to be changed.
_ENGLISH = {"annotators", "delta", "device", "groups", "levels", "measure", "noise", "prior", "rank", "scale"}

_PHRASES = {
    "diagnose() tests what else the labels depend on": "the report tests what else the labels depend on",
    "see diagnose()": "see the warnings of the report",
    "diagnose()": "the report",
    "learner.report": "the report",
    "find_label_errors": "closefar label-errors",
    "give `levels` in the opposite order, closest first": "give --levels in the opposite order, closest first",
    "got a fit with annotators. Use": "got annotators. Use --no-annotators, or",
    "negate y, or pass y=-1 for all of them if there is none": "give their id columns in another order with --compared",
    "ComparisonMetricLearner.calibrate_threshold(pairs, labels)": "calibrate_threshold in Python",
    "plan_sample_size says": "closefar sample-size says",
    " (closefar.open_pairs)": "",
    "check_noise_model rejects": "The noise check rejects",
    "class_weight must be None": "--balanced must be left out",
    "alpha > 0 (try 0.01)": "--alpha 0.01",
    "groups must be": "--group must name",
    "Give groups to say": "Use --group to say",
    'None, "auto" or a': "auto or a",
    'None (where the data is), "cpu", "cuda", or "cuda:1" and so on': "cpu, cuda, or cuda:1 and so on",
    "call fit again with the same checkpoint to continue": "run the same command again to continue",
    "give fit a checkpoint to continue": "add --checkpoint to continue it later",
}

# Not a part of another word or option, nor inside the quotes around a user's own name, as 'ward=south'.
_START = r"(?<![\w'\".=-])"
_VALUE = r"""('[^']*'|"[^"]*"|None|True|\.\.\.|-?\d[\d.]*\d(?:e[-+]?\d+)?|-?\d)"""
_SETTING = re.compile(rf"{_START}({'|'.join(_OPTIONS)}) ?= ?{_VALUE}")
_NAMED = re.compile(rf"{_START}({'|'.join(sorted(set(_OPTIONS) - _ENGLISH))})\b(?!['\"=])")
_CHANGED = re.compile(rf"(?i)\b(raise|lower|increase|set) ({'|'.join(_ENGLISH)})\b(?!=)")
_SUBJECT = re.compile(rf"(^|[.;:]\s)({'|'.join(_ENGLISH)})(?=\smust)")

# Options, with a word or the name of a column where one follows.
_OPTION = re.compile(r"(?<![\w'\".=-])--([a-z]+(?:-[a-z]+)*)")
_WORD_OPTION = re.compile(r"(?<![\w'\".=-])--(missing|unseen) (drop|median|average)\b")
_LIST_OPTION = re.compile(r"""(?<![\w'".=-])--(drop|categorical) (?!names\b|if\b|or\b)('[^']*'|[\w.:/=@%+-]*\w)""")


def as_options(text: str) -> str:
    """Name the options of the command line where a message of the library names Python parameters.

    Examples
    --------
    >>> from closefar.messages import as_options
    >>> as_options('Set alpha="auto", or raise max_iter.')
    'Set --alpha auto, or raise --max-iter.'
    """
    for python, words in _PHRASES.items():
        text = text.replace(python, words)
    text = _SETTING.sub(_setting, text)
    text = _NAMED.sub(lambda found: _OPTIONS[found[1]], text)
    text = _CHANGED.sub(lambda found: f"{found[1]} {_OPTIONS[found[2]]}", text)
    return _SUBJECT.sub(lambda found: found[1] + _OPTIONS[found[2]], text)


def as_arguments(text: str) -> str:
    """Name the arguments of Python where a message about a file names options of the command line.

    Examples
    --------
    >>> from closefar.messages import as_arguments
    >>> as_arguments("Leave those rows out with --missing drop, or the column with --drop age.")
    "Leave those rows out with missing='drop', or the column with drop=['age']."
    """
    text = _WORD_OPTION.sub(r"\1='\2'", text.replace("--no-annotators", "annotator=False"))
    text = _LIST_OPTION.sub(lambda found: f"{found[1]}=[{shlex.split(found[2])[0]!r}]", text)
    return _OPTION.sub(lambda found: f"{found[1].replace('-', '_')}=", text)


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
    return f"no {option}" if value == "None" else f"{option} {shlex.quote(value)}"


def _is_harmless(letter: str) -> bool:
    if letter in "\n\t\u200c\u200d":  # the last two join letters, in Persian and in emoji
        return True
    return unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "backslashreplace").decode("ascii")
