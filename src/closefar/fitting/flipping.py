"""The likelihood with flips that settings ask for."""

from __future__ import annotations

from closefar.fitting.settings import Settings
from closefar.solve import CloseFar, FlippedCloseFar

__all__ = ["flipped_likelihood"]


def flipped_likelihood(likelihood: CloseFar, settings: Settings) -> FlippedCloseFar | None:
    """The likelihood of the same judgements with flips, at the known rates or at zero; None without flips."""
    rate = settings.known_flip_rate
    if rate == 0.0:
        return None
    if rate is None:
        rate = (0.0, 0.0) if settings.has_two_rates else 0.0
    return FlippedCloseFar(likelihood.noise, likelihood.signs, likelihood.weights, rate, likelihood.lengths)
