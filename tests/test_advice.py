"""Advice in the words of the command line."""

from __future__ import annotations

import pytest

from closefar.advice import for_command_line
from closefar.solve.certificate import Outcome, advise


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Try flip_rate='estimate'.", "Try --flip-rate estimate."),
        ("Try noise='laplace'.", "Try --noise laplace."),
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
    ],
)
def test_parameters_become_options(words: str, expected: str) -> None:
    assert for_command_line(words) == expected
    assert for_command_line(expected) == expected


@pytest.mark.parametrize("outcome", list(Outcome))
def test_no_outcome_names_a_parameter(outcome: Outcome) -> None:
    said = for_command_line(advise(outcome, gap=1e-3, is_proven=True, tol=1e-6, rank=2, max_iter=7))
    assert "=" not in said
    assert "_" not in said
