"""Every table and figure of the paper, regenerated: ``closefar paper`` or ``python -m closefar.experiments``."""

__all__ = ["EXPERIMENTS"]

# One module each, in the order of the page.
EXPERIMENTS = (
    "noises",
    "accuracy",
    "precision",
    "iterations",
    "sample_size",
    "noise_level",
    "high_noise",
    "dml_eig_comparison",
    "combustion",
    "airline",
    "breast_cancer",
    "larger_dimension",
    "unbalanced",
    "units",
)
