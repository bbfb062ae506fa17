"""Messages of the library in the words of the command line, and text that a terminal can be shown."""

from __future__ import annotations

import pytest

from closefar.messages import as_arguments, as_options, printable
from closefar.solve.certificate import Outcome, advise


@pytest.mark.parametrize(
    ("python", "command_line"),
    [
        ("Try flip_rate='estimate'.", "Try --flip-rate estimate."),
        ('rank must be None, "auto" or a whole number', "--rank must be auto or a whole number"),
        ("got a learner with fit_origin=True. Leave it out.", "got a learner with --origin. Leave it out."),
        ("Limit the rank, or leave columns out.", "Limit the rank, or leave columns out."),
        ("Raise rank, or leave it out.", "Raise --rank, or leave it out."),
        ("Try noise='laplace'.", "Try --noise laplace."),
        ('Use prior="zero", or leave the rank out.', "Use --prior zero, or leave the rank out."),
        ("a wide prior on strictness", "a wide prior on strictness"),
        ('Set alpha="auto", or label more pairs.', "Set --alpha auto, or label more pairs."),
        ("more directions than rank=3 leaves. Raise rank.", "more directions than --rank 3 leaves. Raise --rank."),
        ("set far_label='not far'", "set --far 'not far'"),
        ("got a learner with fit_origin=True. Fit", "got a learner with --origin. Fit"),
        ("class_weight must be None to check", "--balanced must be left out to check"),
        ("raise max_iter, tol or alpha", "raise --max-iter, --tol or --alpha"),
        ("max_iter=5 steps did not reach tol=1.0e-06; no", "--max-iter 5 steps did not reach --tol 1.0e-06; no"),
        ("with flip_rate=0.", "with --flip-rate 0."),
        ("look at them with find_label_errors.", "look at them with closefar label-errors."),
        # English words and names of the user's stay as they are.
        ("the rank of M and the noise in groups", "the rank of M and the noise in groups"),
        ("most in column 'alpha': on", "most in column 'alpha': on"),
        ("of the columns 'noise=low', 'rank=2' and", "of the columns 'noise=low', 'rank=2' and"),
        ("already --alpha 0.1 and --rank 2", "already --alpha 0.1 and --rank 2"),
        ("columns 'rank=1' and noise=high", "columns 'rank=1' and noise=high"),
    ],
)
def test_parameters_become_options_and_features_stay(python: str, command_line: str) -> None:
    assert as_options(python) == command_line
    assert as_options(command_line) == command_line


@pytest.mark.parametrize("outcome", list(Outcome))
def test_no_outcome_names_a_parameter(outcome: Outcome) -> None:
    said = as_options(advise(outcome, gap=1e-3, is_proven=True, tol=1e-6, rank=2, max_iter=7))
    assert "=" not in said
    assert "_" not in said


def test_nothing_controls_a_terminal() -> None:
    assert printable("a\x1b[1m\x9b\u202e\x7f\udcff") == r"a\x1b[1m\x9b\u202e\x7f\udcff"
    assert printable("Größe 病房\n\U0001f468\u200d\U0001f4bb") == "Größe 病房\n\U0001f468\u200d\U0001f4bb"


@pytest.mark.parametrize(
    ("command_line", "python"),
    [
        ("with --missing drop, or --missing median.", "with missing='drop', or missing='median'."),
        ("use --unseen average to encode", "use unseen='average' to encode"),
        ("Leave it out with --drop 'my age', or", "Leave it out with drop=['my age'], or"),
        ("(--drop x)", "(drop=['x'])"),
        ("if they are codes, use --categorical a.b.", "if they are codes, use categorical=['a.b']."),
        ("with --drop, or with --na-values", "with drop=, or with na_values="),
        ("no column 'z', which --drop names", "no column 'z', which drop= names"),
        ("column '--label' of a--b", "column '--label' of a--b"),
    ],
)
def test_options_become_arguments(command_line: str, python: str) -> None:
    assert as_arguments(command_line) == python
