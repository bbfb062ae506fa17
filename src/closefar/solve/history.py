"""A step of a fit, as its history keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from closefar.solve.certificate import Certificate

__all__ = ["FitStep"]


@dataclass(frozen=True)
class FitStep:
    """The objective after a number of passes over the data, and the gap proven by then.

    `gap` is infinite until one is proven.
    """

    passes: float
    objective: float
    gap: float

    @classmethod
    def last(cls, certificate: Certificate) -> FitStep:
        """The last step of a fit with this certificate."""
        return cls(certificate.n_passes, certificate.objective, certificate.gap)
