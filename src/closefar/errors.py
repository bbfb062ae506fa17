"""Messages that name settings, in the words of Python or of the command line, and errors that programs can read.

A message knows both wordings from the start: it is a `Sentence`, a string in the words of Python that holds the
words of the command line as well, and is put together with `+`. Nothing rewrites a finished text.
"""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

__all__ = ["InvalidValueError", "Sentence", "command_words", "either", "joined", "printable", "setting", "words_of"]

# The options of parameters that are named otherwise; the option of any other is its name with dashes.
_OPTIONS = {
    "annotators": "--annotator",
    "class_weight": "--balanced",
    "far_label": "--far",
    "fit_origin": "--origin",
    "groups": "--group",
    "n_comparisons": "--comparisons",
    "n_features": "--features",
    "n_pairs": "--pairs",
    "n_points": "--points",
    "n_workers": "--workers",
    "sample_weight": "--weight",
}
_SWITCHES = {"class_weight", "fit_origin"}  # options without a value

# Categories of characters that may control a terminal, and those of them that don't: the last two join letters, in
# Persian and in emoji.
_CONTROLLING = ("Cc", "Cf", "Cs", "Zl", "Zp")
_HARMLESS = "\n\t\u200c\u200d"


class Sentence(str):
    """A text in the words of Python, which has those of the command line as `command`.

    Adding text keeps both (an f-string would keep the words of Python only); it travels to other processes whole.
    """

    command: str

    def __new__(cls, python: str, command: str) -> Sentence:
        made = super().__new__(cls, python)
        made.command = command
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.command

    def __add__(self, more: str) -> Sentence:
        return Sentence(str(self) + str(more), self.command + command_words(more))

    def __radd__(self, before: str) -> Sentence:
        return Sentence(str(before) + str(self), command_words(before) + self.command)


def setting(name: str = "", text: str = "", /, **value: Any) -> Sentence:
    """Name a setting, by its parameter in Python and by its option on the command line.

    A value is given by keyword, or as a text after the name if it has a format of its own.

    Examples
    --------
    >>> from closefar.errors import setting
    >>> advice = "Set " + setting(alpha="auto") + ", or raise " + setting("max_iter") + "."
    >>> print(advice)
    Set alpha="auto", or raise max_iter.
    >>> print(advice.command)
    Set --alpha auto, or raise --max-iter.
    >>> print(setting("tol", "1.0e-06").command)
    --tol 1.0e-06
    """
    if not value:
        option = _option(name)
        return Sentence(f"{name}={text}", f"{option} {text}") if text else Sentence(name, option)
    ((name, given),) = value.items()
    option, python = _option(name), f"{name}={_literal(given)}"
    if name in _SWITCHES:
        return Sentence(python, option)
    return Sentence(python, f"no {option}" if given is None else f"{option} {_argument(given)}")


def either(python: str, command: str) -> Sentence:
    """The first in Python, the second on the command line."""
    return Sentence(str(python), command_words(command))


def joined(texts: Iterable[str], separator: str = " ") -> Sentence:
    """Join texts, each in its own words."""
    listed = list(texts)
    return Sentence(separator.join(listed), separator.join(map(command_words, listed)))


def command_words(message: object) -> str:
    """The message, or that of an error or a warning, in the words of the command line if it has them."""
    if isinstance(message, BaseException):
        message = words_of(message)
    return message.command if isinstance(message, Sentence) else str(message)


def words_of(error: BaseException) -> str:
    """The message of an error, in both wordings if it has them."""
    return error.args[0] if error.args and isinstance(error.args[0], Sentence) else str(error)


class InvalidValueError(ValueError):
    """A parameter has a value that breaks a rule.

    Attributes
    ----------
    parameter : str
        The name of the parameter in Python.
    rule : str
        What holds for the parameter, such as "must be a whole number >= 1".
    value : object
        The value received.
    remedy : str
        What to do; empty where the rule says it.

    Examples
    --------
    >>> from closefar.errors import InvalidValueError, command_words
    >>> error = InvalidValueError("max_iter", "must be a whole number >= 1", 0)
    >>> print(error)
    max_iter must be a whole number >= 1; got 0.
    >>> print(command_words(error))
    --max-iter must be a whole number >= 1; got 0.
    """

    def __init__(self, parameter: str, rule: str, value: object, remedy: str = "") -> None:
        self.parameter, self.rule, self.value, self.remedy = parameter, rule, value, remedy
        text = setting(parameter) + " " + rule + f"; got {value!r}."
        super().__init__(text + " " + remedy if remedy else text)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.parameter, self.rule, self.value, self.remedy)


def _option(name: str) -> str:
    return _OPTIONS.get(name, "--" + name.replace("_", "-"))


def _literal(value: Any) -> str:
    """A value as it is written in Python."""
    if isinstance(value, str):
        return repr(value) if '"' in value or "\\" in value or not value.isprintable() else f'"{value}"'
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    return repr(float(value)) if isinstance(value, Real) and not isinstance(value, bool) else repr(value)


def _argument(value: Any) -> str:
    """A value as it is written after an option; several of them have commas between."""
    if isinstance(value, str):
        return shlex.quote(value)
    if isinstance(value, (list, tuple)):
        return ",".join(map(_argument, value))
    return _literal(value)


def printable(text: str) -> str:
    r"""Escape what could control a terminal: control characters but line ends, and those that turn text around.

    Examples
    --------
    >>> from closefar.errors import printable
    >>> print(printable("a\x1b[31m red name"))
    a\x1b[31m red name
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape", "backslashreplace").decode("ascii")
        if unicodedata.category(letter) in _CONTROLLING and letter not in _HARMLESS
        else letter
        for letter in text
    )
