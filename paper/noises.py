"""Experiment 1: the four noises at equal variance, and the constants of the theory."""

from __future__ import annotations

import math

import numpy as np

import closefar as cf
from paper.sections import Section, compare, comparison, figure, grid, panel, section, series
from paper.synthetic import MODELS
from paper.trials import Run

_RADII = (1.0, 2.0, 5.0, 10.0)
_PAPER_STD = {"logistic": math.pi / math.sqrt(3.0), "normal": 1.0, "laplace": math.sqrt(2.0), "hypsecant": 1.0}
_PAPER_ZETA = {"logistic": 1.0, "laplace": 1.0, "hypsecant": math.pi / 2.0}
_ROUNDING = "Rounding in the last digit."
_FINITE_RADIUS = "The paper states the limit for a large radius; ours is the value at radius 10."
_ERRATUM = (
    "The paper prints the product βF log 2 (appendix, Laplace noise); the maximum of −log Φ is the sum βF + log 2."
)


def noises(run: Run) -> Section:
    """Draw the densities and tabulate std, zeta, omega and T; nothing here is random."""
    grid_points = np.linspace(-5.0, 5.0, 401)
    curves, rows, constants = [], [], []
    for name, word in MODELS.items():
        noise = cf.noise.get_noise(name)
        curves.append(series(word, grid_points, noise.std * np.asarray(noise.pdf(noise.std * grid_points))))
        rows.append(compare(f"standard deviation, {word}", noise.std, _PAPER_STD.get(name), _ROUNDING))
        rows.append(compare(f"ζ, {word}", noise.constants(10.0).zeta, _PAPER_ZETA.get(name), _FINITE_RADIUS))
        for radius in _RADII:
            found = noise.constants(radius)
            constants.append([word, f"{radius:g}", f"{found.zeta:.4f}", f"{found.omega:.3e}", f"{found.T:.4f}"])
    rows.append(
        compare("T at βF = 5, Laplace", cf.noise.get_noise("laplace").constants(5.0).T, 5.0 * math.log(2.0), _ERRATUM)
    )
    return section(
        "At equal variance, the four densities differ most at the centre and in the tails. Only for Gaussian noise "
        f"does ζ grow without bound; at βF = 10 it is {cf.noise.get_noise('normal').constants(10.0).zeta:.1f}.",
        "This reproduces the paper's table “Simple noise models” and the figure that goes with it. β bounds the scale "
        "of the noise and F the squared distances; only their product, the radius βF, matters. ζ is the largest slope "
        "of −log Φ, ω the smallest density and T the largest loss.",
        tables=[
            comparison("Constants stated in the paper", rows),
            grid("Constants for margins up to the radius βF", ["noise", "βF", "ζ", "ω", "T"], constants),
        ],
        figures=[
            figure(
                "densities",
                "Densities of the four noise models with mean 0 and variance 1.",
                [panel("", "noise (standard deviations)", "density", curves)],
            )
        ],
        notes=[
            "Errata in the paper: the hyperbolic-secant risk is printed with exp(π/2 · (−ℓ(…))), where the sign should "
            "be +ℓ(…); T for Laplace noise is the sum βF + log 2, printed as a product; and the sample size depends on "
            "ζ squared, printed to the first power."
        ],
    )
