"""The experiments by name, in the order of the page."""

__all__ = ["EXPERIMENTS"]

# One module each.
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
