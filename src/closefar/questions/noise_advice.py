"""What to do if the labels do not fit the noise model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from closefar.arrays import FloatArray
from closefar.fitting import choose_noise
from closefar.judgements import Kind, effective_number
from closefar.model import Scored
from closefar.noise import NOISES, Noise

__all__ = ["DOUBT", "advise", "show_p_value"]

DOUBT = 0.05  # a p-value below this is evidence against the model
_TAILS_DIFFER = 2.0
_SMALLEST_SHOWN = 0.0001

# Another noise is recommended if its loss is lower by this many standard errors (Vuong's test), and flips
# if they raise the log-likelihood by this much.
_CLEARLY_BETTER = 1.96
_GAIN = 2.0

_METRIC_MAY_MISFIT = "The metric itself may not fit: diagnose() tests what else the labels depend on."


def advise(
    scored: Scored, p_value: float, tail_z: float, *, estimates_flips: bool = False, chooses_noise: bool = False
) -> str:
    """Recommend the noise that describes the labels clearly better, if there is one and it is not set already."""
    noise = scored.noise
    if p_value >= DOUBT:
        return f"No evidence against {noise.name} noise ({show_p_value(p_value)})."
    found = f"The labels do not fit {noise.name} noise ({show_p_value(p_value)}): "
    better = better_noise(scored)
    many = "more" if tail_z > 0 else "fewer"
    if better is not None and better.noise == noise and not estimates_flips:
        return found + "some are wrong even at the largest margins. Try flip_rate='estimate'."
    if better is not None and better.noise != noise and not chooses_noise:
        return found + f"{many} than expected are wrong at large margins. Try noise='{better.noise.name}'."
    if abs(tail_z) > _TAILS_DIFFER:
        return found + (
            f"{many} than expected are wrong at large margins, but no other noise fits clearly better. "
            f"{_METRIC_MAY_MISFIT}"
        )
    return found + f"at some margins too many or too few are far. {_METRIC_MAY_MISFIT}"


def better_noise(scored: Scored) -> Scored | None:
    """The same judgements under noise that fits clearly better (flips, or another kind), or None."""
    noise, weights = scored.noise, scored.judgements.weights
    others = {name: refitted(scored, other) for name, other in {**NOISES, noise.name: noise}.items()}
    choice = choose_noise({name: other.losses for name, other in others.items()}, weights)
    own, best = choice.comparison[noise.name], choice.comparison[choice.name]
    flipped = refitted(scored, noise, estimate_flips=True)
    gains = effective_number(weights) * (np.array([own["loss"], best["loss"]]) - flipped.loss)
    if gains[0] > _GAIN and gains[1] > 0.5 * _GAIN:
        return flipped
    return others[choice.name] if own["z"] > _CLEARLY_BETTER else None


def refitted(scored: Scored, noise: Noise, *, estimate_flips: bool = False) -> Scored:
    """The same judgements under another noise; only a scale and a shift of the margins are fitted again.

    Comparisons have no threshold that could shift.  Flips that are estimated replace those of the fit.
    """
    known = scored.flip_rate

    def at(parameters: FloatArray) -> Scored:
        scale, shift, rate = parameters
        rates = float(rate) if estimate_flips else known
        return replace(scored, margin=np.exp(scale) * scored.margin - shift, noise=noise, flip_rate=rates)

    near = float(np.mean(known))
    start = [0.0, 0.0, max(near, 0.02) if estimate_flips else 0.0]
    rates = (0.0, 0.49) if estimate_flips else (0.0, 0.0)
    shifts = (0.0, 0.0) if scored.judgements.kind is Kind.COMPARISONS else (None, None)
    bounds = ((-4.0, 4.0), shifts, rates)
    return at(minimize(lambda parameters: at(parameters).loss, start, method="L-BFGS-B", bounds=bounds).x)


def show_p_value(value: float) -> str:
    return f"p = {value:.2g}" if value >= _SMALLEST_SHOWN else f"p < {_SMALLEST_SHOWN:g}"
