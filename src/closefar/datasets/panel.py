"""Simulated annotators: who judges what, how strictly, and how often at random."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import BoolArray, FloatArray, IndexArray

__all__ = ["Panel", "answers", "assign", "check_flip_rate", "draw_panel"]


@dataclass(frozen=True, eq=False, repr=False)
class Panel:
    """Simulated annotators.

    Attributes
    ----------
    names : array of shape (n_annotators,)
    strictness : array of shape (n_annotators,)
        What each adds to the thresholds: a strict annotator needs a larger squared distance to say far.
    flip_rates : array of shape (n_annotators,) or (n_annotators, 2)
        The share of each one's answers that are wrong whatever the distance, or those of close and of far pairs.
    at_random : array of shape (n_annotators,)
        Who answers at random.
    who : array of shape (n,)
        The number of the annotator of each judgement.
    """

    names: NDArray[np.str_]
    strictness: FloatArray
    flip_rates: FloatArray
    at_random: BoolArray
    who: IndexArray

    def __repr__(self) -> str:
        return f"Panel({len(self.names)} annotators, {np.count_nonzero(self.at_random)} of them at random)"


def draw_panel(
    who: IndexArray,
    n_annotators: int,
    spread: float,
    flip_rates: Any,
    n_random: int,
    n_levels: int,
    rng: np.random.Generator,
) -> Panel:
    """Draw annotators, those who answer at random among them."""
    whole = isinstance(n_random, numbers.Integral) and not isinstance(n_random, bool)
    if not (whole and 0 <= n_random <= n_annotators):
        raise ValueError(f"n_random_annotators must be from 0 to n_annotators = {n_annotators}; got {n_random!r}.")
    if not 0 <= spread < np.inf:
        raise ValueError(f"strictness_spread must be a finite number >= 0; got one that gives a spread of {spread!r}.")
    strictness = spread * rng.standard_normal(n_annotators)
    at_random = np.isin(np.arange(n_annotators), rng.choice(n_annotators, n_random, replace=False))
    rates = np.asarray(flip_rates, dtype=np.float64)
    most = 1.0 - 1.0 / n_levels
    if rates.shape not in ((), (1, 2), (n_annotators,)) or not np.all((rates >= 0) & (rates <= most)):
        raise ValueError(
            f"annotator_flip_rates must be {n_annotators} numbers from 0 to {most:g}, the rate of random answers; "
            f"got {flip_rates!r}."
        )
    names = np.array([f"A{number:0{len(str(n_annotators))}d}" for number in range(1, n_annotators + 1)])
    chance = np.where(at_random[:, None] if rates.ndim == 2 else at_random, most, rates)
    return Panel(names, strictness, chance, at_random, who)


def assign(n: int, n_repeats: int, n_annotators: int, rng: np.random.Generator) -> IndexArray:
    """Who judges: annotators in turn, in an order that changes each time, and never twice the same pair."""
    if n_repeats > n_annotators:
        raise ValueError(
            f"n_repeats must be at most n_annotators = {n_annotators}, as nobody judges a pair twice; got {n_repeats}."
        )
    pair, repeat = np.divmod(np.arange(n), n_repeats)
    turn, place = np.divmod(pair, n_annotators)
    everyone = np.tile(np.arange(n_annotators), (int(turn[-1]) + 1, 1))
    order, shift = rng.permuted(everyone, axis=1), rng.permuted(everyone, axis=1)
    who: IndexArray = order[turn, (place + shift[turn, repeat]) % n_annotators]
    return who


def check_flip_rate(flip_rate: Any, own_rates: Any, kind: str, n_levels: int) -> FloatArray:
    """Return the share of flipped answers as a number, that of each side as one row, or the annotators'."""
    if own_rates is not None:
        if np.any(np.asarray(flip_rate) != 0):
            raise ValueError(
                f"annotator_flip_rates replace flip_rate; got both, flip_rate={flip_rate!r}. Leave one out."
            )
        return np.asarray(own_rates, dtype=np.float64)
    values = np.asarray(flip_rate, dtype=np.float64)
    most = 1.0 - 1.0 / n_levels
    is_two = values.shape == (2,) and kind == "pairs"
    if not ((values.shape == () or is_two) and np.all((values >= 0) & (values <= most)) and values.sum() < 1):
        two = ", or two for close and for far pairs with a sum below 1" if kind == "pairs" else ""
        raise ValueError(f"flip_rate must be a number from 0 to {most:g}{two}; got {flip_rate!r} for {kind}.")
    return values[None] if is_two else values


def answers(
    heard: FloatArray, cuts: tuple[float, ...], rates: FloatArray, panel: Panel | None, rng: np.random.Generator
) -> tuple[IndexArray, IndexArray]:
    """What is said, as a code from 0, before and after flips."""
    if panel is not None:
        heard, rates = heard - panel.strictness[panel.who], panel.flip_rates[panel.who]
    said = np.searchsorted(cuts, heard, side="right")
    return said, _flipped(said, rates, len(cuts) + 1, rng)


def _flipped(codes: IndexArray, rates: FloatArray, n_levels: int, rng: np.random.Generator) -> IndexArray:
    """The answers after flips at one rate, at one for each answer, or at two for close and for far.

    A share rho of answers is drawn from all K levels alike, of which rho (K - 1) / K differ from what was said.
    """
    chance, drawn = rng.uniform(size=len(codes)), rng.integers(n_levels, size=len(codes))
    if rates.ndim == 2:
        return np.where(chance < np.where(codes == 1, rates[:, 1], rates[:, 0]), 1 - codes, codes)
    return np.where(chance < rates * n_levels / (n_levels - 1), drawn, codes)
