"""Messages of the library in the words of the command line, and text that a terminal can be shown."""

from __future__ import annotations

import pytest

from closefar.messages import as_options, printable


@pytest.mark.parametrize(
    ("python", "command_line"),
    [
        ("Try flip_rate='estimate'.", "Try --flip-rate estimate."),
        ('rank must be None, "auto" or a whole number', "--rank must be auto or a whole number"),
        ("got a learner with fit_origin=True. Leave it out.", "got a learner with --origin. Leave it out."),
        ("Limit the rank, or leave columns out.", "Limit the rank, or leave columns out."),
        ("Raise rank, or leave it out.", "Raise --rank, or leave it out."),
        ("columns 'rank=1' and noise=high", "columns 'rank=1' and noise=high"),
    ],
)
def test_parameters_become_options_and_features_stay(python: str, command_line: str) -> None:
    assert as_options(python) == command_line


def test_nothing_controls_a_terminal() -> None:
    assert printable("a\x1b[1m\x9b\u202e\x7f\udcff") == r"a\x1b[1m\x9b\u202e\x7f\udcff"
    assert printable("Größe 病房\n\U0001f468\u200d\U0001f4bb") == "Größe 病房\n\U0001f468\u200d\U0001f4bb"
