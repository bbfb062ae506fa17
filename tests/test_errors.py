"""Messages of the library in the words of Python and of the command line, and text that a terminal can be shown."""

from __future__ import annotations

import pickle

import pytest

import closefar as cf
from closefar.errors import InvalidValueError, Sentence, command_words, either, joined, printable, setting, words_of
from closefar.solve.certificate import Outcome, advise_outcome


@pytest.mark.parametrize(
    ("said", "python", "command"),
    [
        (setting("max_iter"), "max_iter", "--max-iter"),
        (setting("class_weight"), "class_weight", "--balanced"),
        (setting(alpha="auto"), 'alpha="auto"', "--alpha auto"),
        (setting(far_label="not far"), 'far_label="not far"', "--far 'not far'"),
        (setting(fit_origin=True), "fit_origin=True", "--origin"),
        (setting(rank=None), "rank=None", "no --rank"),
        (setting(rank=3), "rank=3", "--rank 3"),
        (setting(drop=["a", "b c"]), "drop=['a', 'b c']", "--drop a,'b c'"),
        (setting("tol", "1.0e-06"), "tol=1.0e-06", "--tol 1.0e-06"),
        ("Raise " + setting("alpha") + " or " + setting("tol") + ".", "Raise alpha or tol.", "Raise --alpha or --tol."),
        (joined(["First.", either("Python.", "Command.")]), "First. Python.", "First. Command."),
    ],
)
def test_a_sentence_has_both_wordings(said: Sentence, python: str, command: str) -> None:
    assert (str(said), said.command, command_words(said)) == (python, command, command)
    copied = pickle.loads(pickle.dumps(said))
    assert (copied, copied.command) == (python, command)


def test_other_texts_stay_what_they_are() -> None:
    assert command_words("the rank of M and the noise in groups") == "the rank of M and the noise in groups"
    assert command_words(ValueError("no column 'alpha=1'")) == "no column 'alpha=1'"


def test_an_invalid_value_can_be_read_by_programs() -> None:
    pairs, labels, *_ = cf.datasets.make_pairs(200, 2, random_state=0)
    with pytest.raises(InvalidValueError, match=r"rank must be None, .*; got 7\.") as caught:
        cf.LinearMetricLearner(rank=7).fit(pairs, labels)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert (error.parameter, error.value, error.remedy) == ("rank", 7, "")
        assert error.rule == 'must be None, "auto" or a whole number from 1 to the 2 columns'
        assert command_words(error) == "--rank must be auto or a whole number from 1 to the 2 columns; got 7."
        assert command_words(words_of(error)) == command_words(error)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_no_outcome_names_a_parameter(outcome: Outcome) -> None:
    said = command_words(advise_outcome(outcome, gap=1e-3, is_proven=True, tol=1e-6, rank=2, max_iter=7))
    assert "=" not in said
    assert "_" not in said


def test_nothing_controls_a_terminal() -> None:
    assert printable("a\x1b[1m\x9b\u202e\x7f\udcff") == r"a\x1b[1m\x9b\u202e\x7f\udcff"
    assert printable("Größe 病房\n\U0001f468\u200d\U0001f4bb") == "Größe 病房\n\U0001f468\u200d\U0001f4bb"
