"""Sentences about labels of pairs in the words of comparisons, which have answers."""

from __future__ import annotations

import re

from closefar.judgements import Kind

__all__ = ["in_words_of"]

_OF_COMPARISONS = (
    (r"\b([Ll])abel (?=more|about)", lambda found: "make " if found[1] == "l" else "Make "),
    (r"too many or too few are far\b", "too many or too few answers agree with the metric"),
    (r"\bpair(s?)\b", r"comparison\1"),
    (r"\blabel(s?)\b", r"answer\1"),
    (r"\bLabel(s?)\b", r"Answer\1"),
)


def in_words_of(kind: Kind, sentence: str) -> str:
    """The same sentence about another kind of judgement; names in code stay what they are."""
    if kind is not Kind.COMPARISONS:
        return sentence
    for pattern, words in _OF_COMPARISONS:
        sentence = re.sub(pattern, words, sentence)
    return sentence
